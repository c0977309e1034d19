#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "client.h"

#define POLL_MS 5
#define FRAMES 4
#define MESSAGES_PER_TURN 256
#define PROBE_S 0.5
#define PROBE_EVERY_S 1.0
#define AT_ONCE_S 2.0 /* a handshake that fails later may have met a learner that was busy */
#define GREETING 64   /* bytes, of ZMTP 3 */
#define FAILED (ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL)
#define BYTES_PER_TURN ((size_t)1 << 20) /* sent while the caller may wait for the mutex */

double vd_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Keys: the files of `vedette keys` */

static bool read_key(vedette *v, const char *folder, const char *file, const char *name, char key[41]) {
    char path[1024], line[256];
    bool found = false;
    struct stat status;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *stream = fopen(path, "r");
    if (!stream) return false;
    /* One that root mounted may be ours by its group. */
    if (!fstat(fileno(stream), &status) && !strcmp(name, "secret") &&
        status.st_mode & (status.st_uid == 0 && getuid() != 0 ? 037 : 077))
        vd_set_error(v, "%s: others can read this secret (mode %04o); chmod 600 %s", path,
                     (unsigned)status.st_mode & 0777, path);
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

void vd_read_keys(vedette *v, const char *folder) {
    v->has_keys = true;
    if (!zmq_has("curve")) vd_set_error(v, "this libzmq was built without CURVE");
    else if (read_key(v, folder, "key.secret.toml", "public", v->public_key) &&
             read_key(v, folder, "key.secret.toml", "secret", v->secret_key) &&
             read_key(v, folder, "learner.toml", "public", v->server_key)) return;
    else if (read_key(v, folder, "learner.secret.toml", "public", v->server_key))
        vd_set_error(v, "%s: the learner's own folder; give a host's, %s/hosts/NAME", folder, folder);
    else vd_set_error(v, "%s: no key.secret.toml and learner.toml with keys in them", folder);
}

/* Sockets */

static void set_int(void *socket, int option, int value) { zmq_setsockopt(socket, option, &value, sizeof value); }

static void set_options(vedette *v, void *socket, int64_t largest) {
    set_int(socket, ZMQ_LINGER, 0);
    set_int(socket, ZMQ_SNDHWM, 4096);
    set_int(socket, ZMQ_RCVHWM, 8192);
    zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &largest, sizeof largest);
    set_int(socket, ZMQ_HANDSHAKE_IVL, 3000);
    set_int(socket, ZMQ_CONNECT_TIMEOUT, 1500);
    set_int(socket, ZMQ_RECONNECT_IVL, 50 + (int)(vd_random_bits(&v->jitter) % 450));
    set_int(socket, ZMQ_RECONNECT_IVL_MAX, 2000);
    set_int(socket, ZMQ_TCP_KEEPALIVE, 1);
    set_int(socket, ZMQ_TCP_KEEPALIVE_IDLE, 5);
    set_int(socket, ZMQ_TCP_KEEPALIVE_INTVL, 5);
    set_int(socket, ZMQ_TCP_KEEPALIVE_CNT, 3);
    set_int(socket, ZMQ_TCP_MAXRT, 20000);
    set_int(socket, ZMQ_IPV6, strspn(v->host, "0123456789.") != strlen(v->host));
    if (v->has_keys && (zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, v->server_key, 41) ||
                        zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, v->public_key, 41) ||
                        zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, v->secret_key, 41)))
        vd_set_error(v, "libzmq does not take the keys: %s", zmq_strerror(errno));
}

/* Before it connects: a connection is new once its handshake has succeeded. */
static void watch(vedette *v, void *samples) {
    char name[64];
    set_int(samples, ZMQ_IMMEDIATE, 1);
    snprintf(name, sizeof name, "inproc://monitor-%llu", (unsigned long long)vd_random_bits(&v->jitter));
    zmq_socket_monitor(samples, name,
                       ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED |
                           ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | FAILED);
    v->monitor = zmq_socket(v->context, ZMQ_PAIR);
    if (!v->monitor) return;
    set_int(v->monitor, ZMQ_LINGER, 0);
    zmq_connect(v->monitor, name);
}

static void connect_to(vedette *v, void *socket, int port) {
    char endpoint[300];
    const char *form = strchr(v->host, ':') ? "tcp://[%s]:%d" : "tcp://%s:%d";
    snprintf(endpoint, sizeof endpoint, form, v->host, port);
    if (zmq_connect(socket, endpoint)) vd_set_error(v, "cannot connect to %s: %s", endpoint, zmq_strerror(errno));
}

