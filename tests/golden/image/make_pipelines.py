"""Tiny random pipelines of each family, and the images that diffusers generates with them.

    python tests/golden/image/make_pipelines.py [NAME ...]

Needs torch, diffusers, transformers, safetensors, numpy. Fixed seeds. A case is a diffusers folder whose tokenizers are
links to those of assets/redline-shapes, and io.npz: for each run its noise, final latents and image (uint8), in float32.
"""
import json
import os
import pathlib
import shutil
import sys

import diffusers
import numpy as np
import PIL.Image
import torch
import transformers
from safetensors.torch import load_file, save_file

from golden_case import describe, randomize

HERE = pathlib.Path(__file__).resolve().parent
SHAPES = HERE.parents[2] / "assets" / "redline-shapes"
PROMPTS = ["a large red circle on a blue background", "two small stars"]
NEGATIVE = "a house"


def clip(hidden, projection, act):
  config = transformers.CLIPTextConfig(vocab_size=999, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=3,
                                       num_attention_heads=2, max_position_embeddings=77, hidden_act=act, projection_dim=projection or hidden,
                                       bos_token_id=997, eos_token_id=998, pad_token_id=998)
  return transformers.CLIPTextModelWithProjection(config) if projection else transformers.CLIPTextModel(config)


def t5(width):
  return transformers.T5EncoderModel(transformers.T5Config(vocab_size=928, d_model=width, d_kv=8, d_ff=2 * width, num_layers=2,
                                                           num_heads=2, feed_forward_proj="gated-gelu", relative_attention_num_buckets=8))


def vae(channels, shift):
  return diffusers.AutoencoderKL(block_out_channels=[8, 8], layers_per_block=1, latent_channels=channels, norm_num_groups=4,
                                 down_block_types=["DownEncoderBlock2D"] * 2, up_block_types=["UpDecoderBlock2D"] * 2,
                                 use_quant_conv=not shift, use_post_quant_conv=not shift, scaling_factor=1.2,
                                 shift_factor=0.1 if shift else None)


def clip_tokenizer():
  return transformers.CLIPTokenizer.from_pretrained(SHAPES / "tokenizer")


def t5_tokenizer():
  return transformers.AutoTokenizer.from_pretrained(SHAPES / "tokenizer_2")


def sd3(with_t5):
  transformer = diffusers.SD3Transformer2DModel(sample_size=16, patch_size=2, in_channels=4, out_channels=4, num_layers=2,
                                                attention_head_dim=8, num_attention_heads=3, joint_attention_dim=32,
                                                caption_projection_dim=24, pooled_projection_dim=22, pos_embed_max_size=16)
  return diffusers.StableDiffusion3Pipeline(
      transformer=transformer, scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0), vae=vae(4, True),
      text_encoder=clip(12, 10, "quick_gelu"), tokenizer=clip_tokenizer(), text_encoder_2=clip(16, 12, "gelu"),
      tokenizer_2=clip_tokenizer(), text_encoder_3=t5(32) if with_t5 else None, tokenizer_3=t5_tokenizer() if with_t5 else None)


def pixart():
  transformer = diffusers.PixArtTransformer2DModel(sample_size=16, patch_size=2, in_channels=4, out_channels=8, num_layers=2,
                                                   attention_head_dim=8, num_attention_heads=3, cross_attention_dim=24,
                                                   caption_channels=20, use_additional_conditions=False)
  scheduler = diffusers.DPMSolverMultistepScheduler(algorithm_type="dpmsolver++", beta_schedule="linear", use_karras_sigmas=False)
  return diffusers.PixArtSigmaPipeline(tokenizer=t5_tokenizer(), text_encoder=t5(20), vae=vae(4, False), transformer=transformer,
                                       scheduler=scheduler)


