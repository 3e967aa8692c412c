/* Encodes the buffers of Arrow columns as the records of a batch, before compression. */

#include "source.h"

typedef struct {
    Source key, value, lists, header_key, header_value;
} Sources;

static inline int64_t bytes_size(const Bytes *bytes)
{
    return bytes->size < 0 ? 1 : varint_size(bytes->size) + bytes->size;
}

static inline void put_bytes(Out *out, const Bytes *bytes)
{
    put_varint(out, bytes->size);
    if (bytes->size > 0)
        put(out, bytes->data, (Py_ssize_t)bytes->size);
}

static int invalid(const char *reason)
{
    PyErr_SetString(PyExc_ValueError, reason);
    return -1;
}

static int header_range(const Sources *sources, Py_ssize_t row, int32_t *from, int32_t *to)
{
    *from = *to = 0;
    if (!sources->lists.present)
        return 0;
    if (row < 0 || row >= sources->lists.length)
        return invalid("a row is outside of the column of headers");
    if (is_null(&sources->lists, row))
        return 0;
    Py_ssize_t most = sources->header_key.length;
    if (sources->header_value.length < most)
        most = sources->header_value.length;
    if (range_at(&sources->lists, row, most, from, to) < 0)
        return invalid("a list of headers is outside of its column");
    return *to - *from > MAX_RECORD_HEADERS ? invalid("a record has more than 100000 headers") : 0;
}

static int header_at(const Sources *sources, Py_ssize_t at, Bytes *key, Bytes *value)
{
    if (bytes_at(&sources->header_key, at, key) < 0 ||
        bytes_at(&sources->header_value, at, value) < 0)
        return invalid("a header is outside of its column");
    return key->size < 0 ? invalid("a header has no key") : 0;
}

/* Returns 1 if the record was written, 0 if it may not fit into the room that is left, and -1 on
   error. The first record is written even if it does not fit. */
static int encode_record(Out *out, const Sources *sources, Py_ssize_t row, int32_t delta,
                         int64_t *room)
{
    Bytes key, value, name, content;
    int32_t from, to;
    if (row < 0)
        return invalid("a row index is negative");
    if (bytes_at(&sources->key, row, &key) < 0 || bytes_at(&sources->value, row, &value) < 0)
        return invalid("a row is outside of its column");
    if (header_range(sources, row, &from, &to) < 0)
        return -1;
    int64_t body =
        2 + varint_size(delta) + bytes_size(&key) + bytes_size(&value) + varint_size(to - from);
    int64_t bound =
        RECORD_OVERHEAD + (key.size > 0 ? key.size : 0) + (value.size > 0 ? value.size : 0);
    for (int32_t at = from; at < to; at++) {
        if (header_at(sources, at, &name, &content) < 0)
            return -1;
        body += bytes_size(&name) + bytes_size(&content);
        bound += HEADER_OVERHEAD + name.size + (content.size > 0 ? content.size : 0);
    }
    if (bound > INT32_MAX)
        return invalid("a record is larger than 2 GB");
    *room -= bound;
    if (delta > 0 && *room < 0)
        return 0;
    if (reserve(out, (Py_ssize_t)bound) < 0)
        return -1;
    put_varint(out, body);
    /* Unused attributes, and a timestamp delta of 0: all records have the batch's timestamp. */
    put(out, "\0\0", 2);
    put_varint(out, delta);
    put_bytes(out, &key);
    put_bytes(out, &value);
    put_varint(out, to - from);
    for (int32_t at = from; at < to; at++) {
        if (header_at(sources, at, &name, &content) < 0)
            return -1;
        put_bytes(out, &name);
        put_bytes(out, &content);
    }
    return 1;
}

static PyObject *encode_rows(const Sources *sources, const Py_buffer *rows, Py_ssize_t first,
                             Py_ssize_t last, int64_t room)
{
    if (first < 0 || last - first > INT32_MAX || (rows->buf && last > rows->len / 8)) {
        PyErr_SetString(PyExc_ValueError, "the range of rows is invalid");
        return NULL;
    }
    Out out = {0};
    Py_ssize_t at = first;
    for (; at < last; at++) {
        int64_t row = at;
        if (rows->buf)
            memcpy(&row, (const char *)rows->buf + at * 8, 8);
        int written = encode_record(&out, sources, (Py_ssize_t)row, (int32_t)(at - first), &room);
        if (written < 0) {
            drop(&out);
            return NULL;
        }
        if (!written)
            break;
    }
    return Py_BuildValue("(Nn)", take(&out), at - first);
}

PyObject *encode(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *key, *value, *lists, *header_key, *header_value, *result = NULL;
    Py_buffer rows;
    Py_ssize_t first, last, max_bytes;
    if (!PyArg_ParseTuple(args, "OO(OOO)z*nnn", &key, &value, &lists, &header_key, &header_value,
                          &rows, &first, &last, &max_bytes))
        return NULL;
    Sources sources;
    memset(&sources, 0, sizeof sources);
    if (open_source(key, &sources.key) == 0 && open_source(value, &sources.value) == 0 &&
        open_source(lists, &sources.lists) == 0 &&
        open_source(header_key, &sources.header_key) == 0 &&
        open_source(header_value, &sources.header_value) == 0)
        result = encode_rows(&sources, &rows, first, last, max_bytes);
    close_source(&sources.key);
    close_source(&sources.value);
    close_source(&sources.lists);
    close_source(&sources.header_key);
    close_source(&sources.header_value);
    PyBuffer_Release(&rows);
    return result;
}
