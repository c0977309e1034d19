/* Rows become batches, batches wait until they are settled, and chunks become models. No sockets and no clock. */
#ifndef VEDETTE_DELIVERY_H
#define VEDETTE_DELIVERY_H

#include "run.h"

#define PAYLOAD_MAX ((size_t)64 << 20)
#define UNSENT_MAX 4 /* batches that wait for credit: more would only grow older */

/* The window: window.c */

typedef struct {
    uint64_t seq, epoch, version, env_steps;
    size_t rows, size;
    double sent_at; /* below 0: it is to be sent (again) */
    uint8_t *payload;
} batch;

/* Numbered batches come first, in order. */
typedef struct {
    batch *held;
    size_t count, room;
    uint64_t sequenced, limit; /* the next number; numbers below it may be sent */
    uint64_t rows, bytes;      /* in it */
    uint64_t produced, dropped, settled, rejected; /* rows of this incarnation */
    uint64_t resent;                               /* batches */
} window;

bool vd_window_is_full(const window *w); /* or enough batches wait for credit */
/* Take a batch, payload and all; false: there is no room, and its rows count as dropped. */
bool vd_window_add(window *w, batch *b);
/* The next batch to send, which has a number then; NULL: there is none, or no credit. */
batch *vd_window_next(window *w, size_t *from);
uint64_t vd_window_base(const window *w);
/* Free the batches that an ack settles; their number, or -1: it settles one that was never sent. */
int vd_window_settle(window *w, uint64_t contiguous, const uint8_t *extras, size_t size);
void vd_window_resend(window *w, double sent_until);
void vd_window_drop_unsent(window *w);
void vd_window_clear(window *w); /* and begin another incarnation */

/* Rows: rows.c */

/* An environment's episode, and its unfinished rows. */
typedef struct {
    uint8_t *pending; /* ring of n_step */
    unsigned first, count;
    uint8_t *obs, *action;
    bool acting, chosen; /* an episode has begun; an action has been chosen */
    bool intervened;     /* it is not the policy's */
    bool restarted;      /* another run began: its unfinished rows are gone */
    bool begins;         /* an episode begins with `obs` */
    action_noise noise;
    float *memory;       /* what is remembered before `obs`, and behind it what is after it; NULL: nothing */
    size_t memory_size;  /* numbers of one of them */
    bool remembered;     /* what is after `obs` is known */
    float *drawn;        /* see `acting` */
    size_t drawn_size;
    uint32_t index;      /* among the client's environments */
    int64_t t;           /* its steps, counted from a number of this process's own */
    double total;
    uint64_t length;
    uint64_t judged; /* the evaluation that its episode is of; 0: none */
} environment;

/* The batch that is being filled: its columns, and the frames that its rows share. */
typedef struct {
    const run *run;
    size_t room, rows; /* of rows */
    uint8_t *columns;
    size_t *at; /* where each column begins */
    uint64_t epoch, version;
    uint8_t *frames;
    size_t frame_count, frame_room;
    uint64_t *hashes; /* of the frames */
    uint32_t *table;  /* place + 1 of a frame, by its hash; 2 frame_room long */
} staging;

/* envs: environments that fill it. */
bool vd_init_staging(staging *s, const run *r, size_t envs);
void vd_free_staging(staging *s);
/* Memory for a run's unfinished rows, of which there are none; an episode of the same run goes on. */
bool vd_init_environment(environment *e, const run *r);
/* Room for what the run's policy makes beside actions. What was remembered is gone where it was of another size. */
bool vd_fit_policy(environment *e, const run *r);
void vd_free_environment(environment *e);

/* Begin a row of the environment's observation and action, and count the reward into all of its rows. */
void vd_begin_row(environment *e, const run *r, uint64_t epoch, uint64_t version, double reward);
/* The oldest unfinished row becomes one of the batch, which has room for it; false: no memory. */
bool vd_finish_row(environment *e, staging *s, const void *next_obs, bool terminated, bool truncated);
bool vd_is_full(const staging *s);
/* The rows as a batch, whose payload is the caller's; false: no memory. */
bool vd_take_batch(staging *s, batch *b);

/* Models: model.c */

typedef struct {
    uint64_t epoch, version;
    uint8_t *row;  /* of the run's model schema; NULL where there is none */
    void *memory; /* that it lies in, to free */
} model;

typedef struct {
    bool known;
    uint64_t epoch, version;
} model_version;

/* The model that is being put together. */
typedef struct {
    uint64_t epoch, version, count, have;
    size_t total;
    uint32_t digest;
    uint8_t *body, *seen;
} assembly;

/* Take a chunk; true: the model is complete, and the caller's. `newest`: older ones are ignored. */
bool vd_take_chunk(assembly *a, const run *r, const mp_value *header, const uint8_t *chunk, size_t size,
                   const model_version *newest, model *complete);
void vd_clear_assembly(assembly *a);

#endif
