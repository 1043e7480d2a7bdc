"""Pipelines of diffusers with small random networks, for the tests of redline.diffusers.

Tolerances. PyTorch's float32 result differs from its float64 one by the effect of rounding and the order of sums on this network over this number of steps. The engine rounds as often in another order, so its error is of that size; ERRORS of it are allowed.
"""
import math
from typing import ClassVar

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch diffusers transformers peft accelerate")
diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed: pip install diffusers transformers peft accelerate")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("peft", reason="peft is not installed: LoRA in diffusers needs it")

import redline  # noqa: E402
import redline.diffusers  # noqa: E402

# PyTorch's threads wait for work by spinning, beside the engine's.
torch.set_num_threads(1)
ERRORS = 8
TOKENS = 12
EOS = 99


class Words:
    """A tokenizer: a hash of each word, an end token, zeros."""

    model_max_length = TOKENS
    added_tokens_encoder: ClassVar = {}

    def __call__(self, texts, padding=None, max_length=None, truncation=False, **_):
        texts = [texts] if isinstance(texts, str) else list(texts)
        length = max_length or TOKENS
        ids, mask = torch.zeros(len(texts), length, dtype=torch.long), torch.zeros(len(texts), length, dtype=torch.long)
        for row, text in enumerate(texts):
            words = [1 + sum(word.encode()) % 90 for word in text.split()][: length - 1] + [EOS]
            ids[row, : len(words)] = torch.tensor(words)
            mask[row, : len(words)] = 1
        return transformers.BatchEncoding({"input_ids": ids, "attention_mask": mask})

    def tokenize(self, text):
        return text.split()

    def batch_decode(self, ids):
        return [str(row) for row in ids]


def clip(width=32, projects=False, **more):
    config = transformers.CLIPTextConfig(hidden_size=width, intermediate_size=37, num_hidden_layers=3, num_attention_heads=4,
                                         vocab_size=EOS + 1, max_position_embeddings=TOKENS, projection_dim=width, bos_token_id=0,
                                         eos_token_id=EOS, pad_token_id=0, **more)
    return (transformers.CLIPTextModelWithProjection if projects else transformers.CLIPTextModel)(config)


def t5(width=32):
    return transformers.T5EncoderModel(transformers.T5Config(
        vocab_size=EOS + 1, d_model=width, d_kv=8, d_ff=37, num_layers=2, num_heads=4, feed_forward_proj="gated-gelu"))


def vae(channels=4, **more):
    return diffusers.AutoencoderKL(
        block_out_channels=(32, 64), in_channels=3, out_channels=3, latent_channels=channels, norm_num_groups=16,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, **more)


