"""Prompts of tokens and rows of embeddings, such as the output of an image encoder."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from redline import _redline
from redline._convert import as_numpy, float_array, integer, is_array, kind_of, token_ids
from redline.errors import InvalidArgument

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["EmbeddingRows", "Prompt"]


class EmbeddingRows:
    """Rows of embeddings of an image, a sound or a video, or of a part of one, with properties that an array alone does not have.

    ``values``: float32 [rows, hidden_size]. ``media_hash``: hash of the contents of the media, by which cached state is found
    (0: a fast hash of the values). ``media_offset``: index in the media of the first row. ``placeholder``: token id that stands for
    the rows. ``positions``: int32 [rows, axes], relative to the position at which the rows begin (M-RoPE: time, height, width);
    without them the rows follow one another like tokens. ``layer_rows``: float32 [layers, rows, hidden_size], added to the hidden
    states after the layers for which the model has such inputs (DeepStack).
    """

    def __init__(self, values: Any, *, media_hash: int = 0, media_offset: int = 0, placeholder: int = 0, positions: Any = None,
                 layer_rows: Any = None) -> None:
        self.values: NDArray[np.float32] = float_array("values", values, ("rows", "hidden_size"))
        self.media_hash = integer("media_hash", media_hash, "uint64")
        self.media_offset = integer("media_offset", media_offset)
        self.placeholder = integer("placeholder", placeholder, "int32")
        self.positions = None if positions is None else _positions(positions)
        self.layer_rows = None if layer_rows is None else float_array("layer_rows", layer_rows, ("layers", "rows", "hidden_size"))


class Prompt:
    """A prompt of several spans, for generate(), logits() and sequences.

    ``spans``: each a list or an integer array of token ids, a float32 array of embeddings [rows, hidden_size], or EmbeddingRows.
    The model must have been opened with ``prompt_embeddings=True``. len() counts tokens and rows.

    InvalidArgument: a span of another kind, a value that is not finite, positions that do not fit the rows. Rows of another width
    than the model's are an error of the call that uses the prompt.
    """

    def __init__(self, spans: Sequence[Any]) -> None:
        if not isinstance(spans, (list, tuple)):
            raise InvalidArgument(f"spans must be a list of spans, not {kind_of(spans)}")
        self._spans = _redline.new_prompt_spans()
        for i, span in enumerate(spans):
            if not isinstance(span, EmbeddingRows) and is_array(span) and as_numpy(f"spans[{i}]", span).dtype.kind == "f":
                span = EmbeddingRows(span)
            if isinstance(span, EmbeddingRows):
                self._spans.add_embeddings(span.values, span.media_hash, span.media_offset, span.placeholder, span.positions,
                                           span.layer_rows)
            else:
                self._spans.add_tokens(token_ids(f"spans[{i}]", span))

    def __len__(self) -> int:
        return len(self._spans)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a Prompt cannot be pickled; make it of its spans in the other process")


def _positions(value: Any) -> NDArray[np.int32]:
    import numpy as np

    found = as_numpy("positions", value)
    if found.dtype.kind not in "iu" or found.ndim != 2:
        raise InvalidArgument(f"positions must be integers [rows, axes], not {found.dtype} {list(found.shape)}")
    if found.size and (int(found.max()) > 2**31 - 1 or int(found.min()) < -(2**31)):
        raise InvalidArgument("positions have a number beyond the range of int32")
    return np.ascontiguousarray(found, dtype=np.int32)
