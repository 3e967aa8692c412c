// Uses Apache Kafka's own clients with the security settings of a properties file.
//
//   java SecuredClient BOOTSTRAP PROPERTIES TOPIC COUNT
// Creates a topic, writes COUNT records with an idempotent producer, aborts a transaction, commits one of COUNT records, reads all of them
// in a group, and prints how many it has read and the offsets that the group committed.

import java.io.FileInputStream;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class SecuredClient {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        try (FileInputStream file = new FileInputStream(args[1])) {
            settings.load(file);
        }
        settings.put("bootstrap.servers", args[0]);
        String topic = args[2];
        int count = Integer.parseInt(args[3]);
        try (Admin admin = Admin.create(settings)) {
            admin.createTopics(List.of(new NewTopic(topic, 3, (short) 3))).all().get();
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
                for (int number = 0; number < count; number++) producer.send(new ProducerRecord<>(topic, "plain-" + number));
                producer.flush();
            }
            Properties transactional = new Properties();
            transactional.putAll(settings);
            transactional.put("transactional.id", topic);
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(transactional, new StringSerializer(), new StringSerializer())) {
                producer.initTransactions();
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, "aborted")).get();
                producer.abortTransaction();
                producer.beginTransaction();
                for (int number = 0; number < count; number++) producer.send(new ProducerRecord<>(topic, "committed-" + number));
                producer.commitTransaction();
            }
            Set<String> found = new HashSet<>();
            settings.put("group.id", topic);
            settings.put("auto.offset.reset", "earliest");
            settings.put("isolation.level", "read_committed");
            settings.put("enable.auto.commit", "false");
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
                consumer.subscribe(List.of(topic));
                long deadline = System.currentTimeMillis() + 60_000;
                while (found.size() < 2 * count && System.currentTimeMillis() < deadline) {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) found.add(record.value());
                    consumer.commitSync();
                }
            }
            long committed = 0;
            for (OffsetAndMetadata offset : admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get().values())
                committed += Optional.ofNullable(offset).map(OffsetAndMetadata::offset).orElse(0L);
            System.out.println("read " + found.size() + " aborted " + found.contains("aborted") + " committed " + (committed >= 2 * count));
        }
    }
}
