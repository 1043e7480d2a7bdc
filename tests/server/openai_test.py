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
