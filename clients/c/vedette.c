#define _POSIX_C_SOURCE 200809L
#include "vedette.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

#include "client.h"

#define LOOK_S 0.1

/* Opening */

static bool id_is_valid(const char *id) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t size = id ? strlen(id) : 0;
    return size >= 1 && size <= 64 && strspn(id, letters) == size;
}

static bool read_random(uint64_t *number) {
    FILE *stream = fopen("/dev/urandom", "rb");
    bool read = stream && fread(number, sizeof *number, 1, stream) == 1;
    if (stream) fclose(stream);
    return read;
}

static void init_condition(pthread_cond_t *condition) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

vedette *vd_new_client(const vedette_options *o) {
    vedette *v = calloc(1, sizeof *v);
    if (!v) return NULL;
    pthread_mutex_init(&v->mutex, NULL);
    init_condition(&v->changed);
    v->env_count = o->envs ? o->envs : 1;
    v->window.room = o->window ? o->window : 1024;
    v->envs = calloc(v->env_count, sizeof *v->envs);
    v->window.held = calloc(v->window.room, sizeof *v->window.held);
    v->context = zmq_ctx_new();
    if (!v->envs || !v->window.held || !v->context || !read_random(&v->jitter) || !read_random(&v->seed)) {
        vd_free_client(v);
        return NULL;
    }
    v->port = o->port ? o->port : 5555;
    v->wait_s = o->wait_s;
    v->obs_bytes = o->obs_bytes;
    v->action_bytes = o->action_bytes;
    v->evaluates = o->evaluates;
    snprintf(v->host, sizeof v->host, "%s", o->host ? o->host : "127.0.0.1");
    if (id_is_valid(o->id)) memcpy(v->id, o->id, strlen(o->id));
    else vd_set_error(v, "the id is not 1 to 64 of A-Z a-z 0-9 . _ -");
    if (!*v->host) vd_set_error(v, "no host");
    if (v->port < 1 || v->port > 65533) vd_set_error(v, "port %d is not 1 to 65533", v->port);
    if (o->keys) vd_read_keys(v, o->keys);
    v->incarnation = vd_random_bits(&v->jitter);
    v->progress_at = vd_now();
    v->remake_at = v->progress_at + SILENCE_S;
    v->unannounced_since = -1;
    v->acked_at = -1e9;
    return v;
}

unsigned vedette_version(void) { return VEDETTE_VERSION; }

/* Of the first release: there is no smaller structure. */
#define OPTIONS_LEAST (offsetof(vedette_options, wait_s) + sizeof(double))

/* The options as this release knows them; an error if they set something that it does not know. */
static const char *copy_options(vedette_options *known, const vedette_options *given, size_t size) {
    *known = (vedette_options){0};
    memcpy(known, given, size < sizeof *known ? size : sizeof *known);
    if (size < OPTIONS_LEAST) return "the size of the options is not that of any vedette_options: call vedette_open";
    for (size_t k = sizeof *known; k < size; k++)
        if (((const unsigned char *)given)[k])
            return "the options set something that this library does not know: it is older than the vedette.h that "
                   "the program was compiled with";
    return NULL;
}

vedette *vedette_open_sized(const vedette_options *given, size_t size) {
    vedette_options known;
    const char *wrong = copy_options(&known, given, size);
    vedette *v = vd_new_client(&known);
    if (v && wrong) {
        *v->error = 0; /* what else is wrong may follow from it */
        vd_set_error(v, "%s", wrong);
    }
    if (!v || *v->error) return v;
    v->started = !pthread_create(&v->thread, NULL, vd_run_network, v);
    if (!v->started) vd_set_error(v, "no thread");
    return v;
}

void vd_free_client(vedette *v) {
    if (v->context) zmq_ctx_term(v->context);
    for (unsigned k = 0; v->envs && k < v->env_count; k++) vd_free_environment(v->envs + k);
    vd_free_staging(&v->staging);
    if (v->window.held) vd_window_clear(&v->window);
    vd_clear_assembly(&v->partial);
    vd_free_run(v->run);
    vd_free_run(v->older);
    vd_free_run(v->plays);
    free(v->envs);
    free(v->window.held);
    free(v->acts.memory);
    free(v->arrived.memory);
    vd_forget_judged(v);
    free(v->memory);
    pthread_cond_destroy(&v->changed);
    pthread_mutex_destroy(&v->mutex);
    free(v);
}

