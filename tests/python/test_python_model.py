"""redline.Model: generating, batches, streams, logits, tokenizer."""
import copy
import gc
import itertools
import json
import os
import pickle
import threading
import weakref

import numpy as np
import pytest
import redline
from thinker import make_thinker

PROMPT = "Once upon a time"


def greedy(model, prompt, **options):
    return model.generate(prompt, **{"temperature": 0, "max_tokens": 12, **options})


def test_text_tokens_and_counts(model):
    c = greedy(model, PROMPT)
    assert c.finish_reason == "length" and len(c.token_ids) == 12
    assert c.usage.completion_tokens == 12
    assert c.usage.prompt_tokens == len(model.tokenizer.encode(PROMPT))
    assert c.usage.total_tokens == c.usage.prompt_tokens + 12
    assert model.tokenizer.decode(c.token_ids).strip() == c.text.strip()
    assert c.logprobs is None and str(c) == c.text
    assert c.timings.first_token_ms > 0
    assert "tokens" in c._repr_html_()


def test_token_ids_as_list_and_arrays(model):
    ids = model.tokenizer.encode(PROMPT)
    expected = greedy(model, PROMPT).token_ids
    for prompt in (ids, tuple(ids), np.array(ids), np.array(ids, np.int32), np.array(ids, np.uint16),
                   np.repeat(ids, 2)[::2], np.array(ids, ">i4")):
        assert greedy(model, prompt).token_ids == expected


def test_a_list_runs_as_one_batch(model):
    prompts = [PROMPT, "The little dog", "One day", "In the morning the sun"]
    alone = [greedy(model, p).text for p in prompts]
    before = model.stats["steps"]
    together = greedy(model, prompts)
    steps = model.stats["steps"] - before
    assert [c.text for c in together] == alone
    assert [c.index for c in together] == [0, 1, 2, 3]
    assert steps < 2 * 12  # not the 4 * 12 of one after the other
    rows = np.array([model.tokenizer.encode("The little")[:2]] * 3)
    assert len(greedy(model, rows, max_tokens=2)) == 3
    assert greedy(model, []) == []


def test_a_batch_shows_its_progress(model, capsys):
    prompts = [PROMPT, "The little dog", "One day"]
    expected = [c.text for c in greedy(model, prompts)]
    assert capsys.readouterr().err == ""  # not a terminal
    assert [c.text for c in greedy(model, prompts, progress=True)] == expected
    bar = capsys.readouterr().err
    assert "0/3" in bar and "3/3" in bar and "text" in bar and bar.endswith("\n")
    with pytest.raises(redline.InvalidArgument, match="context"):
        greedy(model, [PROMPT, [1] * (model.context + 1)], progress=True)
    assert greedy(model, PROMPT, progress=True).text == expected[0]


def test_n_texts_of_a_prompt(model):
    found = model.generate(PROMPT, n=3, seed=7, temperature=1, max_tokens=8)
    assert len(found) == 3 and [c.seed for c in found] == [7, 8, 9]
    assert found[1].text == model.generate(PROMPT, seed=8, temperature=1, max_tokens=8).text
    lists = model.generate([PROMPT, "The dog"], n=2, max_tokens=2)
    assert [len(one) for one in lists] == [2, 2]


def test_seeds(model):
    first, again = (model.generate(PROMPT, seed=3, temperature=1.0, max_tokens=16).text for _ in range(2))
    assert first == again
    seeds = {model.generate(PROMPT, temperature=1.0, max_tokens=1).seed for _ in range(4)}
    assert len(seeds) == 4
    text = model.generate(PROMPT, temperature=1.0, max_tokens=16)
    assert model.generate(PROMPT, temperature=1.0, max_tokens=16, seed=text.seed).text == text.text


def test_stop_strings(model):
    whole = greedy(model, PROMPT, max_tokens=40).text
    word = whole.split()[5]
    cut = greedy(model, PROMPT, max_tokens=40, stop=word)
    assert cut.finish_reason == "stop" and cut.text == whole[: whole.index(word)]
    assert greedy(model, PROMPT, max_tokens=40, stop=["no such text", word]).text == cut.text


