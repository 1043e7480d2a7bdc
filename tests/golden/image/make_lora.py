"""LoRA files for the tiny FLUX transformer flux_dev, and the outputs of diffusers with PEFT.

    python tests/golden/image/make_lora.py

Needs torch, diffusers, peft, safetensors, numpy. Fixed seeds. flux_lora/ holds first.safetensors (PEFT's names, alpha not the
rank), second.safetensors (kohya's spelling of diffusers' names), and io.npz: the input of run "one" of flux_dev again, and
the model output with the first, with the second at half weight, and with both.
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
config = json.loads((HERE / "flux_dev" / "config.json").read_text())
config.pop("_class_name")
model = diffusers.FluxTransformer2DModel(**config).double().eval()
model.load_state_dict(load_weights("flux_dev"))
io = {k[4:]: torch.from_numpy(v).double() for k, v in np.load(HERE / "flux_dev" / "io.npz").items() if k.startswith("one.")}
batch, height, width, tokens = (int(v) for v in io["sizes"])
ids = torch.zeros(height, width, 3, dtype=torch.float64)
ids[..., 1] += torch.arange(height)[:, None]
ids[..., 2] += torch.arange(width)[None, :]


def velocity():
  with torch.no_grad():
    out = model(hidden_states=io["latents"][None], encoder_hidden_states=io["text"][None], pooled_projections=io["pooled"],
                timestep=io["timestep"], img_ids=ids.reshape(-1, 3), txt_ids=torch.zeros(tokens, 3, dtype=torch.float64),
                guidance=io["guidance"], return_dict=False)[0]
  return out[0].float().numpy()


ADAPTERS = {
    "first": LoraConfig(r=4, lora_alpha=6, target_modules=["to_q", "to_k", "to_v", "to_out.0", "ff.net.2", "proj_out"]),
    "second": LoraConfig(r=8, lora_alpha=8, target_modules=["to_q", "add_k_proj", "proj_mlp", "norm1.linear"]),
}
g = torch.Generator().manual_seed(3)
for name, lora in ADAPTERS.items():
  model.add_adapter(lora, adapter_name=name)
model.double()
files = {name: {} for name in ADAPTERS}
with torch.no_grad():
  for key, value in model.named_parameters():
    for name in ADAPTERS:
      if f".{name}." not in key:
        continue
      # Exact in bfloat16, so that every dtype of the engine has the same adapters.
      value.copy_((0.3 * torch.randn(value.shape, generator=g, dtype=torch.float64)).to(torch.bfloat16).double())
      plain = key.replace(f".{name}", "")
      if name == "first":
        files[name]["transformer." + plain] = value.float().contiguous()
        files[name]["transformer." + plain.rsplit(".lora_", 1)[0] + ".alpha"] = torch.tensor(6.0)
      else:
        module, kind = plain.rsplit(".lora_", 1)
        kohya = "lora_transformer_" + module.replace(".", "_")
        files[name][f"{kohya}.lora_{'down' if kind.startswith('A') else 'up'}.weight"] = value.float().contiguous()
folder = HERE / "flux_lora"
folder.mkdir(exist_ok=True)
# The first again under kohya's spelling of the original names: three linears with one input as one pair, whose rank is
# the sum of theirs.
def factors(prefix, of):
  return files["first"][f"transformer.{prefix}{of}.lora_A.weight"], files["first"][f"transformer.{prefix}{of}.lora_B.weight"]


kohya = {}
def put(name, down, up):
  kohya[f"lora_unet_{name}.lora_down.weight"], kohya[f"lora_unet_{name}.lora_up.weight"] = down.contiguous(), up.contiguous()
  kohya[f"lora_unet_{name}.alpha"] = torch.tensor(1.5 * down.shape[0])  # first: alpha 6 of rank 4


for i in range(config["num_layers"]):
  block = f"transformer_blocks.{i}.attn."
  parts = [factors(block, n) for n in ("to_q", "to_k", "to_v")]
  put(f"double_blocks_{i}_img_attn_qkv", torch.cat([d for d, _ in parts]), torch.block_diag(*[u for _, u in parts]))
  put(f"double_blocks_{i}_img_attn_proj", *factors(block, "to_out.0"))
  put(f"double_blocks_{i}_img_mlp_2", *factors(f"transformer_blocks.{i}.", "ff.net.2"))
for i in range(config["num_single_layers"]):
  block = f"single_transformer_blocks.{i}."
  parts = [factors(block + "attn.", n) for n in ("to_q", "to_k", "to_v")]
  width = 2 * 16
  up = torch.zeros(7 * width, sum(u.shape[1] for _, u in parts))
  up[:3 * width] = torch.block_diag(*[u for _, u in parts])
  put(f"single_blocks_{i}_linear1", torch.cat([d for d, _ in parts]), up)
  put(f"single_blocks_{i}_linear2", *factors(block, "proj_out"))
final = {k: v for k, v in files["first"].items() if k.startswith("transformer.proj_out.")}
kohya.update({k.replace("transformer.", ""): v for k, v in final.items()})
files["makers"] = kohya
for name, tensors in files.items():
  save_file(tensors, folder / f"{name}.safetensors")
arrays = {}
for label, names, weights in [("first", ["first"], [1.0]), ("second", ["second"], [0.5]), ("both", ["first", "second"], [0.7, -1.2])]:
  model.set_adapters(names, weights)
  arrays[f"{label}.velocity"] = velocity()
model.disable_adapters()
arrays["none.velocity"] = velocity()
np.savez_compressed(folder / "io.npz", **arrays)
print({k: float(np.abs(v - arrays["none.velocity"]).max()) for k, v in arrays.items()})
