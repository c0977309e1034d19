#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OBS_BYTES_MAX ((size_t)1 << 26)
#define BATCH_ROWS_MAX (1 << 20)
#define STEPS_MAX ((uint64_t)1 << 62)
#define RUN_MAX 65536
#define WHY_SAID 120 /* characters of a reason within another */
#define ENV_HIGH 65535
#define T_HIGH (((uint64_t)1 << 62) - 1)

/* Observations: the columns obs, obs/KEY, ..., or places in shared frames */

static void describe_part(const run_column *column, size_t prefix, size_t copies, run *r) {
    obs_part *part = r->parts + r->part_count++;
    strcpy(part->key, column->name + prefix);
    part->type = *column->type;
    part->width = column->width;
    part->count = copies * column->count;
    part->bytes = copies * column->bytes;
    part->offset = r->obs_bytes;
    r->obs_bytes += part->bytes;
}

static bool begins(const char *name, const char *word) {
    size_t size = strlen(word);
    return !strncmp(name, word, size) && (!name[size] || name[size] == '/');
}

static bool add_whole(run *r, unsigned k, char *why, size_t room) {
    const run_column *obs = r->rows.columns + k;
    char next[140];
    obs_part *part = r->parts + r->part_count;
    snprintf(next, sizeof next, "next_%s", obs->name);
    if (r->part_count == PARTS_MAX || !vd_find_column(&r->rows, next, &part->next_obs))
        return vd_fail(why, room, "the run's rows have no column %s, or more than %d parts", next, PARTS_MAX);
    const run_column *following = r->rows.columns + part->next_obs;
    if (strcmp(obs->type, following->type) || obs->count != following->count || following->role != PLAIN)
        return vd_fail(why, room, "the run's %s and %s are not of one kind", obs->name, next);
    part->obs = k;
    describe_part(obs, strlen("obs"), 1, r);
    return true;
}

static bool add_shared(run *r, unsigned k, char *why, size_t room) {
    const run_column *frames = r->rows.columns + k;
    if (!begins(frames->name, "frames") || r->part_count == PARTS_MAX || !r->stack || (r->stack > 1 && r->part_count))
        return vd_fail(why, room, "the run's shared column %s is none that this client makes", frames->name);
    if (frames->bytes > OBS_BYTES_MAX / r->stack)
        return vd_fail(why, room, "the run's frames are too large");
    r->parts[r->part_count].obs = k;
    describe_part(frames, strlen("frames"), r->stack, r);
    r->frame_bytes += frames->bytes;
    return true;
}

static bool find_places(run *r, char *why, size_t room) {
    if (!vd_find_column(&r->rows, "obs", &r->obs_places) || r->rows.columns[r->obs_places].role != PLACE) return true;
    bool found = vd_find_column(&r->rows, "next_obs", &r->next_places);
    const run_column *obs = r->rows.columns + r->obs_places, *next = r->rows.columns + r->next_places;
    bool alike = found && next->role == PLACE && obs->count == next->count;
    if (!alike || strcmp(obs->type, "u4") || strcmp(next->type, "u4"))
        return vd_fail(why, room, "the run's places of obs and next_obs are not of one kind");
    r->stack = obs->count;
    return true;
}