/* Waiting, with the mutex held */

static vedette_result state(const vedette *v) {
    return *v->error ? VEDETTE_ERROR : v->over || v->interrupted ? VEDETTE_END : VEDETTE_OK;
}

void vedette_interrupt(vedette *v) { v->interrupted = true; }

static double deadline(double seconds) { return seconds == 0 ? 0 : vd_now() + (seconds < 0 ? 0 : seconds); }

/* False: the time is up. 0: no limit. It returns now and then, for an interrupt changes nothing that could be told. */
static bool wait_change(vedette *v, double until) {
    double look = vd_now() + LOOK_S, end = until > 0 && until < look ? until : look;
    struct timespec t = {(time_t)end, (long)((end - floor(end)) * 1e9)};
    return pthread_cond_timedwait(&v->changed, &v->mutex, &t) == 0 || end == look;
}

static vedette_result misuse(vedette *v, const char *what) {
    pthread_mutex_lock(&v->mutex);
    vd_set_error(v, "%s", what);
    pthread_mutex_unlock(&v->mutex);
    return VEDETTE_ERROR;
}

/* Batches */

/* Enough batches wait for credit. While an evaluation is wanted they are more: it begins once the episodes of now have
 * ended, also where the learner takes no more samples. */
static bool must_wait(const vedette *v) {
    const evaluation *asked = &v->evaluation;
    bool wanted = asked->request && asked->episodes < v->run->evaluated_episodes;
    return vd_window_is_full(&v->window) && !(wanted && v->window.count < v->window.room / 8);
}

/* Put the batch into the window, unless enough wait there for credit.
 * After `wait_s` it waits there nevertheless, if there is room. */
static vedette_result publish(vedette *v, batch *b) {
    double until = deadline(v->wait_s);
    vedette_result result = VEDETTE_OK;
    pthread_mutex_lock(&v->mutex);
    while (must_wait(v) && result == VEDETTE_OK) {
        if (*v->error) result = VEDETTE_ERROR;
        if (v->interrupted) until = vd_now();
        if (v->over && until == 0) until = deadline(DRAIN_S); /* the learner still takes what is there */
        if (!*v->error && !wait_change(v, until)) result = VEDETTE_WAIT;
    }
    bool taken = vd_takes_batches_of(v->run, v->plays); /* nobody takes it where another run began */
    if (taken && vd_window_add(&v->window, b) && result == VEDETTE_WAIT) result = VEDETTE_OK;
    pthread_mutex_unlock(&v->mutex);
    free(b->payload);
    return result;
}

static vedette_result flush(vedette *v) {
    batch b;
    if (!v->staging.rows) return VEDETTE_OK;
    if (!vd_take_batch(&v->staging, &b)) return misuse(v, "out of memory");
    uint64_t most = v->plays->batch_env_steps;
    b.env_steps = v->steps_to_carry < most ? v->steps_to_carry : most;
    v->steps_to_carry -= b.env_steps;
    return publish(v, &b);
}

static vedette_result finish_row(vedette *v, environment *e, const void *next_obs, bool terminated, bool truncated) {
    if (!vd_finish_row(e, &v->staging, next_obs, terminated, truncated)) return misuse(v, "out of memory");
    return vd_is_full(&v->staging) ? flush(v) : VEDETTE_OK;
}

/* The unfinished rows of an actor that ends: fewer steps, and neither flag. */
static void flush_all(vedette *v) {
    for (unsigned k = 0; v->plays && k < v->env_count; k++) {
        environment *e = v->envs + k;
        while (e->count && finish_row(v, e, e->obs, false, false) != VEDETTE_ERROR) {}
    }
    flush(v);
}

/* Runs and models */

/* Rows that were begun for one start of a run may be finished for the other. */
static bool keeps_rows(const run *old, const run *r) {
    return old->n_step == r->n_step && old->discount == r->discount && old->batch_rows == r->batch_rows &&
           old->reward_scale == r->reward_scale && old->reward_clip == r->reward_clip;
}

