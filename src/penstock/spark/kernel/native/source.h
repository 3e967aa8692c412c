/* An Arrow column as input of the kernel. Every offset in it is checked before it is used. */

#ifndef PENSTOCK_SOURCE_H
#define PENSTOCK_SOURCE_H

#include "kernel.h"

typedef struct {
    Py_buffer validity, offsets, data;
    Py_ssize_t shift, length; /* The first row is at `shift`: an array may be a slice. */
    int present;
} Source;

/* None stands for a column of nulls. */
static inline int open_source(PyObject *object, Source *source)
{
    memset(source, 0, sizeof *source);
    if (object == Py_None)
        return 0;
    if (!PyTuple_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "a column must be a tuple: buffers, first row, length");
        return -1;
    }
    if (!PyArg_ParseTuple(object, "z*z*z*nn", &source->validity, &source->offsets, &source->data,
                          &source->shift, &source->length))
        return -1;
    source->present = 1;
    Py_ssize_t most = PY_SSIZE_T_MAX / 8;
    if (source->shift < 0 || source->length < 0 || source->shift > most || source->length > most ||
        (source->length && source->offsets.len / 4 < source->shift + source->length + 1) ||
        (source->validity.buf && source->validity.len < (source->shift + source->length + 7) / 8)) {
        PyErr_SetString(PyExc_ValueError, "the buffers of a column are shorter than its rows");
        return -1;
    }
    return 0;
}

static inline void close_source(Source *source)
{
    if (source->present) {
        PyBuffer_Release(&source->validity);
        PyBuffer_Release(&source->offsets);
        PyBuffer_Release(&source->data);
    }
    source->present = 0;
}

static inline int32_t int32_at(const Py_buffer *buffer, Py_ssize_t index)
{
    int32_t value;
    memcpy(&value, (const char *)buffer->buf + index * 4, 4);
    return value;
}

static inline int is_null(const Source *source, Py_ssize_t row)
{
    Py_ssize_t bit = source->shift + row;
    const uint8_t *bitmap = source->validity.buf;
    return !source->present || (bitmap && !(bitmap[bit >> 3] >> (bit & 7) & 1));
}

/* Sets the start and end of a row; -1 if they are invalid or beyond `most`. */
static inline int range_at(const Source *source, Py_ssize_t row, Py_ssize_t most, int32_t *from,
                           int32_t *to)
{
    if (row < 0 || row >= source->length)
        return -1;
    *from = int32_at(&source->offsets, source->shift + row);
    *to = int32_at(&source->offsets, source->shift + row + 1);
    return *from < 0 || *to < *from || *to > most ? -1 : 0;
}

static inline int bytes_at(const Source *source, Py_ssize_t row, Bytes *bytes)
{
    bytes->data = NULL;
    bytes->size = -1;
    if (!source->present)
        return 0;
    int32_t from, to;
    if (range_at(source, row, source->data.len, &from, &to) < 0)
        return -1;
    if (!is_null(source, row)) {
        bytes->data = (const uint8_t *)source->data.buf + from;
        bytes->size = to - from;
    }
    return 0;
}

#endif
