/* Decodes the records of decompressed batches into the buffers of Arrow columns. Every length in a
   record is checked before it is used. */

#include "kernel.h"

/* ---- Records. */

typedef struct {
    int64_t time_delta, offset_delta, header_count;
    Bytes key, value;
    const uint8_t *headers, *end;
} Record;

static inline int read_bytes(const uint8_t **at, const uint8_t *end, Bytes *bytes)
{
    if (read_varint(at, end, &bytes->size) < 0 || bytes->size > end - *at)
        return -1;
    bytes->data = *at;
    if (bytes->size > 0)
        *at += bytes->size;
    return 0;
}

static int read_header(const uint8_t **at, const uint8_t *end, Bytes *key, Bytes *value)
{
    return read_bytes(at, end, key) < 0 || key->size < 0 || read_bytes(at, end, value) < 0 ? -1 : 0;
}

/* Returns NULL, or the reason why the record is invalid. */
static const char *read_record(const uint8_t **at, const uint8_t *payload_end, Record *record)
{
    int64_t length;
    if (read_varint(at, payload_end, &length) < 0)
        return "its length is not a valid varint";
    if (length < 1 || length > payload_end - *at)
        return "its length exceeds the bytes that are left";
    const uint8_t *next = *at + 1; /* Skips the attributes, which are unused. */
    const uint8_t *end = record->end = *at + length;
    if (read_varint(&next, end, &record->time_delta) < 0 ||
        read_varint(&next, end, &record->offset_delta) < 0)
        return "its timestamp or offset is not a valid varint";
    if (read_bytes(&next, end, &record->key) < 0)
        return "its key exceeds its length";
    if (read_bytes(&next, end, &record->value) < 0)
        return "its value exceeds its length";
    if (read_varint(&next, end, &record->header_count) < 0)
        return "its header count is not a valid varint";
    int64_t most = (end - next) / 2; /* A header has at least two bytes. */
    if (record->header_count < 0 || record->header_count > most ||
        record->header_count > MAX_RECORD_HEADERS)
        return "its header count exceeds its length";
    record->headers = next;
    for (int64_t i = 0; i < record->header_count; i++) {
        Bytes key, value;
        if (read_header(&next, end, &key, &value) < 0)
            return "a header exceeds its length";
    }
    if (next != end)
        return "its fields are shorter than its length";
    *at = end;
    return NULL;
}

/* ---- Columns: one Out per buffer of Arrow's layout. */

typedef struct {
    Out validity, offsets, data;
    int64_t rows, nulls;
} BinaryColumn;

typedef struct {
    Out offset, timestamp, timestamp_type;
    BinaryColumn key, value;
    BinaryColumn lists; /* Lists of headers: offsets into the two columns below, without data. */
    BinaryColumn header_key, header_value;
    int64_t start, end;
    int with_headers;
} Columns;

/* Reserves room for rows with this many bytes in all. */
static int reserve_rows(BinaryColumn *column, int64_t rows, Py_ssize_t bytes)
{
    if (bytes > INT32_MAX - column->data.used || rows > INT32_MAX - column->rows) {
        PyErr_SetString(PyExc_OverflowError, "an Arrow column cannot hold more than 2 GB");
        return -1;
    }
    Py_ssize_t bitmap = (Py_ssize_t)((column->rows + rows + 7) / 8) - column->validity.used;
    if (bitmap > 0) {
        if (reserve(&column->validity, bitmap) < 0)
            return -1;
        memset(column->validity.data + column->validity.used, 0, bitmap);
        column->validity.used += bitmap;
    }
    if (reserve(&column->offsets, (Py_ssize_t)(rows + 1) * 4) < 0 ||
        reserve(&column->data, bytes) < 0)
        return -1;
    if (column->offsets.used == 0)
        put_int32(&column->offsets, 0);
    return 0;
}

static inline void end_row(BinaryColumn *column, int valid, int32_t end)
{
    if (valid)
        column->validity.data[column->rows >> 3] |= (char)(1 << (column->rows & 7));
    else
        column->nulls++;
    column->rows++;
    put_int32(&column->offsets, end);
}

static inline void put_row(BinaryColumn *column, const Bytes *bytes)
{
    if (bytes->size > 0)
        put(&column->data, bytes->data, (Py_ssize_t)bytes->size);
    end_row(column, bytes->size >= 0, (int32_t)column->data.used);
}

static int put_headers(Columns *columns, const Record *record)
{
    Py_ssize_t bytes = record->end - record->headers;
    if (reserve_rows(&columns->header_key, record->header_count, bytes) < 0 ||
        reserve_rows(&columns->header_value, record->header_count, bytes) < 0)
        return -1;
    const uint8_t *next = record->headers;
    for (int64_t i = 0; i < record->header_count; i++) {
        Bytes key, value;
        if (read_header(&next, record->end, &key, &value) < 0)
            break; /* Unreachable: read_record has checked the headers. */
        put_row(&columns->header_key, &key);
        put_row(&columns->header_value, &value);
    }
    end_row(&columns->lists, record->header_count > 0, (int32_t)columns->header_key.rows);
    return 0;
}

/* ---- Batches. */

typedef struct {
    Py_buffer records;
    long long base_offset, base_timestamp, max_timestamp;
    int append_time, last_offset_delta, count;
} Batch;

static int refuse(const Batch *batch, int index, const char *reason)
{
    PyObject *text = PyUnicode_FromFormat("record %d of the batch is corrupt: %s", index, reason);
    PyObject *values = text ? Py_BuildValue("(LN)", batch->base_offset, text) : NULL;
    if (values) {
        PyErr_SetObject(PyExc_ValueError, values);
        Py_DECREF(values);
    }
    return -1;
}

