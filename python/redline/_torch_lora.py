"""Reads the LoRA adapters of PEFT's layers in a module for the engine, and holds a module's part in the engine."""
# pyright: reportMissingImports=false
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from redline._network import AdapterPair, Network, Step
from redline._torch_weights import floats, view
from redline.errors import InvalidArgument, Unsupported


class Engine:
    """The part of an accelerated module in the engine: its network, its adapters, and its position in the loop."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.info = network.describe()
        self.context = ""
        self.pipeline: Any = lambda: None  # a weak reference
        self.scheduler: Any = None         # the pipeline's, which other pipelines of the same modules may outlive it with
        self.adapters: Any = ()            # what the network's adapters were made of
        self.fused: dict[tuple[str, str], tuple[torch.Tensor, torch.Tensor, float]] = {}
        self.last: dict[str, int] = {}
        self.origin: Any = None            # how the module gets its weights back

    def run(self, inputs: Mapping[str, torch.Tensor], outputs: Mapping[str, tuple[int, ...]],
            step: Step | None = None) -> dict[str, torch.Tensor]:
        made = {name: torch.empty(shape, dtype=torch.float32) for name, shape in outputs.items()}
        self.network.run({name: view(tensor) for name, tensor in inputs.items()},
                         {name: (tensor.data_ptr(), tensor.numel()) for name, tensor in made.items()}, step)
        return made

    def place(self, timestep: float, rounded: Any) -> Step:
        """Returns the scheduler's position in the loop. `rounded`: a timestep of the scheduler as the pipeline passes it."""
        if (pipe := self.pipeline()) is not None:
            self.scheduler = getattr(pipe, "scheduler", None)
        scheduler = self.scheduler
        timesteps = getattr(scheduler, "timesteps", None)
        if timesteps is None or len(timesteps) == 0:
            return Step(self.context)
        values = [float(v) for v in rounded(torch.as_tensor(timesteps).cpu())]
        index = getattr(scheduler, "step_index", None)
        if index is None or index >= len(values) or values[index] != timestep:
            found = [i for i, value in enumerate(values) if value == timestep]
            if not found:
                return Step(self.context, timesteps=values)
            last = self.last.get(self.context, -1)
            index = next((i for i in found if i > last), found[0])
        self.last[self.context] = -1 if index + 1 == len(values) else index
        noise, step_size = noise_levels(scheduler, index, len(values))
        return Step(self.context, index, len(values), *noise, step_size, values)


def noise_levels(scheduler: Any, index: int, steps: int) -> tuple[tuple[float, float], float]:
    """Returns the shares of noise before and after the step, and the factor of the model's output in an Euler step, else 0."""
    config, name = scheduler.config, type(scheduler).__name__
    is_flow = name.startswith("FlowMatch") or bool(config.get("use_flow_sigmas")) or \
        config.get("prediction_type") == "flow_prediction"
    sigmas = getattr(scheduler, "sigmas", None)
    if sigmas is not None and len(sigmas) == steps + 1:
        pair = float(sigmas[index]), float(sigmas[index + 1])
    else:
        def of(i: int) -> float:
            if i >= steps:
                return 0.0
            share = float(scheduler.alphas_cumprod[int(scheduler.timesteps[i])])
            return math.sqrt((1 - share) / share)

        if not hasattr(scheduler, "alphas_cumprod"):
            return (1 - index / steps, 1 - (index + 1) / steps), 0.0
        pair = of(index), of(index + 1)
    euler = name == "FlowMatchEulerDiscreteScheduler" and not config.get("stochastic_sampling") or \
        name == "EulerDiscreteScheduler" and config.get("prediction_type") == "epsilon"
    step_size = pair[1] - pair[0] if euler else 0.0
    return pair if is_flow else (pair[0] / (1 + pair[0]), pair[1] / (1 + pair[1])), step_size


def lora_layers(module: torch.nn.Module) -> list[tuple[str, Any]]:
    if not getattr(module, "peft_config", None):
        return []
    from peft.tuners.tuners_utils import BaseTunerLayer

    return [(name, part) for name, part in module.named_modules() if isinstance(part, BaseTunerLayer)]


