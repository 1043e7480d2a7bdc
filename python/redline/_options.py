"""Reads the options with which models and pipelines are opened, from the tables (include/redline/text_engine_options.inc)."""
from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from redline._convert import assign, path_text, real, utf8

if TYPE_CHECKING:
    from redline.runtime import Runtime

C = TypeVar("C", bound=type)


def option_names(struct: Any) -> list[str]:
    """The keywords that the table of a struct of the extension module has."""
    return [row[0] for row in struct.rows()]


def option_lines(struct: Any) -> str:
    """The keywords of a struct as a list in reStructuredText, one per row of its table."""
    lines = []
    for name, kind, default, meaning, details, unset in struct.rows():
        text = f"``{name}`` ({kind}"
        if default is not None:
            text += f", default {default}" + (f": {unset}" if unset else "")
        elif unset:
            text += f"; default: {unset}"
        text += f"): {meaning}." + (f" {details}" if details else "")
        lines.append(textwrap.fill(text, 124, initial_indent="* ", subsequent_indent="  ", break_long_words=False))
    return "\n".join(lines)


def with_options(struct: Any) -> Callable[[C], C]:
    """Puts the keywords of a struct in place of {options} in the docstring of a class."""

    def add(cls: C) -> C:
        if cls.__doc__ is not None:  # python -OO has none
            lines = option_lines(struct).replace("\n", "\n    ")
            cls.__doc__ = cls.__doc__.replace("{options}", lines)
        return cls

    return add


def assign_options(struct: Any, function: str, options: Mapping[str, Any], *, runtime: Runtime | None, adapters: Any = None) -> None:
    """Fills in a struct of options; None keeps the default. TypeError: an unknown name."""
    kinds = {row[0]: row[1] for row in struct.rows()}
    for name, value in options.items():
        if name not in kinds:
            unknown_option(function, name, (*kinds, *(("adapters",) if hasattr(struct, "adapters") else ()), "runtime"))
        if value is not None:
            assign(struct, name, path_text(name, value) if "PathLike" in kinds[name] else value)
    if runtime is not None:
        from redline.runtime import runtime_handle

        struct.runtime = runtime_handle(runtime)
    if adapters is not None:
        struct.adapters = adapter_list(adapters)


def unknown_option(function: str, name: str, known: Sequence[str]) -> None:
    """Raises Python's own error for an unknown argument, with the name that other libraries' users look for."""
    import difflib

    elsewhere = {"n_ctx": "context", "max_model_len": "context", "num_threads": "threads", "n_threads": "threads",
                 "lora": "adapters", "kv_cache_memory_bytes": "cache_memory", "enable_prefix_caching": "prefix_cache",
                 "max_num_seqs": "max_sequences", "max_num_batched_tokens": "max_batch_tokens", "torch_dtype": "dtype",
                 "draft_max": "num_speculative_tokens"}
    near = elsewhere.get(name) or next(iter(difflib.get_close_matches(name, known, 1)), None)
    hint = f"; use {near}" if near else ""
    raise TypeError(f"{function}() got an unexpected keyword argument '{name}'{hint}")


def adapter_list(adapters: Any) -> list[tuple[bytes | None, bytes, float]]:
    """Returns the LoRA files to open a model with, given as a path, a list of paths, or a dict of name: path or (path, weight)."""
    if isinstance(adapters, (str, os.PathLike)):
        adapters = [adapters]
    items = adapters.items() if isinstance(adapters, Mapping) else ((None, path) for path in adapters)
    found = []
    for name, value in items:
        path, weight = value if isinstance(value, tuple) else (value, 1.0)
        found.append((None if name is None else utf8("the name of an adapter", name),
                      utf8("adapters", path_text("adapters", path)), real("adapters", weight)))
    return found