def test_stop_strings_of_a_model_that_thinks(tmp_path):
    """They act on the answer, and on the thinking only where that is asked for."""
    ask = [{"role": "user", "content": "Tell me a story about a cat"}]
    with redline.Model(make_thinker(tmp_path / "thinker")) as thinker:
        def answer(**options):
            return thinker.chat(ask, temperature=0, max_tokens=200, **options).message

        reasoning = answer(choices=["one two three"])["reasoning_content"]
        word = reasoning.split()[2]
        choices = [f"one {word} three"]
        whole = answer(choices=choices, stop=word)
        assert (whole["reasoning_content"], whole["content"]) == (reasoning, "one ")
        cut = answer(choices=choices, stop=word, stop_in_reasoning=True)
        assert not cut.get("content")
        assert cut["reasoning_content"].rstrip() == reasoning[:reasoning.index(word)].rstrip()


def test_logprobs(model):
    c = greedy(model, PROMPT, max_tokens=3, logprobs=2)
    assert len(c.logprobs) == 3
    logits = model.logits(PROMPT).astype(np.float64)
    expected = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    first = c.logprobs[0]
    assert first.token_id == c.token_ids[0] == int(logits.argmax())
    assert first.logprob == pytest.approx(expected.max(), abs=1e-4)
    assert len(first.top) == 2 and first.top[0] == (first.token_id, pytest.approx(first.logprob))
    assert greedy(model, PROMPT, max_tokens=1, logprobs=True).logprobs[0].top == ()


def test_bytes_of_tokens(model):
    """A character that two tokens share has its bytes in both, and U+FFFD in none."""
    tokenizer = model.tokenizer
    text = "été, 12 naïve"
    ids = tokenizer.encode(text, add_special_tokens=False)
    pieces = [tokenizer.token_bytes(i) for i in ids]
    assert b"".join(pieces) == text.encode()
    assert any(len(piece) == 1 and piece[0] >= 0x80 for piece in pieces), "else the text tells nothing"
    special = tokenizer.encode("<|im_end|>", add_special_tokens=False, parse_special=True)
    if len(special) == 1:
        assert tokenizer.token_bytes(special[0]) == b"<|im_end|>" and tokenizer.token_bytes(special[0], skip_special_tokens=True) == b""
    for wrong in (-1, tokenizer.vocab_size):
        with pytest.raises(redline.InvalidArgument, match="outside the vocabulary"):
            tokenizer.token_bytes(wrong)
    with pytest.raises(redline.InvalidArgument):
        tokenizer.token_bytes("x")
    c = greedy(model, PROMPT, max_tokens=2, logprobs=1, choices=["é"])
    assert b"".join(each.token_bytes for each in c.logprobs) == "é".encode()
    with greedy(model, PROMPT, max_tokens=2, logprobs=1, choices=["é"], stream=True) as stream:
        assert b"".join(chunk.logprob.token_bytes for chunk in stream if chunk.logprob) == "é".encode()


def test_constraints(model):
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}},
              "required": ["name", "age"], "additionalProperties": False}
    for value in (schema, json.dumps(schema)):
        data = json.loads(model.generate("A cat:", json_schema=value, max_tokens=200, seed=1).text)
        assert set(data) == {"name", "age"}
    assert model.generate("Colour:", choices=["red", "green"], max_tokens=10, seed=1).text in ("red", "green")
    assert model.generate("Number:", regex="[0-9]{3}", max_tokens=10, seed=1).text.isdigit()
    assert model.generate("Say:", grammar='root ::= "yes" | "no"', max_tokens=10, seed=1).text in ("yes", "no")


def test_logit_bias(model):
    best = greedy(model, PROMPT, max_tokens=1).token_ids[0]
    assert greedy(model, PROMPT, max_tokens=1, logit_bias={best: float("-inf")}).token_ids[0] != best
    assert greedy(model, PROMPT, max_tokens=1, logit_bias={"5": 1000.0}).token_ids == [5]