static void *open_socket(vedette *v, int kind, int offset, int64_t largest, int kernel_bytes) {
    char topic[80];
    void *socket = zmq_socket(v->context, kind);
    if (!socket) {
        vd_set_error(v, "no socket: %s", zmq_strerror(errno));
        return NULL;
    }
    set_options(v, socket, largest);
    if (kernel_bytes) {
        set_int(socket, ZMQ_SNDBUF, kernel_bytes);
        set_int(socket, ZMQ_RCVBUF, kernel_bytes);
    }
    if (kind == ZMQ_SUB) {
        snprintf(topic, sizeof topic, "m/%s/", v->id);
        zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "all", 3);
        zmq_setsockopt(socket, ZMQ_SUBSCRIBE, topic, strlen(topic));
    } else {
        watch(v, socket);
    }
    connect_to(v, socket, v->port + offset);
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
    v->models_due = false;
}

static void open_sockets(vedette *v) {
    v->samples = open_socket(v, ZMQ_PUSH, 0, HEADER_MAX, 1 << 20);
    v->control = open_socket(v, ZMQ_SUB, 1, (16 << 20) + HEADER_MAX, 0);
    v->models_due = v->run != NULL;
    v->up = v->resend = true;
}

/* New sockets, the old ones being of no use. */
static void remake(vedette *v, double now) {
    close_sockets(v, 0);
    v->open_at = now + JITTER_S * vd_random_unit(&v->jitter);
    v->remake_at = v->open_at + SILENCE_S;
    v->unannounced_since = -1;
    v->progress_at = now;
    v->reconnects++;
}

/* Sending */

