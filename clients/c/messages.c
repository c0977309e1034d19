#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"

#define RUN_MAX (1 << 20)
#define COUNT_MAX ((uint64_t)1 << 62)
#define EXTRAS_MAX 128

void vd_set_error(vedette *v, const char *format, ...) {
    va_list arguments;
    if (*v->error) return; /* the first one counts */
    va_start(arguments, format);
    vsnprintf(v->error, sizeof v->error, format, arguments);
    va_end(arguments);
    pthread_cond_broadcast(&v->changed);
}

/* Runs */

static void forget_older(vedette *v) {
    vd_free_run(v->older);
    v->older = NULL;
}

static void begin_incarnation(vedette *v) {
    vd_window_clear(&v->window);
    v->known_learner = v->has_first_actor = false;
    v->evaluation = (evaluation){0};
    v->incarnation = vd_random_bits(&v->jitter);
}

static void forget_models(vedette *v) {
    free(v->arrived.memory);
    v->arrived = (model){0};
    v->newest.known = false;
}

static void adopt_announced(vedette *v, run *r) {
    bool same = v->run && vd_takes_batches_of(r, v->run);
    bool asks_same = same && r->evaluated_episodes == v->run->evaluated_episodes &&
                     r->evaluated_steps == v->run->evaluated_steps;
    if (!same) begin_incarnation(v);
    bool same_model = same && vd_same_schema(&r->model, &v->run->model);
    if (!asks_same || !same_model) v->evaluation = (evaluation){0};
    if (!same_model) forget_models(v);
    vd_clear_assembly(&v->partial);
    v->newest.known = false; /* where the run was put back, its models are older ones */
    vd_free_run(v->run);
    v->run = r;
    v->models_due = v->report_due = true;
    pthread_cond_broadcast(&v->changed);
}

/* A learner of an older epoch: one that was replaced stops soon, one of a run that was put back goes on. */
static void keep_older(vedette *v, run *r, double now) {
    if (!v->older) v->older_since = now;
    forget_older(v);
    v->older = r;
}

static void on_run(vedette *v, const mp_value *header, frame body, double now) {
    mp_value payload;
    char why[200] = "";
    if (v->leaving || body.size > RUN_MAX || !mp_read_message(body.data, body.size, &payload)) return;
    run *r = vd_read_run(header, &payload, why, sizeof why);
    if (!r) {
        vd_set_error(v, "%s", why);
        return;
    }
    bool same = v->run && !strcmp(r->id, v->run->id);
    if (same && r->epoch < v->run->epoch) {
        keep_older(v, r, now);
        return;
    }
    forget_older(v);
    if (same && r->epoch == v->run->epoch && r->learner == v->run->learner) vd_free_run(r);
    else adopt_announced(v, r);
}

/* Acks */

typedef struct {
    char run[65], manager[65];
    uint64_t epoch, learner, incarnation, contiguous, limit, first_actor, rejected;
    mp_value extras;
    uint64_t evaluate, evaluate_version;
    bool has_reason;
} ack;

static bool read_ack(const mp_value *header, ack *a) {
    mp_value reason;
    if (!mp_get_text(header, "run", a->run, sizeof a->run) ||
        !mp_get_text(header, "manager", a->manager, sizeof a->manager) ||
        !mp_get_uint(header, "epoch", INT32_MAX, &a->epoch) ||
        !mp_get_uint(header, "learner", UINT64_MAX, &a->learner) ||
        !mp_get_uint(header, "incarnation", UINT64_MAX, &a->incarnation) ||
        !mp_get_uint(header, "contiguous", COUNT_MAX, &a->contiguous) ||
        !mp_get_uint(header, "limit", COUNT_MAX, &a->limit) ||
        !mp_get_uint(header, "first_actor", INT32_MAX, &a->first_actor) ||
        !mp_get_uint(header, "rejected_rows", COUNT_MAX, &a->rejected) ||
        !mp_get_typed(header, "extras", MP_BINARY, &a->extras))
        return false;
    a->evaluate = a->evaluate_version = 0;
    mp_get_uint(header, "evaluate", UINT64_MAX, &a->evaluate);
    mp_get_uint(header, "evaluate_version", COUNT_MAX, &a->evaluate_version);
    a->has_reason = mp_get_typed(header, "reason", MP_TEXT, &reason) && reason.size;
    return a->extras.size <= EXTRAS_MAX && !(a->extras.size && a->extras.data[0] & 1);
}