def sd(clip_width, act, scheduler, **unet):
  unet = diffusers.UNet2DConditionModel(sample_size=8, norm_num_groups=2, cross_attention_dim=clip_width, block_out_channels=[4, 4, 8],
                                        layers_per_block=1, down_block_types=["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
                                        up_block_types=["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"], **unet)
  return diffusers.StableDiffusionPipeline(vae=vae(4, False), text_encoder=clip(clip_width, None, act), tokenizer=clip_tokenizer(), unet=unet,
                                           scheduler=scheduler, safety_checker=None, feature_extractor=None, requires_safety_checker=False)


BETAS = dict(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", steps_offset=1)


def sd1():
  return sd(12, "quick_gelu", diffusers.PNDMScheduler(skip_prk_steps=True, set_alpha_to_one=False, **BETAS), attention_head_dim=2)


def sd2():
  return sd(12, "gelu", diffusers.DDIMScheduler(clip_sample=False, set_alpha_to_one=False, prediction_type="v_prediction", **BETAS),
            attention_head_dim=[1, 2, 2], use_linear_projection=True)


def sd_inpaint():
  """An inpainting network, which gets the mask as input."""
  pipe = sd(12, "quick_gelu", diffusers.DDIMScheduler(clip_sample=False, set_alpha_to_one=False, **BETAS), attention_head_dim=2, in_channels=9)
  return inpainting(pipe)


def inpainting(pipe):
  is_xl = isinstance(pipe, diffusers.StableDiffusionXLPipeline)
  kind = diffusers.StableDiffusionXLInpaintPipeline if is_xl else diffusers.StableDiffusionInpaintPipeline
  parts = {k: v for k, v in pipe.components.items() if k != "image_encoder"}
  return kind(**parts, **({} if is_xl else dict(requires_safety_checker=False)))


def sdxl(in_channels=4):
  unet = diffusers.UNet2DConditionModel(in_channels=in_channels, sample_size=8, block_out_channels=[4, 6], layers_per_block=1, norm_num_groups=2, attention_head_dim=[2, 3],
                                        cross_attention_dim=20, down_block_types=["DownBlock2D", "CrossAttnDownBlock2D"],
                                        up_block_types=["CrossAttnUpBlock2D", "UpBlock2D"], transformer_layers_per_block=[1, 2],
                                        use_linear_projection=True, addition_embed_type="text_time", addition_time_embed_dim=4,
                                        projection_class_embeddings_input_dim=10 + 6 * 4)
  return diffusers.StableDiffusionXLPipeline(
      vae=vae(4, False), text_encoder=clip(8, None, "quick_gelu"), tokenizer=clip_tokenizer(), text_encoder_2=clip(12, 10, "gelu"),
      tokenizer_2=clip_tokenizer(), unet=unet, scheduler=diffusers.EulerDiscreteScheduler(timestep_spacing="leading", **BETAS),
      add_watermarker=False)


# pipeline, true where the T5 tokenizer is `tokenizer`, arguments of the runs
CASES = {
    "pipeline_sd3": (lambda: sd3(True), {"one": dict(width=20, height=12, guidance_scale=4.0), "plain": dict(width=12, height=16, guidance_scale=1.0)}),
    "pipeline_sd3_without_t5": (lambda: sd3(False), {"one": dict(width=8, height=8, guidance_scale=3.0)}),
    "pipeline_pixart": (pixart, {"one": dict(width=24, height=8, guidance_scale=4.5, use_resolution_binning=False)}),
    # The family's usual 7.5 amplifies the bfloat16 rounding of a network with random weights to 34.6 dB.
    "pipeline_sd1": (sd1, {"one": dict(width=40, height=24, guidance_scale=5.0), "plain": dict(width=8, height=16, guidance_scale=1.0)}),
    "pipeline_sd2": (sd2, {"one": dict(width=24, height=16, guidance_scale=3.0),
                           "from": dict(width=16, height=24, guidance_scale=3.0, strength=0.75),
                           "inpaint": dict(width=16, height=24, guidance_scale=3.0, strength=1.0)}),
    "pipeline_sdxl": (sdxl, {"one": dict(width=16, height=24, guidance_scale=5.0), "empty": dict(width=16, height=8, guidance_scale=4.0)}),
    "pipeline_sd_inpaint": (sd_inpaint, {"inpaint": dict(width=24, height=16, guidance_scale=3.0, strength=1.0),
                                         "inpaint_from": dict(width=16, height=24, guidance_scale=1.0, strength=0.75)}),
    "pipeline_sdxl_inpaint": (lambda: inpainting(sdxl(9)), {"inpaint": dict(width=16, height=24, guidance_scale=3.0, strength=0.75)}),
}


def from_picture(pipe, run, common, seed, arrays):
  """Image to image or inpainting: the pipeline, and its start image, generated from `seed`."""
  g = np.random.default_rng(seed)
  height, width = common.pop("height"), common.pop("width")
  picture = g.integers(0, 256, (height, width, 3), dtype=np.uint8)
  begin = dict(image=PIL.Image.fromarray(picture))
  arrays[f"{run}.init"] = picture.astype(np.int32)
  arrays[f"{run}.strength"] = np.array([common["strength"]], np.float32)
  is_inpainting = run.startswith("inpaint")
  if is_inpainting:
    mask = np.repeat(np.where(g.random((height // 2, width // 2)) < 0.5, 255, 0).astype(np.uint8), 2, 0).repeat(2, 1)
    begin["mask_image"] = PIL.Image.fromarray(mask)
    arrays[f"{run}.mask"] = np.repeat(mask[..., None], 3, 2).astype(np.int32)
    common.update(height=height, width=width)
  begin_of = lambda: dict(begin, generator=torch.Generator().manual_seed(seed))
  if is_inpainting:
    return (pipe if "Inpaint" in type(pipe).__name__ else inpainting(pipe)), begin_of
  parts = {k: v for k, v in pipe.components.items() if k != "image_encoder"}
  return diffusers.StableDiffusionImg2ImgPipeline(**parts, requires_safety_checker=False), begin_of


def make(number, name):
  build, runs = CASES[name]
  torch.manual_seed(number)
  pipe = build()
  for i, (key, module) in enumerate(sorted(pipe.components.items())):
    if isinstance(module, torch.nn.Module):
      randomize(module, 100 * number + i)
      module.eval()
  folder = HERE / name
  shutil.rmtree(folder, ignore_errors=True)
  pipe.save_pretrained(folder)
  arrays = {}
  for i, (run, arguments) in enumerate(runs.items()):
    g = torch.Generator().manual_seed(1000 * number + i)
    channels, scale = pipe.vae.config.latent_channels, 2
    noise = torch.randn(2, channels, arguments["height"] // scale, arguments["width"] // scale, generator=g)
    guided = arguments["guidance_scale"] > 1
    common = dict(prompt=PROMPTS, negative_prompt=[NEGATIVE] * 2 if guided and run != "empty" else None, num_inference_steps=4, **arguments)
    if "pipeline_sd3" in name or "pixart" in name:
      common["max_sequence_length"] = 24
    if "pixart" in name and not guided:
      common.pop("negative_prompt")
    if "strength" in arguments:
      draw, begin = from_picture(pipe, run, common, 1000 * number + i, arrays)
    else:
      draw, begin = pipe, lambda: dict(latents=noise.clone())
      arrays[f"{run}.noise"] = noise.numpy()
    latents = draw(output_type="latent", **begin(), **common).images
    picture = draw(output_type="np", **begin(), **common).images
    arrays.update({f"{run}.latents": latents.numpy(), f"{run}.seed": np.array([1000 * number + i], np.int32),
                   f"{run}.image": (picture * 255).round().astype(np.int32),
                   f"{run}.sizes": np.array([arguments["width"], arguments["height"]], np.int32),
                   f"{run}.guidance": np.array([arguments["guidance_scale"]], np.float32)})
  np.savez_compressed(folder / "io.npz", **arrays)
  if name in ("pipeline_sd1", "pipeline_sd2"):
    # As in published folders: components that Redline does not use.
    index = json.loads((folder / "model_index.json").read_text())
    index.update(safety_checker=["stable_diffusion", "StableDiffusionSafetyChecker"], feature_extractor=["transformers", "CLIPImageProcessor"],
                 requires_safety_checker=True)
    (folder / "model_index.json").write_text(json.dumps(index, indent=2) + "\n")
  # The weights again in bfloat16, which represents them exactly, and as recipes; tokenizers as links; unused files are removed.
  for path in folder.rglob("*.safetensors"):
    state = {k: v.to(torch.bfloat16) if v.is_floating_point() else v for k, v in load_file(path).items()}
    save_file(state, path)
    describe(path.parent, path.name, pipe.components[path.parent.name], state)
  for tokenizer in folder.glob("tokenizer*"):
    is_t5 = (tokenizer / "spiece.model").exists() or "T5" in (tokenizer / "tokenizer_config.json").read_text()
    shutil.rmtree(tokenizer)
    tokenizer.symlink_to(os.path.relpath(SHAPES / ("tokenizer_2" if is_t5 else "tokenizer"), folder))
  print(f"{name}: {sum(f.stat().st_size for f in folder.rglob('*') if f.is_file() and not f.is_symlink() and 'tokenizer' not in str(f)) / 1e3:.0f} KB")


for number, name in enumerate(CASES):
  if len(sys.argv) < 2 or name in sys.argv[1:]:
    make(number, name)