/* The columns that are no observations. */
static bool add_other(run *r, unsigned k, unsigned *found, char *why, size_t room) {
    struct { const char *name, *type; unsigned *index; uint64_t high; } const known[] = {
        {"action", NULL, &r->action, 0},       {"reward", "f4", &r->reward, 0},
        {"terminated", "?", &r->terminated, 0}, {"truncated", "?", &r->truncated, 0},
        {"n_steps", "u1", &r->n_steps, 0},      {"intervened", "?", &r->intervened, 0},
        {"env", "u4", &r->env, ENV_HIGH},       {"t", "i8", &r->t, T_HIGH},
        {"begins", "?", &r->begins, 0},         {"memory", NULL, &r->kept[MEMORY].column, 0},
        {"log_prob", NULL, &r->kept[LOG_PROB].column, 0},
        {"policy_action", NULL, &r->kept[POLICY_ACTION].column, 0}};
    const run_column *column = r->rows.columns + k;
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(column->name, known[i].name)) continue;
        if (column->role != PLAIN || (known[i].type && (strcmp(column->type, known[i].type) || column->count != 1)))
            return vd_fail(why, room, "the run's column %s is not of the type that the wire says", column->name);
        if (known[i].high && column->high != known[i].high)
            return vd_fail(why, room, "the run's column %s has not the bounds that the wire says", column->name);
        *known[i].index = k;
        *found |= 1u << i;
        return true;
    }
    return vd_fail(why, room, "the run's rows have a column %s, which this client does not make", column->name);
}

static bool read_rows(run *r, char *why, size_t room) {
    unsigned found = 0;
    if (!find_places(r, why, room)) return false;
    for (unsigned k = 0; k < r->rows.count; k++) {
        const run_column *column = r->rows.columns + k;
        if (column->role == PLACE && (k == r->obs_places || k == r->next_places) && r->stack) continue;
        if (column->role == PLACE)
            return vd_fail(why, room, "the run's column %s has places of no frames", column->name);
        bool taken = column->role == SHARED            ? add_shared(r, k, why, room)
                     : begins(column->name, "next_obs") ? true /* found by its obs */
                     : begins(column->name, "obs")      ? add_whole(r, k, why, room)
                                                        : add_other(r, k, &found, why, room);
        if (!taken) return false;
        if (r->obs_bytes > OBS_BYTES_MAX) return vd_fail(why, room, "the run's observations are too large");
    }
    r->marks_interventions = found >> 5 & 1;
    r->has_keys = (found >> 6 & 7) == 7;
    for (unsigned k = 0; k < KEPT; k++) r->kept[k].stored = found >> (9 + k) & 1;
    if (found >> 6 & 7 && !r->has_keys)
        return vd_fail(why, room, "the run's rows have some of the columns env, t and begins, and not all");
    if (r->has_keys) r->n_step = 1;
    if ((found & 31) != 31 || !r->part_count)
        return vd_fail(why, room, "the run's rows have no obs, action, reward, terminated, truncated or n_steps");
    return true;
}

/* The run */

static bool read_identity(run *r, const mp_value *header) {
    return mp_get_text(header, "run", r->id, sizeof r->id) && mp_get_uint(header, "epoch", INT32_MAX, &r->epoch) &&
           mp_get_uint(header, "learner", UINT64_MAX, &r->learner) && mp_get_uint(header, "seed", UINT64_MAX, &r->seed);
}

static bool read_settings(run *r, const mp_value *payload, char *why, size_t room) {
    mp_value env, agent, actors, evaluation;
    uint64_t number;
    if (!mp_get_uint(payload, "batch_rows", BATCH_ROWS_MAX, &number) || !number)
        return vd_fail(why, room, "the run has no batch_rows");
    r->batch_rows = (size_t)number;
    if (!mp_get_uint(payload, "batch_env_steps", STEPS_MAX, &r->batch_env_steps))
        return vd_fail(why, room, "the run has no batch_env_steps");
    if (!mp_get_typed(payload, "env", MP_MAP, &env) || !mp_get_typed(payload, "agent", MP_MAP, &agent))
        return vd_fail(why, room, "the run has no env or agent");
    r->reward_scale = 1.0;
    mp_get_real(&env, "reward_scale", &r->reward_scale);
    mp_get_real(&env, "reward_clip", &r->reward_clip);
    if (!mp_get_real(&agent, "discount", &r->discount) || r->discount < 0 || r->discount > 1)
        return vd_fail(why, room, "the run's agent has no discount");
    if (!mp_get_uint(&agent, "n_step", 255, &number) || !number)
        return vd_fail(why, room, "the run's agent has no n_step");
    r->n_step = (unsigned)number;
    if (mp_get_typed(payload, "actors", MP_MAP, &actors) && mp_get_uint(&actors, "run_length", RUN_MAX, &number))
        r->run_length = (size_t)number;
    if (mp_get_typed(payload, "evaluation", MP_MAP, &evaluation)) {
        mp_get_uint(&evaluation, "episodes", INT32_MAX, &r->evaluated_episodes);
        mp_get_uint(&evaluation, "max_episode_steps", STEPS_MAX, &r->evaluated_steps);
    }
    return true;
}

