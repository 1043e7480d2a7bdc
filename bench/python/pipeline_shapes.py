"""Pipelines of diffusers with the widths of published models and random weights, for pipelines.py.

They have the layers, heads and sizes of the published ones, but few of their blocks, so that compiling ends in minutes on two
cores and three copies fit into 16 GB; pipelines.py prints how many. T5 has 2 of 24 layers, the second text encoder 8 of 32, VAEs 1 of 2
blocks at each resolution. All are built in float32.
"""
from typing import ClassVar

import diffusers
import torch
import transformers

EOS = 49407


class Words:
    """A tokenizer for random weights: a hash of each word, an end token, padding."""

    model_max_length = 77
    added_tokens_encoder: ClassVar = {}

    def __init__(self, padding):
        self._padding = padding

    def __call__(self, texts, max_length=None, **_):
        texts = [texts] if isinstance(texts, str) else list(texts)
        length = max_length or self.model_max_length
        ids, mask = torch.full((len(texts), length), self._padding), torch.zeros(len(texts), length, dtype=torch.long)
        for row, text in enumerate(texts):
            words = [1 + sum(word.encode()) % 30000 for word in text.split()][: length - 1]
            ids[row, : len(words) + 1] = torch.tensor([*words, EOS if self._padding else 1])
            mask[row, : len(words) + 1] = 1
        return transformers.BatchEncoding({"input_ids": ids, "attention_mask": mask})

    def tokenize(self, text):
        return text.split()

    def batch_decode(self, ids):
        return [""] * len(ids)


def clip(width=768, layers=12, projects=False, **more):
    config = transformers.CLIPTextConfig(
        hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers, num_attention_heads=width // 64, projection_dim=width,
        vocab_size=EOS + 1, bos_token_id=EOS - 1, eos_token_id=EOS, pad_token_id=EOS, **more)
    return (transformers.CLIPTextModelWithProjection if projects else transformers.CLIPTextModel)(config)


def t5():
    return transformers.T5EncoderModel(transformers.T5Config(
        vocab_size=32128, d_model=4096, d_kv=64, d_ff=10240, num_layers=2, num_heads=64, feed_forward_proj="gated-gelu"))


def vae(channels=4, **more):
    return diffusers.AutoencoderKL(
        block_out_channels=(128, 256, 512, 512), layers_per_block=1, latent_channels=channels,
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4, **more)


def sd15():
    return diffusers.StableDiffusionPipeline(
        vae=vae(), text_encoder=clip(), tokenizer=Words(EOS), safety_checker=None, feature_extractor=None, requires_safety_checker=False,
        unet=diffusers.UNet2DConditionModel(sample_size=64, cross_attention_dim=768, layers_per_block=1),
        scheduler=diffusers.DDIMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", steps_offset=1,
                                          clip_sample=False, set_alpha_to_one=False))


def sdxl():
    unet = diffusers.UNet2DConditionModel(
        sample_size=128, block_out_channels=(320, 640, 1280), cross_attention_dim=2048, attention_head_dim=(5, 10, 20),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"), layers_per_block=1,
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"), transformer_layers_per_block=(1, 1, 2),
        use_linear_projection=True, addition_embed_type="text_time", addition_time_embed_dim=256,
        projection_class_embeddings_input_dim=2816)
    return diffusers.StableDiffusionXLPipeline(
        vae=vae(), text_encoder=clip(), text_encoder_2=clip(1280, 8, projects=True, hidden_act="gelu"), tokenizer=Words(EOS),
        tokenizer_2=Words(EOS), unet=unet,
        scheduler=diffusers.EulerDiscreteScheduler(beta_schedule="scaled_linear", steps_offset=1, timestep_spacing="leading"))


def sd3():
    return diffusers.StableDiffusion3Pipeline(
        vae=vae(16, shift_factor=0.06, use_quant_conv=False, use_post_quant_conv=False), tokenizer=Words(EOS), tokenizer_2=Words(EOS),
        tokenizer_3=Words(0), text_encoder=clip(projects=True), text_encoder_2=clip(1280, 8, projects=True, hidden_act="gelu"),
        text_encoder_3=t5(), scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
        transformer=diffusers.SD3Transformer2DModel(
            sample_size=128, patch_size=2, in_channels=16, out_channels=16, num_layers=4, attention_head_dim=64, num_attention_heads=24,
            caption_projection_dim=1536, joint_attention_dim=4096, pooled_projection_dim=2048, pos_embed_max_size=192))


def flux():
    return diffusers.FluxPipeline(
        vae=vae(16, shift_factor=0.1159, use_quant_conv=False, use_post_quant_conv=False), tokenizer=Words(EOS), tokenizer_2=Words(0),
        text_encoder=clip(), text_encoder_2=t5(), scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
        transformer=diffusers.FluxTransformer2DModel(num_layers=1, num_single_layers=2, guidance_embeds=True))


def pixart():
    return diffusers.PixArtSigmaPipeline(
        vae=vae(), tokenizer=Words(0), text_encoder=t5(), scheduler=diffusers.DPMSolverMultistepScheduler(beta_schedule="scaled_linear"),
        transformer=diffusers.PixArtTransformer2DModel(
            sample_size=64, num_layers=4, patch_size=2, attention_head_dim=72, num_attention_heads=16, caption_channels=4096,
            in_channels=4, cross_attention_dim=1152, out_channels=8, attention_bias=True, activation_fn="gelu-approximate",
            num_embeds_ada_norm=1000, norm_elementwise_affine=False, norm_eps=1e-6, use_additional_conditions=False))


# How it is made, its blocks, pixels, steps, further arguments of a call.
SHAPES = {
    "sd15": (sd15, "1 of 2 blocks at each resolution", 256, 2, {}),
    "sdxl": (sdxl, "1 of 2 blocks at each resolution, of 1 and 2 transformer blocks (2 and 10)", 256, 2, {}),
    "sd3": (sd3, "4 of 24 blocks", 256, 2, dict(max_sequence_length=128)),
    "flux": (flux, "1 of 19 blocks with two streams, 2 of 38 with one", 256, 2, dict(max_sequence_length=128)),
    "pixart": (pixart, "4 of 28 blocks", 256, 2, dict(clean_caption=False, use_resolution_binning=False, max_sequence_length=120)),
}
