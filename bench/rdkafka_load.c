/* The load generator of bench/load.py: uses the librdkafka of confluent-kafka's wheel from C, so that Python is not the bottleneck.
 *
 * The wheel has no headers, so the functions used are declared here. Results are printed to stdout as numbers, errors to stderr.
 *
 *   rdkafka_load produce BOOTSTRAP TOPIC SIZE COUNT [name=value ...]          prints: seconds
 *   rdkafka_load consume BOOTSTRAP TOPIC PARTITIONS COUNT [name=value ...]    prints: seconds, bytes of values
 *   rdkafka_load latency BOOTSTRAP TOPIC PARTITIONS SIZE RATE SECONDS [name=value ...]
 *                                       prints: p50, p99, p99.9, worst, in ms; records; seconds behind
 *   rdkafka_load transactions BOOTSTRAP TOPIC PARTITIONS SIZE RECORDS COUNT ABORTED [name=value ...]
 *                                       COUNT transactions of RECORDS records each, over all partitions in turn; every ABORTED-th is
 *                                       aborted, none with 0; prints: seconds, without the first transaction
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_error_s rd_kafka_error_t;
typedef struct rd_kafka_topic_partition_list_s rd_kafka_topic_partition_list_t;
typedef struct {
    int err;
    rd_kafka_topic_t *topic;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *opaque;
} rd_kafka_message_t;

enum { PRODUCER = 0, CONSUMER = 1, COPY = 2, ANY_PARTITION = -1, OFFSET_END = -1 };

rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *, void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
rd_kafka_t *rd_kafka_new(int, rd_kafka_conf_t *, char *, size_t);
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *, rd_kafka_topic_conf_t *);
int rd_kafka_produce(rd_kafka_topic_t *, int32_t, int, void *, size_t, const void *, size_t, void *);
int rd_kafka_poll(rd_kafka_t *, int);
int rd_kafka_poll_set_consumer(rd_kafka_t *);
int rd_kafka_flush(rd_kafka_t *, int);
rd_kafka_topic_partition_list_t *rd_kafka_topic_partition_list_new(int);
void *rd_kafka_topic_partition_list_add(rd_kafka_topic_partition_list_t *, const char *, int32_t);
int rd_kafka_topic_partition_list_set_offset(rd_kafka_topic_partition_list_t *, const char *, int32_t, int64_t);
int rd_kafka_assign(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
rd_kafka_queue_t *rd_kafka_queue_get_consumer(rd_kafka_t *);
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t);
void rd_kafka_message_destroy(rd_kafka_message_t *);
const char *rd_kafka_err2str(int);
rd_kafka_error_t *rd_kafka_init_transactions(rd_kafka_t *, int);
rd_kafka_error_t *rd_kafka_begin_transaction(rd_kafka_t *);
rd_kafka_error_t *rd_kafka_commit_transaction(rd_kafka_t *, int);
rd_kafka_error_t *rd_kafka_abort_transaction(rd_kafka_t *, int);
const char *rd_kafka_error_string(const rd_kafka_error_t *);

#define BATCH 1000
#define STALLED_US 60000000L

static long acknowledged;

static long now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}

static void fail(const char *text) {
    fprintf(stderr, "%s\n", text);
    exit(1);
}

static void delivered(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client;
    (void)opaque;
    if (message->err) fail(rd_kafka_err2str(message->err));
    acknowledged++;
}

static rd_kafka_t *client(int kind, const char *bootstrap, const char *const *own, int count, char **settings) {
    char text[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "bootstrap.servers", bootstrap, text, sizeof text);
    for (; *own; own += 2)
        if (rd_kafka_conf_set(conf, own[0], own[1], text, sizeof text)) fail(text);
    for (int i = 0; i < count; i++) {
        char *value = strchr(settings[i], '=');
        if (!value) fail("a setting is name=value");
        *value = 0;
        if (rd_kafka_conf_set(conf, settings[i], value + 1, text, sizeof text)) fail(text);
        *value = '=';
    }
    if (kind == PRODUCER) rd_kafka_conf_set_dr_msg_cb(conf, delivered);
    rd_kafka_t *made = rd_kafka_new(kind, conf, text, sizeof text);
    if (!made) fail(text);
    return made;
}

static rd_kafka_queue_t *assigned(const char *bootstrap, const char *topic, int partitions, int64_t offset, int count, char **settings) {
    /* librdkafka requires a group.id even if the consumer joins no group. */
    static const char *const own[] = {"group.id", "bench", "enable.auto.commit", "false", NULL};
    rd_kafka_t *consumer = client(CONSUMER, bootstrap, own, count, settings);
    rd_kafka_poll_set_consumer(consumer);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(partitions);
    for (int i = 0; i < partitions; i++) {
        rd_kafka_topic_partition_list_add(list, topic, i);
        rd_kafka_topic_partition_list_set_offset(list, topic, i, offset);
    }
    if (rd_kafka_assign(consumer, list)) fail("cannot assign");
    return rd_kafka_queue_get_consumer(consumer);
}

