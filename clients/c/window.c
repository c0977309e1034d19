#include "delivery.h"

#include <stdlib.h>

static bool is_numbered(const window *w, size_t k) { return w->held[k].seq < w->sequenced; }

bool vd_window_is_full(const window *w) {
    return w->count == w->room || (w->count >= UNSENT_MAX && !is_numbered(w, w->count - UNSENT_MAX));
}

bool vd_window_add(window *w, batch *b) {
    w->produced += b->rows;
    if (w->count == w->room) {
        w->dropped += b->rows;
        return false;
    }
    uint64_t after = w->count ? w->held[w->count - 1].seq + 1 : 0;
    b->seq = after > w->sequenced ? after : w->sequenced; /* its number once it is sent */
    b->sent_at = -1;
    w->held[w->count++] = *b;
    w->rows += b->rows;
    w->bytes += b->size;
    b->payload = NULL;
    return true;
}

batch *vd_window_next(window *w, size_t *from) {
    for (; *from < w->count; ++*from) {
        batch *b = w->held + *from;
        if (is_numbered(w, *from) && b->sent_at >= 0) continue;
        if (!is_numbered(w, *from) && w->sequenced >= w->limit) return NULL;
        if (!is_numbered(w, *from)) w->sequenced++;
        return b;
    }
    return NULL;
}

uint64_t vd_window_base(const window *w) { return w->count && is_numbered(w, 0) ? w->held[0].seq : w->sequenced; }

static void release(window *w, const batch *b) {
    w->rows -= b->rows;
    w->bytes -= b->size;
    free(b->payload);
}

static bool has_bit(const uint8_t *extras, size_t size, uint64_t bit) {
    return bit < 8 * size && extras[bit / 8] >> bit % 8 & 1;
}

int vd_window_settle(window *w, uint64_t contiguous, const uint8_t *extras, size_t size) {
    uint64_t beyond = contiguous;
    size_t kept = 0;
    for (size_t bit = 0; bit < 8 * size; bit++)
        if (has_bit(extras, size, bit)) beyond = contiguous + bit + 1;
    if (beyond > w->sequenced) return -1;
    for (size_t k = 0; k < w->count; k++) {
        batch *b = w->held + k;
        bool settled = is_numbered(w, k) && (b->seq < contiguous || has_bit(extras, size, b->seq - contiguous));
        if (settled) {
            w->settled += b->rows;
            release(w, b);
        } else {
            w->held[kept++] = *b;
        }
    }
    int freed = (int)(w->count - kept);
    w->count = kept;
    return freed;
}

void vd_window_resend(window *w, double sent_until) {
    for (size_t k = 0; k < w->count && is_numbered(w, k); k++)
        if (w->held[k].sent_at >= 0 && w->held[k].sent_at <= sent_until) {
            w->held[k].sent_at = -1;
            w->resent++;
        }
}

void vd_window_drop_unsent(window *w) {
    while (w->count && !is_numbered(w, w->count - 1)) {
        w->dropped += w->held[--w->count].rows;
        release(w, w->held + w->count);
    }
}

void vd_window_clear(window *w) {
    while (w->count) release(w, w->held + --w->count);
    *w = (window){.held = w->held, .room = w->room};
}