def test_tokens_that_end_a_text(model):
    ids = greedy(model, PROMPT, ignore_eos=True, max_tokens=12).token_ids
    last = ids.index(ids[5])
    for given in ([ids[5]], (ids[5],), np.array([ids[5], model.vocab_size - 1])):
        found = greedy(model, PROMPT, ignore_eos=True, max_tokens=12, stop_token_ids=given)
        assert (found.token_ids, found.finish_reason) == (ids[:last], "stop")
    # Excluded before there are min_tokens: another token is drawn there.
    found = greedy(model, PROMPT, ignore_eos=True, max_tokens=12, stop_token_ids=[ids[5]], min_tokens=last + 2)
    assert len(found.token_ids) >= last + 2 and found.token_ids[: last] == ids[:last] and found.token_ids[last] != ids[5]
    several = greedy(model, [PROMPT] * 2, n=2, seed=1, ignore_eos=True, max_tokens=12, stop_token_ids=[ids[5]])
    assert [c.token_ids for texts in several for c in texts] == [ids[:last]] * 4


def test_stream(model):
    whole = greedy(model, PROMPT)
    stream = greedy(model, PROMPT, stream=True)
    chunks = list(stream)
    assert "".join(c.text for c in chunks) == whole.text
    assert [c.token_id for c in chunks if c.token_id is not None] == whole.token_ids
    assert stream.completion.text == whole.text and stream.completion.finish_reason == "length"
    assert next(stream, None) is None
    with greedy(model, [PROMPT, "The dog"], stream=True, logprobs=1) as several:
        by_index = {0: "", 1: ""}
        for chunk in several:
            by_index[chunk.index] += chunk.text
            assert chunk.token_id is None or chunk.logprob.token_id == chunk.token_id
        assert [c.text for c in several.completions] == list(by_index.values())
        with pytest.raises(ValueError, match="use completions"):
            _ = several.completion


def test_stream_cancel_and_drop(model):
    stream = model.generate(PROMPT, max_tokens=2000, ignore_eos=True, stream=True)
    first = list(itertools.islice(stream, 3))
    stream.cancel()
    completion = stream.completion
    assert completion.finish_reason == "cancelled"
    assert completion.token_ids[:3] == [c.token_id for c in first]
    dropped = model.generate(PROMPT, max_tokens=2000, ignore_eos=True, stream=True)
    next(dropped)
    reference = weakref.ref(dropped)
    del dropped
    assert reference() is None  # no cycle keeps it
    while model.stats["running"]:
        pass
    closed = model.generate(PROMPT, max_tokens=5, stream=True)
    closed.close()
    assert list(closed) == []
    with pytest.raises(ValueError, match="closed"):
        _ = closed.completion


def test_threads(model):
    prompts = [f"The {word}" for word in ("dog", "cat", "sun", "king", "boat", "tree", "house", "bird")]
    expected = [greedy(model, p).text for p in prompts]
    found, errors = [None] * 8, []

    def run(i):
        try:
            for _ in range(3):
                found[i] = greedy(model, prompts[i]).text
                list(greedy(model, prompts[i], stream=True))
                model.logits(prompts[i])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert errors == [] and found == expected


def test_python_runs_while_the_model_computes(model):
    counted, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counted[0] += 1

    counter = threading.Thread(target=count)
    counter.start()
    try:
        greedy(model, PROMPT, max_tokens=50)
    finally:
        done.set()
        counter.join()
    assert counted[0] > 100  # far below what is counted in that time; with the lock held it would be a handful


def test_logits(model):
    ids = model.tokenizer.encode(PROMPT)
    last, every = model.logits(ids), model.logits(np.array(ids), all=True)
    assert last.dtype == np.float32 and last.shape == (model.vocab_size,)
    assert every.shape == (len(ids), model.vocab_size) and every.flags.c_contiguous
    np.testing.assert_allclose(every[-1], last, atol=1e-5)
    np.testing.assert_array_equal(np.from_dlpack(last), last)


def test_sequences(model):
    ids = model.tokenizer.encode(PROMPT)
    expected = model.logits(ids, all=True)
    sequence = model.new_sequence()
    sequence.append(ids[:2], rows=0)
    np.testing.assert_allclose(sequence.append(ids[2:], rows=2), expected[-2:], atol=1e-4)
    assert len(sequence) == len(ids)
    fork = sequence.fork()
    assert sequence.truncate(2) == 2 and len(sequence) == 2 and len(fork) == len(ids)
    np.testing.assert_allclose(sequence.append(ids[2:]), expected[-1], atol=1e-4)
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(sequence)


