#!/usr/bin/env python3
"""LPIPS over a narrow AlexNet with random weights: images and their distances computed by PyTorch.

  make_lpips.py        writes lpips/ beside this file; needs torch, numpy, safetensors

The distance is that of Zhang et al. 2018 (arXiv:1801.03924), version 0.1, written out with torch.nn.functional: strides,
paddings, pools and the normalization of colours are AlexNet's; channels are few so that the file is small.
"""
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
CHANNELS = [3, 6, 10, 12, 8, 7]
LAYERS = [(0, 11, 4, 2), (3, 5, 1, 2), (6, 3, 1, 1), (8, 3, 1, 1), (10, 3, 1, 1)]  # place, kernel, stride, padding


def stages(x, weights):
  shift, scale = (torch.tensor(v, dtype=x.dtype).view(1, 3, 1, 1) for v in ([-0.030, -0.088, -0.188], [0.458, 0.448, 0.450]))
  x = (x - shift) / scale
  for n, (place, _, stride, padding) in enumerate(LAYERS):
    if n in (1, 2):
      x = F.max_pool2d(x, 3, 2)
    x = F.relu(F.conv2d(x, weights[f"features.{place}.weight"], weights[f"features.{place}.bias"], stride, padding))
    yield x


def distance(a, b, weights):
  """a, b: bytes [height, width, 3]."""
  a, b = (torch.from_numpy(p).to(torch.float64).permute(2, 0, 1)[None] / 127.5 - 1 for p in (a, b))
  total = 0
  for n, (fa, fb) in enumerate(zip(stages(a, weights), stages(b, weights))):
    fa, fb = (f / (f.square().sum(1, keepdim=True).sqrt() + 1e-10) for f in (fa, fb))
    total += ((fa - fb).square() * weights[f"lin{n}.model.1.weight"]).sum(1).mean()
  return float(total)


def main():
  g = torch.Generator().manual_seed(11)
  weights = {}
  for n, (place, kernel, _, _) in enumerate(LAYERS):
    shape = (CHANNELS[n + 1], CHANNELS[n], kernel, kernel)
    weights[f"features.{place}.weight"] = torch.randn(shape, generator=g) * (2 / (shape[1] * kernel * kernel)) ** 0.5
    weights[f"features.{place}.bias"] = 0.3 * torch.randn(shape[0], generator=g)
    weights[f"lin{n}.model.1.weight"] = torch.rand(1, shape[0], 1, 1, generator=g)
  folder = HERE / "lpips"
  folder.mkdir(exist_ok=True)
  save_file(weights, folder / "weights.safetensors")
  exact = {k: v.to(torch.float64) for k, v in weights.items()}
  random = np.random.default_rng(3)
  arrays = {}
  for name, height, width in (("wide", 40, 57), ("least", 31, 31), ("even", 64, 64)):
    smooth = np.linspace(0, 255, width)[None, :, None] * np.array([1.0, 0.6, 0.2]) + np.zeros((height, 1, 1))
    a = np.clip(smooth + random.normal(0, 20, (height, width, 3)), 0, 255).astype(np.uint8)
    b = np.clip(a + random.normal(0, 30, a.shape), 0, 255).astype(np.uint8)
    arrays |= {f"{name}.a": a.astype(np.int32), f"{name}.b": b.astype(np.int32),
               f"{name}.distance": np.array([distance(a, b, exact)], np.float32)}
  np.savez_compressed(folder / "io.npz", **arrays)


if __name__ == "__main__":
  main()
