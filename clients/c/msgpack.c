#include "msgpack.h"

#include <math.h>
#include <string.h>

#define DEPTH_MAX 20   /* the wire: 16 within a section */
#define PAIRS_MAX 512 /* of one map */

static uint64_t big_endian(const uint8_t *at, unsigned bytes) {
    uint64_t number = 0;
    for (unsigned k = 0; k < bytes; k++) number = number << 8 | at[k];
    return number;
}

static bool take(mp_bytes *bytes, size_t size, const uint8_t **data) {
    if ((size_t)(bytes->end - bytes->at) < size) return false;
    *data = bytes->at;
    bytes->at += size;
    return true;
}

static bool read_at(mp_bytes *bytes, mp_value *value, unsigned depth);

static bool take_number(mp_bytes *bytes, unsigned size, uint64_t *number) {
    const uint8_t *data;
    if (!take(bytes, size, &data)) return false;
    *number = big_endian(data, size);
    return true;
}

static bool read_data(mp_bytes *bytes, mp_value *value, mp_type type, uint64_t size) {
    value->type = type;
    value->size = (size_t)size;
    return size <= UINT32_MAX && take(bytes, (size_t)size, &value->data);
}

static bool read_items(mp_bytes *bytes, mp_value *value, mp_type type, uint64_t count, unsigned depth) {
    uint64_t values = type == MP_MAP ? 2 * count : count;
    if (depth >= DEPTH_MAX || values > (uint64_t)(bytes->end - bytes->at)) return false;
    value->type = type;
    value->number = count;
    value->items.at = bytes->at;
    mp_value item;
    for (uint64_t k = 0; k < values; k++)
        if (!read_at(bytes, &item, depth + 1)) return false;
    value->items.end = bytes->at;
    return true;
}

static void set_signed(mp_value *value, int64_t number) {
    value->type = number < 0 ? MP_INT : MP_UINT;
    value->negative = number;
    value->number = (uint64_t)number;
}

static bool read_real(mp_bytes *bytes, mp_value *value, unsigned size) {
    uint64_t bits;
    if (!take_number(bytes, size, &bits)) return false;
    value->type = MP_FLOAT;
    if (size == 8) {
        memcpy(&value->real, &bits, 8);
    } else {
        uint32_t half = (uint32_t)bits;
        float real;
        memcpy(&real, &half, 4);
        value->real = real;
    }
    return true;
}

static bool read_at(mp_bytes *bytes, mp_value *value, unsigned depth) {
    const uint8_t *first;
    uint64_t n;
    memset(value, 0, sizeof *value);
    if (!take(bytes, 1, &first)) return false;
    uint8_t b = *first;
    if (b < 0x80 || b >= 0xe0) return set_signed(value, (int8_t)b), true;
    if (b < 0x90) return read_items(bytes, value, MP_MAP, b & 15, depth);
    if (b < 0xa0) return read_items(bytes, value, MP_LIST, b & 15, depth);
    if (b < 0xc0) return read_data(bytes, value, MP_TEXT, b & 31);
    switch (b) {
    case 0xc0: value->type = MP_NIL; return true;
    case 0xc2:
    case 0xc3: value->type = MP_BOOL; value->number = b & 1; return true;
    case 0xc4:
    case 0xc5:
    case 0xc6: return take_number(bytes, 1u << (b - 0xc4), &n) && read_data(bytes, value, MP_BINARY, n);
    case 0xca: return read_real(bytes, value, 4);
    case 0xcb: return read_real(bytes, value, 8);
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf: value->type = MP_UINT; return take_number(bytes, 1u << (b - 0xcc), &value->number);
    case 0xd0: if (!take_number(bytes, 1, &n)) return false; set_signed(value, (int8_t)n); return true;
    case 0xd1: if (!take_number(bytes, 2, &n)) return false; set_signed(value, (int16_t)n); return true;
    case 0xd2: if (!take_number(bytes, 4, &n)) return false; set_signed(value, (int32_t)n); return true;
    case 0xd3: if (!take_number(bytes, 8, &n)) return false; set_signed(value, (int64_t)n); return true;
    case 0xd9:
    case 0xda:
    case 0xdb: return take_number(bytes, 1u << (b - 0xd9), &n) && read_data(bytes, value, MP_TEXT, n);
    case 0xdc:
    case 0xdd: return take_number(bytes, 2u << (b - 0xdc), &n) && read_items(bytes, value, MP_LIST, n, depth);
    case 0xde: return take_number(bytes, 2, &n) && read_items(bytes, value, MP_MAP, n, depth);
    default: return false; /* map32, extension types, 0xc1 */
    }
}

bool mp_read(mp_bytes *bytes, mp_value *value) { return read_at(bytes, value, 0); }

