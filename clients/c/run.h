/* A run message, checked and unpacked: rows, model, and how to act. */
#ifndef VEDETTE_RUN_H
#define VEDETTE_RUN_H

#include "msgpack.h"

/* Schemas: schema.c */

typedef enum { PLAIN, PLACE, SHARED } column_role;

typedef struct {
    char name[129], type[3];
    column_role role;
    size_t width, count, bytes; /* of one number; numbers and bytes of a row, or of a shared entry */
    size_t offset;              /* in a payload of one row, of columns that are not shared */
    bool half;                  /* sent as float16; this is the column as float32 */
    size_t sent_offset;         /* in a payload as it is sent */
    uint64_t high;              /* its upper bound; 0: it has none, or one below 1 */
} run_column;

typedef struct {
    run_column *columns;
    unsigned count;
    size_t bytes;      /* of a payload of one row, without shared columns */
    size_t sent_bytes; /* of one as it is sent */
    char hash[17];
} run_schema;

#define WHY_MAX 256

bool vd_fail(char *why, size_t room, const char *format, ...);
/* Say why, in WHY_MAX bytes, unless that was said; false. */
bool vd_explain(char *why, const char *format, ...);

bool vd_read_schema(const mp_value *payload, const char *key, run_schema *schema, char *why, size_t room);
/* Have float16 columns as float32: of a model, which is expanded when it arrives. */
void vd_widen_schema(run_schema *schema);
/* All of them: the hash alone is what the learner says. */
bool vd_same_schema(const run_schema *a, const run_schema *b);
bool vd_find_column(const run_schema *schema, const char *name, unsigned *index);

/* Networks: network.c */

typedef enum { LINEAR, RELU, TANH, NORMALIZE, SCALE, SAVE, ADD, CONVOLUTION, CHANNELS_FIRST, GRU } layer_kind;

typedef struct {
    layer_kind kind;
    unsigned weight, bias;             /* columns of the model */
    unsigned state_weight, state_bias; /* likewise, of a core */
    size_t in, out;
    float eps;
    size_t stack, channels, height, width, kernel, stride; /* of images */
} layer;

typedef struct {
    layer *layers;
    unsigned count;
    size_t in, out, widest; /* the most numbers between two layers */
    size_t memory;          /* numbers that its first layer, a core, remembers; 0: that is none */
} network;

/* Numbers of a model: its schema, and a row of it. Every column begins at a multiple of 8 bytes. */
typedef struct {
    const run_schema *schema;
    const uint8_t *row;
} weights;

/* Find an array of `count` float32 numbers by its name; false: the model has none. */
bool vd_find_array(const mp_value *array, const run_schema *model, size_t count, unsigned *column, char *why);
bool vd_read_array(mp_bytes *items, const run_schema *model, size_t count, unsigned *column, char *why);
/* Read layers that take `in` numbers; false: not all are known and fit, and `why` says what. Free the network anyway.
 * may_remember: the first layer may be a core. */
bool vd_read_network(mp_value *layers, const run_schema *model, size_t in, bool may_remember, network *n, char *why);
void vd_free_network(network *n);

/* From x to y, which may be the same; with memory for 4 `widest` numbers.
 *
 * state: the `memory` numbers that a core remembers, before x and then after it; NULL where there is no core. */
void vd_apply_network(const network *n, weights w, const float *x, float *state, float *y, float *memory);
const float *vd_array(weights w, unsigned column);
/* A model's row, from its row as it is sent. */
void vd_widen_row(const run_schema *schema, const uint8_t *sent, uint8_t *row);

/* Numbers in IEEE 754 binary16: half.c */

float vd_float_of_half(uint16_t half);
uint16_t vd_half_of_float(float number); /* the nearest one; of two that are as near, the even one */

/* Policies: policy.c */

typedef enum { NO_POLICY, VALUES, DUELING, QUANTILES, RESCALED_QUANTILES, CATEGORIES, GAUSSIAN, DETERMINISTIC, NORMAL } policy_head;
typedef enum { LADDER, LINEAR_EPSILON, CONSTANT, SOFTMAX } exploration_kind;

/* One of an observation's arrays. */
typedef struct {
    char key[129]; /* "" or "/KEY", behind the "obs" of its column */
    char type;     /* '?', 'u', 'i' or 'f' */
    size_t width, count, bytes, offset;
    unsigned obs, next_obs; /* its columns; of shared frames the first only */
} obs_part;

typedef struct {
    unsigned part;
    size_t features;
    float scale;
    size_t classes, first; /* one-hot numbers, and where they are in `counts`; 0: numbers */
    bool normalized;
} policy_input;

typedef struct {
    size_t features;
    network encoder;
} policy_branch;

typedef struct {
    size_t *counts;
    int64_t *starts;
    size_t size, room;
} class_list;

