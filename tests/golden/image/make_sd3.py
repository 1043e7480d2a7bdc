"""Tiny random Stable Diffusion 3 transformers and their outputs in diffusers.

    python tests/golden/image/make_sd3.py

Needs torch, diffusers, safetensors, numpy. Fixed seeds.
"""
import diffusers
import torch

from golden_case import randomize, save, to_rows, to_velocity_rows

BASE = dict(sample_size=16, patch_size=2, in_channels=4, out_channels=4, attention_head_dim=8, num_attention_heads=3,
            joint_attention_dim=20, caption_projection_dim=24, pooled_projection_dim=18, pos_embed_max_size=12)
CASES = {
    "sd3": dict(BASE, num_layers=2),
    "sd35_medium": dict(BASE, num_layers=3, dual_attention_layers=[0, 1], qk_norm="rms_norm", in_channels=3),
    "sd35_large": dict(BASE, num_layers=2, qk_norm="rms_norm", attention_head_dim=10, num_attention_heads=2,
                       caption_projection_dim=20, out_channels=6),
}
# batch, height and width in tokens, tokens of text
RUNS = {"one": (1, 3, 5, 7), "two": (2, 5, 4, 1), "wide": (1, 1, 11, 33)}


def run(model, config, seed, batch, height, width, text_tokens):
  g = torch.Generator().manual_seed(seed)
  rand = lambda *shape: torch.randn(shape, generator=g, dtype=torch.float64).float().double()
  p = config["patch_size"]
  latents = rand(batch, config["in_channels"], height * p, width * p)
  text = rand(batch, text_tokens, config["joint_attention_dim"])
  pooled = rand(batch, config["pooled_projection_dim"])
  timestep = torch.tensor([749.5, 20.25][:batch], dtype=torch.float64)
  with torch.no_grad():
    out = model(hidden_states=latents, encoder_hidden_states=text, pooled_projections=pooled, timestep=timestep,
                return_dict=False)[0]
  return dict(latents=to_rows(latents, p), text=text.reshape(-1, text.shape[-1]), pooled=pooled, timestep=timestep,
              sizes=torch.tensor([batch, height, width, text_tokens]), velocity=to_velocity_rows(out, p))


for number, (name, config) in enumerate(CASES.items()):
  torch.manual_seed(number)
  model = diffusers.SD3Transformer2DModel(**config).double().eval()
  randomize(model, number)
  # The engine reads the table from the file, so any values do.
  table = model.pos_embed.pos_embed
  table.copy_((table + 0.1 * torch.randn(table.shape)).to(torch.bfloat16).double())
  save(name, model, dict(config, _class_name="SD3Transformer2DModel"),
       {run_name: run(model, config, 10 * number + i, *sizes) for i, (run_name, sizes) in enumerate(RUNS.items())})
