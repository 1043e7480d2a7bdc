#!/usr/bin/env python3
"""Writes tests/golden/quantized.npz: rows of float32, weights of their columns, and checksums (CRC-32 as int32) of the blocks
that ggml's quantizer makes of each row: TYPE (without weights) and TYPE.weighted.

  make_quantized.py LIBGGML_BASE     libggml-base.so of llama.cpp

Needs numpy. Fixed seed: the same rows every time. The stored blocks come from a build for plain x86-64: with fused
multiply-adds (GGML_NATIVE) ggml's sums round differently, and some codes with them.
"""
import ctypes
import sys
import zlib
from pathlib import Path

import numpy as np

OUT = Path(__file__).resolve().parents[1] / "golden/quantized.npz"
# ggml's number, elements and bytes of a block
TYPES = {"q4_0": (2, 32, 18), "q4_1": (3, 32, 20), "q5_0": (6, 32, 22), "q5_1": (7, 32, 24), "q8_0": (8, 32, 34),
         "q2_k": (10, 256, 84), "q3_k": (11, 256, 110), "q4_k": (12, 256, 144), "q5_k": (13, 256, 176),
         "q6_k": (14, 256, 210), "iq4_nl": (20, 32, 18), "iq4_xs": (23, 256, 136), "tq1_0": (34, 256, 54),
         "tq2_0": (35, 256, 66), "mxfp4": (39, 32, 17), "iq3_s": (21, 256, 110)}
COLUMNS = 512


def make_rows(rng):
    rows = rng.standard_normal((5, COLUMNS)).astype(np.float32) * np.float32(0.02)
    rows[1, rng.integers(0, COLUMNS, 6)] *= 40  # outliers
    rows[2, :40] = 0
    rows[2, 256:] = 0
    rows[3] = np.abs(rows[3]) + np.float32(0.01)
    rows[4] = np.sign(rows[4]) * np.float32(0.5) * (rng.random(COLUMNS) < 0.7)  # ternary
    return rows


def main():
    library = ctypes.CDLL(sys.argv[1])
    quantize = library.ggml_quantize_chunk
    quantize.restype = ctypes.c_size_t
    quantize.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64,
                         ctypes.c_void_p]
    library.ggml_quantize_init.argtypes = [ctypes.c_int]
    rng = np.random.default_rng(21)
    rows = make_rows(rng)
    weights = (rng.standard_normal(COLUMNS) ** 2 + 1e-3).astype(np.float32)
    arrays = {"rows": rows, "weights": weights}
    for name, (number, elements, size) in TYPES.items():
        library.ggml_quantize_init(number)
        # ggml misplaces what follows 32 zeros in a block of this type.
        given_rows = np.ascontiguousarray(rows[[0, 1, 3, 4]]) if name == "iq3_s" else rows
        for suffix, given in (("", None), (".weighted", weights.ctypes.data)):
            blocks = np.zeros(given_rows.size // elements * size, np.uint8)
            quantize(number, given_rows.ctypes.data, blocks.ctypes.data, 0, given_rows.shape[0], COLUMNS, given)
            sums = [zlib.crc32(row.tobytes()) for row in blocks.reshape(len(given_rows), -1)]
            arrays[name + suffix] = np.array(sums, np.uint32).view(np.int32)
    np.savez_compressed(OUT, **arrays)
    print(f"{OUT}: {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