#define NETWORKS_MAX 3
typedef struct {
    policy_head head;
    policy_input *inputs;
    unsigned input_count, branch_count;
    size_t features;          /* of all inputs */
    class_list input_classes, actions; /* actions of each dimension */
    bool normalize;
    unsigned mean, deviation; /* columns of the model */
    float clip;
    policy_branch *branches;
    network networks[NETWORKS_MAX];
    size_t memory; /* numbers that are remembered since an episode began; 0: none */
    size_t outputs, dimensions;
    float *low, *high;
    size_t cosines, fractions;
    double log_std_min, log_std_max, noise;
    unsigned log_stds; /* column of the model */
    double noise_exponent; /* 0: white noise */
    size_t noise_steps;    /* of a sequence of noise that is not white */
    bool uniform_warmup;
    uint64_t explore_from; /* the version from which exploration counts */
    exploration_kind exploration;
    double epsilon_start, epsilon_final, epsilon_steps, epsilon_base, epsilon_alpha, temperature;
    size_t widest;
    char missing[WHY_MAX]; /* why there is none; "" otherwise */
} policy;

struct run;
/* False: it cannot be acted by; `missing` says why, as far as that is known. */
bool vd_read_policy(const mp_value *map, struct run *r);
void vd_free_policy(policy *p);
/* Its values are means over quantile fractions. */
bool vd_has_quantiles(const policy *p);

/* Noise that is correlated over time: noise.c */

/* An environment's sequences, one for each dimension of the action. Begins with zeros. */
typedef struct {
    float *numbers; /* those of a step stand side by side */
    size_t left;    /* steps of it; 0: the next step begins others, as an episode does */
} action_noise;

/* Standard normal numbers for each dimension, of a policy with a `noise_exponent`; NULL: out of memory. */
const float *vd_draw_noise(const policy *p, action_noise *noise, uint64_t *random);
void vd_free_noise(action_noise *noise);

/* Acting: acting.c */

/* Number `k` of an array of `type` ('?', 'u', 'i' or 'f') as it is sent, of `width` bytes each. */
double vd_number_at(char type, size_t width, const void *data, size_t k);
bool vd_is_finite(char type, size_t width, const void *data, size_t count);

/* Numbers of working memory that it takes. */
size_t vd_acting_memory(const struct run *r);

/* How an environment acts, and what that leaves beside the action. */
typedef struct {
    double rank;        /* of the environment, in (0, 1) */
    uint64_t *random;   /* state of the random numbers; NULL: greedy */
    const float *noise; /* standard normal numbers for each dimension of a Box; NULL: independent ones are drawn */
    float *state;       /* what is remembered, before the observation and then after it; NULL: there is no memory */
    float *drawn;       /* 1 + `dimensions` numbers, of an action that is drawn by its probability: log p of it, and of
                           a Box the number of each dimension before it is moved and clipped; NULL: they are lost */
} acting;

/* Choose an action for an observation, by a model's row. */
void vd_act(const struct run *r, const uint8_t *model, uint64_t version, const void *obs, const acting *by,
            float *memory, void *action);

/* Bring what is remembered from before an observation to after it, and choose no action. */
void vd_remember(const struct run *r, const uint8_t *model, const void *obs, float *state, float *memory);

/* The exploration rank of an environment: a van der Corput sequence. */
double vd_exploration_rank(uint64_t index);

/* 64-bit random numbers: splitmix64. */
uint64_t vd_random_bits(uint64_t *state);
double vd_random_unit(uint64_t *state); /* in [0, 1) */
double vd_random_normal(uint64_t *state);

/* Runs: run.c */

/* Columns that acting fills beside the action, and numbers of a row: what was remembered before `obs`, and of an action
 * that was drawn by its probability what `acting` says. */
enum { MEMORY, LOG_PROB, POLICY_ACTION, KEPT };
typedef struct {
    bool stored; /* rows have it */
    unsigned column;
    size_t numbers;
} kept_column;

#define PARTS_MAX 64
typedef struct run {
    unsigned holders; /* under the client's mutex */
    char id[65];
    uint64_t epoch, learner, seed;
    run_schema rows, model;
    obs_part parts[PARTS_MAX];
    unsigned part_count;
    size_t obs_bytes, frame_bytes, stack; /* stack: frames of an observation; 0: it is sent whole */
    unsigned obs_places, next_places;
    unsigned action, reward, terminated, truncated, n_steps; /* columns of `rows` */
    unsigned intervened;                                     /* likewise, if there is one */
    bool marks_interventions;
    unsigned env, t, begins; /* likewise */
    bool has_keys;           /* rows are single steps, and say which of them follow one another */
    kept_column kept[KEPT];
    size_t run_length; /* steps that are played on one model, as far as they fit into a batch; 0: the newest is taken */
    size_t batch_rows;
    uint64_t batch_env_steps;
    double discount, reward_scale, reward_clip;
    unsigned n_step;
    uint64_t evaluated_episodes, evaluated_steps; /* of an evaluation; steps of an episode, 0: unlimited */
    policy policy;
} run;

/* Unpack; NULL, with the reason in `why`, where this client cannot take part. */
run *vd_read_run(const mp_value *header, const mp_value *payload, char *why, size_t room);
void vd_free_run(run *r);

/* What was made for one run can be inserted by the other's learner: a start with a new replay keeps the run, and may
 * change its columns. */
bool vd_takes_batches_of(const run *r, const run *other);

#endif
