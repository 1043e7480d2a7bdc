"""LoRA of convolutions ("LoCon") for the tiny UNets unet_sd15 and unet_sdxl, and the outputs of diffusers with PEFT.

    python tests/golden/image/make_unet_locon.py

Needs torch, diffusers, peft, safetensors, numpy. Fixed seeds. unet_locon/ holds peft.safetensors (PEFT's names) and
kohya.safetensors (kohya's spelling of diffusers' names, alpha not the rank), both of unet_sd15, makers.safetensors (kohya's
spelling of the original names, of unet_sdxl), and io.npz: the model outputs of run "one" of those two networks with them.
"""
import json
import pathlib

import diffusers
import numpy as np
import torch
from peft import LoraConfig
from safetensors.torch import save_file

from golden_case import load_weights

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE / "unet_locon"
RESNET = {"conv1": "in_layers.2", "conv2": "out_layers.3", "conv_shortcut": "skip_connection"}


def makers_name(module):
  """Stability's name of a convolution of unet_sdxl: two layers and a resampling for each level; its one upsampler comes
  after attention."""
  if module in ("conv_in", "conv_out"):
    return {"conv_in": "input_blocks.0.0", "conv_out": "out.2"}[module]
  parts = module.split(".")
  if parts[0] == "mid_block":
    return f"middle_block.{2 * int(parts[2])}.{RESNET[parts[3]]}"
  level, kind = int(parts[1]), parts[2]
  if kind == "downsamplers":
    return f"input_blocks.{3 * (level + 1)}.0.op"
  if kind == "upsamplers":
    return f"output_blocks.{3 * level + 2}.2.conv"
  layer = int(parts[3])
  place = f"input_blocks.{1 + 3 * level + layer}" if parts[0] == "down_blocks" else f"output_blocks.{3 * level + layer}"
  return f"{place}.0.{RESNET[parts[4]]}"


def spell(name, lora, module, side, kind):
  if name == "peft":
    return f"unet.{module}.lora_{kind}", None
  spelled = "lora_unet_" + (makers_name(module) if name == "makers" else module).replace(".", "_")
  return f"{spelled}.lora_{side}.weight", (f"{spelled}.alpha", torch.tensor(float(lora.lora_alpha)))


def run(case, adapters, outputs, arrays):
  config = json.loads((HERE / case / "config.json").read_text())
  config.pop("_class_name")
  model = diffusers.UNet2DConditionModel(**config).double().eval()
  model.load_state_dict(load_weights(case))
  io = {k[4:]: torch.from_numpy(v).double() for k, v in np.load(HERE / case / "io.npz").items() if k.startswith("one.")}
  batch, height, width, tokens = (int(v) for v in io["sizes"])
  added = dict(text_embeds=io["pooled"], time_ids=io["time_ids"].reshape(batch, 6)) if "pooled" in io else None

  def velocity():
    latents = io["latents"].reshape(batch, height, width, 4).permute(0, 3, 1, 2)
    with torch.no_grad():
      out = model(latents, io["timestep"], encoder_hidden_states=io["text"].reshape(batch, tokens, -1), added_cond_kwargs=added,
                  return_dict=False)[0]
    return out.permute(0, 2, 3, 1).reshape(-1, 4).float().contiguous().numpy()

  for name, lora in adapters.items():
    model.add_adapter(lora, adapter_name=name)
  model.double()
  g = torch.Generator().manual_seed(7)
  files = {name: {} for name in adapters}
  with torch.no_grad():
    for key, value in model.named_parameters():
      for name, lora in adapters.items():
        if f".{name}." not in key:
          continue
        value.copy_((0.15 * torch.randn(value.shape, generator=g, dtype=torch.float64)).to(torch.bfloat16).double())
        module, kind = key.replace(f".{name}", "").rsplit(".lora_", 1)
        stored, alpha = spell(name, lora, module, "down" if kind.startswith("A") else "up", kind)
        files[name][stored] = value.to(torch.bfloat16).contiguous()
        if alpha:
          files[name][alpha[0]] = alpha[1]
  for name, tensors in files.items():
    save_file(tensors, FOLDER / f"{name}.safetensors")
  for label, names, weights in outputs:
    model.set_adapters(names, weights)
    arrays[f"{label}.velocity"] = velocity()
  model.disable_adapters()
  none = arrays[f"{case}.velocity"] = velocity()
  print(case, {label: float(np.abs(arrays[f"{label}.velocity"] - none).max()) for label, *_ in outputs}, float(np.abs(none).max()))


FOLDER.mkdir(exist_ok=True)
arrays = {}
run("unet_sd15", {
    "peft": LoraConfig(r=4, lora_alpha=4, target_modules=["conv_in", "conv1", "conv_shortcut", "upsamplers.0.conv", "proj_in"]),
    "kohya": LoraConfig(r=3, lora_alpha=2, target_modules=["conv2", "downsamplers.0.conv", "conv_out", "proj_out", "to_q", "conv1"]),
}, [("peft", ["peft"], [1.0]), ("kohya", ["kohya"], [0.5]), ("both", ["peft", "kohya"], [0.6, -1.1])], arrays)
run("unet_sdxl", {
    "makers": LoraConfig(r=2, lora_alpha=3, target_modules=["conv_in", "conv_out", "conv1", "conv2", "conv_shortcut",
                                                            "downsamplers.0.conv", "upsamplers.0.conv"]),
}, [("makers", ["makers"], [1.0])], arrays)
np.savez_compressed(FOLDER / "io.npz", **arrays)
