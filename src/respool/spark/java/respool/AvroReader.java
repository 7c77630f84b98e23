package respool;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.AvroRuntimeException;
import org.apache.avro.LogicalType;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;
import org.apache.avro.SchemaParseException;
import org.apache.avro.io.Decoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.ResolvingDecoder;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF2;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads Avro records, with the Avro library that Spark has. Data of another version of the schema is resolved as the
 * specification of Avro demands.
 *
 * <p>The types are those of {@code respool.decoders.avro_types}.
 */
public class AvroReader extends WireFormat implements UDF2<byte[], byte[], Row> { // Spark looks at a class's own interfaces
    private static final long serialVersionUID = 1;

    @Override
    String kind() {
        return "an Avro record of the schema";
    }

    @Override
    int fields(JsonNode config) {
        return reader(config).getFields().size();
    }

    private static Schema reader(JsonNode config) {
        return parse(config.get("schema").asText());
    }

    private static Schema parse(String text) {
        return new Schema.Parser().setValidateDefaults(false).parse(text);
    }

    @Override
    Program plain(JsonNode config) throws Exception {
        return written(config, config.get("writer").asText());
    }

    @Override
    Program written(JsonNode config, String text) throws Rejected {
        Schema reader = reader(config);
        Schema writer;
        try {
            Schema.Parser parser = new Schema.Parser().setValidateDefaults(false);
            Schema last = null;
            for (JsonNode part : new ObjectMapper().readTree(text)) { // a schema after those that it refers to
                last = parser.parse(part.asText());
            }
            writer = last;
        } catch (SchemaParseException | IOException error) {
            writer = null;
        }
        if (writer == null) {
            throw new Rejected("is not an Avro schema");
        }
        if (writer.equals(reader)) {
            return new Direct(reader);
        }
        SchemaCompatibility.SchemaPairCompatibility pair =
            SchemaCompatibility.checkReaderWriterCompatibility(reader, writer);
        if (pair.getType() != SchemaCompatibility.SchemaCompatibilityType.COMPATIBLE) {
            List<SchemaCompatibility.Incompatibility> why = pair.getResult().getIncompatibilities();
            String place = why.isEmpty() ? "" : " at " + why.get(0).getLocation();
            throw new Rejected("is not compatible with the decoder's schema" + place);
        }
        return new Resolved(Schema.applyAliases(writer, reader), reader);
    }

    private static class Direct implements Program {
        final AvroInput input = new AvroInput();
        final Struct struct;

        Direct(Schema reader) {
            struct = new Struct(reader, 1);
        }

        Row read(Decoder decoder) throws IOException {
            return (Row) struct.read(decoder, input);
        }

        @Override
        public Row read(byte[] value, int start) throws IOException, Rejected {
            input.reset(value, start);
            Row row = read(input);
            if (!input.isEnd()) {
                throw new Rejected("has bytes behind its Avro record");
            }
            return row;
        }
    }

    private static final class Resolved extends Direct {
        private final ResolvingDecoder resolving;

        Resolved(Schema writer, Schema reader) {
            super(reader);
            try {
                resolving = DecoderFactory.get().resolvingDecoder(writer, reader, input);
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }

        @Override
        Row read(Decoder decoder) throws IOException {
            resolving.configure(input);
            Row row = super.read(resolving);
            resolving.drain();
            return row;
        }
    }

    /** Reads a value. The input is the array itself; data without another version is read from it alone. */
    private interface Reader {
        Object read(Decoder decoder, AvroInput input) throws IOException;
    }

    private static final class Struct implements Reader {
        private final Reader[] readers;
        private final int more;

        Struct(Schema schema, int more) {
            List<Schema.Field> fields = schema.getFields();
            this.more = more;
            readers = new Reader[fields.size()];
            for (int number = 0; number < readers.length; number++) {
                readers[number] = reader(fields.get(number).schema());
            }
        }

        @Override
        public Object read(Decoder decoder, AvroInput input) throws IOException {
            Object[] row = new Object[readers.length + more];
            if (decoder == input) {
                for (int number = 0; number < readers.length; number++) {
                    row[number] = readers[number].read(decoder, input);
                }
            } else {
                for (Schema.Field field : ((ResolvingDecoder) decoder).readFieldOrder()) {
                    row[field.pos()] = readers[field.pos()].read(decoder, input);
                }
            }
            return RowFactory.create(row);
        }
    }

