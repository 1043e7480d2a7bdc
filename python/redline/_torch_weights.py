"""Weights of PyTorch modules that move into the engine."""
# pyright: reportMissingImports=false
from __future__ import annotations

import json
import math
from collections.abc import Mapping
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
            cls, like.shape, dtype=dtype or like.dtype, device="cpu", requires_grad=False)
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
                          "load the pipeline again for what PyTorch computes with them")


def give_back(module: torch.nn.Module, keep: tuple[str, ...]) -> None:
    """Drops the memory of all weights but those whose names end with one of `keep`."""
    for prefix, part in module.named_modules():
        for name, parameter in list(part._parameters.items()):
            full = f"{prefix}.{name}" if prefix else name
            if parameter is not None and not full.endswith(keep) and not any(mark in f".{full}." for mark in _LORA):
                part._parameters[name] = torch.nn.Parameter(MovedTensor(parameter), requires_grad=False)
        for name, buffer in list(part._buffers.items()):
            if buffer is not None and name not in part._non_persistent_buffers_set and buffer.dtype in FLOATS:
                part._buffers[name] = MovedTensor(buffer)


def weights_of(module: torch.nn.Module) -> tuple[dict[str, TensorView], list[torch.Tensor]]:
    """The module's weights by the names of its file, and what must stay alive while they are read."""
    views, alive = {}, []
    what = type(module).__name__
    for stored, tensor in module.state_dict().items():
        if any(mark in f".{stored}." for mark in _LORA) or stored.endswith("position_ids"):
            continue
        name = stored.replace(".base_layer.", ".")
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
