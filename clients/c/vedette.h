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

typedef struct vedette vedette;

typedef enum {
    VEDETTE_OK = 0,
    VEDETTE_END = 1,    /* the run is over, or vedette_interrupt was called: call vedette_close */
    VEDETTE_WAIT = 2,   /* nothing within the time given */
    VEDETTE_BEGIN = 3,  /* another run began, or an evaluation was given up or cut: reset this
                           environment and call vedette_begin */
    VEDETTE_ERROR = -1, /* vedette_error says why: call vedette_close */
} vedette_result;

typedef struct {
    const char *host;    /* of the learner */
    int port;            /* its first one; 0: 5555 */
    const char *id;      /* 1 to 64 of A-Z a-z 0-9 . _ -; no other manager may have it */
    const char *keys;    /* folder with key.secret.toml and learner.toml; NULL: no keys */
    unsigned envs;       /* environments; 0: 1 */
    size_t obs_bytes, action_bytes; /* of the caller's; a run of others is an error. 0: the first run's */
    bool evaluates;      /* play evaluations where the learner asks: some episodes are greedy, and send nothing */
    unsigned window;     /* batches held until they are settled; 0: 1024 */
    double wait_s;       /* the longest wait of act for a first model, and of observe for room in
                            the window; 0: for ever, negative: none */
} vedette_options;

typedef struct {
    uint64_t env_steps, episodes; /* since vedette_open */
    uint64_t produced, settled, rejected, dropped, resent; /* rows of this incarnation; batches */
    uint64_t epoch, version;      /* of the model that acts */
    uint64_t reconnects;          /* times that new sockets were made */
    double return_mean;           /* of the last episodes, at most 100 */
} vedette_stats;

/* Start a client. NULL only without memory or random numbers; all else shows up in vedette_error. */
vedette *vedette_open(const vedette_options *options);

/* Wait until there are a run and a model to act on; 0: for ever. */
vedette_result vedette_wait(vedette *v, double seconds);

/* Bytes of an observation and of an action: what the run's schema says. After vedette_wait. An
 * observation of several parts is one after another, without gaps, in the run's order. */
size_t vedette_obs_bytes(const vedette *v);
size_t vedette_action_bytes(const vedette *v);
/* Where the part `key` of an observation begins, and its bytes; SIZE_MAX: there is none. */
size_t vedette_obs_offset(const vedette *v, const char *key, size_t *bytes);

/* An episode of environment `env` begins with `obs`. Copied. Waits for a run. */
vedette_result vedette_begin(vedette *v, unsigned env, const void *obs);

/* Choose an exploring action with the newest model at hand; never waits for the network once there
 * is a model. */
vedette_result vedette_act(vedette *v, unsigned env, void *action);

/* The best action for an observation: no exploration, and nothing is sent. */
vedette_result vedette_greedy(vedette *v, const void *obs, void *action);

/* Take this action instead, for whoever chooses actions without the policy, and for persons who take over: the run's
 * rows say so if it keeps interventions. */
vedette_result vedette_set_action(vedette *v, unsigned env, const void *action);

/* The step's outcome: `next_obs` is the episode's last observation where it ends. The reward is the
 * environment's own: scaling, clipping and the sum over n steps happen here. Waits up to
 * `wait_s` while the learner gives no credit. VEDETTE_WAIT: the window is full, and a batch was
 * dropped and counted. */
vedette_result vedette_observe(vedette *v, unsigned env, double reward, const void *next_obs,
                               bool terminated, bool truncated);

/* The weights of an array of the newest model, for whoever acts by other means; NULL: no such
 * array. Valid until the next call of vedette_act or vedette_greedy. */
const float *vedette_array(const vedette *v, const char *name, size_t *count);

/* End what waits, now and from now on: it returns VEDETTE_END. For signal handlers and other threads too. */
void vedette_interrupt(vedette *v);

/* Send unfinished rows, wait up to `seconds` until all is settled, report, and free the client.
 * True: every row was settled. */
bool vedette_close(vedette *v, double seconds);

void vedette_get_stats(vedette *v, vedette_stats *stats);
/* "" while nothing is wrong. */
const char *vedette_error(const vedette *v);

#endif
