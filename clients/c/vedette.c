#define _POSIX_C_SOURCE 200809L
#include "vedette.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "run.h"

/* Section 11 of the wire. */
#define SILENCE_S 3.0
#define JITTER_S 0.5
#define STALL_S 5.0
#define STUCK_S 30.0
#define DRAIN_S 10.0
#define UNSENT_MAX 4 /* batches that wait for credit */
#define REPORT_EVERY_S 0.5
#define MODEL_WAIT_S 5.0 /* for the first model, before the subscription is made again */
#define POLL_MS 5
#define HEADER_MAX 4096
#define RUN_MAX (1 << 20)
#define CHUNK_MAX (1 << 20)
#define PAYLOAD_MAX ((size_t)64 << 20)
#define COUNT_MAX ((uint64_t)1 << 62)
#define EXTRAS_MAX 128
#define RETURNS 100

/* A batch of the window: numbered ones come first, in order. */
typedef struct {
    uint64_t seq, epoch, version, env_steps;
    size_t rows, size;
    double sent_at; /* below 0: it is to be sent (again) */
    uint8_t *payload;
} batch;

/* The model that is being put together. */
typedef struct {
    uint64_t epoch, version, count, have;
    size_t total;
    uint32_t digest;
    uint8_t *body, *seen;
} assembly;

/* One of an environment's unfinished rows; behind it its obs and action. */
typedef struct {
    double reward, discount; /* so far, and of the next reward */
    unsigned steps;
    uint64_t epoch, version;
} pending;

typedef struct {
    uint8_t *pending; /* ring of n_step */
    unsigned first, count;
    uint8_t *obs, *action;
    bool acting, chosen; /* an episode has begun; an action has been chosen */
    bool restarted;      /* another run began: its unfinished rows are gone */
    double total;
    uint64_t length;
    double rank;
} environment;

struct vedette {
    /* Of the thread of the network, but for what the mutex guards. */
    char host[256], id[65];
    int port;
    char server_key[41], public_key[41], secret_key[41];
    bool has_keys;
    void *context, *samples, *monitor, *control, *models;
    pthread_t thread;
    bool started;
    double open_at, remake_at, report_at, progress_at, acked_at, models_at;
    bool up, resend, stopping;
    double unannounced_since;
    uint64_t jitter;
    assembly partial;

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    char error[256];
    bool over, leaving, finished; /* the run is over; closing; all was said */
    uint64_t incarnation, epoch, learner;
    bool known_learner;
    uint8_t *run_header, *run_payload;
    size_t run_header_size, run_payload_size;
    uint64_t generation; /* of the run message */
    char run_id[65], schema_hash[17], model_hash[17];
    uint64_t run_epoch, run_learner;
    size_t model_bytes;
    run *run; /* the newest announced one; only the network's thread changes it */
    batch *window;
    size_t batches, window_max;
    uint64_t sequenced, limit, first_actor, rows_held, bytes_held, rejected, resent, produced, dropped, settled;
    bool has_first_actor;
    uint8_t *new_model; /* complete, not yet taken */
    uint64_t new_epoch, new_version;
    bool has_model; /* of this run */
    uint64_t newest_epoch, newest_version;
    uint64_t env_steps, episodes, acting_version, reconnects;
    double returns[RETURNS], report_return, report_length;
    uint64_t report_episodes;

    /* Of the caller's thread. */
    double wait_s;
    unsigned env_count;
    environment *envs;
    uint64_t taken; /* the generation it plays */
    run *plays;
    uint8_t *model;
    uint64_t model_epoch, model_version, seed;
    uint8_t *staging; /* batch_rows of every column */
    size_t staged;
    uint64_t staged_epoch, staged_version, steps_to_carry;
};

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void set_error(vedette *v, const char *format, ...) {
    va_list arguments;
    if (*v->error) return; /* the first one counts */
    va_start(arguments, format);
    vsnprintf(v->error, sizeof v->error, format, arguments);
    va_end(arguments);
    pthread_cond_broadcast(&v->changed);
}

/* The window. All of it under the mutex. */

static void forget(vedette *v, size_t index) {
    batch *b = v->window + index;
    v->rows_held -= b->rows;
    v->bytes_held -= b->size;
    free(b->payload);
}

/* Free the batches that an ack settles; -1: it settles one that was never sent. */
static int settle(vedette *v, uint64_t contiguous, const mp_value *extras) {
    uint64_t beyond = contiguous;
    size_t kept = 0;
    for (size_t i = 0; i < 8 * extras->size; i++)
        if (extras->data[i / 8] >> i % 8 & 1) beyond = contiguous + i + 1;
    if (beyond > v->sequenced) return -1;
    for (size_t k = 0; k < v->batches; k++) {
        batch *b = v->window + k;
        bool done = b->seq < v->sequenced && b->seq < contiguous;
        if (b->seq < v->sequenced && b->seq >= contiguous && b->seq - contiguous < 8 * extras->size) {
            size_t bit = (size_t)(b->seq - contiguous);
            done = extras->data[bit / 8] >> bit % 8 & 1;
        }
        if (done) {
            v->settled += b->rows;
            forget(v, k);
        } else {
            v->window[kept++] = *b;
        }
    }
    int freed = kept != v->batches;
    v->batches = kept;
    return freed;
}

static bool numbered(const vedette *v, size_t k) { return v->window[k].seq < v->sequenced; }

/* Enough wait for credit: more would only grow older. */
static bool hoards(const vedette *v) {
    return v->batches >= UNSENT_MAX && !numbered(v, v->batches - UNSENT_MAX);
}

static void resend_all(vedette *v, double sent_until) {
    for (size_t k = 0; k < v->batches && numbered(v, k); k++)
        if (v->window[k].sent_at >= 0 && v->window[k].sent_at <= sent_until) {
            v->window[k].sent_at = -1;
            v->resent++;
        }
}

static void drop_all(vedette *v, bool also_sent) {
    size_t kept = 0;
    for (size_t k = 0; k < v->batches; k++) {
        if (also_sent || !numbered(v, k)) {
            if (!also_sent) v->dropped += v->window[k].rows;
            forget(v, k);
        } else {
            v->window[kept++] = v->window[k];
        }
    }
    v->batches = kept;
}

/* Sending */

