#include "delivery.h"

#include <stdlib.h>
#include <string.h>

/* One of an environment's unfinished rows; behind it what the run keeps of acting, its observation and its action. */
typedef struct {
    double reward, discount; /* so far, and of the next reward */
    uint64_t epoch, version;
    unsigned steps;
    bool intervened, begins;
    int64_t t;
} pending;

static size_t padded(size_t size) { return (size + 7) / 8 * 8; }

static size_t action_bytes(const run *r) { return r->rows.columns[r->action].bytes; }

static size_t kept_bytes(const run *r) {
    size_t numbers = 0;
    for (unsigned k = 0; k < KEPT; k++) numbers += r->kept[k].numbers;
    return numbers * sizeof(float);
}

static size_t pending_bytes(const run *r) {
    return padded(sizeof(pending) + kept_bytes(r) + r->obs_bytes + action_bytes(r));
}

static pending *pending_at(const environment *e, const run *r, unsigned k) {
    return (pending *)(void *)(e->pending + (e->first + k) % r->n_step * pending_bytes(r));
}

bool vd_init_environment(environment *e, const run *r) {
    free(e->pending);
    e->pending = calloc(r->n_step, pending_bytes(r));
    e->first = e->count = 0;
    if (!e->obs) e->obs = calloc(1, r->obs_bytes);
    if (!e->action) e->action = calloc(1, action_bytes(r));
    return e->pending && e->obs && e->action;
}

bool vd_fit_policy(environment *e, const run *r) {
    size_t size = r->policy.memory;
    size_t drawn = 1 + r->policy.dimensions;
    if (drawn != e->drawn_size) {
        free(e->drawn);
        e->drawn = calloc(drawn, sizeof *e->drawn);
        e->drawn_size = e->drawn ? drawn : 0;
    }
    if (!e->drawn) return false;
    if (size == e->memory_size) return true;
    free(e->memory);
    e->memory = size ? calloc(2 * size, sizeof *e->memory) : NULL;
    e->memory_size = e->memory ? size : 0;
    e->remembered = false;
    return e->memory_size == size;
}

void vd_free_environment(environment *e) {
    free(e->pending);
    free(e->obs);
    free(e->action);
    free(e->memory);
    free(e->drawn);
    vd_free_noise(&e->noise);
    memset(e, 0, sizeof *e);
}

void vd_begin_row(environment *e, const run *r, uint64_t epoch, uint64_t version, double reward) {
    pending *row = pending_at(e, r, e->count++);
    uint8_t *kept = (uint8_t *)(row + 1), *obs = kept + kept_bytes(r);
    const float *from[KEPT] = {e->memory, e->drawn, e->drawn + 1};
    *row = (pending){.discount = 1.0, .epoch = epoch, .version = version, .intervened = e->intervened,
                     .begins = e->begins, .t = e->t++};
    e->begins = false;
    for (unsigned k = 0; k < KEPT; k++) {
        size_t bytes = r->kept[k].numbers * sizeof(float);
        if (bytes) memcpy(kept, from[k], bytes);
        kept += bytes;
    }
    memcpy(obs, e->obs, r->obs_bytes);
    memcpy(obs + r->obs_bytes, e->action, action_bytes(r));
    reward *= r->reward_scale;
    if (r->reward_clip > 0 && reward > r->reward_clip) reward = r->reward_clip;
    if (r->reward_clip > 0 && reward < -r->reward_clip) reward = -r->reward_clip;
    for (unsigned k = 0; k < e->count; k++) {
        pending *p = pending_at(e, r, k);
        p->reward += p->discount * reward;
        p->discount *= r->discount;
        p->steps++;
    }
}

/* The batch that is being filled */

/* Rows of a batch: no more than the run allows, than fit with frames of their own each, and than a run of each
 * environment has. */
static size_t rows_of_batch(const run *r, size_t envs) {
    size_t row = 2 * r->stack * r->frame_bytes;
    for (unsigned c = 0; c < r->rows.count; c++)
        if (r->rows.columns[c].role != SHARED) row += r->rows.columns[c].bytes;
    size_t fit = (PAYLOAD_MAX - 8 * (r->rows.count + 1)) / row;
    if (fit > r->batch_rows) fit = r->batch_rows;
    return r->run_length && r->run_length * envs < fit ? r->run_length * envs : fit;
}

