package respool;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF2;

/**
 * Reads the values of records by a schema: in the wire format of Confluent, a zero byte and the id of a schema in a
 * registry in front of the data, or the data alone.
 *
 * <p>The row has the fields, and behind them the reason why a value is rejected; one of the two parts is null.
 */
abstract class WireFormat implements UDF2<byte[], byte[], Row> {
    private static final long serialVersionUID = 1;
    private static final int HEAD = 5;

    private transient volatile ThreadLocal<Reading> readings;

    /** Reads data that one schema has written. */
    interface Program {
        Row read(byte[] value, int start) throws Rejected, IOException;
    }

    /** Returns a program for data without a schema's id. */
    abstract Program plain(JsonNode config) throws Exception;

    /** Returns a program for data that a schema of the registry has written; raises Rejected for a wrong schema. */
    abstract Program written(JsonNode config, String schema) throws Exception;

    abstract int fields(JsonNode config) throws Exception;

    abstract String kind();

    /** Why a value is rejected. */
    static final class Rejected extends Exception {
        private static final long serialVersionUID = 1;

        Rejected(String reason) {
            super(reason, null, false, false);
        }
    }

    private final class Reading {
        final byte[] text;
        final JsonNode config;
        final String registry;
        final int fields;
        private final Map<Integer, Program> programs = new HashMap<>();
        private Program plain;

        Reading(byte[] text) throws Exception {
            this.text = text;
            this.config = new ObjectMapper().readTree(text);
            this.registry = config.get("registry").asText();
            this.fields = fields(config);
        }

        Program program(byte[] value) throws Exception {
            if (registry.isEmpty()) {
                if (plain == null) {
                    plain = plain(config);
                }
                return plain;
            }
            if (value.length < HEAD || value[0] != 0) {
                throw new Rejected("not in the wire format of a schema registry");
            }
            int id = (value[1] & 255) << 24 | (value[2] & 255) << 16 | (value[3] & 255) << 8 | value[4] & 255;
            Program program = programs.get(id);
            if (program == null) {
                String schema = Schemas.get(registry, id);
                if (schema == null) {
                    throw new Rejected("the registry has no schema " + id);
                }
                program = wrongSchema(() -> written(config, schema), id);
                programs.put(id, program);
            }
            return program;
        }

        private Program wrongSchema(java.util.concurrent.Callable<Program> make, int id) throws Exception {
            try {
                return make.call();
            } catch (Rejected error) {
                String reason = "schema " + id + " " + error.getMessage();
                return (value, start) -> {
                    throw new Rejected(reason);
                };
            }
        }
    }

    @Override
    public Row call(byte[] value, byte[] config) throws Exception {
        if (value == null) {
            return null;
        }
        Reading reading = reading(config);
        try {
            Program program = reading.program(value);
            return program.read(value, reading.registry.isEmpty() ? 0 : HEAD);
        } catch (Rejected error) {
            return rejected(reading, error.getMessage());
        } catch (IOException | ArithmeticException | IndexOutOfBoundsException | org.apache.avro.AvroRuntimeException e) {
            return rejected(reading, "not " + kind());
        }
    }

    private static Row rejected(Reading reading, String reason) {
        Object[] row = new Object[reading.fields + 1];
        row[reading.fields] = reason;
        return RowFactory.create(row);
    }

    private Reading reading(byte[] config) throws Exception {
        ThreadLocal<Reading> local = readings;
        if (local == null) {
            local = new ThreadLocal<>();
            readings = local;
        }
        Reading reading = local.get();
        if (reading == null || reading.text != config) { // a literal is the same array for every record
            reading = new Reading(config);
            local.set(reading);
        }
        return reading;
    }
}
