package respool;

import org.apache.hadoop.fs.LocalFileSystem;

/** The local disk with checksums, for {@code fs.file.impl}. */
public class QuickFileSystem extends LocalFileSystem {
    /** Called by Hadoop. */
    public QuickFileSystem() {
        super(new QuickRawFileSystem());
    }
}
