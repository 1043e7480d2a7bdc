"""Generates images with diffusion pipelines."""
from __future__ import annotations

import dataclasses
import difflib
import json
import os
import struct as binary
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from redline import _redline
from redline._convert import as_numpy, assign, float_array, integer, is_array, kind_of, path_text, text_list, texts, utf8
from redline._names import find_model
from redline._native import Closable
from redline._options import assign_options, option_names, with_options
from redline._progress import ProgressBar
from redline.errors import InvalidArgument

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from redline.runtime import Runtime

__all__ = ["Image", "ImagePipeline", "ImageResult", "PromptEmbeds", "StepCacheRule", "StepProgress", "step_cache_rules"]

_PLAIN = (*option_names(_redline.ImageRequest), "scheduler")
_AT_LEAST_1 = ("width", "height", "num_inference_steps", "steps_budget", "max_sequence_length")  # 0: as if left out
_KNOWN_ELSEWHERE = {"steps": "num_inference_steps", "guidance": "guidance_scale", "cfg_scale": "guidance_scale",
                    "init_image": "image", "mask": "mask_image", "callback_on_step_end": "callback", "latents": "init_noise",
                    "num_images": "num_images_per_prompt", "solver": "scheduler", "batch": "num_images_per_prompt"}


@dataclasses.dataclass(frozen=True)
class StepCacheRule:
    """A rule of the step cache, for ``cache`` of a pipeline's call. ``"auto"`` stands for the one with ``is_default``;
    ``takes_quality`` and ``takes_budget`` say which of ``quality`` and ``steps_budget`` may go with it."""

    name: str
    summary: str
    source: str
    is_default: bool
    takes_quality: bool
    takes_budget: bool


def step_cache_rules() -> list[StepCacheRule]:
    """Returns the rules of the step cache (docs/step_cache.md).

    >>> import redline
    >>> [rule.name for rule in redline.step_cache_rules() if rule.is_default]
    ['redline']
    """
    return [StepCacheRule(**row) for row in json.loads(_redline.step_cache_rules())]


