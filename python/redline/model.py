"""Language models."""
from __future__ import annotations

import json
import os
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from redline import _redline
from redline._convert import as_numpy, integer, is_array, kind_of, path_text, token_ids, utf8
from redline._generation import AsyncStream, ChatReader, Generation, Stream
from redline._names import find_model
from redline._native import Closable
from redline._options import assign_options, with_options
from redline._progress import is_wanted
from redline.errors import InvalidArgument, Unsupported
from redline.prompt import Prompt
from redline.results import ChatChunk, ChatCompletion, Chunk, Completion
from redline.sampling import SamplingOptions, check_names, generate_options, weight_list
from redline.tokenizer import Tokenizer, check_messages, check_tools, json_text, render_chat

if TYPE_CHECKING:
    from collections.abc import Awaitable

    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from redline.embedding import EmbeddingModel
    from redline.runtime import Runtime
    from redline.sequence import TokenSequence

__all__ = ["Model"]

Message = Mapping[str, Any]


def is_messages(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], Mapping)


def is_batch(prompt: Any) -> bool:
    """Returns True for a list of prompts, False for one prompt."""
    if isinstance(prompt, (str, Prompt)):
        return False
    if is_array(prompt):
        return as_numpy("prompt", prompt).ndim == 2
    if not isinstance(prompt, (list, tuple)):
        raise InvalidArgument(f"prompt must be a str, a list of token ids, a list of messages, or a list of these, not "
                              f"{kind_of(prompt)}")
    if not prompt:
        return True
    return isinstance(prompt[0], (str, list, tuple, Prompt)) or (is_array(prompt[0]) and prompt[0].ndim > 0)


def spans_of(model: _redline.Model, prompt: Any, options: _redline.GenerateOptions) -> _redline.PromptSpans:
    """Converts a prompt of a _Job to spans."""
    if isinstance(prompt, _redline.PromptSpans):
        return prompt
    if isinstance(prompt, bytes):
        prompt = token_ids("prompt", model.encode(prompt, bool(options.parse_special), bool(options.add_bos)))
    spans = _redline.new_prompt_spans()
    spans.add_tokens(prompt)
    return spans


class _Job:
    """Prompts in the form of the extension module: each text as UTF-8, each list of ids as dense int32, `n` times. If there are
    prompts of spans (`has_spans`), _submit makes all of them spans, once the options are known."""

    def __init__(self, model: _redline.Model, prompts: Sequence[Any], n: int, tools: Any, variables: Any, tool_choice: str) -> None:
        self.prompts: list[Any] = []
        self.has_messages = False
        self.rendered: list[bytes] = []
        for i, prompt in enumerate(prompts):
            if is_messages(prompt) or tools is not None or variables is not None:
                self.has_messages = True
                prompt = render_chat(model, prompt, tools if tool_choice != "none" else None, variables, True)
            name = "prompt" if len(prompts) == 1 else f"prompt {i}"
            if isinstance(prompt, str):
                data = utf8(name, prompt, may_have_zero=True)
                self.rendered.append(data)
                self.prompts += [data] * n
            elif isinstance(prompt, Prompt):
                self.prompts += [prompt._spans] * n
            else:
                self.prompts += [token_ids(name, prompt)] * n
        self.has_spans = any(isinstance(prompt, Prompt) for prompt in prompts)