static int reserve_batch(Columns *columns, const Batch *batch)
{
    int64_t rows = batch->count;
    if (rows > columns->end - columns->start)
        rows = columns->end - columns->start;
    Py_ssize_t bytes = batch->records.len;
    if (reserve(&columns->offset, rows * 8) < 0 || reserve(&columns->timestamp, rows * 8) < 0 ||
        reserve(&columns->timestamp_type, rows * 4) < 0 ||
        reserve_rows(&columns->key, rows, bytes) < 0 ||
        reserve_rows(&columns->value, rows, bytes) < 0)
        return -1;
    return columns->with_headers ? reserve_rows(&columns->lists, rows, 0) : 0;
}

/* Returns -1 if the timestamp in microseconds exceeds an int64. */
static inline int microseconds(const Batch *batch, const Record *record, int selected, int64_t *us)
{
    int64_t ms = batch->max_timestamp;
    if (!batch->append_time &&
        __builtin_add_overflow((int64_t)batch->base_timestamp, record->time_delta, &ms))
        return -1;
    return selected && __builtin_mul_overflow(ms, (int64_t)1000, us) ? -1 : 0;
}

static int decode_batch(Columns *columns, const Batch *batch)
{
    const uint8_t *next = batch->records.buf, *end = next + batch->records.len;
    if (batch->count < 1 || batch->count > batch->records.len / MIN_RECORD_BYTES)
        return refuse(batch, 0, "the record count exceeds the bytes of the batch");
    if (batch->base_offset < 0 || batch->base_offset > INT64_MAX - INT32_MAX - 1)
        return refuse(batch, 0, "the base offset is out of range");
    if (reserve_batch(columns, batch) < 0)
        return -1;
    int64_t last_delta = -1;
    for (int i = 0; i < batch->count; i++) {
        Record record;
        const char *wrong = read_record(&next, end, &record);
        if (wrong)
            return refuse(batch, i, wrong);
        if (record.offset_delta <= last_delta || record.offset_delta > batch->last_offset_delta)
            return refuse(batch, i, "its offset is not above the previous and within the batch");
        last_delta = record.offset_delta;
        int64_t offset = batch->base_offset + record.offset_delta, us = 0;
        int selected = columns->start <= offset && offset < columns->end;
        if (microseconds(batch, &record, selected, &us) < 0)
            return refuse(batch, i, "its timestamp in microseconds exceeds 64 bits");
        if (!selected)
            continue;
        put_int64(&columns->offset, offset);
        put_int64(&columns->timestamp, us);
        put_int32(&columns->timestamp_type, batch->append_time);
        put_row(&columns->key, &record.key);
        put_row(&columns->value, &record.value);
        if (columns->with_headers && put_headers(columns, &record) < 0)
            return -1;
    }
    if (next != end)
        return refuse(batch, batch->count - 1, "bytes are left after the last record");
    return 0;
}

/* ---- Python interface. */

static PyObject *take_column(BinaryColumn *column)
{
    if (reserve_rows(column, 0, 0) < 0) /* Arrow requires one offset even without rows. */
        return NULL;
    PyObject *validity = take(&column->validity), *offsets = take(&column->offsets);
    PyObject *data = take(&column->data);
    long long rows = column->rows, nulls = column->nulls;
    return Py_BuildValue("(LLNNN)", rows, nulls, validity, offsets, data);
}

static PyObject *take_columns(Columns *columns)
{
    PyObject *offset = take(&columns->offset), *timestamp = take(&columns->timestamp);
    PyObject *type = take(&columns->timestamp_type);
    PyObject *key = take_column(&columns->key), *value = take_column(&columns->value);
    if (!columns->with_headers)
        return Py_BuildValue("(NNNNNO)", key, value, offset, timestamp, type, Py_None);
    PyObject *lists = take_column(&columns->lists);
    PyObject *header_key = take_column(&columns->header_key);
    PyObject *header_value = take_column(&columns->header_value);
    return Py_BuildValue("(NNNNN(NNN))", key, value, offset, timestamp, type, lists, header_key,
                         header_value);
}

static void drop_column(BinaryColumn *column)
{
    drop(&column->validity);
    drop(&column->offsets);
    drop(&column->data);
}

static void drop_columns(Columns *columns)
{
    drop(&columns->offset);
    drop(&columns->timestamp);
    drop(&columns->timestamp_type);
    drop_column(&columns->key);
    drop_column(&columns->value);
    drop_column(&columns->lists);
    drop_column(&columns->header_key);
    drop_column(&columns->header_value);
}

static int decode_item(Columns *columns, PyObject *item)
{
    Batch batch = {0};
    if (!PyArg_ParseTuple(item, "y*LLLpii", &batch.records, &batch.base_offset,
                          &batch.base_timestamp, &batch.max_timestamp, &batch.append_time,
                          &batch.last_offset_delta, &batch.count))
        return -1;
    int result = decode_batch(columns, &batch);
    PyBuffer_Release(&batch.records);
    return result;
}

PyObject *decode(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *batches;
    long long start, end;
    Columns columns = {0};
    if (!PyArg_ParseTuple(args, "O!LLp", &PyList_Type, &batches, &start, &end,
                          &columns.with_headers))
        return NULL;
    if (start < 0 || end < start) {
        PyErr_SetString(PyExc_OverflowError, "0 <= start <= end is required");
        return NULL;
    }
    columns.start = start;
    columns.end = end;
    for (Py_ssize_t i = 0; i < PyList_Size(batches); i++) {
        if (decode_item(&columns, PyList_GetItem(batches, i)) < 0) {
            drop_columns(&columns);
            return NULL;
        }
    }
    PyObject *result = take_columns(&columns);
    drop_columns(&columns);
    return result;
}
