/* Gives a client whatever bytes a learner might send, and plays by what it makes of them.
 *
 * The input is a list of operations: a byte that names it, the sizes of its two frames (little-endian, 2 and 4 bytes),
 * and the frames. Built with libFuzzer, or with -DSTANDALONE and a driver of its own that mutates files:
 *
 *     fuzz_client RUNS SEED FILE...
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"

#define INCARNATION 7
#define PLAYED_MAX ((size_t)1 << 12) /* bytes and features: larger ones only take their time */
#define MODEL_MAX ((size_t)1 << 18)
#define STEPS_MAX 8
#define SLOW_WIDTH 256 /* of a network that takes longer than all the rest: it acts less */

enum { RUN, SIGNAL, MODEL, WEIGHTS, PLAY, SEND, OPERATIONS };

/* A complete model of these bytes, whose digest no mutation would get right. */
static void put_weights(vedette *v, frame bytes) {
    if (!v->run || v->run->model.bytes > MODEL_MAX || !bytes.size) return;
    uint8_t *memory = malloc(v->run->model.bytes + 8);
    if (!memory) abort();
    for (size_t k = 0; k < v->run->model.bytes; k++) memory[8 + k] = bytes.data[k % bytes.size];
    free(v->arrived.memory);
    v->arrived = (model){v->run->epoch, v->newest.version + 1, memory + 8, memory};
    v->newest = (model_version){true, v->arrived.epoch, v->arrived.version};
}

static void greedy(vedette *v, const uint8_t *obs, uint8_t *action) {
    size_t size = vedette_memory_size(v);
    float *memory = calloc(size + 1, sizeof *memory);
    if (!memory) abort();
    if (size) vedette_greedy_with_memory(v, obs, memory, size, action);
    else vedette_greedy(v, obs, action);
    free(memory);
}

static void play(vedette *v, frame bytes) {
    if (v->run && (v->run->obs_bytes > PLAYED_MAX || v->run->policy.widest > PLAYED_MAX)) return;
    if (v->run && v->run->rows.columns[v->run->action].bytes > PLAYED_MAX) return;
    vedette_wait(v, -1);
    size_t obs_bytes = vedette_obs_bytes(v), action_bytes = vedette_action_bytes(v);
    if (!obs_bytes || !bytes.size) return;
    uint8_t *obs = malloc(obs_bytes), *action = malloc(action_bytes);
    if (!obs || !action) abort();
    size_t steps = v->plays->policy.widest > SLOW_WIDTH ? 2 : STEPS_MAX;
    for (size_t step = 0; step < bytes.size && step < steps; step++) {
        for (size_t k = 0; k < obs_bytes; k++) obs[k] = bytes.data[(step + k) % bytes.size];
        bool ends = bytes.data[step] & 1;
        unsigned env = bytes.data[step] >> 7;
        if (!v->envs[env].acting && vedette_begin(v, env, obs) != VEDETTE_OK) break;
        if (!step) greedy(v, obs, action);
        bool asks = bytes.data[step] & 2 || v->plays->policy.head == NO_POLICY;
        if (asks && vedette_act(v, env, action) == VEDETTE_ERROR) break;
        if (!v->plays->kept[LOG_PROB].stored) vedette_set_action(v, env, action);
        if (vedette_observe(v, env, bytes.data[step], obs, ends, step % 3 == 0) == VEDETTE_ERROR) break;
    }
    vedette_stats stats;
    size_t size;
    vedette_get_stats(v, &stats);
    vedette_array(v, "normalizer.mean", &size);
    if (vedette_obs_offset(v, "left", &size) != SIZE_MAX && size > obs_bytes) abort();
    free(obs);
    free(action);
}

static void send(vedette *v) {
    uint8_t header[HEADER_MAX], payload[REPORT_MAX];
    size_t from = 0, size;
    batch *b;
    while (!v->resend && (b = vd_window_next(&v->window, &from))) {
        if (vd_write_batch_header(v, b, header) > HEADER_MAX) abort();
        b->sent_at = 0;
    }
    if (vd_write_report(v, header, payload, &size) > HEADER_MAX || size > REPORT_MAX) abort();
}

