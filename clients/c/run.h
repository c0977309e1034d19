/* A run message, checked and unpacked; and acting as its `policy` describes. */
#ifndef VEDETTE_RUN_H
#define VEDETTE_RUN_H

#include "msgpack.h"

enum { OBS, ACTION, REWARD, NEXT_OBS, TERMINATED, TRUNCATED, N_STEPS, ROW_COLUMNS };

typedef struct {
    char name[129], type[3];
    size_t width, count, bytes; /* of one number; numbers and bytes of a row */
    size_t offset;              /* in a payload of one row */
    bool bounded;
    int64_t low, high;
} run_column;

typedef struct {
    run_column *columns;
    unsigned count;
    size_t bytes; /* of a payload of one row */
    char hash[17];
} run_schema;

typedef enum { LINEAR, RELU, NORMALIZE, SAVE, ADD } layer_kind;

typedef struct {
    layer_kind kind;
    unsigned weight, bias; /* columns of the model */
    size_t in, out;
    float eps;
} run_layer;

#define LAYERS_MAX 64
typedef struct {
    char name[129];
    run_layer layers[LAYERS_MAX];
    unsigned count;
    size_t in, out;
} run_network;

typedef enum { NO_POLICY, VALUES, DUELING, QUANTILES, GAUSSIAN, DETERMINISTIC } policy_head;
typedef enum { LADDER, LINEAR_EPSILON, CONSTANT, SOFTMAX } exploration_kind;

#define NETWORKS_MAX 3
#define DIMENSIONS_MAX 256
typedef struct {
    policy_head head;
    size_t features;
    size_t classes;       /* of an observation that is one category; 0: numbers */
    int64_t first_class;
    double scale;         /* of the numbers */
    bool normalize;
    unsigned mean, deviation; /* columns of the model */
    float clip;
    run_network networks[NETWORKS_MAX];
    unsigned network_count;
    size_t outputs;
    unsigned dimensions;  /* of an action */
    size_t counts[DIMENSIONS_MAX];
    int64_t starts[DIMENSIONS_MAX];
    float low[DIMENSIONS_MAX], high[DIMENSIONS_MAX];
    size_t cosines, fractions;
    double log_std_min, log_std_max, noise;
    bool uniform_warmup;
    exploration_kind exploration;
    double epsilon_start, epsilon_final, epsilon_steps, epsilon_base, epsilon_alpha, temperature;
    char missing[128];    /* why there is none; "" otherwise */
} run_policy;

typedef struct {
    char id[65];
    uint64_t epoch, learner, seed;
    run_schema rows, model;
    unsigned row[ROW_COLUMNS]; /* columns of `rows` */
    size_t batch_rows;
    uint64_t batch_env_steps;
    double discount, reward_scale, reward_clip;
    unsigned n_step;
    run_policy policy;
    float *scratch;
    size_t width; /* of each of its parts */
} run;

/* Unpack; NULL, with the reason in `why`, where this client cannot take part. */
run *run_read(const mp_value *header, const mp_value *payload, char *why, size_t room);
void run_free(run *r);

/* 64-bit random numbers: splitmix64. */
uint64_t random_bits(uint64_t *state);
double random_unit(uint64_t *state); /* in [0, 1) */

/* Choose an action for an observation, by the numbers of a model's row.
 *
 * rank: of the environment, in (0, 1). state: of the random numbers; NULL: greedy. */
void policy_act(const run *r, const uint8_t *model, uint64_t version, const void *obs, double rank,
                uint64_t *state, void *action);

/* The exploration rank of an environment: a van der Corput sequence. */
double exploration_rank(uint64_t index);

#endif
