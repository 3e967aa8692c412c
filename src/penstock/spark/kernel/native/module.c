/* penstock.spark.kernel._native: converts between the records of decompressed batches and the
   buffers of Arrow columns, and hashes keys.

   Does the work per record. Knows nothing of batch headers, codecs, topics and pyarrow: compiled.py
   passes buffers in, and makes arrays of the buffers it gets back. pure.py does the same in Python,
   and both pass the same tests. */

#include "source.h"

/* ---- The partition of a key: murmur2 with Kafka's seed. */

static uint32_t murmur2(const uint8_t *data, uint32_t length)
{
    const uint32_t m = 0x5bd1e995;
    uint32_t hash = 0x9747b28c ^ length;
    for (; length >= 4; data += 4, length -= 4) {
        uint32_t word = (data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                         (uint32_t)data[3] << 24) * m;
        hash = hash * m ^ (word ^ word >> 24) * m;
    }
    if (length) {
        for (uint32_t i = 0; i < length; i++)
            hash ^= (uint32_t)data[i] << 8 * i;
        hash *= m;
    }
    hash = (hash ^ hash >> 13) * m;
    return hash ^ hash >> 15;
}

static PyObject *partitions(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *object, *result = NULL;
    int count;
    Source keys;
    Out out = {0};
    if (!PyArg_ParseTuple(args, "Oi", &object, &count))
        return NULL;
    if (count < 1) {
        PyErr_SetString(PyExc_ValueError, "a topic has at least one partition");
        return NULL;
    }
    if (open_source(object, &keys) == 0 && reserve(&out, keys.length * 4) == 0) {
        Py_ssize_t row = 0;
        Bytes key;
        while (row < keys.length && bytes_at(&keys, row, &key) == 0) {
            uint32_t hash = key.size < 0 ? 0 : murmur2(key.data, (uint32_t)key.size);
            put_int32(&out, (int32_t)((hash & 0x7fffffff) % (uint32_t)count));
            row++;
        }
        if (row == keys.length)
            result = take(&out);
        else
            PyErr_SetString(PyExc_ValueError, "a key is outside of its column");
    }
    drop(&out);
    close_source(&keys);
    return result;
}

/* ---- The module. */

static PyMethodDef methods[] = {
    {"decode", decode, METH_VARARGS,
     "decode(batches, start, end, with_headers): return the buffers of Arrow columns"},
    {"encode", encode, METH_VARARGS,
     "encode(key, value, headers, rows, first, last, max_bytes): return records and their count"},
    {"partitions", partitions, METH_VARARGS,
     "partitions(keys, count): return the partition of each key as int32"},
    {NULL, NULL, 0, NULL},
};

static int add_limits(PyObject *module)
{
    if (PyModule_AddIntMacro(module, MAX_RECORD_HEADERS) < 0 ||
        PyModule_AddIntMacro(module, MIN_RECORD_BYTES) < 0 ||
        PyModule_AddIntMacro(module, RECORD_OVERHEAD) < 0 ||
        PyModule_AddIntMacro(module, HEADER_OVERHEAD) < 0)
        return -1;
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, add_limits}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
