"""The classes that calls return."""
from __future__ import annotations

import dataclasses
import html
from collections.abc import Sequence

__all__ = ["ChatChunk", "ChatCompletion", "Chunk", "Completion", "TokenLogprob", "Timings", "ToolCall", "Usage"]


@dataclasses.dataclass(frozen=True)
class Usage:
    """Tokens of a request. ``cached_tokens`` are prompt tokens whose state came from the prefix cache. Of ``drafted_tokens``,
    which steps have verified, ``accepted_tokens`` were drawn (option ``speculate`` of Model).

    >>> Usage(prompt_tokens=5, completion_tokens=2).total_tokens
    7
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens


@dataclasses.dataclass(frozen=True)
class Timings:
    """Times in milliseconds: to the first token, of the prompt, and of the decoding steps."""

    first_token_ms: float = 0.0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0

    def __str__(self) -> str:
        return f"first token after {self.first_token_ms:.1f} ms, decoding {self.decode_ms:.1f} ms"


@dataclasses.dataclass(frozen=True)
class TokenLogprob:
    """A token, the natural logarithm of its probability (before temperature and truncation), and the most likely tokens.

    ``top`` has pairs of a token id and its log probability, most likely first. ``token_bytes`` may be a part of a character;
    those of the most likely tokens are ``Tokenizer.token_bytes(token_id)``.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    token_bytes: bytes = b""


@dataclasses.dataclass(frozen=True)
class ToolCall:
    """A call that the model asks for; ``arguments`` is a JSON object as text."""

    id: str
    name: str
    arguments: str


@dataclasses.dataclass(frozen=True)
class Chunk:
    """The text that one step adds to a stream. ``text`` may be empty: an incomplete character is held back.

    ``index`` is the place of the prompt in the list of prompts; with ``n`` above 1, prompt * n + sample.
    """

    text: str
    token_id: int | None = None
    index: int = 0
    logprob: TokenLogprob | None = None

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class ChatChunk(Chunk):
    """The text that one step adds to an answer: ``text`` is content, without reasoning and tool calls. A tool call comes as a whole."""

    reasoning: str = ""
    tool_calls: Sequence[ToolCall] = ()


@dataclasses.dataclass(frozen=True)
class Completion:
    """A generated text.

    ``finish_reason`` is "stop" (the model or a stop string ended it), "length" (max_tokens), "context" (the context is
    full), "cancelled" or "timeout". ``token_ids`` are without the stop token. ``logprobs`` is None without that option.
    ``seed`` is the one that was used.

    >>> c = Completion(text=" there was", token_ids=[17, 4], finish_reason="length", usage=Usage(3, 2))
    >>> str(c), c.usage.total_tokens
    (' there was', 5)
    """

    text: str
    token_ids: list[int]
    finish_reason: str
    usage: Usage
    timings: Timings = Timings()
    logprobs: list[TokenLogprob] | None = None
    seed: int = 0
    index: int = 0

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        facts = (f"{self.finish_reason}; {self.usage.prompt_tokens} + {self.usage.completion_tokens} tokens; "
                 f"{self.timings}")
        return (f"<div style='white-space:pre-wrap'>{html.escape(self.text)}</div>"
                f"<div style='opacity:.6;font-size:smaller'>{html.escape(facts)}</div>")


@dataclasses.dataclass(frozen=True)
class ChatCompletion(Completion):
    """An answer of a conversation. ``text`` is everything that was generated; ``content`` is the answer without reasoning
    and tool calls."""

    content: str = ""
    reasoning: str = ""
    tool_calls: Sequence[ToolCall] = ()

    @property
    def message(self) -> dict[str, object]:
        """The answer as a message, to be appended to the conversation."""
        message: dict[str, object] = {"role": "assistant", "content": self.content}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls
            ]
        return message

    def __str__(self) -> str:
        return self.content
