/* Draws coloured noise for two environments in turn, and prints the numbers of each step side by side.
 *
 *     draw_noise EXPONENT SEQUENCE_STEPS DIMENSIONS STEPS EPISODE_STEPS
 */
#include <stdio.h>
#include <stdlib.h>

#include "run.h"

int main(int argc, char **argv) {
    if (argc != 6) return 2;
    policy p = {.noise_exponent = strtod(argv[1], NULL),
                .noise_steps = strtoul(argv[2], NULL, 10),
                .dimensions = strtoul(argv[3], NULL, 10)};
    unsigned long steps = strtoul(argv[4], NULL, 10), episode = strtoul(argv[5], NULL, 10);
    action_noise noise[2] = {{0}, {0}};
    uint64_t random = 1;
    for (unsigned long t = 0; t < steps; t++) {
        for (int e = 0; e < 2; e++) {
            if (t % episode == 0) noise[e].left = 0; /* as vedette_begin does */
            const float *drawn = vd_draw_noise(&p, noise + e, &random);
            if (!drawn) return 3;
            for (size_t d = 0; d < p.dimensions; d++) printf("%.9g ", (double)drawn[d]);
        }
        printf("\n");
    }
    for (int e = 0; e < 2; e++) vd_free_noise(noise + e);
    return 0;
}
