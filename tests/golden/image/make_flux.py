"""Tiny random FLUX transformers and their outputs in diffusers.

    python tests/golden/image/make_flux.py

Needs torch, diffusers, safetensors, numpy. Fixed seeds.
"""
import diffusers
import torch

from golden_case import randomize, save

BASE = dict(patch_size=1, in_channels=16, attention_head_dim=16, num_attention_heads=2, joint_attention_dim=24,
            pooled_projection_dim=20, axes_dims_rope=[4, 6, 6])
CASES = {
    "flux_dev": dict(BASE, num_layers=2, num_single_layers=1, guidance_embeds=True),
    "flux_schnell": dict(BASE, num_layers=1, num_single_layers=2, guidance_embeds=False, attention_head_dim=10,
                         num_attention_heads=3, axes_dims_rope=[2, 4, 4], out_channels=8),
}
# batch, height and width in tokens, tokens of text
RUNS = {"one": (1, 3, 5, 7), "two": (2, 4, 2, 1), "wide": (1, 1, 11, 33)}


def run(model, config, seed, batch, height, width, text_tokens):
  g = torch.Generator().manual_seed(seed)
  rand = lambda *shape: torch.randn(shape, generator=g, dtype=torch.float64)
  ids = torch.zeros(height, width, 3, dtype=torch.float64)
  ids[..., 1] += torch.arange(height)[:, None]
  ids[..., 2] += torch.arange(width)[None, :]
  # Exact in float32, also after multiplication by 1000.
  inputs = dict(latents=rand(batch, height * width, config["in_channels"]), text=rand(batch, text_tokens, config["joint_attention_dim"]),
                pooled=rand(batch, config["pooled_projection_dim"]), timestep=torch.tensor([0.75, 0.25][:batch], dtype=torch.float64))
  if config["guidance_embeds"]:
    inputs["guidance"] = torch.tensor([3.5, 2.0][:batch], dtype=torch.float64)
  inputs = {k: v.float().double() for k, v in inputs.items()}
  with torch.no_grad():
    out = model(hidden_states=inputs["latents"], encoder_hidden_states=inputs["text"], pooled_projections=inputs["pooled"],
                timestep=inputs["timestep"], img_ids=ids.reshape(-1, 3), txt_ids=torch.zeros(text_tokens, 3, dtype=torch.float64),
                guidance=inputs.get("guidance"), return_dict=False)[0]
  sizes = torch.tensor([batch, height, width, text_tokens])
  return dict({k: v.reshape(-1, v.shape[-1]) if v.ndim == 3 else v for k, v in inputs.items()}, sizes=sizes,
              velocity=out.reshape(-1, out.shape[-1]))


for number, (name, config) in enumerate(CASES.items()):
  torch.manual_seed(number)
  model = diffusers.FluxTransformer2DModel(**config).double().eval()
  randomize(model, number)
  save(name, model, dict(config, _class_name="FluxTransformer2DModel"),
       {run_name: run(model, config, 10 * number + i, *sizes) for i, (run_name, sizes) in enumerate(RUNS.items())})
