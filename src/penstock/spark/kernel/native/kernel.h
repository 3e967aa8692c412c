/* Growing buffers and varints, shared by decode.c and encode.c. module.c describes the kernel.

   Uses the stable ABI of Python 3.11, so one build serves all later versions. */

#ifndef PENSTOCK_KERNEL_H
#define PENSTOCK_KERNEL_H

#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* Equal to those in penstock.limits, which gives the reasons; a test compares them. */
#define MAX_RECORD_HEADERS 100000
#define MIN_RECORD_BYTES 7

/* Upper bounds of a record and of a header without key and value; equal to interface.py. */
#define RECORD_OVERHEAD 27
#define HEADER_OVERHEAD 10

/* A key or a value, in a record or in a column. */
typedef struct {
    const uint8_t *data;
    int64_t size; /* Negative for null. */
} Bytes;

/* ---- A bytearray that grows while it is filled. */

typedef struct {
    PyObject *array;
    char *data;
    Py_ssize_t used, room;
} Out;

static inline int reserve(Out *out, Py_ssize_t more)
{
    if (more <= out->room - out->used)
        return 0;
    if (more > PY_SSIZE_T_MAX / 4 - out->used) {
        PyErr_NoMemory();
        return -1;
    }
    Py_ssize_t room = out->used + more;
    if (room < 2 * out->room)
        room = 2 * out->room;
    if (out->array == NULL && (out->array = PyByteArray_FromStringAndSize(NULL, 0)) == NULL)
        return -1;
    if (PyByteArray_Resize(out->array, room) < 0)
        return -1;
    out->data = PyByteArray_AsString(out->array);
    out->room = room;
    return 0;
}

/* Returns the bytes written, and resets the Out. */
static inline PyObject *take(Out *out)
{
    PyObject *array = out->array ? out->array : PyByteArray_FromStringAndSize(NULL, 0);
    if (array && PyByteArray_Resize(array, out->used) < 0)
        Py_CLEAR(array);
    *out = (Out){0};
    return array;
}

static inline void drop(Out *out)
{
    Py_CLEAR(out->array);
}

static inline void put(Out *out, const void *data, Py_ssize_t size)
{
    if (size)
        memcpy(out->data + out->used, data, size);
    out->used += size;
}

static inline void put_int32(Out *out, int32_t value) { put(out, &value, sizeof value); }
static inline void put_int64(Out *out, int64_t value) { put(out, &value, sizeof value); }

/* ---- Zigzag varints. */

static inline int read_varint(const uint8_t **at, const uint8_t *end, int64_t *value)
{
    const uint8_t *next = *at;
    uint64_t bits = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (next >= end)
            return -1;
        uint8_t byte = *next++;
        if (shift == 63 && byte > 1)
            return -1;
        bits |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
            *at = next;
            return 0;
        }
    }
    return -1;
}

static inline uint64_t zigzag(int64_t value)
{
    return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
}

static inline int varint_size(int64_t value)
{
    int size = 1;
    for (uint64_t bits = zigzag(value); bits > 0x7f; bits >>= 7)
        size++;
    return size;
}

static inline void put_varint(Out *out, int64_t value)
{
    uint64_t bits = zigzag(value);
    while (bits > 0x7f) {
        out->data[out->used++] = (char)(bits | 0x80);
        bits >>= 7;
    }
    out->data[out->used++] = (char)bits;
}

PyObject *decode(PyObject *module, PyObject *args);
PyObject *encode(PyObject *module, PyObject *args);

#endif
