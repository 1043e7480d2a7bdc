"""Tiny random UNet2DConditionModel networks and their outputs in diffusers.

    python tests/golden/image/make_unet.py

Needs torch, diffusers, safetensors, numpy. Fixed seeds.
"""
import diffusers
import torch

from golden_case import randomize, save

CASES = {
    # as SD1.5: one number of heads, projections as convolutions, three levels
    "unet_sd15": dict(block_out_channels=[8, 8, 16], layers_per_block=1, norm_num_groups=4, attention_head_dim=2,
                      cross_attention_dim=10, down_block_types=["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
                      up_block_types=["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"]),
    # as SDXL: heads and transformer layers by level, linear projections, a second embedding
    "unet_sdxl": dict(block_out_channels=[8, 12], layers_per_block=2, norm_num_groups=4, attention_head_dim=[2, 3],
                      cross_attention_dim=14, down_block_types=["DownBlock2D", "CrossAttnDownBlock2D"],
                      up_block_types=["CrossAttnUpBlock2D", "UpBlock2D"], transformer_layers_per_block=[1, 2],
                      use_linear_projection=True, addition_embed_type="text_time", addition_time_embed_dim=4,
                      projection_class_embeddings_input_dim=6 + 6 * 4),
    # four levels, and nine channels in as for inpainting
    "unet_inpaint": dict(block_out_channels=[4, 4, 4, 4], layers_per_block=1, norm_num_groups=2, attention_head_dim=1,
                         in_channels=9, cross_attention_dim=6,
                         down_block_types=["CrossAttnDownBlock2D", "DownBlock2D", "DownBlock2D", "DownBlock2D"],
                         up_block_types=["UpBlock2D", "UpBlock2D", "UpBlock2D", "CrossAttnUpBlock2D"]),
}
# batch, height and width of the latent, tokens of text
RUNS = {"one": (1, 5, 7, 3), "two": (2, 8, 4, 1), "wide": (1, 1, 9, 11)}


def rows(x):
  return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1]).contiguous()


def run(model, config, seed, batch, height, width, text_tokens):
  g = torch.Generator().manual_seed(seed)
  rand = lambda *shape: torch.randn(shape, generator=g).double()
  latents = rand(batch, config.get("in_channels", 4), height, width)
  text = rand(batch, text_tokens, config["cross_attention_dim"])
  timestep = torch.tensor([801.0, 21.0][:batch], dtype=torch.float64)
  arrays = dict(sizes=torch.tensor([batch, height, width, text_tokens]), latents=rows(latents), text=text.reshape(-1, text.shape[-1]),
                timestep=timestep)
  added = None
  if "addition_embed_type" in config:
    pooled = rand(batch, 6)
    ids = torch.tensor([[512.0, 640.0, 0.0, 16.0, 1024.0, 1000.0], [8.0, 0.0, 3.0, 1.0, 90.0, 77.0]][:batch]).double()
    added = dict(text_embeds=pooled, time_ids=ids)
    arrays.update(pooled=pooled, time_ids=ids.reshape(-1))
  with torch.no_grad():
    out = model(latents, timestep, encoder_hidden_states=text, added_cond_kwargs=added, return_dict=False)[0]
  return dict(arrays, velocity=rows(out))


for number, (name, config) in enumerate(CASES.items()):
  torch.manual_seed(number)
  model = diffusers.UNet2DConditionModel(**config).double().eval()
  randomize(model, number)
  save(name, model, dict(config, _class_name="UNet2DConditionModel"),
       {run_name: run(model, config, 10 * number + i, *sizes) for i, (run_name, sizes) in enumerate(RUNS.items())})
