"""Tables of prompts with Ray: a stage of Ray Data, a deployment of Ray Serve, and generate_table(), which spreads rows of unequal
length over actors::

    import ray, redline.ray
    table = ray.data.read_json("prompts.jsonl").map_batches(
        redline.ray.Generator, batch_size=64, concurrency=2, num_cpus=4,
        fn_constructor_kwargs={"model": "redline-tales", "max_tokens": 100})
    table.write_parquet("texts")

    redline.ray.generate_table("prompts.jsonl", "texts", "redline-tales", actors=2, max_tokens=100)

Each actor opens the model once; the rows that it has run as one continuous batch. docs/python.md compares the two.
"""
# pyright: reportMissingImports=false
from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import os
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from redline._convert import integer, kind_of
from redline._progress import ProgressBar
from redline._row_schedule import Row, RowSchedule
from redline.errors import Error, FileError, InternalError, InvalidArgument
from redline.sampling import NAMES, check_names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["ActorProgress", "Generator", "TableProgress", "TableResult", "deployment", "generate_table"]

_OUTPUT = ("finish_reason", "prompt_tokens", "completion_tokens", "error")
_RUN_FILE = "_run.json"


def _ray() -> Any:
    """Imports Ray. ``import ray`` is not used, because type checkers would find this file."""
    return importlib.import_module("ray")