static int produce(int argc, char **argv) {
    static const char *const own[] = {"queue.buffering.max.messages", "1000000", "queue.buffering.max.kbytes", "1000000", NULL};
    size_t size = strtoul(argv[4], NULL, 10);
    long count = atol(argv[5]);
    char *value = malloc(size);
    rd_kafka_t *producer = client(PRODUCER, argv[2], own, argc - 6, argv + 6);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(producer, argv[3], NULL);
    for (size_t i = 0; i < size; i++) value[i] = (char)('a' + rand() % 26);
    long started = now_us();
    for (long i = 0; i < count; i++) {
        while (rd_kafka_produce(topic, ANY_PARTITION, COPY, value, size, NULL, 0, NULL) == -1) rd_kafka_poll(producer, 10);
        if (i % 1000 == 0) rd_kafka_poll(producer, 0);
    }
    rd_kafka_flush(producer, 120000);
    double seconds = (double)(now_us() - started) / 1e6;
    if (acknowledged != count) fail("some records were not acknowledged");
    printf("%f\n", seconds);
    return 0;
}

static int consume(int argc, char **argv) {
    long count = atol(argv[5]), seen = 0, bytes = 0, started = now_us(), moved = started;
    rd_kafka_queue_t *queue = assigned(argv[2], argv[3], atoi(argv[4]), 0, argc - 6, argv + 6);
    static rd_kafka_message_t *some[BATCH];
    while (seen < count) {
        ssize_t found = rd_kafka_consume_batch_queue(queue, 100, some, BATCH);
        if (found > 0) moved = now_us();
        if (now_us() - moved > STALLED_US) fail("no record arrived for a minute");
        for (ssize_t i = 0; i < found; i++) {
            if (some[i]->err) fail(rd_kafka_err2str(some[i]->err));
            bytes += (long)some[i]->len;
            seen++;
            rd_kafka_message_destroy(some[i]);
        }
    }
    printf("%f %ld\n", (double)(now_us() - started) / 1e6, bytes);
    return 0;
}

static rd_kafka_queue_t *latency_queue;
static long *latencies, wanted, measured;
static volatile int ready;

/* The first record (timestamp -1) shows that the consumer is ready. Records of the first second (timestamp 0) are warm-up and not counted. */
static void *receive(void *unused) {
    rd_kafka_message_t *some[BATCH];
    long moved = now_us();
    while (measured < wanted && now_us() - moved < STALLED_US) {
        ssize_t found = rd_kafka_consume_batch_queue(latency_queue, 100, some, ready ? 1 : BATCH);
        for (ssize_t i = 0; i < found; i++) {
            long sent = 0, now = now_us();
            if (some[i]->err) fail(rd_kafka_err2str(some[i]->err));
            memcpy(&sent, some[i]->payload, sizeof sent);
            if (sent == -1) ready = 1;
            if (sent > 0 && measured < wanted) latencies[measured++] = now - sent;
            moved = now;
            rd_kafka_message_destroy(some[i]);
        }
    }
    return unused;
}

static int by_size(const void *a, const void *b) {
    long x = *(const long *)a, y = *(const long *)b;
    return (x > y) - (x < y);
}

