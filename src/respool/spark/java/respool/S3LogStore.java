package respool;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.AWSServiceIOException;

/**
 * The commits of Delta tables on S3, by several processes at the same time.
 *
 * Delta's own log store for S3 keeps apart the writers of one process only. Here a commit is a conditional write
 * (If-None-Match): of all processes that write the same version, exactly one succeeds. delta-rs commits in the same way.
 */
public final class S3LogStore extends HadoopFileSystemLogStore {
    /** Creates a file in close(), if there is none then. */
    private static final String CONDITIONAL = "fs.option.create.conditional.overwrite";

    /** S3's answer when it could not check a condition, as another write of the same file was in progress. */
    private static final int CONFLICT = 409;

    private static final int NOT_IMPLEMENTED = 501;
    private static final long[] PAUSES = {100, 300, 1000, 3000};

    public S3LogStore(Configuration conf) {
        super(conf);
    }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf) throws IOException {
        ByteArrayOutputStream lines = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            lines.write(actions.next().getBytes(StandardCharsets.UTF_8));
            lines.write('\n');
        }
        FileSystem files = path.getFileSystem(conf);
        if (overwrite) {
            put(files.create(path, true), lines.toByteArray());
        } else {
            create(files, path, lines.toByteArray());
        }
    }

    @Override
    public Iterator<FileStatus> listFrom(Path path, Configuration conf) throws IOException {
        String first = path.getName();
        return Arrays.stream(path.getFileSystem(conf).listStatus(path.getParent()))
                .filter(file -> file.getPath().getName().compareTo(first) >= 0)
                .sorted(Comparator.comparing(file -> file.getPath().getName()))
                .iterator();
    }

    @Override
    public Boolean isPartialWriteVisible(Path path, Configuration conf) {
        return false;
    }

    private static void create(FileSystem files, Path path, byte[] content) throws IOException {
        for (int attempt = 0; ; attempt++) {
            try {
                FSDataOutputStreamBuilder<?, ?> builder = files.createFile(path);
                builder.create();
                builder.overwrite(true);
                builder.must(CONDITIONAL, true);
                put(builder.build(), content);
                return;
            } catch (IOException error) {
                byte[] written = read(files, path);
                if (written != null) {
                    if (Arrays.equals(written, content)) {
                        return; // the answer to the first attempt was lost; a commit has a unique id
                    }
                    FileAlreadyExistsException exists = new FileAlreadyExistsException(path.toString());
                    exists.initCause(error);
                    throw exists;
                }
                int status = error instanceof AWSServiceIOException answer ? answer.statusCode() : 0;
                if (status == NOT_IMPLEMENTED) {
                    throw new IOException(
                            path + ": the store does not support conditional writes (If-None-Match). With spark.delta."
                                    + "logStore.s3a.impl=io.delta.storage.S3SingleDriverLogStore in the [spark] table of "
                                    + "respool.toml it is written all the same; then only one process may write a table.",
                            error);
                }
                if (status != CONFLICT || attempt == PAUSES.length) {
                    throw error;
                }
            }
            try {
                Thread.sleep(PAUSES[attempt]);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
                throw (IOException) new InterruptedIOException().initCause(error);
            }
        }
    }

    /** Writes a file, which appears when it is closed, or not at all. */
    private static void put(FSDataOutputStream file, byte[] content) throws IOException {
        try {
            file.write(content);
        } catch (IOException | RuntimeException error) {
            file.abort();
            throw error;
        }
        file.close();
    }

    private static byte[] read(FileSystem files, Path path) throws IOException {
        try (InputStream file = files.open(path)) {
            return file.readAllBytes();
        } catch (FileNotFoundException error) {
            return null;
        }
    }
}
