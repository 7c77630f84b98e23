package respool;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.math.BigDecimal;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF2;
import org.apache.spark.unsafe.types.UTF8String;
import org.sparkproject.spark_core.protobuf.ByteString;
import org.sparkproject.spark_core.protobuf.CodedInputStream;
import org.sparkproject.spark_core.protobuf.DescriptorProtos.FileDescriptorProto;
import org.sparkproject.spark_core.protobuf.DescriptorProtos.FileDescriptorSet;
import org.sparkproject.spark_core.protobuf.Descriptors.Descriptor;
import org.sparkproject.spark_core.protobuf.Descriptors.EnumValueDescriptor;
import org.sparkproject.spark_core.protobuf.Descriptors.FieldDescriptor;
import org.sparkproject.spark_core.protobuf.Descriptors.FileDescriptor;
import org.sparkproject.spark_core.protobuf.DynamicMessage;
import org.sparkproject.spark_core.protobuf.Message;

/**
 * Reads Protobuf messages, with the Protobuf library that Spark has for itself.
 *
 * <p>The types are those of {@code respool.decoders.protobuf_types}.
 */
public class ProtobufReader extends WireFormat implements UDF2<byte[], byte[], Row> { // Spark looks at a class's own interfaces
    private static final long serialVersionUID = 1;

    @Override
    String kind() {
        return "a Protobuf message of the type";
    }

    @Override
    int fields(JsonNode config) throws Exception {
        return descriptor(config).getFields().size();
    }

    @Override
    Program plain(JsonNode config) throws Exception {
        Reader reader = new Reader(descriptor(config));
        return (value, start) -> reader.read(CodedInputStream.newInstance(value, start, value.length - start), value);
    }

    /** The schema has a line for each message: the indexes that lead to it, and its full name. */
    @Override
    Program written(JsonNode config, String schema) throws Exception {
        String wanted = config.get("message").asText();
        Map<String, String> names = new HashMap<>();
        for (String line : schema.split("\n")) {
            String[] words = line.split(" ");
            if (words.length == 2) {
                names.put(words[0], words[1]);
            }
        }
        if (names.isEmpty()) {
            throw new Rejected("is not a Protobuf schema");
        }
        Reader reader = new Reader(descriptor(config));
        return (value, start) -> {
            CodedInputStream input = CodedInputStream.newInstance(value, start, value.length - start);
            String name = names.get(indexes(input));
            if (name == null) {
                throw new Rejected("its schema has no such message");
            }
            if (!name.equals(wanted)) {
                throw new Rejected("the message " + name + ", not " + wanted);
            }
            return reader.read(input, value);
        };
    }

    private static String indexes(CodedInputStream input) throws IOException {
        int count = input.readSInt32();
        if (count == 0) {
            return "0";
        }
        StringBuilder text = new StringBuilder();
        for (int number = 0; number < count; number++) {
            text.append(number == 0 ? "" : ".").append(input.readSInt32());
        }
        return text.toString();
    }

    private static Descriptor descriptor(JsonNode config) throws Exception {
        byte[] bytes = Base64.getDecoder().decode(config.get("descriptor").asText());
        Map<String, FileDescriptorProto> files = new HashMap<>();
        for (FileDescriptorProto file : FileDescriptorSet.parseFrom(bytes).getFileList()) {
            files.put(file.getName(), file);
        }
        String wanted = config.get("message").asText();
        Map<String, FileDescriptor> built = new HashMap<>();
        for (String name : files.keySet()) {
            Descriptor descriptor = find(build(name, files, built).getMessageTypes(), wanted);
            if (descriptor != null) {
                return descriptor;
            }
        }
        throw new IllegalArgumentException(wanted);
    }

    private static FileDescriptor build(
        String name, Map<String, FileDescriptorProto> files, Map<String, FileDescriptor> built) throws Exception {
        FileDescriptor file = built.get(name);
        if (file == null) {
            List<FileDescriptor> needed = new ArrayList<>();
            for (String other : files.get(name).getDependencyList()) {
                needed.add(build(other, files, built));
            }
            file = FileDescriptor.buildFrom(files.get(name), needed.toArray(new FileDescriptor[0]));
            built.put(name, file);
        }
        return file;
    }

