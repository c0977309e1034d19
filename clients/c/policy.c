#include "run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define INPUTS_MAX 256
#define CLASSES_MAX ((size_t)1 << 16) /* categories, or actions, of all dimensions */
#define FEATURES_MAX ((size_t)1 << 22)
#define FRACTIONS_MAX 4096
#define NOISE_EXPONENT_MAX 4.0
#define NOISE_STEPS_MAX ((uint64_t)1 << 20)

/* Reading the description */

static bool read_integer(mp_bytes *items, int64_t *number) {
    mp_value value;
    if (!mp_read(items, &value) || (value.type != MP_UINT && value.type != MP_INT)) return false;
    *number = value.type == MP_INT ? value.negative : (int64_t)value.number;
    return value.type == MP_INT || value.number <= INT64_MAX;
}

/* Append counts and the value that each one's first stands for; `total` is the counts' sum. */
static bool read_classes(mp_value *counts, mp_value *starts, class_list *list, size_t *total) {
    *total = 0;
    if (counts->type != MP_LIST || starts->type != MP_LIST || counts->number != starts->number) return false;
    if (counts->number > CLASSES_MAX - list->size) return false;
    size_t room = list->size + (size_t)counts->number;
    if (room > list->room) {
        size_t *more = realloc(list->counts, room * sizeof *more);
        if (more) list->counts = more;
        int64_t *first = realloc(list->starts, room * sizeof *first);
        if (first) list->starts = first;
        if (!more || !first) return false;
        list->room = room;
    }
    for (; list->size < room; list->size++) {
        mp_value count;
        if (!mp_read(&counts->items, &count) || count.type != MP_UINT || count.number < 1) return false;
        if (count.number > CLASSES_MAX - *total) return false;
        list->counts[list->size] = (size_t)count.number;
        *total += (size_t)count.number;
        if (!read_integer(&starts->items, list->starts + list->size)) return false;
    }
    return true;
}

static bool find_part(const run *r, const mp_value *column, unsigned *part) {
    char name[129];
    if (column->type != MP_TEXT) return false;
    mp_copy_text(column, name, sizeof name);
    for (*part = 0; *part < r->part_count; ++*part)
        if (!strncmp(name, "obs", 3) && !strcmp(name + 3, r->parts[*part].key)) return true;
    return false;
}

static bool read_input(mp_bytes *items, const run *r, policy *p, policy_input *input) {
    mp_value item, column, features, scale, counts, starts, normalized;
    double number;
    size_t total;
    if (!mp_read(items, &item) || item.type != MP_LIST || item.number != 6) return false;
    mp_bytes *fields = &item.items;
    if (!mp_read(fields, &column) || !mp_read(fields, &features) || !mp_read(fields, &scale) ||
        !mp_read(fields, &counts) || !mp_read(fields, &starts) || !mp_read(fields, &normalized))
        return false;
    if (!find_part(r, &column, &input->part) || !mp_real(&scale, &number) || normalized.type != MP_BOOL) return false;
    if (features.type != MP_UINT || features.number > FEATURES_MAX - p->features) return false;
    const obs_part *part = r->parts + input->part;
    input->features = (size_t)features.number;
    input->scale = (float)number;
    input->normalized = normalized.number;
    input->first = p->input_classes.size;
    p->features += input->features;
    if (!read_classes(&counts, &starts, &p->input_classes, &total)) return false;
    input->classes = p->input_classes.size - input->first;
    if (part->type == 'f' && (input->classes || part->width < 4)) return false;
    return input->classes ? input->classes == part->count && total == input->features
                          : input->features == part->count;
}

static bool read_inputs(const mp_value *map, const run *r, policy *p) {
    mp_value list;
    if (!mp_get_typed(map, "inputs", MP_LIST, &list) || list.number < 1 || list.number > INPUTS_MAX) return false;
    if (!(p->inputs = calloc((size_t)list.number, sizeof *p->inputs))) return false;
    for (; p->input_count < list.number; p->input_count++)
        if (!read_input(&list.items, r, p, p->inputs + p->input_count)) return false;
    return true;
}

static bool read_normalizer(const mp_value *map, const run *r, policy *p) {
    mp_value list, clip;
    double most;
    size_t count = 0;
    for (unsigned k = 0; k < p->input_count; k++) count += p->inputs[k].normalized ? p->inputs[k].features : 0;
    if (!mp_get_typed(map, "normalize", MP_LIST, &list)) return false;
    if (!list.number) return !count;
    if (!vd_read_array(&list.items, &r->model, count, &p->mean, p->missing)) return false;
    if (!vd_read_array(&list.items, &r->model, count, &p->deviation, p->missing)) return false;
    if (!mp_read(&list.items, &clip) || !mp_real(&clip, &most)) return false;
    p->clip = (float)most;
    p->normalize = true;
    return p->clip > 0;
}

