"""Shared by the scripts in this folder: random weights that exercise every term, and the file format of a case.

A case is a folder: config.json, model.safetensors (bfloat16), and io.npz with arrays "RUN.NAME": the inputs
of a network and its outputs in PyTorch, computed in float64 and rounded to float32.
"""
import json
import pathlib

import numpy as np
import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent


def randomize(model, seed, gain=1.0):
  """Weights like those of a trained network: norms around one, biases of visible size, linears that keep the scale of x."""
  g = torch.Generator().manual_seed(seed)
  with torch.no_grad():
    for name, p in model.named_parameters():
      noise = torch.randn(p.shape, generator=g, dtype=torch.float64)
      if p.ndim == 1:
        is_weight = name.endswith("weight")
        value = (1.0 if is_weight else 0.0) + 0.2 * noise
      else:
        value = gain * noise / (p[0].numel() ** 0.5)
      p.copy_(value.to(torch.bfloat16).to(p.dtype))


def to_rows(latents, patch):
  """[batch, channels, height, width] to rows of patches [channels, patch, patch]."""
  n, c, h, w = latents.shape
  x = latents.reshape(n, c, h // patch, patch, w // patch, patch).permute(0, 2, 4, 1, 3, 5)
  return x.reshape(-1, c * patch * patch)


def to_velocity_rows(picture, patch):
  """The same to rows [patch, patch, channels]."""
  n, c, h, w = picture.shape
  x = picture.reshape(n, c, h // patch, patch, w // patch, patch).permute(0, 2, 4, 3, 5, 1)
  return x.reshape(-1, c * patch * patch)


def save(name, model, config, runs):
  """runs: {run: {array name: tensor}}; integers become int32."""
  folder = HERE / name
  folder.mkdir(exist_ok=True)
  (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
  save_file({k: v.to(torch.bfloat16).contiguous() for k, v in model.state_dict().items()}, folder / "model.safetensors")
  arrays = {}
  for run, tensors in runs.items():
    for key, value in tensors.items():
      value = torch.as_tensor(value)
      arrays[f"{run}.{key}"] = value.to(torch.float32 if value.is_floating_point() else torch.int32).numpy()
  np.savez_compressed(folder / "io.npz", **arrays)
  size = sum(f.stat().st_size for f in folder.iterdir())
  print(f"{name}: {size / 1e3:.0f} KB")
