package respool;

/** Looks schemas up in schema registries. Python implements it: see {@code respool.decoders.registry}. */
public interface SchemaSource {
    /**
     * Returns a schema.
     *
     * @param registry the name of a registry
     * @param id the id of a schema in it
     * @return the schema after {@code =}; {@code ?} when the registry has no such schema; otherwise, after {@code !},
     *     why it does not answer, or, after {@code -}, why it refuses to
     */
    String find(String registry, int id);
}
