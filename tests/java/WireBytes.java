// Prints every message of Apache Kafka's wire protocol and of its internal logs, in every version it knows, as Kafka itself writes it.
//
// One JSON object a line: {"name", "kind", "key", "version", "sample", "header", "unstable", "listeners", "json", "hex"}.
// A sample is made from the message's own per-version Schema, so it has exactly the fields of that version; it is then read into Kafka's
// generated class, and what is printed is that class's own JSON and its own bytes. Values hang on the message's name and the field's path
// alone: a run gives the same output every time, and the versions of one message resemble each other (so the file compresses well).
//
// Usage: java -cp 'libs/*' WireBytes.java libs/

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.jar.JarFile;
import java.util.zip.CRC32;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.NullableSchema;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Struct;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;

public class WireBytes {
    /** The packages that hold generated messages, each with the kind its internal records are filed under. */
    private static final Map<String, String> PACKAGES = Map.of(
        "org/apache/kafka/common/message/", "data",
        "org/apache/kafka/common/metadata/", "metadata",
        "org/apache/kafka/raft/generated/", "raft",
        "org/apache/kafka/coordinator/group/generated/", "group",
        "org/apache/kafka/coordinator/transaction/generated/", "transaction",
        "org/apache/kafka/coordinator/share/generated/", "share",
        "org/apache/kafka/server/log/remote/metadata/storage/generated/", "storage");
    private static final String CONVERTER = "JsonConverter.class";
    private static final int UNKNOWN_TAG = 9999;
    private static final long MIX = 0x9e3779b97f4a7c15L; // an odd number that spreads a seed's bits over 64
    private static final ObjectMapper JSON = new ObjectMapper();

    /** What a sample is filled with. UNKNOWN is FULL plus a tagged field that no version knows, in every struct that may carry one. */
    private enum Sample { DEFAULT, FULL, EDGE, UNKNOWN }

    private record Kind(Class<?> type, String name, String kind, ApiMessageType api) { }

    public static void main(String[] args) throws Exception {
        TreeSet<String> lines = new TreeSet<>();
        for (Kind kind : kinds(Path.of(args[0]))) {
            short lowest = kind.type.getField("LOWEST_SUPPORTED_VERSION").getShort(null);
            short highest = kind.type.getField("HIGHEST_SUPPORTED_VERSION").getShort(null);
            for (short version = lowest; version <= highest; version++) {
                for (Sample sample : Sample.values()) {
                    String line = line(kind, version, sample, version == highest);
                    if (line != null) lines.add(line);
                }
            }
        }
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        lines.forEach(out::println);
        out.flush();
    }

    private static List<Kind> kinds(Path libs) throws Exception {
        Map<String, Kind> found = new TreeMap<>();
        for (ApiMessageType api : ApiMessageType.values()) {
            if (api.requestSchemas().length == 0) continue; // a key whose messages were removed with ZooKeeper
            Class<?> request = api.newRequest().getClass();
            Class<?> response = api.newResponse().getClass();
            found.put(request.getName(), new Kind(request, plain(request), "request", api));
            found.put(response.getName(), new Kind(response, plain(response), "response", api));
        }
        try (DirectoryStream<Path> jars = Files.newDirectoryStream(libs, "kafka-*.jar")) {
            for (Path path : jars) {
                try (JarFile jar = new JarFile(path.toFile())) {
                    for (String entry : jar.stream().map(e -> e.getName()).filter(n -> n.endsWith(CONVERTER) && !n.contains("$")).toList()) {
                        String kind = PACKAGES.get(entry.substring(0, entry.lastIndexOf('/') + 1));
                        if (kind == null) throw new IllegalStateException(entry + " is in a package that WireBytes does not know; add it to PACKAGES");
                        String name = entry.substring(0, entry.length() - CONVERTER.length()).replace('/', '.');
                        Class<?> type = Class.forName(name);
                        found.putIfAbsent(name, new Kind(type, plain(type), kind, null));
                    }
                }
            }
        }
        return List.copyOf(found.values());
    }

    /** The name in Kafka's own definitions: generated request, response and header classes have Data added to it. */
    private static String plain(Class<?> type) {
        String name = type.getSimpleName();
        return name.endsWith("RequestData") || name.endsWith("ResponseData") || name.endsWith("HeaderData") ? name.substring(0, name.length() - 4) : name;
    }