    private static Descriptor find(List<Descriptor> types, String wanted) {
        for (Descriptor type : types) {
            Descriptor match = type.getFullName().equals(wanted) ? type : find(type.getNestedTypes(), wanted);
            if (match != null) {
                return match;
            }
        }
        return null;
    }

    private interface Converter {
        Object convert(Object value);
    }

    private static final class Reader {
        private final Descriptor type;
        private final Struct struct;

        Reader(Descriptor type) {
            this.type = type;
            this.struct = new Struct(type, 1);
        }

        Row read(CodedInputStream input, byte[] value) throws IOException {
            DynamicMessage.Builder builder = DynamicMessage.newBuilder(type);
            builder.mergeFrom(input);
            input.checkLastTagWas(0);
            if (!builder.isInitialized()) { // a required field of proto2
                throw new IOException();
            }
            return (Row) struct.convert(builder.buildPartial());
        }
    }

    private static final class Struct implements Converter {
        private final FieldDescriptor[] fields;
        private final Converter[] converters;
        private final int more;

        Struct(Descriptor type, int more) {
            this.fields = type.getFields().toArray(new FieldDescriptor[0]);
            this.converters = new Converter[fields.length];
            this.more = more;
            for (int number = 0; number < fields.length; number++) {
                converters[number] = field(fields[number]);
            }
        }

        @Override
        public Object convert(Object value) {
            Message message = (Message) value;
            Object[] row = new Object[fields.length + more];
            for (int number = 0; number < fields.length; number++) {
                FieldDescriptor field = fields[number];
                if (!field.hasPresence() || message.hasField(field)) {
                    row[number] = converters[number].convert(message.getField(field));
                }
            }
            return RowFactory.create(row);
        }
    }

    private static Converter field(FieldDescriptor field) {
        if (field.isMapField()) {
            FieldDescriptor key = field.getMessageType().findFieldByNumber(1);
            FieldDescriptor value = field.getMessageType().findFieldByNumber(2);
            Converter keys = element(key);
            Converter values = element(value);
            return entries -> {
                Map<Object, Object> map = new LinkedHashMap<>();
                for (Object entry : (List<?>) entries) {
                    Message pair = (Message) entry;
                    map.put(keys.convert(pair.getField(key)), values.convert(pair.getField(value)));
                }
                return map;
            };
        }
        Converter element = element(field);
        if (!field.isRepeated()) {
            return element;
        }
        return elements -> ((List<?>) elements).stream().map(element::convert).toArray();
    }

    private static Converter element(FieldDescriptor field) {
        switch (field.getType()) {
            case MESSAGE:
            case GROUP:
                return field.getMessageType().getFullName().equals("google.protobuf.Timestamp")
                    ? ProtobufReader::timestamp : new Struct(field.getMessageType(), 0);
            case ENUM:
                return value -> UTF8String.fromString(((EnumValueDescriptor) value).getName());
            case STRING:
                return value -> UTF8String.fromString((String) value);
            case BYTES:
                return value -> ((ByteString) value).toByteArray();
            case UINT32:
            case FIXED32:
                return value -> Integer.toUnsignedLong((Integer) value);
            case UINT64:
            case FIXED64:
                return value -> new BigDecimal(Long.toUnsignedString((Long) value));
            default:
                return value -> value;
        }
    }

    private static Object timestamp(Object value) {
        Message message = (Message) value;
        Descriptor type = message.getDescriptorForType();
        long seconds = (Long) message.getField(type.findFieldByNumber(1));
        int nanos = (Integer) message.getField(type.findFieldByNumber(2));
        // Beyond the years of Spark it is no time; the event time is then not readable.
        return Math.abs(seconds) > 9_000_000_000_000L ? null : Instant.ofEpochSecond(seconds, nanos);
    }
}