@with_options(_redline.ModelOptions)
class Model(Closable["_redline.Model"]):
    """A language model, opened from a GGUF file, a Hugging Face folder, ``hf:owner/name`` (downloaded by ``redline pull``), or the
    name of a bundled model.

    >>> import redline
    >>> model = redline.Model("redline-tales")
    >>> model.generate("Once upon a time", max_tokens=4, temperature=0).text
    ', there was a'
    >>> for chunk in model.generate("Once upon a time", max_tokens=4, temperature=0, stream=True):
    ...     print(chunk.text, end="|")
    ,| there| was| a|
    >>> [c.text for c in model.generate(["One day", "The little"], max_tokens=2, temperature=0)]
    [', a', ' girl was']
    >>> model.close()

    All methods may be called by several threads at once; requests that run at the same time share the steps of one batch. The
    global interpreter lock is released while the model computes. Ctrl-C ends a call within a step. The model is closed by
    ``close()``, by the end of a ``with``, or with its last reference.

    Options (keyword only):

    {options}
    * ``adapters``: LoRA adapters, a path, a list of paths, or a dict of name to path or (path, weight).
    * ``runtime`` (Runtime): shared with other models.

    NotFound: no such file. Unsupported: a family or a weight format that the engine does not have. InvalidArgument: a value that
    cannot be used. TypeError: an unknown option.
    """

    def __init__(self, path: str | os.PathLike[str], *, runtime: Runtime | None = None, adapters: Any = None,
                 **options: Any) -> None:
        given = path_text("path", path)
        self._path = find_model(given)
        self._embedder: EmbeddingModel | None = None
        self._active: weakref.WeakSet[Generation] = weakref.WeakSet()
        if _redline.is_embedding_model(utf8("path", self._path)):
            from redline.embedding import EmbeddingModel

            self._embedder = EmbeddingModel(self._path, runtime=runtime, **options)
            self._open(cast(Any, self._embedder._use()))
            self._vocab_size = 0
            return
        struct = _redline.ModelOptions()
        assign_options(struct, "Model", options, runtime=runtime, adapters=adapters)
        handle = _redline.open_model(utf8("path", self._path), struct)
        self._open(handle)
        info = handle.info
        self._vocab_size = info.vocab_size
        self._context = info.context
        self._has_chat_template = info.has_chat_template

    def _use(self) -> _redline.Model:
        handle = super()._use()
        if self._embedder is not None:
            raise Unsupported(f"{self._path} makes embeddings, not text; use embed(), or redline.EmbeddingModel")
        return handle

    def close(self) -> None:
        """Ends what still runs (finish_reason "cancelled") and frees the memory. A second call does nothing."""
        for generation in list(self._active):
            generation.cancel()
        if self._embedder is not None:
            self._embedder.close()
        super().close()

    def __repr__(self) -> str:
        return f"<redline.Model {self._path}{' (closed)' if self.closed else ''}>"

    def _repr_html_(self) -> str:
        from redline._tables import html_table

        if self.closed or self._embedder is not None:
            return html_table({"model": self._path})
        return html_table({k: v for k, v in self.info.items() if v not in ("", 0, [], {}) and k != "chat_template"})

    @property
    def path(self) -> str:
        """The file or folder."""
        return self._path

    @property
    def name(self) -> str:
        """The last part of the path."""
        return os.path.basename(os.path.normpath(self._path))

    @property
    def vocab_size(self) -> int:
        """Number of token ids, and of logits per position."""
        self._use()
        return self._vocab_size

    @property
    def context(self) -> int:
        """Maximum tokens of one text, prompt included."""
        self._use()
        return self._context

    @property
    def has_chat_template(self) -> bool:
        """True if chat() works."""
        self._use()
        return self._has_chat_template

    def describe(self) -> dict[str, Any]:
        """"model", "memory" (bytes), "stats" (counters since it was opened) and "sampling" (the defaults)."""
        if self._embedder is not None:
            return self._embedder.describe()
        return dict(json.loads(self._use().describe()))

    @property
    def info(self) -> dict[str, Any]:
        """Properties of the model: architecture, parameters, weight types, sizes."""
        return dict(self.describe()["model"])

    @property
    def stats(self) -> dict[str, Any]:
        """Counters since the model was opened: requests, tokens, steps, pages of the cache."""
        return dict(self.describe()["stats"])

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        self._use()
        return Tokenizer(self)

    # ---- Generating ----

    @overload
    def generate(  # type: ignore[overload-overlap]  # a str is a Sequence[str] too: the first overload takes it
        self, prompt: str | Sequence[int] | Sequence[Message] | NDArray[Any] | Prompt, *, stream: Literal[False] = False,
        progress: bool | None = None, **sampling: Unpack[SamplingOptions]) -> Completion: ...

    @overload
    def generate(self, prompt: Sequence[str] | Sequence[Sequence[int]] | Sequence[Sequence[Message]] | Sequence[Prompt], *,
                 stream: Literal[False] = False, progress: bool | None = None,
                 **sampling: Unpack[SamplingOptions]) -> list[Completion]: ...

    @overload
    def generate(self, prompt: Any, *, stream: Literal[True],
                 **sampling: Unpack[SamplingOptions]) -> Stream[Chunk, Completion]: ...

    def generate(self, prompt: Any, *, stream: bool = False, progress: bool | None = None, **sampling: Any) -> Any:
        """Continues a prompt: text, token ids (a list or an integer array [tokens]), a list of messages, which is rendered with
        the chat template, or a Prompt of tokens and rows of embeddings. A list of prompts runs as one batch.

        Returns a Completion, or a list of them for a list of prompts; with ``n`` above 1 a list of n for one prompt, and a list of
        such lists for several. ``stream=True`` returns a Stream of chunks instead. ``progress``: a bar of finished texts on standard
        error; by default for several of them in terminals and notebooks. The keywords are those of SamplingOptions.

        InvalidArgument: a value out of range, or a prompt that is longer than the context (the message has both numbers).
        OutOfMemory: the cache has no room for the prompt.
        """
        check_names(list(sampling), "generate", ("stream", "progress"))
        return self._generate(prompt, stream, progress, sampling, False, None, None, "auto")

    @overload
    def chat(self, messages: Sequence[Message] | str, *, tools: Sequence[Mapping[str, Any]] | None = None,
             tool_choice: Literal["auto", "none", "required"] = "auto", chat_template_kwargs: Mapping[str, Any] | None = None,
             stream: Literal[False] = False, progress: bool | None = None,
             **sampling: Unpack[SamplingOptions]) -> ChatCompletion: ...

    @overload
    def chat(self, messages: Sequence[Message] | str, *, tools: Sequence[Mapping[str, Any]] | None = None,
             tool_choice: Literal["auto", "none", "required"] = "auto", chat_template_kwargs: Mapping[str, Any] | None = None,
             stream: Literal[True], **sampling: Unpack[SamplingOptions]) -> Stream[ChatChunk, ChatCompletion]: ...

    def chat(self, messages: Any, *, tools: Any = None, tool_choice: str = "auto",
             chat_template_kwargs: Mapping[str, Any] | None = None, stream: bool = False, progress: bool | None = None,
             **sampling: Any) -> Any:
        """Answers a conversation: OpenAI's list of messages, or a str for one message of the user. A list of conversations runs as
        one batch.

        Returns a ChatCompletion: ``content``, ``reasoning``, ``tool_calls``, ``message`` to be appended; or a Stream of chunks.
        ``tools``: OpenAI's list of tools; ``tool_choice="required"`` makes the answer a call of one. ``chat_template_kwargs``:
        variables of the template. ``progress``: as in generate(). NotFound: the model has no chat template.
        """
        check_names(list(sampling), "chat", ("tools", "tool_choice", "chat_template_kwargs", "stream", "progress"))
        return self._generate(self._conversation(messages), stream, progress, sampling, True, tools, chat_template_kwargs, tool_choice)

    @staticmethod
    def _conversation(messages: Any) -> Any:
        if isinstance(messages, str):
            return [{"role": "user", "content": messages}]
        if not (isinstance(messages, (list, tuple)) and messages and is_messages(messages[0])):
            check_messages(messages)
        return messages

    @overload
    def agenerate(  # type: ignore[overload-overlap]
        self, prompt: str | Sequence[int] | Sequence[Message] | NDArray[Any] | Prompt, *, stream: Literal[False] = False,
        **sampling: Unpack[SamplingOptions]) -> Awaitable[Completion]: ...

    @overload
    def agenerate(self, prompt: Sequence[str] | Sequence[Sequence[int]] | Sequence[Sequence[Message]] | Sequence[Prompt], *,
                  stream: Literal[False] = False, **sampling: Unpack[SamplingOptions]) -> Awaitable[list[Completion]]: ...

    @overload
    def agenerate(self, prompt: Any, *, stream: Literal[True],
                  **sampling: Unpack[SamplingOptions]) -> AsyncStream[Chunk, Completion]: ...

    def agenerate(self, prompt: Any, *, stream: bool = False, **sampling: Any) -> Any:
        """generate() for asyncio: ``await model.agenerate(...)``, or ``async for chunk in model.agenerate(..., stream=True)``.

        Requests that are awaited together run as one batch. A cancelled task cancels its request within a step.
        """
        check_names(list(sampling), "agenerate")
        return self._agenerate(prompt, stream, sampling, False, None, None, "auto")

    @overload
    def achat(self, messages: Sequence[Message] | str, *, tools: Sequence[Mapping[str, Any]] | None = None,
              tool_choice: Literal["auto", "none", "required"] = "auto", chat_template_kwargs: Mapping[str, Any] | None = None,
              stream: Literal[False] = False, **sampling: Unpack[SamplingOptions]) -> Awaitable[ChatCompletion]: ...

    @overload
    def achat(self, messages: Sequence[Message] | str, *, tools: Sequence[Mapping[str, Any]] | None = None,
              tool_choice: Literal["auto", "none", "required"] = "auto", chat_template_kwargs: Mapping[str, Any] | None = None,
              stream: Literal[True], **sampling: Unpack[SamplingOptions]) -> AsyncStream[ChatChunk, ChatCompletion]: ...

    def achat(self, messages: Any, *, tools: Any = None, tool_choice: str = "auto",
              chat_template_kwargs: Mapping[str, Any] | None = None, stream: bool = False, **sampling: Any) -> Any:
        """chat() for asyncio."""
        check_names(list(sampling), "achat", ("tools", "tool_choice", "chat_template_kwargs", "stream"))
        return self._agenerate(self._conversation(messages), stream, sampling, True, tools, chat_template_kwargs, tool_choice)

    def _agenerate(self, prompt: Any, stream: bool, sampling: Mapping[str, Any], *arguments: Any) -> Any:
        self._use()
        single = not is_batch(prompt)
        prompts = [prompt] if single else list(prompt)

        def start(made: Any) -> Generation:
            return self._submit(prompts, sampling, *arguments, made=made)

        result: AsyncStream[Any, Any] = AsyncStream(start, keeps_chunks=stream)
        result.single = single and _number(sampling.get("n")) == 1
        return result

    def _generate(self, prompt: Any, stream: bool, progress: bool | None, sampling: Mapping[str, Any], *arguments: Any) -> Any:
        single = not is_batch(prompt)
        prompts = [prompt] if single else list(prompt)
        if not prompts:
            self._use()
            return []
        generation = self._submit(prompts, sampling, *arguments)
        if stream:
            return Stream(generation)
        if progress or (progress is None and generation.count > 1 and is_wanted(None)):
            generation.wait_with_bar()
        else:
            generation.wait()
        found = generation.completions()
        n = _number(sampling.get("n"))
        if n == 1:
            return found[0] if single else found
        return found if single else [found[i : i + n] for i in range(0, len(found), n)]

    def _submit(self, prompts: Sequence[Any], sampling: Mapping[str, Any], is_chat: bool, tools: Any, variables: Any,
                tool_choice: str, *, made: Any = None) -> Generation:
        model = self._use()
        n = _number(sampling.get("n"))
        if tool_choice not in ("auto", "none", "required"):
            raise InvalidArgument(f'tool_choice is {tool_choice!r}; use "auto", "none" or "required"')
        if tools is not None and not isinstance(tools, str):
            check_tools(tools)
        if tool_choice == "required" and not tools:
            raise InvalidArgument('tool_choice="required" needs tools')
        job = _Job(model, prompts, n, tools, variables, tool_choice)
        options = generate_options(model, sampling)
        if job.has_messages:
            options.parse_special = 1
        if job.has_spans:
            job.prompts = [spans_of(model, prompt, options) for prompt in job.prompts]
        if is_chat:
            options.skip_special_tokens = 0
        tools_json = json_text("tools", tools) if tools else None
        if tool_choice == "required":
            options.tool_calls = tools_json
        each = [options]
        if n > 1 and options.has_seed:  # one seed for each of the n texts
            each = []
            for k in range(n):
                copy = options.copy()
                copy.seed = (options.seed + k) & (2**64 - 1)
                each.append(copy)
            each *= len(prompts)
        readers = [ChatReader(model, job.rendered[i // n], tools_json) for i in range(len(job.prompts))] if is_chat else None
        generation = Generation(model, len(job.prompts), options.logprobs >= 0, readers)
        generation.submit(job.prompts, each, made(generation) if made is not None else None)
        self._active.add(generation)
        return generation

    # ---- Logits ----

    def logits(self, prompt: Any, *, all: bool = False, adapters: Any = None) -> NDArray[np.float32]:
        """Returns the logits after the last token, float32 [vocab_size]; with ``all``, after each token, [tokens, vocab_size].

        ``prompt``: text, token ids as a list or an integer array [tokens], or a Prompt; the engine writes into the array that is returned.
        InvalidArgument: no tokens, an id outside the vocabulary, more tokens than the context holds.
        """
        import numpy as np

        model = self._use()
        if isinstance(prompt, Prompt):
            found = self.new_sequence(adapters).append(prompt, rows=len(prompt) if all else 1)
            return found.reshape(-1, self._vocab_size) if all else found
        ids = token_ids("prompt", self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt)
        result = np.empty((len(ids) if all else 1, self._vocab_size), np.float32)
        options = _redline.LogitsOptions()
        if adapters is not None:
            options.adapters = weight_list(adapters)
        model.logits(ids, options, result)
        return result if all else result[0]

    def new_sequence(self, adapters: Any = None) -> TokenSequence:
        """A sequence with a state of its own, for loops that choose the tokens themselves."""
        from redline.sequence import TokenSequence

        return TokenSequence(self, adapters)

    # ---- Embeddings, adapters ----

    def embed(self, texts: Any, **options: Any) -> NDArray[np.float32]:
        """Returns embeddings of texts, float32 [texts, dimensions] ([dimensions] for a single str); see EmbeddingModel.embed.

        Unsupported: the model generates text.
        """
        if self._embedder is None:
            self._use()
            raise Unsupported(f"{self._path} generates text; open it with redline.EmbeddingModel(path, pooling=\"last\") for "
                              "embeddings")
        return self._embedder.embed(texts, **options)

    def load_adapter(self, name: str, path: str | os.PathLike[str]) -> None:
        """Loads a LoRA adapter (a PEFT folder or a GGUF file) for requests that name it in ``adapters``. The model must have been
        opened with max_adapter_rank of at least its rank."""
        self._use().load_adapter(utf8("name", name), utf8("path", path_text("path", path)))

    def unload_adapter(self, name: str) -> None:
        """Unloads an adapter. Requests that use it keep it. NotFound: no such name."""
        self._use().unload_adapter(utf8("name", name))


def _number(n: Any) -> int:
    number = 1 if n is None else integer("n", n)
    if not 1 <= number <= 10000:
        raise InvalidArgument(f"n is {number}; it must be from 1 to 10000")
    return number
