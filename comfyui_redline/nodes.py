"""The nodes. ComfyUI passes images as float32 [images, height, width, 3] from 0 to 1, masks as [images, height, width]."""
import numpy as np
import redline

CATEGORY = "redline"
DTYPES = ["auto", "f32", "bf16", "q8", "q8_0", "w8a8"]
RULES = ["none", "auto", "redline", "fbcache", "dbcache", "teacache", "easycache", "taylorseer", "magcache", "dicache"]


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
                "rule": (RULES, {"default": "auto"}),
                "quality": ("FLOAT", {"default": 0.5, "min": 0.0, "max": 1.0, "step": 0.05,
                                      "tooltip": "1 computes every step, 0 as few as possible"}),
            },
            "optional": {
                "residual_diff_threshold": ("FLOAT", {"default": 0.0, "min": 0.0, "max": 10.0, "step": 0.01,
                                                      "tooltip": "the rule's own threshold in place of the quality; 0: off"}),
                "steps_budget": ("INT", {"default": 0, "min": 0, "max": 1000, "tooltip": "computed steps (auto and redline); 0: by quality"}),
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
        return ({"cache": rule, "quality": quality},)


class RedlineSampler:
    """Text to image; with `image` image to image, with `mask` inpainting."""

    @classmethod
    def INPUT_TYPES(cls):
        size = {"min": 0, "max": 16384, "step": 8, "tooltip": "pixels; 0: the model's own"}
        return {
            "required": {
                "pipeline": ("REDLINE_PIPELINE",),
                "prompt": ("STRING", {"multiline": True, "default": "a large red circle"}),
                "negative_prompt": ("STRING", {"multiline": True, "default": ""}),
                "seed": ("INT", {"default": 0, "min": 0, "max": 2**64 - 1, "control_after_generate": True}),
                "steps": ("INT", {"default": 0, "min": 0, "max": 1000, "tooltip": "0: the model's own"}),
                "guidance": ("FLOAT", {"default": -1.0, "min": -1.0, "max": 100.0, "step": 0.1, "tooltip": "-1: the model's own"}),
                "width": ("INT", {"default": 0, **size}),
                "height": ("INT", {"default": 0, **size}),
                "batch_size": ("INT", {"default": 1, "min": 1, "max": 64}),
            },
            "optional": {
                "cache": ("REDLINE_CACHE",),
                "image": ("IMAGE",),
                "mask": ("MASK",),
                "strength": ("FLOAT", {"default": 0.8, "min": 0.0, "max": 1.0, "step": 0.01}),
            },
        }

    RETURN_TYPES = ("IMAGE", "STRING")
    RETURN_NAMES = ("image", "report")
    FUNCTION = "sample"
    CATEGORY = CATEGORY
    DESCRIPTION = "Generates images with Redline."

    def sample(self, pipeline, prompt, negative_prompt, seed, steps, guidance, width, height, batch_size, cache=None, image=None,
               mask=None, strength=0.8):
        import torch
        from comfy.model_management import throw_exception_if_processing_interrupted
        from comfy.utils import ProgressBar

        options = dict(cache or {})
        if image is not None:
            options.update(image=np.asarray(image[0]), strength=strength)
            if mask is not None:
                options["mask_image"] = np.asarray(mask[0] if mask.ndim == 3 else mask)
        elif mask is not None:
            raise ValueError("RedlineSampler: mask needs image, whose masked part is regenerated")
        bar = None

        def on_step(progress):
            nonlocal bar
            bar = bar or ProgressBar(progress.steps)
            bar.update_absolute(progress.step, progress.steps)
            throw_exception_if_processing_interrupted()

        result = pipeline(prompt, negative_prompt or None, seed=seed, seed_each=True, num_images_per_prompt=batch_size,
                          num_inference_steps=steps or None, guidance_scale=guidance if guidance >= 0 else None,
                          width=width or None, height=height or None, callback=on_step, **options)
        pixels = result.to_numpy().astype(np.float32) / 255
        report = f"{sum(result.step_ms) / 1000:.2f} s, {100 * result.executed_share:.0f} % of the operations ({result.cache or 'none'})"
        return torch.from_numpy(pixels), "\n".join([report, *result.warnings])


NODE_CLASS_MAPPINGS = {
    "RedlineLoader": RedlineLoader,
    "RedlineStepCache": RedlineStepCache,
    "RedlineSampler": RedlineSampler,
}
NODE_DISPLAY_NAME_MAPPINGS = {
    "RedlineLoader": "Redline: load pipeline",
    "RedlineStepCache": "Redline: step cache",
    "RedlineSampler": "Redline: sampler",
}