/* The caller's memory fits no other sizes than those it was told first. */
static bool check_sizes(vedette *v, const run *r) {
    size_t action_bytes = r->rows.columns[r->action].bytes;
    if ((v->obs_bytes && v->obs_bytes != r->obs_bytes) || (v->action_bytes && v->action_bytes != action_bytes)) {
        pthread_mutex_lock(&v->mutex);
        vd_set_error(v, "the run has observations of %zu and actions of %zu bytes, this client of %zu and %zu",
                     r->obs_bytes, action_bytes, v->obs_bytes, v->action_bytes);
        pthread_mutex_unlock(&v->mutex);
        return false;
    }
    v->obs_bytes = r->obs_bytes;
    v->action_bytes = action_bytes;
    return true;
}

/* The models at hand are not the run's; so are the episodes that are played with one of them. */
static void forget_models(vedette *v) {
    free(v->acts.memory);
    v->acts = (model){0};
    vd_forget_judged(v);
    for (unsigned k = 0; k < v->env_count; k++) {
        if (v->envs[k].judged) v->envs[k].restarted = true;
        v->envs[k].judged = 0;
    }
}

/* A multiple of 2^32 below 2^62. From 0, a process that starts again would fill the place of a lost batch with rows of
 * its own. */
static int64_t first_time(vedette *v) { return (int64_t)(vd_random_bits(&v->seed) >> 34 << 32); }

/* Play the run that was announced. What is unfinished of the same run stays, or is sent where its
 * settings changed. */
static void play(vedette *v, run *r) {
    run *old = v->plays;
    bool same = old && vd_takes_batches_of(r, old);
    bool keeps = same && keeps_rows(old, r), made = true;
    if (same && !keeps) flush_all(v);
    if (!same || !vd_same_schema(&old->model, &r->model)) forget_models(v);
    v->plays = r;
    free(v->memory);
    v->memory = calloc(vd_acting_memory(r), sizeof *v->memory);
    for (unsigned k = 0; k < v->env_count && !keeps; k++) {
        if (!same) vd_free_environment(v->envs + k);
        if (!same) v->envs[k].restarted = old != NULL;
        if (!same && r->has_keys) v->envs[k].t = first_time(v);
        v->envs[k].index = k;
        made = vd_init_environment(v->envs + k, r) && made;
    }
    for (unsigned k = 0; k < v->env_count; k++) {
        vd_free_noise(&v->envs[k].noise); /* its length may be another */
        made = vd_fit_policy(v->envs + k, r) && made;
    }
    if (!keeps) {
        vd_free_staging(&v->staging);
        made = vd_init_staging(&v->staging, r, v->env_count) && made;
    }
    v->staging.run = r;
    if (!made || !v->memory) misuse(v, "out of memory, or a row is larger than 64 MiB");
}

/* With the mutex held, but for the time of the change itself. */
static void play_announced(vedette *v) {
    run *old = v->plays;
    if (v->run == old || !v->run || !v->has_first_actor) return;
    run *r = v->run;
    r->holders++;
    pthread_mutex_unlock(&v->mutex);
    bool fits = check_sizes(v, r);
    if (fits) play(v, r);
    pthread_mutex_lock(&v->mutex);
    vd_free_run(fits ? old : r);
}

static void take_model(vedette *v) {
    bool within_run = v->plays && v->plays->run_length && v->staging.rows && v->acts.row; /* a batch is of one model */
    if (!v->arrived.row || v->plays != v->run || within_run) return;
    free(v->acts.memory);
    v->acts = v->arrived;
    v->arrived = (model){0};
    v->acting_version = v->acts.version;
}

/* A run and, where it is asked for, a model. */
static vedette_result ready(vedette *v, double seconds, bool with_model) {
    double until = deadline(seconds);
    vedette_result result;
    pthread_mutex_lock(&v->mutex);
    while ((result = state(v)) == VEDETTE_OK) {
        play_announced(v);
        take_model(v);
        v->first_env = v->first_actor * v->env_count;
        if (*v->error || (v->plays && (v->acts.row || !with_model))) break;
        if (!wait_change(v, until)) {
            result = VEDETTE_WAIT;
            break;
        }
    }
    if (*v->error) result = VEDETTE_ERROR;
    pthread_mutex_unlock(&v->mutex);
    return result;
}

