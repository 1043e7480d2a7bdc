"""Prints the SHA-256 of the image data of each PNG file, without the text that describes how it was made.

  png_data.py FILE...
"""
import hashlib
import struct
import sys

for path in sys.argv[1:]:
    data, at, digest = open(path, "rb").read(), 8, hashlib.sha256()
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind in (b"IHDR", b"IDAT"):
            digest.update(data[at + 8:at + 8 + size])
        at += size + 12
    print(digest.hexdigest())
