#define _POSIX_C_SOURCE 200809L
#include "run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MAX 4096
#define ROW_BYTES_MAX ((size_t)1 << 30) /* the wire: 4 GiB */
#define WIDTH_MAX ((size_t)1 << 22)     /* features of a layer */

static bool fail(char *why, size_t room, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, room, format, arguments);
    va_end(arguments);
    return false;
}

/* Schemas */

static bool read_bound(mp_bytes *rest, int64_t *bound, bool *there) {
    mp_value value;
    if (!mp_read(rest, &value)) return false;
    *there = value.type == MP_INT || (value.type == MP_UINT && value.number <= INT64_MAX);
    *bound = value.type == MP_INT ? value.negative : (int64_t)value.number;
    return *there || value.type == MP_NIL || value.type == MP_UINT;
}

static bool read_column(mp_bytes *bytes, run_column *column) {
    static const char types[] = "? u1i1u2i2u4i4u8i8f2f4f8";
    mp_value item, name, type, dims, dim;
    bool low, high;
    if (!mp_read(bytes, &item) || item.type != MP_LIST || item.number != 5) return false;
    if (!mp_read(&item.items, &name) || name.type != MP_TEXT || name.size < 1 || name.size > 128) return false;
    if (!mp_read(&item.items, &type) || type.type != MP_TEXT || type.size < 1 || type.size > 2) return false;
    mp_copy_text(&name, column->name, sizeof column->name);
    mp_copy_text(&type, column->type, sizeof column->type);
    column->width = 0;
    for (size_t k = 0; k + 1 < sizeof types; k += 2)
        if (!strncmp(types + k, column->type, type.size) && (type.size == 2 || k == 0))
            column->width = k ? (size_t)(types[k + 1] - '0') : 1;
    if (!column->width || !mp_read(&item.items, &dims) || dims.type != MP_LIST || dims.number > 8) return false;
    column->count = 1;
    for (uint64_t k = 0; k < dims.number; k++) {
        if (!mp_read(&dims.items, &dim) || dim.type != MP_UINT || dim.number < 1) return false;
        if (dim.number > ROW_BYTES_MAX / column->count / column->width) return false;
        column->count *= (size_t)dim.number;
    }
    column->bytes = column->count * column->width;
    if (!read_bound(&item.items, &column->low, &low)) return false;
    if (!read_bound(&item.items, &column->high, &high)) return false;
    column->bounded = low && high;
    return true;
}

static bool read_schema(const mp_value *payload, const char *key, run_schema *schema, char *why, size_t room) {
    char hash[16];
    mp_value list;
    snprintf(hash, sizeof hash, "%s_hash", key);
    if (!mp_get_typed(payload, key, MP_LIST, &list) || list.number < 1 || list.number > COLUMNS_MAX)
        return fail(why, room, "the run has no %s", key);
    if (!mp_get_text(payload, hash, schema->hash, sizeof schema->hash) || strlen(schema->hash) != 16)
        return fail(why, room, "the run has no %s: the learner is of an older release", hash);
    schema->columns = calloc((size_t)list.number, sizeof *schema->columns);
    if (!schema->columns) return fail(why, room, "out of memory");
    schema->count = (unsigned)list.number;
    for (unsigned k = 0; k < schema->count; k++) {
        run_column *column = schema->columns + k;
        if (!read_column(&list.items, column))
            return fail(why, room, "column %u of the run's %s is none that this client knows "
                        "(shared frames are not supported)", k, key);
        column->offset = schema->bytes;
        schema->bytes += (column->bytes + 7) / 8 * 8;
        if (schema->bytes > ROW_BYTES_MAX) return fail(why, room, "the run's %s is too large", key);
    }
    return true;
}

static bool find_column(const run_schema *schema, const char *name, unsigned *index) {
    for (*index = 0; *index < schema->count; ++*index)
        if (!strcmp(schema->columns[*index].name, name)) return true;
    return false;
}

static bool check_rows(run *r, char *why, size_t room) {
    static const char *const names[ROW_COLUMNS] = {
        "obs", "action", "reward", "next_obs", "terminated", "truncated", "n_steps"};
    static const char *const types[ROW_COLUMNS] = {"", "", "f4", "", "?", "?", "u1"};
    for (unsigned k = 0; k < ROW_COLUMNS; k++) {
        if (!find_column(&r->rows, names[k], &r->row[k]))
            return fail(why, room, "the run's rows have no column %s", names[k]);
        const run_column *column = r->rows.columns + r->row[k];
        if (*types[k] && (strcmp(column->type, types[k]) || column->count != 1))
            return fail(why, room, "the run's column %s is not %s", names[k], types[k]);
    }
    if (r->rows.count != ROW_COLUMNS)
        return fail(why, room, "the run's rows have columns that this client does not make");
    const run_column *obs = r->rows.columns + r->row[OBS], *next = r->rows.columns + r->row[NEXT_OBS];
    if (obs->bytes != next->bytes) return fail(why, room, "obs and next_obs differ in size");
    return true;
}

