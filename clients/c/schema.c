#include "run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MAX 4096
#define DIMS_MAX 8
#define ROW_BYTES_MAX ((size_t)1 << 30) /* the wire: 4 GiB */

bool vd_fail(char *why, size_t room, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, room, format, arguments);
    va_end(arguments);
    return false;
}

bool vd_explain(char *why, const char *format, ...) {
    va_list arguments;
    if (*why) return false;
    va_start(arguments, format);
    vsnprintf(why, WHY_MAX, format, arguments);
    va_end(arguments);
    return false;
}

static size_t width_of(const char *type) {
    static const char *const types[] = {"?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"};
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        if (!strcmp(type, types[k])) return k ? (size_t)(type[1] - '0') : 1;
    return 0;
}

static bool read_dims(mp_bytes *fields, run_column *column) {
    mp_value dims, dim;
    if (!mp_read(fields, &dims) || dims.type != MP_LIST || dims.number > DIMS_MAX) return false;
    column->count = 1;
    for (uint64_t k = 0; k < dims.number; k++) {
        if (!mp_read(&dims.items, &dim) || dim.type != MP_UINT || dim.number < 1) return false;
        if (dim.number > ROW_BYTES_MAX / column->count / column->width) return false;
        column->count *= (size_t)dim.number;
    }
    column->bytes = column->count * column->width;
    return true;
}

static bool read_column(mp_bytes *bytes, run_column *column) {
    mp_value item, name, type, low, high, role;
    if (!mp_read(bytes, &item) || item.type != MP_LIST || item.number < 5 || item.number > 6) return false;
    mp_bytes *fields = &item.items;
    if (!mp_read(fields, &name) || name.type != MP_TEXT || name.size < 1 || name.size > 128) return false;
    if (!mp_read(fields, &type) || type.type != MP_TEXT || type.size > 2) return false;
    mp_copy_text(&name, column->name, sizeof column->name);
    mp_copy_text(&type, column->type, sizeof column->type);
    column->width = width_of(column->type);
    if (!column->width || !read_dims(fields, column)) return false;
    if (!mp_read(fields, &low) || !mp_read(fields, &high)) return false; /* the learner holds us to them */
    column->high = high.type == MP_UINT ? high.number : 0;
    if (item.number == 5) return true;
    column->role = mp_read(fields, &role) && mp_is(&role, "place") ? PLACE : SHARED;
    return column->role == PLACE || mp_is(&role, "shared");
}

bool vd_read_schema(const mp_value *payload, const char *key, run_schema *schema, char *why, size_t room) {
    char hash[16];
    mp_value list;
    snprintf(hash, sizeof hash, "%s_hash", key);
    if (!mp_get_typed(payload, key, MP_LIST, &list) || list.number < 1 || list.number > COLUMNS_MAX)
        return vd_fail(why, room, "the run has no %s", key);
    if (!mp_get_text(payload, hash, schema->hash, sizeof schema->hash) || strlen(schema->hash) != 16)
        return vd_fail(why, room, "the run has no %s: the learner is of an older release", hash);
    schema->columns = calloc((size_t)list.number, sizeof *schema->columns);
    if (!schema->columns) return vd_fail(why, room, "out of memory");
    schema->count = (unsigned)list.number;
    for (unsigned k = 0; k < schema->count; k++) {
        run_column *column = schema->columns + k;
        if (!read_column(&list.items, column))
            return vd_fail(why, room, "column %u of the run's %s is none that this client knows", k, key);
        column->offset = column->sent_offset = schema->bytes;
        if (column->role != SHARED) schema->bytes += (column->bytes + 7) / 8 * 8;
        if (schema->bytes > ROW_BYTES_MAX) return vd_fail(why, room, "the run's %s is too large", key);
    }
    schema->sent_bytes = schema->bytes;
    return true;
}

void vd_widen_schema(run_schema *schema) {
    schema->bytes = 0;
    for (unsigned k = 0; k < schema->count; k++) {
        run_column *column = schema->columns + k;
        if (!strcmp(column->type, "f2")) {
            column->half = true;
            strcpy(column->type, "f4");
            column->width = 4;
            column->bytes = 4 * column->count;
        }
        column->offset = schema->bytes;
        schema->bytes += (column->bytes + 7) / 8 * 8;
    }
}

bool vd_find_column(const run_schema *schema, const char *name, unsigned *index) {
    for (*index = 0; *index < schema->count; ++*index)
        if (!strcmp(schema->columns[*index].name, name)) return true;
    return false;
}

bool vd_same_schema(const run_schema *a, const run_schema *b) {
    bool same = a->count == b->count && !strcmp(a->hash, b->hash);
    for (unsigned k = 0; same && k < a->count; k++) {
        const run_column *x = a->columns + k, *y = b->columns + k;
        same = x->role == y->role && x->count == y->count && x->half == y->half && !strcmp(x->type, y->type) && !strcmp(x->name, y->name);
    }
    return same;
}
