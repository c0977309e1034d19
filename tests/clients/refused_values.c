/* Gives a learner's run values that no sample may have, and then good ones: each wrong one is refused where it is
 * given, and the step goes on as if it had not been. Prints what is said of each.
 *
 *     refused_values PORT
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "vedette.h"

static int refused(vedette *v, vedette_result result) {
    printf("%s\n", vedette_error(v));
    return result == VEDETTE_ERROR ? 0 : 1;
}

int main(int argc, char **argv) {
    float good[4] = {0}, wrong[4] = {0, 0, 0, NAN};
    int64_t action, none = 2, below = -1;
    if (argc < 2) return 2;
    vedette_options options = {.port = atoi(argv[1]), .id = "c-1", .obs_bytes = sizeof good, .action_bytes = sizeof action};
    vedette *v = vedette_open(&options);
    if (!v || vedette_wait(v, 20) != VEDETTE_OK) return 1;
    int accepted = refused(v, vedette_begin(v, 0, wrong)) + refused(v, vedette_greedy(v, wrong, &action));
    if (vedette_begin(v, 0, good) != VEDETTE_OK || vedette_act(v, 0, &action) != VEDETTE_OK) return 3;
    accepted += refused(v, vedette_set_action(v, 0, &none)) + refused(v, vedette_set_action(v, 0, &below));
    wrong[3] = -INFINITY;
    accepted += refused(v, vedette_observe(v, 0, 1.0, wrong, false, false));
    if (vedette_observe(v, 0, 1.0, good, false, true) != VEDETTE_OK) return 4;
    vedette_stats stats;
    vedette_get_stats(v, &stats);
    printf("%d steps\n", (int)stats.env_steps);
    vedette_close(v, 0);
    return accepted ? 5 : 0;
}
