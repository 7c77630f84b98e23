package respool;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.spark.sql.api.java.UDF2;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads the texts of a JSON object that is as plain as most are: in UTF-8, without objects or lists in it, without
 * escapes. Of anything else it says nothing, and Spark's own {@code from_json} is asked: for one record that takes ten
 * times as long, most of it to make a reader of characters.
 */
public class QuickJson implements UDF2<byte[], String, Object[]> {
    private static final long serialVersionUID = 1;
    private static final int LONGEST = 1 << 15; // below what Spark's parser takes for a name
    private static final int LONGEST_NUMBER = 18;

    private transient String asked;
    private transient byte[][] names;

    /**
     * Returns the texts of some fields, null for one that is not there.
     *
     * @param value a record's value
     * @param fields the names of the fields, one a line
     * @return the texts, or null for a value that is not as plain, also one with other than text in one of the fields
     */
    @Override
    public Object[] call(byte[] value, String fields) {
        if (value == null || value.length > LONGEST) {
            return null;
        }
        return new Scan(value, names(fields)).texts();
    }

    private synchronized byte[][] names(String fields) {
        if (!fields.equals(asked)) {
            String[] words = fields.split("\n");
            names = new byte[words.length][];
            for (int number = 0; number < words.length; number++) {
                names[number] = words[number].getBytes(StandardCharsets.UTF_8);
            }
            asked = fields;
        }
        return names;
    }

    /** One value, from its begin to its end. */
    private static final class Scan {
        private final byte[] value;
        private final byte[][] names;
        private final Object[] texts;
        private final boolean[] seen;
        private boolean ascii = true;
        private int at;

        Scan(byte[] value, byte[][] names) {
            this.value = value;
            this.names = names;
            this.texts = new Object[names.length];
            this.seen = new boolean[names.length];
        }

        Object[] texts() {
            if (next() != '{' || !fields() || next() != -1) {
                return null;
            }
            return ascii || UTF8String.fromBytes(value).isValid() ? texts : null;
        }

        /** Reads fields up to the object's end. */
        private boolean fields() {
            int sign = next();
            if (sign == '}') {
                return true;
            }
            while (sign == '"' && field()) {
                sign = next();
                if (sign == '}') {
                    return true;
                }
                if (sign != ',') {
                    return false;
                }
                sign = next();
            }
            return false;
        }

        /** Reads a field behind the first quote of its name; what an unknown one holds only has to be plain. */
        private boolean field() {
            int start = at;
            if (!text()) {
                return false;
            }
            int known = known(start, at - 1);
            if (next() != ':') {
                return false;
            }
            if (known >= 0) {
                if (seen[known]) {
                    return false;
                }
                seen[known] = true;
            }
            int sign = next();
            start = at;
            switch (sign) {
                case '"':
                    if (!text()) {
                        return false;
                    }
                    if (known >= 0) {
                        texts[known] = UTF8String.fromBytes(value, start, at - 1 - start);
                    }
                    return true;
                case 'n':
                    return rest("ull");
                case 't':
                    return known < 0 && rest("rue");
                case 'f':
                    return known < 0 && rest("alse");
                default:
                    return known < 0 && sign >= '0' && sign <= '9' && number(sign);
            }
        }

        private int known(int start, int end) {
            for (int number = 0; number < names.length; number++) {
                if (Arrays.equals(value, start, end, names[number], 0, names[number].length)) {
                    return number;
                }
            }
            return -1;
        }

        /** Reads up to and with the closing quote. */
        private boolean text() {
            while (at < value.length) {
                byte sign = value[at++];
                if (sign == '"') {
                    return true;
                }
                if (sign == '\\' || (sign >= 0 && sign < ' ')) {
                    return false;
                }
                ascii &= sign >= 0;
            }
            return false;
        }

        private boolean rest(String word) {
            for (int number = 0; number < word.length(); number++) {
                if (at == value.length || value[at++] != word.charAt(number)) {
                    return false;
                }
            }
            return true;
        }

        /** Reads a whole number, of which the first digit is read. */
        private boolean number(int first) {
            int start = at;
            while (at < value.length && value[at] >= '0' && value[at] <= '9') {
                at++;
            }
            return at - start < LONGEST_NUMBER && (first != '0' || at == start);
        }

        /** Returns the next sign that is not white space, or -1 at the end. */
        private int next() {
            while (at < value.length) {
                byte sign = value[at++];
                if (sign != ' ' && sign != '\n' && sign != '\t' && sign != '\r') {
                    return sign < 0 ? 0 : sign;
                }
            }
            return -1;
        }
    }
}
