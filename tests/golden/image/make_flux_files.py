"""Writes flux_files/: the transformer of flux_files/diffusers under the original names, as safetensors below
"model.diffusion_model." with an unrelated tensor, and as GGUF (8-bit blocks, bfloat16, float32 vectors). Matrices
have values that q8_0 represents exactly, so all three are equal. diffusers' own converter maps the original names back:
the script fails unless it gives the same tensors.

Needs torch, diffusers, safetensors, gguf. Fixed seed.
"""
import inspect
import pathlib

import diffusers
import gguf
import torch
from diffusers.loaders import single_file_utils
from golden_case import HERE, randomize
from safetensors.torch import save_file

CONFIG = dict(patch_size=1, in_channels=16, attention_head_dim=16, num_attention_heads=2, joint_attention_dim=32,
              pooled_projection_dim=32, axes_dims_rope=[4, 6, 6], num_layers=1, num_single_layers=1,
              guidance_embeds=True)


def original_names(state):
  """Tensor names of the original checkpoint, and which tensors it concatenates (black-forest-labs/flux, src/flux/model.py)."""
  out = {}

  def move(to, source, new=None):
    for kind in ("weight", "bias"):
      if f"{source}.{kind}" in state:
        out[f"{to}.{new or kind}"] = state[f"{source}.{kind}"]

  def join(to, *sources):
    for kind in ("weight", "bias"):
      out[f"{to}.{kind}"] = torch.cat([state[f"{s}.{kind}"] for s in sources])

  move("img_in", "x_embedder")
  move("txt_in", "context_embedder")
  for new, old in (("time", "timestep"), ("vector", "text"), ("guidance", "guidance")):
    move(f"{new}_in.in_layer", f"time_text_embed.{old}_embedder.linear_1")
    move(f"{new}_in.out_layer", f"time_text_embed.{old}_embedder.linear_2")
  move("final_layer.linear", "proj_out")
  for kind in ("weight", "bias"):
    scale, shift = state[f"norm_out.linear.{kind}"].chunk(2)
    out[f"final_layer.adaLN_modulation.1.{kind}"] = torch.cat([shift, scale])
  for i in range(CONFIG["num_layers"]):
    to, of = f"double_blocks.{i}", f"transformer_blocks.{i}"
    move(f"{to}.img_mod.lin", f"{of}.norm1.linear")
    move(f"{to}.txt_mod.lin", f"{of}.norm1_context.linear")
    join(f"{to}.img_attn.qkv", f"{of}.attn.to_q", f"{of}.attn.to_k", f"{of}.attn.to_v")
    join(f"{to}.txt_attn.qkv", f"{of}.attn.add_q_proj", f"{of}.attn.add_k_proj", f"{of}.attn.add_v_proj")
    for stream, added, out_name, ff in (("img", "", "to_out.0", "ff"), ("txt", "added_", "to_add_out", "ff_context")):
      move(f"{to}.{stream}_attn.norm.query_norm", f"{of}.attn.norm_{added}q", "scale")
      move(f"{to}.{stream}_attn.norm.key_norm", f"{of}.attn.norm_{added}k", "scale")
      move(f"{to}.{stream}_attn.proj", f"{of}.attn.{out_name}")
      move(f"{to}.{stream}_mlp.0", f"{of}.{ff}.net.0.proj")
      move(f"{to}.{stream}_mlp.2", f"{of}.{ff}.net.2")
  for i in range(CONFIG["num_single_layers"]):
    to, of = f"single_blocks.{i}", f"single_transformer_blocks.{i}"
    move(f"{to}.modulation.lin", f"{of}.norm.linear")
    join(f"{to}.linear1", f"{of}.attn.to_q", f"{of}.attn.to_k", f"{of}.attn.to_v", f"{of}.proj_mlp")
    move(f"{to}.linear2", f"{of}.proj_out")
    move(f"{to}.norm.query_norm", f"{of}.attn.norm_q", "scale")
    move(f"{to}.norm.key_norm", f"{of}.attn.norm_k", "scale")
  return out


def round_to_blocks(state):
  """Integers up to 127 times a power of two, 127 itself in each block of 32: q8_0 stores them exactly."""
  g = torch.Generator().manual_seed(32)
  for name, value in state.items():
    if value.ndim == 2 and value.shape[1] % 32 == 0:
      whole = torch.randint(-126, 127, value.shape, generator=g)
      whole[:, ::32] = 127
      state[name] = (whole * 2.0**-9).to(value.dtype)


def write_gguf(path, tensors):
  types = gguf.GGMLQuantizationType
  writer = gguf.GGUFWriter(str(path), "flux")
  for name, tensor in tensors.items():
    values = tensor.float().numpy()
    kind = types.F32 if values.ndim == 1 else types.BF16 if values.shape[1] % 32 else types.Q8_0
    writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()


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
  round_to_blocks(state)
  original = original_names(state)
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
  write_gguf(folder / "original.gguf", original)



main()
