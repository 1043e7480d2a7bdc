"""Writes torch_generator/io.npz: the output of torch.randn for several seeds, sizes and sequences of calls.

On a CPU with AVX2; torch uses different code for sizes below 16.
"""
import pathlib

import numpy as np
import torch

SEEDS = [0, 1, 2**32 + 5, 2**64 - 1, -1, -(2**63)]
SIZES = [1, 2, 15, 16, 17, 31, 64, 1000]
IN_TURN = [1, 16, 2, 15, 17, 1, 3, 64, 1]  # the cached second value survives calls of 16 and more


def generator(seed):
    return torch.Generator("cpu").manual_seed(seed)


arrays = {}
for seed in SEEDS:
    for size in SIZES if seed in (0, 1, 2**32 + 5) else [2, 16]:
        arrays[f"fresh_{seed}_{size}"] = torch.randn(size, generator=generator(seed)).numpy()
    source = generator(seed)
    arrays[f"turns_{seed}"] = torch.cat([torch.randn(size, generator=source) for size in IN_TURN]).numpy()
assert torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
folder = pathlib.Path(__file__).parent / "torch_generator"
folder.mkdir(exist_ok=True)
np.savez_compressed(folder / "io.npz", **arrays)
