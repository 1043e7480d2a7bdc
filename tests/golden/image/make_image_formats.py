"""Writes formats/: small GIF, BMP, TIFF, WebP and JPEG files of every kind that is read, and io.npz with what Pillow
makes of each: NAME is its convert("RGB"), NAME.alpha its transparency.

Pillow writes few kinds of BMP and TIFF, so the others are assembled here by the descriptions of the formats.
"""
import io
import pathlib
import struct

import numpy as np
from PIL import Image, ImageOps

HEIGHT, WIDTH = 11, 13
rng = np.random.default_rng(5)
smooth = (np.add.outer(np.arange(HEIGHT) * 15, np.arange(WIDTH) * 7)[:, :, None] + np.array([0, 40, 80])).clip(0, 255)
photo = Image.fromarray(np.where(rng.random((HEIGHT, WIDTH, 1)) < 0.3, 255 - smooth, smooth).astype(np.uint8))
transparency = rng.integers(0, 256, (HEIGHT, WIDTH)).astype(np.uint8)
transparency[2:5] = 0
transparency[5:8] = 255
see_through = photo.copy()
see_through.putalpha(Image.fromarray(transparency))


def saved(image, form, **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def padded(rows, to):
    return b"".join(row + b"\0" * (-len(row) % to) for row in rows)


def bmp(bits, rows, height=HEIGHT, palette=b"", compression=0, masks=b"", head=40):
    """`rows` from the bottom up, as bytes."""
    data = padded(rows, 4)
    if head == 12:
        info = struct.pack("<IHHHH", 12, WIDTH, height, 1, bits)
    else:
        info = struct.pack("<IiiHHIIiiII", head, WIDTH, height, 1, bits, compression, len(data), 0, 0, len(palette) // 4, 0)
        info += masks if head == 40 else masks.ljust(head - 40, b"\0")
    offset = 14 + len(info) + len(palette)
    return b"BM" + struct.pack("<IHHI", offset + len(data), 0, 0, offset) + info + palette + data


def bmps():
    pixels = np.asarray(photo)
    indices = rng.integers(0, 16, (HEIGHT, WIDTH))
    colors = rng.integers(0, 256, (16, 4)).astype(np.uint8)
    nibbles = [np.packbits(np.unpackbits(row.astype(np.uint8)[:, None], axis=1)[:, 4:].ravel()).tobytes() for row in indices[::-1]]
    words = rng.integers(0, 2**16, (HEIGHT, WIDTH)).astype("<u2")
    longs = rng.integers(0, 2**32, (HEIGHT, WIDTH), dtype=np.uint64).astype("<u4")
    bgr = [row[:, ::-1].tobytes() for row in pixels]
    return {
        "bmp_1": saved(photo.convert("1"), "BMP"),
        "bmp_4": bmp(4, nibbles, palette=colors.tobytes()),
        "bmp_8": saved(photo.quantize(200), "BMP"),
        "bmp_grey": saved(photo.convert("L"), "BMP"),
        "bmp_16": bmp(16, [row.tobytes() for row in words]),
        "bmp_565": bmp(16, [row.tobytes() for row in words], compression=3, masks=struct.pack("<III", 0xF800, 0x7E0, 0x1F)),
        "bmp_24": saved(photo, "BMP"),
        "bmp_top_down": bmp(24, bgr, -HEIGHT),
        "bmp_core": bmp(24, bgr[::-1], head=12),
        "bmp_32": bmp(32, [row.tobytes() for row in longs]),
        "bmp_masks": bmp(32, [row.tobytes() for row in longs], compression=3,
                         masks=struct.pack("<IIII", 0xFF000000, 0xFF0000, 0xFF00, 0), head=56),
        "bmp_alpha": bmp(32, [row.tobytes() for row in longs], compression=3,
                         masks=struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000), head=108),
    }


def gifs():
    indexed = photo.quantize(100)
    few = photo.quantize(3)
    plain = saved(indexed, "GIF", interlace=0)
    # The image on a canvas of 20 x 15, two pixels from the left and three from the top.
    placed = bytearray(plain)
    placed[6:10] = struct.pack("<HH", 20, 15)
    descriptor = placed.index(b"," + struct.pack("<HHHH", 0, 0, WIDTH, HEIGHT))
    placed[descriptor + 1 : descriptor + 5] = struct.pack("<HH", 2, 3)
    noise = Image.fromarray(rng.integers(0, 256, (70, 66)).astype(np.uint8))  # more codes than the table holds
    return {
        "gif": plain,
        "gif_interlaced": saved(indexed, "GIF", interlace=1),
        "gif_few_colors": saved(few, "GIF"),
        "gif_transparent": saved(few, "GIF", transparency=1),
        "gif_placed": bytes(placed),
        "gif_animated": saved(indexed, "GIF", save_all=True, append_images=[indexed.rotate(180)], duration=100),
        "gif_noise": saved(noise, "GIF"),
    }


def tiff(samples, photometric, order="<", bits=8, tile=None, planar=False, tags=(), rows_per_strip=4):
    """Uncompressed, of samples [height, width, n]."""
    height, width, count = samples.shape
    planes = [samples[:, :, i : i + 1] for i in range(count)] if planar else [samples]
    parts = []
    for plane in planes:
        if tile:
            bordered = np.pad(plane, ((0, -height % tile), (0, -width % tile), (0, 0)))
            parts += [bordered[y : y + tile, x : x + tile] for y in range(0, height, tile) for x in range(0, width, tile)]
        else:
            parts += [plane[y : y + rows_per_strip] for y in range(0, height, rows_per_strip)]
    stored = [part.astype(order + f"u{bits // 8}").tobytes() for part in parts]
    begins = np.cumsum([8] + [len(part) for part in stored])
    entries = {256: [width], 257: [height], 258: [bits] * count, 259: [1], 262: [photometric], 277: [count],
               284: [2 if planar else 1], **dict(tags)}
    begin_tag, size_tag = (324, 325) if tile else (273, 279)
    entries[begin_tag], entries[size_tag] = [int(b) for b in begins[:-1]], [len(part) for part in stored]
    entries.update({322: [tile], 323: [tile]} if tile else {278: [rows_per_strip]})
    directory = int(begins[-1]) + int(begins[-1]) % 2
    values_at = directory + 2 + 12 * len(entries) + 4
    head, values = struct.pack(order + "H", len(entries)), b""
    for tag in sorted(entries):
        array = entries[tag]
        kind, code = (4, "I") if tag in (begin_tag, size_tag) else (3, "H")
        data = struct.pack(order + f"{len(array)}{code}", *array)
        if len(data) > 4:
            place = struct.pack(order + "I", values_at + len(values))
            values += data + b"\0" * (len(data) % 2)
        else:
            place = data.ljust(4, b"\0")
        head += struct.pack(order + "HHI", tag, kind, len(array)) + place
    body = b"".join(stored)
    mark = b"II*\0" if order == "<" else b"MM\0*"
    return mark + struct.pack(order + "I", directory) + body + b"\0" * (len(body) % 2) + head + bytes(4) + values


def tiffs():
    rgb = np.asarray(photo)
    deep = rng.integers(0, 2**16, (HEIGHT, WIDTH, 3))
    large = photo.resize((45, 35))
    return {
        "tiff": saved(photo, "TIFF"),
        "tiff_lzw": saved(large, "TIFF", compression="tiff_lzw"),
        "tiff_lzw_noise": saved(Image.fromarray(rng.integers(0, 256, (45, 40, 3)).astype(np.uint8)), "TIFF", compression="tiff_lzw"),
        "tiff_pack_bits": saved(photo.quantize(5), "TIFF", compression="packbits"),
        "tiff_deflate": saved(large, "TIFF", compression="tiff_adobe_deflate"),
        "tiff_predictor": saved(large, "TIFF", compression="tiff_lzw", tiffinfo={317: 2}),
        "tiff_grey": saved(photo.convert("L"), "TIFF"),
        "tiff_1": saved(photo.convert("1"), "TIFF"),
        "tiff_palette": saved(photo.quantize(60), "TIFF"),
        "tiff_alpha": saved(see_through, "TIFF", compression="tiff_lzw"),
        "tiff_cmyk": saved(Image.fromarray(rng.integers(0, 256, (HEIGHT, WIDTH, 4)).astype(np.uint8), "CMYK"), "TIFF"),
        "tiff_big_endian": tiff(rgb, 2, ">"),
        "tiff_16": tiff(deep, 2, "<", 16),
        "tiff_16_big_endian": tiff(deep, 2, ">", 16),
        "tiff_tiles": tiff(np.asarray(large), 2, tile=32),
        "tiff_planes": tiff(rgb, 2, planar=True),
        "tiff_white_is_zero": tiff(rgb[:, :, :1], 0),
        "tiff_premultiplied": tiff(np.concatenate([rgb // 2, np.full((HEIGHT, WIDTH, 1), 160)], axis=2), 2, tags=[(338, [1])]),
        "tiff_turned": tiff(rgb, 2, tags=[(274, [6])]),
    }


def webps():
    # The later images differ in a corner; the last begins within the canvas.
    second = see_through.copy()
    second.paste((1, 2, 3, 255), (0, 0, 4, 4))
    return {
        "webp_animated": saved(photo, "WEBP", lossless=True, save_all=True, append_images=[photo.rotate(180)], duration=100),
        "webp_animated_alpha": saved(see_through, "WEBP", lossless=True, exact=True, save_all=True, append_images=[second], duration=9),
        "webp_animated_lossy": saved(photo.resize((40, 30)), "WEBP", quality=90, save_all=True, append_images=[photo.resize((40, 30)).rotate(180)]),
    }


def jpegs():
    inks = np.add.outer(np.arange(24) * 6, np.arange(20) * 4)[:, :, None] + np.array([0, 20, 60, 5])
    return {"cmyk": saved(Image.fromarray(inks.clip(0, 255).astype(np.uint8), "CMYK"), "JPEG", quality=90)}


def main():
    folder = pathlib.Path(__file__).parent / "formats"
    folder.mkdir(exist_ok=True)
    expected = {}
    for make, ending in ((bmps, "bmp"), (gifs, "gif"), (tiffs, "tif"), (webps, "webp"), (jpegs, "jpg")):
        for name, data in make().items():
            (folder / f"{name}.{ending}").write_bytes(data)
            image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
            expected[name] = np.asarray(image.convert("RGB")).astype(np.int32)
            alpha = np.asarray(image.convert("RGBA"))[:, :, 3]
            if (alpha < 255).any():
                expected[name + ".alpha"] = alpha.astype(np.int32)
    np.savez_compressed(folder / "io.npz", **expected)


main()
