"""Sequences: states of a language model, for loops of your own."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from redline._convert import TokenIds, integer
from redline._native import Handle, call, library
from redline.sampling import weight_array

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

    def __init__(self, model: Model, adapters: Any = None, handle: Handle | None = None) -> None:
        self._model = model
        self._vocab_size = model._vocab_size
        self._handle = handle
        if handle is None:
            array, count = weight_array(adapters) if adapters is not None else (None, 0)
            pointer = ctypes.c_void_p()
            call(library().redline_sequence_open, model._use().value, array, count, ctypes.byref(pointer))
            self._handle = Handle(pointer.value, library().redline_sequence_release)

    def _use(self) -> Any:
        self._model._use()
        assert self._handle is not None
        return self._handle.value

    def __len__(self) -> int:
        return int(library().redline_sequence_length(self._use()))

    def append(self, token_ids: Any, *, rows: int = 1) -> NDArray[np.float32]:
        """Appends tokens; the logits after the last one, [vocab_size], or, for ``rows`` other than 1, after the last ``rows`` of
        them, [rows, vocab_size]. On error the sequence is unchanged."""
        import numpy as np

        ids = TokenIds("token_ids", token_ids)
        result = np.empty((integer("rows", rows), self._vocab_size), np.float32)
        call(library().redline_sequence_append, self._use(), ids.pointer, ids.count, rows,
             result.ctypes.data if rows else None, result.size)
        return result[0] if rows == 1 else result

    def truncate(self, length: int) -> int:
        """Drops the tokens from position ``length`` on. Returns the number of tokens left, which is smaller where the state at that
        position is gone (sliding windows, recurrent models)."""
        left = ctypes.c_int64()
        call(library().redline_sequence_truncate, self._use(), integer("length", length), ctypes.byref(left))
        return left.value

    def fork(self) -> TokenSequence:
        """A sequence with the same tokens; both share memory until one of them writes."""
        pointer = ctypes.c_void_p()
        call(library().redline_sequence_fork, self._use(), ctypes.byref(pointer))
        return TokenSequence(self._model, handle=Handle(pointer.value, library().redline_sequence_release))

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a TokenSequence cannot be pickled; append its tokens to one of the other process")