/* The policy */

static bool next_texts(mp_bytes *bytes, run_schema *model, unsigned *index) {
    char name[129];
    mp_value value;
    if (!mp_read(bytes, &value) || value.type != MP_TEXT || value.size > 128) return false;
    mp_copy_text(&value, name, sizeof name);
    return find_column(model, name, index) && !strcmp(model->columns[*index].type, "f4");
}

/* The width of what a network gives is followed from layer to layer, and every array has to be as
 * large as its layer reads. */
static bool read_layer(mp_bytes *bytes, run_schema *model, run_layer *layer, size_t *width, size_t *saved) {
    mp_value item, kind, in, out;
    double eps;
    if (!mp_read(bytes, &item) || item.type != MP_LIST || !mp_read(&item.items, &kind)) return false;
    layer->in = layer->out = *width;
    if (mp_is(&kind, "relu")) return layer->kind = RELU, *width > 0;
    if (mp_is(&kind, "save")) return layer->kind = SAVE, *saved = *width, *width > 0;
    if (mp_is(&kind, "add")) return layer->kind = ADD, *width > 0 && *saved == *width;
    if (mp_is(&kind, "normalize")) {
        layer->kind = NORMALIZE;
        if (!mp_read(&item.items, &in) || !mp_real(&in, &eps) || eps <= 0) return false;
        return layer->eps = (float)eps, *width > 0;
    }
    if (!mp_is(&kind, "linear")) return false;
    layer->kind = LINEAR;
    if (!next_texts(&item.items, model, &layer->weight)) return false;
    if (!next_texts(&item.items, model, &layer->bias)) return false;
    if (!mp_read(&item.items, &in) || in.type != MP_UINT || in.number < 1 || in.number > WIDTH_MAX) return false;
    if (!mp_read(&item.items, &out) || out.type != MP_UINT || out.number < 1 || out.number > WIDTH_MAX) return false;
    layer->in = (size_t)in.number;
    layer->out = (size_t)out.number;
    if (*width && *width != layer->in) return false;
    *width = layer->out;
    return model->columns[layer->weight].count == layer->in * layer->out &&
           model->columns[layer->bias].count == layer->out;
}

static bool read_network(mp_bytes *bytes, run *r, run_network *network) {
    mp_value pair, name, layers;
    size_t width = 0, saved = 0;
    if (!mp_read(bytes, &pair) || pair.type != MP_LIST || pair.number != 2) return false;
    if (!mp_read(&pair.items, &name) || name.type != MP_TEXT || !mp_read(&pair.items, &layers)) return false;
    if (layers.type != MP_LIST || layers.number > LAYERS_MAX) return false;
    mp_copy_text(&name, network->name, sizeof network->name);
    network->count = (unsigned)layers.number;
    for (unsigned k = 0; k < network->count; k++) {
        run_layer *layer = network->layers + k;
        if (!read_layer(&layers.items, &r->model, layer, &width, &saved)) return false;
        if (k == 0 && layer->kind != LINEAR) return false;
        if (layer->in > r->width) r->width = layer->in;
        if (layer->out > r->width) r->width = layer->out;
    }
    network->in = network->count ? network->layers[0].in : 0;
    network->out = width;
    return true;
}

/* A network of no layers is the identity. */
static void fit(run_network *network, size_t in) {
    if (!network->count) network->in = network->out = in;
}

static bool check_networks(run_policy *p, size_t width) {
    run_network *a = p->networks, *b = a + 1, *c = a + 2;
    bool three = p->head == DUELING || p->head == QUANTILES;
    if (p->network_count != (three ? 3u : 1u)) return false;
    fit(a, p->features);
    if (a->in != p->features || p->features > width) return false;
    if (!three) return a->out == p->outputs;
    if (p->head == DUELING)
        return b->count && c->count && b->in == a->out && c->in == a->out && b->out == 1 && c->out == p->outputs;
    return b->count && c->count && b->in == p->cosines && b->out == a->out && c->in == a->out &&
           c->out == p->outputs;
}