static bool send_two(vedette *v, const void *header, size_t header_size, const void *payload, size_t size) {
    if (zmq_send(v->samples, header, header_size, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0) return false;
    return zmq_send(v->samples, payload, size, ZMQ_DONTWAIT) >= 0;
}

static void put_header(mp_writer *w, unsigned pairs, const char *kind, const vedette *v) {
    mp_put_map(w, pairs);
    mp_put_text(w, "v");
    mp_put_uint(w, 2);
    mp_put_text(w, "k");
    mp_put_text(w, kind);
    mp_put_text(w, "manager");
    mp_put_text(w, v->id);
    mp_put_text(w, "incarnation");
    mp_put_uint(w, v->incarnation);
}

static void put_count(mp_writer *w, const char *key, uint64_t number) {
    mp_put_text(w, key);
    mp_put_uint(w, number);
}

static uint64_t base_of(const vedette *v) {
    return v->batches && numbered(v, 0) ? v->window[0].seq : v->sequenced;
}

static bool send_batch(vedette *v, const batch *b) {
    uint8_t header[HEADER_MAX];
    mp_writer w = {header, 0, sizeof header, false};
    put_header(&w, 13, "batch", v);
    mp_put_text(&w, "run");
    mp_put_text(&w, v->run_id);
    put_count(&w, "seq", b->seq);
    put_count(&w, "base", base_of(v));
    put_count(&w, "actor", 0);
    put_count(&w, "epoch", b->epoch);
    put_count(&w, "version", b->version);
    put_count(&w, "env_steps", b->env_steps);
    mp_put_text(&w, "schema");
    mp_put_text(&w, v->schema_hash);
    put_count(&w, "rows", b->rows);
    return send_two(v, header, w.size, b->payload, b->size);
}

/* First those to send again, in order; then new ones below the limit, which get their numbers. */
static void send_batches(vedette *v, double now) {
    if (!v->up || v->resend || !v->samples) return;
    for (size_t k = 0; k < v->batches; k++) {
        batch *b = v->window + k;
        if (!numbered(v, k)) {
            if (v->sequenced >= v->limit) return;
            v->sequenced++; /* its number was set when it was added */
        } else if (b->sent_at >= 0) {
            continue;
        }
        b->sent_at = send_batch(v, b) ? now : -1;
        if (b->sent_at < 0) return;
    }
}

static void put_actor(mp_writer *w, vedette *v) {
    mp_put_list(w, 1);
    mp_put_map(w, v->report_episodes ? 8 : 6);
    put_count(w, "id", 0);
    mp_put_text(w, "alive");
    mp_put_bool(w, !v->leaving);
    put_count(w, "restarts", 0);
    put_count(w, "env_steps", v->env_steps);
    put_count(w, "episodes", v->episodes);
    put_count(w, "version", v->acting_version);
    if (v->report_episodes) {
        mp_put_text(w, "return_mean");
        mp_put_real(w, v->report_return / (double)v->report_episodes);
        mp_put_text(w, "length_mean");
        mp_put_real(w, v->report_length / (double)v->report_episodes);
    }
}

static bool send_report(vedette *v, double now) {
    uint8_t header[HEADER_MAX], payload[4096];
    char host[128] = "";
    const char *state = v->finished ? "gone" : v->leaving || v->over ? "draining" : "running";
    mp_writer h = {header, 0, sizeof header, false}, p = {payload, 0, sizeof payload, false};
    v->report_at = now;
    if (!v->up || !v->samples) return false;
    gethostname(host, sizeof host - 1);
    put_header(&h, 4, "report", v);
    mp_put_map(&p, 12);
    mp_put_text(&p, "host");
    mp_put_text(&p, host);
    mp_put_text(&p, "state");
    mp_put_text(&p, state);
    mp_put_text(&p, "run");
    mp_put_text(&p, v->run_id);
    put_count(&p, "produced", v->produced);
    put_count(&p, "dropped", v->dropped);
    put_count(&p, "window_batches", v->batches);
    put_count(&p, "window_rows", v->rows_held);
    put_count(&p, "window_bytes", v->bytes_held);
    put_count(&p, "sequenced", v->sequenced);
    put_count(&p, "base", base_of(v));
    put_count(&p, "limit", v->limit);
    mp_put_text(&p, "actors");
    put_actor(&p, v);
    if (!send_two(v, header, h.size, payload, p.size)) return false;
    v->report_episodes = 0;
    v->report_return = v->report_length = 0;
    return true;
}

/* Sockets */

static void set_int(void *socket, int option, int value) { zmq_setsockopt(socket, option, &value, sizeof value); }

static void *open_socket(vedette *v, int kind, int offset, int64_t largest, int kernel_bytes) {
    char endpoint[300];
    void *socket = zmq_socket(v->context, kind);
    if (!socket) return NULL;
    set_int(socket, ZMQ_LINGER, 0);
    set_int(socket, ZMQ_SNDHWM, 4096);
    set_int(socket, ZMQ_RCVHWM, 8192);
    zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &largest, sizeof largest);
    set_int(socket, ZMQ_HANDSHAKE_IVL, 3000);
    set_int(socket, ZMQ_CONNECT_TIMEOUT, 1500);
    set_int(socket, ZMQ_RECONNECT_IVL, 50 + (int)(random_bits(&v->jitter) % 450));
    set_int(socket, ZMQ_RECONNECT_IVL_MAX, 2000);
    set_int(socket, ZMQ_TCP_KEEPALIVE, 1);
    set_int(socket, ZMQ_TCP_KEEPALIVE_IDLE, 5);
    set_int(socket, ZMQ_TCP_KEEPALIVE_INTVL, 5);
    set_int(socket, ZMQ_TCP_KEEPALIVE_CNT, 3);
    set_int(socket, ZMQ_TCP_MAXRT, 20000);
    set_int(socket, ZMQ_IPV6, strspn(v->host, "0123456789.") != strlen(v->host));
    if (kernel_bytes) {
        set_int(socket, ZMQ_SNDBUF, kernel_bytes);
        set_int(socket, ZMQ_RCVBUF, kernel_bytes);
    }
    if (kind == ZMQ_PUSH) set_int(socket, ZMQ_IMMEDIATE, 1);
    if (kind == ZMQ_SUB) {
        char topic[80];
        snprintf(topic, sizeof topic, "m/%s/", v->id);
        zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "all", 3);
        zmq_setsockopt(socket, ZMQ_SUBSCRIBE, topic, strlen(topic));
    }
    if (v->has_keys && (zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, v->server_key, 41) ||
                        zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, v->public_key, 41) ||
                        zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, v->secret_key, 41))) {
        set_error(v, "libzmq does not take the keys: %s", zmq_strerror(errno));
    }
    if (kind == ZMQ_PUSH) {
        char name[64];
        snprintf(name, sizeof name, "inproc://monitor-%llu", (unsigned long long)random_bits(&v->jitter));
        zmq_socket_monitor(socket, name, ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH);
        v->monitor = zmq_socket(v->context, ZMQ_PAIR);
        if (v->monitor) {
            set_int(v->monitor, ZMQ_LINGER, 0);
            zmq_connect(v->monitor, name);
        }
    }
    snprintf(endpoint, sizeof endpoint, strchr(v->host, ':') ? "tcp://[%s]:%d" : "tcp://%s:%d", v->host, v->port + offset);
    if (zmq_connect(socket, endpoint)) set_error(v, "cannot connect to %s: %s", endpoint, zmq_strerror(errno));
    return socket;
}

