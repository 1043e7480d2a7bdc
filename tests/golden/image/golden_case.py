"""Shared by the scripts in this folder: random weights that exercise every term, and the file format of a case.

A case is a folder: config.json, the recipe of model.safetensors (bfloat16; ../weights.py), and io.npz with arrays "RUN.NAME":
the inputs of a network and its outputs in PyTorch, computed in float64 and rounded to float32.
"""
import json
import pathlib
import sys

import numpy as np
import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import weights


def randomize(model, seed, gain=1.0):
  """The values of weights.draw_torch."""
  model.draw = ["torch", seed, *(["gain", gain] if gain != 1 else [])]
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


def describe(folder, file, model, state, **more):
  """Replaces the saved `file` of the randomized `model` by its recipe; `state`: what the file holds, bfloat16."""
  drawn = {k: tuple(p.shape) for k, p in model.named_parameters() if k in state}
  same, stored = {}, {}
  for name in state.keys() - drawn.keys():
    equal = [k for k in drawn if state[k].shape == state[name].shape and torch.equal(state[k], state[name])]
    if equal:
      same[name] = equal[0]
    else:
      stored[name] = state[name].contiguous().view(torch.int16).numpy().view(np.uint16)
  weights.describe(folder, [file], "bf16", model.draw, drawn, same=same, stored=stored, **more)


def load_weights(name):
  """Of a case, in float64."""
  folder = HERE / name
  tensors = weights.open_recipe(folder).make_tensors(folder)
  return {k: torch.from_numpy(weights.to_float32(v, "bf16")).double() for k, v in tensors.items()}


def save(name, model, config, runs):
  """runs: {run: {array name: tensor}}; integers become int32."""
  folder = HERE / name
  folder.mkdir(exist_ok=True)
  (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
  state = {k: v.to(torch.bfloat16).contiguous() for k, v in model.state_dict().items()}
  save_file(state, folder / "model.safetensors")
  describe(folder, "model.safetensors", model, state)
  arrays = {}
  for run, tensors in runs.items():
    for key, value in tensors.items():
      value = torch.as_tensor(value)
      arrays[f"{run}.{key}"] = value.to(torch.float32 if value.is_floating_point() else torch.int32).numpy()
  np.savez_compressed(folder / "io.npz", **arrays)
  size = sum(f.stat().st_size for f in folder.iterdir())
  print(f"{name}: {size / 1e3:.0f} KB")
