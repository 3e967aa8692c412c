/* penstock.spark.kernel._native: the loops over records, from decompressed batches to the buffers of Arrow columns and back, and Kafka's hash of
   keys.

   Owns what is done once a record. Must never know of headers of batches, codecs, topics, or pyarrow: compiled.py gives it buffers, and
   makes arrays of those that it gives back. pure.py does the same in Python, and the same tests hold for both. */

#include "source.h"

/* ---- The partition of a key: Kafka's murmur2, which has a seed of its own. */

static uint32_t murmur2(const uint8_t *data, uint32_t length)
{
    const uint32_t m = 0x5bd1e995;
    uint32_t hash = 0x9747b28c ^ length;
    for (; length >= 4; data += 4, length -= 4) {
        uint32_t word = (data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24) * m;
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
            PyErr_SetString(PyExc_ValueError, "a key is not within its column");
    }
    drop(&out);
    close_source(&keys);
    return result;
}

/* ---- The module. */

static PyMethodDef methods[] = {
    {"decode", decode, METH_VARARGS, "decode(batches, start, end, with_headers): the buffers of Arrow columns"},
    {"encode", encode, METH_VARARGS, "encode(key, value, headers, rows, first, last, most): the bytes of records, and how many they are"},
    {"partitions", partitions, METH_VARARGS, "partitions(keys, count): the partition of each key, as int32"},
    {NULL, NULL, 0, NULL},
};

static int add_limits(PyObject *module)
{
    return PyModule_AddIntMacro(module, MAX_RECORD_HEADERS) < 0 || PyModule_AddIntMacro(module, MIN_RECORD_BYTES) < 0 ||
                   PyModule_AddIntMacro(module, RECORD_OVERHEAD) < 0 || PyModule_AddIntMacro(module, HEADER_OVERHEAD) < 0
               ? -1
               : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, add_limits}, {0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
