"""Requests in progress: waiting, streams, async streams."""
from __future__ import annotations

import atexit
import collections
import json
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from redline._progress import ProgressBar
from redline.errors import InvalidArgument, NotFound
from redline.results import ChatChunk, ChatCompletion, Chunk, Completion, Timings, TokenLogprob, ToolCall, Usage

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Generator

    from redline import _redline

C = TypeVar("C", bound=Chunk)
R = TypeVar("R", bound=Completion)


class Generation:
    """A generation of the extension module and the readers of its texts."""

    def __init__(self, model: _redline.Model, count: int, has_logprobs: bool, readers: list[ChatReader] | None) -> None:
        self._model = model
        self.count, self.has_logprobs, self.readers = count, has_logprobs, readers
        self.handle: _redline.Generation | None = None

    def submit(self, prompts: list[Any], options: list[_redline.GenerateOptions],
               on_piece: Callable[[_redline.Piece], bool] | None = None) -> None:
        self.handle = self._model.submit(prompts, options, on_piece)

    def use(self) -> _redline.Generation:
        if self.handle is None:
            raise InvalidArgument("this stream is closed")
        return self.handle

    def wait(self) -> None:
        """Waits until all prompts have ended. An exception of a signal handler cancels them within a step."""
        try:
            self.use().wait()
        except BaseException:
            self.cancel()
            raise

    def wait_with_bar(self) -> None:
        """Waits as wait() does, and shows a bar of finished texts, for which it reads the pieces."""
        handle, ended = self.use(), 0
        try:
            with ProgressBar(self.count, unit="text", shown=True) as bar:
                bar.update(0)
                while (piece := handle.next()) is not None:
                    if piece.is_last:
                        ended += 1
                        bar.update(ended)
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        handle = self.handle
        if handle is not None:
            handle.cancel()

    def close(self) -> None:
        self.handle = None

    def completion(self, index: int) -> Completion:
        c = self.use().completion(index)
        tokens, logprobs = c.tokens, None
        if self.has_logprobs:
            logprobs = [self._logprob(token, logprob, top) for token, (logprob, top) in zip(tokens, c.logprobs)]
        values: dict[str, Any] = {
            "text": c.text,
            "token_ids": tokens,
            "finish_reason": c.finish_reason,
            "usage": Usage(c.prompt_tokens, len(tokens), c.cached_tokens, c.drafted_tokens, c.accepted_tokens),
            "timings": Timings(c.first_token_ms, c.prefill_ms, c.decode_ms),
            "logprobs": logprobs,
            "seed": c.seed,
            "index": index,
        }
        if self.readers is None:
            return Completion(**values)
        return ChatCompletion(**values, **self.readers[index].read_all(values["text"], _end_of(c.finish_reason)))

    def completions(self) -> list[Completion]:
        return [self.completion(i) for i in range(self.count)]

    def _logprob(self, token: int, logprob: float, top: list[tuple[int, float]]) -> TokenLogprob:
        try:
            text = self._model.token_bytes(token, True)
        except NotFound:  # the model has no tokenizer, and the prompt was ids
            text = b""
        return TokenLogprob(token, logprob, tuple(top), text)

    def chunk(self, piece: _redline.Piece, is_callback: bool = False) -> Chunk | None:
        """Returns the chunk that a piece adds; None: it adds nothing. In a callback, the reason why the text ended is not known yet."""
        text, number = piece.text, piece.token
        token = None if number < 0 else number
        logprob = None
        if self.has_logprobs and token is not None:
            logprob = self._logprob(token, piece.logprob, piece.top)
        if self.readers is not None:
            end = int(piece.is_last)
            if end and not is_callback:
                end = _end_of(self.use().completion(piece.index).finish_reason)
            values = self.readers[piece.index].read(text, end)
            if token is None and not any(values.values()):
                return None
            return ChatChunk(token_id=token, index=piece.index, logprob=logprob, **values)
        return Chunk(text, token, piece.index, logprob) if text or token is not None else None