static void close_socket(void **socket, int linger_ms) {
    if (!*socket) return;
    set_int(*socket, ZMQ_LINGER, linger_ms);
    zmq_close(*socket);
    *socket = NULL;
}

static void close_sockets(vedette *v, int linger_ms) {
    if (v->samples) zmq_socket_monitor(v->samples, NULL, 0);
    close_socket(&v->monitor, 0);
    close_socket(&v->models, 0);
    close_socket(&v->control, 0);
    close_socket(&v->samples, linger_ms);
    v->up = false;
}

static void open_models(vedette *v, double now) {
    close_socket(&v->models, 0);
    v->models = open_socket(v, ZMQ_SUB, 2, CHUNK_MAX + HEADER_MAX, 4 << 20);
    v->models_at = now;
}

static void open_sockets(vedette *v, double now) {
    v->samples = open_socket(v, ZMQ_PUSH, 0, HEADER_MAX, 1 << 20);
    v->control = open_socket(v, ZMQ_SUB, 1, (16 << 20) + HEADER_MAX, 0);
    if (v->run) open_models(v, now);
    if (!v->samples || !v->control) set_error(v, "no sockets: %s", zmq_strerror(errno));
    v->up = v->resend = true;
}

/* New sockets, the old ones being of no use. */
static void remake(vedette *v, double now) {
    double delay = JITTER_S * random_unit(&v->jitter);
    close_sockets(v, 0);
    v->open_at = now + delay;
    v->remake_at = now + delay + SILENCE_S;
    v->unannounced_since = -1;
    v->progress_at = now;
    v->reconnects++;
}

/* Messages of the learner */

static void clear_assembly(assembly *a) {
    free(a->body);
    free(a->seen);
    memset(a, 0, sizeof *a);
}

static void forget_models(vedette *v) {
    free(v->new_model);
    v->new_model = NULL;
    v->has_model = false;
}

static void forget_run(vedette *v) {
    drop_all(v, true);
    v->sequenced = v->limit = v->rejected = v->settled = v->produced = v->dropped = v->resent = 0;
    v->known_learner = v->has_first_actor = false;
    v->incarnation = random_bits(&v->jitter);
}

static bool keep_copy(uint8_t **copy, size_t *size, const void *data, size_t bytes) {
    uint8_t *made = malloc(bytes ? bytes : 1);
    if (!made) return false;
    memcpy(made, data, bytes);
    free(*copy);
    *copy = made;
    *size = bytes;
    return true;
}

static void on_run(vedette *v, const mp_value *header, zmq_msg_t *frames, double now) {
    mp_value payload;
    char why[200] = "";
    if (zmq_msg_size(frames + 2) > RUN_MAX) return;
    if (!mp_read_message(zmq_msg_data(frames + 2), zmq_msg_size(frames + 2), &payload)) return;
    run *r = run_read(header, &payload, why, sizeof why);
    if (!r) {
        set_error(v, "%s", why);
        return;
    }
    bool same = v->run && !strcmp(r->id, v->run_id);
    if (v->leaving || (same && (r->epoch < v->run_epoch || (r->epoch == v->run_epoch && r->learner == v->run_learner)))) {
        run_free(r);
        return;
    }
    if (same && strcmp(r->rows.hash, v->schema_hash)) {
        set_error(v, "the run's schema is another one than before");
        run_free(r);
        return;
    }
    if (!keep_copy(&v->run_header, &v->run_header_size, zmq_msg_data(frames + 1), zmq_msg_size(frames + 1)) ||
        !keep_copy(&v->run_payload, &v->run_payload_size, zmq_msg_data(frames + 2), zmq_msg_size(frames + 2))) {
        set_error(v, "out of memory");
        run_free(r);
        return;
    }
    if (!same) forget_run(v);
    if (!same || strcmp(r->model.hash, v->model_hash)) forget_models(v);
    clear_assembly(&v->partial);
    run_free(v->run);
    v->run = r;
    snprintf(v->run_id, sizeof v->run_id, "%s", r->id);
    memcpy(v->schema_hash, r->rows.hash, sizeof v->schema_hash);
    memcpy(v->model_hash, r->model.hash, sizeof v->model_hash);
    v->run_epoch = r->epoch;
    v->run_learner = r->learner;
    v->model_bytes = r->model.bytes;
    v->generation++;
    open_models(v, now);
    send_report(v, now);
    pthread_cond_broadcast(&v->changed);
}

