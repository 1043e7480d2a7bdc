"""The official client, unmodified: sync, async, streaming."""
import asyncio

import openai
import pytest

STORY = "Once upon a time"


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0) as made:
        yield made


def test_models(client):
    names = [model.id for model in client.models.list()]
    assert names == ["redline-tales", "redline-tales:shout", "redline-tales:lower"]
    assert client.models.retrieve("redline-tales").id == "redline-tales"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")


def test_completion(client):
    answer = client.completions.create(model="redline-tales", prompt=STORY, max_tokens=20, temperature=0, logprobs=2)
    choice = answer.choices[0]
    assert choice.text.startswith(", there was a little girl")
    assert choice.finish_reason == "length"
    assert "".join(choice.logprobs.tokens) == choice.text
    assert answer.usage.prompt_tokens == 5 and answer.usage.completion_tokens == 20
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0


def test_a_streamed_completion_says_the_same(client):
    options = dict(model="redline-tales", prompt=[STORY, "One day"], n=2, seed=7, max_tokens=60, temperature=0.8, stop=["\n\n"])
    whole = client.completions.create(**options)
    texts, usage = ["", "", "", ""], None
    for chunk in client.completions.create(**options, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices]
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_async_requests_with_their_adapters(server):
    async def run():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0) as client:
            async def text(model, stream):
                answer = await client.completions.create(model=model, prompt=STORY, max_tokens=30, temperature=0, stream=stream)
                return "".join([c.choices[0].text async for c in answer]) if stream else answer.choices[0].text

            models = ["redline-tales", "redline-tales:shout", "redline-tales:lower"] * 4
            whole = await asyncio.gather(*(text(model, False) for model in models))
            streamed = await asyncio.gather(*(text(model, True) for model in models))
            assert whole == streamed
            assert len(set(whole)) == 3 and whole[1].isupper() and whole[2].islower()
    asyncio.run(run())


def test_errors_are_the_clients_own(client):
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(model="redline-tales", prompt=STORY, extra_body={"min_tokns": 1})
    assert error.value.param == "min_tokns" and error.value.code == "unknown_parameter"
    with pytest.raises(openai.NotFoundError) as error:
        client.completions.create(model="none", prompt=STORY)
    assert error.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(model="redline-tales", prompt="word " * 3000)
    assert error.value.code == "context_length_exceeded"


def test_a_client_that_leaves(client, server):
    stream = client.completions.create(model="redline-tales", prompt=STORY, max_tokens=900, stream=True,
                                       extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    for _ in range(6000):
        if server.metric("vllm:num_requests_running") == 0:
            return
    raise AssertionError("the generation goes on")


def test_best_of_answers_the_most_likely_texts(client):
    request = dict(model="redline-tales", prompt=STORY, max_tokens=8, temperature=1, seed=5)
    all_texts = client.completions.create(n=4, logprobs=0, **request).choices
    mean = [sum(c.logprobs.token_logprobs) / len(c.logprobs.token_logprobs) for c in all_texts]
    order = sorted(range(4), key=lambda i: -mean[i])
    best = client.completions.create(n=2, best_of=4, **request)
    assert [c.text for c in best.choices] == [all_texts[i].text for i in order[:2]]
    assert [c.index for c in best.choices] == [0, 1] and best.choices[0].logprobs is None
    assert best.usage.completion_tokens == 4 * 8


def test_samplers_have_an_effect(client):
    request = dict(model="redline-tales", prompt=STORY, max_tokens=12, temperature=1, seed=5)

    def text(extra_body=None, **fields):
        answers = [client.completions.create(extra_body=extra_body, **request | fields).choices[0].text for _ in range(2)]
        assert answers[0] == answers[1]
        return answers[0]
    plain = text()
    token = client.completions.create(logprobs=0, **request | {"max_tokens": 1})
    first = token.choices[0].logprobs.tokens[0]
    assert text(presence_penalty=0, frequency_penalty=0, logit_bias={}) == plain
    assert first not in text(extra_body={"bad_words": [first]})
    assert text(logit_bias={"300": 100}) == text(logit_bias={300: 100}) != plain
    assert text(extra_body={"logit_bias": [[300, 100]]}) == text(logit_bias={"300": 100})
    assert text(presence_penalty=-50, frequency_penalty=-50, extra_body={"repeat_last_n": 64}) != plain
    greedy = text(temperature=0)
    for extra in ({"top_n_sigma": 0.01}, {"typical_p": 1e-6, "samplers": ["top_k", "typ_p"], "top_k": 1},
                  {"mirostat": 2, "mirostat_tau": 0}, {"samplers": ["min_p"], "min_p": 1}):
        assert text(extra_body=extra) == greedy, extra
    for extra in ({"xtc_probability": 1, "xtc_threshold": 0.01}, {"dynatemp_range": 1, "dynatemp_exponent": 0.1},
                  {"mirostat": 1, "mirostat_tau": 1}):
        assert text(extra_body=extra) != plain, extra