def _end_of(finish_reason: str) -> int:
    """Returns the `end` argument for ChatReader: 1 if the text has ended by itself, 2 if a limit has cut it."""
    return 1 if finish_reason == "stop" else 2


class ChatReader:
    """Splits one answer into content, reasoning and tool calls."""

    def __init__(self, model: _redline.Model, prompt: bytes, tools: bytes | None) -> None:
        self._open: Callable[[], _redline.ChatReader] = lambda: model.open_chat_reader(prompt, tools)
        self._reader: _redline.ChatReader | None = None

    @staticmethod
    def _push(reader: _redline.ChatReader, text: str, end: int) -> list[dict[str, Any]]:
        deltas: list[dict[str, Any]] = json.loads(reader.push(text.encode("utf-8", "replace"), end))
        return deltas

    @staticmethod
    def _join(deltas: list[dict[str, Any]], content: str) -> dict[str, Any]:
        calls = tuple(ToolCall(d["id"], d["name"], d["arguments"]) for d in deltas if d["type"] == "tool_call")
        return {content: "".join(d["text"] for d in deltas if d["type"] == "content"),
                "reasoning": "".join(d["text"] for d in deltas if d["type"] == "reasoning"), "tool_calls": calls}

    def read(self, text: str, end: int) -> dict[str, Any]:
        """The parts of a piece, its content as `text`. `end`: 0 if more follows, else as _end_of() has it."""
        if self._reader is None:
            self._reader = self._open()
        return self._join(self._push(self._reader, text, end), "text")

    def read_all(self, text: str, end: int) -> dict[str, Any]:
        return self._join(self._push(self._open(), text, end), "content")


class Stream(Generic[C, R]):
    """The chunks of a text as they are generated; of several prompts, in the order in which they come, each with its index.

    Use it as an iterator, or in a ``with``. Leaving the loop or dropping the stream cancels what still runs. After the end,
    ``completion`` (or ``completions``) has the whole. Ctrl-C during a wait cancels the text and raises KeyboardInterrupt.
    """

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._lock = threading.Lock()
        self._is_done = False

    def __iter__(self) -> Iterator[C]:
        return self

    def __next__(self) -> C:
        with self._lock:
            while not self._is_done:
                try:
                    piece = self._generation.use().next()
                except BaseException:
                    self._generation.cancel()
                    self._is_done = True
                    raise
                if piece is None:
                    self._is_done = True
                    break
                chunk = self._generation.chunk(piece)
                if chunk is not None:
                    return chunk  # type: ignore[return-value]
        self._check()
        raise StopIteration

    def _check(self) -> None:
        """Raises the error with which a text has ended, if any."""
        if self._generation.handle is not None:
            for i in range(self._generation.count):
                self._generation.completion(i)

    @property
    def completions(self) -> list[R]:
        """The completion of each prompt, by its index; waits for the end. They include chunks that were not read."""
        self._generation.wait()
        return self._generation.completions()  # type: ignore[return-value]

    @property
    def completion(self) -> R:
        """The completion of a single prompt; waits for the end."""
        if self._generation.count != 1:
            raise InvalidArgument(f"this stream has {self._generation.count} texts; use completions")
        return self.completions[0]

    def cancel(self) -> None:
        """Ends the texts within a step; finish_reason is "cancelled". From any thread."""
        self._generation.cancel()

    def close(self) -> None:
        """Cancels what still runs and drops the results."""
        self._is_done = True
        self._generation.cancel()
        with self._lock:
            self._generation.close()

    def __enter__(self) -> Stream[C, R]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _without_frames(error: BaseException) -> BaseException:
    """Returns an error, and the errors that caused it, without tracebacks."""
    each: BaseException | None = error
    seen: set[int] = set()
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error


