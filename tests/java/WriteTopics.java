// Writes the topics of tests/fixtures/kafka-4.3 with Apache Kafka's own clients.
//
// Two phases, with a clean restart of the broker between them, so that a partition has two leader epochs:
//   java WriteTopics BOOTSTRAP first | second
// The second leaves a transaction open and ends without closing its producer, since closing would abort it.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class WriteTopics {
    private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    private static final long FIRST_TIMESTAMP = 1_700_000_000_000L;
    private static String bootstrap;
    private static long clock = FIRST_TIMESTAMP;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        if (args[1].equals("first")) {
            createTopics();
            for (String codec : CODECS) writeCodec(codec);
            writeTransactions();
            writeIdempotent();
            writeSegments();
            writeCompacted();
            write("log-append-time", plain("none"), 2, 3);
            write("epochs", plain("none"), 1, 3);
            write("trimmed", plain("none"), 4, 2);
            deleteRecords("trimmed", 5);
            joinGroup("classic-readers", "classic");
            joinGroup("consumer-readers", "consumer");
        } else {
            clock += 1_000_000;
            write("epochs", plain("none"), 2, 2);
            leaveTransactionOpen();
        }
        System.out.println("written");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void createTopics() throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        for (String codec : CODECS) topics.add(topic("codec-" + codec, 1, Map.of()));
        topics.add(topic("snappy-librdkafka", 1, Map.of()));
        topics.add(topic("transactions", 1, Map.of()));
        topics.add(topic("idempotent", 2, Map.of()));
        topics.add(topic("segments", 1, Map.of("internal.segment.bytes", "2000", "index.interval.bytes", "200")));
        topics.add(topic("compacted", 1, Map.of("cleanup.policy", "compact", "internal.segment.bytes", "400",
            "min.cleanable.dirty.ratio", "0.01", "max.compaction.lag.ms", "100")));
        topics.add(topic("log-append-time", 1, Map.of("message.timestamp.type", "LogAppendTime")));
        topics.add(topic("epochs", 1, Map.of()));
        topics.add(topic("trimmed", 1, Map.of()));
        topics.add(topic("empty", 1, Map.of()));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(topics).all().get();
        }
    }

    /** Records carry timestamps of the past; without limits, retention would delete them. */
    private static NewTopic topic(String name, int partitions, Map<String, String> configs) {
        Map<String, String> all = new HashMap<>(configs);
        all.put("retention.ms", "-1");
        return new NewTopic(name, partitions, (short) 1).configs(all);
    }

    private static KafkaProducer<byte[], byte[]> producer(Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "linger.ms", 10_000, "batch.size", 512 * 1024));
        all.putAll(settings);
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static Map<String, Object> plain(String codec) {
        return Map.of("enable.idempotence", false, "compression.type", codec);
    }

    private static Map<String, Object> transactional(String id) {
        return Map.of("transactional.id", id, "transaction.timeout.ms", 900_000);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, int partition, byte[] key, byte[] value, Header... headers) {
        clock += 7;
        return new ProducerRecord<>(topic, partition, clock, key, value, List.of(headers));
    }

    /** Each flush ends a batch. */
    private static void write(String topic, Map<String, Object> settings, int batches, int records) {
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            for (int batch = 0; batch < batches; batch++) {
                for (int i = 0; i < records; i++) producer.send(record(topic, 0, bytes("key-" + i), bytes(topic + "-" + batch + "-" + i)));
                producer.flush();
            }
        }
    }

    private static void writeCodec(String codec) {
        String topic = "codec-" + codec;
        Random random = new Random(42);
        byte[] noise = new byte[600];
        random.nextBytes(noise);
        try (KafkaProducer<byte[], byte[]> producer = producer(plain(codec))) {
            producer.send(record(topic, 0, bytes("key"), bytes("value")));
            producer.send(record(topic, 0, null, bytes("no key")));
            producer.send(record(topic, 0, bytes("no value"), null));
            producer.send(record(topic, 0, null, null));
            producer.send(record(topic, 0, new byte[0], new byte[0]));
            producer.flush();
            producer.send(record(topic, 0, bytes("headers"), bytes("é€😀"), new RecordHeader("one", bytes("1")), new RecordHeader("one", bytes("again")),
                new RecordHeader("null", (byte[]) null), new RecordHeader("", new byte[0]), new RecordHeader("naïve", bytes("é"))));
            producer.send(record(topic, 0, bytes("noise"), noise));
            producer.send(record(topic, 0, bytes("repeats"), bytes("penstock ".repeat(100))));
            clock -= 1_000; // timestamps need not rise within a batch
            producer.send(record(topic, 0, bytes("earlier"), bytes("earlier")));
            clock += 1_000;
            producer.flush();
            // Longer than one block of xerial snappy (32 KiB) and of an lz4 frame (64 KiB).
            if (!codec.equals("none")) producer.send(record(topic, 0, bytes("long"), bytes("0123456789abcdef".repeat(10_000))));
            producer.flush();
            for (int i = 0; i < 50; i++) producer.send(record(topic, 0, bytes("k" + i % 5), bytes("value " + i)));
            producer.flush();
        }
    }

    /** Committed, aborted, and two interleaved transactions, with records outside of any between them; offsets committed in one of them. */
    private static void writeTransactions() throws Exception {
        try (KafkaProducer<byte[], byte[]> a = producer(transactional("a")); KafkaProducer<byte[], byte[]> b = producer(transactional("b"))) {
            a.initTransactions();
            b.initTransactions();
            send(a, true, "a-committed", 3);
            a.sendOffsetsToTransaction(Map.of(new TopicPartition("codec-none", 0), new OffsetAndMetadata(5L, "in a transaction")),
                new ConsumerGroupMetadata("transactional-readers"));
            a.commitTransaction();
            send(b, true, "b-aborted", 3);
            b.abortTransaction();
            write("transactions", plain("none"), 1, 2);
            send(a, true, "a-interleaved", 2);
            send(b, true, "b-interleaved-aborted", 2);
            send(a, false, "a-interleaved", 1);
            send(b, false, "b-interleaved-aborted", 1);
            b.abortTransaction();
            send(a, false, "a-interleaved", 1);
            a.commitTransaction();
        }
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, boolean begin, String text, int records) {
        if (begin) producer.beginTransaction();
        for (int i = 0; i < records; i++) producer.send(record("transactions", 0, bytes(text), bytes(text + "-" + i)));
        producer.flush();
    }

    /** The open one begins last; two more end after it began, so that a marker is the last batch and the last stable offset lies before it. */
    private static void leaveTransactionOpen() throws Exception {
        KafkaProducer<byte[], byte[]> open = producer(transactional("open"));
        try (KafkaProducer<byte[], byte[]> a = producer(transactional("a")); KafkaProducer<byte[], byte[]> b = producer(transactional("b"))) {
            a.initTransactions();
            b.initTransactions();
            send(a, true, "a-late", 1);
            send(b, true, "b-late-aborted", 1);
            open.initTransactions();
            send(open, true, "open", 2);
            b.abortTransaction();
            a.commitTransaction();
        }
    }

    private static void writeIdempotent() {
        for (String name : List.of("one", "two")) {
            try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("compression.type", "lz4"))) {
                for (int batch = 0; batch < 7; batch++) {
                    for (int i = 0; i < 4; i++) producer.send(record("idempotent", i % 2, bytes(name), bytes(name + "-" + batch + "-" + i)));
                    producer.flush();
                }
            }
        }
    }

    private static void writeSegments() {
        Random random = new Random(7);
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("compression.type", "none"))) {
            for (int batch = 0; batch < 60; batch++) {
                clock += batch == 30 ? -5_000 : 100; // a step back: the time index keeps the greatest timestamp so far
                for (int i = 0; i <= batch % 3; i++) producer.send(record("segments", 0, bytes("k" + i), bytes("x".repeat(random.nextInt(80)))));
                producer.flush();
            }
        }
    }

    /** Most keys are overwritten later, and one is deleted by a record without a value, which stays for delete.retention.ms. */
    private static void writeCompacted() {
        try (KafkaProducer<byte[], byte[]> producer = producer(plain("none"))) {
            for (int batch = 0; batch < 12; batch++) {
                for (int i = 0; i < 4; i++) producer.send(record("compacted", 0, bytes("key-" + (batch + i) % 6), bytes("v" + batch)));
                if (batch == 1) producer.send(record("compacted", 0, bytes("deleted"), bytes("soon")));
                if (batch == 5) producer.send(record("compacted", 0, bytes("deleted"), null));
                producer.flush();
            }
        }
    }

    private static void deleteRecords(String topic, long before) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.deleteRecords(Map.of(new TopicPartition(topic, 0), RecordsToDelete.beforeOffset(before))).all().get();
        }
    }

    /** A member that joins, reads, commits and leaves: its records stay in __consumer_offsets. */
    private static void joinGroup(String group, String protocol) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "group.id", group, "group.protocol", protocol,
            "auto.offset.reset", "earliest", "enable.auto.commit", false, "client.id", group + "-client");
        Collection<String> topics = Set.of("epochs", "idempotent");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(topics);
            for (int read = 0; read < 20;) read += consumer.poll(Duration.ofSeconds(1)).count();
            consumer.commitSync();
        }
    }
}
