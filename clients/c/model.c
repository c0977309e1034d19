#include "delivery.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_MAX (1 << 20)
#define CHUNK_MIN 65536 /* of a message, but for its last chunk */
#define VERSIONS_MAX ((uint64_t)1 << 62)

static uint32_t crc32_of(const uint8_t *data, size_t size) {
    uint32_t table[256], crc = 0xffffffffu;
    for (uint32_t k = 0; k < 256; k++) {
        table[k] = k;
        for (int bit = 0; bit < 8; bit++) table[k] = table[k] & 1 ? 0xedb88320u ^ table[k] >> 1 : table[k] >> 1;
    }
    for (size_t k = 0; k < size; k++) crc = table[(crc ^ data[k]) & 255] ^ crc >> 8;
    return ~crc;
}

static uint64_t little_endian(const uint8_t *data) {
    uint64_t number = 0;
    for (unsigned k = 8; k--;) number = number << 8 | data[k];
    return number;
}

static bool is_finite(const run_schema *schema, const uint8_t *row) {
    for (unsigned c = 0; c < schema->count; c++) {
        const run_column *column = schema->columns + c;
        const uint8_t *at = row + column->offset;
        for (size_t k = 0; k < column->count && *column->type == 'f'; k++, at += column->width) {
            float narrow = 0;
            double wide = 0;
            if (column->width == 4) memcpy(&narrow, at, 4);
            if (column->width == 8) memcpy(&wide, at, 8);
            if (!isfinite(narrow) || !isfinite(wide)) return false;
        }
    }
    return true;
}

void vd_clear_assembly(assembly *a) {
    free(a->body);
    free(a->seen);
    memset(a, 0, sizeof *a);
}

static bool is_newer(uint64_t epoch, uint64_t version, uint64_t than_epoch, uint64_t than_version) {
    return epoch > than_epoch || (epoch == than_epoch && version > than_version);
}

typedef struct {
    uint64_t epoch, version, total, count, index, sum;
} chunk_header;

static bool read_header(const mp_value *header, const run *r, chunk_header *h) {
    char id[65];
    mp_value spec, digest;
    if (!mp_get_text(header, "run", id, sizeof id) || strcmp(id, r->id)) return false;
    if (!mp_get(header, "spec", &spec) || !mp_is(&spec, r->model.hash)) return false;
    if (!mp_get_uint(header, "epoch", INT32_MAX, &h->epoch) ||
        !mp_get_uint(header, "version", VERSIONS_MAX, &h->version) ||
        !mp_get_uint(header, "total_bytes", UINT32_MAX, &h->total) || h->total != r->model.sent_bytes + 8 ||
        !mp_get_uint(header, "count", (h->total + CHUNK_MIN - 1) / CHUNK_MIN, &h->count) || !h->count ||
        !mp_get_uint(header, "index", h->count - 1, &h->index) ||
        !mp_get_typed(header, "digest", MP_BINARY, &digest) || digest.size != 8)
        return false;
    h->sum = little_endian(digest.data);
    return h->sum <= UINT32_MAX;
}

static bool begin(assembly *a, const chunk_header *h) {
    vd_clear_assembly(a);
    a->body = malloc((size_t)h->total);
    a->seen = calloc((size_t)h->count, 1);
    a->epoch = h->epoch;
    a->version = h->version;
    a->total = (size_t)h->total;
    a->count = h->count;
    a->digest = (uint32_t)h->sum;
    if (a->body && a->seen) return true;
    vd_clear_assembly(a);
    return false;
}

void vd_widen_row(const run_schema *schema, const uint8_t *sent, uint8_t *row) {
    for (unsigned c = 0; c < schema->count; c++) {
        const run_column *column = schema->columns + c;
        const uint8_t *from = sent + column->sent_offset;
        uint8_t *to = row + column->offset;
        if (!column->half) memcpy(to, from, column->bytes);
        for (size_t k = 0; k < column->count && column->half; k++) {
            float number = vd_float_of_half((uint16_t)(from[2 * k] | from[2 * k + 1] << 8));
            memcpy(to + 4 * k, &number, 4);
        }
    }
}

static bool complete(assembly *a, const run *r, model *found) {
    bool sound = crc32_of(a->body, a->total) == a->digest && little_endian(a->body) == a->version;
    if (sound && r->model.sent_bytes != r->model.bytes) {
        uint8_t *wide = calloc(r->model.bytes + 8, 1);
        if (wide) {
            memcpy(wide, a->body, 8);
            vd_widen_row(&r->model, a->body + 8, wide + 8);
        }
        free(a->body);
        a->body = wide;
    }
    sound = sound && a->body && is_finite(&r->model, a->body + 8);
    if (sound) {
        *found = (model){a->epoch, a->version, a->body + 8, a->body};
        a->body = NULL;
    }
    vd_clear_assembly(a);
    return sound;
}

bool vd_take_chunk(assembly *a, const run *r, const mp_value *header, const uint8_t *chunk, size_t size,
                   const model_version *newest, model *found) {
    chunk_header h;
    if (!read_header(header, r, &h)) return false;
    uint64_t most = (h.total + h.count - 1) / h.count, from = h.index * most;
    uint64_t until = from + most < h.total ? from + most : h.total;
    if (from >= until || size != until - from || size > CHUNK_MAX) return false;
    if (newest->known && !is_newer(h.epoch, h.version, newest->epoch, newest->version)) return false;
    bool same = a->body && h.epoch == a->epoch && h.version == a->version;
    if (a->body && !same && !is_newer(h.epoch, h.version, a->epoch, a->version)) return false;
    if (!same || a->count != h.count || a->digest != h.sum)
        if (!begin(a, &h)) return false;
    if (a->seen[h.index]) return false;
    memcpy(a->body + from, chunk, size);
    a->seen[h.index] = 1;
    return ++a->have == a->count && complete(a, r, found);
}
