"""One network of an image pipeline, from tensors in memory (redline_network of the C interface)."""
from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from redline import _c_api
from redline._convert import integer, real, utf8
from redline._native import Closable, Handle, call, library, text_of

if TYPE_CHECKING:
    from redline.runtime import Runtime

OPTIONS = ("max_batch", "max_latent_side", "max_text_tokens", "front_blocks", "tail_blocks", "max_adapter_rank", "vae_tile")


class TensorView(NamedTuple):
    """A dense tensor in C order; whoever makes it keeps the memory."""

    dtype: str  # "F32", "F16", "BF16", "I32"
    shape: Sequence[int]
    address: int


class AdapterPair(NamedTuple):
    """Factors of one layer: down [rank, in], up [out, rank]; scale: weight * alpha / rank."""

    adapter: str
    module: str
    down: TensorView
    up: TensorView
    scale: float


class Step(NamedTuple):
    """The place of a denoiser's run in its loop (redline_network_step)."""

    context: str = ""
    step: int = 0
    steps: int = 0
    sigma: float = 0.0
    next_sigma: float = 0.0
    step_size: float = 0.0
    timesteps: Sequence[float] = ()


def _tensor(name: bytes, view: TensorView, keep: list[Any]) -> _c_api.redline_tensor:
    shape = (ctypes.c_int64 * len(view.shape))(*view.shape)
    keep.append(shape)
    return _c_api.redline_tensor(name, view.dtype.encode(), shape, len(view.shape), view.address)


def _tensors(views: Mapping[str, TensorView], keep: list[Any]) -> Any:
    return (_c_api.redline_tensor * len(views))(*(_tensor(utf8("name", name), view, keep) for name, view in views.items()))


class Network(Closable):
    """A denoiser, text encoder or autoencoder. Its tensors are not read after it is made.

    Unsupported: a class that the engine does not have, or a setting of its config. InvalidArgument: tensors that do not fit.
    """

    _name = "network"

    def __init__(self, class_name: str, config: Mapping[str, Any], tensors: Mapping[str, TensorView], *,
                 runtime: Runtime | None = None, dtype: str = "auto", **options: int) -> None:
        lib = library()
        struct = _c_api.redline_network_options()
        lib.redline_network_options_init(ctypes.byref(struct), ctypes.sizeof(struct))
        for name in OPTIONS:
            if name in options:
                setattr(struct, name, integer(name, options[name]))
        struct.dtype = utf8("dtype", dtype)
        if runtime is not None:
            from redline.runtime import runtime_value

            struct.runtime = runtime_value(runtime)
        keep: list[Any] = []
        pointer = ctypes.c_void_p()
        call(lib.redline_network_open, utf8("class_name", class_name), utf8("config", json.dumps(config)), _tensors(tensors, keep),
             len(tensors), ctypes.byref(struct), ctypes.byref(pointer))
        self._handle = Handle(pointer.value, lib.redline_network_release)

    def _again(self) -> str:
        return "redline.diffusers.accelerate(pipe)"

    def describe(self) -> dict[str, Any]:
        """kind, family, inputs, outputs, memory (bytes), cache, computed, executed_share, warnings, ..."""
        return dict(json.loads(text_of(library().redline_network_describe, self._use().value)))

    def run(self, inputs: Mapping[str, TensorView], outputs: Mapping[str, tuple[int, int]], step: Step | None = None) -> None:
        """`outputs`: address and number of float32 elements by name."""
        keep: list[Any] = []
        wanted = (_c_api.redline_network_output * len(outputs))(
            *(_c_api.redline_network_output(name.encode(), ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), count)
              for name, (address, count) in outputs.items()))
        place = None
        if step is not None:
            place = _c_api.redline_network_step()
            library().redline_network_step_init(ctypes.byref(place), ctypes.sizeof(place))
            place.context = utf8("context", step.context)
            place.step, place.steps, place.step_size = step.step, step.steps, step.step_size
            place.sigma, place.next_sigma = step.sigma, step.next_sigma
            place.timesteps = (ctypes.c_double * len(step.timesteps))(*step.timesteps)
            place.num_timesteps = len(step.timesteps)
        call(library().redline_network_run, self._use().value, _tensors(inputs, keep), len(inputs), wanted, len(outputs),
             ctypes.byref(place) if place is not None else None)

    def set_adapters(self, pairs: Sequence[AdapterPair]) -> None:
        """Replaces the active LoRA adapters; the factors are copied."""
        keep: list[Any] = []
        array = (_c_api.redline_adapter_pair * len(pairs))(*(
            _c_api.redline_adapter_pair(utf8("adapter", p.adapter), utf8("module", p.module), _tensor(b"down", p.down, keep),
                                        _tensor(b"up", p.up, keep), real("scale", p.scale)) for p in pairs))
        call(library().redline_network_set_adapters, self._use().value, array, len(pairs))

    def set_cache(self, rule: str | None, quality: float | None = None, steps_budget: int | None = None) -> None:
        """The rule of a denoiser's step cache; None or "none": every step is computed."""
        call(library().redline_network_set_cache, self._use().value, None if rule is None else utf8("cache", rule),
             -1.0 if quality is None else real("quality", quality),
             0 if steps_budget is None else integer("steps_budget", steps_budget))