def unet(**more):
    return diffusers.UNet2DConditionModel(**{**dict(
        block_out_channels=(32, 64), layers_per_block=1, sample_size=16, in_channels=4, out_channels=4, norm_num_groups=16,
        cross_attention_dim=32, attention_head_dim=4, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D")), **more})


def sd(**more):
    scheduler = diffusers.DDIMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", steps_offset=1,
                                        clip_sample=False, set_alpha_to_one=False)
    return diffusers.StableDiffusionPipeline(
        vae=vae(), text_encoder=clip(), tokenizer=Words(), unet=unet(**more), scheduler=scheduler, safety_checker=None,
        feature_extractor=None, requires_safety_checker=False)


def sdxl():
    return diffusers.StableDiffusionXLPipeline(
        vae=vae(), text_encoder=clip(), text_encoder_2=clip(projects=True, hidden_act="gelu"), tokenizer=Words(), tokenizer_2=Words(),
        unet=unet(cross_attention_dim=64, addition_embed_type="text_time", addition_time_embed_dim=8,
                  projection_class_embeddings_input_dim=6 * 8 + 32, transformer_layers_per_block=2, use_linear_projection=True),
        scheduler=diffusers.EulerDiscreteScheduler(beta_schedule="scaled_linear", steps_offset=1, timestep_spacing="leading"))


def sd3(channels=8):
    return diffusers.StableDiffusion3Pipeline(
        vae=vae(channels, shift_factor=0.06, use_quant_conv=False, use_post_quant_conv=False), tokenizer=Words(), tokenizer_2=Words(),
        tokenizer_3=Words(), text_encoder=clip(projects=True), text_encoder_2=clip(projects=True, hidden_act="gelu"),
        text_encoder_3=t5(64), scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
        transformer=diffusers.SD3Transformer2DModel(
            sample_size=16, patch_size=2, in_channels=channels, out_channels=channels, num_layers=3, attention_head_dim=8,
            num_attention_heads=4, caption_projection_dim=32, joint_attention_dim=64, pooled_projection_dim=64, pos_embed_max_size=24,
            qk_norm="rms_norm"))


def flux(guidance=True):
    return diffusers.FluxPipeline(
        vae=vae(4, shift_factor=0.06, use_quant_conv=False, use_post_quant_conv=False), tokenizer=Words(), tokenizer_2=Words(),
        text_encoder=clip(), text_encoder_2=t5(), scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
        transformer=diffusers.FluxTransformer2DModel(
            patch_size=1, in_channels=16, num_layers=2, num_single_layers=2, attention_head_dim=16, num_attention_heads=2,
            joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=(4, 4, 8), guidance_embeds=guidance))


def pixart():
    return diffusers.PixArtSigmaPipeline(
        vae=vae(), tokenizer=Words(), text_encoder=t5(),
        scheduler=diffusers.DPMSolverMultistepScheduler(beta_schedule="scaled_linear"),
        transformer=diffusers.PixArtTransformer2DModel(
            sample_size=16, num_layers=3, patch_size=2, attention_head_dim=8, num_attention_heads=4, caption_channels=32,
            in_channels=4, cross_attention_dim=32, out_channels=8, attention_bias=True, activation_fn="gelu-approximate",
            num_embeds_ada_norm=1000, norm_elementwise_affine=False, norm_eps=1e-6, use_additional_conditions=False))


PIPELINES = {"sd": sd, "sdxl": sdxl, "sd3": sd3, "flux": flux, "pixart": pixart}
FIXED = {"pixart": dict(clean_caption=False, use_resolution_binning=False, max_sequence_length=TOKENS),
         "flux": dict(max_sequence_length=TOKENS), "sd3": dict(max_sequence_length=TOKENS)}
SIDE = 32


def build(name, dtype=torch.float32, **more):
    """The same random networks each time."""
    torch.manual_seed(7)
    pipe = PIPELINES[name](**more)
    for module in pipe.components.values():
        if not isinstance(module, torch.nn.Module):
            continue
        module.eval().requires_grad_(False)
        for key, parameter in module.named_parameters():
            # As they are made, layers that end a block are nearly zero.
            if parameter.ndim > 1 and "embed_tokens" not in key and "shared" not in key:
                parameter.normal_(0, parameter[0].numel() ** -0.5)
    pipe.set_progress_bar_config(disable=True)
    return pipe.to(dtype)


def latents_of(pipe, batch=1):
    torch.manual_seed(3)
    denoiser = getattr(pipe, "transformer", None) or pipe.unet
    side = SIDE // pipe.vae_scale_factor
    if isinstance(pipe, diffusers.FluxPipeline):
        return torch.randn(batch, (side // 2) ** 2, denoiser.config.in_channels)
    return torch.randn(batch, denoiser.config.in_channels, side, side)


def paint(pipe, name, dtype=torch.float32, steps=3, output_type="latent", **more):
    # gives its latents to a scheduler that may scale them in place
    start = latents_of(pipe).to(dtype)
    settings = dict(FIXED.get(name, {}), height=SIDE, width=SIDE, num_inference_steps=steps, latents=start, output_type=output_type)
    settings.update(more)
    return pipe("a lighthouse at night", **settings).images


def exact_timestep_embedding(timesteps, embedding_dim, flip_sin_to_cos=False, downscale_freq_shift=1, scale=1, max_period=10000):
    """diffusers computes it in float32 for pipelines of every type: phases of thousands then err by up to 1e-4."""
    half = embedding_dim // 2
    exponent = -math.log(max_period) * torch.arange(half, dtype=torch.float64) / (half - downscale_freq_shift)
    phase = scale * timesteps.double()[:, None] * exponent.exp()
    parts = [phase.cos(), phase.sin()] if flip_sin_to_cos else [phase.sin(), phase.cos()]
    return torch.cat(parts, dim=-1)


def allowed(name, prepare=lambda pipe: None, **more):
    """PyTorch's result in float32, and the greatest difference that is allowed from it."""
    results = []
    for dtype in (torch.float32, torch.float64):
        pipe = build(name, dtype)
        prepare(pipe)
        with pytest.MonkeyPatch.context() as patch:
            if dtype == torch.float64:
                patch.setattr("diffusers.models.embeddings.get_timestep_embedding", exact_timestep_embedding)
            results.append(paint(pipe, name, dtype, **more))
    single, double = results
    error = float((single.double() - double.double()).abs().max())
    assert 0 < error < 1e-3 * float(double.abs().max())
    return single, ERRORS * error


def accelerated(name, **more):
    return redline.diffusers.accelerate(build(name), dtype="f32", threads=2, **more)


def psnr(got, expected):
    """Of images from 0 to 1."""
    return float("inf") if (error := float(((got - expected) ** 2).mean())) == 0 else -10 * math.log10(error)


def lora_of(pipe, seed, prefixes):
    """A LoRA of rank 3 on the attention of each network, as a file has it."""
    random = torch.Generator().manual_seed(seed)
    state = {}
    for prefix in prefixes:
        for name, module in getattr(pipe, prefix).named_modules():
            is_wanted = isinstance(module, torch.nn.Linear) and ("attn" in name or "ff.net" in name)
            if not is_wanted and not (prefix == "unet" and isinstance(module, torch.nn.Conv2d) and "resnets" in name):
                continue
            weight = module.weight
            down = (3, weight.shape[1], *weight.shape[2:])
            up = (weight.shape[0], 3) + (1,) * (weight.ndim - 2)
            state[f"{prefix}.{name}.lora_A.weight"] = torch.randn(down, generator=random) * 0.3
            state[f"{prefix}.{name}.lora_B.weight"] = torch.randn(up, generator=random) * 0.3
    assert state
    return state


LORA_NETWORKS = {"sd": ("unet", "text_encoder"), "sd3": ("transformer", "text_encoder"), "flux": ("transformer", "text_encoder"),
                 "sdxl": ("unet", "text_encoder", "text_encoder_2")}
