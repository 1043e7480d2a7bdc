"""The tokenizer of a model."""
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from redline._convert import is_array, kind_of, token_ids as ids_of, utf8
from redline.errors import InvalidArgument

if TYPE_CHECKING:
    from redline import _redline
    from redline.model import Model

__all__ = ["Tokenizer"]


def json_text(name: str, value: Any) -> bytes:
    if isinstance(value, str):
        return utf8(name, value)
    try:
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{name} is not JSON: {error}") from None


def check_messages(messages: Any) -> None:
    if isinstance(messages, str):
        return
    if not isinstance(messages, (list, tuple)):
        raise InvalidArgument(f"messages must be a list of dicts, not {kind_of(messages)}")
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or "role" not in message:
            raise InvalidArgument(f'messages[{i}] must be a dict with "role" and "content", not {kind_of(message)}')


def check_tools(tools: Any) -> None:
    if not isinstance(tools, (list, tuple)):
        raise InvalidArgument(f"tools must be a list of dicts, as in OpenAI's API, not {kind_of(tools)}")
    for i, tool in enumerate(tools):
        if not isinstance(tool, dict):
            raise InvalidArgument(f"tools[{i}] must be a dict, as in OpenAI's API, not {kind_of(tool)}")


def render_chat(model: _redline.Model, messages: Any, tools: Any, variables: Any, add_generation_prompt: bool) -> str:
    check_messages(messages)
    return model.render_chat(json_text("messages", messages), json_text("tools", tools) if tools else None,
                             json_text("variables", variables) if variables else None, bool(add_generation_prompt))


def encode(model: _redline.Model, text: str, parse_special: bool, add_bos: bool) -> list[int]:
    return model.encode(utf8("text", text, may_have_zero=True), bool(parse_special), bool(add_bos))


class Tokenizer:
    """Converts text to token ids and back; ``model.tokenizer``. A tokenizer keeps its model open until that is closed.

    >>> import redline
    >>> tokenizer = redline.Model("redline-tales").tokenizer
    >>> ids = tokenizer.encode("Once upon a time")
    >>> tokenizer.decode(ids)
    'Once upon a time'
    """

    def __init__(self, model: Model) -> None:
        self._model = model

    def __len__(self) -> int:
        return self.vocab_size

    def __repr__(self) -> str:
        return f"<redline.Tokenizer of {self._model.name}: {self.vocab_size} tokens>"

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return self._model.vocab_size

    def encode(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = False) -> list[int]:
        """Returns the token ids of a text.

        ``add_special_tokens``: begin with the model's BOS token, if it uses one. ``parse_special``: names of special tokens in the
        text become those tokens. NotFound: the model has no tokenizer.
        """
        return encode(self._model._use(), text, parse_special, add_special_tokens)

    def decode(self, token_ids: Sequence[int] | Any, *, skip_special_tokens: bool = True) -> str:
        """Returns the text of token ids, [tokens] as a list or an integer array; bytes that are not a character become U+FFFD.

        InvalidArgument: an id outside the vocabulary, or values that are not integers.
        """
        if not is_array(token_ids) and hasattr(token_ids, "__index__"):
            token_ids = [token_ids]
        ids = ids_of("token_ids", token_ids)
        wrong = next((i for i in ids if not 0 <= i < self.vocab_size), None)
        if wrong is not None:
            raise InvalidArgument(f"token id {wrong} is outside the vocabulary of {self.vocab_size} tokens")
        return self._model._use().decode(ids, not skip_special_tokens)

    def token_bytes(self, token_id: int, *, skip_special_tokens: bool = False) -> bytes:
        """Returns the bytes of one token within a text; they may be a part of a character. ``decode`` would have U+FFFD for these.

        Special tokens have the bytes of their names, or none with ``skip_special_tokens``.
        InvalidArgument: an id outside the vocabulary. NotFound: the model has no tokenizer.
        """
        return self._model._use().token_bytes(ids_of("token_id", [token_id])[0], not skip_special_tokens)

    def apply_chat_template(self, messages: Sequence[dict[str, Any]], *, tools: Sequence[dict[str, Any]] | None = None,
                            tokenize: bool = True, add_generation_prompt: bool = False, **variables: Any) -> Any:
        """Renders a conversation in the model's format: token ids, or text with ``tokenize=False``.

        ``variables`` are passed to the template (``enable_thinking=False``). NotFound: the model has no chat template.
        InvalidArgument: errors of the template, with line and column.
        """
        model = self._model._use()
        text = render_chat(model, messages, tools, variables, add_generation_prompt)
        return encode(model, text, True, True) if tokenize else text
