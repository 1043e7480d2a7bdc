#!/usr/bin/env python3
"""Convolutions by PyTorch in float64, for tests/graph/ops/convolution_test.cc.

    python tests/golden/make_convolution.py      writes tests/golden/convolution.npz; needs torch and numpy

For each case N the file has N.attrs (int32: transposed, groups, batch, in, out, then for each axis its size, kernel, stride,
dilation, padding before and after, kind of padding as in tensor/conv_padding.h, output padding), N.x [batch, sizes, in] in
float32, N.w in the order of checkpoints, N.b [out], and N.y [batch, sizes, out] in float64.
"""
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

ZEROS, REPLICATE, REFLECT, CIRCULAR = range(4)
MODES = {REPLICATE: "replicate", REFLECT: "reflect", CIRCULAR: "circular"}


def axis(size, kernel, stride=1, dilation=1, before=0, after=None, padding=ZEROS, output_padding=0):
    return size, kernel, stride, dilation, before, before if after is None else after, padding, output_padding


# transposed, groups, batch, in, out, axes
CASES = [
    (0, 1, 2, 5, 7, [axis(11, 3, before=1)]),
    (0, 1, 1, 8, 12, [axis(16, 3, stride=2, before=1)]),
    (0, 4, 2, 8, 12, [axis(13, 4, stride=3, dilation=2, before=3, after=1, padding=REFLECT)]),
    (0, 1, 1, 1, 18, [axis(96, 16, stride=4)]),
    (1, 1, 1, 8, 6, [axis(7, 8, stride=4, before=2)]),
    (1, 2, 2, 6, 4, [axis(5, 5, stride=3, dilation=2, before=1, output_padding=2)]),
    (0, 1, 2, 6, 5, [axis(7, 3, before=1, padding=CIRCULAR), axis(9, 5, before=2, padding=CIRCULAR)]),
    (0, 2, 1, 6, 10, [axis(9, 3, stride=2, before=0, after=1), axis(8, 1)]),
    (0, 9, 1, 9, 9, [axis(8, 3, before=1), axis(13, 3, before=1)]),
    (0, 20, 1, 20, 20, [axis(6, 5, stride=2, before=2), axis(7, 3, dilation=2, before=2)]),
    (0, 1, 1, 32, 3, [axis(5, 3, before=1, padding=REPLICATE), axis(6, 3, before=1, padding=REPLICATE)]),
    (1, 1, 1, 5, 6, [axis(4, 2, stride=2), axis(5, 2, stride=2)]),
    (1, 4, 2, 4, 4, [axis(5, 4, stride=2, before=1), axis(3, 3, stride=2, before=1, output_padding=1)]),
    (0, 1, 1, 4, 6, [axis(5, 3, before=2, after=0), axis(4, 3, before=1), axis(5, 3, before=1)]),
    (0, 1, 2, 3, 5, [axis(4, 3, before=2, after=0, padding=REPLICATE), axis(5, 3, before=1, padding=REPLICATE),
                     axis(3, 3, before=1, padding=REPLICATE)]),
    (0, 3, 1, 3, 6, [axis(6, 1, stride=2), axis(4, 2, stride=2), axis(5, 3, before=1)]),
    (1, 1, 1, 3, 4, [axis(3, 3, stride=2, before=1, output_padding=1), axis(3, 2, stride=2), axis(2, 3, before=1)]),
]


def convolve(transposed, groups, axes, x, w, b):
    """x [batch, in, sizes], padded on all axes before the convolution. PyTorch takes one kind of padding for a tensor, so
    the axes are padded one after the other."""
    n = len(axes)
    stride, dilation = [a[2] for a in axes], [a[3] for a in axes]
    if transposed:
        assert all(a[4] == a[5] for a in axes)
        fn = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[n - 1]
        return fn(x, w, b, stride, [a[4] for a in axes], [a[7] for a in axes], groups, dilation)
    for i, a in enumerate(axes):
        if a[4] == a[5] == 0:
            continue
        moved = x.movedim(2 + i, -1)
        shape = moved.shape
        rows = moved.reshape(1, -1, shape[-1])
        rows = F.pad(rows, (a[4], a[5])) if a[6] == ZEROS else F.pad(rows, (a[4], a[5]), mode=MODES[a[6]])
        x = rows.reshape(*shape[:-1], -1).movedim(-1, 2 + i)
    return (F.conv1d, F.conv2d, F.conv3d)[n - 1](x, w, b, stride, 0, dilation, groups)


def main():
    torch.manual_seed(5)
    arrays = {}
    for i, (transposed, groups, batch, c_in, c_out, axes) in enumerate(CASES):
        x = torch.randn(batch, c_in, *[a[0] for a in axes], dtype=torch.float32)
        shape = (c_in, c_out // groups) if transposed else (c_out, c_in // groups)
        w = torch.randn(*shape, *[a[1] for a in axes], dtype=torch.float32)
        b = torch.randn(c_out, dtype=torch.float32)
        y = convolve(transposed, groups, axes, x.double(), w.double(), b.double())
        arrays[f"{i}.attrs"] = np.array([transposed, groups, batch, c_in, c_out, *[v for a in axes for v in a]], np.int32)
        arrays[f"{i}.x"] = x.movedim(1, -1).contiguous().numpy()
        arrays[f"{i}.w"] = w.numpy()
        arrays[f"{i}.b"] = b.numpy()
        arrays[f"{i}.y"] = y.movedim(1, -1).contiguous().numpy()
    np.savez_compressed(pathlib.Path(__file__).parent / "convolution.npz", **arrays)


if __name__ == "__main__":
    main()
