"""The nodes. ComfyUI passes images as float32 [images, height, width, 3] from 0 to 1, masks as [images, height, width],
conditionings as [[embeddings [1, tokens, width], {"pooled_output": [1, width]}]], latents as {"samples": [images, channels, height /
8, width / 8]} in the autoencoder's own scale.
"""
import json
import pathlib

import numpy as np
import redline

from .model_cache import patch

CATEGORY = "redline"
DTYPES = ["auto", "f32", "bf16", "q8", "q8_0", "w8a8"]


def rules():
    """Those of the library, by name."""
    return {rule.name: rule for rule in redline.step_cache_rules()}


class RedlineLoader:
    """Opens a diffusers folder; the same settings give the same pipeline without opening it again."""

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {
                "path": ("STRING", {"default": "redline-shapes", "tooltip": "a diffusers folder, or hf:owner/name"}),
                "dtype": (DTYPES, {"tooltip": "arithmetic; auto keeps the stored types"}),
                "threads": ("INT", {"default": 0, "min": 0, "max": 1024, "tooltip": "0: all cores"}),
            },
            "optional": {
                "lora": ("STRING", {"default": "", "tooltip": "a LoRA file, or FILE:WEIGHT"}),
            },
        }

    RETURN_TYPES = ("REDLINE_PIPELINE",)
    RETURN_NAMES = ("pipeline",)
    FUNCTION = "load"
    CATEGORY = CATEGORY
    DESCRIPTION = "Opens a diffusion pipeline in Redline."
    _open = {}

    def load(self, path, dtype, threads, lora=""):
        key = (path, dtype, threads, lora)
        if key not in self._open:
            self._open.clear()  # one pipeline at a time: its memory is given back before the next is opened
            adapters = None
            if lora.strip():
                name, colon, weight = lora.strip().rpartition(":")
                is_weight = bool(colon) and weight.replace(".", "", 1).lstrip("-").isdigit()
                adapters = {"lora": (name, float(weight)) if is_weight else lora.strip()}
            self._open[key] = redline.ImagePipeline(path, dtype=dtype, threads=threads, adapters=adapters)
        return (self._open[key],)


class RedlineStepCache:
    """Which steps are computed and which are forecast."""

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {
                "rule": (["none", "auto", *(name for name in rules() if name != "none")], {"default": "auto"}),
                "quality": ("FLOAT", {"default": 0.5, "min": 0.0, "max": 1.0, "step": 0.05,
                                      "tooltip": "1 computes every step, 0 as few as possible"}),
            },
            "optional": {
                "residual_diff_threshold": ("FLOAT", {"default": 0.0, "min": 0.0, "max": 10.0, "step": 0.01,
                                                      "tooltip": "the rule's own threshold in place of the quality; 0: off"}),
                "steps_budget": ("INT", {"default": 0, "min": 0, "max": 1000,
                                         "tooltip": "computed steps (auto and redline); 0: by quality"}),
            },
        }

    RETURN_TYPES = ("REDLINE_CACHE",)
    RETURN_NAMES = ("cache",)
    FUNCTION = "settings"
    CATEGORY = CATEGORY
    DESCRIPTION = "Settings of the step cache."

    def settings(self, rule, quality, residual_diff_threshold=0.0, steps_budget=0):
        if rule == "none":
            return ({"cache": "none"},)
        if steps_budget:
            return ({"cache": rule, "steps_budget": steps_budget},)
        if residual_diff_threshold and rule != "auto":
            return ({"cache": f"{rule}:threshold={residual_diff_threshold:g}"},)
        if rule != "auto" and not rules()[rule].takes_quality:  # its own settings
            return ({"cache": rule},)
        return ({"cache": rule, "quality": quality},)


def image_settings(cache, image, mask, strength, node):
    """Keyword arguments of a pipeline's call for inputs that several nodes have."""
    options = dict(cache or {})
    if image is not None:
        options.update(image=np.asarray(image[0]), strength=strength)
        if mask is not None:
            options["mask_image"] = np.asarray(mask[0] if mask.ndim == 3 else mask)
    elif mask is not None:
        raise ValueError(f"{node}: mask needs image, whose masked part is regenerated")
    return options


def run(pipeline, prompt, **options):
    """A call with ComfyUI's progress bar and interrupt; the result and a report."""
    from comfy.model_management import throw_exception_if_processing_interrupted
    from comfy.utils import ProgressBar

    bar = None

    def on_step(progress):
        nonlocal bar
        bar = bar or ProgressBar(progress.steps)
        bar.update_absolute(progress.step, progress.steps)
        throw_exception_if_processing_interrupted()

    result = pipeline(prompt, callback=on_step, seed_each=True, **options)
    report = f"{sum(result.step_ms) / 1000:.2f} s, {100 * result.executed_share:.0f} % of the operations ({result.cache or 'none'})"
    return result, "\n".join([report, *result.warnings])