static void on_ack(vedette *v, const mp_value *header, double now) {
    char run_id[65], manager[65];
    uint64_t epoch, learner, incarnation, contiguous, limit, first, rejected;
    mp_value extras;
    if (!mp_get_text(header, "run", run_id, sizeof run_id) || !mp_get_text(header, "manager", manager, sizeof manager) ||
        !mp_get_uint(header, "epoch", INT32_MAX, &epoch) || !mp_get_uint(header, "learner", UINT64_MAX, &learner) ||
        !mp_get_uint(header, "incarnation", UINT64_MAX, &incarnation) ||
        !mp_get_uint(header, "contiguous", COUNT_MAX, &contiguous) || !mp_get_uint(header, "limit", COUNT_MAX, &limit) ||
        !mp_get_uint(header, "first_actor", INT32_MAX, &first) ||
        !mp_get_uint(header, "rejected_rows", COUNT_MAX, &rejected) ||
        !mp_get_typed(header, "extras", MP_BINARY, &extras) || extras.size > EXTRAS_MAX || (extras.size && extras.data[0] & 1))
        return;
    bool ours = v->run && !strcmp(run_id, v->run_id);
    if (ours && (epoch < v->run_epoch || (epoch == v->run_epoch && learner == v->run_learner))) v->unannounced_since = -1;
    else if (v->unannounced_since < 0) v->unannounced_since = now;
    if (!ours || strcmp(manager, v->id) || incarnation != v->incarnation) return;
    if (v->known_learner && epoch < v->epoch) return;
    int freed = settle(v, contiguous, &extras);
    if (freed < 0) return;
    v->acked_at = now;
    if (limit > v->limit) v->limit = limit;
    if (rejected > v->rejected) v->rejected = rejected;
    v->first_actor = first;
    v->has_first_actor = true;
    mp_value reason;
    if (freed || !v->batches || (mp_get_typed(header, "reason", MP_TEXT, &reason) && reason.size)) v->progress_at = now;
    if (v->resend || (v->known_learner && (epoch != v->epoch || learner != v->learner))) resend_all(v, INFINITY);
    v->resend = false;
    v->known_learner = true;
    v->epoch = epoch;
    v->learner = learner;
    send_batches(v, now);
    pthread_cond_broadcast(&v->changed);
}

static void on_stop(vedette *v, const mp_value *header, double now) {
    char run_id[65];
    bool final;
    if (!mp_get_text(header, "run", run_id, sizeof run_id) || !mp_get_bool(header, "final", &final) || !final) return;
    if (v->run && strcmp(run_id, v->run_id) && now - v->acked_at < SILENCE_S) return;
    v->over = true;
    pthread_cond_broadcast(&v->changed);
}

static void on_refusal(vedette *v, const mp_value *header) {
    char manager[65], code[65] = "", reason[201] = "";
    uint64_t incarnation;
    if (!mp_get_text(header, "manager", manager, sizeof manager) || strcmp(manager, v->id)) return;
    if (!mp_get_uint(header, "incarnation", UINT64_MAX, &incarnation) || incarnation != v->incarnation) return;
    mp_get_text(header, "code", code, sizeof code);
    mp_get_text(header, "reason", reason, sizeof reason);
    set_error(v, "refused (%s): %s", code, reason);
}

static void on_control(vedette *v, zmq_msg_t *frames, unsigned count, double now) {
    mp_value header, kind;
    uint64_t version;
    if (count < 2 || zmq_msg_size(frames + 1) > HEADER_MAX) return;
    if (!mp_read_message(zmq_msg_data(frames + 1), zmq_msg_size(frames + 1), &header)) return;
    if (!mp_get_uint(&header, "v", UINT64_MAX, &version) || !mp_get_typed(&header, "k", MP_TEXT, &kind)) return;
    if (version != 2) {
        set_error(v, "the learner speaks version %llu of the protocol, this client version 2", (unsigned long long)version);
        return;
    }
    v->remake_at = now + SILENCE_S;
    if (mp_is(&kind, "run") && count == 3) on_run(v, &header, frames, now);
    else if (mp_is(&kind, "ack") && count == 2) on_ack(v, &header, now);
    else if (mp_is(&kind, "stop") && count == 2) on_stop(v, &header, now);
    else if (mp_is(&kind, "refusal") && count == 2) on_refusal(v, &header);
}

/* Models */

static uint32_t crc32_of(const uint8_t *data, size_t size) {
    static uint32_t table[256];
    uint32_t crc = 0xffffffffu;
    if (!table[1])
        for (uint32_t k = 0; k < 256; k++) {
            uint32_t c = k;
            for (int bit = 0; bit < 8; bit++) c = c & 1 ? 0xedb88320u ^ c >> 1 : c >> 1;
            table[k] = c;
        }
    for (size_t k = 0; k < size; k++) crc = table[(crc ^ data[k]) & 255] ^ crc >> 8;
    return ~crc;
}

static uint64_t little_endian(const uint8_t *data) {
    uint64_t number = 0;
    for (unsigned k = 8; k--;) number = number << 8 | data[k];
    return number;
}

static bool floats_finite(const run_schema *model, const uint8_t *row) {
    for (unsigned c = 0; c < model->count; c++) {
        const run_column *column = model->columns + c;
        const uint8_t *at = row + column->offset;
        float f;
        if (strcmp(column->type, "f4")) continue;
        for (size_t k = 0; k < column->count; k++) {
            memcpy(&f, at + 4 * k, 4);
            if (!isfinite(f)) return false;
        }
    }
    return true;
}

static void complete_model(vedette *v) {
    assembly *a = &v->partial;
    uint8_t *row = a->body;
    if (crc32_of(a->body, a->total) == a->digest && little_endian(a->body) == a->version &&
        floats_finite(&v->run->model, a->body + 8)) {
        pthread_mutex_lock(&v->mutex);
        free(v->new_model);
        v->new_model = row;
        a->body = NULL;
        v->new_epoch = v->newest_epoch = a->epoch;
        v->new_version = v->newest_version = a->version;
        v->has_model = true;
        pthread_cond_broadcast(&v->changed);
        pthread_mutex_unlock(&v->mutex);
    }
    clear_assembly(a);
}

static bool begin_assembly(vedette *v, uint64_t epoch, uint64_t version, uint64_t total, uint64_t count, uint64_t digest) {
    assembly *a = &v->partial;
    clear_assembly(a);
    a->body = malloc((size_t)total);
    a->seen = calloc((size_t)count, 1);
    a->epoch = epoch;
    a->version = version;
    a->total = (size_t)total;
    a->count = count;
    a->digest = (uint32_t)digest;
    if (a->body && a->seen) return true;
    clear_assembly(a);
    return false;
}

