#include "run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS_MAX 256
#define WIDTH_MAX ((size_t)1 << 22) /* numbers between two layers */
#define WEIGHTS_MAX ((size_t)1 << 28) /* of a layer: a model has at most 1 GiB */

/* Reading */

static bool read_size(mp_bytes *items, size_t *size) {
    mp_value value;
    if (!mp_read(items, &value) || value.type != MP_UINT || value.number < 1 || value.number > WIDTH_MAX) return false;
    *size = (size_t)value.number;
    return true;
}

bool vd_find_array(const mp_value *array, const run_schema *model, size_t count, unsigned *column, char *why) {
    char name[129];
    if (array->type != MP_TEXT) return false;
    mp_copy_text(array, name, sizeof name);
    if (!vd_find_column(model, name, column)) return vd_explain(why, "the model has no array %s", name);
    const run_column *found = model->columns + *column;
    if (!strcmp(found->type, "f4") && found->count == count) return true;
    return vd_explain(why, "the model's array %s is %zu of %s, and its layer's sizes need %zu of f4", name,
                   found->count, found->type, count);
}

bool vd_read_array(mp_bytes *items, const run_schema *model, size_t count, unsigned *column, char *why) {
    mp_value array;
    return mp_read(items, &array) && vd_find_array(&array, model, count, column, why);
}

static bool skip(mp_bytes *items, unsigned count) {
    mp_value value;
    while (count--)
        if (!mp_read(items, &value)) return false;
    return true;
}

/* The names of the arrays come first, and their sizes behind them. */
static bool read_arrays(mp_bytes *items, const run_schema *model, layer *l, size_t weight, size_t bias, char *why) {
    return vd_read_array(items, model, weight, &l->weight, why) && vd_read_array(items, model, bias, &l->bias, why);
}

static bool read_linear(mp_bytes *items, const run_schema *model, layer *l, char *why) {
    mp_bytes sizes = *items;
    size_t in;
    return skip(&sizes, 2) && read_size(&sizes, &in) && in == l->in && read_size(&sizes, &l->out) &&
           l->in <= WEIGHTS_MAX / l->out && read_arrays(items, model, l, l->in * l->out, l->out, why);
}

/* A core: its arrays have the rows of three gates. */
static bool read_gru(mp_bytes *items, const run_schema *model, layer *l, char *why) {
    mp_bytes sizes = *items;
    size_t in;
    if (!skip(&sizes, 4) || !read_size(&sizes, &in) || in != l->in || !read_size(&sizes, &l->out)) return false;
    if (l->in > WEIGHTS_MAX / 3 / l->out || l->out > WEIGHTS_MAX / 3 / l->out) return false;
    size_t gates = 3 * l->out;
    return vd_read_array(items, model, gates * l->in, &l->weight, why) &&
           vd_read_array(items, model, gates * l->out, &l->state_weight, why) &&
           vd_read_array(items, model, gates, &l->bias, why) &&
           vd_read_array(items, model, gates, &l->state_bias, why);
}

static bool read_convolution(mp_bytes *items, const run_schema *model, layer *l, char *why) {
    mp_bytes sizes = *items;
    size_t channels;
    if (!skip(&sizes, 2) || !read_size(&sizes, &l->channels) || !read_size(&sizes, &l->height) ||
        !read_size(&sizes, &l->width) || !read_size(&sizes, &channels) || !read_size(&sizes, &l->kernel) ||
        !read_size(&sizes, &l->stride) || l->kernel > l->height || l->kernel > l->width)
        return false;
    if (l->height > WIDTH_MAX / l->channels || l->width > WIDTH_MAX / (l->channels * l->height)) return false;
    if (l->channels * l->height * l->width != l->in) return false;
    size_t rows = (l->height - l->kernel) / l->stride + 1, columns = (l->width - l->kernel) / l->stride + 1;
    if (rows * columns > WIDTH_MAX / channels) return false;
    l->out = channels * rows * columns;
    size_t patch = l->channels * l->kernel * l->kernel;
    return patch <= WEIGHTS_MAX / channels && read_arrays(items, model, l, channels * patch, channels, why);
}

static bool read_channels_first(mp_bytes *items, layer *l) {
    if (!read_size(items, &l->stack) || !read_size(items, &l->height) || !read_size(items, &l->width) ||
        !read_size(items, &l->channels))
        return false;
    if (l->height > WIDTH_MAX / l->stack || l->width > WIDTH_MAX / (l->stack * l->height)) return false;
    if (l->channels > WIDTH_MAX / (l->stack * l->height * l->width)) return false;
    return l->stack * l->height * l->width * l->channels == l->in;
}

