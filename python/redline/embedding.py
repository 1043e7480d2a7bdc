"""Embedding models."""
from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from redline import _redline
from redline._convert import integer, is_array, path_text, text_list, texts, token_ids, utf8
from redline._names import find_model
from redline._native import Closable
from redline._options import assign_options, with_options
from redline._progress import ProgressBar
from redline.errors import InvalidArgument

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from redline.runtime import Runtime

__all__ = ["EmbeddingModel", "RankedDocument"]


@dataclasses.dataclass(frozen=True)
class RankedDocument:
    """A document with its score; ``index`` is its place in the list that was passed."""

    index: int
    score: float
    text: str


@with_options(_redline.EmbeddingOptions)
class EmbeddingModel(Closable["_redline.EmbeddingModel"]):
    """A text encoder (BERT, RoBERTa, ModernBERT) or a decoder that is used as one (Qwen3-Embedding), or a cross-encoder.

    ``path``: a Hugging Face folder, with the files of sentence-transformers if it has them, a GGUF file, or ``hf:owner/name``.
    Options (keyword only):

    {options}
    * ``runtime`` (Runtime): shared with other models.
    """

    _name = "embedding model"

    def __init__(self, path: str | os.PathLike[str], *, runtime: Runtime | None = None, **options: Any) -> None:
        self._path = find_model(path_text("path", path))
        struct = _redline.EmbeddingOptions()
        assign_options(struct, type(self).__name__, options, runtime=runtime)
        handle = _redline.open_embedding_model(utf8("path", self._path), struct)
        self._open(handle)
        self._dimensions = handle.dimensions

    def __repr__(self) -> str:
        return f"<redline.EmbeddingModel {self._path}{' (closed)' if self.closed else ''}>"

    @property
    def path(self) -> str:
        """The file or folder."""
        return self._path

    @property
    def dimensions(self) -> int:
        """Number of elements of an embedding."""
        self._use()
        return self._dimensions

    def describe(self) -> dict[str, Any]:
        """Returns dimensions, max_length, pooling, normalizes, num_labels, prompts, default_prompt, architecture, and more."""
        return dict(json.loads(self._use().describe()))

    def embed(self, texts: Any, *, prompt_name: str | None = None, truncate: bool = False, normalize: bool | None = None,
              dimensions: int | None = None) -> NDArray[np.float32]:
        """Returns embeddings, float32 [texts, dimensions], or [dimensions] for a single str. Texts of different lengths share steps.

        ``texts``: a str, a list of str, or a list of lists of token ids (special tokens included). ``prompt_name``: of the model's
        prompts ("query", "document"; "": none; default: the model's default one). ``truncate``: cut texts that are too long.
        ``normalize``: to length 1; default: as the model's files say. ``dimensions``: keep this many and normalize again (Matryoshka).
        InvalidArgument, with the index of the text: it is too long, has no tokens, or has an id outside the vocabulary.
        """
        import numpy as np

        single = isinstance(texts, str)
        prompts = text_prompts([texts] if single else texts)
        width = self._dimensions if dimensions is None else integer("dimensions", dimensions)
        if width < 1:
            raise InvalidArgument(f"dimensions is {width}; it must be from 1 to {self._dimensions}")
        result = np.empty((len(prompts), width), np.float32)
        if prompts:
            self._use().embed(prompts, self._options(prompt_name, truncate, normalize, dimensions), result)
        return result[0] if single else result

    def token_states(self, texts: Any, *, prompt_name: str | None = None, truncate: bool = False) -> Any:
        """The last layer's hidden states of all tokens, special ones included, before pooling: a float32 array [tokens, hidden size] for
        each text, or one of a single str. The arrays are over the engine's memory.

        ``texts``, ``prompt_name``, ``truncate`` and errors: as embed().
        """
        single = isinstance(texts, str)
        prompts = text_prompts([texts] if single else texts)
        found = self._use().token_states(prompts, self._options(prompt_name, truncate, None, None))
        return found[0] if single else found

    def rank(self, query: str, documents: Sequence[str], *, truncate: bool = False, top_k: int | None = None,
             ) -> list[RankedDocument]:
        """Returns the documents by their relevance for the query, best first.

        A cross-encoder gives the sigmoid of its score, Qwen3-Reranker the probability of "yes", another model the cosine.
        """
        scores = self.scores(query, documents, truncate=truncate)
        order = sorted(range(len(documents)), key=lambda i: -float(scores[i]))
        return [RankedDocument(i, float(scores[i]), documents[i]) for i in order[:top_k]]

    def scores(self, query: str, documents: Sequence[str], *, truncate: bool = False) -> NDArray[np.float32]:
        """Returns the relevance of each document, float32 [documents]."""
        import numpy as np

        given = text_list("documents", documents)
        result = np.empty(len(given), np.float32)
        if given:
            self._use().rank(utf8("query", query), given, self._options(None, truncate, None, None), result)
        return result

    def encode(self, sentences: Any, *, prompt_name: str | None = None, prompt: str | None = None, batch_size: int = 32,
               show_progress_bar: bool | None = None, output_value: str = "sentence_embedding", convert_to_numpy: bool = True,
               convert_to_tensor: bool = False, normalize_embeddings: bool = False, truncate_dim: int | None = None,
               **ignored: Any) -> Any:
        """Returns embeddings like embed(), with the arguments of SentenceTransformer.encode(), for code that was written for it.

        ``output_value="token_embeddings"`` gives token_states(). Long sentences are cut at the model's length. ``convert_to_tensor`` gives a torch.Tensor over the same memory;
        ``convert_to_numpy=False`` a list of arrays. ``batch_size`` only sets how often the progress bar moves.
        """
        if output_value not in ("sentence_embedding", "token_embeddings"):
            raise NotImplementedError(f"output_value={output_value!r}: only \"sentence_embedding\" and \"token_embeddings\" are computed")
        for name in ignored:
            if name not in ("device", "precision", "pool", "chunk_size"):
                raise TypeError(f"encode() got an unexpected keyword argument '{name}'")
        if ignored.get("precision", "float32") != "float32":
            raise NotImplementedError("precision: only float32 is computed")
        import numpy as np

        single = isinstance(sentences, str)
        found = [sentences] if single else texts("sentences", sentences)
        if prompt is not None:
            found, prompt_name = [prompt + sentence for sentence in found], ""
        if output_value == "token_embeddings":
            states = self.token_states(found, prompt_name=prompt_name, truncate=True)
            if convert_to_tensor:
                import torch  # type: ignore[import-not-found, unused-ignore]

                states = [torch.from_numpy(state) for state in states]
            return states[0] if single else states
        # Of a folder without sentence-transformers' files, that library makes one of Transformer and Pooling alone.
        is_plain = os.path.isdir(self._path) and not os.path.exists(os.path.join(self._path, "modules.json"))
        normalize = True if normalize_embeddings else False if is_plain else None
        width = truncate_dim or self._dimensions
        result = np.empty((len(found), width), np.float32)
        size = max(integer("batch_size", batch_size), 1)
        # Longest first, as sentence-transformers does it: texts of a step are of similar length.
        order = sorted(range(len(found)), key=lambda i: -len(found[i]))
        shown = bool(show_progress_bar) and not single
        with ProgressBar((len(found) + size - 1) // size, unit="batch", shown=shown) as bar:
            for step, begin in enumerate(range(0, len(found), size)):
                rows = order[begin : begin + size]
                result[rows] = self.embed([found[i] for i in rows], prompt_name=prompt_name, truncate=True,
                                          normalize=normalize, dimensions=truncate_dim)
                bar.update(step + 1)
        if convert_to_tensor:
            import torch  # type: ignore[import-not-found, unused-ignore]

            tensor = torch.from_numpy(result)
            return tensor[0] if single else tensor
        if single:
            return result[0]
        return result if convert_to_numpy else list(result)

    def _options(self, prompt_name: Any, truncate: bool, normalize: bool | None, dimensions: Any) -> _redline.EmbedOptions:
        options = _redline.EmbedOptions()
        if prompt_name is not None:
            options.prompt_name = utf8("prompt_name", prompt_name)
        options.truncate = int(truncate)
        if normalize is not None:
            options.normalize = int(normalize)
        if dimensions:
            options.dimensions = integer("dimensions", dimensions)
        return options


def text_prompts(values: Any) -> list[Any]:
    """Converts texts or token ids to the form of the extension module."""
    if is_array(values):
        values = list(values) if getattr(values, "ndim", 1) == 2 else [values]
    if isinstance(values, (list, tuple)) and values and not isinstance(values[0], str):
        return [token_ids(f"texts[{i}]", ids) for i, ids in enumerate(values)]
    return [utf8(f"texts[{i}]", text, may_have_zero=True) for i, text in enumerate(texts("texts", values))]