vedette_result vedette_wait(vedette *v, double seconds) { return ready(v, seconds, true); }

size_t vedette_obs_bytes(const vedette *v) { return v->plays ? v->plays->obs_bytes : 0; }

size_t vedette_action_bytes(const vedette *v) { return v->plays ? v->plays->rows.columns[v->plays->action].bytes : 0; }

size_t vedette_obs_offset(const vedette *v, const char *key, size_t *bytes) {
    for (unsigned k = 0; v->plays && k < v->plays->part_count; k++) {
        const obs_part *part = v->plays->parts + k;
        if (strcmp(*part->key ? part->key + 1 : "", key)) continue;
        *bytes = part->bytes;
        return part->offset;
    }
    *bytes = 0;
    return SIZE_MAX;
}

/* Acting */

/* A sample with it would be rejected by the learner, which this program does not hear at once. */
static bool is_finite_observation(const run *r, const void *obs) {
    for (unsigned k = 0; k < r->part_count; k++) {
        const obs_part *part = r->parts + k;
        if (!vd_is_finite(part->type, part->width, (const uint8_t *)obs + part->offset, part->count)) return false;
    }
    return true;
}

static const char NOT_FINITE[] = "an observation with a number that is not finite";

/* Why an action is none of the run's, as far as its policy says the range; NULL: it is one. */
static const char *wrong_action(const run *r, const void *action) {
    const run_column *column = r->rows.columns + r->action;
    const policy *p = &r->policy;
    if (!vd_is_finite(column->type[0], column->width, action, column->count)) return "an action that is not finite";
    if (p->head == NO_POLICY || p->head >= GAUSSIAN) return NULL;
    for (size_t d = 0; d < p->dimensions; d++) {
        double of = vd_number_at(column->type[0], column->width, action, d) - (double)p->actions.starts[d];
        if (of < 0 || of >= (double)p->actions.counts[d]) return "an action that the run's actions do not have";
    }
    return NULL;
}

vedette_result vedette_begin(vedette *v, unsigned env, const void *obs) {
    if (env >= v->env_count) return misuse(v, "there is no such environment");
    vedette_result result = ready(v, v->wait_s, false);
    if (result != VEDETTE_OK) return result;
    environment *e = v->envs + env;
    if (!is_finite_observation(v->plays, obs)) return misuse(v, NOT_FINITE);
    if (e->count) return misuse(v, "an episode begins before the last one has ended");
    memcpy(e->obs, obs, v->plays->obs_bytes);
    e->acting = e->begins = true;
    e->noise.left = 0;
    if (e->memory) memset(e->memory, 0, e->memory_size * sizeof *e->memory);
    e->remembered = false;
    e->chosen = e->restarted = false;
    e->total = 0;
    e->length = 0;
    pthread_mutex_lock(&v->mutex);
    vd_begin_judged(v, e);
    pthread_mutex_unlock(&v->mutex);
    return VEDETTE_OK;
}

static vedette_result choose_action(vedette *v, const model *by, const void *obs, const acting *how, void *action) {
    const policy *p = &v->plays->policy;
    if (p->head == NO_POLICY) return misuse(v, p->missing);
    vd_act(v->plays, by->row, by->version, obs, how, v->memory, action);
    return VEDETTE_OK;
}

/* What is remembered before `obs`, in the place of what is after it. */
static float *copy_memory(environment *e) {
    if (!e->memory) return NULL;
    memcpy(e->memory + e->memory_size, e->memory, e->memory_size * sizeof *e->memory);
    return e->memory + e->memory_size;
}

/* The next observation follows. Where nobody asked for an action, what is remembered follows from `obs` all the same,
 * by the model that would have chosen. */
