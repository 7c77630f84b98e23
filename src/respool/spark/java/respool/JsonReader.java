package respool;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonFactoryBuilder;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.time.LocalDate;
import java.time.ZoneId;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF2;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads a JSON object as Spark's {@code from_json} does, from its bytes: {@code from_json} creates a reader of characters
 * for each record, which takes longer than the parsing.
 *
 * <p>It returns a row only for a value that {@code from_json} accepts, and the same row. For any other value, and for a
 * few that are rare (see {@link #LONGEST} and {@link Unusual}), it returns null, and {@code from_json} decides.
 */
public class JsonReader implements UDF2<byte[], byte[], Row> {
    private static final long serialVersionUID = 1;
    /** In bytes; below Jackson's limits for names and texts. What a reader costs does not matter above it. */
    private static final int LONGEST = 1 << 15;

    // Names are looked up in a map: to intern them as well would cost a lock for each new name.
    private static final JsonFactory FACTORY =
        new JsonFactoryBuilder().disable(JsonFactory.Feature.INTERN_FIELD_NAMES).build();

    private transient volatile Root root;

    /**
     * Reads one value.
     *
     * @param value a record's value
     * @param config the time zone of times that name no zone, a line feed, and the fields, a struct as Spark's JSON
     * @return the fields, and a null behind them for the column of corrupt records; null for a value left to from_json
     */
    @Override
    public Row call(byte[] value, byte[] config) {
        Root current = root;
        if (current == null || current.config != config) { // a literal is the same array for every record
            current = new Root(config);
            root = current;
        }
        return value == null || value.length > LONGEST || !isUtf8(value) ? null : current.read(value);
    }

    /** Returns whether the bytes are UTF-8 and Jackson will take them for it: it detects UTF-16 and 32 by their zeros. */
    private static boolean isUtf8(byte[] value) {
        if (value.length < 2 || value[0] < 0) { // also a byte order mark, which from_json rejects
            return false;
        }
        for (int number = 0; number < Math.min(value.length, 4); number++) {
            if (value[number] == 0) {
                return false;
            }
        }
        UTF8String text = UTF8String.fromBytes(value);
        return text.isFullAscii() || text.isValid();
    }

    /** A value that only from_json can judge: a wrong type, an empty text for a number, a name that a map has twice. */
    private static final class Unusual extends RuntimeException {
        private static final long serialVersionUID = 1;
        static final Unusual VALUE = new Unusual();

        private Unusual() {
            super(null, null, false, false);
        }
    }

    /** Reads the value at the parser's current token, which is not null. */
    private interface Reader {
        Object read(JsonParser parser, JsonToken token, byte[] value) throws IOException;

        default Object readOrNull(JsonParser parser, JsonToken token, byte[] value) throws IOException {
            return token == JsonToken.VALUE_NULL ? null : read(parser, token, value);
        }
    }

    /** A whole record. */
    private static final class Root {
        final byte[] config;
        private final Struct struct;

        Root(byte[] config) {
            String[] lines = new String(config, StandardCharsets.UTF_8).split("\n", 2);
            this.config = config;
            this.struct = new Struct((StructType) DataType.fromJson(lines[1]), DateTimeUtils.getZoneId(lines[0]), 1);
        }

        Row read(byte[] value) {
            try (JsonParser parser = FACTORY.createParser(value, 0, value.length)) {
                Object row = struct.read(parser, parser.nextToken(), value);
                return parser.nextToken() == null ? (Row) row : null;
            } catch (IOException | RuntimeException error) {
                return null;
            }
        }
    }

    private static final class Struct implements Reader {
        private final Map<String, Integer> positions = new HashMap<>();
        private final Reader[] readers;
        private final int more;

        Struct(StructType type, ZoneId zone, int more) {
            StructField[] fields = type.fields();
            this.readers = new Reader[fields.length];
            this.more = more;
            for (int number = 0; number < fields.length; number++) {
                positions.put(fields[number].name(), number);
                readers[number] = reader(fields[number].dataType(), zone);
            }
        }

        @Override
        public Object read(JsonParser parser, JsonToken token, byte[] value) throws IOException {
            require(token == JsonToken.START_OBJECT);
            Object[] row = new Object[readers.length + more];
            for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
                Integer position = positions.get(name);
                JsonToken first = parser.nextToken();
                if (position == null) {
                    parser.skipChildren();
                } else {
                    row[position] = readers[position].readOrNull(parser, first, value);
                }
            }
            return RowFactory.create(row);
        }
    }

    private static Reader reader(DataType type, ZoneId zone) {
        if (type instanceof StructType) {
            return new Struct((StructType) type, zone, 0);
        }
        if (type instanceof ArrayType) {
            return array(reader(((ArrayType) type).elementType(), zone));
        }
        if (type instanceof MapType) {
            return map(reader(((MapType) type).valueType(), zone));
        }
        if (type instanceof DecimalType) {
            return decimal((DecimalType) type);
        }
        switch (type.typeName()) {
            case "string":
                return JsonReader::text;
            case "boolean":
                return (parser, token, value) -> parser.getBooleanValue();
            case "byte":
                return (parser, token, value) -> whole(parser, token).getByteValue();
            case "short":
                return (parser, token, value) -> whole(parser, token).getShortValue();
            case "integer":
                return (parser, token, value) -> whole(parser, token).getIntValue();
            case "long":
                return (parser, token, value) -> whole(parser, token).getLongValue();
            case "float":
                return (parser, token, value) -> number(parser, token).getFloatValue();
            case "double":
                return (parser, token, value) -> number(parser, token).getDoubleValue();
            case "date":
                return (parser, token, value) -> {
                    scala.Option<Object> days = DateTimeUtils.stringToDate(nonEmpty(parser, token, value));
                    require(days.isDefined());
                    return LocalDate.ofEpochDay((Integer) days.get());
                };
            case "timestamp":
                return (parser, token, value) -> {
                    scala.Option<Object> micros = DateTimeUtils.stringToTimestamp(nonEmpty(parser, token, value), zone);
                    require(micros.isDefined());
                    return DateTimeUtils.microsToInstant((Long) micros.get());
                };
            default: // respool.decoders.json asks for no other
                throw new IllegalArgumentException(type.sql());
        }
    }

    private static Reader array(Reader element) {
        return (parser, token, value) -> {
            require(token == JsonToken.START_ARRAY);
            List<Object> elements = new ArrayList<>();
            for (JsonToken next = parser.nextToken(); next != JsonToken.END_ARRAY; next = parser.nextToken()) {
                elements.add(element.readOrNull(parser, next, value));
            }
            return elements.toArray();
        };
    }

    private static Reader map(Reader element) {
        return (parser, token, value) -> {
            require(token == JsonToken.START_OBJECT);
            Map<String, Object> entries = new LinkedHashMap<>();
            for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
                require(!entries.containsKey(name)); // from_json keeps both
                entries.put(name, element.readOrNull(parser, parser.nextToken(), value));
            }
            return entries;
        };
    }

    private static Reader decimal(DecimalType type) {
        return (parser, token, value) -> {
            BigDecimal number;
            if (token == JsonToken.VALUE_STRING) {
                number = new BigDecimal(parser.getText());
            } else {
                number = number(parser, token).getDecimalValue();
            }
            return Decimal.apply(number, type.precision(), type.scale());
        };
    }

    /** Returns a text without a copy where it has no escapes; of anything but a text, its JSON. */
    private static UTF8String text(JsonParser parser, JsonToken token, byte[] value) throws IOException {
        if (token != JsonToken.VALUE_STRING) {
            ByteArrayOutputStream copy = new ByteArrayOutputStream();
            try (JsonGenerator generator = FACTORY.createGenerator(copy)) {
                generator.copyCurrentStructure(parser);
            }
            return UTF8String.fromBytes(copy.toByteArray());
        }
        int start = (int) parser.currentLocation().getByteOffset(); // Jackson has read the opening quote only
        for (int end = start; end < value.length; end++) {
            if (value[end] == '"') {
                return UTF8String.fromBytes(value, start, end - start);
            }
            if (value[end] == '\\') {
                break;
            }
        }
        return UTF8String.fromString(parser.getText());
    }

    private static UTF8String nonEmpty(JsonParser parser, JsonToken token, byte[] value) throws IOException {
        require(token == JsonToken.VALUE_STRING);
        UTF8String text = text(parser, token, value);
        require(text.numBytes() > 0);
        return text;
    }

    private static JsonParser whole(JsonParser parser, JsonToken token) {
        require(token == JsonToken.VALUE_NUMBER_INT);
        return parser;
    }

    private static JsonParser number(JsonParser parser, JsonToken token) {
        require(token == JsonToken.VALUE_NUMBER_INT || token == JsonToken.VALUE_NUMBER_FLOAT);
        return parser;
    }

    private static void require(boolean usual) {
        if (!usual) {
            throw Unusual.VALUE;
        }
    }
}
