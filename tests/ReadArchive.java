import java.io.DataInputStream;
import java.io.FileInputStream;
import java.nio.charset.StandardCharsets;
import java.util.zip.GZIPInputStream;

/** Reads a .tar.gz with nothing but Java's own library and prints "SIZE NAME" of each file in it. */
public class ReadArchive {
    private static final int BLOCK = 512;

    public static void main(String[] arguments) throws Exception {
        try (DataInputStream tar = new DataInputStream(new GZIPInputStream(new FileInputStream(arguments[0])))) {
            byte[] header = new byte[BLOCK];
            for (tar.readFully(header); header[0] != 0; tar.readFully(header)) {
                check(header);
                long size = number(header, 124, 12);
                if (header[156] == '0') {
                    System.out.println(size + " " + name(header));
                }
                tar.skipNBytes((size + BLOCK - 1) / BLOCK * BLOCK);
            }
            // The rest has to be readable too: only at its end are CRC and length compared.
            while (tar.read(header) >= 0) {
            }
        }
    }

    private static void check(byte[] header) {
        long sum = 0;
        for (int i = 0; i < BLOCK; i++) {
            sum += i >= 148 && i < 156 ? ' ' : header[i] & 0xff;
        }
        if (sum != number(header, 148, 8)) {
            throw new IllegalStateException("wrong checksum of " + name(header));
        }
    }

    private static String name(byte[] header) {
        String prefix = text(header, 345, 155);
        return (prefix.isEmpty() ? "" : prefix + "/") + text(header, 0, 100);
    }

    private static long number(byte[] header, int start, int length) {
        return Long.parseLong(text(header, start, length).strip(), 8);
    }

    private static String text(byte[] header, int start, int length) {
        int end = start;
        while (end < start + length && header[end] != 0) {
            end++;
        }
        return new String(header, start, end - start, StandardCharsets.UTF_8);
    }
}
