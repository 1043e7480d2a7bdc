"""Redline inside diffusers: a pipeline keeps its loop, scheduler, callbacks and LoRA calls, and its networks compute in the engine::

    import redline.diffusers
    pipe = diffusers.FluxPipeline.from_pretrained(PATH, torch_dtype=torch.bfloat16)
    redline.diffusers.accelerate(pipe)
    redline.diffusers.apply_cache(pipe, "fbcache", quality=0.5)
    image = pipe("a lighthouse at night", num_inference_steps=28).images[0]
    pipe.unload()                                             # PyTorch computes again

A component stays the object that it was, so ``pipe.transformer.config``, ``.dtype``, ``isinstance`` and LoRA calls keep working; its
class becomes a subclass whose forward() runs the engine, and its weights move there. docs/python.md has the details.
"""
# pyright: reportMissingImports=false
from __future__ import annotations

import functools
import re
import warnings
import weakref
from collections.abc import Mapping
from typing import Any

import torch

from redline._network import Network
from redline._torch_lora import Engine, record_fusing
from redline._torch_modules import LORA_METHODS, MIXINS, Accelerated, Denoiser, recording
from redline._cache_calls import DBCacheConfig, FoCaCalibratorConfig, TaylorSeerCalibratorConfig, dbcache_rule
from redline._tables import html_table, text_table
from redline._torch_weights import Origin, config_of, weights_of
from redline.errors import InvalidArgument, Unsupported
from redline.runtime import Runtime

__all__ = ["DBCacheConfig", "FoCaCalibratorConfig", "Report", "TaylorSeerCalibratorConfig", "accelerate", "apply_cache",
           "apply_cache_on_pipe", "describe", "disable_cache", "enable_cache", "report", "summary", "unload"]

_COMPONENTS = re.compile(r"(transformer|unet|text_encoder|vae)(_\d+)?")
_DENOISERS = ("transformer", "unet")
_TYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}
# Why modules stay in PyTorch that accelerate() has seen.
_reasons: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def _missing(name: str, module: Any, pipe: Any) -> str | None:
    """Returns why a component cannot be accelerated; None: it can."""
    kind = type(module).__name__
    if kind not in MIXINS:
        return f"{name} is a {kind}; Redline has {', '.join(MIXINS)}"
    if name in _DENOISERS and getattr(pipe, "controlnet", None) is not None:
        return f"{name} would take residuals of a {type(pipe.controlnet).__name__}, which Redline has not"
    return None


def _accelerate_module(module: Any, runtime: Runtime, dtype: str, options: Mapping[str, int], keep_weights: bool) -> None:
    mixin, base = MIXINS[type(module).__name__], type(module)
    tensors, alive = weights_of(module)
    network = Network(base.__name__, config_of(module), tensors, runtime=runtime, dtype=dtype, **options)
    engine = Engine(network)
    record_fusing(module, engine)
    del tensors, alive
    engine.origin = Origin(module, mixin._redline_keep, keep_weights)
    own = {name: recording(getattr(base, name)) for name in LORA_METHODS if hasattr(base, name)}
    module.__class__ = type(base.__name__, (mixin, base), {"__module__": base.__module__, "__doc__": base.__doc__, **own})
    object.__setattr__(module, "_redline", engine)


