package respool;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** The schemas of registries, each asked for once. */
public final class Schemas {
    /** For how long the answer that a registry has no such schema is valid: registries are replicated. */
    private static final long UNKNOWN_NANOS = 10_000_000_000L;

    private static final Map<String, String> KNOWN = new ConcurrentHashMap<>();
    private static final Map<String, Long> UNKNOWN = new ConcurrentHashMap<>();
    private static volatile SchemaSource source;

    private Schemas() {}

    /** Sets where schemas are looked up in this JVM. */
    public static void setSource(SchemaSource python) {
        source = python;
    }

    /** Returns a schema; null when the registry has no such schema. */
    static String get(String registry, int id) {
        String key = id + " " + registry;
        String schema = KNOWN.get(key);
        if (schema != null) {
            return schema;
        }
        Long asked = UNKNOWN.get(key);
        if (asked != null && System.nanoTime() - asked < UNKNOWN_NANOS) {
            return null;
        }
        return ask(registry, id, key);
    }

    private static synchronized String ask(String registry, int id, String key) {
        if (KNOWN.containsKey(key)) {
            return KNOWN.get(key);
        }
        if (source == null) {
            throw new RegistryRefused("a schema registry is asked by the driver's process, and this is another one: "
                + "run it with a master of local[…]");
        }
        String answer = source.find(registry, id);
        String text = answer.substring(1);
        switch (answer.charAt(0)) {
            case '=':
                KNOWN.put(key, text);
                return text;
            case '?':
                UNKNOWN.put(key, System.nanoTime());
                return null;
            case '!':
                throw new RegistryUnreachable(text);
            default:
                throw new RegistryRefused(text);
        }
    }

    /** The registry does not answer: a query that fails with it may succeed later. */
    public static final class RegistryUnreachable extends RuntimeException {
        private static final long serialVersionUID = 1;

        RegistryUnreachable(String why) {
            super(why);
        }
    }

    /** The registry refuses to answer. */
    public static final class RegistryRefused extends RuntimeException {
        private static final long serialVersionUID = 1;

        RegistryRefused(String why) {
            super(why);
        }
    }
}
