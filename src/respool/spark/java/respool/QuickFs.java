package respool;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FsServerDefaults;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.local.LocalConfigKeys;

/** The local disk with checksums, for {@code fs.AbstractFileSystem.file.impl}: Spark writes checkpoints by it. */
public class QuickFs extends ChecksumFs {
    /** Called by Hadoop. */
    public QuickFs(URI uri, Configuration conf) throws IOException, URISyntaxException {
        super(new Raw(conf));
    }

    private static class Raw extends DelegateToFileSystem {
        Raw(Configuration conf) throws IOException, URISyntaxException {
            super(URI.create("file:///"), new QuickRawFileSystem(), conf, "file", false);
        }

        @Override
        public int getUriDefaultPort() {
            return -1; // a disk has no port
        }

        @Override
        public FsServerDefaults getServerDefaults(Path path) throws IOException {
            return LocalConfigKeys.getServerDefaults();
        }

        @Override
        public boolean isValidName(String name) {
            return true; // as Hadoop's own: names are the disk's business
        }
    }
}