def test_drafts_do_not_change_the_text(root):
    folder = root / "assets/redline-tales"
    prompt = "The dog ran to the park. The dog ran to the park. The dog"
    copy_of = r"( ran to the park\. The dog){3}"
    with redline.Model(folder, dtype="f32", threads=2) as model:
        expected = greedy(model, prompt, max_tokens=40, regex=copy_of)
        assert expected.usage.drafted_tokens == 0
    with redline.Model(folder, dtype="f32", threads=2, speculate="prompt-lookup", num_speculative_tokens=6) as model:
        c = greedy(model, prompt, max_tokens=40, regex=copy_of)
        assert c.token_ids == expected.token_ids
        assert c.usage.drafted_tokens >= c.usage.accepted_tokens > 0
        assert model.stats["accepted_tokens"] == c.usage.accepted_tokens
    with pytest.raises(redline.InvalidArgument, match='no drafter "medusa"'):
        redline.Model(folder, speculate="medusa")
    with pytest.raises(TypeError, match="use num_speculative_tokens"):
        redline.Model(folder, draft_max=3)


def embedding_table(folder):
    """The embeddings of a folder's tokens: its safetensors file has them in bfloat16."""
    data = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    entry = json.loads(data[8 : 8 + length])["model.embed_tokens.weight"]
    assert entry["dtype"] == "BF16"
    begin, end = (8 + length + offset for offset in entry["data_offsets"])
    bits = np.frombuffer(data[begin:end], np.uint16).astype(np.uint32) << 16
    return bits.view(np.float32).reshape(entry["shape"])


def test_prompts_of_tokens_and_embeddings(root):
    folder = root / "assets/redline-tales"
    table = embedding_table(folder)
    with redline.Model(folder, dtype="f32", threads=2, prompt_embeddings=True) as model:
        ids = model.tokenizer.encode("Once upon a time there was a dog")
        prompt = redline.Prompt([ids[:2], table[ids[2:5]], np.array(ids[5:])])
        assert len(prompt) == len(ids)
        np.testing.assert_array_equal(model.logits(prompt, all=True), model.logits(ids, all=True))
        np.testing.assert_array_equal(model.logits(prompt), model.logits(ids))
        expected = greedy(model, ids).token_ids
        assert greedy(model, prompt).token_ids == expected
        batch = greedy(model, [prompt, "Once upon a time there was a dog", ids])
        assert [c.token_ids for c in batch] == [expected] * 3
        sequence = model.new_sequence()
        sequence.append(prompt, rows=0)
        assert len(sequence) == len(ids)

        def image(seed, **named):
            rows = np.random.default_rng(seed).normal(0, 0.05, (40, table.shape[1])).astype(np.float32)
            return redline.Prompt([ids[:3], redline.EmbeddingRows(rows, **named), [7]])

        assert greedy(model, image(1)).usage.cached_tokens == 3
        assert greedy(model, image(1)).usage.cached_tokens == 43
        assert greedy(model, image(2)).usage.cached_tokens == 3  # other rows at the same placeholders
        greedy(model, image(1, media_hash=5))
        assert greedy(model, image(1, media_hash=5)).usage.cached_tokens == 43
        positions = np.zeros((40, 3), np.int32)
        with pytest.raises(redline.InvalidArgument, match="positions on 3 axes; the model's positions have 1"):
            greedy(model, image(1, positions=positions))
        with pytest.raises(redline.InvalidArgument, match=r"layer_rows"):
            image(1, layer_rows=np.zeros((2, 3, 4), np.float32))
        with pytest.raises(redline.InvalidArgument, match=r"rows of 255 numbers; the model's hidden_size is 256"):
            model.logits(redline.Prompt([table[:4, :255]]))
        with pytest.raises(redline.InvalidArgument, match="NaN"):
            redline.Prompt([np.full((2, 256), np.nan, np.float32)])
        with pytest.raises(redline.InvalidArgument, match="spans"):
            redline.Prompt("a text")
    with redline.Model(folder) as plain, pytest.raises(redline.Unsupported, match="prompt_embeddings"):
        plain.generate(prompt)


