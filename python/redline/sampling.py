"""Options of a generation, under the names of vLLM and OpenAI's API where these have them."""
from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Union

from redline import _redline
from redline._convert import assign, integer, kind_of, real, text_list, texts, utf8
from redline._options import option_names
from redline.errors import InvalidArgument

__all__ = ["SamplingOptions"]


class SamplingOptions(TypedDict, total=False):
    """Keyword arguments of generate(), chat() and their async forms. An omitted option has the model's own default
    (generation_config.json, GGUF), else temperature 0.8 and top_p 0.95; None is the same as omitting it.

    ``temperature`` 0 is greedy. ``seed``: the same seed gives the same text; omitted: a random seed for each call.
    ``min_tokens``: tokens that end the text, the model's own and ``stop_token_ids``, are excluded until there are this many.
    ``stop_in_reasoning``: in chats, the strings of ``stop`` also end the thinking; by default they act on the answer only.
    ``logprobs=k``: the log probability of each token and of the k most likely ones. At most one of ``json_schema`` (a dict, JSON,
    or a pydantic model; {} for any JSON), ``regex``, ``grammar`` (GBNF) and ``choices`` constrains the text.
    JSON has white space as models write it; ``json_compact``: none. ``json_additional_properties``: members that the schema does
    not name are allowed unless it forbids them. ``json_relaxed``: keywords that cannot be enforced are left out, not errors.
    ``logit_bias``: addends of logits by token id, -inf excludes a token. ``adapters``: names of loaded LoRA adapters, or weights
    by name. ``timeout_ms``: after this time the text ends, with finish_reason "timeout". ``n``: number of texts per prompt.
    The samplers are those of llama.cpp; ``samplers`` gives their order.
    """

    max_tokens: int | None
    n: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    seed: int | None
    stop: Union[str, Sequence[str], None]
    stop_token_ids: Union[Sequence[int], None]
    stop_in_reasoning: bool | None
    min_tokens: int | None
    ignore_eos: bool | None
    skip_special_tokens: bool | None
    add_bos: bool | None
    parse_special: bool | None
    logprobs: Union[int, bool, None]
    logit_bias: Union[Mapping[int, float], None]
    bad_words: Union[Sequence[str], None]
    json_schema: Any
    json_compact: bool | None
    json_additional_properties: bool | None
    json_relaxed: bool | None
    regex: str | None
    grammar: str | None
    choices: Union[Sequence[str], None]
    adapters: Union[str, Sequence[str], Mapping[str, float], None]
    priority: int | None
    timeout_ms: float | None
    client: str | None
    cache_salt: str | None
    penalty_last_n: int | None
    typical_p: float | None
    top_n_sigma: float | None
    xtc_probability: float | None
    xtc_threshold: float | None
    dry_multiplier: float | None
    dry_base: float | None
    dry_allowed_length: int | None
    dry_penalty_last_n: int | None
    dry_sequence_breakers: Union[Sequence[str], None]
    mirostat: int | None
    mirostat_tau: float | None
    mirostat_eta: float | None
    dynatemp_range: float | None
    dynatemp_exponent: float | None
    samplers: Union[Sequence[str], None]
    num_speculative_tokens: int | None


# A new row of include/redline/generate_options.inc is a keyword at once; type checkers know it once it is listed above.
NAMES = tuple(dict.fromkeys([*SamplingOptions.__annotations__, *option_names(_redline.GenerateOptions)]))
_TEXTS = ("stop", "bad_words", "choices", "dry_sequence_breakers", "samplers")  # lists of strings
_WITHOUT = {"choices": "any text", "samplers": "the default order"}
# Names of these options in other libraries.
_KNOWN_ELSEWHERE = {
    "max_new_tokens": "max_tokens", "max_completion_tokens": "max_tokens", "max_length": "max_tokens",
    "num_return_sequences": "n", "do_sample": "temperature (0 is greedy)", "stop_strings": "stop", "stop_sequences": "stop",
    "guided_json": "json_schema", "response_format": "json_schema", "guided_regex": "regex", "guided_grammar": "grammar",
    "guided_choice": "choices", "choice": "choices", "repeat_penalty": "repetition_penalty", "top_logprobs": "logprobs",
    "prompt_logprobs": "logits(prompt, all=True)", "allowed_token_ids": "choices, regex or logit_bias", "best_of": "n",
    "eos_token_id": "stop_token_ids", "min_new_tokens": "min_tokens", "min_length": "min_tokens", "bad_words_ids": "bad_words",
    "sampling_params": "its fields as keywords", "lora_request": "adapters", "timeout": "timeout_ms", "repeat_last_n": "penalty_last_n", "streaming": "stream",
}


