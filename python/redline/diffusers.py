"""Redline inside diffusers: a pipeline keeps its loop, scheduler, callbacks and LoRA calls, and its networks compute in the engine.

    import redline.diffusers
    pipe = diffusers.FluxPipeline.from_pretrained(PATH, torch_dtype=torch.bfloat16)
    redline.diffusers.accelerate(pipe)
    redline.diffusers.apply_cache(pipe, "fbcache", quality=0.5)
    image = pipe("a lighthouse at night", num_inference_steps=28).images[0]

A component stays the object that it was, so `pipe.transformer.config`, `.dtype`, `isinstance` and LoRA calls go on working; its
class becomes a subclass whose forward() runs the engine, and its weights move there. docs/python.md has the details.
"""
# pyright: reportMissingImports=false
from __future__ import annotations

import re
import warnings
import weakref
from collections.abc import Mapping
from typing import Any

import torch

from redline._network import Network
from redline._torch_lora import Engine, record_fusing
from redline._torch_modules import LORA_METHODS, MIXINS, Accelerated, Denoiser, recording
from redline._torch_weights import config_of, give_back, weights_of
from redline.errors import InvalidArgument, Unsupported
from redline.runtime import Runtime

__all__ = ["accelerate", "apply_cache", "describe"]

_COMPONENTS = re.compile(r"(transformer|unet|text_encoder|vae)(_\d+)?")
_DENOISERS = ("transformer", "unet")
_TYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}


def _missing(name: str, module: Any, pipe: Any) -> str | None:
    """Why a component cannot be accelerated, by its class; None: it can."""
    kind = type(module).__name__
    if kind not in MIXINS:
        return f"{name} is a {kind}; Redline has {', '.join(MIXINS)}"
    if name in _DENOISERS and getattr(pipe, "controlnet", None) is not None:
        return f"{name} would take residuals of a {type(pipe.controlnet).__name__}, which Redline has not"
    return None


def _accelerate_module(module: Any, runtime: Runtime, dtype: str, options: Mapping[str, int]) -> None:
    mixin, base = MIXINS[type(module).__name__], type(module)
    tensors, alive = weights_of(module)
    network = Network(base.__name__, config_of(module), tensors, runtime=runtime, dtype=dtype, **options)
    engine = Engine(network)
    record_fusing(module, engine)
    del tensors, alive
    give_back(module, mixin._redline_keep)
    own = {name: recording(getattr(base, name)) for name in LORA_METHODS if hasattr(base, name)}
    module.__class__ = type(base.__name__, (mixin, base), {"__module__": base.__module__, "__doc__": base.__doc__, **own})
    object.__setattr__(module, "_redline", engine)


