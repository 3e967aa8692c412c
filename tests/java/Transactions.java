// Runs transactions with Apache Kafka's own clients, and prints what they see, one line a fact.
//
//   java Transactions BOOTSTRAP PREFIX
// Topics, groups and transactional ids begin with PREFIX. Each scenario begins with a line "# name". Nothing that is printed depends on
// time or on numbers that a cluster chooses, so two clusters with the same behaviour print the same.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Transactions {
    private static final Duration DEADLINE = Duration.ofSeconds(60);
    private static final int MANY = 50;
    private static String bootstrap;
    private static String prefix;
    private static String scenario;
    private static Admin admin;
    private static final List<KafkaProducer<String, String>> producers = new ArrayList<>();

    private interface Step {
        void run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        prefix = args[1];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        Map<String, Step> scenarios = new TreeMap<>();
        scenarios.put("commit", Transactions::commit);
        scenarios.put("abort", Transactions::abort);
        scenarios.put("empty", Transactions::empty);
        scenarios.put("interleaved", Transactions::interleaved);
        scenarios.put("fencing", Transactions::fencing);
        scenarios.put("successor", Transactions::successor);
        scenarios.put("timeout", Transactions::timeout);
        scenarios.put("many", Transactions::many);
        scenarios.put("too-long-a-timeout", Transactions::tooLongATimeout);
        scenarios.put("unknown", Transactions::unknown);
        scenarios.put("left-open", Transactions::leftOpen);
        for (Map.Entry<String, Step> each : scenarios.entrySet()) {
            scenario = each.getKey();
            print("# " + scenario);
            each.getValue().run();
            for (KafkaProducer<String, String> producer : producers) producer.close(Duration.ZERO);
            producers.clear();
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void commit() throws Exception {
        create(3);
        KafkaProducer<String, String> producer = producer("");
        producer.initTransactions();
        printTransaction();
        for (String value : List.of("a", "b", "c")) {
            producer.beginTransaction();
            for (int partition = 0; partition < 2; partition++) send(producer, partition, value);
            printTransaction();
            printProducers(0);
            printRead(3);
            producer.commitTransaction();
            awaitStable(3);
            awaitState("", TransactionState.COMPLETE_COMMIT);
            printTransaction();
            printProducers(0);
            printRead(3);
        }
    }

    private static void abort() throws Exception {
        create(2);
        KafkaProducer<String, String> producer = producer("");
        producer.initTransactions();
        for (int number = 0; number < 6; number++) {
            producer.beginTransaction();
            for (int partition = 0; partition < 2; partition++) send(producer, partition, "value " + number);
            if (number % 2 == 0) producer.abortTransaction();
            else producer.commitTransaction();
        }
        awaitStable(2);
        awaitState("", TransactionState.COMPLETE_COMMIT);
        printTransaction();
        printRead(2);
    }

    /** Transactions without records, and with offsets only. */
    private static void empty() throws Exception {
        create(1);
        KafkaProducer<String, String> producer = producer("");
        producer.initTransactions();
        producer.beginTransaction();
        producer.commitTransaction();
        producer.beginTransaction();
        producer.abortTransaction();
        printTransaction();
        producer.beginTransaction();
        producer.sendOffsetsToTransaction(Map.of(partition(0), new OffsetAndMetadata(7)), new ConsumerGroupMetadata(name("group")));
        producer.commitTransaction();
        awaitState("", TransactionState.COMPLETE_COMMIT);
        awaitOffset(0, 7);
        printTransaction();
        printRead(1);
    }

    private static void interleaved() throws Exception {
        create(2);
        KafkaProducer<String, String> slow = producer("slow");
        KafkaProducer<String, String> quick = producer("quick");
        slow.initTransactions();
        quick.initTransactions();
        slow.beginTransaction();
        send(slow, 0, "slow");
        quick.beginTransaction();
        send(quick, 0, "quick");
        send(quick, 1, "quick");
        quick.commitTransaction();
        awaitState("quick", TransactionState.COMPLETE_COMMIT);
        printRead(2);
        slow.abortTransaction();
        awaitStable(2);
        printRead(2);
    }

    private static void fencing() throws Exception {
        create(2);
        KafkaProducer<String, String> zombie = producer("");
        zombie.initTransactions();
        zombie.beginTransaction();
        send(zombie, 0, "zombie");
        KafkaProducer<String, String> successor = producer("");
        successor.initTransactions();
        awaitStable(2);
        printTransaction();
        successor.beginTransaction();
        send(successor, 0, "successor");
        printFailure("commit of the zombie", zombie::commitTransaction);
        printFailure("begin of the zombie", zombie::beginTransaction);
        successor.commitTransaction();
        awaitStable(2);
        awaitState("", TransactionState.COMPLETE_COMMIT);
        printTransaction();
        printRead(2);
    }

    /** A zombie that sends while its successor has a transaction open in the same partition. */
    private static void successor() throws Exception {
        create(2);
        KafkaProducer<String, String> zombie = producer("");
        zombie.initTransactions();
        zombie.beginTransaction();
        send(zombie, 0, "zombie");
        KafkaProducer<String, String> successor = producer("");
        successor.initTransactions();
        successor.beginTransaction();
        send(successor, 0, "successor");
        printFailure("send of the zombie", () -> send(zombie, 0, "zombie, later"));
        printFailure("commit of the zombie", zombie::commitTransaction);
        successor.commitTransaction();
        awaitStable(2);
        printRead(2);
    }

    private static void timeout() throws Exception {
        create(2);
        KafkaProducer<String, String> late = producer("", Map.of("transaction.timeout.ms", 1_000));
        late.initTransactions();
        late.beginTransaction();
        send(late, 0, "late");
        awaitState("", TransactionState.COMPLETE_ABORT);
        awaitStable(2);
        printTransaction();
        printProducers(0);
        printFailure("commit after the timeout", late::commitTransaction);
        KafkaProducer<String, String> successor = producer("");
        successor.initTransactions();
        printTransaction();
        successor.beginTransaction();
        send(successor, 0, "in time");
        successor.commitTransaction();
        awaitStable(2);
        printRead(2);
    }

    private static void many() throws Exception {
        create(MANY);
        KafkaProducer<String, String> producer = producer("");
        producer.initTransactions();
        for (boolean commits : List.of(true, false, true)) {
            producer.beginTransaction();
            for (int partition = 0; partition < MANY; partition++) {
                producer.send(new ProducerRecord<>(name(), partition, null, commits ? "committed" : "aborted"));
            }
            long offset = commits ? 10 : 99;
            producer.sendOffsetsToTransaction(Map.of(partition(0), new OffsetAndMetadata(offset), partition(1), new OffsetAndMetadata(2 * offset)),
                new ConsumerGroupMetadata(name("group")));
            producer.flush();
            printTransaction();
            if (commits) producer.commitTransaction();
            else producer.abortTransaction();
            awaitState("", commits ? TransactionState.COMPLETE_COMMIT : TransactionState.COMPLETE_ABORT);
            awaitStable(MANY);
            print("offsets " + offsets());
        }
        printRead(MANY);
    }

    private static void tooLongATimeout() {
        KafkaProducer<String, String> producer = producer("", Map.of("transaction.timeout.ms", 900_001));
        printFailure("init", producer::initTransactions);
    }

    private static void unknown() {
        printFailure("describe", () -> description("never used"));
    }

    /** The program ends without ending this transaction, which began before others of the partition ended. */
    private static void leftOpen() throws Exception {
        create(2);
        KafkaProducer<String, String> open = producer("", Map.of("transaction.timeout.ms", 900_000));
        KafkaProducer<String, String> other = producer("other");
        open.initTransactions();
        other.initTransactions();
        for (String value : List.of("committed before", "aborted before", "committed after", "aborted after")) {
            if (value.equals("committed after")) {
                open.beginTransaction();
                send(open, 0, "open");
            }
            other.beginTransaction();
            send(other, 0, value);
            send(other, 1, value);
            if (value.startsWith("committed")) other.commitTransaction();
            else other.abortTransaction();
        }
        awaitState("other", TransactionState.COMPLETE_ABORT);
        printTransaction();
        printProducers(0);
        printRead(2);
    }

    // What the clients do

    private static KafkaProducer<String, String> producer(String id) {
        return producer(id, Map.of());
    }

    private static KafkaProducer<String, String> producer(String id, Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "transactional.id", name(id), "linger.ms", 0));
        settings.putAll(more);
        KafkaProducer<String, String> made = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producers.add(made);
        return made;
    }

    /** Sends a record, and waits until it is acknowledged. */
    private static void send(KafkaProducer<String, String> producer, int partition, String value) throws Exception {
        Future<RecordMetadata> sent = producer.send(new ProducerRecord<>(name(), partition, null, value));
        sent.get();
    }

    private static void create(int partitions) throws Exception {
        int brokers = admin.describeCluster().nodes().get().size();
        admin.createTopics(Set.of(new NewTopic(name(), partitions, (short) Math.min(3, brokers)))).all().get();
        await("topic", Transactions::isCreated);
    }

    /** Another broker than the one that created the topic may not know it yet. */
    private static boolean isCreated() throws Exception {
        try {
            return admin.describeTopics(Set.of(name())).allTopicNames().get().get(name()).partitions().stream()
                .allMatch(each -> each.leader() != null && !each.leader().isEmpty());
        } catch (ExecutionException error) {
            if (error.getCause() instanceof UnknownTopicOrPartitionException) return false;
            throw error;
        }
    }

    private static KafkaConsumer<String, String> consumer(String isolation) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "isolation.level", isolation);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static String name() {
        return prefix + "-" + scenario;
    }

    private static String name(String what) {
        return what.isEmpty() ? name() : name() + "-" + what;
    }

    private static TopicPartition partition(int number) {
        return new TopicPartition(name(), number);
    }

    private static List<TopicPartition> partitions(int count) {
        List<TopicPartition> all = new ArrayList<>();
        for (int number = 0; number < count; number++) all.add(partition(number));
        return all;
    }

    // What they wait for

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static void await(String what, Condition condition) throws Exception {
        long deadline = System.nanoTime() + DEADLINE.toNanos();
        while (!condition.holds()) {
            if (System.nanoTime() > deadline) throw new IllegalStateException(scenario + ": no " + what + " within " + DEADLINE);
            Thread.sleep(20);
        }
    }

    private static void awaitStable(int count) throws Exception {
        try (KafkaConsumer<String, String> all = consumer("read_uncommitted"); KafkaConsumer<String, String> stable = consumer("read_committed")) {
            await("stable partitions", () -> all.endOffsets(partitions(count)).equals(stable.endOffsets(partitions(count))));
        }
    }

    private static void awaitState(String id, TransactionState state) throws Exception {
        await(state.toString(), () -> description(id).state() == state);
    }

    private static void awaitOffset(int partition, long offset) throws Exception {
        await("offset " + offset, () -> Long.valueOf(offset).equals(offsets().get(partition)));
    }

    private static TransactionDescription description(String id) throws Exception {
        return admin.describeTransactions(Set.of(name(id))).description(name(id)).get();
    }

    private static Map<Integer, Long> offsets() throws Exception {
        Map<Integer, Long> found = new TreeMap<>();
        admin.listConsumerGroupOffsets(name("group")).partitionsToOffsetAndMetadata().get().forEach((partition, committed) -> {
            if (committed != null) found.put(partition.partition(), committed.offset());
        });
        return found;
    }

    // What they see

    private static void print(String line) {
        System.out.println(line.replace(prefix + "-", ""));
    }

    private static void printTransaction() throws Exception {
        TransactionDescription seen = description("");
        Map<String, Integer> topics = new TreeMap<>();
        seen.topicPartitions().forEach(each -> topics.merge(each.topic(), 1, Integer::sum));
        print("transaction: " + seen.state() + ", epoch " + seen.producerEpoch() + ", timeout " + seen.transactionTimeoutMs()
            + ", partitions of " + topics + ", " + (seen.transactionStartTimeMs().isPresent() ? "started" : "not started"));
    }

    private static void printProducers(int partition) throws Exception {
        List<String> seen = new ArrayList<>();
        for (ProducerState each : admin.describeProducers(Set.of(partition(partition))).partitionResult(partition(partition)).get().activeProducers()) {
            seen.add("epoch " + each.producerEpoch() + ", sequence " + each.lastSequence() + ", transaction from "
                + each.currentTransactionStartOffset() + ", coordinator epoch " + (each.coordinatorEpoch().isPresent() ? "known" : "unknown"));
        }
        Collections.sort(seen);
        print("producers: " + seen);
    }

    private static void printRead(int count) {
        for (String isolation : List.of("read_committed", "read_uncommitted")) {
            try (KafkaConsumer<String, String> consumer = consumer(isolation)) {
                List<TopicPartition> all = partitions(count);
                consumer.assign(all);
                consumer.seekToBeginning(all);
                Map<TopicPartition, Long> ends = consumer.endOffsets(all);
                Map<Integer, List<String>> found = new TreeMap<>();
                while (all.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
                    for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(100))) {
                        found.computeIfAbsent(each.partition(), any -> new ArrayList<>()).add(each.offset() + " " + each.value());
                    }
                }
                Map<Integer, Long> end = new TreeMap<>();
                ends.forEach((each, offset) -> end.put(each.partition(), offset));
                print(isolation + ": " + found + " to " + end);
            }
        }
    }

    private static void printFailure(String what, Step call) {
        try {
            call.run();
            print(what + ": no error");
        } catch (ExecutionException error) {
            print(what + ": " + error.getCause().getClass().getSimpleName());
        } catch (Exception error) {
            print(what + ": " + error.getClass().getSimpleName());
        }
    }
}
