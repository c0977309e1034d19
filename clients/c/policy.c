#include "run.h"

#include <math.h>
#include <string.h>

static const double PI = 3.14159265358979323846;

uint64_t random_bits(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

double random_unit(uint64_t *state) { return (double)(random_bits(state) >> 11) * 0x1p-53; }

static double random_normal(uint64_t *state) {
    double u = 1.0 - random_unit(state); /* in (0, 1]: Box and Muller 1958 */
    return sqrt(-2.0 * log(u)) * cos(2.0 * PI * random_unit(state));
}

double exploration_rank(uint64_t index) {
    double position = 0.0, digit = 0.5;
    for (uint64_t number = index + 1; number; number >>= 1, digit /= 2) position += digit * (double)(number & 1);
    return position;
}

/* The forward pass. Arrays of a model are where they lie in its row: every column begins at a
 * multiple of 8 bytes, and the row is in memory of malloc. */

static const float *array(const run *r, const uint8_t *model, unsigned column) {
    return (const float *)(const void *)(model + r->model.columns[column].offset);
}

static void linear(const run *r, const uint8_t *model, const run_layer *layer, const float *x, float *y) {
    const float *weight = array(r, model, layer->weight), *bias = array(r, model, layer->bias);
    for (size_t o = 0; o < layer->out; o++, weight += layer->in) {
        float sum = bias[o];
        for (size_t i = 0; i < layer->in; i++) sum += weight[i] * x[i];
        y[o] = sum;
    }
}

static void normalize(float *x, size_t size, float eps) {
    double mean = 0, variance = 0;
    for (size_t k = 0; k < size; k++) mean += x[k];
    mean /= (double)size;
    for (size_t k = 0; k < size; k++) variance += (x[k] - mean) * (x[k] - mean);
    double scale = 1.0 / sqrt(variance / (double)size + (double)eps);
    for (size_t k = 0; k < size; k++) x[k] = (float)((x[k] - mean) * scale);
}

/* From x to y, which may be the same; the last three parts of the scratch memory are its own. */
static void forward(const run *r, const uint8_t *model, const run_network *network, const float *x, float *y) {
    float *a = r->scratch + 5 * r->width, *b = a + r->width, *saved = b + r->width;
    memcpy(a, x, network->in * sizeof *x);
    for (unsigned k = 0; k < network->count; k++) {
        const run_layer *layer = network->layers + k;
        switch (layer->kind) {
        case LINEAR: {
            linear(r, model, layer, a, b);
            float *swap = a;
            a = b;
            b = swap;
            break;
        }
        case RELU:
            for (size_t i = 0; i < layer->out; i++) a[i] = a[i] > 0 ? a[i] : 0;
            break;
        case NORMALIZE: normalize(a, layer->out, layer->eps); break;
        case SAVE: memcpy(saved, a, layer->out * sizeof *a); break;
        case ADD:
            for (size_t i = 0; i < layer->out; i++) a[i] += saved[i];
            break;
        }
    }
    memcpy(y, a, network->out * sizeof *y);
}

static double number_at(const run_column *column, const uint8_t *data, size_t k) {
    const uint8_t *at = data + k * column->width;
    bool is_signed = column->type[0] == 'i';
    if (column->type[0] == 'f') {
        float f;
        double d;
        if (column->width == 8) return memcpy(&d, at, 8), d;
        return memcpy(&f, at, 4), (double)f;
    }
    uint64_t bits = 0;
    for (size_t i = column->width; i--;) bits = bits << 8 | at[i];
    if (!is_signed) return (double)bits;
    uint64_t sign = (uint64_t)1 << (8 * column->width - 1);
    return bits & sign ? -(double)((~bits & (sign - 1)) + 1) : (double)bits;
}

static void read_features(const run *r, const uint8_t *model, const void *obs, float *x) {
    const run_policy *p = &r->policy;
    const run_column *column = r->rows.columns + r->row[OBS];
    if (p->classes) {
        double of = number_at(column, obs, 0) - (double)p->first_class;
        memset(x, 0, p->features * sizeof *x);
        if (of >= 0 && of < (double)p->classes) x[(size_t)of] = 1.0f;
        return;
    }
    for (size_t k = 0; k < p->features; k++) x[k] = (float)number_at(column, obs, k) * (float)p->scale;
    if (!p->normalize) return;
    const float *mean = array(r, model, p->mean), *scale = array(r, model, p->deviation);
    for (size_t k = 0; k < p->features; k++) {
        float value = (x[k] - mean[k]) * scale[k];
        x[k] = value < -p->clip ? -p->clip : value > p->clip ? p->clip : value;
    }
}

/* The mean over the quantile fractions: drawn, or the midpoints of as many equal parts. */
static void mean_of_quantiles(const run *r, const uint8_t *model, uint64_t *state, const float *psi, float *q) {
    const run_policy *p = &r->policy;
    float *x = r->scratch + 2 * r->width, *sum = r->scratch + 3 * r->width;
    size_t width = p->networks[1].out;
    memset(sum, 0, p->outputs * sizeof *sum);
    for (size_t k = 0; k < p->fractions; k++) {
        double tau = state ? random_unit(state) : ((double)k + 0.5) / (double)p->fractions;
        for (size_t i = 0; i < p->cosines; i++) x[i] = (float)cos(PI * (double)i * tau);
        forward(r, model, p->networks + 1, x, x);
        for (size_t i = 0; i < width; i++) x[i] *= psi[i];
        forward(r, model, p->networks + 2, x, x);
        for (size_t i = 0; i < p->outputs; i++) sum[i] += x[i];
    }
    for (size_t i = 0; i < p->outputs; i++) q[i] = sum[i] / (float)p->fractions;
}

static void outputs(const run *r, const uint8_t *model, uint64_t *state, const void *obs, float *y) {
    const run_policy *p = &r->policy;
    float *x = r->scratch, *value = r->scratch + 2 * r->width;
    read_features(r, model, obs, x);
    if (p->head != DUELING && p->head != QUANTILES) {
        forward(r, model, p->networks, x, y);
        return;
    }
    forward(r, model, p->networks, x, x);
    if (p->head == QUANTILES) {
        mean_of_quantiles(r, model, state, x, y);
        return;
    }
    forward(r, model, p->networks + 1, x, value);
    forward(r, model, p->networks + 2, x, y);
    float mean = 0;
    for (size_t k = 0; k < p->outputs; k++) mean += y[k] / (float)p->outputs;
    for (size_t k = 0; k < p->outputs; k++) y[k] += value[0] - mean;
}

/* Choosing */

static double epsilon(const run_policy *p, uint64_t version, double rank) {
    double done;
    switch (p->exploration) {
    case LADDER: return pow(p->epsilon_base, 1.0 + p->epsilon_alpha * rank);
    case LINEAR_EPSILON:
        done = p->epsilon_steps > 0 ? (double)version / p->epsilon_steps : 1.0;
        return p->epsilon_start + (done < 1.0 ? done : 1.0) * (p->epsilon_final - p->epsilon_start);
    case CONSTANT: return p->epsilon_final;
    default: return 0.0;
    }
}

static size_t choose(const run_policy *p, const float *q, size_t count, double eps, uint64_t *state) {
    size_t best = 0;
    double most = -INFINITY;
    if (state && p->exploration != SOFTMAX && random_unit(state) < eps)
        return (size_t)(random_unit(state) * (double)count);
    for (size_t k = 0; k < count; k++) {
        double value = q[k];
        if (state && p->exploration == SOFTMAX) /* argmax of q / T + Gumbel noise draws from the softmax */
            value = value / p->temperature - log(-log(1.0 - random_unit(state)));
        if (value > most) {
            most = value;
            best = k;
        }
    }
    return best;
}

static void put_integer(const run_column *column, uint8_t *data, size_t k, int64_t number) {
    for (size_t i = 0; i < column->width; i++)
        data[k * column->width + i] = (uint8_t)((uint64_t)number >> 8 * i);
}

static void put_float(const run_column *column, uint8_t *data, size_t k, float number) {
    double wide = number;
    if (column->width == 8) memcpy(data + 8 * k, &wide, 8);
    else memcpy(data + 4 * k, &number, 4);
}

/* A number in [-1, 1], before it is mapped to the bounds of its dimension. */
static double unit_action(const run_policy *p, const float *y, unsigned d, uint64_t version, uint64_t *state) {
    if (!state) return tanh((double)y[d]);
    if (version == 0 && p->uniform_warmup) return 2.0 * random_unit(state) - 1.0;
    if (p->head == DETERMINISTIC) {
        double noisy = tanh((double)y[d]) + p->noise * random_normal(state);
        return noisy < -1.0 ? -1.0 : noisy > 1.0 ? 1.0 : noisy;
    }
    double log_std = y[p->dimensions + d];
    log_std = log_std < p->log_std_min ? p->log_std_min : log_std > p->log_std_max ? p->log_std_max : log_std;
    return tanh((double)y[d] + exp(log_std) * random_normal(state));
}

void policy_act(const run *r, const uint8_t *model, uint64_t version, const void *obs, double rank,
                uint64_t *state, void *action) {
    const run_policy *p = &r->policy;
    const run_column *column = r->rows.columns + r->row[ACTION];
    float *y = r->scratch + 4 * r->width;
    outputs(r, model, state, obs, y);
    const float *q = y;
    for (unsigned d = 0; d < p->dimensions; d++) {
        if (p->head < GAUSSIAN) {
            size_t chosen = choose(p, q, p->counts[d], epsilon(p, version, rank), state);
            put_integer(column, action, d, p->starts[d] + (int64_t)chosen);
            q += p->counts[d];
        } else {
            float low = p->low[d], high = p->high[d], half = (high - low) * 0.5f;
            float number = (high + low) * 0.5f + (half > 0 ? half : 1.0f) * (float)unit_action(p, y, d, version, state);
            put_float(column, action, d, number < low ? low : number > high ? high : number);
        }
    }
}