    private static String line(Kind kind, short version, Sample sample, boolean highest) throws Exception {
        Schema schema = ((Schema[]) kind.type.getField("SCHEMAS").get(null))[version];
        boolean flexible = schema.fields().length > 0 && schema.fields()[schema.fields().length - 1].def.type instanceof TaggedFields;
        if (sample == Sample.UNKNOWN && !(highest && flexible)) return null;
        Message message = newMessage(kind.type);
        if (sample != Sample.DEFAULT) {
            Object struct = new Filler(sample, kind.name).value("", schema, null);
            ByteBuffer buffer = ByteBuffer.allocate(schema.sizeOf(struct));
            schema.write(buffer, struct);
            message.read(new ByteBufferAccessor(buffer.flip()), version);
            if (buffer.hasRemaining()) throw new IllegalStateException(kind.name + " v" + version + " left " + buffer.remaining() + " bytes unread");
            if (sample == Sample.EDGE) clearTaggedStructs(message, schema);
        }
        byte[] bytes = bytes(message, version);
        Message again = newMessage(kind.type);
        again.read(new ByteBufferAccessor(ByteBuffer.wrap(bytes)), version);
        if (!again.equals(message)) throw new IllegalStateException(kind.name + " v" + version + " " + sample + " does not survive Kafka's own round trip");
        ObjectNode line = JSON.createObjectNode();
        line.put("name", kind.name).put("kind", kind.kind).put("key", key(message)).put("version", version);
        line.put("sample", sample.name().toLowerCase());
        if (kind.api != null) {
            line.put("header", kind.kind.equals("request") ? kind.api.requestHeaderVersion(version) : kind.api.responseHeaderVersion(version));
            line.put("unstable", kind.api.latestVersionUnstable() && version > kind.api.highestSupportedVersion(false));
            kind.api.listeners().stream().map(l -> l.name().toLowerCase()).sorted().forEach(line.putArray("listeners")::add);
        }
        line.set("json", json(kind.type, message, version));
        line.put("hex", HexFormat.of().formatHex(bytes));
        return JSON.writeValueAsString(line);
    }

    private static Message newMessage(Class<?> type) throws Exception {
        Constructor<?> constructor = type.getConstructor();
        return (Message) constructor.newInstance();
    }

    /**
     * Kafka's Schema writes a null tagged struct as the byte -1, its generated classes as the varint 0. So such a field is left out of the
     * Schema's bytes and set to null here. Kafka 4.3 has one, at the top of ConsumerGroupMemberMetadataValue.
     */
    private static void clearTaggedStructs(Message message, Schema schema) throws Exception {
        for (BoundField bound : schema.fields()) {
            if (!(bound.def.type instanceof TaggedFields tagged)) continue;
            for (Field field : tagged.fields().values()) {
                if (!(field.type instanceof NullableSchema)) continue;
                StringBuilder setter = new StringBuilder("set");
                for (String word : field.name.split("_")) setter.append(Character.toUpperCase(word.charAt(0))).append(word.substring(1));
                for (Method method : message.getClass().getMethods()) {
                    if (method.getName().contentEquals(setter)) method.invoke(message, (Object) null);
                }
            }
        }
    }