static void on_model(vedette *v, zmq_msg_t *frames, unsigned parts) {
    mp_value header, spec, kind, digest;
    uint64_t version, epoch, total, count, index, wire;
    assembly *a = &v->partial;
    char run_id[65];
    if (parts != 3 || !v->run || zmq_msg_size(frames + 1) > HEADER_MAX) return;
    if (!mp_read_message(zmq_msg_data(frames + 1), zmq_msg_size(frames + 1), &header)) return;
    if (!mp_get_uint(&header, "v", 2, &wire) || wire != 2 || !mp_get(&header, "k", &kind) || !mp_is(&kind, "model")) return;
    if (!mp_get_text(&header, "run", run_id, sizeof run_id) || strcmp(run_id, v->run_id)) return;
    if (!mp_get(&header, "spec", &spec) || !mp_is(&spec, v->model_hash)) return;
    if (!mp_get_uint(&header, "epoch", INT32_MAX, &epoch) || !mp_get_uint(&header, "version", COUNT_MAX, &version) ||
        !mp_get_uint(&header, "total_bytes", UINT32_MAX, &total) || total != v->model_bytes + 8 ||
        !mp_get_uint(&header, "count", (total + 65535) / 65536, &count) || !count ||
        !mp_get_uint(&header, "index", count - 1, &index) ||
        !mp_get_typed(&header, "digest", MP_BINARY, &digest) || digest.size != 8)
        return;
    uint64_t chunk = (total + count - 1) / count, from = index * chunk;
    uint64_t until = from + chunk < total ? from + chunk : total;
    if (from >= until || zmq_msg_size(frames + 2) != until - from || until - from > CHUNK_MAX) return;
    if (v->has_model && (epoch < v->newest_epoch || (epoch == v->newest_epoch && version <= v->newest_version))) return;
    bool newer = epoch > a->epoch || (epoch == a->epoch && version > a->version);
    bool same = a->body && epoch == a->epoch && version == a->version;
    uint64_t sum = little_endian(digest.data);
    if (a->body && !same && !newer) return;
    if (!same || a->total != total || a->count != count || a->digest != sum) {
        if (sum > UINT32_MAX || !begin_assembly(v, epoch, version, total, count, sum)) return;
    }
    if (a->seen[index]) return;
    memcpy(a->body + from, zmq_msg_data(frames + 2), (size_t)(until - from));
    a->seen[index] = 1;
    if (++a->have == a->count) complete_model(v);
}

/* The thread of the network */

#define FRAMES 4
static unsigned receive(void *socket, zmq_msg_t *frames) {
    unsigned count = 0;
    int more = 1;
    while (more) {
        zmq_msg_t extra, *frame = count < FRAMES ? frames + count : &extra;
        zmq_msg_init(frame);
        if (zmq_msg_recv(frame, socket, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(frame);
            break;
        }
        more = zmq_msg_more(frame);
        if (count < FRAMES) count++;
        else zmq_msg_close(frame);
    }
    return count;
}

static void read_monitor(vedette *v, double now) {
    zmq_msg_t frames[FRAMES];
    unsigned count;
    while (v->monitor && (count = receive(v->monitor, frames))) {
        uint16_t event = 0;
        uint32_t value = 0;
        if (zmq_msg_size(frames) >= 6) {
            memcpy(&event, zmq_msg_data(frames), 2);
            memcpy(&value, (uint8_t *)zmq_msg_data(frames) + 2, 4);
        }
        for (unsigned k = 0; k < count; k++) zmq_msg_close(frames + k);
        if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
            v->up = v->resend = true;
            send_report(v, now);
        } else if (event == ZMQ_EVENT_DISCONNECTED) {
            v->up = false;
        } else if (event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH && value == 400) {
            set_error(v, "the learner at %s:%d refused this key", v->host, v->port);
        }
    }
}

static void read_socket(vedette *v, void **socket, double now) {
    zmq_msg_t frames[FRAMES];
    unsigned count;
    for (int turn = 0; turn < 1024 && *socket && (count = receive(*socket, frames)); turn++) {
        if (socket == &v->control) on_control(v, frames, count, now);
        else on_model(v, frames, count);
        for (unsigned k = 0; k < count; k++) zmq_msg_close(frames + k);
    }
}

static void tick(vedette *v, double now) {
    bool unannounced = v->unannounced_since >= 0 && now - v->unannounced_since > STUCK_S;
    bool stuck = v->batches && now - v->progress_at > STUCK_S && now < v->remake_at;
    if (!v->control) {
        if (now >= v->open_at) open_sockets(v, now);
    } else if (now >= v->remake_at || unannounced || stuck) {
        remake(v, now);
    } else if (v->run && !v->has_model && now - v->models_at > MODEL_WAIT_S) {
        open_models(v, now);
    }
    if (v->up && now - v->acked_at < STALL_S) resend_all(v, v->acked_at - STALL_S);
    bool waited = hoards(v);
    send_batches(v, now);
    if (waited && !hoards(v)) pthread_cond_broadcast(&v->changed);
    if (now >= v->report_at + REPORT_EVERY_S) send_report(v, now);
}

static void *network(void *argument) {
    vedette *v = argument;
    bool stopping = false;
    while (!stopping) {
        zmq_pollitem_t items[] = {{v->control, 0, ZMQ_POLLIN, 0}, {v->monitor, 0, ZMQ_POLLIN, 0}, {v->models, 0, ZMQ_POLLIN, 0}};
        if (v->control) zmq_poll(items, v->models ? 3 : 2, POLL_MS);
        else nanosleep(&(struct timespec){0, POLL_MS * 1000000L}, NULL);
        double now = now_s();
        read_socket(v, &v->models, now); /* takes the mutex only to hand a model over */
        pthread_mutex_lock(&v->mutex);
        read_monitor(v, now);
        read_socket(v, &v->control, now);
        tick(v, now);
        stopping = v->stopping;
        pthread_mutex_unlock(&v->mutex);
    }
    pthread_mutex_lock(&v->mutex);
    v->finished = true;
    send_report(v, now_s()); /* gone */
    close_sockets(v, 1000);
    pthread_mutex_unlock(&v->mutex);
    return NULL;
}

/* Keys: files of `vedette keys` */

static bool read_key(const char *folder, const char *file, const char *name, char key[41]) {
    char path[1024], line[256];
    bool found = false;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *stream = fopen(path, "r");
    if (!stream) return false;
    while (fgets(line, sizeof line, stream)) {
        size_t size = strlen(name);
        char *quote = strchr(line, '"');
        if (strncmp(line, name, size) || (line[size] != ' ' && line[size] != '=') || !quote) continue;
        if (strlen(quote + 1) < 41 || quote[41] != '"') continue;
        memcpy(key, quote + 1, 40);
        key[40] = 0;
        found = true;
    }
    fclose(stream);
    return found;
}

