#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"

/* Evaluations that the acks ask for: greedy episodes with one model, in the caller's environments. All of it with the
 * mutex held, but for vd_forget_judged. */

static bool is_of(const model *m, const evaluation *e) {
    return m->epoch > e->epoch || (m->epoch == e->epoch && m->version >= e->version);
}

void vd_ask_evaluation(vedette *v, uint64_t request, uint64_t epoch, uint64_t version) {
    if (!v->evaluates || request == v->evaluation.request) return;
    v->evaluation = (evaluation){.request = request, .epoch = epoch, .version = version};
    v->report_due = true;
}

void vd_forget_judged(vedette *v) {
    free(v->judged.memory);
    v->judged = (model){0};
}

/* The model that acts is kept as it is until all episodes have ended. */
static bool keep_model(vedette *v) {
    size_t bytes = v->plays->model.bytes + 8;
    uint8_t *memory = malloc(bytes);
    if (!memory) return false;
    vd_forget_judged(v);
    memcpy(memory + 8, v->acts.row, v->plays->model.bytes);
    v->judged = (model){v->acts.epoch, v->acts.version, memory + 8, memory};
    v->evaluation.epoch = v->acts.epoch;
    v->evaluation.version = v->acts.version;
    v->evaluation.begun = v->report_due = true;
    return true;
}

void vd_begin_judged(vedette *v, environment *e) {
    evaluation *asked = &v->evaluation;
    e->judged = 0;
    if (!asked->request || !v->acts.row || v->plays != v->run || v->plays->policy.head == NO_POLICY) return;
    if (!asked->begun && (!v->plays->evaluated_episodes || !is_of(&v->acts, asked) || !keep_model(v))) return;
    if (asked->started == v->plays->evaluated_episodes) return;
    asked->started++;
    e->judged = asked->request;
}

bool vd_is_judged(const vedette *v, const environment *e) { return e->judged && e->judged == v->evaluation.request; }

static void count_episode(evaluation *asked, double total, double length) {
    double n = (double)++asked->episodes, before = asked->mean;
    asked->mean += (total - before) / n; /* Welford 1962 */
    asked->squares += (total - before) * (total - asked->mean);
    asked->length += (length - asked->length) / n;
    asked->least = asked->episodes == 1 ? total : fmin(asked->least, total);
    asked->most = asked->episodes == 1 ? total : fmax(asked->most, total);
}

bool vd_observe_judged(vedette *v, environment *e, double reward, bool ends) {
    const run *r = v->plays;
    e->total += reward;
    bool cut = ++e->length == r->evaluated_steps && !ends;
    if (ends || cut) {
        count_episode(&v->evaluation, e->total, (double)e->length);
        v->evaluation.cut += cut;
        v->report_due = v->report_due || v->evaluation.episodes == r->evaluated_episodes;
    }
    return cut;
}

static void put_real(mp_writer *w, const char *key, double number) {
    mp_put_text(w, key);
    mp_put_real(w, number);
}

static void put_count(mp_writer *w, const char *key, uint64_t number) {
    mp_put_text(w, key);
    mp_put_uint(w, number);
}

void vd_put_evaluation(mp_writer *w, const vedette *v) {
    const evaluation *asked = &v->evaluation;
    bool all = v->run && asked->episodes == v->run->evaluated_episodes;
    mp_put_text(w, "evaluation");
    mp_put_map(w, all ? 10 : 5);
    put_count(w, "request", asked->request);
    put_count(w, "epoch", asked->epoch);
    put_count(w, "version", asked->version);
    put_count(w, "episodes", asked->episodes);
    put_count(w, "cut", asked->cut);
    if (!all) return;
    put_real(w, "return_mean", asked->mean);
    put_real(w, "return_std", sqrt(asked->squares / (double)asked->episodes));
    put_real(w, "return_min", asked->least);
    put_real(w, "return_max", asked->most);
    put_real(w, "length_mean", asked->length);
}
