/* A pendulum with physics of its own (the constants of Gymnasium's Pendulum-v1), played for a learner until its run is
 * over. With HZ it is a robot's control loop: one step every 1 / HZ seconds by the clock, whatever the learner does.
 *
 *     pendulum HOST PORT ID [HZ [KEYS]]
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "command.h"

#define EPISODE_STEPS 200
#define PI 3.14159265358979323846

typedef struct {
    double theta, theta_dot;
    int steps;
} pendulum;

/* The loop's timing, in seconds. */
typedef struct {
    double period, next;
    double longest_act, longest_observe;
    uint64_t steps, missed;
} timing;

static double uniform(double most) { return most * (2.0 * rand() / RAND_MAX - 1.0); }

static void observe(const pendulum *p, float obs[3]) {
    obs[0] = (float)cos(p->theta);
    obs[1] = (float)sin(p->theta);
    obs[2] = (float)p->theta_dot;
}

static void reset(pendulum *p) { *p = (pendulum){uniform(PI), uniform(1.0), 0}; }

/* One step of 0.05 s; the reward, which is never above 0. */
static double step(pendulum *p, double torque) {
    double angle = fmod(p->theta + PI, 2 * PI);
    angle += angle < 0 ? PI : -PI; /* in [-PI, PI] */
    double reward = -(angle * angle + 0.1 * p->theta_dot * p->theta_dot + 0.001 * torque * torque);
    p->theta_dot += 0.05 * (15.0 * sin(p->theta) + 3.0 * torque);
    p->theta_dot = fmax(-8.0, fmin(8.0, p->theta_dot));
    p->theta += 0.05 * p->theta_dot;
    p->steps++;
    return reward;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Sleep until the next period begins. A loop that is late begins at once and counts what it missed. */
static void wait_period(timing *t) {
    if (t->period <= 0) return;
    t->next += t->period;
    double late = now() - t->next;
    if (late > 0) {
        double periods = ceil(late / t->period);
        t->missed += (uint64_t)periods;
        t->next += periods * t->period;
    }
    struct timespec until = {(time_t)t->next, (long)((t->next - floor(t->next)) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL)) {}
}

/* One step, and the beginning of the next episode where one ends. */
static vedette_result play(vedette *v, pendulum *p, timing *t) {
    float action, obs[3];
    double before = now();
    vedette_result result = vedette_act(v, 0, &action);
    t->longest_act = fmax(t->longest_act, now() - before);
    if (result == VEDETTE_OK) {
        double reward = step(p, action);
        bool late = p->steps >= EPISODE_STEPS;
        observe(p, obs);
        before = now();
        result = vedette_observe(v, 0, reward, obs, false, late);
        t->longest_observe = fmax(t->longest_observe, now() - before);
        t->steps++;
        if (!late || (result != VEDETTE_OK && result != VEDETTE_WAIT)) return result;
    } else if (result != VEDETTE_BEGIN) {
        return result;
    }
    reset(p);
    observe(p, obs);
    return vedette_begin(v, 0, obs);
}

static void report(const vedette_stats *s, const timing *t, bool settled) {
    printf("%" PRIu64 " steps, %" PRIu64 " episodes, the last ones %.1f; %" PRIu64 " rows, %" PRIu64
           " dropped, %" PRIu64 " sent again, %" PRIu64 " reconnects; %s\n",
           s->env_steps, s->episodes, s->return_mean, s->produced, s->dropped, s->resent, s->reconnects,
           settled ? "all settled" : "not all settled");
    if (t->period > 0)
        printf("%" PRIu64 " periods of %.1f ms, %" PRIu64 " missed; longest act %.3f ms, longest observe %.3f ms\n",
               t->steps, 1e3 * t->period, t->missed, 1e3 * t->longest_act, 1e3 * t->longest_observe);
}

int main(int argc, char **argv) {
    char *end = "";
    double hz = argc > 4 ? strtod(argv[4], &end) : 0; /* 0: as fast as it can */
    if (*end || !(hz >= 0)) {
        fprintf(stderr, "pendulum: HZ is a rate, not '%s'\n", argv[4]);
        return 2;
    }
    timing t = {.period = hz > 0 ? 1 / hz : 0};
    vedette_options options = {.obs_bytes = 3 * sizeof(float), .action_bytes = sizeof(float), .evaluates = true,
                               .wait_s = hz > 0 ? -1 : 0}; /* a robot never waits for its learner */
    read_words(argc, argv, 6, "pendulum HOST PORT ID [HZ [KEYS]]", &options);
    vedette *v = open_client(&options);
    srand((unsigned)time(NULL));
    pendulum p;
    float obs[3];
    reset(&p);
    observe(&p, obs);
    vedette_result result = wait_for_learner(&options);
    if (result == VEDETTE_OK) result = vedette_begin(v, 0, obs);
    t.next = now();
    while (result == VEDETTE_OK || result == VEDETTE_WAIT || result == VEDETTE_BEGIN) {
        result = play(v, &p, &t);
        wait_period(&t);
    }
    if (result == VEDETTE_ERROR) fprintf(stderr, "pendulum: %s\n", vedette_error(v));
    vedette_stats s;
    vedette_get_stats(v, &s);
    bool settled = vedette_close(v, 10.0);
    report(&s, &t, settled);
    return result == VEDETTE_ERROR ? 3 : settled ? 0 : 1;
}