def test_tokenizer(model):
    tokenizer = model.tokenizer
    assert len(tokenizer) == tokenizer.vocab_size == model.vocab_size
    ids = tokenizer.encode("Hello there.")
    assert tokenizer.decode(ids) == "Hello there."
    assert tokenizer.decode(np.array(ids, np.int64)) == "Hello there."
    assert tokenizer.decode([]) == ""
    assert len(tokenizer.encode("x", add_special_tokens=False)) <= len(tokenizer.encode("x"))
    with pytest.raises(ValueError, match="vocabulary|token"):
        tokenizer.decode([10**8])
    with pytest.raises(ValueError, match="integers"):
        tokenizer.decode([0.5])


def test_chat(model):
    if not model.has_chat_template:
        pytest.skip("the bundled model has no chat template")
    messages = [{"role": "user", "content": "Tell me a story about a dog."}]
    text = model.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert "story about a dog" in text
    ids = model.tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    assert ids == model.tokenizer.encode(text, parse_special=True)
    answer = model.chat(messages, temperature=0, max_tokens=10)
    assert answer.content and answer.message == {"role": "assistant", "content": answer.content}
    assert greedy(model, messages, max_tokens=10).token_ids == answer.token_ids
    assert model.chat("Tell me a story about a dog.", temperature=0, max_tokens=10).content == answer.content
    stream = model.chat(messages, temperature=0, max_tokens=10, stream=True)
    assert "".join(c.text for c in stream) == answer.content
    assert [a.content for a in model.chat([messages, messages], temperature=0, max_tokens=10)] == [answer.content] * 2


def test_adapters(root):
    tales = root / "assets/redline-tales"
    if not (tales / "adapters/shout/adapter_model.safetensors").exists():
        pytest.skip("the adapters are not unpacked: build the program")
    with redline.Model(tales, adapters={"shout": tales / "adapters/shout"}) as model:
        shouted = greedy(model, PROMPT, max_tokens=20).text
        plain = greedy(model, PROMPT, max_tokens=20, adapters={"shout": 0.0}).text
        assert shouted == shouted.upper() and plain != shouted
        assert greedy(model, PROMPT, max_tokens=20, adapters="shout").text == shouted
        with pytest.raises(redline.NotFound, match="whisper"):
            greedy(model, PROMPT, adapters="whisper")
    with redline.Model(tales, max_adapter_rank=64) as model:
        model.load_adapter("lower", tales / "adapters/lower")
        lowered = greedy(model, PROMPT, max_tokens=20, adapters=["lower"]).text
        assert lowered == lowered.lower()
        model.unload_adapter("lower")


def test_closing(root):
    model = redline.Model(root / "assets/redline-tales")
    tokenizer = model.tokenizer
    stream = model.generate(PROMPT, max_tokens=3000, ignore_eos=True, stream=True)
    next(stream)
    model.close()
    model.close()
    assert model.closed and "closed" in repr(model)
    for use in (lambda: model.generate("x"), lambda: model.logits("x"), lambda: tokenizer.encode("x"), lambda: model.info,
                lambda: model.new_sequence(), lambda: model.vocab_size, lambda: model.generate([])):
        with pytest.raises(redline.ClosedError, match="closed; open it again"):
            use()
    for _ in stream:
        pass
    assert stream.completion.finish_reason == "cancelled"


def test_a_model_goes_with_its_last_reference(root):
    model = redline.Model(root / "assets/redline-tales")
    greedy(model, PROMPT, max_tokens=1)
    list(greedy(model, PROMPT, max_tokens=1, stream=True))
    model.logits(PROMPT)
    reference = weakref.ref(model)
    gc.disable()
    try:
        del model
        assert reference() is None
    finally:
        gc.enable()


def test_close_while_other_threads_generate(root):
    for _ in range(3):
        model = redline.Model(root / "assets/redline-tales")
        started, outcomes = threading.Barrier(4), []

        def run():
            started.wait()
            try:
                outcomes.append(model.generate(PROMPT, max_tokens=3000, ignore_eos=True).finish_reason)
            except redline.ClosedError:
                outcomes.append("closed")

        threads = [threading.Thread(target=run) for _ in range(3)]
        for t in threads:
            t.start()
        started.wait()
        model.close()
        for t in threads:
            t.join()
        assert set(outcomes) <= {"closed", "cancelled", "context", "length", "stop"} and len(outcomes) == 3