static bool read_eps(mp_bytes *items, float *eps) {
    mp_value value;
    double number;
    if (!mp_read(items, &value) || !mp_real(&value, &number)) return false;
    *eps = (float)number;
    return *eps > 0;
}

/* The width is followed from layer to layer, and every array has to be as large as its layer reads. */
static bool read_layer(mp_bytes *bytes, const run_schema *model, layer *l, size_t *saved, bool may_remember,
                       char *why) {
    static const char *const kinds[] = {"linear", "relu", "tanh", "normalize", "scale",
                                        "save", "add", "convolution", "channels_first", "gru"};
    mp_value item, kind;
    char name[33] = "";
    if (!mp_read(bytes, &item) || item.type != MP_LIST || !mp_read(&item.items, &kind)) return false;
    unsigned k = 0;
    while (k < sizeof kinds / sizeof *kinds && !mp_is(&kind, kinds[k])) k++;
    if (kind.type == MP_TEXT) mp_copy_text(&kind, name, sizeof name);
    l->kind = (layer_kind)k;
    l->out = l->in;
    if (k == GRU && !may_remember) return vd_explain(why, "it has a layer gru that is not the first one");
    switch (k) {
    case LINEAR: return read_linear(&item.items, model, l, why);
    case RELU: return true;
    case TANH: return true;
    case NORMALIZE: return read_eps(&item.items, &l->eps);
    case SCALE: return read_arrays(&item.items, model, l, l->in, l->in, why);
    case SAVE: return *saved = l->in, true;
    case ADD: return *saved == l->in;
    case CONVOLUTION: return read_convolution(&item.items, model, l, why);
    case CHANNELS_FIRST: return read_channels_first(&item.items, l);
    case GRU: return read_gru(&item.items, model, l, why);
    default: return vd_explain(why, "it has a layer %s, which this client does not know", name);
    }
}

bool vd_read_network(mp_value *layers, const run_schema *model, size_t in, bool may_remember, network *n, char *why) {
    size_t saved = 0;
    if (layers->type != MP_LIST || layers->number > LAYERS_MAX || in < 1 || in > WIDTH_MAX) return false;
    n->in = n->out = n->widest = in;
    if (layers->number && !(n->layers = calloc((size_t)layers->number, sizeof *n->layers))) return false;
    for (; n->count < layers->number; n->count++) {
        layer *l = n->layers + n->count;
        l->in = n->out;
        if (!read_layer(&layers->items, model, l, &saved, may_remember && !n->count, why))
            return vd_explain(why, "the sizes of its layer %u do not fit the ones before it", n->count);
        n->out = l->out;
        if (l->kind == GRU) n->memory = l->out;
        if (l->out > n->widest) n->widest = l->out;
    }
    return true;
}

void vd_free_network(network *n) {
    free(n->layers);
    *n = (network){0};
}

/* Applying */

const float *vd_array(weights w, unsigned column) {
    return (const float *)(const void *)(w.row + w.schema->columns[column].offset);
}

#define LANES 8 /* independent sums, which a compiler can keep in one register */

static float dot(const float *a, const float *b, size_t size) {
    float sums[LANES] = {0}, sum = 0;
    size_t k = 0;
    for (; k + LANES <= size; k += LANES)
        for (size_t i = 0; i < LANES; i++) sums[i] += a[k + i] * b[k + i];
    for (; k < size; k++) sum += a[k] * b[k];
    for (size_t i = 0; i < LANES; i++) sum += sums[i];
    return sum;
}

static void apply_linear(const layer *l, weights w, const float *x, float *y) {
    const float *weight = vd_array(w, l->weight), *bias = vd_array(w, l->bias);
    for (size_t o = 0; o < l->out; o++) y[o] = bias[o] + dot(weight + o * l->in, x, l->in);
}

static float sigmoid(float x) { return 0.5f * tanhf(0.5f * x) + 0.5f; } /* without an overflow */