def png_data(pixels: NDArray[np.uint8]) -> bytes:
    """Returns a PNG file of RGB pixels [height, width, 3]."""
    height, width, _ = pixels.shape

    def part(kind: bytes, data: bytes) -> bytes:
        return binary.pack(">I", len(data)) + kind + data + binary.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    return (b"\x89PNG\r\n\x1a\n" + part(b"IHDR", binary.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + part(b"IDAT", zlib.compress(rows, 6)) + part(b"IEND", b""))


class Image:
    """RGB pixels, uint8 [height, width, 3], over the engine's memory; ``result.images`` has these if Pillow is not installed."""

    def __init__(self, pixels: NDArray[np.uint8]) -> None:
        self._pixels = pixels

    @property
    def width(self) -> int:
        """Pixels."""
        return int(self._pixels.shape[1])

    @property
    def height(self) -> int:
        """Pixels."""
        return int(self._pixels.shape[0])

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.width, self.height

    def to_numpy(self) -> NDArray[np.uint8]:
        """uint8 [height, width, 3], without a copy."""
        return self._pixels

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        import numpy as np

        return np.array(self._pixels, dtype=dtype) if copy or dtype not in (None, self._pixels.dtype) else self._pixels

    def __dlpack__(self, **options: Any) -> Any:
        return self._pixels.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._pixels.__dlpack_device__()

    def to_pil(self) -> Any:
        """A PIL.Image over the same memory. ImportError: Pillow is not installed."""
        from PIL import Image as pil

        return pil.fromarray(self._pixels)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a PNG file. FileError: the file cannot be written."""
        import numpy as np

        name = path_text("path", path)
        if not name.lower().endswith(".png"):
            raise InvalidArgument(f"{name}: PNG files are written; other formats by image.to_pil().save(path)")
        _redline.save_png(utf8("path", name), np.ascontiguousarray(self._pixels))

    def _repr_png_(self) -> bytes:
        return png_data(self._pixels)

    def __repr__(self) -> str:
        return f"<redline.Image {self.width}x{self.height}>"


@dataclasses.dataclass(frozen=True)
class StepProgress:
    """A completed step, passed to ``callback``. ``computed`` images of the batch were computed, the others forecast.

    ``latents`` (a copy) and ``preview()`` are available during the callback only.
    """

    step: int
    steps: int
    step_ms: float
    computed: int
    sigma: float
    next_sigma: float
    _progress: Any = dataclasses.field(repr=False, default=None)

    @property
    def latents(self) -> NDArray[np.float32]:
        """After the step, float32 [batch, channels, height, width]."""
        found: NDArray[np.float32] = self._progress.latents
        return found

    def preview(self, index: int = 0, max_side: int = 256) -> Image:
        """Image ``index`` of the batch as the model expects it at this step; its longer side has at most ``max_side`` pixels."""
        return Image(self._progress.preview(integer("index", index), integer("max_side", max_side)))


class ImageResult:
    """Images and figures of a call.

    ``images``: PIL images, or redline.Image without Pillow. ``seed``: the seed that was used. ``cache``: rule of the step cache;
    ``executed_share``: matrix products relative to a run without it. Times are milliseconds.
    """

    def __init__(self, handle: _redline.ImageResult) -> None:
        self._handle = handle
        self.pixels: list[NDArray[np.uint8]] = [handle.image(i) for i in range(len(handle))]
        self.details: dict[str, Any] = json.loads(handle.describe())
        self.seed: int = handle.seed
        self.warnings: list[str] = list(self.details["warnings"])
        self.cache: str = self.details["cache"]
        self.executed_share: float = self.details["executed_share"]
        self.step_ms: list[float] = list(self.details["step_ms"])

    def to_redline(self) -> list[Image]:
        """The images as redline.Image."""
        return [Image(pixels) for pixels in self.pixels]

    @property
    def images(self) -> list[Any]:
        """The images as PIL.Image over the engine's memory, or as redline.Image where Pillow is not installed."""
        try:
            from PIL import Image as pil
            from PIL import ImageOps
        except ImportError:
            return list(self.to_redline())
        return [pil.fromarray(pixels) for pixels in self.pixels]

    def to_numpy(self) -> NDArray[np.uint8]:
        """uint8 [images, height, width, 3]; of a single image without a copy."""
        import numpy as np

        if not self.pixels:
            return np.empty((0, 0, 0, 3), np.uint8)
        return self.pixels[0][None] if len(self.pixels) == 1 else np.stack(self.pixels)

    @property
    def latents(self) -> NDArray[np.float32] | None:
        """Final latents, float32 [images, channels, height, width]; None without ``keep_latents=True``."""
        return self._handle.latents

    def __len__(self) -> int:
        return len(self.pixels)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.images)

    def __getitem__(self, index: int) -> Any:
        return self.images[index]

    def _repr_png_(self) -> bytes | None:
        import numpy as np

        return png_data(np.concatenate(self.pixels, axis=1)) if self.pixels else None

    def __repr__(self) -> str:
        sizes = ", ".join(f"{p.shape[1]}x{p.shape[0]}" for p in self.pixels)
        return f"<redline.ImageResult {sizes}; seed {self.seed}; {len(self.step_ms)} steps in {sum(self.step_ms):.0f} ms>"


class PromptEmbeds:
    """The output of the text encoders, over the engine's memory. ``text``: float32 [prompts, tokens, width]; ``pooled``: float32
    [prompts, width], None if the pipeline has none; ``warnings``: a truncated prompt, ..."""

    def __init__(self, handle: _redline.PromptEmbeds) -> None:
        self.text: NDArray[np.float32] = handle.text
        self.pooled: NDArray[np.float32] | None = handle.pooled
        self.warnings: list[str] = json.loads(handle.describe())["warnings"]

    def __repr__(self) -> str:
        pooled = "none" if self.pooled is None else list(self.pooled.shape)
        return f"<redline.PromptEmbeds text {list(self.text.shape)}, pooled {pooled}>"


