"""redline.lm_eval through the harness's contract (Instance.args), and against stored figures of PyTorch transformers."""
import dataclasses
import json
import math

import numpy as np
import pytest
from redline.lm_eval import RedlineLM


@dataclasses.dataclass
class Instance:
    """As lm_eval.api.instance.Instance: what model classes use of it."""

    args: tuple


@pytest.fixture(name="lm", scope="module")
def lm_fixture(model):
    return RedlineLM(model=model)


def test_loglikelihood(lm, model):
    pairs = [("Once upon a", " time"), ("Once upon a ", "time"), ("", "Once upon"), ("The dog", ""), ("Once upon a", " banana")]
    found = lm.loglikelihood([Instance(pair) for pair in pairs], disable_tqdm=True)
    for (context, continuation), (logprob, is_greedy) in zip(pairs, found):
        beginning, ids = lm.encode_pair(context, continuation)
        expected, greedy = 0.0, True
        for i, token in enumerate(ids):
            logits = model.logits([*beginning, *ids[:i]]).astype(np.float64)
            expected += logits[token] - logits.max() - math.log(np.exp(logits - logits.max()).sum())
            greedy = greedy and int(logits.argmax()) == token
        assert logprob == pytest.approx(expected, abs=1e-3) and is_greedy == greedy
    assert found[0] == found[1]  # the space belongs to the continuation


def test_perplexity_is_that_of_transformers(lm, root):
    """The stored figure was computed by PyTorch: pieces of 511 tokens, each after token 0."""
    folder = root / "assets/redline-tales/reference"
    stored = json.loads((folder / "perplexity.json").read_text())
    ids = lm.tok_encode((folder / "eval.txt").read_text(), add_special_tokens=False)
    assert len(ids) == stored["tokens"]
    total = sum(lm.score([0], ids[i : i + 511])[0] for i in range(0, len(ids), 511))
    assert -total / len(ids) == pytest.approx(stored["nats_per_token"], abs=1e-3)


def test_rolling(lm, model):
    text = "Once upon a time there was a little dog. " * 3
    whole = lm.loglikelihood_rolling([Instance((text,))], disable_tqdm=True)[0]
    ids = lm.tok_encode(text)
    assert whole == pytest.approx(lm.score([lm.prefix_token_id], ids)[0], abs=1e-3)
    short = RedlineLM(model=model, max_length=8)
    windows = short.loglikelihood_rolling([Instance((text,))], disable_tqdm=True)[0]
    assert math.isfinite(windows) and windows < whole  # less context


def test_generate_until(lm, model):
    requests = [Instance((p, {"until": ["\n", "."], "max_gen_toks": 30, "do_sample": False})) for p in ("Once upon", "The dog")]
    requests.append(Instance(("One day", {"until": "dog", "max_gen_toks": 10})))
    found = lm.generate_until(requests, disable_tqdm=True)
    assert len(found) == 3 and "." not in found[0] and "." not in found[1]
    assert found[0] == model.generate(lm.tok_encode("Once upon"), temperature=0, stop=["\n", "."], max_tokens=30,
                                      repetition_penalty=1.0).text
    with pytest.raises(ValueError, match="no room for the context"):
        lm.generate_until([Instance(("x", {"max_gen_toks": 10**6}))])


def test_results_go_to_the_cache(model):
    lm, kept = RedlineLM(model=model), []

    class Hook:
        def add_partial(self, *arguments):
            kept.append(arguments)

    lm.cache_hook = Hook()
    lm.loglikelihood([Instance(("a", " b"))], disable_tqdm=True)
    lm.generate_until([Instance(("a", {"max_gen_toks": 1}))], disable_tqdm=True)
    assert [k[0] for k in kept] == ["loglikelihood", "generate_until"]


def test_against_transformers(lm, root):
    """The same figures from PyTorch, where it is installed."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = root / "assets/redline-tales"
    reference = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    lines = [line for line in (folder / "reference/eval.txt").read_text().splitlines() if len(line) > 60][:8]
    for line in lines:
        words = line.split(" ")  # split between tokens: a word may be one token
        context, continuation = " ".join(words[:6]), " " + " ".join(words[6:11])
        beginning, ids = lm.encode_pair(context, continuation)
        assert beginning == tokenizer.encode(context) and [*beginning, *ids] == tokenizer.encode(context + continuation)
        with torch.no_grad():
            logprobs = reference(torch.tensor([[*beginning, *ids]])).logits[0].log_softmax(-1)
        expected = sum(float(logprobs[len(beginning) - 1 + i, token]) for i, token in enumerate(ids))
        assert lm.score(beginning, ids)[0] == pytest.approx(expected, abs=1e-3)
