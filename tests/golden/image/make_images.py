"""Writes files/: small PNG and JPEG files of every kind, and io.npz with the RGB that Pillow's convert("RGB") gives.

Pillow writes few kinds of PNG, so they are assembled here: every colour type and depth, plain and interlaced by
Adam7. For 16-bit grey, which Pillow does not convert to 8 bits, the upper byte is expected.
"""
import io
import pathlib
import struct
import zlib

import numpy as np
from PIL import Image, ImageOps

ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
NAMES = {0: "grey", 2: "rgb", 3: "palette", 4: "grey_alpha", 6: "rgba"}


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pack(samples, bits):
    """Rows of one pass, each after filter type 0."""
    out = b""
    for row in samples.reshape(samples.shape[0], -1):
        if bits == 16:
            line = row.astype(">u2").tobytes()
        elif bits == 8:
            line = row.astype(np.uint8).tobytes()
        else:
            line = np.packbits(np.unpackbits(row.astype(np.uint8)[:, None], axis=1)[:, 8 - bits :].ravel()).tobytes()
        out += b"\0" + line
    return out


def png(samples, colour, bits, interlaced, palette, transparency):
    height, width = samples.shape[:2]
    data = b""
    for x, y, dx, dy in ADAM7 if interlaced else [(0, 0, 1, 1)]:
        part = samples[y::dy, x::dx]
        if part.size:
            data += pack(part, bits)
    out = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, interlaced))
    if palette is not None:
        out += chunk(b"PLTE", palette.astype(np.uint8).tobytes())
    if transparency is not None:
        out += chunk(b"tRNS", transparency)
    return out + chunk(b"tEXt", b"note\0made for a test") + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def main():
    folder = pathlib.Path(__file__).parent / "files"
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(3)
    expected = {}
    depths = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
    for colour, bits in [(colour, bits) for colour in depths for bits in depths[colour]]:
        for interlaced in (0, 1):
            samples = rng.integers(0, 2**bits, (11, 13, CHANNELS[colour]))
            palette = rng.integers(0, 256, (2**bits, 3)) if colour == 3 else None
            transparency = bytes([7, 200]) if colour == 3 and interlaced else None
            if colour == 0 and bits == 8:
                transparency = b"\0\x55"
            name = f"{NAMES[colour]}_{bits}{'_interlaced' if interlaced else ''}"
            data = png(samples, colour, bits, interlaced, palette, transparency)
            (folder / f"{name}.png").write_bytes(data)
            if colour == 0 and bits == 16:
                rgb = (samples >> 8).repeat(3, axis=2)
            else:
                rgb = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
            expected[name] = rgb.astype(np.int32)
    smooth = np.add.outer(np.arange(19) * 9, np.arange(26) * 3)[:, :, None] + np.array([0, 40, 80])
    picture = Image.fromarray(smooth.clip(0, 255).astype(np.uint8))
    for name, image, options in [
        ("colour", picture, {}),
        ("progressive_444", picture, {"progressive": True, "subsampling": 0}),
        ("grey_jpeg", picture.convert("L"), {}),
        *[(f"turned_{i}", picture, {"exif": exif(i, i % 2)}) for i in range(1, 9)],
    ]:
        image.save(folder / f"{name}.jpg", quality=85, **options)
        loaded = ImageOps.exif_transpose(Image.open(folder / f"{name}.jpg"))
        expected[name] = np.asarray(loaded.convert("RGB")).astype(np.int32)
    Image.new("CMYK", (4, 4)).save(folder / "cmyk.jpg")
    np.savez_compressed(folder / "io.npz", **expected)


def exif(orientation, big):
    e = ">" if big else "<"
    directory = struct.pack(e + "HHHIHHI", 1, 0x0112, 3, 1, orientation, 0, 0)
    return b"Exif\0\0" + (b"MM" if big else b"II") + struct.pack(e + "HI", 42, 8) + directory


main()
