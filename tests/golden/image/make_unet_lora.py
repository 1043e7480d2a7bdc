"""LoRA files for the tiny UNet unet_sdxl, and the outputs of diffusers with PEFT.

    python tests/golden/image/make_unet_lora.py

Needs torch, diffusers, peft, safetensors, numpy. Fixed seeds. unet_lora/ holds peft.safetensors (PEFT's names), kohya.safetensors
(kohya's spelling of diffusers' names, alpha not the rank), makers.safetensors (kohya's spelling of the original names, which its
trainer for SDXL writes: the tensors of kohya.safetensors), early.safetensors (what diffusers wrote before PEFT), and io.npz: the
model outputs of run "one" of unet_sdxl with the first at weight one, the second at half, both, the fourth, and none.
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
config = json.loads((HERE / "unet_sdxl" / "config.json").read_text())
config.pop("_class_name")
model = diffusers.UNet2DConditionModel(**config).double().eval()
model.load_state_dict(load_weights("unet_sdxl"))
io = {k[4:]: torch.from_numpy(v).double() for k, v in np.load(HERE / "unet_sdxl" / "io.npz").items() if k.startswith("one.")}
batch, height, width, tokens = (int(v) for v in io["sizes"])


def velocity():
  latents = io["latents"].reshape(batch, height, width, 4).permute(0, 3, 1, 2)
  added = dict(text_embeds=io["pooled"], time_ids=io["time_ids"].reshape(batch, 6))
  with torch.no_grad():
    out = model(latents, io["timestep"], encoder_hidden_states=io["text"].reshape(batch, tokens, -1), added_cond_kwargs=added,
                return_dict=False)[0]
  return out.permute(0, 2, 3, 1).reshape(-1, 4).float().contiguous().numpy()


ADAPTERS = {
    "peft": LoraConfig(r=4, lora_alpha=4, target_modules=["to_q", "to_v", "ff.net.0.proj", "proj_in", "time_emb_proj", "linear_1"]),
    "kohya": LoraConfig(r=3, lora_alpha=2, target_modules=["to_k", "to_out.0", "ff.net.2", "proj_out"]),
    "early": LoraConfig(r=2, lora_alpha=2, target_modules=["to_q", "to_out.0"]),
}


def makers_name(module):
  """Stability's name of a module with attention: two layers and a resampling for each level."""
  parts = module.split(".")
  place = parts[0]
  if place == "mid_block":
    return ".".join(["middle_block", "1", *parts[3:]])
  level, layer, rest = int(parts[1]), int(parts[3]), parts[4:]
  first = 1 + 3 * level + layer if place == "down_blocks" else 3 * level + layer
  return ".".join(["input_blocks" if place == "down_blocks" else "output_blocks", str(first), "1", *rest])


g = torch.Generator().manual_seed(5)
for name, lora in ADAPTERS.items():
  model.add_adapter(lora, adapter_name=name)
model.double()
files = {name: {} for name in [*ADAPTERS, "makers"]}
with torch.no_grad():
  for key, value in model.named_parameters():
    for name, lora in ADAPTERS.items():
      if f".{name}." not in key:
        continue
      value.copy_((0.2 * torch.randn(value.shape, generator=g, dtype=torch.float64)).to(torch.bfloat16).double())
      stored = value.float().contiguous()
      module, kind = key.replace(f".{name}", "").rsplit(".lora_", 1)
      side = "down" if kind.startswith("A") else "up"
      if name == "peft":
        files[name][f"unet.{module}.lora_{kind}"] = stored
      elif name == "early":
        before, projection = module.rsplit(".", 1) if not module.endswith(".0") else module[:-2].rsplit(".", 1)
        files[name][f"unet.{before}.processor.{projection}_lora.{side}.weight"] = stored
      else:
        for file, spelled in (("kohya", module), ("makers", makers_name(module))):
          spelled = "lora_unet_" + spelled.replace(".", "_")
          files[file][f"{spelled}.lora_{side}.weight"] = stored.clone()
          files[file][f"{spelled}.alpha"] = torch.tensor(float(lora.lora_alpha))
folder = HERE / "unet_lora"
folder.mkdir(exist_ok=True)
for name, tensors in files.items():
  save_file({k: v.to(torch.bfloat16) if v.ndim else v for k, v in tensors.items()}, folder / f"{name}.safetensors")
arrays = {}
for label, names, weights in [("peft", ["peft"], [1.0]), ("kohya", ["kohya"], [0.5]), ("both", ["peft", "kohya"], [0.6, -1.1]), ("early", ["early"], [1.0])]:
  model.set_adapters(names, weights)
  arrays[f"{label}.velocity"] = velocity()
model.disable_adapters()
arrays["none.velocity"] = velocity()
np.savez_compressed(folder / "io.npz", **arrays)
print({k: float(np.abs(v - arrays["none.velocity"]).max()) for k, v in arrays.items()})
