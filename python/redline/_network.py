"""One network of an image pipeline, from tensors in memory (redline_network of the C interface)."""
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from redline import _redline
from redline._convert import integer, real, utf8
from redline._native import Closable
from redline._options import option_names

if TYPE_CHECKING:
    from redline.runtime import Runtime

# The limits of the table, all but what every model has (include/redline/network_options.inc).
OPTIONS = tuple(name for name in option_names(_redline.NetworkOptions) if name not in ("threads", "device", "dtype"))


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
    """The position of a denoiser's run in its loop (redline_network_step)."""

    context: str = ""
    step: int = 0
    steps: int = 0
    sigma: float = 0.0
    next_sigma: float = 0.0
    step_size: float = 0.0
    timesteps: Sequence[float] = ()


def _tensor(name: bytes, view: TensorView) -> tuple[bytes, bytes, Sequence[int], int]:
    return name, view.dtype.encode(), view.shape, view.address


def _tensors(views: Mapping[str, TensorView]) -> list[tuple[bytes, bytes, Sequence[int], int]]:
    return [_tensor(utf8("name", name), view) for name, view in views.items()]


class Network(Closable["_redline.Network"]):
    """A denoiser, text encoder or autoencoder. Its tensors are not read after it is made.

    Unsupported: a class that the engine does not have, or a setting of its config. InvalidArgument: tensors that do not fit.
    """

    _name = "network"

    def __init__(self, class_name: str, config: Mapping[str, Any], tensors: Mapping[str, TensorView], *,
                 runtime: Runtime | None = None, dtype: str = "auto", **options: int) -> None:
        struct = _redline.NetworkOptions()
        for name in OPTIONS:
            if name in options:
                setattr(struct, name, integer(name, options[name]))
        struct.dtype = utf8("dtype", dtype)
        if runtime is not None:
            from redline.runtime import runtime_handle

            struct.runtime = runtime_handle(runtime)
        self._open(_redline.open_network(utf8("class_name", class_name), utf8("config", json.dumps(config)), _tensors(tensors),
                                         struct))

    def _again(self) -> str:
        return "redline.diffusers.accelerate(pipe)"

    def describe(self) -> dict[str, Any]:
        """Returns kind, family, inputs, outputs, memory (bytes), cache, computed, executed_share, warnings, ..."""
        return dict(json.loads(self._use().describe()))

    def run(self, inputs: Mapping[str, TensorView], outputs: Mapping[str, tuple[int, int]], step: Step | None = None) -> None:
        """Runs the network. `outputs`: address and number of float32 elements by name."""
        place = None
        if step is not None:
            place = _redline.NetworkStep()
            place.context = utf8("context", step.context)
            place.step, place.steps, place.step_size = step.step, step.steps, step.step_size
            place.sigma, place.next_sigma = step.sigma, step.next_sigma
            place.timesteps = list(step.timesteps)
        self._use().run(_tensors(inputs), [(name.encode(), *memory) for name, memory in outputs.items()], place)

    def set_adapters(self, pairs: Sequence[AdapterPair]) -> None:
        """Replaces the active LoRA adapters; the factors are copied."""
        self._use().set_adapters([(utf8("adapter", p.adapter), utf8("module", p.module), _tensor(b"down", p.down),
                                   _tensor(b"up", p.up), real("scale", p.scale)) for p in pairs])

    def set_cache(self, rule: str | None, quality: float | None = None, steps_budget: int | None = None) -> None:
        """Sets the rule of a denoiser's step cache; None or "none": every step is computed."""
        self._use().set_cache(None if rule is None else utf8("cache", rule), -1.0 if quality is None else real("quality", quality),
                              0 if steps_budget is None else integer("steps_budget", steps_budget))
