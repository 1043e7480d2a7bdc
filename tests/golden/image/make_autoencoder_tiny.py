"""Tiny random AutoencoderTiny and their outputs in diffusers: "tiny"; the same weights as torch.save writes them under the
names of the original (github.com/madebyollin/taesd); and "tiny_sd", which fits the latents of the pipelines of this folder.

    python tests/golden/image/make_autoencoder_tiny.py

Needs torch, diffusers, safetensors, numpy. Fixed seeds.
"""
import collections

import diffusers
import torch

from golden_case import HERE, randomize, save

CONFIG = dict(encoder_block_out_channels=[8, 8, 8], decoder_block_out_channels=[8, 8, 8], num_encoder_blocks=[1, 2, 1],
              num_decoder_blocks=[2, 1, 1], latent_channels=5)
# batch, height and width of the latent
RUNS = {"one": (1, 3, 5), "two": (2, 4, 1), "pixel": (1, 1, 1)}


def rows(x):
  return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1]).contiguous()


def run(model, seed, batch, height, width, channels=CONFIG["latent_channels"]):
  g = torch.Generator().manual_seed(seed)
  latents = 2 * torch.randn(batch, channels, height, width, generator=g).double()
  with torch.no_grad():
    # The output, as float32, is the input of the encoder.
    image = model.decode(latents, return_dict=False)[0].float().double()
    moments = model.encode(image, return_dict=False)[0]
  return dict(sizes=torch.tensor([batch, height, width]), latents=rows(latents), image=rows(image), moments=rows(moments))


torch.manual_seed(0)
model = diffusers.AutoencoderTiny(**CONFIG).double().eval()
randomize(model, 5, gain=1.2)
save("tiny", model, dict(CONFIG, _class_name="AutoencoderTiny"),
     {name: run(model, i, *sizes) for i, (name, sizes) in enumerate(RUNS.items())})
for half, first in [("encoder", 0), ("decoder", 1)]:  # layer 0 of the original decoder is a clamp
  state = collections.OrderedDict()
  for name, value in getattr(model, half).layers.state_dict().items():
    index, rest = name.split(".", 1)
    state[f"{int(index) + first}.{rest}"] = value.to(torch.bfloat16)
  torch.save(state, HERE / "tiny" / f"original_{half}.pth")

small = dict(encoder_block_out_channels=[8, 8], decoder_block_out_channels=[8, 8], num_encoder_blocks=[1, 1],
             num_decoder_blocks=[1, 1], latent_channels=4)
model = diffusers.AutoencoderTiny(**small).double().eval()
randomize(model, 7, gain=1.2)
save("tiny_sd", model, dict(small, _class_name="AutoencoderTiny"), {"one": run(model, 3, 1, 3, 4, channels=4)})
