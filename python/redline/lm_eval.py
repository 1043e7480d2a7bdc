"""A model class for EleutherAI's harness: ``import redline.lm_eval`` registers it as "redline"::

    import lm_eval, redline.lm_eval
    lm_eval.simple_evaluate(model="redline", model_args="pretrained=redline-tales,dtype=f32", tasks=["lambada_openai"])

Tokenization, the beginning of a text, truncation and stop strings are those of the harness's own "hf" model.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from redline._convert import integer
from redline.errors import InvalidArgument

if TYPE_CHECKING:
    Base = object
    LM: Any = object
else:
    try:
        from lm_eval.api.model import LM
    except ImportError:  # without the harness, the methods of the class can still be called
        LM = object
    Base = LM

__all__ = ["RedlineLM"]


def rolling_windows(tokens: Sequence[int], prefix: int, length: int) -> Iterator[tuple[list[int], list[int]]]:
    """Context and predicted tokens of each window of a long text: every token is predicted once, with as much context as fits.

    >>> list(rolling_windows([0, 1, 2, 3, 4, 5], 9, 4))
    [([9], [0, 1, 2, 3]), ([1, 2, 3], [4, 5])]
    """
    done = min(length, len(tokens))
    if tokens:
        yield [prefix], list(tokens[:done])
    while done < len(tokens):
        end = min(done + length, len(tokens))
        # The window has length + 1 tokens that end with the last predicted one; what is predicted is not context.
        yield list(tokens[end - length - 1 : done]), list(tokens[done:end])
        done = end


class RedlineLM(Base):
    """loglikelihood, loglikelihood_rolling and generate_until over redline.Model.

    ``pretrained``: the path or name of a model; further options are those of redline.Model (``dtype``, ``threads``, ``context``).
    ``max_gen_toks``: maximum tokens of requests that have no limit. ``max_length``: default the model's context. ``batch_size`` and ``device`` are
    accepted and have no effect: the engine batches by itself.
    """

    def __init__(self, pretrained: str | None = None, *, model: Any = None, max_length: int | None = None,
                 max_gen_toks: int = 256, add_bos_token: bool | None = None, batch_size: Any = None, device: Any = None,
                 max_batch_size: Any = None, **options: Any) -> None:
        super().__init__()
        from redline.model import Model

        if model is None and pretrained is None:
            raise InvalidArgument("model_args: pretrained=PATH is missing")
        self.model: Model = model if model is not None else Model(str(pretrained), **options)
        self.max_gen_toks = integer("max_gen_toks", max_gen_toks)
        self.max_length = integer("max_length", max_length) if max_length else self.model.context
        self._add_bos = add_bos_token
        bos = self.model.tokenizer.encode("")
        stops = self.model.info["stop_tokens"]
        self._eot: int | None = stops[0] if stops else None
        self._prefix: int | None = bos[0] if bos else self._eot

    # ---- Tokens ----

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text."""
        if self._eot is None:
            raise InvalidArgument(f"{self.model.name} has no token that ends a text")
        return self._eot

    @property
    def prefix_token_id(self) -> int:
        """The token before a text without context: BOS, else the token that ends a text."""
        if self._prefix is None:
            raise InvalidArgument(f"{self.model.name} has neither BOS nor EOS")
        return self._prefix

    @property
    def tokenizer_name(self) -> str:
        """The name under which the harness caches requests."""
        return self.model.path.replace("/", "__")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Token ids; names of special tokens in the text are these tokens, as with the tokenizers of transformers."""
        add = add_special_tokens if add_special_tokens is not None else self._add_bos
        return self.model.tokenizer.encode(string, add_special_tokens=True if add is None else add, parse_special=True)

    def tok_decode(self, tokens: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of token ids."""
        return self.model.tokenizer.decode(tokens, skip_special_tokens=skip_special_tokens)

    def apply_chat_template(self, chat_history: list[dict[str, Any]], add_generation_prompt: bool = True) -> str:
        """The conversation as text."""
        return str(self.model.tokenizer.apply_chat_template(chat_history, tokenize=False,
                                                            add_generation_prompt=add_generation_prompt))

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The model's template."""
        return str(self.model.info["chat_template"]) if chat_template else None

    # ---- Scoring ----

    def encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Returns the tokens of context and continuation; spaces at the end of the context belong to the continuation."""
        if not context:
            ids = self.tok_encode(continuation, add_special_tokens=False)
            return ([self.prefix_token_id], ids) if not ids or ids[0] != self.prefix_token_id else (ids[:1], ids[1:])
        spaces = len(context) - len(context.rstrip())
        if spaces:
            context, continuation = context[:-spaces], context[-spaces:] + continuation
        whole, beginning = self.tok_encode(context + continuation), self.tok_encode(context)
        return beginning, whole[len(beginning) :]

    def score(self, context: Sequence[int], continuation: Sequence[int]) -> tuple[float, bool]:
        """Returns the log probability of the continuation, and True if greedy decoding generates it."""
        import numpy as np

        if not continuation:
            return 0.0, True
        if len(continuation) > self.max_length:
            raise InvalidArgument(f"a continuation of {len(continuation)} tokens is longer than max_length {self.max_length}")
        # The last token is only predicted; what is too long loses its beginning.
        ids = [*context, *continuation][-(self.max_length + 1) :][:-1]
        rows = len(continuation)
        sequence = self.model.new_sequence()
        logits = sequence.append(ids, rows=rows).reshape(rows, -1).astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        total = np.log(np.exp(logits).sum(axis=1))
        targets = np.asarray(continuation)
        chosen = logits[np.arange(rows), targets] - total
        return float(chosen.sum()), bool((logits.argmax(axis=1) == targets).all())

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """(log probability, is greedy) of each (context, continuation)."""
        results = []
        with _bar(len(requests), disable_tqdm) as bar:
            for i, request in enumerate(requests):
                context, continuation = request.args
                result = self.score(*self.encode_pair(context, continuation))
                self._cache("loglikelihood", request.args, result)
                results.append(result)
                bar.update(i + 1)
        return results

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Log probability of each whole text, in windows of max_length."""
        results = []
        with _bar(len(requests), disable_tqdm) as bar:
            for i, request in enumerate(requests):
                windows = rolling_windows(self.tok_encode(request.args[0]), self.prefix_token_id, self.max_length)
                total = sum(self.score(*window)[0] for window in windows)
                self._cache("loglikelihood_rolling", request.args, total)
                results.append(total)
                bar.update(i + 1)
        return results

    # ---- Generating ----

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """The text after each context, up to one of the strings in ``until``. All requests run as continuous batches."""
        results: list[str | None] = [None] * len(requests)
        groups: dict[str, list[int]] = {}
        for i, request in enumerate(requests):
            groups.setdefault(repr(sorted(request.args[1].items(), key=lambda item: item[0])), []).append(i)
        done = 0
        with _bar(len(requests), disable_tqdm) as bar:
            for members in groups.values():
                stop, options = self._generation(dict(requests[members[0]].args[1]))
                room = self.max_length - options["max_tokens"]
                if room < 1:
                    raise InvalidArgument(f"max_gen_toks {options['max_tokens']} leaves no room for the context in {self.max_length} "
                                          "tokens; pass a smaller one")
                prompts = [self.tok_encode(requests[i].args[0])[-room:] for i in members]
                for i, completion in zip(members, self.model.generate(prompts, stop=stop, **options)):
                    results[i] = completion.text
                    self._cache("generate_until", requests[i].args, completion.text)
                    bar.update(done := done + 1)
        return [text if text is not None else "" for text in results]

    def _generation(self, given: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
        until = given.pop("until", None)
        stop = [until] if isinstance(until, str) else list(until or [])
        max_tokens = None
        for name in ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens"):
            value = given.pop(name, None)
            max_tokens = value if max_tokens is None else max_tokens
        samples = given.pop("do_sample", None)
        temperature = given.pop("temperature", None)
        if samples is None:
            samples = bool(temperature)
        options: dict[str, Any] = {"temperature": 0.0, "repetition_penalty": given.get("repetition_penalty", 1.0)}
        if samples:
            options.update({name: given[name] for name in ("top_p", "top_k", "min_p", "seed") if name in given})
            options["temperature"] = float(temperature if temperature is not None else 1.0)
        options["max_tokens"] = integer("max_gen_toks", max_tokens if max_tokens is not None else self.max_gen_toks)
        return [s for s in stop if s], options

    def _cache(self, kind: str, arguments: Any, result: Any) -> None:
        hook = getattr(self, "cache_hook", None)
        if hook is not None:
            hook.add_partial(kind, arguments, result)


def _bar(total: int, is_off: bool) -> Any:
    from redline._progress import ProgressBar

    return ProgressBar(total, unit="request", shown=False if is_off else None)


def _register() -> None:
    try:
        import lm_eval.models  # the harness looks for its own only while there are none
        from lm_eval.api.registry import register_model
    except ImportError:
        return
    register_model("redline")(RedlineLM)


_register()