class _Inbox:
    """Carries chunks from the engine's thread to an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, generation: Generation, keeps_chunks: bool) -> None:
        self.loop = loop
        self.generation = weakref.ref(generation)
        self.chunks: collections.deque[Chunk] = collections.deque()
        self.left = generation.count
        self.waiter: asyncio.Future[None] | None = None
        self.error: BaseException | None = None
        self._keeps = keeps_chunks

    def on_piece(self, piece: _redline.Piece) -> bool:
        """Takes a piece on the engine's thread. An exception, which would be lost here, ends the text and is raised in the event loop."""
        try:
            return self._pass_on(piece)
        except BaseException as error:
            # Its traceback holds the generation, which holds this: the collector does not see that cycle.
            self.error = _without_frames(error)
            return False

    def _pass_on(self, piece: _redline.Piece) -> bool:
        if self._keeps or piece.is_last:
            generation = self.generation()
            if generation is None:
                return False
            chunk = generation.chunk(piece, True) if self._keeps else None
            if chunk is not None or piece.is_last:
                self.loop.call_soon_threadsafe(self._receive, chunk, int(piece.is_last))
        return True

    def _receive(self, chunk: Chunk | None, ended: int) -> None:
        if chunk is not None:
            self.chunks.append(chunk)
        self.left -= ended
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def wait(self) -> None:
        self.waiter = self.loop.create_future()
        try:
            await self.waiter
        finally:
            self.waiter = None


_running: weakref.WeakSet[Generation] = weakref.WeakSet()


@atexit.register
def _stop() -> None:
    """Stops all generations before the interpreter ends, because the engine's threads must not call into it afterwards."""
    for generation in list(_running):
        generation.cancel()
        generation.close()


class AsyncStream(Generic[C, R]):
    """The async form of Stream: ``async for chunk in stream``; then ``await stream`` has the completion."""

    def __init__(self, start: Callable[[Any], Generation], keeps_chunks: bool) -> None:
        self._start, self._keeps = start, keeps_chunks
        self._generation: Generation | None = None
        self._inbox: _Inbox | None = None
        self.single = True

    def _begin(self) -> _Inbox:
        if self._inbox is None:
            import asyncio

            loop = asyncio.get_running_loop()
            inbox: list[_Inbox] = []

            # The generation is made before it is submitted: the first piece may come before submit() returns.
            def made(generation: Generation) -> Callable[[_redline.Piece], bool]:
                self._generation = generation
                inbox.append(_Inbox(loop, generation, self._keeps))
                return inbox[0].on_piece

            self._start(made)
            assert self._generation is not None
            _running.add(self._generation)
            self._inbox = inbox[0]
        return self._inbox

    def __aiter__(self) -> AsyncStream[C, R]:
        self._keeps = True
        return self

    async def __anext__(self) -> C:
        inbox = self._begin()
        while not inbox.chunks:
            if inbox.left == 0 or inbox.error is not None:
                self._results()
                raise StopAsyncIteration
            await self._wait(inbox)
        return inbox.chunks.popleft()  # type: ignore[return-value]

    async def _wait(self, inbox: _Inbox) -> None:
        try:
            await inbox.wait()
        except BaseException:
            self.cancel()
            raise

    def _results(self) -> list[Completion]:
        assert self._generation is not None and self._inbox is not None
        if self._inbox.error is not None:
            raise self._inbox.error
        return self._generation.completions()

    async def completions(self) -> list[R]:
        """Waits for the end of all texts."""
        inbox = self._begin()
        while inbox.left > 0 and inbox.error is None:
            await self._wait(inbox)
        return self._results()  # type: ignore[return-value]

    async def _result(self) -> Any:
        found = await self.completions()
        return found[0] if self.single else found

    def __await__(self) -> Generator[Any, None, Any]:
        return self._result().__await__()

    def cancel(self) -> None:
        """Ends the texts within a step."""
        if self._generation is not None:
            self._generation.cancel()

    async def aclose(self) -> None:
        """Cancels what still runs and drops the results."""
        self.cancel()
        if self._generation is not None:
            self._generation.close()

    async def __aenter__(self) -> AsyncStream[C, R]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