bool vd_init_staging(staging *s, const run *r, size_t envs) {
    size_t bytes = 0;
    *s = (staging){.run = r, .room = rows_of_batch(r, envs), .at = calloc(r->rows.count, sizeof *s->at)};
    if (!s->at) return false;
    for (unsigned c = 0; c < r->rows.count; c++) {
        if (r->rows.columns[c].role == SHARED) continue;
        s->at[c] = bytes;
        bytes += padded(r->rows.columns[c].bytes * s->room);
    }
    return s->room && (s->columns = malloc(bytes));
}

void vd_free_staging(staging *s) {
    free(s->at);
    free(s->columns);
    free(s->frames);
    free(s->hashes);
    free(s->table);
    memset(s, 0, sizeof *s);
}

bool vd_is_full(const staging *s) { return s->rows == s->room; }

static void put(staging *s, unsigned column, size_t offset, const void *data, size_t bytes) {
    memcpy(s->columns + s->at[column] + s->run->rows.columns[column].bytes * s->rows + offset, data, bytes);
}

/* Numbers of float32 in a column of float32 or of float16. */
static void put_numbers(staging *s, unsigned column, const uint8_t *numbers) {
    const run_column *of = s->run->rows.columns + column;
    if (of->width == sizeof(float)) {
        put(s, column, 0, numbers, of->bytes);
        return;
    }
    for (size_t k = 0; k < of->count; k++) {
        float number;
        memcpy(&number, numbers + k * sizeof number, sizeof number);
        uint16_t half = vd_half_of_float(number);
        put(s, column, k * sizeof half, &half, sizeof half);
    }
}

/* Shared frames: each once in a batch, found again by its bytes */