static void read_keys(vedette *v, const char *folder) {
    v->has_keys = true;
    if (!zmq_has("curve")) set_error(v, "this libzmq was built without CURVE");
    else if (!read_key(folder, "key.secret.toml", "public", v->public_key) ||
             !read_key(folder, "key.secret.toml", "secret", v->secret_key) ||
             !read_key(folder, "learner.toml", "public", v->server_key))
        set_error(v, "%s: no key.secret.toml and learner.toml with keys in them", folder);
}

/* The caller's side */

static bool id_is_valid(const char *id) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t size = id ? strlen(id) : 0;
    return size >= 1 && size <= 64 && strspn(id, letters) == size;
}

static bool read_random(uint64_t *number) {
    FILE *stream = fopen("/dev/urandom", "rb");
    bool read = stream && fread(number, sizeof *number, 1, stream) == 1;
    if (stream) fclose(stream);
    return read;
}

static void init_condition(pthread_cond_t *condition) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

vedette *vedette_open(const vedette_options *o) {
    vedette *v = calloc(1, sizeof *v);
    if (!v) return NULL;
    v->env_count = o->envs ? o->envs : 1;
    v->window_max = o->window ? o->window : 1024;
    v->envs = calloc(v->env_count, sizeof *v->envs);
    v->window = calloc(v->window_max, sizeof *v->window);
    v->context = zmq_ctx_new();
    if (!v->envs || !v->window || !v->context || !read_random(&v->jitter) || !read_random(&v->seed)) {
        if (v->context) zmq_ctx_term(v->context);
        free(v->envs);
        free(v->window);
        free(v);
        return NULL;
    }
    pthread_mutex_init(&v->mutex, NULL);
    init_condition(&v->changed);
    v->port = o->port ? o->port : 5555;
    v->wait_s = o->wait_s;
    snprintf(v->host, sizeof v->host, "%s", o->host ? o->host : "127.0.0.1");
    if (id_is_valid(o->id)) memcpy(v->id, o->id, strlen(o->id));
    else set_error(v, "the id is not 1 to 64 of A-Z a-z 0-9 . _ -");
    if (o->keys) read_keys(v, o->keys);
    v->incarnation = random_bits(&v->jitter);
    v->progress_at = now_s();
    v->remake_at = v->progress_at + SILENCE_S;
    v->unannounced_since = -1;
    v->acked_at = -1e9;
    if (!*v->error) v->started = !pthread_create(&v->thread, NULL, network, v);
    if (!*v->error && !v->started) set_error(v, "no thread");
    return v;
}

static vedette_result state(const vedette *v) {
    return *v->error ? VEDETTE_ERROR : v->over ? VEDETTE_END : VEDETTE_OK;
}

/* Wait for a change, with the mutex held; false: the time is up. 0: no limit. */
static bool wait_change(vedette *v, double until) {
    struct timespec t = {(time_t)until, (long)((until - floor(until)) * 1e9)};
    if (until <= 0) return pthread_cond_wait(&v->changed, &v->mutex) == 0;
    return pthread_cond_timedwait(&v->changed, &v->mutex, &t) == 0;
}

static double deadline(double seconds) { return seconds == 0 ? 0 : now_s() + (seconds < 0 ? 0 : seconds); }

static void free_environments(vedette *v) {
    for (unsigned e = 0; e < v->env_count; e++) {
        environment *env = v->envs + e;
        free(env->pending);
        free(env->obs);
        free(env->action);
        memset(env, 0, sizeof *env);
    }
    free(v->staging);
    v->staging = NULL;
    v->staged = 0;
}

static size_t pending_bytes(const run *r) {
    size_t bytes = sizeof(pending) + r->rows.columns[r->row[OBS]].bytes + r->rows.columns[r->row[ACTION]].bytes;
    return (bytes + 7) / 8 * 8;
}

static bool make_environments(vedette *v) {
    run *r = v->plays;
    size_t row = 0;
    for (unsigned c = 0; c < r->rows.count; c++) row += r->rows.columns[c].bytes;
    if (row > PAYLOAD_MAX / 2 || r->batch_rows > PAYLOAD_MAX / row) {
        set_error(v, "a batch of %zu rows is larger than 64 MiB", r->batch_rows);
        return false;
    }
    v->staging = malloc(row * r->batch_rows);
    bool made = v->staging != NULL;
    for (unsigned e = 0; e < v->env_count; e++) {
        environment *env = v->envs + e;
        env->pending = calloc(r->n_step, pending_bytes(r));
        env->obs = calloc(1, r->rows.columns[r->row[OBS]].bytes);
        env->action = calloc(1, r->rows.columns[r->row[ACTION]].bytes);
        env->rank = exploration_rank(v->first_actor * v->env_count + e);
        made = made && env->pending && env->obs && env->action;
    }
    if (!made) set_error(v, "out of memory");
    return made;
}

/* Play the run that was announced last. Under the mutex. What is unfinished of the same run stays
 * where nothing about rows has changed. */
static bool adopt_run(vedette *v) {
    mp_value header, payload;
    char why[200];
    run *old = v->plays;
    if (v->taken == v->generation || !v->run || !v->has_first_actor) return v->plays != NULL;
    if (!mp_read_message(v->run_header, v->run_header_size, &header) ||
        !mp_read_message(v->run_payload, v->run_payload_size, &payload) ||
        !(v->plays = run_read(&header, &payload, why, sizeof why))) {
        v->plays = old;
        return false;
    }
    v->taken = v->generation;
    run *r = v->plays;
    bool same = old && !strcmp(old->id, r->id) && old->n_step == r->n_step && old->batch_rows == r->batch_rows &&
                old->discount == r->discount;
    bool same_model = old && !strcmp(old->id, r->id) && !strcmp(old->model.hash, r->model.hash);
    run_free(old);
    if (!same_model) {
        free(v->model);
        v->model = NULL;
    }
    if (same) return true;
    free_environments(v);
    for (unsigned e = 0; e < v->env_count; e++) v->envs[e].restarted = old != NULL;
    return make_environments(v);
}

static void take_model(vedette *v) {
    if (!v->new_model || !v->plays || v->taken != v->generation) return;
    free(v->model);
    v->model = v->new_model;
    v->new_model = NULL;
    v->model_epoch = v->new_epoch;
    v->model_version = v->acting_version = v->new_version;
}