/* The pairs of a map have texts as keys, each once; the same within. */
static bool check_keys(const mp_value *value) {
    if (value->type != MP_MAP && value->type != MP_LIST) return true;
    mp_bytes rest = value->items, before;
    mp_value key, item, other, skipped;
    if (value->type == MP_MAP && value->number > PAIRS_MAX) return false;
    for (uint64_t k = 0; k < value->number; k++) {
        if (value->type == MP_MAP) {
            if (!mp_read(&rest, &key) || key.type != MP_TEXT) return false;
            before = value->items;
            for (uint64_t i = 0; i < k; i++) {
                if (!mp_read(&before, &other) || !mp_read(&before, &skipped)) return false;
                if (other.size == key.size && !memcmp(other.data, key.data, key.size)) return false;
            }
        }
        if (!mp_read(&rest, &item) || !check_keys(&item)) return false;
    }
    return true;
}

bool mp_read_message(const void *data, size_t size, mp_value *map) {
    if (size == 0) return false;
    mp_bytes bytes = {data, (const uint8_t *)data + size};
    return mp_read(&bytes, map) && bytes.at == bytes.end && map->type == MP_MAP && check_keys(map);
}

bool mp_is(const mp_value *value, const char *text) {
    size_t size = strlen(text);
    return value->type == MP_TEXT && value->size == size && !memcmp(value->data, text, size);
}

bool mp_get(const mp_value *map, const char *name, mp_value *value) {
    if (map->type != MP_MAP) return false;
    mp_bytes rest = map->items;
    mp_value key;
    for (uint64_t k = 0; k < map->number; k++) {
        if (!mp_read(&rest, &key) || !mp_read(&rest, value)) return false;
        if (mp_is(&key, name)) return true;
    }
    return false;
}

bool mp_get_typed(const mp_value *map, const char *key, mp_type type, mp_value *value) {
    return mp_get(map, key, value) && value->type == type;
}

bool mp_get_uint(const mp_value *map, const char *key, uint64_t most, uint64_t *number) {
    mp_value value;
    if (!mp_get_typed(map, key, MP_UINT, &value) || value.number > most) return false;
    *number = value.number;
    return true;
}

bool mp_real(const mp_value *value, double *number) {
    if (value->type == MP_FLOAT) *number = value->real;
    else if (value->type == MP_UINT) *number = (double)value->number;
    else if (value->type == MP_INT) *number = (double)value->negative;
    else return false;
    return isfinite(*number);
}

bool mp_get_real(const mp_value *map, const char *key, double *number) {
    mp_value value;
    return mp_get(map, key, &value) && mp_real(&value, number);
}

bool mp_get_bool(const mp_value *map, const char *key, bool *truth) {
    mp_value value;
    if (!mp_get_typed(map, key, MP_BOOL, &value)) return false;
    *truth = value.number != 0;
    return true;
}

void mp_copy_text(const mp_value *value, char *text, size_t room) {
    size_t size = value->size < room - 1 ? value->size : room - 1;
    for (size_t k = 0; k < size; k++) {
        uint8_t c = value->data[k];
        text[k] = (char)(c < 0x20 || c == 0x7f ? '?' : c);
    }
    text[size] = 0;
}

bool mp_get_text(const mp_value *map, const char *key, char *text, size_t room) {
    mp_value value;
    if (!mp_get_typed(map, key, MP_TEXT, &value)) return false;
    mp_copy_text(&value, text, room);
    return true;
}

static void put(mp_writer *w, uint8_t tag, uint64_t number, unsigned bytes) {
    if (w->full || w->room - w->size < 1u + bytes) {
        w->full = true;
        return;
    }
    w->data[w->size++] = tag;
    while (bytes--) w->data[w->size++] = (uint8_t)(number >> 8 * bytes);
}

void mp_put_map(mp_writer *w, unsigned pairs) { put(w, 0xde, pairs, 2); }
void mp_put_list(mp_writer *w, unsigned items) { put(w, 0xdc, items, 2); }
void mp_put_bool(mp_writer *w, bool truth) { put(w, truth ? 0xc3 : 0xc2, 0, 0); }

void mp_put_uint(mp_writer *w, uint64_t number) {
    if (number < 0x80) put(w, (uint8_t)number, 0, 0);
    else put(w, 0xcf, number, 8);
}

void mp_put_real(mp_writer *w, double number) {
    uint64_t bits;
    memcpy(&bits, &number, 8);
    put(w, 0xcb, bits, 8);
}

void mp_put_text(mp_writer *w, const char *text) {
    size_t size = strlen(text);
    if (size > 255) size = 255;
    put(w, 0xd9, size, 1);
    if (w->full || w->room - w->size < size) {
        w->full = true;
        return;
    }
    memcpy(w->data + w->size, text, size);
    w->size += size;
}