def test_pickling_and_copying_are_refused(model):
    for act in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"cannot be pickled or copied.*redline\.Model\(path\)"):
            act(model)


@pytest.mark.parametrize("options, message", [
    ({"temperature": "hot"}, "temperature must be a number, not 'hot'"),
    ({"temperature": float("nan")}, "temperature is NaN"),
    ({"temperature": -1.0}, "temperature"),
    ({"top_p": 2.0}, "top_p"),
    ({"max_tokens": 2.5}, "max_tokens must be an integer"),
    ({"max_tokens": 2**70}, "max_tokens is"),
    ({"max_tokens": -5}, "max_tokens"),
    ({"n": 0}, "n is 0"),
    ({"seed": "x"}, "seed must be an integer"),
    ({"stop": 5}, "stop must be a str or a list of str"),
    ({"stop": ["a", 5]}, r"stop\[1\] must be a str"),
    ({"regex": "("}, "group is not closed"),
    ({"grammar": "x y"}, "grammar: line 1"),
    ({"json_schema": 5}, "json_schema must be a dict"),
    ({"json_schema": {"type": "nonsense"}}, "JSON schema: .*unknown type"),
    ({"regex": "a", "choices": ["a"]}, "regex|choices|one"),
    ({"logit_bias": [1, 2]}, "logit_bias must be a dict"),
    ({"samplers": ["guess"]}, "guess"),
    ({"samplers": []}, "samplers is an empty list; leave it out to have the default order"),
    ({"choices": []}, "choices is an empty list"),
    ({"logprobs": "x"}, "logprobs must be an integer"),
    ({"logprobs": -3}, "logprobs is -3; it must be at least 0, or False"),
    ({"stop_token_ids": 5}, "stop_token_ids must be a list of token ids, not 5"),
    ({"stop_token_ids": "5"}, "stop_token_ids must be a list of token ids, not '5'"),
    ({"stop_token_ids": [1, 2.5]}, r"stop_token_ids\[1\] must be an integer"),
    ({"stop_token_ids": [10**7]}, "stop token 10000000 is outside the vocabulary"),
    ({"min_tokens": -1}, "min_tokens -1 must not be negative"),
    ({"adapters": 3}, "adapters must be a str or a list of str"),
    ({"regex": "a\0b"}, "zero character"),
])
def test_bad_options(model, options, message):
    with pytest.raises(redline.InvalidArgument, match=message) as raised:
        model.generate(PROMPT, **{"max_tokens": 2, **options})
    assert isinstance(raised.value, ValueError)


def test_unknown_names(model, root):
    with pytest.raises(TypeError, match="unexpected keyword argument 'max_new_tokens'; use max_tokens"):
        model.generate(PROMPT, max_new_tokens=2)
    with pytest.raises(TypeError, match=r"'prompt_logprobs'; use logits\(prompt, all=True\)"):
        model.generate(PROMPT, prompt_logprobs=2)
    with pytest.raises(TypeError, match="'temprature'; use temperature"):
        model.generate(PROMPT, temprature=2)
    with pytest.raises(TypeError, match="'n_ctx'; use context"):
        redline.Model(root / "assets/redline-tales", n_ctx=20)
    with pytest.raises(TypeError, match="'thread'; use threads"):
        redline.Model(root / "assets/redline-tales", thread=20)


@pytest.mark.parametrize("prompt, message", [
    (5, "prompt must be a str"),
    (b"bytes", "prompt must be a str"),
    (None, "prompt must be a str"),
    ({"role": "user"}, "prompt must be a str"),
    ([1, "x"], "must be integers"),
    ([1.5, 2.5], "must be integers"),
    ([2**40], "range of int32"),
    ([10**8], "vocabulary|token"),
    (np.array([1.0, 2.0]), "dtype float64; token ids are integers"),
    (np.zeros((1, 2, 3), np.int32), "shape"),
    ("half \ud800", "surrogate"),
    ([{"content": "x"}], "role"),
])
def test_bad_prompts(model, prompt, message):
    with pytest.raises(redline.InvalidArgument, match=message):
        model.generate(prompt, max_tokens=1)