static uint64_t hash_of(const uint8_t *data, size_t size) {
    uint64_t hash = size, word;
    for (; size >= 8; data += 8, size -= 8) {
        memcpy(&word, data, 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    while (size--) hash = (hash ^ *data++) * 0x100000001b3u;
    return hash ^ hash >> 32;
}

static void put_in_table(staging *s, size_t frame) {
    size_t mask = 2 * s->frame_room - 1, slot = s->hashes[frame] & mask;
    while (s->table[slot]) slot = (slot + 1) & mask;
    s->table[slot] = (uint32_t)(frame + 1);
}

static bool grow(staging *s) {
    size_t room = s->frame_room ? 2 * s->frame_room : 64;
    uint8_t *frames = realloc(s->frames, room * s->run->frame_bytes);
    if (frames) s->frames = frames;
    uint64_t *hashes = realloc(s->hashes, room * sizeof *hashes);
    if (hashes) s->hashes = hashes;
    uint32_t *table = realloc(s->table, 2 * room * sizeof *table);
    if (table) s->table = table;
    if (!frames || !hashes || !table) return false;
    s->frame_room = room;
    memset(s->table, 0, 2 * room * sizeof *table);
    for (size_t k = 0; k < s->frame_count; k++) put_in_table(s, k);
    return true;
}

static bool find_or_add(staging *s, const uint8_t *frame, uint32_t *place) {
    size_t bytes = s->run->frame_bytes;
    uint64_t hash = hash_of(frame, bytes);
    if (s->frame_count == s->frame_room && !grow(s)) return false;
    size_t mask = 2 * s->frame_room - 1;
    for (size_t slot = hash & mask; s->table[slot]; slot = (slot + 1) & mask) {
        *place = s->table[slot] - 1;
        if (s->hashes[*place] == hash && !memcmp(s->frames + *place * bytes, frame, bytes)) return true;
    }
    *place = (uint32_t)s->frame_count;
    s->hashes[s->frame_count] = hash;
    memcpy(s->frames + s->frame_count * bytes, frame, bytes);
    put_in_table(s, s->frame_count++);
    return true;
}

static bool put_obs(staging *s, const uint8_t *obs, bool following) {
    const run *r = s->run;
    for (size_t k = 0; k < r->stack; k++) {
        uint32_t place;
        if (!find_or_add(s, obs + k * r->frame_bytes, &place)) return false;
        put(s, following ? r->next_places : r->obs_places, 4 * k, &place, 4);
    }
    for (unsigned k = 0; k < r->part_count && !r->stack; k++)
        put(s, following ? r->parts[k].next_obs : r->parts[k].obs, 0, obs + r->parts[k].offset, r->parts[k].bytes);
    return true;
}

static bool is_older(const pending *p, const staging *s) {
    return p->epoch < s->epoch || (p->epoch == s->epoch && p->version < s->version);
}

bool vd_finish_row(environment *e, staging *s, const void *next_obs, bool terminated, bool truncated) {
    const run *r = s->run;
    const pending *p = pending_at(e, r, 0);
    const uint8_t *kept = (const uint8_t *)(p + 1), *obs = kept + kept_bytes(r);
    float reward = (float)p->reward;
    uint8_t flags[] = {terminated, truncated, (uint8_t)p->steps, p->intervened, p->begins};
    if (!put_obs(s, obs, false) || !put_obs(s, next_obs, true)) return false;
    put(s, r->action, 0, obs + r->obs_bytes, action_bytes(r));
    put(s, r->reward, 0, &reward, sizeof reward);
    put(s, r->terminated, 0, flags, 1);
    put(s, r->truncated, 0, flags + 1, 1);
    put(s, r->n_steps, 0, flags + 2, 1);
    if (r->marks_interventions) put(s, r->intervened, 0, flags + 3, 1);
    for (unsigned k = 0; k < KEPT; k++) {
        if (r->kept[k].stored) put_numbers(s, r->kept[k].column, kept);
        kept += r->kept[k].numbers * sizeof(float);
    }
    if (r->has_keys) {
        put(s, r->env, 0, &e->index, sizeof e->index);
        put(s, r->t, 0, &p->t, sizeof p->t);
        put(s, r->begins, 0, flags + 4, 1);
    }
    if (!s->rows || is_older(p, s)) {
        s->epoch = p->epoch;
        s->version = p->version;
    }
    s->rows++;
    e->first = (e->first + 1) % r->n_step;
    e->count--;
    return true;
}

static void pack_frames(const staging *s, uint8_t *to) {
    const run *r = s->run;
    for (unsigned k = 0; k < 8; k++) *to++ = (uint8_t)((uint64_t)s->frame_count >> 8 * k);
    for (unsigned k = 0; k < r->part_count; k++) {
        const run_column *column = r->rows.columns + r->parts[k].obs;
        const uint8_t *from = s->frames + r->parts[k].offset;
        for (size_t f = 0; f < s->frame_count; f++)
            memcpy(to + f * column->bytes, from + f * r->frame_bytes, column->bytes);
        to += padded(column->bytes * s->frame_count);
    }
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The rows as the batch has them: as they came, or in runs those of each environment one behind the other. */
static uint64_t *sort_rows(const staging *s) {
    const run *r = s->run;
    uint64_t *order = malloc(s->rows * sizeof *order);
    for (size_t k = 0; order && k < s->rows; k++) {
        uint32_t env = 0;
        if (r->run_length && r->has_keys) memcpy(&env, s->columns + s->at[r->env] + k * sizeof env, sizeof env);
        order[k] = (uint64_t)env << 32 | k;
    }
    if (order && r->run_length) qsort(order, s->rows, sizeof *order, compare);
    return order;
}

bool vd_take_batch(staging *s, batch *b) {
    const run_schema *rows = &s->run->rows;
    *b = (batch){.epoch = s->epoch, .version = s->version, .rows = s->rows, .size = s->run->stack ? 8 : 0};
    for (unsigned c = 0; c < rows->count; c++)
        b->size += padded(rows->columns[c].bytes * (rows->columns[c].role == SHARED ? s->frame_count : s->rows));
    uint8_t *to = b->payload = calloc(1, b->size);
    uint64_t *order = sort_rows(s);
    if (!to || !order) {
        free(to);
        free(order);
        return false;
    }
    for (unsigned c = 0; c < rows->count; c++) {
        size_t bytes = rows->columns[c].bytes;
        if (rows->columns[c].role == SHARED) continue;
        for (size_t k = 0; k < s->rows; k++)
            memcpy(to + k * bytes, s->columns + s->at[c] + (order[k] & UINT32_MAX) * bytes, bytes);
        to += padded(bytes * s->rows);
    }
    free(order);
    if (s->run->stack) pack_frames(s, to);
    if (s->table) memset(s->table, 0, 2 * s->frame_room * sizeof *s->table);
    s->rows = s->frame_count = 0;
    return true;
}