def check_names(names: Sequence[str], function: str, others: Sequence[str] = ()) -> None:
    """TypeError for an unknown name; suggests the closest one."""
    for name in names:
        if name in NAMES or name in others:
            continue
        meant = _KNOWN_ELSEWHERE.get(name)
        if meant is None:
            near = difflib.get_close_matches(name, [*NAMES, *others], 1)
            meant = near[0] if near else None
        hint = f"; use {meant}" if meant else ""
        raise TypeError(f"{function}() got an unexpected keyword argument '{name}'{hint}")


def schema_text(value: Any) -> str:
    """Returns a JSON Schema as text, from text, a dict, True (any JSON), or a pydantic model."""
    if isinstance(value, str):
        return value
    if hasattr(value, "model_json_schema"):
        value = value.model_json_schema()
    if value is True:
        return "{}"
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"json_schema must be a dict, a str or a pydantic model, not {kind_of(value)}")
    try:
        return json.dumps(value)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"json_schema is not JSON: {error}") from None


def adapter_weights(value: Any) -> dict[str, float]:
    if isinstance(value, str):
        return {value: 1.0}
    if isinstance(value, Mapping):
        return {name: real(f"adapters[{name!r}]", weight) for name, weight in value.items()}
    return {name: 1.0 for name in texts("adapters", value)}


def weight_list(value: Any) -> list[tuple[bytes, float]]:
    return [(utf8("adapters", name), weight) for name, weight in adapter_weights(value).items()]


def generate_options(model: _redline.Model, values: Mapping[str, Any]) -> _redline.GenerateOptions:
    """Returns the model's defaults with `values` set, whose names have been checked."""
    options = _redline.GenerateOptions(model)
    for name, value in values.items():
        if value is None or name == "n":
            continue
        if name == "seed":
            seed = integer("seed", value, "int64" if value < 0 else "uint64") if hasattr(
                value, "__index__") else integer("seed", value)
            options.seed, options.has_seed = seed & (2**64 - 1), 1
        elif name in _TEXTS:
            found = text_list(name, value)
            if not found and name in _WITHOUT:
                raise InvalidArgument(f"{name} is an empty list; leave it out to have {_WITHOUT[name]}")
            setattr(options, name, found)
        elif name == "json_schema":
            assign(options, "json_schema", schema_text(value))
        elif name == "logprobs":
            assign(options, "logprobs", (0 if value else -1) if isinstance(value, bool) else value)
            if options.logprobs < 0 and value is not False:
                raise InvalidArgument(f"logprobs is {value}; it must be at least 0, or False")
        elif name == "logit_bias":
            if not isinstance(value, Mapping):
                raise InvalidArgument(f"logit_bias must be a dict from token ids to addends, not {kind_of(value)}")
            options.logit_bias_tokens = [
                integer("a key of logit_bias", int(k) if isinstance(k, str) and k.isdigit() else k, "int32") for k in value]
            options.logit_bias_values = [real(f"logit_bias[{k}]", v) for k, v in value.items()]
        elif name == "stop_token_ids":
            if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
                raise InvalidArgument(f"stop_token_ids must be a list of token ids, not {kind_of(value)}")
            options.stop_token_ids = [integer(f"stop_token_ids[{i}]", token, "int32") for i, token in enumerate(value)]
        elif name == "adapters":
            options.adapters = weight_list(value)
        else:
            assign(options, name, value)
    return options
