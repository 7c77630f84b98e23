package respool;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.apache.avro.AvroRuntimeException;
import org.apache.avro.io.Decoder;
import org.apache.avro.util.Utf8;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Avro's binary encoding in an array. Avro's own decoder allocates what a length asks for before it looks whether there
 * are as many bytes: a value that is not Avro would end the JVM.
 */
final class AvroInput extends Decoder {
    private byte[] bytes;
    private int at;

    void reset(byte[] value, int start) {
        bytes = value;
        at = start;
    }

    boolean isEnd() {
        return at == bytes.length;
    }

    private int take(long count) throws EOFException {
        if (count < 0 || count > bytes.length - at) {
            throw new EOFException();
        }
        int start = at;
        at += (int) count;
        return start;
    }

    UTF8String text() throws IOException {
        int length = length();
        UTF8String text = UTF8String.fromBytes(bytes, take(length), length);
        if (!text.isFullAscii() && !text.isValid()) {
            throw new AvroRuntimeException("UTF-8");
        }
        return text;
    }

    byte[] binary() throws IOException {
        int length = length();
        byte[] copy = new byte[length];
        System.arraycopy(bytes, take(length), copy, 0, length);
        return copy;
    }

    private int length() throws IOException {
        long length = readLong();
        if (length < 0 || length > bytes.length - at) {
            throw new EOFException();
        }
        return (int) length;
    }

    @Override
    public void readNull() {}

    @Override
    public boolean readBoolean() throws IOException {
        byte value = bytes[take(1)];
        if (value < 0 || value > 1) {
            throw new AvroRuntimeException("boolean");
        }
        return value == 1;
    }

    @Override
    public int readInt() throws IOException {
        return Math.toIntExact(readLong());
    }

    @Override
    public long readLong() throws IOException {
        long value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            byte next = bytes[take(1)];
            value |= (next & 127L) << shift;
            if (next >= 0) {
                return value >>> 1 ^ -(value & 1);
            }
        }
        throw new AvroRuntimeException("long");
    }

    @Override
    public float readFloat() throws IOException {
        return ByteBuffer.wrap(bytes, take(4), 4).order(ByteOrder.LITTLE_ENDIAN).getFloat();
    }

    @Override
    public double readDouble() throws IOException {
        return ByteBuffer.wrap(bytes, take(8), 8).order(ByteOrder.LITTLE_ENDIAN).getDouble();
    }

    @Override
    public Utf8 readString(Utf8 old) throws IOException {
        return new Utf8(binary());
    }

    @Override
    public String readString() throws IOException {
        return text().toString();
    }

    @Override
    public void skipString() throws IOException {
        skipBytes();
    }

    @Override
    public ByteBuffer readBytes(ByteBuffer old) throws IOException {
        return ByteBuffer.wrap(binary());
    }

    @Override
    public void skipBytes() throws IOException {
        take(length());
    }

    @Override
    public void readFixed(byte[] copy, int start, int length) throws IOException {
        System.arraycopy(bytes, take(length), copy, start, length);
    }

    @Override
    public void skipFixed(int length) throws IOException {
        take(length);
    }

    @Override
    public int readEnum() throws IOException {
        return readInt();
    }

    @Override
    public int readIndex() throws IOException {
        return readInt();
    }

    /** The number of items of a block, each of at least a byte: items of type null are not read. */
    private long items() throws IOException {
        long count = readLong();
        if (count < 0) {
            readLong(); // the size of the block
            count = -count;
        }
        if (count < 0 || count > bytes.length - at) {
            throw new EOFException();
        }
        return count;
    }

    @Override
    public long readArrayStart() throws IOException {
        return items();
    }

    @Override
    public long arrayNext() throws IOException {
        return items();
    }

    @Override
    public long skipArray() throws IOException {
        return skip();
    }

    @Override
    public long readMapStart() throws IOException {
        return items();
    }

    @Override
    public long mapNext() throws IOException {
        return items();
    }

    @Override
    public long skipMap() throws IOException {
        return skip();
    }

    private long skip() throws IOException {
        long count = readLong();
        while (count < 0) {
            take(readLong());
            count = readLong();
        }
        if (count > bytes.length - at) {
            throw new EOFException();
        }
        return count;
    }
}