/* Follow the learner of an older epoch, once it has long been the only one. */
static void follow_older(vedette *v, const ack *a, double now) {
    if (!v->older || strcmp(a->run, v->run->id)) return;
    if (a->epoch >= v->run->epoch) forget_older(v);
    else if (a->epoch == v->older->epoch && a->learner == v->older->learner && now - v->older_since >= FOLLOW_S) {
        run *r = v->older;
        v->older = NULL;
        v->known_learner = false; /* its acks count, though they are of an older epoch */
        v->resend = true;
        adopt_announced(v, r);
    }
}

static void on_ack(vedette *v, const mp_value *header, double now) {
    ack a;
    if (!read_ack(header, &a)) return;
    follow_older(v, &a, now);
    bool ours = v->run && !strcmp(a.run, v->run->id);
    bool announced = ours && (a.epoch < v->run->epoch || (a.epoch == v->run->epoch && a.learner == v->run->learner));
    if (announced) v->unannounced_since = -1;
    else if (v->unannounced_since < 0) v->unannounced_since = now;
    if (!ours || strcmp(a.manager, v->id) || a.incarnation != v->incarnation) return;
    if (v->known_learner && a.epoch < v->epoch) return;
    int freed = vd_window_settle(&v->window, a.contiguous, a.extras.data, a.extras.size);
    if (freed < 0) return;
    if (a.limit > v->window.limit) v->window.limit = a.limit;
    if (a.rejected > v->window.rejected) v->window.rejected = a.rejected;
    if (freed || !v->window.count || a.has_reason) v->progress_at = now;
    if (v->resend || (v->known_learner && (a.epoch != v->epoch || a.learner != v->learner)))
        vd_window_resend(&v->window, INFINITY);
    v->resend = false;
    v->known_learner = v->has_first_actor = true;
    v->acked_at = now;
    v->epoch = a.epoch;
    v->learner = a.learner;
    v->first_actor = a.first_actor;
    vd_ask_evaluation(v, a.evaluate, a.epoch, a.evaluate_version);
    pthread_cond_broadcast(&v->changed);
}

/* The others */

/* A final stop of another run, or of an earlier start, ends a client whose own learner is silent. */
static void on_stop(vedette *v, const mp_value *header, double now) {
    char run_id[65];
    uint64_t epoch;
    bool final;
    if (!mp_get_text(header, "run", run_id, sizeof run_id) || !mp_get_uint(header, "epoch", INT32_MAX, &epoch)) return;
    if (!mp_get_bool(header, "final", &final) || !final) return;
    bool ours = !v->run || (!strcmp(run_id, v->run->id) && epoch >= v->run->epoch);
    if (v->over || (!ours && now - v->acked_at < SILENCE_S)) return;
    v->over = v->report_due = true;
    pthread_cond_broadcast(&v->changed);
}

static void on_refusal(vedette *v, const mp_value *header) {
    char manager[65], code[65] = "", reason[201] = "";
    uint64_t incarnation;
    if (!mp_get_text(header, "manager", manager, sizeof manager) || strcmp(manager, v->id)) return;
    if (!mp_get_uint(header, "incarnation", UINT64_MAX, &incarnation) || incarnation != v->incarnation) return;
    mp_get_text(header, "code", code, sizeof code);
    mp_get_text(header, "reason", reason, sizeof reason);
    vd_set_error(v, "refused (%s): %s", code, reason);
}

void vd_on_control(vedette *v, const frame *frames, unsigned count, double now) {
    mp_value header, kind;
    uint64_t version;
    if (count < 2 || frames[1].size > HEADER_MAX || !mp_read_message(frames[1].data, frames[1].size, &header)) return;
    if (!mp_get_uint(&header, "v", UINT64_MAX, &version) || !mp_get_typed(&header, "k", MP_TEXT, &kind)) return;
    if (version != 2) {
        vd_set_error(v, "the learner speaks version %llu of the protocol, this client version 2",
                     (unsigned long long)version);
        return;
    }
    v->remake_at = now + SILENCE_S;
    if (mp_is(&kind, "run") && count == 3) on_run(v, &header, frames[2], now);
    else if (mp_is(&kind, "ack") && count == 2) on_ack(v, &header, now);
    else if (mp_is(&kind, "stop") && count == 2) on_stop(v, &header, now);
    else if (mp_is(&kind, "refusal") && count == 2) on_refusal(v, &header);
}