/* A run and, where it is asked for, a model. */
static vedette_result ready(vedette *v, double seconds, bool with_model) {
    double until = deadline(seconds);
    vedette_result result;
    pthread_mutex_lock(&v->mutex);
    while ((result = state(v)) == VEDETTE_OK) {
        bool played = adopt_run(v);
        take_model(v);
        if (played && (v->model || !with_model)) break;
        if (!wait_change(v, until)) {
            result = VEDETTE_WAIT;
            break;
        }
    }
    pthread_mutex_unlock(&v->mutex);
    return result;
}

vedette_result vedette_wait(vedette *v, double seconds) { return ready(v, seconds, true); }

size_t vedette_obs_bytes(const vedette *v) { return v->plays ? v->plays->rows.columns[v->plays->row[OBS]].bytes : 0; }
size_t vedette_action_bytes(const vedette *v) { return v->plays ? v->plays->rows.columns[v->plays->row[ACTION]].bytes : 0; }

static vedette_result misuse(vedette *v, const char *what) {
    pthread_mutex_lock(&v->mutex);
    set_error(v, "%s", what);
    pthread_mutex_unlock(&v->mutex);
    return VEDETTE_ERROR;
}

vedette_result vedette_begin(vedette *v, unsigned env, const void *obs) {
    if (env >= v->env_count) return misuse(v, "there is no such environment");
    vedette_result result = ready(v, v->wait_s, false);
    if (result != VEDETTE_OK) return result;
    environment *e = v->envs + env;
    if (e->count) return misuse(v, "an episode begins before the last one has ended");
    memcpy(e->obs, obs, vedette_obs_bytes(v));
    e->acting = true;
    e->chosen = e->restarted = false;
    e->total = 0;
    e->length = 0;
    return VEDETTE_OK;
}

static vedette_result choose_action(vedette *v, const void *obs, double rank, uint64_t *random, void *action) {
    if (v->plays->policy.head == NO_POLICY) return misuse(v, v->plays->policy.missing);
    policy_act(v->plays, v->model + 8, v->model_version, obs, rank, random, action);
    return VEDETTE_OK;
}

vedette_result vedette_act(vedette *v, unsigned env, void *action) {
    if (env >= v->env_count) return misuse(v, "there is no such environment");
    vedette_result result = ready(v, v->wait_s, true);
    environment *e = v->envs + env;
    if (result != VEDETTE_OK) return result;
    if (e->restarted) return VEDETTE_BEGIN;
    if (!e->acting) return misuse(v, "an action before vedette_begin");
    result = choose_action(v, e->obs, e->rank, &v->seed, e->action);
    if (result != VEDETTE_OK) return result;
    e->chosen = true;
    memcpy(action, e->action, vedette_action_bytes(v));
    return VEDETTE_OK;
}

vedette_result vedette_greedy(vedette *v, const void *obs, void *action) {
    vedette_result result = ready(v, v->wait_s, true);
    return result == VEDETTE_OK ? choose_action(v, obs, 0.5, NULL, action) : result;
}

vedette_result vedette_set_action(vedette *v, unsigned env, const void *action) {
    if (env >= v->env_count || !v->envs[env].acting) return misuse(v, "an action before vedette_begin");
    memcpy(v->envs[env].action, action, vedette_action_bytes(v));
    v->envs[env].chosen = true;
    return VEDETTE_OK;
}

/* Batches */

static uint8_t *staged_column(vedette *v, unsigned column) {
    uint8_t *at = v->staging;
    for (unsigned c = 0; c < column; c++) at += v->plays->rows.columns[c].bytes * v->plays->batch_rows;
    return at;
}

static void stage(vedette *v, unsigned role, const void *data) {
    unsigned column = v->plays->row[role];
    size_t bytes = v->plays->rows.columns[column].bytes;
    memcpy(staged_column(v, column) + bytes * v->staged, data, bytes);
}

/* Put the batch into the window, unless enough wait there for credit.
 * After `wait_s` it waits there nevertheless, if there is room. */
static vedette_result publish(vedette *v, batch *b) {
    double until = deadline(v->wait_s);
    vedette_result result = VEDETTE_OK;
    pthread_mutex_lock(&v->mutex);
    while ((v->batches == v->window_max || hoards(v)) && result == VEDETTE_OK) {
        if (*v->error) result = VEDETTE_ERROR;
        if (v->over && until == 0) until = deadline(DRAIN_S); /* the learner still takes what is there */
        if (!*v->error && !wait_change(v, until)) result = VEDETTE_WAIT;
    }
    v->produced += b->rows;
    if (strcmp(v->plays->id, v->run_id)) { /* nobody takes it: another run began */
        v->produced -= b->rows;
    } else if (v->batches < v->window_max) {
        uint64_t after = v->batches ? v->window[v->batches - 1].seq + 1 : 0;
        b->seq = after > v->sequenced ? after : v->sequenced;
        b->sent_at = -1;
        v->window[v->batches++] = *b;
        v->rows_held += b->rows;
        v->bytes_held += b->size;
        b->payload = NULL;
        result = result == VEDETTE_WAIT ? VEDETTE_OK : result;
    } else {
        v->dropped += b->rows;
    }
    pthread_mutex_unlock(&v->mutex);
    free(b->payload);
    return result;
}

static vedette_result flush(vedette *v) {
    run *r = v->plays;
    batch b = {0};
    if (!v->staged) return VEDETTE_OK;
    for (unsigned c = 0; c < r->rows.count; c++) b.size += (r->rows.columns[c].bytes * v->staged + 7) / 8 * 8;
    b.payload = calloc(1, b.size);
    if (!b.payload) return misuse(v, "out of memory");
    uint8_t *at = b.payload;
    for (unsigned c = 0; c < r->rows.count; c++) {
        size_t bytes = r->rows.columns[c].bytes * v->staged;
        memcpy(at, staged_column(v, c), bytes);
        at += (bytes + 7) / 8 * 8;
    }
    b.rows = v->staged;
    b.epoch = v->staged_epoch;
    b.version = v->staged_version;
    b.env_steps = v->steps_to_carry < r->batch_env_steps ? v->steps_to_carry : r->batch_env_steps;
    v->steps_to_carry -= b.env_steps;
    v->staged = 0;
    return publish(v, &b);
}