/* Branches between the inputs and the networks; `width`: of what they give. None: the inputs. */
static bool read_branches(const mp_value *map, const run *r, policy *p, size_t *width) {
    mp_value list, item, features, layers;
    size_t from = 0;
    *width = p->features;
    if (!mp_get(map, "branches", &list)) return true;
    if (list.type != MP_LIST || list.number < 1 || list.number > INPUTS_MAX) return false;
    if (!(p->branches = calloc((size_t)list.number, sizeof *p->branches))) return false;
    *width = 0;
    while (p->branch_count < list.number) {
        policy_branch *b = p->branches + p->branch_count++;
        if (!mp_read(&list.items, &item) || item.type != MP_LIST || item.number != 2) return false;
        if (!mp_read(&item.items, &features) || features.type != MP_UINT) return false;
        if (features.number > p->features - from || !mp_read(&item.items, &layers)) return false;
        b->features = (size_t)features.number;
        from += b->features;
        if (!vd_read_network(&layers, &r->model, b->features, false, &b->encoder, p->missing)) return false;
        *width += b->encoder.out;
        if (*width > FEATURES_MAX) return false;
    }
    return from == p->features;
}

static bool read_named(mp_value *list, const run *r, size_t in, bool may_remember, network *n, char *why) {
    mp_value pair, name, layers;
    if (!mp_read(&list->items, &pair) || pair.type != MP_LIST || pair.number != 2) return false;
    if (!mp_read(&pair.items, &name) || name.type != MP_TEXT || !mp_read(&pair.items, &layers)) return false;
    return vd_read_network(&layers, &r->model, in, may_remember, n, why);
}

bool vd_has_quantiles(const policy *p) { return p->head == QUANTILES || p->head == RESCALED_QUANTILES; }

/* Each of them takes what the one before it gives, or what its head says. The first may begin with a core. */
static bool read_networks(const mp_value *map, const run *r, policy *p, size_t width) {
    mp_value list;
    network *a = p->networks, *b = a + 1, *c = a + 2;
    bool three = p->head == DUELING || vd_has_quantiles(p);
    if (!mp_get_typed(map, "networks", MP_LIST, &list) || list.number != (three ? 3u : 1u)) return false;
    if (!read_named(&list, r, width, true, a, p->missing)) return false;
    p->memory = a->memory;
    if (!three) return a->out == p->outputs;
    if (!read_named(&list, r, p->head == DUELING ? a->out : p->cosines, false, b, p->missing)) return false;
    if (!read_named(&list, r, a->out, false, c, p->missing)) return false;
    return b->out == (p->head == DUELING ? 1 : a->out) && c->out == p->outputs;
}

static bool read_discrete(const mp_value *actions, policy *p) {
    mp_value counts, starts;
    if (!mp_get(actions, "counts", &counts) || !mp_get(actions, "starts", &starts)) return false;
    if (!read_classes(&counts, &starts, &p->actions, &p->outputs)) return false;
    p->dimensions = p->actions.size;
    return p->dimensions > 0;
}

static bool read_bounds(const mp_value *actions, const char *key, size_t *count, float **bounds) {
    mp_value list, value;
    double number;
    if (!mp_get_typed(actions, key, MP_LIST, &list) || list.number < 1 || list.number > CLASSES_MAX) return false;
    *count = (size_t)list.number;
    if (!(*bounds = calloc(*count, sizeof **bounds))) return false;
    for (size_t k = 0; k < *count; k++) {
        if (!mp_read(&list.items, &value) || !mp_real(&value, &number)) return false;
        (*bounds)[k] = (float)number;
        if (!isfinite((*bounds)[k])) return false;
    }
    return true;
}

static bool read_box(const mp_value *actions, policy *p) {
    size_t others;
    if (!read_bounds(actions, "low", &p->dimensions, &p->low)) return false;
    if (!read_bounds(actions, "high", &others, &p->high) || others != p->dimensions) return false;
    p->outputs = p->dimensions * (p->head == GAUSSIAN ? 2u : 1u);
    for (size_t d = 0; d < p->dimensions; d++)
        if (p->high[d] < p->low[d]) return false;
    return true;
}

static bool read_actions(const mp_value *map, const run *r, policy *p) {
    mp_value actions;
    const run_column *column = r->rows.columns + r->action;
    if (!mp_get_typed(map, "actions", MP_MAP, &actions)) return false;
    if (p->head < GAUSSIAN) /* the others are of a Box */
        return read_discrete(&actions, p) && column->count == p->dimensions && strchr("iu", *column->type);
    return read_box(&actions, p) && column->count == p->dimensions && *column->type == 'f' && column->width >= 4;
}

