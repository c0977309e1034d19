/* Reads a run message and a model's row, and prints the greedy action of each observation given, or
 * with a version of the model an exploring one. With a byte for each observation, 1 where an episode
 * begins, it prints behind the action what the policy remembers after the observation.
 *
 *     act_once HEADER PAYLOAD ROW OBSERVATIONS [VERSION | begins BEGINS]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

static uint8_t *read_file(const char *path, size_t *size) {
    FILE *stream = fopen(path, "rb");
    uint8_t *data = malloc(1 << 26);
    if (!stream || !data) exit(9);
    *size = fread(data, 1, 1 << 26, stream);
    fclose(stream);
    return data;
}

static void print_action(const run_column *column, const uint8_t *action) {
    for (size_t k = 0; k < column->count; k++) {
        int64_t integer;
        float real;
        if (column->type[0] == 'f') printf("%.9g ", (double)(memcpy(&real, action + 4 * k, 4), real));
        else printf("%" PRId64 " ", (memcpy(&integer, action + 8 * k, 8), integer));
    }
}

int main(int argc, char **argv) {
    size_t size[4], begins_size = 0;
    uint8_t *data[4], *begins = NULL;
    mp_value header, payload;
    char why[256] = "not a message";
    uint64_t version = 1, seed = 1, *random = NULL;
    if (argc < 5 || argc > 7) return 2;
    if (argc == 7) begins = read_file(argv[6], &begins_size);
    if (argc == 6) {
        version = strtoull(argv[5], NULL, 10);
        random = &seed;
    }
    for (int k = 0; k < 4; k++) data[k] = read_file(argv[k + 1], &size[k]);
    run *r = NULL;
    if (mp_read_message(data[0], size[0], &header) && mp_read_message(data[1], size[1], &payload))
        r = vd_read_run(&header, &payload, why, sizeof why);
    if (r && r->policy.head == NO_POLICY) snprintf(why, sizeof why, "%s", r->policy.missing);
    if (!r || r->policy.head == NO_POLICY || size[2] != r->model.sent_bytes) {
        printf("refused: %s\n", why);
    } else {
        const run_column *column = r->rows.columns + r->action;
        uint8_t *action = malloc(column->bytes), *row = calloc(r->model.bytes, 1);
        float *memory = malloc(vd_acting_memory(r) * sizeof *memory);
        float *state = calloc(r->policy.memory + 1, sizeof *state);
        float *drawn = calloc(1 + r->policy.dimensions, sizeof *drawn);
        bool made = action && row && memory && state && drawn;
        for (size_t at = 0; made && at + r->obs_bytes <= size[3]; at += r->obs_bytes) {
            bool begin = at / r->obs_bytes < begins_size && begins[at / r->obs_bytes];
            if (begin) memset(state, 0, r->policy.memory * sizeof *state);
            vd_widen_row(&r->model, data[2], row);
            vd_act(r, row, version, data[3] + at, &(acting){0.5, random, NULL, state, drawn}, memory, action);
            print_action(column, action);
            for (size_t k = 0; random && r->kept[LOG_PROB].stored && k <= r->kept[POLICY_ACTION].numbers; k++)
                printf("%.9g ", (double)drawn[k]);
            for (size_t k = 0; begins && k < r->policy.memory; k++) printf("%.9g ", (double)state[k]);
            printf("\n");
        }
        free(action);
        free(row);
        free(memory);
        free(state);
        free(drawn);
    }
    vd_free_run(r);
    free(begins);
    for (int k = 0; k < 4; k++) free(data[k]);
    return 0;
}