static bool read_inputs(const mp_value *map, run *r) {
    run_policy *p = &r->policy;
    const run_column *obs = r->rows.columns + r->row[OBS];
    mp_value inputs, part, value, classes, starts;
    if (!mp_get_typed(map, "inputs", MP_LIST, &inputs) || inputs.number != 1) return false;
    if (!mp_read(&inputs.items, &part) || part.type != MP_LIST || part.number != 6) return false;
    if (!mp_read(&part.items, &value) || !mp_is(&value, "obs")) return false;
    if (!mp_read(&part.items, &value) || value.type != MP_UINT || value.number > WIDTH_MAX) return false;
    p->features = (size_t)value.number;
    if (!mp_read(&part.items, &value) || !mp_real(&value, &p->scale)) return false;
    if (!mp_read(&part.items, &classes) || classes.type != MP_LIST || classes.number > 1) return false;
    if (!mp_read(&part.items, &starts) || starts.type != MP_LIST || starts.number != classes.number) return false;
    if (p->features > r->width) r->width = p->features;
    if (!strcmp(obs->type, "f2")) return false;
    if (!classes.number) return p->features == obs->count;
    if (!mp_read(&classes.items, &value) || value.type != MP_UINT || value.number != p->features) return false;
    p->classes = (size_t)value.number;
    if (!mp_read(&starts.items, &value) || (value.type != MP_UINT && value.type != MP_INT)) return false;
    p->first_class = value.type == MP_INT ? value.negative : (int64_t)value.number;
    return obs->count == 1 && obs->type[0] != 'f';
}

static bool read_normalizer(const mp_value *map, run *r) {
    run_policy *p = &r->policy;
    mp_value list, clip;
    double most;
    if (!mp_get_typed(map, "normalize", MP_LIST, &list)) return false;
    if (!list.number) return true;
    if (!next_texts(&list.items, &r->model, &p->mean)) return false;
    if (!next_texts(&list.items, &r->model, &p->deviation)) return false;
    if (!mp_read(&list.items, &clip) || !mp_real(&clip, &most) || most <= 0) return false;
    p->clip = (float)most;
    p->normalize = true;
    return r->model.columns[p->mean].count == p->features && r->model.columns[p->deviation].count == p->features;
}

static bool read_discrete(const mp_value *actions, run *r) {
    run_policy *p = &r->policy;
    mp_value counts, starts, value;
    if (!mp_get_typed(actions, "counts", MP_LIST, &counts) || counts.number < 1) return false;
    if (!mp_get_typed(actions, "starts", MP_LIST, &starts) || starts.number != counts.number) return false;
    if (counts.number > DIMENSIONS_MAX) return false;
    p->dimensions = (unsigned)counts.number;
    for (unsigned d = 0; d < p->dimensions; d++) {
        if (!mp_read(&counts.items, &value) || value.type != MP_UINT || value.number < 1 || value.number > WIDTH_MAX) return false;
        p->counts[d] = (size_t)value.number;
        p->outputs += p->counts[d];
        if (!mp_read(&starts.items, &value) || (value.type != MP_UINT && value.type != MP_INT)) return false;
        p->starts[d] = value.type == MP_INT ? value.negative : (int64_t)value.number;
    }
    return p->outputs <= WIDTH_MAX;
}

static bool read_box(const mp_value *actions, run *r) {
    run_policy *p = &r->policy;
    mp_value low, high, value;
    double number;
    if (!mp_get_typed(actions, "low", MP_LIST, &low) || low.number < 1 || low.number > DIMENSIONS_MAX) return false;
    if (!mp_get_typed(actions, "high", MP_LIST, &high) || high.number != low.number) return false;
    p->dimensions = (unsigned)low.number;
    p->outputs = p->dimensions * (p->head == GAUSSIAN ? 2u : 1u);
    for (unsigned d = 0; d < p->dimensions; d++) {
        if (!mp_read(&low.items, &value) || !mp_real(&value, &number)) return false;
        p->low[d] = (float)number;
        if (!mp_read(&high.items, &value) || !mp_real(&value, &number)) return false;
        p->high[d] = (float)number;
        if (p->high[d] < p->low[d]) return false;
    }
    return true;
}

