"""Tiny random AutoencoderKL networks and their outputs in diffusers.

    python tests/golden/image/make_autoencoder_kl.py

Needs torch, diffusers, safetensors, numpy. Fixed seeds.
"""
import diffusers
import torch

from golden_case import randomize, save


def blocks(n):
  return dict(down_block_types=["DownEncoderBlock2D"] * n, up_block_types=["UpDecoderBlock2D"] * n)


CASES = {
    # as FLUX and SD3: shifted latents, no quant convolutions
    "kl_flux": dict(blocks(2), block_out_channels=[8, 16], layers_per_block=1, latent_channels=6, norm_num_groups=4,
                    use_quant_conv=False, use_post_quant_conv=False, scaling_factor=0.3611, shift_factor=0.1159),
    # as SDXL: quant convolutions, two layers a block
    "kl_sdxl": dict(blocks(3), block_out_channels=[4, 8, 12], layers_per_block=2, latent_channels=4, norm_num_groups=4,
                    scaling_factor=0.13025),
    "kl_no_attention": dict(blocks(2), block_out_channels=[8, 8], layers_per_block=1, latent_channels=2, norm_num_groups=2,
                            mid_block_add_attention=False),
}
# batch, height and width of the latent
RUNS = {"one": (1, 3, 5), "two": (2, 4, 1), "pixel": (1, 1, 1)}


def rows(x):
  return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1]).contiguous()


def run(model, config, seed, batch, height, width):
  g = torch.Generator().manual_seed(seed)
  latents = torch.randn(batch, config["latent_channels"], height, width, generator=g).double()
  with torch.no_grad():
    # The output, as float32, is the input of the encoder.
    image = model.decode(latents, return_dict=False)[0].float().double()
    moments = model._encode(image)
  return dict(sizes=torch.tensor([batch, height, width]), latents=rows(latents), image=rows(image), moments=rows(moments))


for number, (name, config) in enumerate(CASES.items()):
  torch.manual_seed(number)
  model = diffusers.AutoencoderKL(**config).double().eval()
  randomize(model, number)
  save(name, model, dict(config, _class_name="AutoencoderKL"),
       {run_name: run(model, config, 10 * number + i, *sizes) for i, (run_name, sizes) in enumerate(RUNS.items())})