static bool send_two(vedette *v, const void *header, size_t header_size, const void *payload, size_t size) {
    return zmq_send(v->samples, header, header_size, ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0 &&
           zmq_send(v->samples, payload, size, ZMQ_DONTWAIT) >= 0;
}

static void send_report(vedette *v, double now) {
    uint8_t header[HEADER_MAX], payload[REPORT_MAX];
    size_t size;
    v->reported_at = now;
    if (!v->up || !v->samples) return;
    size_t header_size = vd_write_report(v, header, payload, &size);
    if (!send_two(v, header, header_size, payload, size)) return;
    v->report_due = false;
    v->report_episodes = 0;
    v->report_return = v->report_length = 0;
}

/* Those to send again, in order, then new ones below the limit; true: there are more. */
static bool send_batches(vedette *v, double now) {
    uint8_t header[HEADER_MAX];
    size_t from = 0, bytes = 0;
    while (v->up && !v->resend && v->samples) {
        batch *b = bytes < BYTES_PER_TURN ? vd_window_next(&v->window, &from) : NULL;
        if (!b) break;
        if (!send_two(v, header, vd_write_batch_header(v, b, header), b->payload, b->size)) return false;
        b->sent_at = now;
        bytes += b->size;
    }
    return bytes >= BYTES_PER_TURN;
}

/* Receiving */

static unsigned receive(void *socket, zmq_msg_t *messages, frame *frames) {
    unsigned count = 0;
    int more = 1;
    while (more) {
        zmq_msg_t extra, *message = count < FRAMES ? messages + count : &extra;
        zmq_msg_init(message);
        if (zmq_msg_recv(message, socket, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(message);
            break;
        }
        more = zmq_msg_more(message);
        if (count == FRAMES) {
            zmq_msg_close(message);
            continue;
        }
        frames[count++] = (frame){zmq_msg_data(message), zmq_msg_size(message)};
    }
    return count;
}

/* The security that a greeting of ZMTP 3 names: "NULL", "CURVE", ...; "" where none comes. */
static void probe_mechanism(vedette *v, char mechanism[21]) {
    static const uint8_t ours[] = {0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 1};
    uint8_t id[256], greeting[GREETING] = {0};
    size_t size = 0;
    double until = vd_now() + PROBE_S;
    void *socket = zmq_socket(v->context, ZMQ_STREAM);
    if (!socket) return;
    set_options(v, socket, HEADER_MAX);
    set_int(socket, ZMQ_RCVTIMEO, (int)(1000 * PROBE_S));
    connect_to(v, socket, v->port);
    int count = zmq_recv(socket, id, sizeof id, 0); /* then an empty frame: it is connected */
    bool goes_on = count > 0 && zmq_recv(socket, greeting, 0, 0) == 0 &&
                   zmq_send(socket, id, (size_t)count, ZMQ_SNDMORE) >= 0 && zmq_send(socket, ours, sizeof ours, 0) >= 0;
    while (goes_on && size < GREETING && vd_now() < until && zmq_recv(socket, id, sizeof id, 0) >= 0) {
        count = zmq_recv(socket, greeting + size, GREETING - size, 0); /* 0: disconnected */
        goes_on = count > 0;
        size += goes_on ? (size_t)count : 0;
    }
    zmq_close(socket);
    if (size >= GREETING && greeting[0] == 0xff && greeting[9] & 1 && greeting[10] >= 3)
        memcpy(mechanism, greeting + 12, 20);
}

/* libzmq tries again for ever, or gives up for good: find out if the learner will ever let this client in. */
static void on_failed_handshake(vedette *v) {
    char asks[21] = "";
    double now = vd_now();
    if (*v->error || now - v->connected_at > AT_ONCE_S || now < v->probe_at) return;
    v->probe_at = now + PROBE_EVERY_S;
    pthread_mutex_unlock(&v->mutex);
    probe_mechanism(v, asks);
    pthread_mutex_lock(&v->mutex);
    v->refused = strcmp(asks, "CURVE") ? 0 : v->refused + 1; /* a proxy closes connections too, but is no learner */
    if (v->refused && !v->has_keys)
        vd_set_error(v, "the learner at %s:%d lets in only known keys; give a folder that `vedette keys add` makes "
                        "beside the learner", v->host, v->port);
    else if (v->has_keys && !strcmp(asks, "NULL"))
        vd_set_error(v, "the learner at %s:%d runs without keys, so that it cannot be told from another; start it with "
                        "--keys, or give no keys here if you trust the network", v->host, v->port);
    else if (v->refused > 1)
        vd_set_error(v, "the learner at %s:%d has another key than learner.toml says; copy this host's folder again "
                        "from the learner's --keys folder", v->host, v->port);
}

static void on_monitor(vedette *v, const frame *frames) {
    uint16_t event;
    uint32_t value;
    if (frames->size < sizeof event + sizeof value) return;
    memcpy(&event, frames->data, sizeof event);
    memcpy(&value, frames->data + sizeof event, sizeof value);
    if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
        v->up = v->resend = v->report_due = true;
        v->refused = 0;
    } else if (event == ZMQ_EVENT_CONNECTED) {
        v->connected_at = vd_now();
    } else if (event == ZMQ_EVENT_DISCONNECTED) {
        v->up = false;
    } else if (event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH && value == 400) {
        vd_set_error(v, "the learner at %s:%d refused this key; `vedette keys list` beside it shows whom it lets in",
                     v->host, v->port);
    } else if (event & FAILED) {
        on_failed_handshake(v);
    }
}

static void read_socket(vedette *v, void **socket, double now) {
    zmq_msg_t messages[FRAMES];
    frame frames[FRAMES];
    unsigned count;
    for (int turn = 0; turn < MESSAGES_PER_TURN && *socket && (count = receive(*socket, messages, frames)); turn++) {
        if (socket == &v->control) vd_on_control(v, frames, count, now);
        else if (socket == &v->models) vd_on_model(v, frames, count);
        else on_monitor(v, frames);
        for (unsigned k = 0; k < count; k++) zmq_msg_close(messages + k);
    }
}

/* The thread of the network */

static void renew_sockets(vedette *v, double now) {
    bool unannounced = v->unannounced_since >= 0 && now - v->unannounced_since > STUCK_S;
    bool stuck = v->window.count && now - v->progress_at > STUCK_S && now < v->remake_at;
    if (v->control && (now >= v->remake_at || unannounced || stuck)) remake(v, now);
    if (!v->control && now >= v->open_at) open_sockets(v);
    bool no_model = v->run && !v->newest.known && now - v->models_at > MODEL_WAIT_S;
    if (v->control && (v->models_due || no_model)) open_models(v, now);
}

static bool report_is_due(const vedette *v, double now) {
    return v->report_due || now >= v->reported_at + (v->acked_at >= v->reported_at ? REPORT_S : REPORT_UNHEARD_S);
}

/* True: there are more batches to send at once. */
static bool tick(vedette *v, double now) {
    bool was_full = vd_window_is_full(&v->window);
    renew_sockets(v, now);
    if (report_is_due(v, now)) send_report(v, now);
    if (v->up && now - v->acked_at < STALL_S) vd_window_resend(&v->window, v->acked_at - STALL_S);
    bool more = send_batches(v, now);
    if (was_full && !vd_window_is_full(&v->window)) pthread_cond_broadcast(&v->changed);
    return more;
}

void *vd_run_network(void *client) {
    vedette *v = client;
    bool stopping = false, more = false;
    while (!stopping) {
        zmq_pollitem_t items[] = {
            {v->control, 0, ZMQ_POLLIN, 0}, {v->monitor, 0, ZMQ_POLLIN, 0}, {v->models, 0, ZMQ_POLLIN, 0}};
        if (v->control) zmq_poll(items, v->models ? 3 : 2, more ? 0 : POLL_MS);
        else nanosleep(&(struct timespec){0, POLL_MS * 1000000L}, NULL);
        double now = vd_now();
        read_socket(v, &v->models, now);
        pthread_mutex_lock(&v->mutex);
        read_socket(v, &v->monitor, now);
        read_socket(v, &v->control, now);
        more = tick(v, now);
        stopping = v->stopping;
        pthread_mutex_unlock(&v->mutex);
    }
    pthread_mutex_lock(&v->mutex);
    v->gone = true;
    send_report(v, vd_now());
    close_sockets(v, 1000);
    pthread_mutex_unlock(&v->mutex);
    return NULL;
}