def rgb_pixels(name: str, value: Any, gray: bool = False) -> NDArray[np.uint8]:
    """Returns uint8 [height, width, 3] for a PIL image, a redline.Image, a path, or an array (uint8, or floats from 0 to 1)."""
    import numpy as np

    if isinstance(value, (str, os.PathLike)):
        try:
            from PIL import Image as pil
            from PIL import ImageOps
        except ImportError:
            raise InvalidArgument(f"{name} is a path, which Pillow reads: pip install pillow, or pass an array "
                                  "[height, width, 3]") from None
        try:
            value = pil.open(path_text(name, value))
            value = ImageOps.exif_transpose(value)
        except OSError as error:
            raise InvalidArgument(f"{name}: {error}") from None
    if hasattr(value, "convert") and hasattr(value, "getbands"):
        has_alpha = gray and ("A" in value.getbands() or "transparency" in getattr(value, "info", {}))
        value = value.convert("RGBA" if has_alpha else "RGB")
    if not is_array(value):
        raise InvalidArgument(f"{name} must be a PIL image, a path, or an array [height, width, 3], not {kind_of(value)}")
    found = as_numpy(name, value)
    if found.dtype.kind == "f":
        if found.size and not (found.min() >= 0 and found.max() <= 1):
            raise InvalidArgument(f"{name} has floats from {found.min():g} to {found.max():g}; they must be from 0 to 1")
        found = np.round(found * 255).astype(np.uint8)
    elif found.dtype == np.bool_ and gray:
        found = found.astype(np.uint8) * 255
    if found.dtype != np.uint8:
        raise InvalidArgument(f'{name} has dtype {found.dtype}; use uint8 from 0 to 255, or floats from 0 to 1')
    if found.ndim == 2:
        found = np.repeat(found[:, :, None], 3, axis=2)
    if found.ndim != 3 or found.shape[2] not in (1, 3, 4) or 0 in found.shape:
        raise InvalidArgument(f"{name} has shape {list(found.shape)}; it must be [height, width, 3]")
    if found.shape[2] == 1:
        found = np.repeat(found, 3, axis=2)
    if gray and found.shape[2] == 4:  # a mask over black: what is transparent is kept
        found = (found[:, :, :3].astype(np.uint16) * found[:, :, 3:] + 127) // 255
    return np.ascontiguousarray(found[:, :, :3], dtype=np.uint8)


