/* A game that needs a memory: one of two signs is shown at first and nothing from then on, and the last action of an
 * episode is to name it. The same as vedette_rl.testing:RepeatFirst, for an agent with agent.memory=gru.
 *
 *     repeat_first HOST PORT ID STEPS [KEYS]
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "command.h"

#define ENVS 8
#define SIGNS 2

typedef struct {
    int t, sign;
} game;

static void show(float obs[SIGNS + 1], int seen) {
    memset(obs, 0, (SIGNS + 1) * sizeof *obs);
    obs[seen] = 1;
}

static void reset(game *g, float obs[SIGNS + 1]) {
    *g = (game){0, rand() / (RAND_MAX / SIGNS + 1)};
    show(obs, g->sign);
}

/* What is remembered is the client's: an episode that begins has forgotten the one before. */
static vedette_result play(vedette *v, unsigned k, game *g, int steps) {
    int64_t action;
    float obs[SIGNS + 1];
    vedette_result result = vedette_act(v, k, &action);
    if (result == VEDETTE_OK) {
        bool over = ++g->t == steps;
        show(obs, SIGNS);
        result = vedette_observe(v, k, over && action == g->sign, obs, over, false);
        if (result != VEDETTE_OK || !over) return result;
    } else if (result != VEDETTE_BEGIN) {
        return result;
    }
    reset(g, obs);
    return vedette_begin(v, k, obs);
}

int main(int argc, char **argv) {
    vedette_options options = {.envs = ENVS, .obs_bytes = (SIGNS + 1) * sizeof(float), .action_bytes = sizeof(int64_t),
                               .evaluates = true};
    read_words(argc, argv, 6, "repeat_first HOST PORT ID STEPS [KEYS]", &options);
    int steps = argc > 4 ? atoi(argv[4]) : 0;
    if (steps < 1) {
        fprintf(stderr, "repeat_first: STEPS is 1 or more\n");
        return 2;
    }
    vedette *v = open_client(&options);
    srand((unsigned)time(NULL));
    game games[ENVS];
    float obs[SIGNS + 1];
    vedette_result result = wait_for_learner(&options);
    for (unsigned k = 0; k < ENVS && result == VEDETTE_OK; k++) {
        reset(games + k, obs);
        result = vedette_begin(v, k, obs);
    }
    for (unsigned k = 0; result == VEDETTE_OK || result == VEDETTE_BEGIN; k = (k + 1) % ENVS)
        result = play(v, k, games + k, steps);
    if (result == VEDETTE_ERROR) fprintf(stderr, "repeat_first: %s\n", vedette_error(v));
    vedette_stats s;
    vedette_get_stats(v, &s);
    size_t remembers = vedette_memory_size(v);
    bool settled = vedette_close(v, 10.0);
    printf("%" PRIu64 " steps, %" PRIu64 " episodes, the last ones %.2f, by a policy that remembers %zu numbers; %s\n",
           s.env_steps, s.episodes, s.return_mean, remembers, settled ? "all settled" : "not all settled");
    return result == VEDETTE_ERROR ? 3 : settled ? 0 : 1;
}
