// Prints, one JSON object a line, what Apache Kafka's own consumer and admin client see of every topic.
//
//   java ReadTopics BOOTSTRAP
// {"partition": {...}}: name, number, topic id, log start, log end and last stable offset.
// {"record": {...}}: a record as read_uncommitted gives it, and whether read_committed gives it too. Bytes are base64.

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class ReadTopics {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static String bootstrap;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        TreeMap<String, TopicDescription> topics = new TreeMap<>();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            Set<String> names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
            topics.putAll(admin.describeTopics(names).allTopicNames().get());
        }
        for (TopicDescription topic : topics.values()) {
            for (int partition = 0; partition < topic.partitions().size(); partition++) print(topic, partition);
        }
    }

    private static void print(TopicDescription topic, int number) throws Exception {
        TopicPartition partition = new TopicPartition(topic.name(), number);
        ObjectNode about = JSON.createObjectNode().put("topic", topic.name()).put("partition", number).put("topicId", topic.topicId().toString());
        List<ConsumerRecord<byte[], byte[]>> records;
        Set<Long> committed = new HashSet<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("read_uncommitted")) {
            records = read(consumer, partition);
            about.put("logStartOffset", consumer.beginningOffsets(Set.of(partition)).get(partition));
            about.put("logEndOffset", consumer.endOffsets(Set.of(partition)).get(partition));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("read_committed")) {
            for (ConsumerRecord<byte[], byte[]> record : read(consumer, partition)) committed.add(record.offset());
            about.put("lastStableOffset", consumer.endOffsets(Set.of(partition)).get(partition));
        }
        System.out.println(JSON.writeValueAsString(JSON.createObjectNode().set("partition", about)));
        for (ConsumerRecord<byte[], byte[]> record : records) {
            System.out.println(JSON.writeValueAsString(JSON.createObjectNode().set("record", json(record, committed.contains(record.offset())))));
        }
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String isolation) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "isolation.level", isolation, "exclude.internal.topics", false);
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Everything from the log's start to the end that this isolation level has. */
    private static List<ConsumerRecord<byte[], byte[]>> read(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) {
        consumer.assign(Set.of(partition));
        consumer.seekToBeginning(Set.of(partition));
        long end = consumer.endOffsets(Set.of(partition)).get(partition);
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        while (consumer.position(partition) < end) consumer.poll(Duration.ofSeconds(5)).records(partition).forEach(records::add);
        return records;
    }

    private static ObjectNode json(ConsumerRecord<byte[], byte[]> record, boolean committed) {
        ObjectNode node = JSON.createObjectNode();
        node.put("topic", record.topic()).put("partition", record.partition()).put("offset", record.offset());
        node.put("timestamp", record.timestamp()).put("timestampType", record.timestampType().toString());
        node.put("leaderEpoch", record.leaderEpoch().orElse(-1)).put("key", record.key()).put("value", record.value());
        ArrayNode headers = node.putArray("headers");
        for (Header header : record.headers()) headers.addArray().add(header.key()).add(header.value());
        return node.put("readCommitted", committed);
    }
}
