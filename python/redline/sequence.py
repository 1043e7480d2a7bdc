"""Sequences: states of a language model, for loops of your own."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redline import _redline
from redline._convert import integer, token_ids as ids_of
from redline.prompt import Prompt
from redline.sampling import weight_list

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from redline.model import Model

__all__ = ["TokenSequence"]


class TokenSequence:
    """One text and its state (keys and values), for sampling of your own: ``model.new_sequence()``.

    >>> import redline
    >>> model = redline.Model("redline-tales", dtype="f32")
    >>> sequence = model.new_sequence()
    >>> logits = sequence.append(model.tokenizer.encode("Once upon a"))
    >>> logits.shape == (model.vocab_size,), model.tokenizer.decode([int(logits.argmax())])
    (True, ' time')

    One thread at a time may use a sequence; different sequences may be used by different threads.
    """

    def __init__(self, model: Model, adapters: Any = None, handle: _redline.TokenSequence | None = None) -> None:
        self._model = model
        self._vocab_size = model._vocab_size
        if handle is None:
            options = _redline.LogitsOptions()
            if adapters is not None:
                options.adapters = weight_list(adapters)
            handle = model._use().open_sequence(options)
        self._handle = handle

    def _use(self) -> _redline.TokenSequence:
        self._model._use()
        return self._handle

    def __len__(self) -> int:
        return len(self._use())

    def append(self, token_ids: Any, *, rows: int = 1) -> NDArray[np.float32]:
        """Appends tokens, or a Prompt. Returns the logits after the last one, [vocab_size], or, for ``rows`` other than 1, after the last ``rows`` of
        them, [rows, vocab_size]. On error the sequence is unchanged."""
        import numpy as np

        result = np.empty((integer("rows", rows), self._vocab_size), np.float32)
        if isinstance(token_ids, Prompt):
            self._use().append_spans(token_ids._spans, result)
        else:
            self._use().append(ids_of("token_ids", token_ids), result)
        return result[0] if rows == 1 else result

    def truncate(self, length: int) -> int:
        """Drops the tokens from position ``length`` on. Returns the number of tokens left, which is smaller if the state at that
        position is gone (sliding windows, recurrent models)."""
        return self._use().truncate(integer("length", length))

    def fork(self) -> TokenSequence:
        """Returns a sequence with the same tokens; both share memory until one of them writes."""
        return TokenSequence(self._model, handle=self._use().fork())

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a TokenSequence cannot be pickled; append its tokens to one of the other process")