def accelerate(pipe: Any, *, dtype: Any = "auto", cache: str | None = None, quality: float | None = None,
               steps_budget: int | None = None, strict: bool = True, threads: int = 0, max_side: int = 2048, max_batch: int = 8,
               max_lora_rank: int = 128, front_blocks: int = 1, tail_blocks: int = 0, vae_tile: int = 0,
               runtime: Runtime | None = None) -> Any:
    """Moves transformer or UNet, text encoders and VAE of a diffusers pipeline into the engine; returns the pipeline.

    Weights are taken from the modules' tensors, component by component, and their memory is given back. The scheduler, callbacks,
    image processing, and components of other kinds (a safety checker, an image encoder) stay as they are. LoRA adapters are
    those of PEFT at each call: load_lora_weights, set_adapters, fuse_lora and the scales of a call keep their meaning.

    ``dtype``: "auto", "f32", "bf16", "q8", "q8_0", "w8a8", torch.float32 or torch.bfloat16; inputs and outputs keep the types of the
    pipeline. ``cache``, ``quality``, ``steps_budget``: as apply_cache(). ``strict=False``: what the engine does not have stays in
    PyTorch, with a warning. Where pipelines share components, call it with the one that runs, whose scheduler a step cache
    follows. ``max_side`` (pixels) and ``max_batch`` (rows of a call of the denoiser, with the branches of
    guidance) bound address space, not memory; ``max_lora_rank`` bounds the ranks of the active adapters together.

    Unsupported: a component's class, setting or weight type that the engine does not have; the message names it. Components
    before it are in the engine then, and the pipeline works.
    """
    components = {name: module for name, module in pipe.components.items()
                  if isinstance(module, torch.nn.Module) and _COMPONENTS.fullmatch(name)}
    if not components:
        raise InvalidArgument(f"{type(pipe).__name__} has no transformer, unet, text_encoder or vae to accelerate")
    name_of_dtype = _TYPES.get(dtype, dtype)
    if not isinstance(name_of_dtype, str):
        raise InvalidArgument(f"dtype {dtype!r} is none of auto, f32, bf16, q8, q8_0, w8a8, torch.float32, torch.bfloat16")
    todo = {}
    for name, module in components.items():
        if isinstance(module, Accelerated):
            continue
        if (missing := _missing(name, module, pipe)) is None:
            todo[name] = module
        elif strict:
            raise Unsupported(f"{missing}; with strict=False it stays in PyTorch")
        else:
            warnings.warn(f"{missing}; it stays in PyTorch", stacklevel=2)
    scale = int(getattr(pipe, "vae_scale_factor", 8) or 8)
    options = dict(max_batch=max_batch, max_latent_side=min(max(8, max_side // scale), 2048), front_blocks=front_blocks,
                   tail_blocks=tail_blocks, max_adapter_rank=max_lora_rank, vae_tile=vae_tile)
    shared = Runtime(threads=threads) if runtime is None else runtime
    for name, module in todo.items():
        try:
            _accelerate_module(module, shared, name_of_dtype, options)
        except Unsupported as error:
            if strict:
                raise Unsupported(f"{name}: {error}; with strict=False it stays in PyTorch") from None
            warnings.warn(f"{name}: {error}; it stays in PyTorch", stacklevel=2)
            continue
    for module in _accelerated(pipe).values():
        module._redline.pipeline = weakref.ref(pipe)
    if cache is not None or quality is not None or steps_budget is not None:
        apply_cache(pipe, cache, quality=quality, steps_budget=steps_budget)
    return pipe


def _accelerated(pipe: Any) -> dict[str, Any]:
    return {name: module for name, module in pipe.components.items() if isinstance(module, Accelerated)}


def apply_cache(pipe: Any, cache: str | None = None, *, quality: float | None = None, steps_budget: int | None = None) -> Any:
    """Sets the step cache of an accelerated pipeline's denoiser; returns the pipeline.

    ``cache``: a rule with its parameters, "auto", "fbcache:threshold=0.1", "teacache", "easycache", ... (docs/step_cache.md), or
    None: "auto" with a quality or a budget, else no cache. ``quality`` (0 .. 1) sets the rule's threshold, ``steps_budget`` the number
    of computed steps. describe(pipe) tells which steps of the last image were computed.

    Unsupported: the denoiser is not divided into the parts that the rule skips (a UNet). InvalidArgument: no such rule, or one that
    needs other front_blocks or tail_blocks than accelerate() was given.
    """
    found = [module for name, module in _accelerated(pipe).items() if isinstance(module, Denoiser)]
    if not found:
        raise InvalidArgument("the pipeline's denoiser does not run in Redline; call redline.diffusers.accelerate(pipe) first")
    for module in found:
        module._redline.network.set_cache(cache, quality, steps_budget)
        for text in module._redline.network.describe()["warnings"]:
            warnings.warn(text, stacklevel=2)
    return pipe


def describe(pipe: Any) -> dict[str, dict[str, Any]]:
    """By component: kind, memory (bytes), and of a denoiser cache, computed (by step of the last image), executed_share."""
    return {name: module._redline.network.describe() for name, module in _accelerated(pipe).items()}
