#!/usr/bin/env python3
"""Convolutions in turn with PyTorch: against_torch.py PROGRAM [--threads N] [--seconds S] [--rounds R]

PROGRAM is build/release/tests/convolution_time or that of another build (cmake --build build/dev --target convolution_time).
Each round runs Redline, then PyTorch, on the same numbers; the outputs are compared before a time counts. PyTorch is timed
twice, with its tensors as they are (NCHW) and in channels_last, of which the better counts: weights and inputs are in that
order before the time begins. Prints medians of the rounds' medians in milliseconds, and the range of the ratio. Needs torch
and numpy.
"""
import argparse
import statistics
import subprocess
import sys
import tempfile
import time
import pathlib

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"))
from make_convolution import axis, convolve  # noqa: E402

# name, transposed, groups, batch, in, out, axes
SHAPES = [
    ("depthwise 3x3, 192 channels, 56x56", 0, 192, 1, 192, 192, [axis(56, 3, before=1), axis(56, 3, before=1)]),
    ("causal 3x3x3, 96 to 96 channels, 4x60x104", 0, 1, 1, 96, 96,
     [axis(4, 3, before=2, after=0), axis(60, 3, before=1), axis(104, 3, before=1)]),
    ("1-d stride 2, 512 to 512 channels, 3000", 0, 1, 1, 512, 512, [axis(3000, 3, stride=2, before=1)]),
    ("transposed 4x4 stride 2, 128 to 64 channels, 64x64", 1, 1, 1, 128, 64,
     [axis(64, 4, stride=2, before=1), axis(64, 4, stride=2, before=1)]),
]


def time_torch(transposed, groups, axes, x, w, b, seconds):
    times, begin = [], time.perf_counter()
    with torch.inference_mode():
        while len(times) < 5 or time.perf_counter() - begin < seconds:
            start = time.perf_counter()
            y = convolve(transposed, groups, axes, x, w, b)
            times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times), y


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    for name, transposed, groups, batch, c_in, c_out, axes in SHAPES:
        x = torch.randn(batch, c_in, *[a[0] for a in axes])
        shape = (c_in, c_out // groups) if transposed else (c_out, c_in // groups)
        w = torch.randn(*shape, *[a[1] for a in axes])
        b = torch.randn(c_out)
        for dtype in (torch.float32, torch.bfloat16):
            own, peer = [], []
            with tempfile.TemporaryDirectory() as folder:
                for file, values in (("x", x.movedim(1, -1)), ("w", w), ("b", b)):
                    values.contiguous().numpy().tofile(f"{folder}/{file}.bin")
                type_name = "f32" if dtype == torch.float32 else "bf16"
                attrs = [transposed, groups, batch, c_in, c_out, *[v for a in axes for v in a]]
                command = [args.program, folder, type_name, str(args.threads), str(args.seconds), *map(str, attrs)]
                formats = [torch.contiguous_format]
                if len(axes) > 1:
                    formats.append(torch.channels_last if len(axes) == 2 else torch.channels_last_3d)
                for _ in range(args.rounds):
                    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                    own.append(float(out.split()[0]))
                    best, y = None, None
                    for memory in formats:
                        inputs = [x.to(dtype).contiguous(memory_format=memory), w.to(dtype).contiguous(memory_format=memory),
                                  b.to(dtype)]
                        took, y = time_torch(transposed, groups, axes, *inputs, args.seconds)
                        best = took if best is None else min(best, took)
                    peer.append(best)
                    want = y.float().movedim(1, -1).contiguous().numpy().ravel()
                    got = np.fromfile(f"{folder}/y.bin", np.float32)
                    error = np.abs(got - want).max() / np.abs(want).max()
                    if got.size != want.size or not error < (1e-4 if dtype == torch.float32 else 2e-2):
                        sys.exit(f"{name}, {type_name}: the outputs differ by {error}")
            ratios = sorted(p / o for o, p in zip(own, peer))
            print(f"{name}, {type_name}: Redline {statistics.median(own):.3f} ms, PyTorch {statistics.median(peer):.3f} ms, "
                  f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})", flush=True)


if __name__ == "__main__":
    main()