def test_a_prompt_that_is_too_long(model):
    with pytest.raises(redline.InvalidArgument, match=str(model.context)):
        model.generate([1] * (model.context + 1), max_tokens=1)
    with pytest.raises(redline.InvalidArgument, match="tokens"):
        model.logits([])


def test_models_that_are_none(root, tmp_path):
    with pytest.raises(redline.NotFound, match="did you mean .*redline-tales") as raised:
        redline.Model("redline-tails")
    assert isinstance(raised.value, FileNotFoundError) and raised.value.code == "not_found"
    with pytest.raises(redline.NotFound, match="redline pull hf:nobody/nothing"):
        redline.Model("hf:nobody/nothing")
    with pytest.raises(redline.NotFound, match="hf:owner/name"):
        redline.Model("owner/name")
    with pytest.raises(redline.InvalidArgument, match="must be a path"):
        redline.Model(5)
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(20))
    with pytest.raises(redline.Error, match="broken.gguf"):
        redline.Model(tmp_path / "broken.gguf")
    with pytest.raises(redline.InvalidArgument, match="dtype|f33"):
        redline.Model(root / "assets/redline-tales", dtype="f33")
    with pytest.raises(redline.InvalidArgument, match="threads"):
        redline.Model(root / "assets/redline-tales", threads="two")


def test_dtype_converts_weights(root):
    with redline.Model(root / "assets/redline-tales", dtype="w8a8", threads=1, context=64) as opened:
        conversion = opened.info["conversion"]
        assert conversion["type"] == "w8a8" and 0 < conversion["relative_error"] < 0.02 and not conversion["kept"]
        assert "w8a8 x" in opened.info["weight_types"]
        assert opened.generate("Once upon", max_tokens=2, temperature=0).text
    with redline.Model(root / "assets/redline-tales", threads=1, context=64) as stored:
        assert "conversion" not in stored.info


def test_hub_names(monkeypatch, tmp_path):
    from redline._names import find_model

    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--some--model"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs/main").write_text("abc")
    (folder / "snapshots/abc").mkdir(parents=True)
    (folder / "snapshots/abc/model-Q4_K_M.gguf").touch()
    assert find_model("hf:some/model:q4_k_m").endswith("model-Q4_K_M.gguf")
    assert find_model("hf:some/model").endswith("model-Q4_K_M.gguf")
    (folder / "snapshots/abc/config.json").touch()
    assert find_model("hf:some/model").endswith("snapshots/abc")
    with pytest.raises(redline.NotFound, match="no GGUF file of type Q8_0"):
        find_model("hf:some/model:Q8_0")
    with pytest.raises(redline.InvalidArgument, match="write hf:owner/name"):
        find_model("hf:nothing")


def test_reports(model):
    assert {"model", "memory", "stats", "sampling"} <= set(model.describe())
    assert model.info["architecture"] == "llama"
    assert model.name == "redline-tales" and os.path.isdir(model.path) and model.path in repr(model)
    assert "llama" in model._repr_html_()
    result = redline.bench(model, prefill=8, decode=2, runs=2)
    assert len(result.prefill_runs) == 2 and "prefill" in str(result) and "<table>" in result._repr_html_()
    with pytest.raises(ValueError, match="more than the context"):
        redline.bench(model, prefill=10**6)
    assert redline.devices()[0].name == "cpu" and "cpu" in str(redline.devices())
    with pytest.raises(redline.Unsupported, match="generates text"):
        model.embed("x")


def test_shared_runtime(root):
    with redline.Runtime(threads=1) as runtime:
        models = [redline.Model(root / "assets/redline-tales", runtime=runtime) for _ in range(2)]
        assert greedy(models[0], PROMPT).text == greedy(models[1], PROMPT).text
    with pytest.raises(redline.InvalidArgument, match=r"runtime must be a redline.Runtime, not 3"):
        redline.Model(root / "assets/redline-tales", runtime=3)
    with pytest.raises(redline.ClosedError, match=r"runtime is closed; open it again: redline.Runtime\(\)"):
        redline.Model(root / "assets/redline-tales", runtime=runtime)
    assert greedy(models[0], PROMPT, max_tokens=1).token_ids