static void check(const vedette *v) {
    const window *w = &v->window;
    uint64_t rows = 0, bytes = 0;
    for (size_t k = 0; k < w->count; k++) {
        rows += w->held[k].rows;
        bytes += w->held[k].size;
    }
    if (rows != w->rows || bytes != w->bytes || w->count > w->room) abort();
    if (w->produced != w->rows + w->dropped + w->settled || w->sequenced > w->limit) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    vedette_options options = {.id = "c-1", .envs = 2, .window = 8, .wait_s = -1, .evaluates = true};
    vedette *v = vd_new_client(&options);
    if (!v) abort();
    v->jitter = v->seed = 1;
    v->incarnation = INCARNATION;
    while (size >= 7) {
        frame frames[3] = {{(const uint8_t *)"all", 3}, {0}, {0}};
        size_t header = data[1] | (size_t)data[2] << 8;
        size_t payload = data[3] | (size_t)data[4] << 8 | (size_t)data[5] << 16 | (size_t)data[6] << 24;
        unsigned operation = data[0] % OPERATIONS;
        data += 7;
        size -= 7;
        if (header > size) header = size;
        frames[1] = (frame){data, header};
        if (payload > size - header) payload = size - header;
        frames[2] = (frame){data + header, payload};
        data += header + payload;
        size -= header + payload;
        if (operation == RUN) vd_on_control(v, frames, 3, 1.0);
        else if (operation == SIGNAL) vd_on_control(v, frames, 2, 1.0);
        else if (operation == MODEL) vd_on_model(v, frames, 3);
        else if (operation == WEIGHTS) put_weights(v, frames[2]);
        else if (operation == PLAY) play(v, frames[2]);
        else send(v);
        v->incarnation = INCARNATION; /* that the acks name */
        check(v);
    }
    vedette_close(v, 0);
    return 0;
}

#ifdef STANDALONE

#define INPUT_MAX ((size_t)1 << 18)

typedef struct {
    uint8_t *data;
    size_t size;
} input;

static input read_input(const char *path) {
    input found = {malloc(INPUT_MAX), 0};
    FILE *stream = fopen(path, "rb");
    if (!stream || !found.data) exit(2);
    found.size = fread(found.data, 1, INPUT_MAX, stream);
    fclose(stream);
    return found;
}

/* Change, insert, remove, repeat or cut some bytes, or go on with another input. */
static size_t mutate(uint8_t *data, size_t size, const input *other, uint64_t *random) {
    static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xc0, 0xdc, 0xff};
    for (uint64_t left = 1 + vd_random_bits(random) % 6; left && size; left--) {
        size_t at = vd_random_bits(random) % size, length = 1 + vd_random_bits(random) % 8;
        if (length > size - at) length = size - at;
        switch (vd_random_bits(random) % 8) {
        case 0: data[at] ^= (uint8_t)(1u << vd_random_bits(random) % 8); break;
        case 1: data[at] = (uint8_t)vd_random_bits(random); break;
        case 2: data[at] = edges[vd_random_bits(random) % sizeof edges]; break;
        case 3: data[at] += (uint8_t)(vd_random_bits(random) % 9 - 4); break;
        case 4:
            memmove(data + at, data + at + length, size - at - length);
            size -= length;
            break;
        case 5:
            if (size + length > INPUT_MAX) break;
            memmove(data + at + length, data + at, size - at);
            size += length;
            break;
        case 6: size = left == 1 ? at : size; break;
        default:
            length = other->size < INPUT_MAX - at ? other->size : INPUT_MAX - at;
            if (left > 1) break;
            memcpy(data + at, other->data, length);
            size = at + length;
        }
    }
    return size;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    uint64_t runs = strtoull(argv[1], NULL, 10), random = strtoull(argv[2], NULL, 10);
    size_t count = (size_t)argc - 3;
    input *inputs = calloc(count, sizeof *inputs);
    uint8_t *data = malloc(INPUT_MAX);
    if (!inputs || !data) return 2;
    for (size_t k = 0; k < count; k++) {
        inputs[k] = read_input(argv[3 + k]);
        LLVMFuzzerTestOneInput(inputs[k].data, inputs[k].size);
    }
    for (uint64_t run = 0; run < runs; run++) {
        const input *from = inputs + vd_random_bits(&random) % count;
        memcpy(data, from->data, from->size);
        size_t size = mutate(data, from->size, inputs + vd_random_bits(&random) % count, &random);
        uint8_t *exact = malloc(size ? size : 1); /* a read behind its end is found */
        if (!exact) return 2;
        memcpy(exact, data, size);
        LLVMFuzzerTestOneInput(exact, size);
        free(exact);
    }
    for (size_t k = 0; k < count; k++) free(inputs[k].data);
    free(inputs);
    free(data);
    printf("%llu inputs\n", (unsigned long long)runs);
    return 0;
}

#endif