def factors_of(name: str, layer: Any, adapter: str) -> tuple[torch.Tensor, torch.Tensor, float] | None:
    """Returns factors and scale of one adapter at a layer; None: it has none there."""
    if adapter not in getattr(layer, "lora_A", {}):
        if adapter in getattr(layer, "lora_embedding_A", {}):
            raise Unsupported(f"adapter {adapter!r}: {name} is an embedding; Redline has LoRA of linear layers and convolutions")
        if any(adapter in getattr(layer, other, {}) for other in layer.adapter_layer_names):
            raise Unsupported(f"adapter {adapter!r}: {name} is a {type(layer).__name__}; Redline has LoRA of linear layers and "
                              "convolutions")
        return None
    if adapter in getattr(layer, "lora_variant", {}) or getattr(layer, "use_dora", {}).get(adapter):
        raise Unsupported(f"adapter {adapter!r}: {name} has a variant of LoRA (DoRA, ...); Redline has plain LoRA")
    up = layer.lora_B[adapter]
    if getattr(up, "bias", None) is not None:
        raise Unsupported(f"adapter {adapter!r}: {name} has a LoRA bias, which Redline has not")
    return layer.lora_A[adapter].weight, up.weight, float(layer.scaling[adapter])


def record_fusing(module: torch.nn.Module, engine: Engine) -> list[tuple[str, Any]]:
    """fuse_lora() adds factors to weights, which are in the engine: it is recorded, and the engine keeps the factors.

    The LoRA layers by name.
    """
    layers = lora_layers(module)
    for name, layer in layers:
        if "merge" in layer.__dict__:
            continue
        if layer.merged:
            raise InvalidArgument(f"{type(module).__name__}: {name} has fused adapters; call pipe.unfuse_lora() first, and fuse them "
                                  "again after accelerate()")

        def merge(safe_merge: bool = False, adapter_names: list[str] | None = None, *, name: str = name, layer: Any = layer) -> None:
            for adapter in layer.active_adapters if adapter_names is None else adapter_names:
                pair = factors_of(name, layer, adapter)
                if pair is None or adapter in layer.merged_adapters:
                    continue
                if safe_merge and not all(bool(torch.isfinite(factor).all()) for factor in pair[:2]):
                    raise ValueError(f"adapter {adapter!r}: {name} has factors that are not finite")
                engine.fused[name, adapter] = pair[0].detach().clone(), pair[1].detach().clone(), pair[2]
                layer.merged_adapters.append(adapter)

        def unmerge(*, name: str = name, layer: Any = layer) -> None:
            while layer.merged_adapters:
                engine.fused.pop((name, layer.merged_adapters.pop()), None)

        layer.merge, layer.unmerge = merge, unmerge
    return layers


def sync_adapters(module: Any, engine: Engine) -> None:
    """Gives the network the adapters that PEFT would apply now, where they have changed."""
    wanted: list[tuple[str, str, torch.Tensor, torch.Tensor, float]] = []
    for name, layer in record_fusing(module, engine):
        if layer.disable_adapters:
            layer.unmerge()
        elif not layer.merged:
            for adapter in layer.active_adapters:
                if (pair := factors_of(name, layer, adapter)) is not None and pair[2] != 0:
                    wanted.append((f"{adapter}", name, *pair))
    wanted += [(f"fused {adapter}", name, *pair) for (name, adapter), pair in engine.fused.items()]
    # Sums show changes in place, which tensors do not count where they are made through .data (hotswap). The tensors are kept, so
    # that no other takes their identity.
    state = [(adapter, name, down, float(down.sum()), up, float(up.sum()), scale) for adapter, name, down, up, scale in wanted]
    if len(state) == len(engine.adapters) and all(
            all(a is b or (not isinstance(a, torch.Tensor) and a == b) for a, b in zip(new, old, strict=True))
            for new, old in zip(state, engine.adapters, strict=True)):
        return
    alive = [(floats(down), floats(up)) for _, _, down, up, _ in wanted]
    engine.network.set_adapters([AdapterPair(adapter, name, view(down), view(up), scale)
                                 for (adapter, name, _, _, scale), (down, up) in zip(wanted, alive, strict=True)])
    engine.adapters = state
