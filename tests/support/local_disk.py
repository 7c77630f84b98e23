"""Spark's access to the local disk, without a process for each file that it writes."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Hadoop without its native library starts `chmod` for every file and folder that it makes, several for each batch.
_SOURCE = """
package respool.tests;

public class QuickLocalFiles extends org.apache.hadoop.fs.RawLocalFileSystem {
    public void setPermission(org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission permission)
            throws java.io.IOException {
        int wanted = permission.toShort();
        java.util.Set found = java.util.EnumSet.noneOf(java.nio.file.attribute.PosixFilePermission.class);
        java.nio.file.attribute.PosixFilePermission[] all =
            java.nio.file.attribute.PosixFilePermission.values();  // from the owner's r to the others' x
        for (int i = 0; i < 9; i++) {
            if ((wanted & (0400 >> i)) != 0) {
                found.add(all[i]);
            }
        }
        java.nio.file.Files.setPosixFilePermissions(pathToFile(path).toPath(), found);
    }
}
"""


def quicken(spark: "SparkSession") -> None:
    """Let this Spark set the permissions of local files by itself. What it writes is the same."""
    gateway: Any = spark.sparkContext._gateway
    jvm = gateway.jvm
    conf = jvm.org.apache.hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration())
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_SOURCE)
    raw = compiler.getClassLoader().loadClass("respool.tests.QuickLocalFiles").getConstructor(None).newInstance(None)
    files = jvm.org.apache.hadoop.fs.LocalFileSystem(raw)
    where = jvm.java.net.URI.create("file:///")
    files.initialize(where, conf)
    kind = jvm.java.lang.Class.forName("org.apache.hadoop.fs.FileSystem")
    for method in kind.getDeclaredMethods():
        if method.getName() == "addFileSystemForTesting":
            method.setAccessible(True)
            arguments = gateway.new_array(jvm.java.lang.Object, 3)
            arguments[0], arguments[1], arguments[2] = where, conf, files
            method.invoke(None, arguments)