static pending *pending_at(const vedette *v, const environment *e, unsigned k) {
    return (pending *)(void *)(e->pending + (e->first + k) % v->plays->n_step * pending_bytes(v->plays));
}

/* The oldest unfinished row is one now. */
static vedette_result emit(vedette *v, environment *e, const void *next_obs, uint8_t terminated, uint8_t truncated) {
    const pending *p = pending_at(v, e, 0);
    const uint8_t *obs = (const uint8_t *)(p + 1);
    float reward = (float)p->reward;
    uint8_t steps = (uint8_t)p->steps;
    bool older = p->epoch < v->staged_epoch || (p->epoch == v->staged_epoch && p->version < v->staged_version);
    if (!v->staged || older) {
        v->staged_epoch = p->epoch;
        v->staged_version = p->version;
    }
    stage(v, OBS, obs);
    stage(v, ACTION, obs + vedette_obs_bytes(v));
    stage(v, REWARD, &reward);
    stage(v, NEXT_OBS, next_obs);
    stage(v, TERMINATED, &terminated);
    stage(v, TRUNCATED, &truncated);
    stage(v, N_STEPS, &steps);
    e->first = (e->first + 1) % v->plays->n_step;
    e->count--;
    return ++v->staged == v->plays->batch_rows ? flush(v) : VEDETTE_OK;
}

static void begin_row(vedette *v, environment *e) {
    pending *p = pending_at(v, e, e->count++);
    uint8_t *obs = (uint8_t *)(p + 1);
    *p = (pending){0, 1.0, 0, v->model ? v->model_epoch : v->plays->epoch, v->model ? v->model_version : 0};
    memcpy(obs, e->obs, vedette_obs_bytes(v));
    memcpy(obs + vedette_obs_bytes(v), e->action, vedette_action_bytes(v));
}

static void count_episode(vedette *v, environment *e) {
    pthread_mutex_lock(&v->mutex);
    v->returns[v->episodes++ % RETURNS] = e->total;
    v->report_return += e->total;
    v->report_length += (double)e->length;
    v->report_episodes++;
    pthread_mutex_unlock(&v->mutex);
}

vedette_result vedette_observe(vedette *v, unsigned env, double reward, const void *next_obs, bool terminated, bool truncated) {
    if (env < v->env_count && v->envs[env].restarted) return VEDETTE_BEGIN;
    if (env >= v->env_count || !v->envs[env].chosen) return misuse(v, "an outcome without an action");
    if (!isfinite(reward)) return misuse(v, "a reward that is not finite");
    environment *e = v->envs + env;
    run *r = v->plays;
    vedette_result result = VEDETTE_OK;
    bool ends = terminated || truncated;
    begin_row(v, e);
    e->chosen = false;
    e->total += reward;
    e->length++;
    v->steps_to_carry++;
    pthread_mutex_lock(&v->mutex);
    v->env_steps++;
    pthread_mutex_unlock(&v->mutex);
    double scaled = reward * r->reward_scale;
    if (r->reward_clip > 0) scaled = fmax(-r->reward_clip, fmin(r->reward_clip, scaled));
    for (unsigned k = 0; k < e->count; k++) {
        pending *p = pending_at(v, e, k);
        p->reward += p->discount * scaled;
        p->discount *= r->discount;
        p->steps++;
    }
    while (e->count && (ends || e->count == r->n_step)) {
        vedette_result one = emit(v, e, next_obs, terminated, truncated);
        if (one != VEDETTE_OK) result = one;
    }
    if (ends) {
        count_episode(v, e);
        e->acting = false;
    } else {
        memcpy(e->obs, next_obs, vedette_obs_bytes(v));
    }
    if (result == VEDETTE_OK) {
        pthread_mutex_lock(&v->mutex);
        result = state(v);
        pthread_mutex_unlock(&v->mutex);
    }
    return result;
}

const float *vedette_array(const vedette *v, const char *name, size_t *count) {
    if (!v->model) return NULL;
    const run_schema *model = &v->plays->model;
    for (unsigned c = 0; c < model->count; c++)
        if (!strcmp(model->columns[c].name, name) && !strcmp(model->columns[c].type, "f4")) {
            *count = model->columns[c].count;
            return (const float *)(const void *)(v->model + 8 + model->columns[c].offset);
        }
    return NULL;
}

void vedette_get_stats(vedette *v, vedette_stats *s) {
    pthread_mutex_lock(&v->mutex);
    *s = (vedette_stats){v->env_steps, v->episodes, v->produced, v->settled, v->rejected, v->dropped, v->resent,
                         v->model_epoch, v->model_version, v->reconnects, 0};
    uint64_t known = v->episodes < RETURNS ? v->episodes : RETURNS;
    for (uint64_t k = 0; k < known; k++) s->return_mean += v->returns[k] / (double)known;
    pthread_mutex_unlock(&v->mutex);
}

const char *vedette_error(const vedette *v) { return v->error; }

/* The unfinished rows of an actor that ends: fewer steps, and neither flag. */
static void flush_all(vedette *v, double seconds) {
    if (!v->plays || *v->error) return;
    v->wait_s = seconds > 0 ? seconds : -1;
    for (unsigned k = 0; k < v->env_count; k++) {
        environment *e = v->envs + k;
        while (e->count) emit(v, e, e->obs, 0, 0);
    }
    flush(v);
}

bool vedette_close(vedette *v, double seconds) {
    if (!v) return false;
    double until = now_s() + (seconds > 0 ? seconds : 0);
    flush_all(v, seconds);
    pthread_mutex_lock(&v->mutex);
    v->leaving = true;
    v->report_at = 0;
    while (v->batches && !*v->error && wait_change(v, until)) {}
    bool all = !v->batches && !v->dropped && !*v->error;
    drop_all(v, false);
    v->stopping = true;
    pthread_mutex_unlock(&v->mutex);
    if (v->started) pthread_join(v->thread, NULL);
    zmq_ctx_term(v->context);
    drop_all(v, true);
    clear_assembly(&v->partial);
    free_environments(v);
    run_free(v->run);
    run_free(v->plays);
    free(v->run_header);
    free(v->run_payload);
    free(v->window);
    free(v->envs);
    free(v->model);
    free(v->new_model);
    pthread_cond_destroy(&v->changed);
    pthread_mutex_destroy(&v->mutex);
    free(v);
    return all;
}
