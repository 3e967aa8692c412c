import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApplicationRecoverableException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Copies a topic exactly once: consumes, transforms, produces, and commits the offsets in the transaction. Its arguments and records are
 * those of tests/e2e/exactly_once_copy.py. Runs until SIGTERM; ends with an error when it was fenced. */
public class ExactlyOnceCopy {
    private static final int BATCH = 40;
    private static final int ABORT_EVERY = 7;
    private static volatile boolean stopping;

    public static void main(String[] args) throws Exception {
        Thread main = Thread.currentThread();
        int[] code = {1};
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            try {
                main.join(60_000);
            } catch (InterruptedException ended) {
                return;
            }
            Runtime.getRuntime().halt(code[0]);
        }));
        try {
            new ExactlyOnceCopy(args).run();
            code[0] = 0;
        } catch (Exception error) {
            error.printStackTrace();
            if (!stopping) Runtime.getRuntime().halt(1);
        }
    }

    private final String output;
    private final String audit;
    private final String name;
    private final KafkaProducer<String, String> producer;
    private final KafkaConsumer<String, String> consumer;
    private int count;

    private ExactlyOnceCopy(String[] args) {
        output = args[2];
        audit = args[3];
        name = args[5] + "-" + UUID.randomUUID().toString().substring(0, 8);
        Map<String, Object> common = Map.of("bootstrap.servers", args[0], "reconnect.backoff.ms", 20, "reconnect.backoff.max.ms", 200,
            "retry.backoff.ms", 20, "retry.backoff.max.ms", 200);
        Map<String, Object> producing = new HashMap<>(common);
        producing.putAll(Map.of("transactional.id", args[5], "transaction.timeout.ms", 10_000, "linger.ms", 1, "max.block.ms", 10_000,
            "request.timeout.ms", 5_000, "delivery.timeout.ms", 9_000));
        producer = new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer());
        retry(producer::initTransactions);
        Map<String, Object> consuming = new HashMap<>(common);
        consuming.putAll(Map.of("group.id", args[4], "group.protocol", "consumer", "isolation.level", "read_committed",
            "auto.offset.reset", "earliest", "enable.auto.commit", false, "max.poll.records", BATCH));
        consumer = new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(Set.of(args[1]));
    }

    private void run() {
        while (!stopping) {
            List<ConsumerRecord<String, String>> batch = new ArrayList<>();
            consumer.poll(Duration.ofMillis(100)).forEach(batch::add);
            if (!batch.isEmpty()) copy(batch);
        }
        consumer.close();
        producer.close();
    }

    private void copy(List<ConsumerRecord<String, String>> batch) {
        boolean aborts = ++count % ABORT_EVERY == 0;
        String transaction = (aborts ? "aborted-" : "committed-") + name + "-" + count;
        Map<TopicPartition, Long> first = new HashMap<>();
        Map<TopicPartition, OffsetAndMetadata> after = new HashMap<>();
        for (ConsumerRecord<String, String> each : batch) {
            TopicPartition partition = new TopicPartition(each.topic(), each.partition());
            first.putIfAbsent(partition, each.offset());
            after.put(partition, new OffsetAndMetadata(each.offset() + 1));
        }
        try {
            producer.beginTransaction();
            for (ConsumerRecord<String, String> each : batch) {
                producer.send(new ProducerRecord<>(output, each.partition(), null, transaction + " " + batch.size() + " " + each.value()));
            }
            producer.send(new ProducerRecord<>(audit, transaction + " " + batch.size()));
            producer.sendOffsetsToTransaction(after, consumer.groupMetadata());
            if (!aborts) {
                retry(producer::commitTransaction);
                return;
            }
        } catch (ApplicationRecoverableException | InvalidConfigurationException error) {
            throw error; // Fenced, for example: only a new producer can go on.
        } catch (KafkaException error) {
            System.err.println(transaction + " must be aborted: " + error);
        }
        retry(producer::abortTransaction);
        Collection<TopicPartition> assigned = consumer.assignment();
        first.forEach((partition, offset) -> {
            if (assigned.contains(partition)) consumer.seek(partition, offset);
        });
    }

    private static void retry(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException error) {
                if (stopping) throw error;
            }
        }
    }
}