/* Without the mutex but for handing the model over: checking a large one takes its time. */
void vd_on_model(vedette *v, const frame *frames, unsigned count) {
    mp_value header, kind;
    uint64_t version;
    model found;
    if (count != 3 || !v->run || frames[1].size > HEADER_MAX) return;
    if (!mp_read_message(frames[1].data, frames[1].size, &header)) return;
    if (!mp_get_uint(&header, "v", 2, &version) || version != 2) return;
    if (!mp_get(&header, "k", &kind) || !mp_is(&kind, "model")) return;
    if (!vd_take_chunk(&v->partial, v->run, &header, frames[2].data, frames[2].size, &v->newest, &found)) return;
    v->newest = (model_version){true, found.epoch, found.version};
    pthread_mutex_lock(&v->mutex);
    free(v->arrived.memory);
    v->arrived = found;
    pthread_cond_broadcast(&v->changed);
    pthread_mutex_unlock(&v->mutex);
}

/* What the client sends */

static void put_count(mp_writer *w, const char *key, uint64_t number) {
    mp_put_text(w, key);
    mp_put_uint(w, number);
}

static void put_text(mp_writer *w, const char *key, const char *text) {
    mp_put_text(w, key);
    mp_put_text(w, text);
}

static void put_header(mp_writer *w, unsigned pairs, const char *kind, const vedette *v) {
    mp_put_map(w, pairs);
    put_count(w, "v", 2);
    put_text(w, "k", kind);
    put_text(w, "manager", v->id);
    put_count(w, "incarnation", v->incarnation);
}

size_t vd_write_batch_header(const vedette *v, const batch *b, uint8_t *header) {
    mp_writer w = {header, 0, HEADER_MAX, false};
    put_header(&w, 13, "batch", v);
    put_text(&w, "run", v->run->id);
    put_count(&w, "seq", b->seq);
    put_count(&w, "base", vd_window_base(&v->window));
    put_count(&w, "actor", 0);
    put_count(&w, "epoch", b->epoch);
    put_count(&w, "version", b->version);
    put_count(&w, "env_steps", b->env_steps);
    put_text(&w, "schema", v->run->rows.hash);
    put_count(&w, "rows", b->rows);
    return w.size;
}

static void put_actor(mp_writer *w, vedette *v) {
    mp_put_list(w, 1);
    mp_put_map(w, v->report_episodes ? 10 : 8);
    put_count(w, "id", 0);
    mp_put_text(w, "alive");
    mp_put_bool(w, !v->leaving);
    put_count(w, "restarts", 0);
    put_count(w, "env_steps", v->env_steps);
    put_count(w, "episodes", v->episodes);
    put_count(w, "version", v->acting_version);
    put_count(w, "returns", v->return_count);
    mp_put_text(w, "return_sum");
    mp_put_real(w, v->return_sum);
    if (!v->report_episodes) return;
    mp_put_text(w, "return_mean");
    mp_put_real(w, v->report_return / (double)v->report_episodes);
    mp_put_text(w, "length_mean");
    mp_put_real(w, v->report_length / (double)v->report_episodes);
}

size_t vd_write_report(vedette *v, uint8_t *header, uint8_t *payload, size_t *payload_size) {
    char host[128] = "";
    unsigned pairs = 12u + v->evaluates + v->evaluation.begun;
    mp_writer h = {header, 0, HEADER_MAX, false}, p = {payload, 0, REPORT_MAX, false};
    gethostname(host, sizeof host - 1);
    put_header(&h, 4, "report", v);
    mp_put_map(&p, pairs);
    put_text(&p, "host", host);
    put_text(&p, "state", v->gone ? "gone" : v->leaving || v->over ? "draining" : "running");
    put_text(&p, "run", v->run ? v->run->id : "");
    put_count(&p, "produced", v->window.produced);
    put_count(&p, "dropped", v->window.dropped);
    put_count(&p, "window_batches", v->window.count);
    put_count(&p, "window_rows", v->window.rows);
    put_count(&p, "window_bytes", v->window.bytes);
    put_count(&p, "sequenced", v->window.sequenced);
    put_count(&p, "base", vd_window_base(&v->window));
    put_count(&p, "limit", v->window.limit);
    mp_put_text(&p, "actors");
    put_actor(&p, v);
    if (v->evaluation.begun) vd_put_evaluation(&p, v);
    if (v->evaluates) {
        mp_put_text(&p, "features");
        mp_put_list(&p, 1);
        mp_put_text(&p, "evaluate");
    }
    *payload_size = p.size;
    return h.size;
}