def accelerate(pipe: Any, *, dtype: Any = "auto", cache: str | None = None, quality: float | None = None,
               steps_budget: int | None = None, strict: bool | None = None, keep_weights: bool = False, threads: int = 0,
               runtime: Runtime | None = None, max_side: int = 2048, max_batch: int = 8, front_blocks: int = 1, tail_blocks: int = 0,
               max_lora_rank: int = 128, vae_tile: int = 0) -> Any:
    """Moves the transformer or UNet, the text encoders and the VAE of a pipeline into the engine; returns the pipeline.

    Weights are taken from the modules' tensors, component by component, and their memory is given back. The scheduler, callbacks,
    image processing, and components of other kinds (a safety checker, an image encoder) stay as they are. LoRA adapters are
    those of PEFT at each call: load_lora_weights, set_adapters, fuse_lora and the scales of a call keep their meaning.
    report(pipe) lists what runs where; pipe.unload() undoes it.

    ``dtype``: "auto", "f32", "bf16", "q8", "q8_0", "w8a8", torch.float32 or torch.bfloat16; inputs and outputs keep the types of the
    pipeline. ``cache``, ``quality``, ``steps_budget``: as apply_cache(). ``strict``: by default a text encoder or VAE that the engine
    does not have stays in PyTorch, with a warning, and such a denoiser is an error; True: either is an error; False: none is.
    ``keep_weights=True`` keeps the modules' tensors for unload(), which else reads the files that they came from. Where
    pipelines share components, call it with the one that runs, whose scheduler a step cache follows. ``max_side`` (pixels) and
    ``max_batch`` (rows of a call of the denoiser, with the branches of guidance) bound address space, not memory;
    ``max_lora_rank`` bounds the ranks of the active adapters together.

    Unsupported: a component's class, setting or weight type that the engine does not have; the message names it. Components
    before it are in the engine then, and the pipeline works.
    """
    components = {name: module for name, module in pipe.components.items()
                  if isinstance(module, torch.nn.Module) and _COMPONENTS.fullmatch(name)}
    if not components:
        raise InvalidArgument(f"{type(pipe).__name__} has no transformer, unet, text_encoder or vae to accelerate")
    name_of_dtype = _TYPES.get(dtype, dtype)
    if not isinstance(name_of_dtype, str):
        raise InvalidArgument(f"unknown dtype {dtype!r}; expected one of auto, f32, bf16, q8, q8_0, w8a8, torch.float32, torch.bfloat16")

    def leave(name: str, why: str) -> None:
        """A component that stays in PyTorch."""
        if strict or (strict is None and name.partition("_")[0] in _DENOISERS):
            raise Unsupported(f"{why}; with strict=False it stays in PyTorch")
        _reasons[components[name]] = why
        warnings.warn(f"{why}; it stays in PyTorch", stacklevel=3)

    todo = {}
    for name, module in components.items():
        if isinstance(module, Accelerated):
            continue
        if (missing := _missing(name, module, pipe)) is None:
            todo[name] = module
        else:
            leave(name, missing)
    scale = int(getattr(pipe, "vae_scale_factor", 8) or 8)
    options = dict(max_batch=max_batch, max_latent_side=min(max(8, max_side // scale), 2048), front_blocks=front_blocks,
                   tail_blocks=tail_blocks, max_adapter_rank=max_lora_rank, vae_tile=vae_tile)
    shared = Runtime(threads=threads) if runtime is None else runtime
    for name, module in todo.items():
        try:
            _accelerate_module(module, shared, name_of_dtype, options, keep_weights)
        except Unsupported as error:
            leave(name, f"{name}: {error}")
    for module in _accelerated(pipe).values():
        module._redline.pipeline = weakref.ref(pipe)
    if _accelerated(pipe) and not hasattr(type(pipe), "unload"):
        pipe.unload = functools.partial(_unload, weakref.ref(pipe))
    if cache is not None or quality is not None or steps_budget is not None:
        apply_cache(pipe, cache, quality=quality, steps_budget=steps_budget)
    return pipe


def unload(pipe: Any) -> Any:
    """Undoes accelerate(): the modules have their weights and their classes again, and the engine's memory is given back.

    The weights are those that accelerate(keep_weights=True) has kept, else those of the files that the module was loaded from.
    LoRA adapters stay loaded, and fused ones are added to the weights. Step caches are removed.

    Unsupported: a module came from no file, or was changed after it was loaded; nothing has happened to it then.
    """
    for name, module in _accelerated(pipe).items():
        module._redline.origin.restore(name, module, type(module).__bases__[1])
    pipe.__dict__.pop("unload", None)
    return pipe


def _unload(pipe: Any) -> Any:
    return unload(pipe())


def _accelerated(pipe: Any) -> dict[str, Any]:
    return {name: module for name, module in pipe.components.items() if isinstance(module, Accelerated)}


def apply_cache(pipe: Any, method: str | None = None, *, quality: float | None = None, steps_budget: int | None = None) -> Any:
    """Sets the step cache of an accelerated pipeline's denoiser; returns the pipeline.

    ``method``: a rule with its parameters, "auto", "fbcache:threshold=0.1", "teacache", "easycache", ... (docs/step_cache.md), or
    None: "auto" with a quality or a budget, else no cache. ``quality`` (0 .. 1) sets the rule's threshold, ``steps_budget`` the number
    of computed steps. describe(pipe) lists the computed steps of the last image.

    Unsupported: the denoiser is not divided into the parts that the rule skips (a UNet). InvalidArgument: no such rule, or one that
    needs other front_blocks or tail_blocks than accelerate() was given.
    """
    found = _denoisers(pipe)
    if not found:
        raise InvalidArgument("the pipeline's denoiser does not run in Redline; call redline.diffusers.accelerate(pipe) first")
    for module in found:
        module._redline.network.set_cache(method, quality, steps_budget)
        for text in module._redline.network.describe()["warnings"]:
            warnings.warn(text, stacklevel=2)
    return pipe


def _denoisers(pipe: Any) -> list[Any]:
    return [module for module in _accelerated(pipe).values() if isinstance(module, Denoiser)]


def apply_cache_on_pipe(pipe: Any, *, residual_diff_threshold: float = 0.08, shallow_patch: bool = False) -> Any:
    """ParaAttention's call of this name: first block cache (FBCache). A pipeline that is not accelerated yet is accelerated
    with the defaults.

    ``shallow_patch`` prepares the pipeline without a cache.
    """
    if not _denoisers(pipe):
        accelerate(pipe)
    return pipe if shallow_patch else apply_cache(pipe, f"fbcache:threshold={float(residual_diff_threshold):g}")


def enable_cache(pipe: Any, cache_config: Any = None, calibrator_config: Any = None, **settings: Any) -> Any:
    """cache-dit's call of this name: DBCache, with TaylorSeer or FoCa as forecaster.

    ``cache_config`` and ``calibrator_config``: those of this module, cache-dit's own, or dicts; ``settings``: fields of either, as
    older versions take them (``enable_taylorseer``, ``taylorseer_order``). A pipeline that is not accelerated yet is, with
    Fn_compute_blocks and Bn_compute_blocks as the blocks before and after those that are skipped; an accelerated one must have been
    given these (``accelerate(pipe, front_blocks=8)``).

    Unsupported: a field that the engine's rule has no equal for; the message names it.
    """
    rule, front, tail = dbcache_rule(cache_config, calibrator_config, settings)
    if not _denoisers(pipe):
        accelerate(pipe, front_blocks=front, tail_blocks=tail)
    return apply_cache(pipe, rule)


def disable_cache(pipe: Any) -> Any:
    """cache-dit's call of this name: every step is computed."""
    return apply_cache(pipe, "none")


def summary(pipe: Any) -> dict[str, Any]:
    """cache-dit's call of this name, of the last image: ``cache``, ``steps``, ``cached_steps`` (their numbers), ``executed_share``."""
    found = _denoisers(pipe)
    if not found:
        raise InvalidArgument("the pipeline's denoiser does not run in Redline; call redline.diffusers.accelerate(pipe) first")
    values = found[0]._redline.network.describe()
    computed = values.get("computed", [])
    return {"cache": values.get("cache", ""), "steps": len(computed),
            "cached_steps": [step for step, rows in enumerate(computed) if not rows],
            "executed_share": values.get("executed_share", 1.0)}


def describe(pipe: Any) -> dict[str, dict[str, Any]]:
    """Returns for each component its kind and memory (bytes), and for a denoiser also cache, computed (by step of the last image) and
    executed_share."""
    return {name: module._redline.network.describe() for name, module in _accelerated(pipe).items()}


class Report(list[dict[str, Any]]):
    """Rows of report(), which print as a table."""

    def __str__(self) -> str:
        return text_table(self)

    def _repr_html_(self) -> str:
        return html_table(self)


def report(pipe: Any) -> Report:
    """What computes each module of a pipeline: ``component``, ``class``, ``runs in`` ("Redline" or "PyTorch"), ``memory`` of its weights
    in bytes, and ``why`` it stays in PyTorch."""
    rows = Report()
    for name, module in pipe.components.items():
        if not isinstance(module, torch.nn.Module):
            continue
        row: dict[str, Any] = {"component": name, "class": type(module).__name__}
        if isinstance(module, Accelerated):
            memory = module._redline.network.describe()["memory"]["packed_weights"]
            row.update({"runs in": "Redline", "memory": memory, "why": ""})
        else:
            why = _reasons.get(module)
            if why is None:
                known = _COMPONENTS.fullmatch(name) is not None
                why = (_missing(name, module, pipe) if known else "Redline has no network of this kind") or "accelerate() was not called"
            memory = sum(tensor.numel() * tensor.element_size() for tensor in module.state_dict().values())
            row.update({"runs in": "PyTorch", "memory": memory, "why": why})
        rows.append(row)
    return rows