def to_images(result):
    import torch

    return torch.from_numpy(result.to_numpy().astype(np.float32) / 255)


def latent_scale(pipeline):
    """Scale and shift between the denoiser's latents and the autoencoder's."""
    config = json.loads((pathlib.Path(pipeline.path) / "vae/config.json").read_text())
    return float(config.get("scaling_factor") or 1.0), float(config.get("shift_factor") or 0.0)


SIZE = {"min": 0, "max": 16384, "step": 8, "tooltip": "pixels; 0: the model's own"}
SAMPLING = {
    "seed": ("INT", {"default": 0, "min": 0, "max": 2**64 - 1, "control_after_generate": True}),
    "steps": ("INT", {"default": 0, "min": 0, "max": 1000, "tooltip": "0: the model's own"}),
    "guidance": ("FLOAT", {"default": -1.0, "min": -1.0, "max": 100.0, "step": 0.1, "tooltip": "-1: the model's own"}),
    "width": ("INT", {"default": 0, **SIZE}),
    "height": ("INT", {"default": 0, **SIZE}),
    "batch_size": ("INT", {"default": 1, "min": 1, "max": 64}),
}
OPTIONAL = {
    "cache": ("REDLINE_CACHE",),
    "image": ("IMAGE",),
    "mask": ("MASK",),
    "strength": ("FLOAT", {"default": 0.8, "min": 0.0, "max": 1.0, "step": 0.01}),
}


def sampling_settings(seed, steps, guidance, width, height, batch_size):
    return dict(seed=seed, num_images_per_prompt=batch_size, num_inference_steps=steps or None,
                guidance_scale=guidance if guidance >= 0 else None, width=width or None, height=height or None)


class RedlineTextToImage:
    """Text to image in one node; with `image` image to image, with `mask` inpainting."""

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {
                "pipeline": ("REDLINE_PIPELINE",),
                "prompt": ("STRING", {"multiline": True, "default": "a large red circle"}),
                "negative_prompt": ("STRING", {"multiline": True, "default": ""}),
                **SAMPLING,
            },
            "optional": OPTIONAL,
        }

    RETURN_TYPES = ("IMAGE", "STRING")
    RETURN_NAMES = ("image", "report")
    FUNCTION = "generate"
    CATEGORY = CATEGORY
    DESCRIPTION = "Generates images with Redline."

    def generate(self, pipeline, prompt, negative_prompt, seed, steps, guidance, width, height, batch_size, cache=None, image=None,
                 mask=None, strength=0.8):
        result, report = run(pipeline, prompt, negative_prompt=negative_prompt or None,
                             **sampling_settings(seed, steps, guidance, width, height, batch_size),
                             **image_settings(cache, image, mask, strength, "RedlineTextToImage"))
        return to_images(result), report


class RedlineTextEncode:
    """Runs the pipeline's text encoders; the conditioning has the form of ComfyUI's own for the same model."""

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {
                "pipeline": ("REDLINE_PIPELINE",),
                "text": ("STRING", {"multiline": True, "default": "a large red circle"}),
            },
        }

    RETURN_TYPES = ("CONDITIONING",)
    FUNCTION = "encode"
    CATEGORY = CATEGORY
    DESCRIPTION = "Encodes a prompt with the text encoders of a Redline pipeline."

    def encode(self, pipeline, text):
        import torch

        embeds = pipeline.encode_prompt(text)
        more = {} if embeds.pooled is None else {"pooled_output": torch.from_numpy(embeds.pooled.copy())}
        return ([[torch.from_numpy(embeds.text.copy()), more]],)


