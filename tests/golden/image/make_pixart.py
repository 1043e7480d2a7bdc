"""Tiny random PixArt transformers and their outputs in diffusers.

    python tests/golden/image/make_pixart.py

Needs torch, diffusers, safetensors, numpy. Fixed seeds.
"""
import diffusers
import torch

from golden_case import randomize, save, to_rows, to_velocity_rows

BASE = dict(sample_size=8, patch_size=2, in_channels=4, attention_head_dim=8, num_attention_heads=3, num_layers=2,
            use_additional_conditions=False, norm_type="ada_norm_single")
CASES = {
    "pixart_sigma": dict(BASE, out_channels=8, cross_attention_dim=24, caption_channels=20, interpolation_scale=2),
    "pixart_plain": dict(BASE, out_channels=None, cross_attention_dim=28, caption_channels=None, attention_bias=False,
                         activation_fn="gelu", sample_size=70),
}
# batch, height and width in tokens, tokens of text, how many of them each item has
RUNS = {"one": (1, 3, 5, 7, [7]), "two": (2, 4, 4, 6, [6, 2]), "wide": (1, 1, 11, 33, [30])}


def run(model, config, seed, batch, height, width, text_tokens, lengths):
  g = torch.Generator().manual_seed(seed)
  rand = lambda *shape: torch.randn(shape, generator=g, dtype=torch.float64).float().double()
  p = config["patch_size"]
  latents = rand(batch, config["in_channels"], height * p, width * p)
  text = rand(batch, text_tokens, config["caption_channels"] or config["cross_attention_dim"])
  timestep = torch.tensor([749.5, 20.25][:batch], dtype=torch.float64)
  mask = (torch.arange(text_tokens)[None, :] < torch.tensor(lengths)[:, None]).double()
  with torch.no_grad():
    out = model(hidden_states=latents, encoder_hidden_states=text, timestep=timestep, encoder_attention_mask=mask,
                added_cond_kwargs={"resolution": None, "aspect_ratio": None}, return_dict=False)[0]
  return dict(latents=to_rows(latents, p), text=text.reshape(-1, text.shape[-1]), timestep=timestep,
              key_lengths=torch.tensor(lengths), sizes=torch.tensor([batch, height, width, text_tokens]),
              velocity=to_velocity_rows(out, p))


for number, (name, config) in enumerate(CASES.items()):
  torch.manual_seed(number)
  model = diffusers.PixArtTransformer2DModel(**config).double().eval()
  randomize(model, number)
  save(name, model, dict(config, _class_name="PixArtTransformer2DModel"),
       {run_name: run(model, config, 10 * number + i, *sizes) for i, (run_name, sizes) in enumerate(RUNS.items())})