/* From x and the state s to the next state y; the rows of the gates r, z and n lie one below the other. */
static void apply_gru(const layer *l, weights w, const float *x, const float *s, float *y) {
    const float *of_x = vd_array(w, l->weight), *of_s = vd_array(w, l->state_weight);
    const float *bias_x = vd_array(w, l->bias), *bias_s = vd_array(w, l->state_bias);
    size_t in = l->in, size = l->out;
    for (size_t k = 0; k < size; k++) {
        float gate_x[3], gate_s[3];
        for (size_t g = 0; g < 3; g++) {
            size_t row = g * size + k;
            gate_x[g] = bias_x[row] + dot(of_x + row * in, x, in);
            gate_s[g] = bias_s[row] + dot(of_s + row * size, s, size);
        }
        float r = sigmoid(gate_x[0] + gate_s[0]), z = sigmoid(gate_x[1] + gate_s[1]);
        float n = tanhf(gate_x[2] + r * gate_s[2]);
        y[k] = n + z * (s[k] - n);
    }
}

/* x is [channels, height, width], y [channels out, rows, columns]; patch: memory for one patch of x. */
static void apply_convolution(const layer *l, weights w, const float *x, float *y, float *patch) {
    const float *weight = vd_array(w, l->weight), *bias = vd_array(w, l->bias);
    size_t rows = (l->height - l->kernel) / l->stride + 1, columns = (l->width - l->kernel) / l->stride + 1;
    size_t places = rows * columns, size = l->channels * l->kernel * l->kernel;
    for (size_t p = 0; p < places; p++) {
        const float *corner = x + p / columns * l->stride * l->width + p % columns * l->stride;
        float *into = patch;
        for (size_t c = 0; c < l->channels; c++)
            for (size_t k = 0; k < l->kernel; k++, into += l->kernel)
                memcpy(into, corner + (c * l->height + k) * l->width, l->kernel * sizeof *into);
        for (size_t o = 0; o < l->out / places; o++)
            y[o * places + p] = bias[o] + dot(weight + o * size, patch, size);
    }
}

/* From [stack, height, width, channels] to [stack, channels, height, width]. */
static void move_channels(const layer *l, const float *x, float *y) {
    size_t pixels = l->height * l->width;
    for (size_t s = 0; s < l->stack; s++, x += pixels * l->channels, y += pixels * l->channels)
        for (size_t p = 0; p < pixels; p++)
            for (size_t c = 0; c < l->channels; c++) y[c * pixels + p] = x[p * l->channels + c];
}

static void normalize(float *x, size_t size, float eps) {
    double mean = 0, variance = 0;
    for (size_t k = 0; k < size; k++) mean += x[k];
    mean /= (double)size;
    for (size_t k = 0; k < size; k++) variance += (x[k] - mean) * (x[k] - mean);
    double scale = 1.0 / sqrt(variance / (double)size + (double)eps);
    for (size_t k = 0; k < size; k++) x[k] = (float)((x[k] - mean) * scale);
}

/* A layer that keeps the width, in place. */
static void apply_in_place(const layer *l, weights w, float *x, float *saved) {
    size_t size = l->out;
    if (l->kind == RELU) {
        for (size_t k = 0; k < size; k++) x[k] = x[k] > 0 ? x[k] : 0;
    } else if (l->kind == TANH) {
        for (size_t k = 0; k < size; k++) x[k] = tanhf(x[k]);
    } else if (l->kind == NORMALIZE) {
        normalize(x, size, l->eps);
    } else if (l->kind == SCALE) {
        const float *by = vd_array(w, l->weight), *add = vd_array(w, l->bias);
        for (size_t k = 0; k < size; k++) x[k] = by[k] * x[k] + add[k];
    } else if (l->kind == SAVE) {
        memcpy(saved, x, size * sizeof *x);
    } else {
        for (size_t k = 0; k < size; k++) x[k] += saved[k];
    }
}

void vd_apply_network(const network *n, weights w, const float *x, float *state, float *y, float *memory) {
    float *now = memory, *next = now + n->widest, *saved = next + n->widest, *patch = saved + n->widest;
    memcpy(now, x, n->in * sizeof *x);
    for (unsigned k = 0; k < n->count; k++) {
        const layer *l = n->layers + k;
        if (l->kind != LINEAR && l->kind != CONVOLUTION && l->kind != CHANNELS_FIRST && l->kind != GRU) {
            apply_in_place(l, w, now, saved);
            continue;
        }
        if (l->kind == LINEAR) apply_linear(l, w, now, next);
        else if (l->kind == CONVOLUTION) apply_convolution(l, w, now, next, patch);
        else if (l->kind == GRU) apply_gru(l, w, now, state, next);
        else move_channels(l, now, next);
        if (l->kind == GRU) memcpy(state, next, l->out * sizeof *state);
        float *swap = now;
        now = next;
        next = swap;
    }
    memcpy(y, now, n->out * sizeof *y);
}