static void send_one(rd_kafka_t *producer, rd_kafka_topic_t *topic, int partition, char *value, size_t size, long stamp) {
    memcpy(value, &stamp, sizeof stamp);
    while (rd_kafka_produce(topic, partition, COPY, value, size, NULL, 0, NULL) == -1) rd_kafka_poll(producer, 1);
}

static int latency(int argc, char **argv) {
    static const char *const own[] = {"linger.ms", "0", NULL};
    int partitions = atoi(argv[4]);
    size_t size = strtoul(argv[5], NULL, 10);
    long rate = atol(argv[6]), seconds = atol(argv[7]);
    char *value = calloc(1, size);
    pthread_t thread;
    wanted = rate * seconds;
    latencies = malloc((size_t)wanted * sizeof *latencies);
    rd_kafka_t *producer = client(PRODUCER, argv[2], own, argc - 8, argv + 8);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(producer, argv[3], NULL);
    latency_queue = assigned(argv[2], argv[3], partitions, 0, argc - 8, argv + 8);
    pthread_create(&thread, NULL, receive, NULL);
    send_one(producer, topic, 0, value, size, -1);
    while (!ready) rd_kafka_poll(producer, 10);
    long started = now_us();
    for (long i = 0, total = wanted + rate; i < total;) {
        long due = started + i * 1000000L / rate, now = now_us();
        if (now < due) {
            struct timespec nap = {0, due - now > 60 ? (due - now - 50) * 1000 : 1000};
            nanosleep(&nap, NULL);
            rd_kafka_poll(producer, 0);
            continue;
        }
        send_one(producer, topic, (int)(i % partitions), value, size, i < rate ? 0 : now);
        i++;
    }
    rd_kafka_flush(producer, 120000);
    double behind = (double)(now_us() - started) / 1e6 - (double)(seconds + 1);
    pthread_join(thread, NULL);
    if (measured < wanted) fail("records are missing");
    qsort(latencies, (size_t)measured, sizeof *latencies, by_size);
    printf("%f %f %f %f %ld %f\n", (double)latencies[measured / 2] / 1e3, (double)latencies[measured * 99 / 100] / 1e3,
           (double)latencies[measured * 999 / 1000] / 1e3, (double)latencies[measured - 1] / 1e3, measured, behind);
    return 0;
}

static void succeed(rd_kafka_error_t *error) {
    if (error) fail(rd_kafka_error_string(error));
}

static int transactions(int argc, char **argv) {
    static const char *const own[] = {"linger.ms", "0", NULL};
    int partitions = atoi(argv[4]);
    size_t size = strtoul(argv[5], NULL, 10);
    long records = atol(argv[6]), count = atol(argv[7]), aborted = atol(argv[8]), started = 0;
    char *value = malloc(size);
    for (size_t i = 0; i < size; i++) value[i] = (char)('a' + rand() % 26);
    rd_kafka_t *producer = client(PRODUCER, argv[2], own, argc - 9, argv + 9);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(producer, argv[3], NULL);
    succeed(rd_kafka_init_transactions(producer, 60000));
    /* The first transaction connects to the brokers. */
    for (long i = -1; i < count; i++) {
        if (i == 0) started = now_us();
        succeed(rd_kafka_begin_transaction(producer));
        for (long record = 0; record < records; record++)
            while (rd_kafka_produce(topic, (int)(record % partitions), COPY, value, size, NULL, 0, NULL) == -1) rd_kafka_poll(producer, 10);
        succeed(aborted && i >= 0 && i % aborted == 0 ? (rd_kafka_flush(producer, 60000), rd_kafka_abort_transaction(producer, 60000))
                                                     : rd_kafka_commit_transaction(producer, 60000));
    }
    printf("%f\n", (double)(now_us() - started) / 1e6);
    return 0;
}

int main(int argc, char **argv) {
    if (argc >= 6 && !strcmp(argv[1], "produce")) return produce(argc, argv);
    if (argc >= 6 && !strcmp(argv[1], "consume")) return consume(argc, argv);
    if (argc >= 8 && !strcmp(argv[1], "latency")) return latency(argc, argv);
    if (argc >= 9 && !strcmp(argv[1], "transactions")) return transactions(argc, argv);
    fail("usage: rdkafka_load produce|consume|latency|transactions BOOTSTRAP TOPIC ...");
    return 1;
}
