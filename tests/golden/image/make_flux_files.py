"""Writes flux_files/: the transformer of flux_files/diffusers under the original names, as safetensors below
"model.diffusion_model." with an unrelated tensor, and as GGUF (8-bit blocks, bfloat16, float32 vectors). Matrices
have values that q8_0 represents exactly, so all three are equal. diffusers' own converter maps the original names back:
the script fails unless it gives the same tensors.

Needs torch, diffusers, safetensors, gguf. Fixed seed.
"""
import inspect
import pathlib

import diffusers
import torch
from diffusers.loaders import single_file_utils
from golden_case import HERE, describe, randomize, weights
from safetensors.torch import save_file

CONFIG = dict(patch_size=1, in_channels=16, attention_head_dim=16, num_attention_heads=2, joint_attention_dim=32,
              pooled_projection_dim=32, axes_dims_rope=[4, 6, 6], num_layers=1, num_single_layers=1,
              guidance_embeds=True)


def diffusers_converter():
  """convert_flux_transformer_checkpoint_to_diffusers, which hard-codes the width of the real model."""
  source = inspect.getsource(single_file_utils.convert_flux_transformer_checkpoint_to_diffusers)
  assert "inner_dim = 3072" in source
  space = dict(vars(single_file_utils))
  width = CONFIG["attention_head_dim"] * CONFIG["num_attention_heads"]
  exec(source.replace("inner_dim = 3072", f"inner_dim = {width}"), space)
  return space["convert_flux_transformer_checkpoint_to_diffusers"]


def main():
  torch.manual_seed(0)
  model = diffusers.FluxTransformer2DModel(**CONFIG).double().eval()
  randomize(model, 31)
  state = {k: v.to(torch.bfloat16).contiguous() for k, v in model.state_dict().items()}
  g = torch.Generator().manual_seed(32)
  for name, value in state.items():  # the values of weights.integer_blocks
    if value.ndim == 2 and value.shape[1] % 32 == 0:
      whole = torch.randint(-126, 127, value.shape, generator=g)
      whole[:, ::32] = 127
      state[name] = (whole * 2.0**-9).to(value.dtype)
  bits = {k: v.view(torch.int16).numpy().view("uint16") for k, v in state.items()}
  original = {k: torch.from_numpy(v.view("int16")).view(torch.bfloat16) for k, v in weights.flux_names(bits).items()}
  back = diffusers_converter()(dict(original))
  assert back.keys() == state.keys() and all(torch.equal(back[k], state[k]) for k in state)

  folder = pathlib.Path(HERE) / "flux_files"
  (folder / "diffusers").mkdir(parents=True, exist_ok=True)
  model.save_config(folder / "diffusers")
  save_file(state, folder / "diffusers" / "diffusion_pytorch_model.safetensors")
  (folder / "config.json").write_text('{"axes_dims_rope": [4, 6, 6]}\n')
  bundle = {f"model.diffusion_model.{k}": v.contiguous() for k, v in original.items()}
  bundle["text_encoders.clip_l.logit_scale"] = torch.ones(1)
  save_file(bundle, folder / "original.safetensors")
  weights.write_flux(folder / "original.gguf", {k: ("bf16", v) for k, v in bits.items()})
  describe(folder / "diffusers", "diffusion_pytorch_model.safetensors", model, state, blocks=32,
           flux=["../original.safetensors", "../original.gguf"])


main()
