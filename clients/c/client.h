/* The client: what its two threads share, and what belongs to each. */
#ifndef VEDETTE_CLIENT_H
#define VEDETTE_CLIENT_H

#include <pthread.h>
#include <stdatomic.h>

#include "delivery.h"
#include "vedette.h"

/* Section 11 of the wire. */
#define SILENCE_S 3.0
#define JITTER_S 0.5
#define STALL_S 5.0
#define STUCK_S 30.0
#define DRAIN_S 10.0
#define REPORT_S 0.5
#define REPORT_UNHEARD_S 1.5
#ifndef FOLLOW_S
#define FOLLOW_S 60.0 /* with a learner of an older epoch alone, before it is followed */
#endif
#define MODEL_WAIT_S 5.0 /* for the first model, before the subscription is made again */

#define HEADER_MAX 4096
#define REPORT_MAX 4096
#define CHUNK_MAX (1 << 20)
#define RETURNS 100

typedef struct {
    const uint8_t *data;
    size_t size;
} frame;

/* What the newest ack asks for, and what came of it. */
typedef struct {
    uint64_t request;        /* 0: nothing */
    uint64_t epoch, version; /* at least; of the model that is played, once it has begun */
    bool begun;
    uint64_t started, episodes, cut;
    double mean, squares, least, most, length;
} evaluation;

struct vedette {
    /* Of the network's thread. */
    char host[256], id[65];
    int port;
    char server_key[41], public_key[41], secret_key[41];
    bool has_keys;
    void *context, *samples, *monitor, *control, *models;
    pthread_t thread;
    bool started;
    double open_at, remake_at, progress_at, models_at;
    bool up; /* the PUSH socket is connected */
    double connected_at, probe_at; /* by TCP; whoever answers may be asked again */
    unsigned refused; /* times in a row that a learner with keys broke the handshake off */
    uint64_t jitter;
    assembly partial;
    model_version newest;

    /* Under the mutex. */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    char error[512];
    bool over, leaving, stopping, gone; /* the run; closing; the thread is to end; the last report */
    run *run; /* the newest announced one */
    run *older; /* an earlier start of it that was announced since, while nothing of a later one comes; or NULL */
    double older_since;
    window window;
    uint64_t incarnation, epoch, learner, first_actor; /* of the last ack */
    bool known_learner, has_first_actor;
    bool resend;                 /* the next ack shows what is to be sent again */
    double acked_at, reported_at, unannounced_since;
    bool report_due, models_due; /* a report is to be sent; the models' socket to be made again */
    model arrived;               /* complete, not yet taken */
    uint64_t env_steps, episodes, acting_version, reconnects;
    double returns[RETURNS], report_return, report_length;
    double return_sum; /* of all episodes with a finite return, which return_count counts */
    uint64_t return_count;
    uint64_t report_episodes;
    bool evaluates;
    evaluation evaluation;

    /* Of the caller's thread. */
    double wait_s;
    size_t obs_bytes, action_bytes; /* that the caller's memory has; 0: not known yet */
    unsigned env_count;
    environment *envs;
    run *plays;
    model acts, judged; /* judged: of an evaluation */
    uint64_t seed, first_env; /* of the random numbers; index of environment 0 over the run */
    float *memory;
    staging staging;
    uint64_t steps_to_carry;

    atomic_bool interrupted; /* of whoever wants */
};

/* messages.c */

void vd_set_error(vedette *v, const char *format, ...);
void vd_on_control(vedette *v, const frame *frames, unsigned count, double now); /* under the mutex */
void vd_on_model(vedette *v, const frame *frames, unsigned count);
size_t vd_write_batch_header(const vedette *v, const batch *b, uint8_t *header);
size_t vd_write_report(vedette *v, uint8_t *header, uint8_t *payload, size_t *payload_size);

/* evaluation.c */

void vd_ask_evaluation(vedette *v, uint64_t request, uint64_t epoch, uint64_t version);
void vd_begin_judged(vedette *v, environment *e); /* an episode, which may be one of the evaluation */
bool vd_is_judged(const vedette *v, const environment *e);
/* Count a step; true: the episode is cut. */
bool vd_observe_judged(vedette *v, environment *e, double reward, bool ends);
void vd_put_evaluation(mp_writer *w, const vedette *v); /* one that has begun */
void vd_forget_judged(vedette *v);

/* link.c */

double vd_now(void);
void vd_read_keys(vedette *v, const char *folder);
void *vd_run_network(void *client); /* the thread */

/* vedette.c */

vedette *vd_new_client(const vedette_options *options);
void vd_free_client(vedette *v);

#endif