def _split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits options into those of sampling and those of Model."""
    sampling = {name: value for name, value in options.items() if name in NAMES and name != "adapters"}
    if sampling.get("n") not in (None, 1):
        raise InvalidArgument("n: a row has one text; repeat the row for several")
    return sampling, {name: value for name, value in options.items() if name not in sampling}


def _assigned_cpus() -> int:
    """Returns the number of CPUs that Ray has given to this actor; 0: this is not an actor, or it has none."""
    import sys

    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return 0
    return int(ray.get_runtime_context().get_assigned_resources().get("CPU", 0))


class Generator:
    """A callable class for ``Dataset.map_batches``; it does not need Ray itself.

    ``model``: a path or name. ``prompt_column`` is read, ``output_column`` written; so are ``finish_reason``, ``prompt_tokens`` and
    ``completion_tokens``. Sampling options (SamplingOptions) hold for all rows, and a column with the name of one for its row.
    Other options are those of Model; ``threads`` are by default the CPUs of the actor. A row whose prompt cannot run has an empty
    text and the message in ``error``.

    >>> generate = Generator("redline-tales", max_tokens=3, temperature=0)
    >>> rows = generate({"prompt": ["Once upon a time", "The little"]})
    >>> rows["text"], [int(n) for n in rows["completion_tokens"]]
    ([', there was', ' girl was very'], [3, 3])
    """

    def __init__(self, model: str, *, prompt_column: str = "prompt", output_column: str = "text", **options: Any) -> None:
        from redline.model import Model

        self.prompt_column, self.output_column = prompt_column, output_column
        self.sampling, of_model = _split_options(options)
        self.model = Model(model, **{"threads": _assigned_cpus(), **of_model})

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the columns with those of the generated texts added."""
        if self.prompt_column not in batch:
            raise InvalidArgument(f'the rows have no column "{self.prompt_column}"; they have {", ".join(batch)}: '
                                  "set prompt_column")
        prompts = list(batch[self.prompt_column])
        own = [name for name in batch if name in NAMES and name != self.prompt_column]
        pending: list[Any] = []
        for i, prompt in enumerate(prompts):
            options = {**self.sampling, **{name: _value(batch[name][i]) for name in own}}
            try:
                pending.append(self.model.generate(_value(prompt), stream=True, **options))  # queued: all rows run together
            except (Error, TypeError) as error:
                pending.append(error)
        columns: dict[str, list[Any]] = {name: [] for name in (self.output_column, *_OUTPUT)}
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
    """Converts a number or text of a NumPy column to a Python object."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value


# ---- Ray Serve ----


def deployment(model: str, *, name: str = "redline", num_replicas: int = 1, num_cpus: float = 1, max_ongoing_requests: int = 64,
               **options: Any) -> Any:
    """An application for ``ray.serve.run``: requests that a replica has at the same time share the steps of a batch.

    POST a JSON object with ``prompt`` (text, token ids, messages) and sampling options: the answer has ``text``, ``finish_reason``
    and ``usage``. With ``"stream": true`` it is one JSON object per chunk and line. In Python,
    ``handle.generate.remote(prompt, **sampling)`` and ``handle.options(stream=True).stream.remote(prompt, **sampling)``.
    ``options``: defaults of the sampling, and options of Model; ``threads`` are by default ``num_cpus``.
    """
    serve = importlib.import_module("ray.serve")
    sampling, of_model = _split_options(options)
    made = serve.deployment(name=name, num_replicas=num_replicas, ray_actor_options={"num_cpus": num_cpus},
                            max_ongoing_requests=max_ongoing_requests)(_Replica)
    return made.bind(model, sampling, of_model)


class _Replica:
    def __init__(self, model: str, sampling: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        from redline.model import Model

        self._sampling = dict(sampling)
        self._model = Model(model, **{"threads": _assigned_cpus(), **options})

    async def generate(self, prompt: Any, **sampling: Any) -> dict[str, Any]:
        found = await self._model.agenerate(prompt, **{**self._sampling, **sampling})
        return {"text": found.text, "finish_reason": found.finish_reason, "usage": dataclasses.asdict(found.usage)}

    async def stream(self, prompt: Any, **sampling: Any) -> AsyncIterator[str]:
        async with self._model.agenerate(prompt, stream=True, **{**self._sampling, **sampling}) as stream:
            async for chunk in stream:
                yield chunk.text

    async def __call__(self, request: Any) -> Any:
        from starlette.responses import JSONResponse, StreamingResponse

        def refuse(message: str) -> Any:
            return JSONResponse({"error": message}, status_code=400)

        try:
            body = await request.json()
        except ValueError as error:
            return refuse(f"the body is not JSON: {error}")
        if not isinstance(body, dict) or "prompt" not in body:
            return refuse('the body must be a JSON object with "prompt"')
        prompt, wants_stream = body.pop("prompt"), bool(body.pop("stream", False))
        try:
            check_names(list(body), "generate")
            if not wants_stream:
                return JSONResponse(await self.generate(prompt, **body))
        except (Error, TypeError) as error:
            return refuse(str(error))

        async def lines() -> AsyncIterator[str]:
            try:
                async for text in self.stream(prompt, **body):
                    yield json.dumps({"text": text}) + "\n"
            except (Error, TypeError) as error:
                yield json.dumps({"error": str(error)}) + "\n"

        return StreamingResponse(lines(), media_type="application/jsonl")


# ---- Tables ----


@dataclasses.dataclass(frozen=True)
class ActorProgress:
    """An actor of a table: its process, its cores, rows that it has, rows that wait for it, and tokens that it has generated."""

    pid: int
    node: str
    cores: tuple[int, ...]
    running: int
    queued: int
    rows: int
    tokens: int
    busy_s: float


@dataclasses.dataclass(frozen=True)
class TableProgress:
    """Passed to ``on_progress`` after every row. ``resumed`` rows were in the output before; ``moved`` rows have changed the
    actor before they began, ``retried`` ones after theirs had died."""

    done: int
    total: int
    resumed: int
    moved: int
    retried: int
    actors: tuple[ActorProgress, ...]


@dataclasses.dataclass(frozen=True)
class TableResult:
    """The result of generate_table(). ``read()`` returns the whole output."""

    path: pathlib.Path
    rows: int
    resumed: int
    moved: int
    retried: int
    failed: int
    seconds: float
    actors: tuple[ActorProgress, ...]

    def read(self) -> Any:
        """The output as a pyarrow.Table in the order of the input."""
        return _read_parts(self.path).sort_by("row")

    def _repr_html_(self) -> str:
        from redline._tables import html_table

        return html_table([{"pid": a.pid, "cores": a.cores, "rows": a.rows, "tokens": a.tokens, "busy s": a.busy_s}
                           for a in self.actors])


class _Worker:
    """The actor of a table. Its methods are those of an asyncio actor: rows that it has at the same time are one batch."""

    def __init__(self) -> None:
        self._model: Any = None

    async def place(self) -> tuple[str, int, list[int]]:
        """Returns node, process id, and the cores that the process may use."""
        ray = _ray()
        return ray.get_runtime_context().get_node_id(), os.getpid(), sorted(os.sched_getaffinity(0))

    async def open(self, model: str, cores: list[int], options: Mapping[str, Any]) -> bool:
        from redline.model import Model

        os.sched_setaffinity(0, cores)  # of this thread; those of the engine inherit it
        self._model = Model(model, **{"threads": len(cores), **options})
        return True

    async def generate(self, prompt: Any, sampling: Mapping[str, Any]) -> dict[str, Any]:
        try:
            c = await self._model.agenerate(prompt, **sampling)
        except (Error, TypeError) as error:
            return {"error": str(error)}
        return {"text": c.text, "finish_reason": c.finish_reason, "prompt_tokens": c.usage.prompt_tokens,
                "completion_tokens": c.usage.completion_tokens, "prefill_ms": c.timings.prefill_ms,
                "decode_ms": c.timings.decode_ms, "error": ""}


@dataclasses.dataclass
class _Hired:
    """The driver's record of an actor."""

    handle: Any
    cores: tuple[int, ...]
    node: str
    pid: int
    refs: dict[Any, Row] = dataclasses.field(default_factory=dict)
    rows: int = 0
    tokens: int = 0
    busy_s: float = 0.0
    busy_since: float | None = None