@with_options(_redline.ImagePipelineOptions)
class ImagePipeline(Closable["_redline.ImagePipeline"]):
    """A diffusion pipeline, opened from a diffusers folder or the name of a bundled one.

    >>> import redline
    >>> painter = redline.ImagePipeline("redline-shapes")
    >>> result = painter("a large red circle", num_inference_steps=4, seed=1)
    >>> result.images[0].size, result.seed, len(result.step_ms)
    ((128, 128), 1, 4)

    Options (keyword only):

    {options}
    * ``adapters``: LoRA adapters, a path, a list of paths, or a dict of name to path or (path, weight).
    * ``runtime`` (Runtime): shared with other models.

    Calls of several threads take turns. NotFound: no such folder. Unsupported: a pipeline class that the engine does not have.
    """

    _name = "pipeline"

    def __init__(self, path: str | os.PathLike[str], *, runtime: Runtime | None = None, adapters: Any = None,
                 **options: Any) -> None:
        self._path = find_model(path_text("path", path))
        struct = _redline.ImagePipelineOptions()
        assign_options(struct, "ImagePipeline", options, runtime=runtime, adapters=adapters)
        self._open(_redline.open_image_pipeline(utf8("path", self._path), struct))

    def __repr__(self) -> str:
        return f"<redline.ImagePipeline {self._path}{' (closed)' if self.closed else ''}>"

    @property
    def path(self) -> str:
        """The folder."""
        return self._path

    def describe(self) -> dict[str, Any]:
        """Returns family, is_guidance_distilled, takes_guidance_scale, size_multiple (pixels), defaults, memory (bytes)."""
        return dict(json.loads(self._use().describe()))

    @property
    def defaults(self) -> dict[str, Any]:
        """The settings that a call without arguments uses."""
        return dict(self.describe()["defaults"])

    def load_adapter(self, name: str, path: str | os.PathLike[str]) -> None:
        """Loads a LoRA file; it has no effect until set_adapters()."""
        self._use().load_adapter(utf8("name", name), utf8("path", path_text("path", path)))

    def set_adapters(self, adapters: str | Mapping[str, float] | list[str]) -> None:
        """The adapters of the calls that follow, with their weights; [] for none. NotFound: no such name."""
        from redline.sampling import weight_list

        self._use().set_adapters(weight_list(adapters))

    def encode_prompt(self, prompt: str | list[str], *, max_sequence_length: int = 0) -> PromptEmbeds:
        """Runs the text encoders alone: for ``prompt_embeds`` and ``pooled_prompt_embeds`` of calls.

        ``max_sequence_length``: text tokens (T5); 0: the model's default. Unsupported: prompts of different lengths where the denoiser
        does not attend to padding; encode them one by one.
        """
        given = text_list("prompt", prompt)
        return PromptEmbeds(self._use().encode_prompts(given, integer("max_sequence_length", max_sequence_length)))

    def decode(self, latents: Any) -> ImageResult:
        """Decodes latents to images, float [images, channels, height / 8, width / 8], as ``keep_latents=True`` gives them."""
        floats = float_array("latents", latents, ("images", "channels", "height / 8", "width / 8"))
        return ImageResult(self._use().decode(floats))

    def __call__(self, prompt: str | list[str] | None = None, negative_prompt: str | None = None, *, width: int | None = None,
                 height: int | None = None, num_inference_steps: int | None = None, guidance_scale: float | None = None,
                 seed: int | None = None, generator: Any = None, num_images_per_prompt: int = 1, image: Any = None,
                 mask_image: Any = None, strength: float | None = None, cache: str | None = None, quality: float | None = None,
                 steps_budget: int | None = None, init_noise: Any = None, prompt_embeds: Any = None,
                 pooled_prompt_embeds: Any = None, negative_prompt_embeds: Any = None, negative_pooled_prompt_embeds: Any = None,
                 callback: Callable[[StepProgress], object] | None = None,
                 progress: bool | None = None, **more: Any) -> ImageResult:
        """Generates images. Names and meaning are those of diffusers where it has them. Omitted arguments have the model's defaults.

        ``prompt``: one, or one for each image of a batch. ``width``, ``height``: pixels. ``seed``: equal to
        ``torch.Generator("cpu").manual_seed(seed)``; omitted: a random seed, which the result reports. ``generator``: an int, or a
        torch.Generator, of which the initial seed is used. ``image`` (PIL, path, or array [height, width, 3]): image to image, with
        ``strength`` from 0 to 1; with ``mask_image`` inpainting: white is regenerated. Both may have any size; ``resize`` ("stretch",
        "crop", "fit") brings them to that of the result, which follows from the image without width and height. ``cache``: rule of the step cache ("auto",
        "none", "fbcache:threshold=0.1"); ``quality`` from 0 to 1 sets its threshold, ``steps_budget`` the number of computed steps.
        ``init_noise``: float32 [images, channels, height / 8, width / 8]. ``prompt_embeds``: float32 [images, tokens, width], in
        place of the text encoders, with ``pooled_prompt_embeds`` [images, width]; the same of the negative prompt
        (``negative_prompt_embeds``, ``negative_pooled_prompt_embeds``) for classifier-free guidance.

        ``callback(StepProgress)`` is called after every step; returning False ends the call with Cancelled. ``progress``: a bar on
        standard error; by default in terminals and notebooks without a callback. Ctrl-C ends the call within a step.

        Further names: true_cfg_scale, guidance_begin, guidance_end, split_guidance, max_sequence_length, scheduler, seed_each,
        keep_unmasked, keep_latents (the result has ``latents``), skip_decode (no images: decode(latents) later), resize.
        """
        handle = self._use()
        request = _redline.ImageRequest(handle)
        values = dict(negative_prompt=negative_prompt, width=width, height=height, num_inference_steps=num_inference_steps,
                      guidance_scale=guidance_scale, strength=strength, cache=cache, quality=quality, steps_budget=steps_budget,
                      **more)
        for name, value in values.items():
            if name not in _PLAIN:
                known = [*_PLAIN, *(k for k in type(self).__call__.__annotations__ if k not in ("more", "return"))]
                near = _KNOWN_ELSEWHERE.get(name) or next(iter(difflib.get_close_matches(name, known, 1)), None)
                raise TypeError(f"ImagePipeline() got an unexpected keyword argument '{name}'{f'; use {near}' if near else ''}")
            if value is not None:
                assign(request, name, value)
                if name in _AT_LEAST_1 and not getattr(request, name):
                    raise InvalidArgument(f"{name} is 0; leave it out for the model's own")
        if strength is not None and image is None:
            raise InvalidArgument("strength needs image, with which it begins")
        if callback is not None and not callable(callback):
            raise InvalidArgument(f"callback must be a function of a StepProgress, not {kind_of(callback)}")
        if prompt is None:
            if prompt_embeds is None:
                raise InvalidArgument("a prompt is needed, or prompt_embeds")
            prompt = ""
        if not texts("prompt", prompt):
            raise InvalidArgument("prompt is an empty list")
        request.prompts = text_list("prompt", prompt)
        request.num_images = integer("num_images_per_prompt", num_images_per_prompt)
        if request.num_images < 1:
            raise InvalidArgument(f"num_images_per_prompt is {request.num_images}; it must be at least 1")
        if (number := _seed(seed, generator)) is not None:
            request.seed, request.has_seed = number, 1
        for field, name, array, axes in (
            ("init_noise", "init_noise", init_noise, ("images", "channels", "height / 8", "width / 8")),
            ("prompt_embeds", "prompt_embeds", prompt_embeds, ("images", "tokens", "width")),
            ("pooled_embeds", "pooled_prompt_embeds", pooled_prompt_embeds, ("images", "width")),
            ("negative_prompt_embeds", "negative_prompt_embeds", negative_prompt_embeds, ("images", "tokens", "width")),
            ("negative_pooled_embeds", "negative_pooled_prompt_embeds", negative_pooled_prompt_embeds, ("images", "width")),
        ):
            if array is not None:
                setattr(request, field, float_array(name, array, axes))
        if mask_image is not None and image is None:
            raise InvalidArgument("mask_image needs image, whose masked part is regenerated")
        for field, name, source in (("init_image", "image", image), ("mask", "mask_image", mask_image)):
            if source is not None:
                pixels = rgb_pixels(name, source, field == "mask")
                setattr(request, field, pixels)
                if field == "init_image":  # the engine derives what is left out from the image
                    request.width, request.height = width or 0, height or 0

        shown = progress if progress is not None else None if callback is None else False
        with ProgressBar(0, unit="step", shown=shown) as bar:

            def on_step(p: _redline.ImageProgress) -> object:
                bar.update(p.step, p.steps)
                if callback is None:
                    return None
                return callback(StepProgress(p.step, p.steps, p.step_ms, p.computed, p.sigma, p.next_sigma, p))

            return ImageResult(handle.generate(request, on_step))


def _seed(seed: Any, generator: Any) -> int | None:
    if generator is not None:
        if seed is not None:
            raise InvalidArgument("seed and generator are both given; use one")
        if isinstance(generator, (list, tuple)):
            raise InvalidArgument("generator is a list; use seed with seed_each=True: image i has the seed seed + i")
        initial = getattr(generator, "initial_seed", None)
        seed = initial() if initial is not None else generator
    if seed is None or (isinstance(seed, int) and seed == -1):
        return None
    return integer("seed", seed, "uint64")