class RedlineSampler:
    """Conditioning to latents; with `image` image to image, with `mask` inpainting. `negative` is for models with classifier-free
    guidance."""

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {"pipeline": ("REDLINE_PIPELINE",), "positive": ("CONDITIONING",), **SAMPLING},
            "optional": {"negative": ("CONDITIONING",), **OPTIONAL},
        }

    RETURN_TYPES = ("LATENT", "STRING")
    RETURN_NAMES = ("latent", "report")
    FUNCTION = "sample"
    CATEGORY = CATEGORY
    DESCRIPTION = "Denoises with Redline, with a step cache if one is given."

    def sample(self, pipeline, positive, seed, steps, guidance, width, height, batch_size, negative=None, cache=None, image=None,
               mask=None, strength=0.8):
        import torch

        embeds = {}
        for prefix, conditioning in (("", positive), ("negative_", negative)):
            if conditioning is None:
                continue
            if len(conditioning) != 1:
                raise ValueError(f"RedlineSampler: the conditioning has {len(conditioning)} parts; combined conditionings are not "
                                 "supported")
            text, more = conditioning[0]
            embeds[f"{prefix}prompt_embeds"] = text
            if more.get("pooled_output") is not None:
                embeds[f"{prefix}pooled_prompt_embeds"] = more["pooled_output"]
        settings = sampling_settings(seed, steps, guidance, width, height, batch_size)
        if negative is None:  # without it there is no classifier-free guidance
            settings["true_cfg_scale" if pipeline.describe()["is_guidance_distilled"] else "guidance_scale"] = 1.0
        result, report = run(pipeline, None, keep_latents=True, skip_decode=True, **embeds, **settings,
                             **image_settings(cache, image, mask, strength, "RedlineSampler"))
        scale, shift = latent_scale(pipeline)
        return {"samples": torch.from_numpy(result.latents / np.float32(scale) + np.float32(shift))}, report


class RedlineVAEDecode:
    """Latents to images with the pipeline's autoencoder."""

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"pipeline": ("REDLINE_PIPELINE",), "latent": ("LATENT",)}}

    RETURN_TYPES = ("IMAGE",)
    FUNCTION = "decode"
    CATEGORY = CATEGORY
    DESCRIPTION = "Decodes latents with the autoencoder of a Redline pipeline."

    def decode(self, pipeline, latent):
        scale, shift = latent_scale(pipeline)
        return (to_images(pipeline.decode((np.asarray(latent["samples"]) - np.float32(shift)) * np.float32(scale))),)


class RedlineApplyCache:
    """A step cache on a MODEL of ComfyUI, whose network stays where it is."""

    @classmethod
    def INPUT_TYPES(cls):
        share = {"min": 0.0, "max": 1.0, "step": 0.01}
        return {
            "required": {
                "model": ("MODEL",),
                "method": (["first block cache", "redline"], {"tooltip": "first block cache: of transformers; redline: of every model"}),
                "residual_diff_threshold": ("FLOAT", {"default": 0.12, "min": 0.0, "max": 1.0, "step": 0.001,
                                                      "tooltip": "first block cache: relative change below which blocks are skipped"}),
                "start": ("FLOAT", {"default": 0.0, **share, "tooltip": "share of the sampling after which steps may be skipped"}),
                "end": ("FLOAT", {"default": 1.0, **share, "tooltip": "share of the sampling after which no step is skipped"}),
                "max_consecutive_cache_hits": ("INT", {"default": -1, "min": -1, "max": 1000, "tooltip": "-1: no limit"}),
            },
            "optional": {
                "drift_threshold": ("FLOAT", {"default": 0.02, "min": 0.0, "max": 10.0, "step": 0.001,
                                              "tooltip": "redline: sum of expected errors below which steps are skipped"}),
                "steps_budget": ("INT", {"default": 0, "min": 0, "max": 1000, "tooltip": "redline: computed steps; 0: by the threshold"}),
            },
        }

    RETURN_TYPES = ("MODEL",)
    FUNCTION = "patch"
    CATEGORY = CATEGORY
    DESCRIPTION = "Skips steps of a MODEL, or most blocks of them, where neighbouring steps give nearly the same."

    def patch(self, model, method, residual_diff_threshold, start, end, max_consecutive_cache_hits, drift_threshold=0.02,
              steps_budget=0):
        if start > end:
            raise ValueError(f"RedlineApplyCache: start {start} is after end {end}")
        return (patch(model, method, residual_diff_threshold, start, end, max_consecutive_cache_hits, drift_threshold, steps_budget)[0],)


NODE_CLASS_MAPPINGS = {cls.__name__: cls for cls in (
    RedlineLoader, RedlineTextEncode, RedlineStepCache, RedlineSampler, RedlineVAEDecode, RedlineTextToImage, RedlineApplyCache)}
NODE_DISPLAY_NAME_MAPPINGS = {
    "RedlineLoader": "Redline: load pipeline",
    "RedlineTextEncode": "Redline: text encode",
    "RedlineStepCache": "Redline: step cache",
    "RedlineSampler": "Redline: sampler",
    "RedlineVAEDecode": "Redline: VAE decode",
    "RedlineTextToImage": "Redline: text to image",
    "RedlineApplyCache": "Redline: apply step cache to a MODEL",
}
