/* Acts greedily on observations of a file by a learner's model, with a memory of its own; an episode begins with each
 * of the numbers given. Prints the actions, and what is said of a memory that is too large; without numbers, what is
 * said of none.
 *
 *     greedy_with_memory PORT OBSERVATIONS [BEGINS...]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vedette.h"

#define OBS_MAX 4096

int main(int argc, char **argv) {
    uint8_t obs[OBS_MAX];
    int64_t action;
    if (argc < 3) return 2;
    vedette_options options = {.port = atoi(argv[1]), .id = "c-1", .action_bytes = sizeof action};
    FILE *stream = fopen(argv[2], "rb");
    vedette *v = vedette_open(&options);
    if (!v || !stream || vedette_memory_size(v) || vedette_wait(v, 20) != VEDETTE_OK) return 1;
    size_t size = vedette_memory_size(v), bytes = vedette_obs_bytes(v);
    float *memory = calloc(size + 1, sizeof *memory);
    if (!memory || !size || bytes > OBS_MAX) return 1;
    for (int step = 0; argc > 3 && fread(obs, 1, bytes, stream) == bytes; step++) {
        for (int k = 3; k < argc; k++)
            if (atoi(argv[k]) == step) memset(memory, 0, size * sizeof *memory);
        if (vedette_greedy_with_memory(v, obs, memory, size, &action) != VEDETTE_OK) return 3;
        printf("%" PRId64 "\n", action);
    }
    memset(obs, 0, sizeof obs);
    vedette_result result = argc > 3 ? vedette_greedy_with_memory(v, obs, memory, size + 1, &action)
                                     : vedette_greedy(v, obs, &action);
    if (result != VEDETTE_ERROR) return 4;
    printf("%s\n", vedette_error(v));
    vedette_close(v, 0);
    fclose(stream);
    free(memory);
    return 0;
}
