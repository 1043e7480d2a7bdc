"""Converts cache-dit's settings to a rule of the engine's step cache."""
from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from redline._convert import integer, real
from redline.errors import InvalidArgument, Unsupported

__all__ = ["DBCacheConfig", "FoCaCalibratorConfig", "TaylorSeerCalibratorConfig"]


@dataclasses.dataclass
class DBCacheConfig:
    """cache-dit's class of this name. Blocks and steps are counts, -1 is no limit, thresholds are relative L1 differences.

    ``enable_separate_cfg`` and ``num_inference_steps`` are not needed: the engine follows the pipeline's branches and scheduler.
    """

    Fn_compute_blocks: int = 8
    Bn_compute_blocks: int = 0
    residual_diff_threshold: float = 0.08
    max_accumulated_residual_diff_threshold: float | None = None
    max_warmup_steps: int = 8
    warmup_interval: int = 1
    max_cached_steps: int = -1
    max_continuous_cached_steps: int = -1
    enable_separate_cfg: bool | None = None
    cfg_compute_first: bool | None = False
    cfg_diff_compute_separate: bool | None = True
    num_inference_steps: int | None = None
    steps_computation_mask: Sequence[int] | None = None
    steps_computation_policy: str = "dynamic"
    force_refresh_step_hint: int | None = None
    force_refresh_step_policy: str = "once"


@dataclasses.dataclass
class TaylorSeerCalibratorConfig:
    """cache-dit's class of this name: forecasts by a Taylor series of this order (1 to 3)."""

    taylorseer_order: int = 1


@dataclasses.dataclass
class FoCaCalibratorConfig:
    """cache-dit's class of this name: forecasts by FoCa."""


_NAMES = {field.name: field.default for field in dataclasses.fields(DBCacheConfig)}
# Fields of other versions and configs that have no effect here.
_WITHOUT_EFFECT = ("cache_type", "enable_calibrator", "enable_encoder_calibrator", "calibrator_type", "calibrator_cache_type",
                   "calibrator_kwargs", "taylorseer_order", "enable_taylorseer", "enable_encoder_taylorseer", "taylorseer_cache_type")


def _values(config: Any) -> dict[str, Any]:
    if config is None:
        return {}
    if isinstance(config, Mapping):
        return dict(config)
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    raise InvalidArgument(f"{type(config).__name__} is not a DBCacheConfig, calibrator config or dict")


def _forecaster(config: Any, settings: Mapping[str, Any]) -> str | None:
    """Returns the engine's forecaster for a calibrator; None: the last computed value is reused."""
    kind = "" if config is None else type(config).__name__
    values = _values(config)
    if kind.startswith("FoCa") or values.get("calibrator_type") == "foca":
        return "foca"
    if kind and not kind.startswith("TaylorSeer") and values.get("calibrator_type", "taylorseer") != "taylorseer":
        raise Unsupported(f"calibrator_config: {kind} ({values.get('calibrator_type')}); Redline has TaylorSeer and FoCa")
    if config is None and not settings.get("enable_taylorseer"):
        return None
    order = integer("taylorseer_order", values.get("taylorseer_order", settings.get("taylorseer_order", 1)))
    if not 0 <= order <= 3:
        raise Unsupported(f"taylorseer_order is {order}; Redline has the orders 0 to 3")
    return f"taylor{order}" if order else "reuse"


def dbcache_rule(cache_config: Any, calibrator_config: Any, settings: Mapping[str, Any]) -> tuple[str, int, int]:
    """Returns the rule, and the numbers of blocks before and after those that it skips.

    >>> dbcache_rule(DBCacheConfig(Fn_compute_blocks=1, max_warmup_steps=4), TaylorSeerCalibratorConfig(), {})
    ('dbcache:fn=1,bn=0,threshold=0.08,warmup=4,forecast=taylor1', 1, 0)
    """
    given = {**_values(cache_config), **settings}
    for name in given:
        if name not in _NAMES and name not in _WITHOUT_EFFECT:
            near = difflib.get_close_matches(name, _NAMES, 1)
            raise TypeError(f"enable_cache() got an unexpected setting '{name}'{f'; use {near[0]}' if near else ''}")
    values = {**_NAMES, **{name: value for name, value in given.items() if name in _NAMES and value is not None}}
    if values["force_refresh_step_hint"] is not None:
        raise Unsupported("force_refresh_step_hint: Redline's step cache is reset only by a new image; leave it out")
    front, tail = integer("Fn_compute_blocks", values["Fn_compute_blocks"]), integer("Bn_compute_blocks", values["Bn_compute_blocks"])
    forecast = _forecaster(calibrator_config, settings)
    suffix = f",forecast={forecast}" if forecast else ""
    if values["steps_computation_mask"] is not None:
        if values["steps_computation_policy"] != "static":
            raise Unsupported('steps_computation_mask with steps_computation_policy="dynamic"; Redline has "static", or a threshold '
                              "without a mask")
        computed = [step for step, value in enumerate(values["steps_computation_mask"]) if value]
        if tail:
            raise Unsupported("Bn_compute_blocks with steps_computation_mask; Redline's masks skip all blocks after the first")
        return f"mask:steps={'+'.join(map(str, computed))},blocks={front}{suffix}", front, tail
    parts = [f"fn={front}", f"bn={tail}", f"threshold={real('residual_diff_threshold', values['residual_diff_threshold']):g}",
             f"warmup={integer('max_warmup_steps', values['max_warmup_steps'])}"]
    for name, field in (("warmup_interval", "warmup_interval"), ("max_cached", "max_cached_steps"),
                        ("max_consecutive", "max_continuous_cached_steps")):
        if values[field] != _NAMES[field]:
            parts.append(f"{name}={integer(field, values[field])}")
    cap = values["max_accumulated_residual_diff_threshold"]
    if cap is not None:
        parts.append(f"max_accumulated={real('max_accumulated_residual_diff_threshold', cap):g}")
    if not values["cfg_diff_compute_separate"]:
        parts.append("share_decision=1")
    return "dbcache:" + ",".join(parts) + suffix, front, tail
