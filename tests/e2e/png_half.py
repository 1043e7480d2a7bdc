"""A mask whose right half is white, and what an image keeps outside of it.

  png_half.py mask SIZE FILE     writes the mask, SIZE x SIZE
  png_half.py left FIRST SECOND  prints how many pixels of the left halves differ (8-bit RGB)
"""
import struct
import sys
import zlib


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def write_mask(size, path):
    row = b"\0" + b"\0" * (size // 2) + b"\xff" * (size - size // 2)
    header = struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(row * size)) +
                   chunk(b"IEND", b""))


def pixels(path):
    """Width and rows of an RGB image."""
    data, at, compressed = open(path, "rb").read(), 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        part = data[at + 8:at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", part[:10])
            assert (depth, colour) == (8, 2)
        compressed += part if kind == b"IDAT" else b""
        at += size + 12
    raw, stride, rows, above = zlib.decompress(compressed), 3 * width, [], bytes(3 * width)
    for y in range(height):
        how, row = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        for i in range(stride):
            a, b, c = (row[i - 3] if i >= 3 else 0), above[i], (above[i - 3] if i >= 3 else 0)
            nearest = min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))[2]  # Paeth
            row[i] = (row[i] + [0, a, b, (a + b) // 2, nearest][how]) % 256
        rows.append(bytes(row))
        above = row
    return width, rows


if sys.argv[1] == "mask":
    write_mask(int(sys.argv[2]), sys.argv[3])
else:
    (width, first), (_, second) = pixels(sys.argv[2]), pixels(sys.argv[3])
    print(sum(a[3 * x:3 * x + 3] != b[3 * x:3 * x + 3] for a, b in zip(first, second) for x in range(width // 2)))
