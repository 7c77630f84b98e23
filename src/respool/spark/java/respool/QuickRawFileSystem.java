package respool;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFileAttributeView;
import java.nio.file.attribute.PosixFilePermission;
import java.util.EnumSet;
import java.util.Set;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * The local disk, without a process for each file.
 *
 * <p>Hadoop without its native library starts {@code chmod} for every file and folder that it makes, and {@code
 * readlink} for every file that it renames: a dozen processes for a small file of a checkpoint and its checksum. Java
 * does both by itself. What is on the disk afterwards is the same.
 */
public class QuickRawFileSystem extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
        PosixFileAttributeView file =
            Files.getFileAttributeView(pathToFile(path).toPath(), PosixFileAttributeView.class);
        if (file == null || permission.getStickyBit()) { // a system without such permissions; a bit that Java lacks
            super.setPermission(path, permission);
            return;
        }
        Set<PosixFilePermission> wanted = EnumSet.noneOf(PosixFilePermission.class);
        for (PosixFilePermission one : PosixFilePermission.values()) { // from the owner's r to the others' x
            if ((permission.toShort() & (0400 >> one.ordinal())) != 0) {
                wanted.add(one);
            }
        }
        file.setPermissions(wanted);
    }

    @Override
    public FileStatus getFileLinkStatus(Path path) throws IOException {
        return Files.isSymbolicLink(pathToFile(path).toPath()) ? super.getFileLinkStatus(path) : getFileStatus(path);
    }
}
