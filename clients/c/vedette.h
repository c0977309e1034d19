/* A client of a Vedette learner: acts in environments of its own and sends what it saw.
 *
 *     vedette_options options = {.host = "127.0.0.1", .port = 5555, .id = "simulator-1", .envs = 1};
 *     vedette *v = vedette_open(&options);
 *     vedette_begin(v, 0, obs);
 *     while (vedette_act(v, 0, &action) == VEDETTE_OK) {
 *         ... step the environment with `action` ...
 *         if (vedette_observe(v, 0, reward, next_obs, terminated, truncated) != VEDETTE_OK) break;
 *         if (terminated || truncated) vedette_begin(v, 0, obs_after_the_reset);
 *     }
 *     vedette_close(v, 10.0);
 *
 * A thread of the client's own owns every socket. The functions below are for one thread at a time.
 * The wire is specified in protocol/README.md; POSIX threads and libzmq are all that is needed.
 */
#ifndef VEDETTE_H
#define VEDETTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The release of this header; vedette_version tells that of the library. */
#define VEDETTE_VERSION_MAJOR 0
#define VEDETTE_VERSION_MINOR 3
#define VEDETTE_VERSION_PATCH 0
#define VEDETTE_VERSION (VEDETTE_VERSION_MAJOR * 10000 + VEDETTE_VERSION_MINOR * 100 + VEDETTE_VERSION_PATCH)

/* What a shared library shows of itself. */
#if defined(__GNUC__)
#define VEDETTE_API __attribute__((visibility("default")))
#else
#define VEDETTE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct vedette vedette;

/* What a call led to. Each function below lists those that it returns. */
typedef enum {
    VEDETTE_OK = 0,
    VEDETTE_END = 1,    /* the run is over, or vedette_interrupt was called: call vedette_close */
    VEDETTE_WAIT = 2,   /* nothing within the time given */
    VEDETTE_BEGIN = 3,  /* another run began, or an evaluation was given up or cut: reset this
                           environment and call vedette_begin */
    VEDETTE_ERROR = -1, /* vedette_error says why: call vedette_close */
} vedette_result;

/* Set all of it to 0 first: `vedette_options options = {0};`, in C++ `{}`. Later releases append members, whose 0 is
 * what was before. */
typedef struct {
    const char *host;    /* of the learner; NULL: 127.0.0.1 */
    int port;            /* its first one; 0: 5555 */
    const char *id;      /* 1 to 64 of A-Z a-z 0-9 . _ -; no other manager may have it */
    const char *keys;    /* folder with key.secret.toml and learner.toml; NULL: no keys */
    unsigned envs;       /* environments; 0: 1 */
    size_t obs_bytes, action_bytes; /* of the caller's; a run of others is an error. 0: the first run's */
    bool evaluates;      /* play evaluations where the learner asks: some episodes are greedy, and send nothing */
    unsigned window;     /* batches held until they are settled; 0: 1024 */
    double wait_s;       /* the longest wait of begin for a run, of act and greedy for a first model, and of observe
                            for room in the window; 0: for ever, negative: none */
} vedette_options;

/* Later releases append members. */
typedef struct {
    uint64_t env_steps, episodes; /* since vedette_open */
    uint64_t produced, settled, rejected, dropped, resent; /* rows of this incarnation; batches */
    uint64_t epoch, version;      /* of the model that acts */
    uint64_t reconnects;          /* times that new sockets were made */
    double return_mean;           /* of the last episodes, at most 100 */
} vedette_stats;

/* VEDETTE_VERSION of the library. */
VEDETTE_API unsigned vedette_version(void);

/* Start a client. NULL only without memory or random numbers; all else shows up in vedette_error.
 * `size` is that of the caller's structure, so that programs and libraries of different releases work together: what an
 * older program does not know is at its default, and what is set and this library does not know is an error. */
VEDETTE_API vedette *vedette_open_sized(const vedette_options *options, size_t size);
static inline vedette *vedette_open(const vedette_options *options) {
    return vedette_open_sized(options, sizeof *options);
}

/* Wait until there are a run and a model to act on; 0: for ever, negative: not at all.
 * OK, WAIT (not within `seconds`), END, ERROR. */
VEDETTE_API vedette_result vedette_wait(vedette *v, double seconds);