static void remember(vedette *v, environment *e) {
    const model *by = e->judged ? &v->judged : &v->acts;
    if (!e->memory) return;
    if (!e->remembered && by->row) vd_remember(v->plays, by->row, e->obs, copy_memory(e), v->memory);
    if (e->remembered || by->row) memcpy(e->memory, e->memory + e->memory_size, e->memory_size * sizeof *e->memory);
    e->remembered = false;
}

vedette_result vedette_act(vedette *v, unsigned env, void *action) {
    if (env >= v->env_count) return misuse(v, "there is no such environment");
    vedette_result result = ready(v, v->wait_s, true);
    environment *e = v->envs + env;
    if (result != VEDETTE_OK) return result;
    if (e->restarted) return VEDETTE_BEGIN;
    if (!e->acting) return misuse(v, "an action before vedette_begin");
    const policy *p = &v->plays->policy;
    const model *by = e->judged ? &v->judged : &v->acts;
    acting how = {.rank = vd_exploration_rank(v->first_env + env), .random = e->judged ? NULL : &v->seed,
                  .state = copy_memory(e), .drawn = e->drawn};
    if (how.random && p->noise_exponent != 0.0 && !(how.noise = vd_draw_noise(p, &e->noise, how.random)))
        return misuse(v, "out of memory for the noise of actions");
    result = choose_action(v, by, e->obs, &how, e->action);
    if (result != VEDETTE_OK) return result;
    e->chosen = e->remembered = true;
    e->intervened = false;
    memcpy(action, e->action, vedette_action_bytes(v));
    return VEDETTE_OK;
}

/* As choose_action, for an observation of the caller: those of episodes were looked at when they came. */
static vedette_result choose_greedily(vedette *v, const void *obs, float *memory, void *action) {
    if (!is_finite_observation(v->plays, obs)) return misuse(v, NOT_FINITE);
    return choose_action(v, &v->acts, obs, &(acting){.rank = 0.5, .state = memory}, action);
}

vedette_result vedette_greedy(vedette *v, const void *obs, void *action) {
    vedette_result result = ready(v, v->wait_s, true);
    if (result != VEDETTE_OK) return result;
    if (v->plays->policy.memory)
        return misuse(v, "the run's policy has a memory, which vedette_greedy does not: call "
                         "vedette_greedy_with_memory");
    return choose_greedily(v, obs, NULL, action);
}

size_t vedette_memory_size(const vedette *v) { return v->plays ? v->plays->policy.memory : 0; }

vedette_result vedette_greedy_with_memory(vedette *v, const void *obs, float *memory, size_t size, void *action) {
    vedette_result result = ready(v, v->wait_s, true);
    if (result != VEDETTE_OK) return result;
    if (size != v->plays->policy.memory)
        return misuse(v, "the memory given to vedette_greedy_with_memory is not of vedette_memory_size numbers");
    return choose_greedily(v, obs, memory, action);
}

vedette_result vedette_set_action(vedette *v, unsigned env, const void *action) {
    if (env < v->env_count && v->envs[env].restarted) return VEDETTE_BEGIN;
    if (env >= v->env_count || !v->envs[env].acting) return misuse(v, "an action before vedette_begin");
    if (v->plays->kept[LOG_PROB].stored && !v->envs[env].judged)
        return misuse(v, "the run's rows hold how likely its policy was to act so, and of another's action nobody knows "
                         "that: no vedette_set_action in such runs");
    const char *why = wrong_action(v->plays, action);
    if (why) return misuse(v, why);
    memcpy(v->envs[env].action, action, vedette_action_bytes(v));
    v->envs[env].chosen = v->envs[env].intervened = true;
    return VEDETTE_OK;
}

/* Observing */

static void count_step(vedette *v, environment *e, double reward, bool ends) {
    e->total += reward;
    e->length++;
    v->steps_to_carry++;
    pthread_mutex_lock(&v->mutex);
    v->env_steps++;
    if (ends) {
        v->returns[v->episodes++ % RETURNS] = e->total;
        v->report_return += e->total;
        v->report_length += (double)e->length;
        v->report_episodes++;
        if (isfinite(e->total)) {
            v->return_sum += e->total;
            v->return_count++;
        }
    }
    pthread_mutex_unlock(&v->mutex);
}

