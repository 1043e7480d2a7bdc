"""Tables of prompts with Ray Data: a stage that generates a text for each row.

    import ray, redline.ray
    table = ray.data.read_json("prompts.jsonl").map_batches(
        redline.ray.Generator, batch_size=64, concurrency=2,
        fn_constructor_kwargs={"model": "redline-tales", "threads": 4, "max_tokens": 100})
    table.write_parquet("texts")

Each actor opens the model once; the rows of a batch run as one continuous batch. Ray restarts actors that died and repeats their
batches.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redline.errors import InvalidArgument
from redline.sampling import NAMES

__all__ = ["Generator"]


class Generator:
    """A callable class for ``Dataset.map_batches``; it does not need Ray itself.

    ``model``: a path or name. ``prompt_column`` is read, ``output_column`` written; so are ``finish_reason``, ``prompt_tokens`` and
    ``completion_tokens``. Sampling options (SamplingOptions) hold for all rows, and a column with the name of one for its row.
    Other options are those of Model. A row whose prompt cannot run has an empty text and the message in ``error``.

    >>> generate = Generator("redline-tales", max_tokens=3, temperature=0)
    >>> rows = generate({"prompt": ["Once upon a time", "The little"]})
    >>> rows["text"], [int(n) for n in rows["completion_tokens"]]
    ([', there was', ' girl was very'], [3, 3])
    """

    def __init__(self, model: str, *, prompt_column: str = "prompt", output_column: str = "text", **options: Any) -> None:
        from redline.model import Model

        self.prompt_column, self.output_column = prompt_column, output_column
        self.sampling = {name: value for name, value in options.items() if name in NAMES and name != "adapters"}
        if self.sampling.get("n") not in (None, 1):
            raise InvalidArgument("n: a row has one text; repeat the row for several")
        self.model = Model(model, **{name: value for name, value in options.items() if name not in self.sampling})

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Takes columns, and returns them with those of the texts."""
        from redline.errors import Error

        if self.prompt_column not in batch:
            raise InvalidArgument(f'the rows have no column "{self.prompt_column}"; they have {", ".join(batch)}: '
                                  "set prompt_column")
        prompts = list(batch[self.prompt_column])
        own = [name for name in batch if name in NAMES and name != self.prompt_column]
        pending: list[Any] = []
        for i, prompt in enumerate(prompts):
            options = {**self.sampling, **{name: _value(batch[name][i]) for name in own}}
            try:
                pending.append(self.model.generate(prompt, stream=True, **options))  # queued: all rows run together
            except (Error, TypeError) as error:
                pending.append(error)
        columns: dict[str, list[Any]] = {self.output_column: [], "finish_reason": [], "prompt_tokens": [],
                                         "completion_tokens": [], "error": []}
        for stream in pending:
            try:
                if isinstance(stream, Exception):
                    raise stream
                c = stream.completion
                row: tuple[Any, ...] = (c.text, c.finish_reason, c.usage.prompt_tokens, c.usage.completion_tokens, "")
            except (Error, TypeError) as error:
                row = ("", "error", 0, 0, str(error))
            for column, value in zip(columns.values(), row):
                column.append(value)
        return {**batch, **columns}


def _value(value: Any) -> Any:
    """A number of a NumPy column as Python's."""
    return value.item() if hasattr(value, "item") else value