/* Bytes of an observation and of an action: what the run's schema says; 0 before there is a run. An
 * observation of several parts is one after another, without gaps, in the run's order. */
VEDETTE_API size_t vedette_obs_bytes(const vedette *v);
VEDETTE_API size_t vedette_action_bytes(const vedette *v);
/* Where the part `key` of an observation begins, and its bytes; SIZE_MAX: there is none, or no run yet. */
VEDETTE_API size_t vedette_obs_offset(const vedette *v, const char *key, size_t *bytes);

/* An episode of environment `env` begins with `obs`. Copied.
 * OK; WAIT: there is no run within `wait_s`, so call it again; END;
 * ERROR, also where the episode before has not ended, there is no such environment, or a number is not finite. */
VEDETTE_API vedette_result vedette_begin(vedette *v, unsigned env, const void *obs);

/* Choose an exploring action with the newest model at hand; never waits for the network once there
 * is a model.
 * OK: `action` is written; only then; WAIT: there is no model within `wait_s`, so call it again; BEGIN; END;
 * ERROR, also before vedette_begin and where the run's policy cannot be acted by. */
VEDETTE_API vedette_result vedette_act(vedette *v, unsigned env, void *action);

/* The best action for an observation: no exploration, and nothing is sent.
 * OK: `action` is written; WAIT: there is no model within `wait_s`; END;
 * ERROR, also where the run's policy cannot be acted by, or has a memory. */
VEDETTE_API vedette_result vedette_greedy(vedette *v, const void *obs, void *action);

/* Numbers that the run's policy remembers since an episode began; 0: it has no memory, or there is no run yet.
 * vedette_begin, vedette_act and vedette_observe keep them by themselves, for each environment. */
VEDETTE_API size_t vedette_memory_size(const vedette *v);

/* vedette_greedy with a memory of the caller's own: its numbers are zeros where an episode begins, and after the call
 * those that the episode's next observation goes with. An error where `size` is not vedette_memory_size: another run
 * may remember more. */
VEDETTE_API vedette_result vedette_greedy_with_memory(vedette *v, const void *obs, float *memory, size_t size,
                                                      void *action);

/* Take this action instead, for whoever chooses actions without the policy, and for persons who take over: the run's
 * rows say so if it keeps interventions.
 * OK, BEGIN, ERROR (before vedette_begin; an action that is not finite, or none of the run's). */
VEDETTE_API vedette_result vedette_set_action(vedette *v, unsigned env, const void *action);

/* The step's outcome: `next_obs` is the episode's last observation where it ends. The reward is the
 * environment's own: scaling, clipping and the sum over n steps happen here. Waits up to
 * `wait_s` while the learner gives no credit.
 * OK; WAIT: the window is full, and a batch was dropped and counted: go on; BEGIN; END: the step is counted;
 * ERROR, also without an action before it, and for a reward or a number of `next_obs` that is not finite: the step is
 * not counted, so give another. */
VEDETTE_API vedette_result vedette_observe(vedette *v, unsigned env, double reward, const void *next_obs,
                                           bool terminated, bool truncated);

/* The weights of an array of the newest model, for whoever acts by other means; NULL: no such
 * array. Valid until the next call of vedette_act or vedette_greedy. */
VEDETTE_API const float *vedette_array(const vedette *v, const char *name, size_t *count);

/* End what waits, now and from now on: it returns VEDETTE_END. For signal handlers and other threads too. */
VEDETTE_API void vedette_interrupt(vedette *v);

/* Send unfinished rows, wait up to `seconds` until all is settled, report, and free the client.
 * True: every row was settled. False: some were not, there was an error, or `v` is NULL. */
VEDETTE_API bool vedette_close(vedette *v, double seconds);

/* As many bytes of the statistics as the caller's structure has; what this library does not know is 0. */
VEDETTE_API void vedette_get_stats_sized(vedette *v, vedette_stats *stats, size_t size);
static inline void vedette_get_stats(vedette *v, vedette_stats *stats) {
    vedette_get_stats_sized(v, stats, sizeof *stats);
}

/* "" while nothing is wrong. Valid until vedette_close. */
VEDETTE_API const char *vedette_error(const vedette *v);

#ifdef __cplusplus
}
#endif

#endif
