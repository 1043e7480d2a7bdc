"""Moves the weights of PyTorch modules into the engine."""
# pyright: reportMissingImports=false
from __future__ import annotations

import hashlib
import json
import math
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from redline._network import TensorView
from redline.errors import Unsupported

FLOATS = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
_LORA = (".lora_A.", ".lora_B.", ".lora_embedding_A.", ".lora_embedding_B.", ".lora_magnitude_vector.")


def floats(value: torch.Tensor) -> torch.Tensor:
    return value.detach().to("cpu", torch.float32).contiguous()


def view(tensor: torch.Tensor) -> TensorView:
    return TensorView("I32" if tensor.dtype == torch.int32 else "F32", tensor.shape, tensor.data_ptr())


class MovedTensor(torch.Tensor):
    """Stands for a weight that is in the engine: type, shape and device without memory.

    On the device "meta", PEFT and diffusers would move what they add to the module there too.
    """

    @staticmethod
    def __new__(cls, like: torch.Tensor, dtype: torch.dtype | None = None) -> MovedTensor:
        made: MovedTensor = torch.Tensor._make_wrapper_subclass(
            cls, like.shape, dtype=dtype or like.dtype, device=torch.device("cpu"), requires_grad=False)
        return made

    def __repr__(self, **_: Any) -> str:
        return f"<{list(self.shape)} {self.dtype}, in Redline>"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        operation = func.overloadpacket
        if operation is torch.ops.aten.detach:
            return cls(args[0])
        if operation is torch.ops.aten._to_copy:
            device = kwargs.get("device")
            if device is not None and torch.device(device).type != "cpu":
                raise Unsupported(f"a network that computes in Redline stays on the CPU; it cannot be moved to {device}")
            return cls(args[0], kwargs.get("dtype"))
        raise Unsupported(f"{operation} needs weights that have moved into Redline (redline.diffusers.accelerate); "
                          "load the pipeline again to compute with them in PyTorch")


def _is_lora(name: str) -> bool:
    return any(mark in f".{name}." for mark in _LORA)


def _base_name(name: str) -> str:
    """Returns the name of a weight without the layer that PEFT has put around it."""
    return f".{name}".replace(".base_layer.", ".")[1:]