/* A step of an evaluation's episode, whose rows are not sent. */
static vedette_result observe_judged(vedette *v, environment *e, double reward, const void *next_obs, bool ends) {
    pthread_mutex_lock(&v->mutex);
    bool goes_on = vd_is_judged(v, e) && !vd_observe_judged(v, e, reward, ends);
    vedette_result result = state(v);
    pthread_mutex_unlock(&v->mutex);
    e->chosen = false;
    e->acting = goes_on && !ends;
    e->restarted = !goes_on && !ends;
    if (e->acting) {
        remember(v, e);
        memcpy(e->obs, next_obs, v->plays->obs_bytes);
    }
    return result == VEDETTE_OK && e->restarted ? VEDETTE_BEGIN : result;
}

vedette_result vedette_observe(vedette *v, unsigned env, double reward, const void *next_obs, bool terminated,
                               bool truncated) {
    if (env < v->env_count && v->envs[env].restarted) return VEDETTE_BEGIN;
    if (env >= v->env_count || !v->envs[env].chosen) return misuse(v, "an outcome without an action");
    if (!isfinite(reward)) return misuse(v, "a reward that is not finite");
    if (!is_finite_observation(v->plays, next_obs)) return misuse(v, NOT_FINITE);
    environment *e = v->envs + env;
    vedette_result result = VEDETTE_OK;
    bool ends = terminated || truncated, has_model = v->acts.row;
    if (e->judged) return observe_judged(v, e, reward, next_obs, ends);
    vd_begin_row(e, v->plays, has_model ? v->acts.epoch : v->plays->epoch, v->acts.version, reward);
    count_step(v, e, reward, ends);
    e->chosen = false;
    while (e->count && (ends || e->count == v->plays->n_step)) {
        vedette_result one = finish_row(v, e, next_obs, terminated, truncated);
        if (one != VEDETTE_OK) result = one;
        if (one == VEDETTE_ERROR) break;
    }
    e->acting = !ends;
    if (!ends) {
        remember(v, e);
        memcpy(e->obs, next_obs, v->plays->obs_bytes);
    }
    if (result != VEDETTE_OK) return result;
    pthread_mutex_lock(&v->mutex);
    result = state(v);
    pthread_mutex_unlock(&v->mutex);
    return result;
}

/* Telling and closing */

const float *vedette_array(const vedette *v, const char *name, size_t *count) {
    unsigned column;
    if (!v->acts.row || !vd_find_column(&v->plays->model, name, &column)) return NULL;
    if (strcmp(v->plays->model.columns[column].type, "f4")) return NULL;
    *count = v->plays->model.columns[column].count;
    return vd_array((weights){&v->plays->model, v->acts.row}, column);
}

void vedette_get_stats_sized(vedette *v, vedette_stats *stats, size_t size) {
    pthread_mutex_lock(&v->mutex);
    const window *w = &v->window;
    vedette_stats s = {v->env_steps, v->episodes, w->produced, w->settled, w->rejected, w->dropped, w->resent,
                       v->acts.epoch, v->acts.version, v->reconnects, 0};
    uint64_t known = v->episodes < RETURNS ? v->episodes : RETURNS;
    for (uint64_t k = 0; k < known; k++) s.return_mean += v->returns[k] / (double)known;
    pthread_mutex_unlock(&v->mutex);
    memset(stats, 0, size);
    memcpy(stats, &s, size < sizeof s ? size : sizeof s);
}

const char *vedette_error(const vedette *v) { return v->error; }

bool vedette_close(vedette *v, double seconds) {
    if (!v) return false;
    double until = vd_now() + (seconds > 0 ? seconds : 0);
    v->wait_s = seconds > 0 ? seconds : -1;
    if (v->plays && !*v->error) flush_all(v);
    pthread_mutex_lock(&v->mutex);
    v->leaving = v->report_due = true;
    while (v->window.count && !*v->error && wait_change(v, until)) {}
    bool all = !v->window.count && !v->window.dropped && !*v->error;
    vd_window_drop_unsent(&v->window);
    v->stopping = true;
    pthread_mutex_unlock(&v->mutex);
    if (v->started) pthread_join(v->thread, NULL);
    vd_free_client(v);
    return all;
}
