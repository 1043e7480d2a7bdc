#!/usr/bin/env python3
"""Writes tests/golden/blocks.npz: random blocks of every weight format and the float32 values that the gguf package
dequantizes them to. TYPE.bytes and TYPE.values, TYPE as gguf names it; bytes as int32, which test readers know.

Needs numpy and gguf. Fixed seed: the same bytes every time. Blocks whose values are not finite (scales are any bits) are drawn again.
"""
from pathlib import Path

import gguf
import numpy as np

OUT = Path(__file__).resolve().parents[1] / "golden/blocks.npz"
TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "IQ3_S",
         "TQ1_0", "TQ2_0", "MXFP4"]
ELEMENTS = 1024


def main():
    rng = np.random.default_rng(20)
    arrays = {}
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = []
        while len(blocks) < ELEMENTS // elements:
            block = rng.integers(0, 256, (1, size), dtype=np.uint8)
            with np.errstate(all="ignore"):
                if np.isfinite(gguf.dequantize(block, kind)).all():
                    blocks.append(block)
        data = np.concatenate(blocks, axis=1)
        arrays[f"{name}.bytes"] = data[0].astype(np.int32)
        arrays[f"{name}.values"] = gguf.dequantize(data, kind)[0].astype(np.float32)
    np.savez_compressed(OUT, **arrays)
    print(f"{OUT}: {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
