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


def write_tasks(folder, root):
    """Tasks of each kind that the model class serves, with data from local JSON; the harness's own format of tasks."""
    lines = [line.strip() for line in (root / "assets/redline-tales/reference/eval.txt").read_text().splitlines() if len(line) > 80][:6]
    choices, rolling, prompts = [], [], []
    for i, line in enumerate(lines):
        words = line.split()
        options = [" ".join(words[6:9]), " ".join(reversed(words[6:9])), "seven green bananas"]
        order = options[i % 3:] + options[: i % 3]
        choices.append({"question": " ".join(words[:6]), "choices": order, "label": order.index(options[0])})
        rolling.append({"text": line})
        prompts.append({"prompt": " ".join(words[:5]), "answer": words[5]})
    sets = root.parent / "shared/models/prompt-sets"
    for path in sorted(sets.glob("*.jsonl"))[:3]:  # texts that are not the model's own, with other characters
        rolling += [{"text": json.loads(line)["turns"][0][:600]} for line in path.read_text().splitlines()[:1]]
    kinds = {
        "choices": (choices, {"output_type": "multiple_choice", "doc_to_text": "{{question}}", "doc_to_choice": "choices",
                              "doc_to_target": "label"}),
        "rolling": (rolling, {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}",
                              "metric_list": [{"metric": m} for m in ("word_perplexity", "byte_perplexity", "bits_per_byte")]}),
        "generate": (prompts, {"output_type": "generate_until", "doc_to_text": "{{prompt}}", "doc_to_target": "{{answer}}",
                               "generation_kwargs": {"until": ["\n", "."], "max_gen_toks": 12, "do_sample": False},
                               "metric_list": [{"metric": "exact_match"}]}),
    }
    for name, (rows, task) in kinds.items():
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        (folder / f"{name}.yaml").write_text(json.dumps({  # JSON is YAML
            "task": f"redline_{name}", "dataset_path": "json", "test_split": "test",
            "dataset_kwargs": {"data_files": {"test": str(folder / f"{name}.jsonl")}}, **task}))
    return [f"redline_{name}" for name in kinds]


def test_the_harness_gives_the_figures_of_its_own_model(root, tmp_path, monkeypatch):
    """lm_eval itself over both model classes: every figure to 1e-3, every log probability, every text."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    lm_eval = pytest.importorskip("lm_eval", reason="lm_eval is not installed: pip install lm_eval[hf]")
    pytest.importorskip("torch", reason="the harness's hf model needs PyTorch")
    pytest.importorskip("transformers", reason="the harness's hf model needs transformers")
    import redline.lm_eval  # noqa: F401  # registers the model
    from lm_eval.tasks import TaskManager

    (tmp_path / "tasks").mkdir()
    names = write_tasks(tmp_path / "tasks", root)
    tasks = TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False)
    folder = root / "assets/redline-tales"
    results = {}
    for kind, arguments in (("hf", {"pretrained": str(folder), "dtype": "float32"}),
                            ("redline", {"pretrained": str(folder), "dtype": "f32", "threads": 2})):
        results[kind] = lm_eval.simple_evaluate(model=kind, model_args=arguments, tasks=names, task_manager=tasks, device="cpu",
                                                batch_size=1, bootstrap_iters=0, log_samples=True, verbosity="ERROR")
    for name in names:
        figures = {kind: {key: value for key, value in found["results"][name].items() if isinstance(value, float)}
                   for kind, found in results.items()}
        # Perplexities of texts that are not the model's own are 1e5 and more: there 1e-3 is below float32's rounding.
        assert figures["redline"] == pytest.approx(figures["hf"], rel=1e-5, abs=1e-3, nan_ok=True) and figures["hf"]
        for ours, theirs in zip(results["redline"]["samples"][name], results["hf"]["samples"][name], strict=True):
            for answer, expected in zip(ours["filtered_resps"], theirs["filtered_resps"], strict=True):
                if isinstance(expected, str):
                    assert answer == expected
                elif isinstance(expected, (tuple, list)):
                    assert float(answer[0]) == pytest.approx(float(expected[0]), abs=1e-3) and str(answer[1]) == str(expected[1])
                else:
                    assert float(answer) == pytest.approx(float(expected), abs=1e-3)