    private static Reader reader(Schema schema) {
        LogicalType logical = schema.getLogicalType();
        switch (schema.getType()) {
            case RECORD:
                return new Struct(schema, 0);
            case ARRAY:
                return array(reader(schema.getElementType()));
            case MAP:
                return map(reader(schema.getValueType()));
            case UNION:
                return union(schema);
            case ENUM:
                return symbol(schema.getEnumSymbols());
            case STRING:
                return AvroReader::text;
            case BYTES:
                return logical instanceof LogicalTypes.Decimal
                    ? decimal((LogicalTypes.Decimal) logical, AvroReader::bytes) : AvroReader::bytes;
            case FIXED:
                Reader fixed = fixed(schema.getFixedSize());
                return logical instanceof LogicalTypes.Decimal ? decimal((LogicalTypes.Decimal) logical, fixed) : fixed;
            case INT:
                return logical instanceof LogicalTypes.Date
                    ? (decoder, input) -> LocalDate.ofEpochDay(decoder.readInt()) : (decoder, input) -> decoder.readInt();
            case LONG:
                return whole(logical);
            case FLOAT:
                return (decoder, input) -> decoder.readFloat();
            case DOUBLE:
                return (decoder, input) -> decoder.readDouble();
            case BOOLEAN:
                return (decoder, input) -> decoder.readBoolean();
            default:
                return (decoder, input) -> {
                    decoder.readNull();
                    return null;
                };
        }
    }

    private static Object text(Decoder decoder, AvroInput input) throws IOException {
        if (decoder == input) {
            return input.text();
        }
        UTF8String text = UTF8String.fromBytes(decoder.readString(null).getBytes());
        if (!text.isValid()) {
            throw new AvroRuntimeException("UTF-8");
        }
        return text;
    }

    private static Object bytes(Decoder decoder, AvroInput input) throws IOException {
        if (decoder == input) {
            return input.binary();
        }
        java.nio.ByteBuffer buffer = decoder.readBytes(null);
        byte[] copy = new byte[buffer.remaining()];
        buffer.get(copy);
        return copy;
    }

    private static Reader fixed(int size) {
        return (decoder, input) -> {
            byte[] value = new byte[size];
            decoder.readFixed(value, 0, size);
            return value;
        };
    }

    private static Reader decimal(LogicalTypes.Decimal type, Reader bytes) {
        return (decoder, input) -> {
            byte[] value = (byte[]) bytes.read(decoder, input);
            if (value.length == 0) {
                throw new AvroRuntimeException("decimal");
            }
            BigDecimal number = new BigDecimal(new BigInteger(value), type.getScale());
            if (number.precision() > type.getPrecision()) {
                throw new AvroRuntimeException("decimal");
            }
            return number;
        };
    }

    private static Reader whole(LogicalType logical) {
        String name = logical == null ? "" : logical.getName();
        switch (name) {
            case "timestamp-millis":
                return (decoder, input) -> instant(Math.multiplyExact(decoder.readLong(), 1000L));
            case "timestamp-micros":
                return (decoder, input) -> instant(decoder.readLong());
            case "timestamp-nanos":
                return (decoder, input) -> instant(Math.floorDiv(decoder.readLong(), 1000L));
            case "local-timestamp-millis":
                return (decoder, input) -> local(Math.multiplyExact(decoder.readLong(), 1000L));
            case "local-timestamp-micros":
                return (decoder, input) -> local(decoder.readLong());
            case "local-timestamp-nanos":
                return (decoder, input) -> local(Math.floorDiv(decoder.readLong(), 1000L));
            default:
                return (decoder, input) -> decoder.readLong();
        }
    }

    private static Instant instant(long micros) {
        return DateTimeUtils.microsToInstant(micros);
    }

    private static LocalDateTime local(long micros) {
        return LocalDateTime.ofInstant(instant(micros), ZoneOffset.UTC);
    }

    private static Reader symbol(List<String> symbols) {
        UTF8String[] texts = symbols.stream().map(UTF8String::fromString).toArray(UTF8String[]::new);
        return (decoder, input) -> texts[decoder.readEnum()];
    }

    private static Reader array(Reader element) {
        return (decoder, input) -> {
            List<Object> elements = new ArrayList<>();
            for (long count = decoder.readArrayStart(); count > 0; count = decoder.arrayNext()) {
                for (long number = 0; number < count; number++) {
                    elements.add(element.read(decoder, input));
                }
            }
            return elements.toArray();
        };
    }

    private static Reader map(Reader element) {
        return (decoder, input) -> {
            Map<Object, Object> entries = new LinkedHashMap<>();
            for (long count = decoder.readMapStart(); count > 0; count = decoder.mapNext()) {
                for (long number = 0; number < count; number++) {
                    Object key = text(decoder, input);
                    entries.put(key, element.read(decoder, input));
                }
            }
            return entries;
        };
    }

    /** A value or null is the value; of several types, a struct has a field for each, as Spark's from_avro returns it. */
    private static Reader union(Schema schema) {
        List<Schema> types = schema.getTypes();
        Reader[] readers = types.stream().map(AvroReader::reader).toArray(Reader[]::new);
        int[] places = new int[readers.length];
        int count = 0;
        for (int number = 0; number < places.length; number++) {
            places[number] = types.get(number).getType() == Schema.Type.NULL ? -1 : count++;
        }
        int width = count;
        return (decoder, input) -> {
            int number = decoder.readIndex();
            Object value = readers[number].read(decoder, input);
            if (width == 1 || places[number] < 0) {
                return value;
            }
            Object[] row = new Object[width];
            row[places[number]] = value;
            return RowFactory.create(row);
        };
    }
}
