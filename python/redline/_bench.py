"""Measures the speed of a model."""
from __future__ import annotations

import dataclasses
import os
import statistics
import time
from typing import TYPE_CHECKING, Any

from redline._convert import integer
from redline._tables import html_table, text_table
from redline.errors import InvalidArgument

if TYPE_CHECKING:
    from redline.model import Model

__all__ = ["BenchResult", "bench"]


@dataclasses.dataclass(frozen=True)
class BenchResult:
    """Tokens per second of a prompt and of decoding: medians, and all runs."""

    model: str
    prefill_tokens: int
    decode_tokens: int
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    prefill_runs: list[float]
    decode_runs: list[float]

    def _rows(self) -> list[dict[str, Any]]:
        rows = [("prefill", self.prefill_tokens, self.prefill_tokens_per_s, self.prefill_runs),
                ("decode", self.decode_tokens, self.decode_tokens_per_s, self.decode_runs)]
        return [{"phase": name, "tokens": tokens, "tokens/s": median, "best": max(runs), "worst": min(runs)}
                for name, tokens, median, runs in rows if tokens]

    def __str__(self) -> str:
        return text_table(self._rows())

    def _repr_html_(self) -> str:
        return html_table(self._rows())


def bench(model: Model | str | os.PathLike[str], *, prefill: int = 512, decode: int = 128, runs: int = 3,
          **options: Any) -> BenchResult:
    """Measures a prompt of ``prefill`` tokens and ``decode`` steps of one token after it, ``runs`` times each.

    ``model``: an open model, or a path, with the options of Model. ``redline bench`` on the command line also gives the share of the
    machine's limits. InvalidArgument: more tokens than the context holds.

    >>> import redline
    >>> result = redline.bench("redline-tales", prefill=16, decode=4, runs=1)
    >>> result.decode_tokens_per_s > 0
    True
    """
    from redline.model import Model

    if not isinstance(model, Model):
        with Model(model, **options) as opened:
            return bench(opened, prefill=prefill, decode=decode, runs=runs)
    if options:
        raise TypeError(f"bench() takes no options ({', '.join(options)}) with a model that is open")
    prefill, decode, runs = integer("prefill", prefill), integer("decode", decode), integer("runs", runs)
    if prefill < 1 or decode < 0 or runs < 1:
        raise InvalidArgument("prefill and runs must be at least 1, decode at least 0")
    if prefill + decode > model.context:
        raise InvalidArgument(f"prefill + decode is {prefill + decode}, more than the context of {model.context} tokens")
    ids = [1 + i % (model.vocab_size - 1) for i in range(prefill)]
    prefill_runs, decode_runs = [], []
    for run in range(runs + 1):  # the first run touches memory and is not counted
        sequence = model.new_sequence()
        begin = time.perf_counter()
        sequence.append(ids)
        middle = time.perf_counter()
        for i in range(decode):
            sequence.append([1 + i % (model.vocab_size - 1)])
        end = time.perf_counter()
        if run:
            prefill_runs.append(prefill / (middle - begin))
            decode_runs.append(decode / (end - middle) if decode else 0.0)
    return BenchResult(model.name, prefill, decode, statistics.median(prefill_runs), statistics.median(decode_runs),
                       prefill_runs, decode_runs)