static bool read_exploration(const mp_value *map, run_policy *p) {
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

static bool read_head(const mp_value *map, run_policy *p) {
    static const char *const heads[] = {"", "values", "dueling", "quantiles", "gaussian", "deterministic"};
    mp_value head, list, value;
    uint64_t number;
    if (!mp_get(map, "head", &head)) return false;
    for (unsigned k = VALUES; k <= DETERMINISTIC; k++)
        if (mp_is(&head, heads[k])) p->head = (policy_head)k;
    if (p->head == NO_POLICY) return false;
    if (p->head == QUANTILES) {
        if (!mp_get_uint(map, "cosines", WIDTH_MAX, &number) || !number) return false;
        p->cosines = (size_t)number;
        if (!mp_get_uint(map, "fractions", 4096, &number) || !number) return false;
        p->fractions = (size_t)number;
    }
    if (p->head == DETERMINISTIC && (!mp_get_real(map, "noise", &p->noise) || p->noise < 0)) return false;
    if (p->head == GAUSSIAN) {
        if (!mp_get_typed(map, "log_std", MP_LIST, &list)) return false;
        if (!mp_read(&list.items, &value) || !mp_real(&value, &p->log_std_min)) return false;
        if (!mp_read(&list.items, &value) || !mp_real(&value, &p->log_std_max)) return false;
    }
    if (p->head < GAUSSIAN) return read_exploration(map, p);
    return mp_get_bool(map, "uniform_warmup", &p->uniform_warmup);
}

static bool read_policy(const mp_value *map, run *r) {
    run_policy *p = &r->policy;
    const run_column *action = r->rows.columns + r->row[ACTION];
    mp_value networks, actions;
    bool discrete;
    if (!read_head(map, p) || !read_inputs(map, r) || !read_normalizer(map, r)) return false;
    if (!mp_get_typed(map, "actions", MP_MAP, &actions)) return false;
    discrete = p->head < GAUSSIAN;
    if (!(discrete ? read_discrete(&actions, r) : read_box(&actions, r))) return false;
    if (action->count != p->dimensions) return false;
    if (discrete ? action->type[0] != 'i' && action->type[0] != 'u' : action->type[0] != 'f' || action->width < 4)
        return false;
    if (!mp_get_typed(map, "networks", MP_LIST, &networks) || networks.number > NETWORKS_MAX) return false;
    p->network_count = (unsigned)networks.number;
    for (unsigned k = 0; k < p->network_count; k++)
        if (!read_network(&networks.items, r, p->networks + k)) return false;
    if (p->cosines > r->width) r->width = p->cosines;
    if (p->outputs > r->width) r->width = p->outputs;
    return check_networks(p, r->width);
}

static void read_policy_or_say_why(const mp_value *payload, run *r) {
    mp_value map;
    run_policy *p = &r->policy;
    if (!mp_get_typed(payload, "policy", MP_MAP, &map)) {
        fail(p->missing, sizeof p->missing, "the run does not describe its policy");
    } else if (!read_policy(&map, r)) {
        memset(p, 0, sizeof *p);
        fail(p->missing, sizeof p->missing, "the run's policy is of a kind that this client does not know");
    }
}

/* The run */

static bool read_settings(run *r, const mp_value *header, const mp_value *payload, char *why, size_t room) {
    mp_value env, agent;
    uint64_t number;
    if (!mp_get_text(header, "run", r->id, sizeof r->id) || !mp_get_uint(header, "epoch", INT32_MAX, &r->epoch) ||
        !mp_get_uint(header, "learner", UINT64_MAX, &r->learner) || !mp_get_uint(header, "seed", UINT64_MAX, &r->seed))
        return fail(why, room, "the run message has no run, epoch, learner or seed");
    if (!mp_get_uint(payload, "batch_rows", 1 << 20, &number) || !number)
        return fail(why, room, "the run has no batch_rows");
    r->batch_rows = (size_t)number;
    if (!mp_get_uint(payload, "batch_env_steps", (uint64_t)1 << 62, &r->batch_env_steps))
        return fail(why, room, "the run has no batch_env_steps");
    if (!mp_get_typed(payload, "env", MP_MAP, &env) || !mp_get_typed(payload, "agent", MP_MAP, &agent))
        return fail(why, room, "the run has no env or agent");
    r->reward_scale = 1.0;
    r->reward_clip = 0.0;
    mp_get_real(&env, "reward_scale", &r->reward_scale);
    mp_get_real(&env, "reward_clip", &r->reward_clip);
    if (!mp_get_real(&agent, "discount", &r->discount) || r->discount < 0 || r->discount > 1)
        return fail(why, room, "the run's agent has no discount");
    if (!mp_get_uint(&agent, "n_step", 255, &number) || !number)
        return fail(why, room, "the run's agent has no n_step");
    r->n_step = (unsigned)number;
    return true;
}

run *run_read(const mp_value *header, const mp_value *payload, char *why, size_t room) {
    run *r = calloc(1, sizeof *r);
    if (!r) {
        fail(why, room, "out of memory");
        return NULL;
    }
    if (!read_settings(r, header, payload, why, room) || !read_schema(payload, "schema", &r->rows, why, room) ||
        !read_schema(payload, "model", &r->model, why, room) || !check_rows(r, why, room)) {
        run_free(r);
        return NULL;
    }
    read_policy_or_say_why(payload, r);
    r->scratch = calloc(8 * r->width + 1, sizeof *r->scratch);
    if (!r->scratch) {
        run_free(r);
        fail(why, room, "out of memory");
        return NULL;
    }
    return r;
}

void run_free(run *r) {
    if (!r) return;
    free(r->rows.columns);
    free(r->model.columns);
    free(r->scratch);
    free(r);
}