static bool read_exploration(const mp_value *map, policy *p) {
    mp_value e, kind;
    if (!mp_get_typed(map, "exploration", MP_MAP, &e) || !mp_get(&e, "kind", &kind)) return false;
    if (mp_is(&kind, "ladder")) {
        p->exploration = LADDER;
        return mp_get_real(&e, "epsilon_base", &p->epsilon_base) && mp_get_real(&e, "epsilon_alpha", &p->epsilon_alpha);
    }
    if (mp_is(&kind, "linear")) {
        p->exploration = LINEAR_EPSILON;
        return mp_get_real(&e, "epsilon_start", &p->epsilon_start) &&
               mp_get_real(&e, "epsilon_final", &p->epsilon_final) &&
               mp_get_real(&e, "epsilon_steps", &p->epsilon_steps);
    }
    if (mp_is(&kind, "constant")) {
        p->exploration = CONSTANT;
        return mp_get_real(&e, "epsilon_final", &p->epsilon_final);
    }
    p->exploration = SOFTMAX;
    return mp_is(&kind, "softmax") && mp_get_real(&e, "temperature", &p->temperature) && p->temperature > 0;
}

static bool read_quantiles(const mp_value *map, policy *p) {
    uint64_t cosines, fractions;
    if (!mp_get_uint(map, "cosines", FEATURES_MAX, &cosines) || !cosines) return false;
    if (!mp_get_uint(map, "fractions", FRACTIONS_MAX, &fractions) || !fractions) return false;
    p->cosines = (size_t)cosines;
    p->fractions = (size_t)fractions;
    return true;
}

static bool read_log_std(const mp_value *map, policy *p) {
    mp_value list, least, most;
    return mp_get_typed(map, "log_std", MP_LIST, &list) && mp_read(&list.items, &least) &&
           mp_real(&least, &p->log_std_min) && mp_read(&list.items, &most) && mp_real(&most, &p->log_std_max);
}

/* Optional: noise is white without it. */
static bool read_noise_color(const mp_value *map, policy *p) {
    mp_value exponent;
    uint64_t steps;
    if (!mp_get(map, "noise_exponent", &exponent)) return true;
    if (!mp_real(&exponent, &p->noise_exponent) || fabs(p->noise_exponent) > NOISE_EXPONENT_MAX) return false;
    if (!mp_get_uint(map, "noise_steps", NOISE_STEPS_MAX, &steps) || !steps) return false;
    p->noise_steps = (size_t)steps;
    return true;
}

static bool read_head(const mp_value *map, policy *p) {
    static const char *const heads[] = {"values",     "dueling",  "quantiles",     "rescaled_quantiles",
                                        "categories", "gaussian", "deterministic", "normal"};
    mp_value head;
    char name[33] = "";
    if (!mp_get_typed(map, "head", MP_TEXT, &head)) return false;
    mp_copy_text(&head, name, sizeof name);
    for (unsigned k = 0; k < sizeof heads / sizeof *heads; k++)
        if (mp_is(&head, heads[k])) p->head = (policy_head)(VALUES + k);
    if (p->head == NO_POLICY) return vd_explain(p->missing, "it has a head %s, which this client does not know", name);
    if (vd_has_quantiles(p) && !read_quantiles(map, p)) return false;
    if (p->head == CATEGORIES) return true;
    if (p->head < GAUSSIAN) return read_exploration(map, p);
    if ((p->head == GAUSSIAN || p->head == NORMAL) && !read_log_std(map, p)) return false;
    if (p->head == NORMAL) return true;
    if (p->head == DETERMINISTIC && (!mp_get_real(map, "noise", &p->noise) || p->noise < 0)) return false;
    return read_noise_color(map, p) && mp_get_bool(map, "uniform_warmup", &p->uniform_warmup);
}

static bool read_deviations(const mp_value *map, const run *r, policy *p) {
    mp_value array;
    return mp_get(map, "deviations", &array) &&
           vd_find_array(&array, &r->model, p->dimensions, &p->log_stds, p->missing);
}

static void take_widest(policy *p, size_t width) {
    if (width > p->widest) p->widest = width;
}

bool vd_read_policy(const mp_value *map, run *r) {
    policy *p = &r->policy;
    size_t width;
    if (!read_head(map, p) || !read_inputs(map, r, p) || !read_normalizer(map, r, p)) return false;
    if (!read_actions(map, r, p) || !read_branches(map, r, p, &width)) return false;
    if (!read_networks(map, r, p, width)) return false;
    if (p->head == NORMAL && !read_deviations(map, r, p)) return false;
    mp_get_uint(map, "explore_from", UINT64_MAX, &p->explore_from); /* optional */
    take_widest(p, p->features);
    take_widest(p, width);
    take_widest(p, p->outputs);
    for (unsigned k = 0; k < p->branch_count; k++) take_widest(p, p->branches[k].encoder.widest);
    for (unsigned k = 0; k < NETWORKS_MAX; k++) take_widest(p, p->networks[k].widest);
    return true;
}

void vd_free_policy(policy *p) {
    for (unsigned k = 0; k < p->branch_count; k++) vd_free_network(&p->branches[k].encoder);
    for (unsigned k = 0; k < NETWORKS_MAX; k++) vd_free_network(p->networks + k);
    free(p->branches);
    free(p->inputs);
    free(p->input_classes.counts);
    free(p->input_classes.starts);
    free(p->actions.counts);
    free(p->actions.starts);
    free(p->low);
    free(p->high);
    memset(p, 0, sizeof *p);
}