def _read_table(rows: Any) -> Any:
    import pyarrow as pa

    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, (str, os.PathLike)):
        path = pathlib.Path(rows)
        if not path.exists():
            raise FileError(f"{path}: no such file")
        if path.suffix in (".jsonl", ".json"):
            import pyarrow.json

            try:
                return pyarrow.json.read_json(path)
            except pa.ArrowInvalid as error:
                raise InvalidArgument(f"{path}: {error}") from None
        import pyarrow.dataset

        try:
            return pyarrow.dataset.dataset(path).to_table()
        except pa.ArrowInvalid as error:
            raise InvalidArgument(f"{path} is neither JSON Lines (.jsonl) nor Parquet: {error}") from None
    if hasattr(rows, "to_arrow_refs"):  # ray.data.Dataset
        ray = _ray()
        return pa.concat_tables(ray.get(rows.to_arrow_refs()), promote_options="default")
    if isinstance(rows, (list, tuple)) and all(isinstance(row, Mapping) for row in rows):
        return pa.Table.from_pylist([dict(row) for row in rows])
    raise InvalidArgument(f"rows must be a path, a list of dicts, a pyarrow.Table or a Ray Dataset, not {kind_of(rows)}")


def _read_parts(folder: pathlib.Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet

    parts = [pyarrow.parquet.read_table(path) for path in sorted(folder.glob("part-*.parquet"))]
    return pa.concat_tables(parts, promote_options="default")


class _Output:
    """Parquet parts in a folder. Only complete parts have a part's name, and only the driver writes them: a row is there once."""

    def __init__(self, folder: pathlib.Path, table: Any, text_column: str, rows_per_part: int, settings: dict[str, Any]) -> None:
        import pyarrow.parquet

        self._folder, self._table, self._text, self._size = folder, table, text_column, rows_per_part
        taken = [name for name in ("row", text_column, *_OUTPUT) if name in table.column_names]
        if taken:
            raise InvalidArgument(f"the rows have columns that the output adds: {', '.join(taken)}; rename them, or set output_column")
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / _RUN_FILE
        if kept.exists():
            before = json.loads(kept.read_text())
            changed = [name for name in settings if before.get(name) != settings[name]]
            if changed:
                raise InvalidArgument(f"{folder} has the output of a run with other settings ({', '.join(changed)}): give the same to "
                                      "resume it, or another folder")
        elif next(folder.glob("part-*.parquet"), None) is not None:
            raise InvalidArgument(f"{folder} has Parquet files of something else; give another folder")
        else:
            self._replace(kept, lambda path: path.write_text(json.dumps(settings, indent=1)))
        parts = sorted(folder.glob("part-*.parquet"))
        self.done = {i for path in parts for i in pyarrow.parquet.read_table(path, columns=["row"])["row"].to_pylist()}
        self._next = 1 + max((int(path.stem.split("-")[1]) for path in parts), default=-1)
        self._waiting: list[tuple[int, dict[str, Any]]] = []

    @staticmethod
    def _replace(path: pathlib.Path, write: Callable[[pathlib.Path], object]) -> None:
        """Writes a file under another name first, so that it appears whole or not at all."""
        temporary = path.with_name(f".{path.name}.tmp")
        write(temporary)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)

    def add(self, index: int, result: dict[str, Any]) -> None:
        if index in self.done:
            return
        self.done.add(index)
        self._waiting.append((index, result))
        if len(self._waiting) >= self._size:
            self.flush()

    def flush(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet

        if not self._waiting:
            return
        rows, results = zip(*self._waiting)
        part = self._table.take(pa.array(rows, pa.int64())).append_column("row", pa.array(rows, pa.int64()))
        for name, column, kind in ((self._text, "text", pa.string()), *((n, n, pa.string()) for n in ("finish_reason", "error")),
                                   *((n, n, pa.int64()) for n in ("prompt_tokens", "completion_tokens"))):
            part = part.append_column(name, pa.array([result[column] for result in results], kind))
        path = self._folder / f"part-{self._next:05}.parquet"
        self._replace(path, lambda temporary: pyarrow.parquet.write_table(part, temporary))
        self._next += 1
        self._waiting = []


class _Run:
    """The driver of a table."""

    def __init__(self, table: Any, output: _Output, model: str, prompt_column: str, sampling: dict[str, Any],
                 options: dict[str, Any], actors: int, cpus: int, gpus: float, in_flight: int, max_attempts: int) -> None:
        self._model, self._sampling, self._options = model, sampling, options
        self._cpus, self._gpus, self._in_flight, self._max_attempts = cpus, gpus, in_flight, max_attempts
        self._output = output
        self._prompts = table[prompt_column].to_pylist()
        self._own = {name: table[name].to_pylist() for name in table.column_names if name in NAMES and name != prompt_column}
        self.total, self.resumed = table.num_rows, len(output.done)
        self.retried = self.failed = 0
        self._attempts: dict[int, int] = {}
        self._hired: dict[int, _Hired] = {}
        self._dismissed: list[ActorProgress] = []
        self._number = 0
        rows = [self._row(i) for i in range(self.total) if i not in output.done]
        self._wanted = min(actors, len(rows))
        self.schedule = RowSchedule(rows, range(self._wanted))
        self._deaths = 0

    def _row(self, index: int) -> Row:
        prompt = self._prompts[index]
        limit = self._own["max_tokens"][index] if "max_tokens" in self._own else None
        length = len(prompt) if isinstance(prompt, (str, list)) else 0
        if length and isinstance(prompt, list):
            length = sum(len(str(m.get("content", ""))) for m in prompt) if isinstance(prompt[0], dict) else 4 * length
        return Row(index, length, limit or self._sampling.get("max_tokens") or 0)

    # ---- Actors ----

    def hire(self, count: int) -> None:
        """Starts actors, and opens the model in each on cores of its own."""
        ray = _ray()
        cls = ray.remote(num_cpus=self._cpus, num_gpus=self._gpus, max_restarts=0, max_concurrency=self._in_flight + 2)(_Worker)
        handles = [cls.remote() for _ in range(count)]
        opened = []
        for handle, (node, pid, allowed) in zip(handles, ray.get([handle.place.remote() for handle in handles])):
            taken = {core for hired in self._hired.values() if hired.node == node for core in hired.cores}
            free = [core for core in allowed if core not in taken]
            cores = tuple((free if len(free) >= self._cpus else allowed)[: self._cpus])
            self._hired[self._number] = _Hired(handle, cores, node, pid)
            self._number += 1
            opened.append(handle.open.remote(self._model, list(cores), self._options))
        ray.get(opened)

    def dismiss(self) -> None:
        ray = _ray()
        for hired in self._hired.values():
            ray.kill(hired.handle)

    def _died(self, number: int, cause: Exception) -> None:
        """Gives the rows of a dead actor to the others, and starts a new actor."""
        self._deaths += 1
        self._idle(self._hired[number], time.monotonic())
        self._dismissed.append(self._progress_of(number, self._hired[number], 0))
        del self._hired[number]
        for row in self.schedule.remove(number):
            self._attempts[row.index] = self._attempts.get(row.index, 0) + 1
            if self._attempts[row.index] >= self._max_attempts:
                self.schedule.give_up(row)
                self._store(row, {"error": f"{self._max_attempts} actors died while they generated this row: {cause}"})
            else:
                self.retried += 1
        if self._deaths > 2 * self._wanted + self._max_attempts and not any(h.rows for h in self._hired.values()):
            raise InternalError(f"{self._deaths} actors died before they had generated a row: {cause}")
        if self.schedule.unfinished:
            self.schedule.add(self._number)
            self.hire(1)

    @staticmethod
    def _idle(hired: _Hired, now: float) -> None:
        if hired.busy_since is not None:
            hired.busy_s += now - hired.busy_since
            hired.busy_since = None

    # ---- Rows ----

    def _submit(self, number: int, row: Row) -> None:
        hired = self._hired[number]
        own = {name: values[row.index] for name, values in self._own.items() if values[row.index] is not None}
        ref = hired.handle.generate.remote(self._prompts[row.index], {**self._sampling, **own})
        hired.refs[ref] = row
        if hired.busy_since is None:
            hired.busy_since = time.monotonic()

    def _store(self, row: Row, result: dict[str, Any]) -> None:
        if result["error"]:
            self.failed += 1
            result = {"text": "", "finish_reason": "error", "prompt_tokens": 0, "completion_tokens": 0, **result}
        self._output.add(row.index, result)

    def _fill(self) -> None:
        now = time.monotonic()
        for number, hired in self._hired.items():
            while len(hired.refs) < self._in_flight and (row := self.schedule.take(number, now)) is not None:
                self._submit(number, row)

    def _receive(self, number: int, ref: Any) -> None:
        ray = _ray()
        hired = self._hired[number]
        row, result = hired.refs[ref], ray.get(ref)
        del hired.refs[ref]
        self.schedule.finish(number, row, result.get("prompt_tokens", 0), result.get("completion_tokens", 0),
                             result.get("prefill_ms", 0.0), result.get("decode_ms", 0.0))
        self._store(row, result)
        hired.rows += 1
        hired.tokens += result.get("completion_tokens", 0)
        if not hired.refs:
            self._idle(hired, time.monotonic())

    def run(self, bar: ProgressBar, on_progress: Callable[[TableProgress], object] | None) -> None:
        ray = _ray()
        self.hire(self._wanted)
        while self.schedule.unfinished:
            self._fill()
            owners = {ref: number for number, hired in self._hired.items() for ref in hired.refs}
            ready, _ = ray.wait(list(owners), num_returns=1, timeout=1.0)
            for ref in ready:
                try:
                    self._receive(owners[ref], ref)
                except ray.exceptions.RayActorError as error:
                    self._died(owners[ref], error)
                bar.update(len(self._output.done))
                if on_progress is not None:
                    on_progress(self.progress())

    @staticmethod
    def _progress_of(number: int, hired: _Hired, queued: int) -> ActorProgress:
        running = time.monotonic() - hired.busy_since if hired.busy_since is not None else 0.0
        return ActorProgress(hired.pid, hired.node, hired.cores, len(hired.refs), queued, hired.rows, hired.tokens,
                             hired.busy_s + running)

    def actors(self) -> tuple[ActorProgress, ...]:
        return (*self._dismissed, *(self._progress_of(number, hired, self.schedule.queued(number))
                                    for number, hired in self._hired.items()))

    def progress(self) -> TableProgress:
        return TableProgress(len(self._output.done), self.total, self.resumed, self.schedule.moved, self.retried, self.actors())


def generate_table(rows: Any, output: str | os.PathLike[str], model: str, *, actors: int | None = None,
                   cpus_per_actor: int | None = None, gpus_per_actor: float = 0, in_flight: int = 16, prompt_column: str = "prompt", output_column: str = "text",
                   rows_per_part: int = 1000, max_attempts: int = 3, progress: bool | None = None,
                   on_progress: Callable[[TableProgress], object] | None = None, **options: Any) -> TableResult:
    """Generates a text for each row of a table, on all machines of a Ray cluster, into a folder of Parquet files.

    ``model``: a name, or a path that every machine has. ``rows``: a path (.jsonl, Parquet), a list of dicts, a pyarrow.Table or a Ray
    Dataset, which the driver holds in memory. ``output``: the folder; its rows are those of the input with ``row`` (the place in the
    input), ``output_column``, ``finish_reason``, ``prompt_tokens``, ``completion_tokens`` and ``error``. Every row is there exactly
    once. The same call again resumes where the last one ended, also after a crash. Sampling options and columns of their names are as in
    Generator; other options are those of Model.

    ``actors`` (default: as many as fit) have ``cpus_per_actor`` cores each (default: an equal part of a machine's), which no other
    one uses, and up to ``in_flight`` rows at once, as one batch. Rows are divided by their predicted cost; an actor that is done takes
    rows that another one has not begun. The rows of an actor that died go to the others, and a new one takes its place; a row
    that ``max_attempts`` actors have died of has the message in ``error``.

    ``progress``: a bar on standard error, by default in terminals and notebooks; ``on_progress(TableProgress)`` is called after
    every row. Ctrl-C ends the call, and what is done is kept.

    InvalidArgument: no such column; a folder with other output. ImportError: Ray or pyarrow is not installed.
    """
    ray = _ray()
    if not ray.is_initialized():
        ray.init()
    table = _read_table(rows)
    if prompt_column not in table.column_names:
        raise InvalidArgument(f'the rows have no column "{prompt_column}"; they have {", ".join(table.column_names) or "none"}: '
                              "set prompt_column")
    sampling, of_model = _split_options(options)
    model = os.path.abspath(model) if os.path.exists(model) else model
    total_cpus = int(ray.cluster_resources().get("CPU", 1))
    if cpus_per_actor is None:
        cpus_per_actor = max(1, total_cpus // actors) if actors else max(1, (os.cpu_count() or 2) // 2)
    cpus = integer("cpus_per_actor", cpus_per_actor)
    count = integer("actors", actors) if actors is not None else max(1, total_cpus // max(cpus, 1))
    for name, value in (("actors", count), ("cpus_per_actor", cpus), ("in_flight", in_flight), ("rows_per_part", rows_per_part),
                        ("max_attempts", max_attempts)):
        if integer(name, value) < 1:
            raise InvalidArgument(f"{name} is {value}; it must be at least 1")
    if count * cpus > total_cpus:
        raise InvalidArgument(f"{count} actors of {cpus} CPUs are more than the {total_cpus} of the cluster; give fewer")
    digest = hashlib.sha256()
    for name in table.column_names:
        digest.update(name.encode() + b"\0")
        for value in table[name].to_pylist():
            digest.update(repr(value).encode("utf-8", "replace") + b"\0")
    settings = {"model": model, "prompt_column": prompt_column, "output_column": output_column, "input": digest.hexdigest(),
                "options": json.loads(json.dumps({**sampling, **of_model}, default=repr))}
    folder = pathlib.Path(output)
    parts = _Output(folder, table, output_column, integer("rows_per_part", rows_per_part), settings)
    run = _Run(table, parts, model, prompt_column, sampling, of_model, count, cpus, gpus_per_actor, in_flight, max_attempts)
    begin = time.monotonic()
    with ProgressBar(run.total, unit="row", shown=progress) as bar:
        try:
            run.run(bar, on_progress)
            found = run.actors()
        finally:
            parts.flush()
            run.dismiss()
    return TableResult(folder, run.total, run.resumed, run.schedule.moved, run.retried, run.failed, time.monotonic() - begin, found)