    private static byte[] bytes(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining()) throw new IllegalStateException(message.getClass() + " is smaller than it said");
        return buffer.array();
    }

    /** The api key of a request or response, or the type of a record; null where Kafka gives it none. */
    private static Short key(Message message) throws Exception {
        try {
            short key = (short) message.getClass().getMethod("apiKey").invoke(message);
            return key < 0 ? null : key;
        } catch (NoSuchMethodException none) {
            return null;
        } catch (InvocationTargetException unsupported) {
            return null;
        }
    }

    /** Records are given by their size only (recordsSizeInBytes): Kafka's converter would otherwise write an empty string for them. */
    private static JsonNode json(Class<?> type, Message message, short version) throws Exception {
        Class<?> converter = Class.forName(type.getName() + "JsonConverter");
        return (JsonNode) converter.getMethod("write", type, short.class, boolean.class).invoke(null, message, version, false);
    }

    /** Makes one sample's values. */
    private static final class Filler {
        private final Sample sample;
        private final String name;

        Filler(Sample sample, String name) {
            this.sample = sample;
            this.name = name;
        }

        private boolean edge() {
            return sample == Sample.EDGE;
        }

        /** EDGE takes null wherever it is allowed and the ends of number ranges; the others take something that is never the default. */
        Object value(String path, Type type, Object preset) {
            if (type.isNullable() && edge()) return null;
            if (type.isArray()) return array(path, type);
            if (type instanceof Schema schema) return struct(path, schema);
            if (type instanceof TaggedFields tagged) return tagged(path, tagged);
            long seed = seed(path);
            String kind = type.toString().replace("COMPACT_", "").replace("NULLABLE_", "");
            return switch (kind) {
                case "BOOLEAN" -> edge() == Boolean.TRUE.equals(preset) ? Boolean.TRUE : Boolean.FALSE;
                case "INT8" -> (byte) number(seed, Byte.MIN_VALUE, Byte.MAX_VALUE);
                case "INT16" -> (short) number(seed, Short.MIN_VALUE, Short.MAX_VALUE);
                case "UINT16" -> (int) number(seed, 0, 0xffff);
                case "INT32" -> (int) number(seed, Integer.MIN_VALUE, Integer.MAX_VALUE);
                case "UINT32" -> number(seed, 0, 0xffffffffL);
                case "INT64" -> number(seed, Long.MIN_VALUE, Long.MAX_VALUE);
                case "FLOAT64" -> edge() ? -Double.MIN_VALUE : seed / 64.0;
                case "UUID" -> edge() ? Uuid.ONE_UUID : new Uuid(seed * MIX, ~seed * MIX);
                case "STRING" -> edge() ? "" : path.substring(path.lastIndexOf('.') + 1) + "-é€" + seed % 100;
                case "BYTES" -> ByteBuffer.wrap(edge() ? new byte[0] : Long.toString(seed).getBytes(StandardCharsets.UTF_8));
                case "RECORDS" -> records(path);
                default -> throw new IllegalStateException(name + path + " has the type " + type + ", which WireBytes cannot fill");
            };
        }

        private long seed(String path) {
            CRC32 crc = new CRC32();
            crc.update((name + path).getBytes(StandardCharsets.UTF_8));
            return crc.getValue() | 1;
        }

        private long number(long seed, long least, long most) {
            if (edge()) return (seed & 2) == 0 ? least : most;
            long range = most - least;
            long wide = seed * MIX >>> 1;
            return (range <= 0 ? wide : Math.floorMod(wide, Math.min(range, 1_000_000_007L)) + (least < 0 ? -1 : 0)) | 2;
        }

        private Object array(String path, Type type) {
            Type element = type.arrayElementType().orElseThrow();
            Object[] elements = new Object[edge() ? 1 : 2];
            for (int i = 0; i < elements.length; i++) elements[i] = value(path + "." + i, element, null);
            return elements;
        }

        private Struct struct(String path, Schema schema) {
            Struct struct = new Struct(schema);
            for (BoundField field : schema.fields()) struct.set(field, value(path + "." + field.def.name, field.def.type, field.def.defaultValue));
            return struct;
        }

        private Object tagged(String path, TaggedFields type) {
            TreeMap<Integer, Object> values = new TreeMap<>();
            for (Map.Entry<Integer, Field> entry : type.fields().entrySet()) {
                Field field = entry.getValue();
                if (edge() && field.type instanceof NullableSchema) continue;
                values.put(entry.getKey(), value(path + "." + field.name, field.type, field.defaultValue));
            }
            if (sample == Sample.UNKNOWN) values.put(UNKNOWN_TAG, new RawTaggedField(UNKNOWN_TAG, "later".getBytes(StandardCharsets.UTF_8)));
            return values;
        }

        private MemoryRecords records(String path) {
            List<SimpleRecord> records = new ArrayList<>();
            if (!edge()) records.add(new SimpleRecord(1_700_000_000_000L, "key".getBytes(StandardCharsets.UTF_8), path.getBytes(StandardCharsets.UTF_8)));
            return MemoryRecords.withRecords(Compression.NONE, records.toArray(new SimpleRecord[0]));
        }
    }
}
