/* Environments that number their steps, as tests/integration/counting_env.py has them: the observation is
 * (uid / 2^22, t / 2^23) of t steps, or the bytes of both as a picture, four of them stacked. The steps played are kept
 * in a mapped file for each uid, which a `kill -9` leaves as it is.
 *
 *     counting HOST PORT ID TALLY ENVS [KEYS]
 */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "vedette.h"

#define ENVS_MAX 16
#define STACK 4
#define NUMBERS (2 * sizeof(int64_t)) /* bytes of a picture */

typedef struct {
    int64_t uid, t;
    uint64_t *tally; /* steps played, and the process that played them */
    uint8_t stack[STACK * NUMBERS];
} counter;

static vedette *client;
static void interrupt(int number) { (void)number, vedette_interrupt(client); }

static bool open_tally(counter *c, const char *folder) {
    char path[1024];
    FILE *random = fopen("/dev/urandom", "rb");
    if (!random || fread(&c->uid, sizeof c->uid, 1, random) != 1) return false;
    fclose(random);
    c->uid &= (1 << 22) - 1;
    snprintf(path, sizeof path, "%s/%lld", folder, (long long)c->uid);
    int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0 || ftruncate(file, 16)) return false;
    c->tally = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return c->tally != MAP_FAILED;
}

static void show(counter *c, size_t frame) {
    memcpy(c->stack + frame * NUMBERS, &c->uid, sizeof c->uid);
    memcpy(c->stack + frame * NUMBERS + sizeof c->uid, &c->t, sizeof c->t);
}

/* The episode's first observation: its frames are all the same. */
static void reset(counter *c) {
    for (size_t k = 0; k < STACK; k++) show(c, k);
}

static const void *observe(const counter *c, size_t bytes, float numbers[2]) {
    if (bytes == sizeof c->stack) return c->stack;
    numbers[0] = (float)((double)c->uid / (1 << 22));
    numbers[1] = (float)((double)c->t / (1 << 23));
    return numbers;
}

static void step(counter *c) {
    c->t++;
    c->tally[1] = (uint64_t)getpid();
    c->tally[0] = (uint64_t)c->t;
    memmove(c->stack, c->stack + NUMBERS, (STACK - 1) * NUMBERS);
    show(c, STACK - 1);
}

static vedette_result play(vedette *v, unsigned k, counter *c) {
    int64_t action;
    float numbers[2];
    size_t bytes = vedette_obs_bytes(v);
    bool asks = c->t % 15; /* at times a person plays whom the policy is not asked for */
    vedette_result result = asks ? vedette_act(v, k, &action) : VEDETTE_OK;
    if (result != VEDETTE_OK) return result;
    action = 1; /* a person takes over now and then */
    if (c->t % 5 == 0 && (result = vedette_set_action(v, k, &action)) != VEDETTE_OK) return result;
    step(c);
    bool terminated = c->t % 7 == 0, truncated = c->t % 11 == 0;
    result = vedette_observe(v, k, (double)(c->t % 3), observe(c, bytes, numbers), terminated, truncated);
    if (result != VEDETTE_OK || !(terminated || truncated)) return result;
    reset(c);
    return vedette_begin(v, k, observe(c, bytes, numbers));
}

int main(int argc, char **argv) {
    counter counters[ENVS_MAX] = {0};
    float numbers[2];
    if (argc < 6) return 2;
    vedette_options options = {.host = argv[1], .port = atoi(argv[2]), .id = argv[3], .envs = (unsigned)atoi(argv[5])};
    if (argc > 6) options.keys = argv[6];
    if (options.envs < 1 || options.envs > ENVS_MAX) return 2;
    vedette *v = client = vedette_open(&options);
    if (!v) return 1;
    signal(SIGTERM, interrupt);
    vedette_result result = vedette_wait(v, 0);
    size_t bytes = result == VEDETTE_OK ? vedette_obs_bytes(v) : 0;
    if (result == VEDETTE_OK && bytes != sizeof numbers && bytes != sizeof counters->stack) return 2;
    for (unsigned k = 0; k < options.envs && result == VEDETTE_OK; k++) {
        if (!open_tally(counters + k, argv[4])) return 2;
        reset(counters + k);
        result = vedette_begin(v, k, observe(counters + k, bytes, numbers));
    }
    while (result == VEDETTE_OK) {
        for (unsigned k = 0; k < options.envs && result == VEDETTE_OK; k++) result = play(v, k, counters + k);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    if (result == VEDETTE_ERROR) fprintf(stderr, "counting: %s\n", vedette_error(v));
    return vedette_close(v, 10.0) ? 0 : 1;
}
