/* The part of msgpack that the wire uses, read and written within given bounds. */
#ifndef VEDETTE_MSGPACK_H
#define VEDETTE_MSGPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that are still to be read. */
typedef struct {
    const uint8_t *at, *end;
} mp_bytes;

typedef enum { MP_NIL, MP_BOOL, MP_UINT, MP_INT, MP_FLOAT, MP_TEXT, MP_BINARY, MP_LIST, MP_MAP } mp_type;

typedef struct {
    mp_type type;
    uint64_t number;     /* of MP_BOOL and MP_UINT; items of a list, pairs of a map */
    int64_t negative;    /* of MP_INT, which is below 0 */
    double real;         /* of MP_FLOAT */
    const uint8_t *data; /* of MP_TEXT and MP_BINARY */
    size_t size;
    mp_bytes items;      /* of MP_LIST and MP_MAP: what follows */
} mp_value;

/* Read one value and move past it: a list or map whole. False: it is not all there, or nested too
 * deep, or of a type that the wire does not have. */
bool mp_read(mp_bytes *bytes, mp_value *value);

/* Read a message: one map whose keys are different texts, here and in all maps within. */
bool mp_read_message(const void *data, size_t size, mp_value *map);

/* The value of a key; false: it is not there. */
bool mp_get(const mp_value *map, const char *key, mp_value *value);

/* The value of a key if it is what is asked for; false otherwise. */
bool mp_get_uint(const mp_value *map, const char *key, uint64_t most, uint64_t *number);
bool mp_get_real(const mp_value *map, const char *key, double *number); /* finite; integers too */
bool mp_get_bool(const mp_value *map, const char *key, bool *truth);
bool mp_get_typed(const mp_value *map, const char *key, mp_type type, mp_value *value);
/* Copies at most `room` - 1 bytes and a zero; control characters become '?'. */
bool mp_get_text(const mp_value *map, const char *key, char *text, size_t room);
bool mp_real(const mp_value *value, double *number);
bool mp_is(const mp_value *value, const char *text);
void mp_copy_text(const mp_value *value, char *text, size_t room);

/* Written bytes; `full` once something did not fit. */
typedef struct {
    uint8_t *data;
    size_t size, room;
    bool full;
} mp_writer;

void mp_put_map(mp_writer *w, unsigned pairs);
void mp_put_list(mp_writer *w, unsigned items);
void mp_put_text(mp_writer *w, const char *text);
void mp_put_uint(mp_writer *w, uint64_t number);
void mp_put_real(mp_writer *w, double number);
void mp_put_bool(mp_writer *w, bool truth);

#endif