def _digest(tensor: torch.Tensor) -> str:
    """Returns a hash of the type, the shape, and at most 4096 elements at equal distances."""
    flat = tensor.detach().reshape(-1)
    sample = flat[:: max(1, flat.numel() // 4096)].contiguous().view(torch.uint8).numpy()
    return hashlib.blake2b(f"{tensor.dtype} {list(tensor.shape)}".encode() + sample.tobytes(), digest_size=8).hexdigest()


def _variant_of(folder: str) -> str | None:
    """"fp16" where a folder has model.fp16.safetensors and no model.safetensors."""
    found = [re.fullmatch(r".+?(?:-\d+-of-\d+)?(?:\.(\w+))?(?:-\d+-of-\d+)?\.safetensors", name)
             for name in (os.listdir(folder) if os.path.isdir(folder) else ())]
    variants = {match[1] for match in found if match}
    return variants.pop() if len(variants) == 1 else None


class Origin:
    """The source of weights that have moved into the engine, from which the module can get them back.

    Making one drops the memory of all weights but those whose names end with one of `keep`; with `keeps_tensors` it has them.
    """

    def __init__(self, module: Any, keep: tuple[str, ...], keeps_tensors: bool) -> None:
        self._folder = getattr(module, "name_or_path", None) or getattr(module.config, "_name_or_path", None)
        self._kept: dict[str, torch.Tensor] | None = {} if keeps_tensors else None
        self._moved: dict[str, tuple[str, torch.dtype, bool]] = {}  # by name: digest, type, requires_grad
        for part, name, full, tensor in list(self._tensors(module, keep)):
            self._moved[_base_name(full)] = "" if keeps_tensors else _digest(tensor), tensor.dtype, tensor.requires_grad
            if self._kept is not None:
                self._kept[_base_name(full)] = tensor
            if name in part._parameters:
                part._parameters[name] = torch.nn.Parameter(MovedTensor(tensor), requires_grad=False)
            else:
                part._buffers[name] = MovedTensor(tensor)

    @staticmethod
    def _tensors(module: torch.nn.Module, keep: tuple[str, ...] = ()) -> Iterator[tuple[torch.nn.Module, str, str, torch.Tensor]]:
        """Yields the weights that move: their module, their name in it, and their full name."""
        for prefix, part in module.named_modules():
            for name, tensor in [*part._parameters.items(), *part._buffers.items()]:
                full = f"{prefix}.{name}" if prefix else name
                if tensor is None or (keep and full.endswith(keep)):
                    continue
                if name in part._parameters:
                    if not _is_lora(full):
                        yield part, name, full, tensor
                elif name not in part._non_persistent_buffers_set and tensor.dtype in FLOATS:
                    yield part, name, full, tensor

    def _from_files(self, name: str, base: Any) -> dict[str, torch.Tensor]:
        """Returns the weights from the files, converted to the types that they had in the module."""
        remedy = "load the pipeline again, or accelerate it with keep_weights=True"
        if not self._folder or not os.path.exists(self._folder):
            raise Unsupported(f"{name}: its weights came from no file that is still there ({self._folder or 'no path'}); {remedy}")
        types = {kind for _, kind, _ in self._moved.values()}
        try:
            with warnings.catch_warnings():  # newer versions prefer the name dtype, which older ones do not have
                warnings.simplefilter("ignore", FutureWarning)
                fresh = base.from_pretrained(self._folder, torch_dtype=next(iter(types)) if len(types) == 1 else None,
                                             variant=_variant_of(self._folder))
        except (OSError, ValueError, RuntimeError) as error:
            raise Unsupported(f"{name}: {self._folder} cannot be read again: {error}; {remedy}") from None
        found = dict(fresh.named_parameters(remove_duplicate=False)) | dict(fresh.named_buffers(remove_duplicate=False))
        tensors: dict[str, torch.Tensor] = {}
        same: dict[int, torch.Tensor] = {}  # two names of one tensor stay one tensor
        for key, (digest, dtype, _) in self._moved.items():
            if key not in found:
                raise Unsupported(f"{name}: {self._folder} has no {key}; {remedy}")
            tensor = same.setdefault(id(found[key]), found[key].detach().to(dtype))
            if _digest(tensor) != digest:
                raise Unsupported(f"{name}: {key} is not the same in {self._folder} as it was in the pipeline; {remedy}")
            tensors[key] = tensor
        return tensors

    def restore(self, name: str, module: Any, base: type) -> None:
        """Gives the weights back to the module, and restores its class."""
        tensors = self._from_files(name, base) if self._kept is None else self._kept
        engine = module._redline
        same: dict[int, Any] = {}
        for part, own, full, tensor in list(self._tensors(module)):
            if not isinstance(tensor, MovedTensor):
                continue
            key = _base_name(full)
            restored = tensors[key]
            if tensor.dtype != self._moved[key][1]:  # the module was converted meanwhile
                restored = restored.to(tensor.dtype)
            if own in part._parameters:
                if id(tensors[key]) not in same:
                    is_own = isinstance(restored, torch.nn.Parameter)  # the same tensor object as before
                    same[id(tensors[key])] = restored if is_own else torch.nn.Parameter(restored, requires_grad=self._moved[key][2])
                part._parameters[own] = same[id(tensors[key])]
            else:
                part._buffers[own] = restored.detach()
        module.__class__ = base
        del module.__dict__["_redline"]
        self._fuse(module, engine)

    @staticmethod
    def _fuse(module: torch.nn.Module, engine: Any) -> None:
        """Adds fused adapters, which the engine has kept as factors, to the weights."""
        parts: dict[str, Any] = dict(module.named_modules())
        for part in parts.values():
            for method in ("merge", "unmerge"):
                part.__dict__.pop(method, None)
        with torch.no_grad():
            for (name, _), (down, up, scale) in engine.fused.items():
                layer = parts[name]
                weight = getattr(layer, "base_layer", layer).weight
                change = up.flatten(1).float() @ down.flatten(1).float()
                weight += (change.reshape(weight.shape) * scale).to(weight.dtype)


def weights_of(module: torch.nn.Module) -> tuple[dict[str, TensorView], list[torch.Tensor]]:
    """Returns the module's weights by the names of its file, and the objects that must stay alive while they are read."""
    views, alive = {}, []
    what = type(module).__name__
    for stored, tensor in module.state_dict().items():
        if _is_lora(stored) or stored.endswith("position_ids"):
            continue
        name = _base_name(stored)
        if tensor.device.type != "cpu":
            raise Unsupported(f"{what}: {name} is on the device {tensor.device}; Redline takes weights in memory: use "
                              'pipe.to("cpu"), and no offloading')
        if tensor.dtype not in FLOATS:
            raise Unsupported(f"{what}: {name} has dtype {tensor.dtype}; Redline takes float32, float16 and bfloat16, and "
                              'quantizes itself: accelerate(pipe, dtype="q8")')
        dense = tensor.detach().contiguous()
        alive.append(dense)
        views[name] = TensorView(FLOATS[dense.dtype], dense.shape, dense.data_ptr())
    return views, alive


def config_of(module: Any) -> dict[str, Any]:
    config = module.config
    values = config.to_dict() if hasattr(config, "to_dict") else dict(config)

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(k): plain(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(v) for v in value]
        if isinstance(value, float) and not math.isfinite(value):
            return None
        try:
            json.dumps(value)
        except TypeError:
            return str(value)
        return value

    result: dict[str, Any] = plain(values)
    return result
