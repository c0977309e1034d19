/* CartPole with physics of its own (Barto, Sutton and Anderson 1983; the constants of Gymnasium's
 * CartPole-v1), played for a learner until its run is over.
 *
 *     cartpole HOST PORT ID [KEYS]
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "command.h"

#define ENVS 8
#define EPISODE_STEPS 500

typedef struct {
    double x, x_dot, theta, theta_dot;
    int steps;
} cart;

static void observe(const cart *c, float obs[4]) {
    obs[0] = (float)c->x;
    obs[1] = (float)c->x_dot;
    obs[2] = (float)c->theta;
    obs[3] = (float)c->theta_dot;
}

static double small(void) { return 0.1 * rand() / RAND_MAX - 0.05; }

static void reset(cart *c) { *c = (cart){small(), small(), small(), small(), 0}; }

/* One step of 0.02 s by Euler's method. True: the pole fell, or the cart left the track. */
static bool step(cart *c, int64_t action) {
    double force = action ? 10.0 : -10.0, cosine = cos(c->theta), sine = sin(c->theta);
    double pull = (force + 0.05 * c->theta_dot * c->theta_dot * sine) / 1.1;
    double turn = (9.8 * sine - cosine * pull) / (0.5 * (4.0 / 3.0 - 0.1 * cosine * cosine / 1.1));
    double push = pull - 0.05 * turn * cosine / 1.1;
    c->x += 0.02 * c->x_dot;
    c->x_dot += 0.02 * push;
    c->theta += 0.02 * c->theta_dot;
    c->theta_dot += 0.02 * turn;
    c->steps++;
    return fabs(c->x) > 2.4 || fabs(c->theta) > 12 * 2 * 3.14159265358979 / 360;
}

/* Step one environment. */
static vedette_result play(vedette *v, unsigned k, cart *c) {
    int64_t action;
    float obs[4];
    vedette_result result = vedette_act(v, k, &action);
    if (result == VEDETTE_OK) {
        bool fell = step(c, action), late = c->steps >= EPISODE_STEPS;
        observe(c, obs);
        result = vedette_observe(v, k, 1.0, obs, fell, late);
        if (result != VEDETTE_OK || !(fell || late)) return result;
    } else if (result != VEDETTE_BEGIN) {
        return result;
    }
    reset(c);
    observe(c, obs);
    return vedette_begin(v, k, obs);
}

int main(int argc, char **argv) {
    vedette_options options = {.envs = ENVS, .obs_bytes = 4 * sizeof(float), .action_bytes = sizeof(int64_t),
                               .evaluates = true};
    read_words(argc, argv, 5, "cartpole HOST PORT ID [KEYS]", &options);
    vedette *v = open_client(&options);
    srand((unsigned)time(NULL));
    cart carts[ENVS];
    float obs[4];
    vedette_result result = wait_for_learner(&options);
    for (unsigned k = 0; k < ENVS && result == VEDETTE_OK; k++) {
        reset(carts + k);
        observe(carts + k, obs);
        result = vedette_begin(v, k, obs);
    }
    for (unsigned k = 0; result == VEDETTE_OK || result == VEDETTE_BEGIN; k = (k + 1) % ENVS)
        result = play(v, k, carts + k);
    if (result == VEDETTE_ERROR) fprintf(stderr, "cartpole: %s\n", vedette_error(v));
    vedette_stats s;
    vedette_get_stats(v, &s);
    bool settled = vedette_close(v, 10.0);
    printf("%" PRIu64 " steps, %" PRIu64 " episodes, the last ones %.1f; %" PRIu64 " rows, %" PRIu64
           " rejected, %" PRIu64 " sent again, %" PRIu64 " reconnects; %s\n",
           s.env_steps, s.episodes, s.return_mean, s.produced, s.rejected, s.resent, s.reconnects,
           settled ? "all settled" : "not all settled");
    return result == VEDETTE_ERROR ? 3 : settled ? 0 : 1;
}