static void read_policy(run *r, const mp_value *payload) {
    static const char *const rest = "act by vedette_array and vedette_set_action";
    mp_value map, agent;
    char name[65] = "", kind[65] = "";
    policy *p = &r->policy;
    if (mp_get_typed(payload, "policy", MP_MAP, &map) && map.number) {
        if (vd_read_policy(&map, r)) return;
        char why[WHY_MAX];
        memcpy(why, p->missing, sizeof why);
        vd_free_policy(p);
        vd_fail(p->missing, sizeof p->missing, "the run's policy is of a kind that is not known here%s%.*s: %s",
                *why ? ", for " : "", WHY_SAID, why, rest);
        return;
    }
    if (mp_get_typed(payload, "agent", MP_MAP, &agent)) {
        mp_get_text(&agent, "name", name, sizeof name);
        mp_get_text(&agent, "network", kind, sizeof kind);
    }
    vd_fail(p->missing, sizeof p->missing, "the run does not describe how agent %s with network %s acts: %s", name,
            kind, rest);
}

/* What rows are to hold of acting is what the policy makes. */
static bool check_kept(run *r, char *why, size_t room) {
    const policy *p = &r->policy;
    bool draws = p->head == CATEGORIES || p->head == NORMAL;
    size_t made[KEPT] = {p->memory, draws, p->head == NORMAL ? p->dimensions : 0};
    for (unsigned k = 0; k < KEPT; k++) {
        const run_column *column = r->rows.columns + r->kept[k].column;
        if (!r->kept[k].stored) continue;
        r->kept[k].numbers = made[k];
        if (p->head == NO_POLICY)
            return vd_fail(why, room, "the run's rows have a column %s, which comes of its policy alone. And %s",
                           column->name, p->missing);
        if (strcmp(column->type, "f4") && strcmp(column->type, "f2"))
            return vd_fail(why, room, "the run's column %s is not of the type that the wire says", column->name);
        if (column->count != made[k])
            return vd_fail(why, room, "the run's column %s has %zu numbers, and its policy makes %zu", column->name,
                           column->count, made[k]);
    }
    return true;
}

run *vd_read_run(const mp_value *header, const mp_value *payload, char *why, size_t room) {
    run *r = calloc(1, sizeof *r);
    if (!r) {
        vd_fail(why, room, "out of memory");
        return NULL;
    }
    r->holders = 1;
    bool read = read_identity(r, header) || vd_fail(why, room, "the run message has no run, epoch, learner or seed");
    read = read && read_settings(r, payload, why, room);
    read = read && vd_read_schema(payload, "schema", &r->rows, why, room) && read_rows(r, why, room);
    read = read && vd_read_schema(payload, "model", &r->model, why, room);
    for (unsigned k = 0; read && k < r->model.count; k++)
        if (r->model.columns[k].role != PLAIN) read = vd_fail(why, room, "the run's model has a shared column");
    if (read) vd_widen_schema(&r->model);
    if (read) read_policy(r, payload);
    read = read && check_kept(r, why, room);
    if (!read) vd_free_run(r);
    return read ? r : NULL;
}

void vd_free_run(run *r) {
    if (!r || --r->holders) return;
    vd_free_policy(&r->policy);
    free(r->rows.columns);
    free(r->model.columns);
    free(r);
}

bool vd_takes_batches_of(const run *r, const run *other) {
    return !strcmp(r->id, other->id) && vd_same_schema(&r->rows, &other->rows);
}
