"""Conversations through the official clients of OpenAI, Anthropic and Ollama, and through litellm, unmodified."""
import asyncio
import json
import os
import time

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # its package has the table that it would fetch
import anthropic  # noqa: E402
import jsonschema  # noqa: E402
import litellm  # noqa: E402
import ollama  # noqa: E402
import openai  # noqa: E402
import pytest  # noqa: E402

ASK = [{"role": "user", "content": "Tell me a story about a cat."}]
TALK = ASK + [{"role": "assistant", "content": "No."}, {"role": "user", "content": "Tell me a story about a boat."}]
MODEL = "redline-tales"
PARAMETERS = {"type": "object", "properties": {"city": {"enum": ["Bern", "Ulm"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
                                               "note": {"type": "string", "maxLength": 20}},
              "required": ["city", "days"], "additionalProperties": False}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "a forecast", "parameters": PARAMETERS}}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}
BROKEN = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": 5}}}}}


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def claude(server):
    with anthropic.Anthropic(base_url=server.url, api_key="any", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def llama(server):
    return ollama.Client(host=server.url)


def reference(server, messages=ASK, **options):
    """The text that /v1/completions makes of the prompt of /apply-template."""
    prompt = server.post("/apply-template", {"messages": messages}).json()["prompt"]
    body = {"prompt": prompt, "add_special_tokens": False, "temperature": 0, "max_tokens": 40} | options
    return server.post("/v1/completions", body).json()["choices"][0]


def test_the_template(server):
    prompt = server.post("/apply-template", {"messages": TALK}).json()["prompt"]
    assert prompt == ("<|endoftext|><|im_start|>user\nTell me a story about a cat.<|im_end|>\n<|im_start|>assistant\nNo.<|im_end|>\n"
                      "<|im_start|>user\nTell me a story about a boat.<|im_end|>\n<|im_start|>assistant\n")


def test_chat(client, server):
    answer = client.chat.completions.create(model=MODEL, messages=ASK, temperature=0, max_tokens=40, logprobs=True,
                                            top_logprobs=2)
    expected = reference(server)
    choice = answer.choices[0]
    assert choice.message.role == "assistant" and choice.message.content == expected["text"]
    assert choice.finish_reason == expected["finish_reason"]
    assert "".join(token.token for token in choice.logprobs.content) == expected["text"]
    assert all(len(token.top_logprobs) == 2 for token in choice.logprobs.content)
    assert bytes(b for token in choice.logprobs.content for b in token.bytes).decode() == expected["text"]


def test_a_streamed_chat_says_the_same(client):
    options = dict(model=MODEL, messages=TALK, n=3, seed=11, temperature=0.9, max_completion_tokens=60, stop=["zzz", "."],
                   logprobs=True)
    whole = client.chat.completions.create(**options)
    texts, tokens, finishes, usage = ["", "", ""], ["", "", ""], [None] * 3, None
    for chunk in client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            finishes[choice.index] = choice.finish_reason or finishes[choice.index]
            for token in (choice.logprobs.content if choice.logprobs else ()):
                tokens[choice.index] += token.token
    assert texts == [choice.message.content for choice in whole.choices]
    assert finishes == [choice.finish_reason for choice in whole.choices]
    assert tokens == ["".join(t.token for t in choice.logprobs.content) for choice in whole.choices]
    assert usage.prompt_tokens == whole.usage.prompt_tokens and usage.total_tokens == whole.usage.total_tokens


def test_parts_and_a_begun_answer(client, server):
    parts = [{"role": "user", "content": [{"type": "text", "text": ASK[0]["content"]}]}]
    options = dict(model=MODEL, temperature=0, max_tokens=20)
    whole = client.chat.completions.create(messages=ASK, **options).choices[0].message.content
    assert client.chat.completions.create(messages=parts, **options).choices[0].message.content == whole
    begun = ASK + [{"role": "assistant", "content": whole[:4]}]
    more = client.chat.completions.create(messages=begun, extra_body={"continue_final_message": True}, **options)
    prompt = server.post("/apply-template", {"messages": ASK}).json()["prompt"] + whole[:4]
    body = {"prompt": prompt, "add_special_tokens": False, "temperature": 0, "max_tokens": 20}
    assert more.choices[0].message.content == server.post("/v1/completions", body).json()["choices"][0]["text"]


@pytest.mark.parametrize("change, param", [
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "user"}], "n": 0}, "n"),
    ({"messages": [{"role": "robot", "content": ""}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "text": ""}]}]}, "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://a/b.png"}}]}]},
     "messages[0].content[0].image_url"),
    ({"messages": [{"role": "user", "content": "a", "contnet": 1}]}, "messages[0].contnet"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].tool_call_id"),
    ({"length_penalty": 2}, "length_penalty"),
    ({"response_format": {"type": "json"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}}, "response_format.json_schema.schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 5}}}}, "response_format.json_schema.schema"),
    ({"guided_regex": "(a"}, "guided_regex"),
    ({"grammar": "root ::= other"}, "grammar"),
    ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": "sometimes"}, "tool_choice"),
    ({"tool_choice": {"type": "function"}}, "tool_choice.function"),
    ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
    ({"tools": [BROKEN], "tool_choice": "required"}, "tools"),
    ({"top_logprobs": 21}, "top_logprobs"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"messages": [{"role": "user", "content": "word " * 3000}]}, "messages"),
])
def test_wrong_chats_name_the_field(server, change, param):
    answer = server.post("/v1/chat/completions", {"messages": ASK} | change)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_fields_without_effect_are_listed(server):
    body = {"messages": ASK, "max_tokens": 1, "store": False, "metadata": {}, "verbosity": "low"}
    answer = server.post("/v1/chat/completions", body)
    assert answer.status_code == 200
    assert set(answer.headers["x-redline-ignored"].split(", ")) == {"store", "metadata", "verbosity"}


@pytest.mark.parametrize("path, fields", [
    ("/v1/completions", openai.types.completion_create_params.CompletionCreateParamsBase.__annotations__),
    ("/v1/chat/completions", openai.types.chat.completion_create_params.CompletionCreateParamsBase.__annotations__),
    ("/v1/responses", openai.types.responses.response_create_params.ResponseCreateParamsBase.__annotations__),
    ("/v1/messages", anthropic.types.message_create_params.MessageCreateParamsBase.__annotations__),
    ("/v1/messages/count_tokens", anthropic.types.message_count_tokens_params.MessageCountTokensParams.__annotations__),
])
def test_every_field_of_the_clients_is_known(server, path, fields):
    """It has an effect, is listed as ignored, or is refused for a reason."""
    assert len(fields) > 5
    for name in fields:
        assert "unknown field" not in server.post(path, {name: None}).text, name


def test_async_chats(server):
    async def run():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0) as client:
            async def text(seed, stream):
                answer = await client.chat.completions.create(model=MODEL, messages=ASK, seed=seed, max_tokens=40, stream=stream)
                if not stream:
                    return answer.choices[0].message.content
                return "".join([c.choices[0].delta.content or "" async for c in answer])

            whole = await asyncio.gather(*(text(seed, False) for seed in range(8)))
            assert whole == await asyncio.gather(*(text(seed, True) for seed in range(8)))
            assert len(set(whole)) > 1
    asyncio.run(run())


def test_responses(client, server):
    answer = client.responses.create(model=MODEL, input=ASK[0]["content"], temperature=0, max_output_tokens=40)
    expected = reference(server)
    assert answer.output_text == expected["text"]
    assert answer.status == ("completed" if expected["finish_reason"] == "stop" else "incomplete")
    assert answer.usage.output_tokens > 0 and answer.usage.input_tokens > 0
    again = client.responses.create(model=MODEL, input=TALK, instructions="Be kind.", max_output_tokens=300)
    assert again.output_text and again.instructions == "Be kind."


def test_stored_responses(client):
    options = dict(model=MODEL, temperature=0, max_output_tokens=30)
    first = client.responses.create(input=ASK, instructions="Be kind.", **options)
    second = client.responses.create(input=TALK[2]["content"], previous_response_id=first.id, **options)
    answered = [{"role": "assistant", "content": first.output_text}]
    assert second.output_text == client.responses.create(input=ASK + answered + TALK[2:], **options).output_text
    assert second.previous_response_id == first.id and second.store
    assert client.responses.retrieve(second.id) == second
    items = list(client.responses.input_items.list(second.id, limit=1, order="asc"))  # pages of one item
    assert [(i.type, i.role, i.content[0].text) for i in items] == [
        ("message", "user", ASK[0]["content"]), ("message", "assistant", first.output_text), ("message", "user", TALK[2]["content"])]
    assert len({i.id for i in items}) == 3 and items[1].id == first.output[0].id
    newest = client.responses.input_items.list(second.id, limit=2)
    assert [i.id for i in newest.data] == [items[2].id, items[1].id] and newest.has_more
    with pytest.raises(openai.BadRequestError, match="no item"):
        client.responses.input_items.list(second.id, after="msg_x")
    with pytest.raises(openai.BadRequestError, match="limit"):
        client.responses.input_items.list(second.id, limit=101)
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.input_items.list(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    unknown = client.responses.create(input="a", store=False, **options).id
    for name in (first.id, unknown):
        with pytest.raises(openai.BadRequestError) as error:
            client.responses.create(input="a", previous_response_id=name, **options)
        assert error.value.param == "previous_response_id" and error.value.code == "previous_response_not_found"


def test_background_responses(client):
    options = dict(model=MODEL, temperature=0, input=ASK, max_output_tokens=30)
    begun = client.responses.create(background=True, **options)
    assert begun.status == "queued" and begun.background and begun.output == [] and begun.usage is None
    while (answer := client.responses.retrieve(begun.id)).status in ("queued", "in_progress"):
        time.sleep(0.01)
    assert client.responses.input_items.list(begun.id).data[0].content[0].text == ASK[0]["content"]
    assert answer.id == begun.id and answer.output_text == client.responses.create(**options).output_text
    assert client.responses.cancel(begun.id) == answer  # too late
    more = client.responses.create(model=MODEL, input="More.", previous_response_id=begun.id, max_output_tokens=5)
    assert more.previous_response_id == begun.id and not more.background
    with pytest.raises(openai.BadRequestError, match="not made in the background"):
        client.responses.cancel(more.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.cancel("resp_x")
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.create(background=True, store=False, **options)
    with pytest.raises(openai.BadRequestError, match="not made with background and stream"):
        client.responses.retrieve(begun.id, stream=True)


def test_background_responses_are_cancelled(client, server):
    options = dict(model=MODEL, input="Go on.", background=True, extra_body={"ignore_eos": True})
    begun = client.responses.create(**options)
    with pytest.raises(openai.BadRequestError, match="not complete yet"):
        client.responses.create(model=MODEL, input="a", previous_response_id=begun.id)
    assert client.responses.cancel(begun.id).status == "cancelled"
    assert client.responses.retrieve(begun.id).status == "cancelled"
    with pytest.raises(openai.BadRequestError, match="it is cancelled"):
        client.responses.create(model=MODEL, input="a", previous_response_id=begun.id)
    gone = client.responses.create(**options)
    client.responses.delete(gone.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(gone.id)
    while server.metric("vllm:num_requests_running"):
        time.sleep(0.01)


def test_streams_of_background_responses(client):
    options = dict(model=MODEL, temperature=0, input=ASK, max_output_tokens=30, background=True)
    events = list(client.responses.create(stream=True, **options))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert [e.type for e in events[:4]] == ["response.created", "response.queued", "response.in_progress", "response.output_item.added"]
    assert [e.response.status for e in events[:3]] == ["queued", "queued", "in_progress"]
    answer = events[-1].response
    assert answer.background and answer == client.responses.retrieve(answer.id)
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == answer.output_text != ""
    for after in (None, 0, 5, len(events) - 2, len(events) - 1, 10**6):
        again = client.responses.retrieve(answer.id, stream=True, **({} if after is None else dict(starting_after=after)))
        assert list(again) == events[0 if after is None else after + 1:]
    with pytest.raises(openai.BadRequestError, match="starting_after"):
        client.responses.retrieve(answer.id, stream=True, starting_after=-2)
    more = client.responses.create(model=MODEL, input="More.", previous_response_id=answer.id, max_output_tokens=5)
    assert more.previous_response_id == answer.id
    client.responses.delete(answer.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answer.id, stream=True)


def test_streams_of_background_responses_are_left_and_resumed(client, server):
    options = dict(model=MODEL, temperature=0, input="Go on.", background=True, max_output_tokens=300, extra_body={"ignore_eos": True})
    whole = client.responses.create(**options)
    with client.responses.create(stream=True, **options) as stream:
        read = []
        for event in stream:
            read.append(event)
            if event.sequence_number == 10:
                break  # and the connection ends
    id = read[0].response.id
    two = [client.responses.retrieve(id, stream=True, starting_after=10) for _ in range(2)]  # both follow it
    rest = list(two[0])
    assert rest == list(two[1])
    assert [e.sequence_number for e in read + rest] == list(range(len(read) + len(rest)))
    assert rest[-1].type == "response.incomplete"
    text = "".join(e.delta for e in read + rest if e.type == "response.output_text.delta")
    while (expected := client.responses.retrieve(whole.id)).status in ("queued", "in_progress"):
        time.sleep(0.01)
    assert text == rest[-1].response.output_text == expected.output_text

    async def with_the_helper():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0) as other:
            async with other.responses.stream(model=MODEL, input=ASK, background=True, temperature=0, max_output_tokens=30) as stream:
                async for event in stream:
                    if event.type == "response.created":
                        id = event.response.id
                    if event.sequence_number == 6:
                        break
            events = [e async for e in await other.responses.retrieve(id, stream=True)]
            assert events[-1].type in ("response.completed", "response.incomplete")
            async with other.responses.stream(response_id=id, starting_after=6) as stream:
                numbers = [event.sequence_number async for event in stream]
            assert numbers == list(range(7, len(events)))
    asyncio.run(with_the_helper())


def test_streams_of_background_responses_end_when_they_are_cancelled(client, server):
    options = dict(model=MODEL, input="Go on.", background=True, stream=True, extra_body={"ignore_eos": True})
    stream = client.responses.create(**options)
    first = next(iter(stream))
    assert client.responses.cancel(first.response.id).status == "cancelled"
    *_, last = stream
    assert last.type == "response.failed" and last.response.status == "cancelled"
    assert [last] == list(client.responses.retrieve(first.response.id, stream=True, starting_after=last.sequence_number - 1))
    stream = client.responses.create(**options)
    client.responses.delete(next(iter(stream)).response.id)
    *_, last = stream
    assert last.response.status == "cancelled"
    while server.metric("vllm:num_requests_running"):
        time.sleep(0.01)


def test_conversations(client):
    options = dict(model=MODEL, temperature=0, max_output_tokens=30)
    talk = client.conversations.create(items=[{"role": "system", "content": "Be kind."}], metadata={"topic": "cats"})
    assert client.conversations.retrieve(talk.id) == talk and talk.metadata == {"topic": "cats"}
    first = client.responses.create(input=ASK, conversation=talk.id, **options)
    assert first.conversation.id == talk.id
    second = client.responses.create(input="And then?", conversation={"id": talk.id}, stream=True, **options)
    second = list(second)[-1].response
    said = [{"role": "system", "content": "Be kind."}, *ASK, {"role": "assistant", "content": first.output_text}, {"role": "user", "content": "And then?"}]
    assert second.output_text == client.responses.create(input=said, **options).output_text
    items = list(client.conversations.items.list(talk.id, order="asc", limit=2))  # pages of two items
    assert [i.content[0].text for i in items] == [i["content"] for i in said] + [second.output_text]
    assert [i.id for i in client.responses.input_items.list(second.id, order="asc")] == [i.id for i in items[:-1]]
    assert client.conversations.items.retrieve(items[1].id, conversation_id=talk.id) == items[1]
    client.conversations.items.delete(items[1].id, conversation_id=talk.id)
    with pytest.raises(openai.NotFoundError, match="no item"):
        client.conversations.items.delete(items[1].id, conversation_id=talk.id)
    added = client.conversations.items.create(talk.id, items=[{"role": "user", "content": "More."}])
    assert [i.id for i in client.conversations.items.list(talk.id)] == [added.data[0].id] + [i.id for i in reversed(items) if i is not items[1]]
    assert client.conversations.update(talk.id, metadata={"topic": "dogs"}).metadata == {"topic": "dogs"}
    background = client.responses.create(input="Well?", conversation=talk.id, background=True, **options)
    while client.responses.retrieve(background.id).status in ("queued", "in_progress"):
        time.sleep(0.01)
    assert len(list(client.conversations.items.list(talk.id))) == len(items) + 2
    with pytest.raises(openai.BadRequestError, match="exclude each other"):
        client.responses.create(input="a", conversation=talk.id, previous_response_id=first.id, **options)
    with pytest.raises(openai.BadRequestError, match="items\\[0\\].call_id is missing"):
        client.conversations.items.create(talk.id, items=[{"type": "function_call_output", "output": "1"}])
    assert client.conversations.delete(talk.id).deleted
    for gone in (lambda: client.conversations.retrieve(talk.id), lambda: client.conversations.items.list(talk.id),
                 lambda: client.conversations.update(talk.id, metadata={}), lambda: client.conversations.delete(talk.id),
                 lambda: client.responses.create(input="a", conversation=talk.id, **options)):
        with pytest.raises(openai.NotFoundError, match="no conversation"):
            gone()


def test_log_probabilities_of_responses(client):
    options = dict(model=MODEL, input=ASK, temperature=0, max_output_tokens=12, include=["message.output_text.logprobs"],
                   top_logprobs=2)
    answer = client.responses.create(**options)
    tokens = answer.output[0].content[0].logprobs
    assert "".join(token.token for token in tokens) == answer.output_text
    assert all(len(token.top_logprobs) == 2 and token.top_logprobs[0].logprob == token.logprob for token in tokens)
    events = client.responses.create(**options, stream=True)
    parts = [token for e in events if e.type == "response.output_text.delta" for token in e.logprobs]
    assert [(t.token, t.logprob) for t in parts] == [(t.token, t.logprob) for t in tokens]


def test_streamed_responses(client):
    options = dict(model=MODEL, input=TALK, max_output_tokens=300, extra_body={"seed": 4})
    whole = client.responses.create(**options)
    events = list(client.responses.create(**options, stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    types = [e.type for e in events]
    assert types[:4] == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
    assert types[-4:-1] == ["response.output_text.done", "response.content_part.done", "response.output_item.done"]
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text
    assert events[-1].response.output_text == whole.output_text
    with client.responses.stream(**options) as stream:
        assert stream.get_final_response().output_text == whole.output_text


def test_messages(claude, server):
    answer = claude.messages.create(model=MODEL, max_tokens=40, messages=ASK, extra_body={"temperature": 0})
    expected = reference(server)
    assert answer.content[0].text == expected["text"]
    assert answer.stop_reason == ("end_turn" if expected["finish_reason"] == "stop" else "max_tokens")
    assert answer._request_id and answer.usage.cache_miss
    counted = claude.messages.count_tokens(model=MODEL, messages=ASK)
    assert answer.usage.input_tokens + answer.usage.cache_read_input_tokens == counted.input_tokens
    stopped = claude.messages.create(model=MODEL, max_tokens=100, messages=ASK, stop_sequences=[" a"],
                                     extra_body={"temperature": 0})
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == " a"
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        claude.messages.create(model=MODEL, max_tokens=-1, messages=ASK)
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(model="none", max_tokens=1, messages=ASK)


def test_streamed_messages(claude):
    options = dict(model=MODEL, max_tokens=60, system=[{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
                   messages=[{"role": "user", "content": [{"type": "text", "text": "Tell me a story."}]}],
                   extra_body={"temperature": 0})
    whole = claude.messages.create(**options)
    with claude.messages.stream(**options) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert final.stop_reason == whole.stop_reason and final.usage.output_tokens == whole.usage.output_tokens


def test_async_messages(server):
    async def run():
        async with anthropic.AsyncAnthropic(base_url=server.url, api_key="any", max_retries=0) as client:
            options = dict(model=MODEL, max_tokens=30, messages=ASK, extra_body={"temperature": 0})
            whole = await client.messages.create(**options)
            async with client.messages.stream(**options) as stream:
                assert "".join([text async for text in stream.text_stream]) == whole.content[0].text
    asyncio.run(run())


def test_ollama(llama, server):
    models = llama.list().models
    assert [model.model for model in models] == [MODEL] and len(models[0].digest) == 64
    shown = llama.show(MODEL)
    assert shown.modelinfo["general.architecture"] == "llama" and shown.capabilities == ["completion"]
    options = {"temperature": 0, "num_predict": 40, "seed": 1, "num_ctx": 512}
    expected = reference(server)["text"]
    whole = llama.chat(model=MODEL, messages=ASK, options=options)
    assert whole.message.content == expected and whole.done and whole.eval_count > 0
    parts = list(llama.chat(model=MODEL, messages=ASK, options=options, stream=True))
    assert "".join(part.message.content for part in parts) == expected
    assert parts[-1].done and not parts[0].done
    assert llama.generate(model=MODEL, prompt=ASK[0]["content"], options=options).response == expected
    raw = llama.generate(model=MODEL, prompt="Once upon a time", raw=True, options=options)
    assert "".join(p.response for p in llama.generate(model=MODEL, prompt="Once upon a time", raw=True, options=options,
                                                      stream=True)) == raw.response
    assert llama.generate(model=MODEL).done_reason == "load"
    body = {"model": MODEL, "messages": ASK, "options": options, "logprobs": True, "top_logprobs": 2}
    answer = server.post("/api/chat", body | {"stream": False}).json()
    assert "".join(token["token"] for token in answer["logprobs"]) == expected
    assert all(len(token["top_logprobs"]) == 2 for token in answer["logprobs"])
    lines = [json.loads(line) for line in server.post("/api/chat", body).text.splitlines()]
    assert [token for line in lines for token in line.get("logprobs", ())] == answer["logprobs"]
    assert lines[-1]["prompt_tokens_details"]["cache_miss"] == "none"  # all of it was computed just before
    with pytest.raises(ollama.ResponseError) as error:
        llama.chat(model="none", messages=ASK)
    assert error.value.status_code == 404
    with pytest.raises(ollama.ResponseError, match="mirostat"):
        llama.chat(model=MODEL, messages=ASK, options={"mirostat": 3})
    sampled = {"temperature": 1, "seed": 3, "num_predict": 20}
    plain = llama.chat(model=MODEL, messages=ASK, options=sampled).message.content
    for changed in ({"mirostat": 2, "mirostat_tau": 1, "mirostat_eta": 0.2}, {"typical_p": 0.2},
                    {"presence_penalty": 5, "frequency_penalty": 5, "repeat_last_n": 32}):
        answer = llama.chat(model=MODEL, messages=ASK, options=sampled | changed).message.content
        assert answer == llama.chat(model=MODEL, messages=ASK, options=sampled | changed).message.content
        assert answer != plain


def test_async_ollama(server):
    async def run():
        client = ollama.AsyncClient(host=server.url)
        options = {"temperature": 0, "num_predict": 20}
        whole = await client.chat(model=MODEL, messages=ASK, options=options)
        parts = [p async for p in await client.chat(model=MODEL, messages=ASK, options=options, stream=True)]
        assert "".join(p.message.content for p in parts) == whole.message.content
    asyncio.run(run())


def test_litellm(server):
    options = dict(messages=ASK, temperature=0, max_tokens=30, api_key="any")
    expected = reference(server, max_tokens=30)["text"]
    openai_like = dict(model="openai/" + MODEL, api_base=server.url + "/v1", **options)
    assert litellm.completion(**openai_like).choices[0].message.content == expected
    parts = list(litellm.completion(**openai_like, stream=True))
    assert "".join(part.choices[0].delta.content or "" for part in parts) == expected
    claude_like = litellm.completion(model="anthropic/" + MODEL, api_base=server.url, **options)
    assert claude_like.choices[0].message.content == expected
    llama_like = litellm.completion(model="ollama_chat/" + MODEL, api_base=server.url, **options)
    assert llama_like.choices[0].message.content == expected


def check_weather(name, arguments):
    assert name == "weather"
    jsonschema.validate(json.loads(arguments) if isinstance(arguments, str) else arguments, PARAMETERS)


def test_calls_that_are_demanded(client, claude, server):
    """The bundled model knows no tools: the constraint alone makes its answer a valid call."""
    named = {"type": "function", "function": {"name": "weather"}}
    for choice, tools in (("required", [WEATHER]), (named, [CLOCK, WEATHER])):
        options = dict(model=MODEL, messages=ASK, tools=tools, tool_choice=choice, parallel_tool_calls=False, seed=3)
        answer = client.chat.completions.create(**options).choices[0]
        assert answer.finish_reason == "tool_calls" and answer.message.content is None and len(answer.message.tool_calls) == 1
        call = answer.message.tool_calls[0].function
        check_weather(call.name, call.arguments)
        streamed = [c.choices[0].delta.tool_calls for c in client.chat.completions.create(**options, stream=True)]
        assert [t[0].function.arguments for t in streamed if t] == [call.arguments]
    either = client.chat.completions.create(model=MODEL, messages=ASK, tools=[CLOCK, WEATHER], tool_choice="required", n=4)
    assert all(c.message.tool_calls and c.message.tool_calls[0].function.name in ("clock", "weather") for c in either.choices)

    flat = {"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": True}
    for choice in ("required", {"type": "function", "name": "weather"}):
        output = client.responses.create(model=MODEL, input="Weather?", tools=[flat], tool_choice=choice, parallel_tool_calls=False).output
        assert [item.type for item in output] == ["function_call"]
        check_weather(output[0].name, output[0].arguments)

    tool = {"name": "weather", "input_schema": PARAMETERS}
    for choice in ({"type": "any", "disable_parallel_tool_use": True},
                   {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}):
        answer = claude.messages.create(model=MODEL, max_tokens=300, messages=ASK, tools=[tool], tool_choice=choice)
        assert answer.stop_reason == "tool_use" and [block.type for block in answer.content] == ["tool_use"]
        check_weather(answer.content[0].name, answer.content[0].input)
    with pytest.raises(anthropic.BadRequestError, match="tool_choice.name"):
        claude.messages.create(model=MODEL, max_tokens=1, messages=ASK, tools=[tool], tool_choice={"type": "tool"})


SCHEMA = {"type": "object", "properties": {"animal": {"enum": ["cat", "dog"]}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
          "required": ["animal", "age"], "additionalProperties": False}


def check_animal(text):
    value = json.loads(text)
    assert value["animal"] in ("cat", "dog") and 0 <= value["age"] <= 99 and len(value) == 2


def test_json_of_a_schema_through_every_client(client, claude, llama, server):
    json_schema = {"type": "json_schema", "json_schema": {"name": "animal", "schema": SCHEMA, "strict": True}}
    for stream in (False, True):
        answer = client.chat.completions.create(model=MODEL, messages=ASK, response_format=json_schema, stream=stream)
        check_animal("".join(c.choices[0].delta.content or "" for c in answer) if stream else answer.choices[0].message.content)
    text_format = {"format": {"type": "json_schema", "name": "animal", "schema": SCHEMA, "strict": True}}
    check_animal(client.responses.create(model=MODEL, input="Which animal?", text=text_format).output_text)
    config = {"format": {"type": "json_schema", "schema": SCHEMA}}
    check_animal(claude.messages.create(model=MODEL, max_tokens=100, messages=ASK, output_config=config).content[0].text)
    check_animal(llama.chat(model=MODEL, messages=ASK, format=SCHEMA).message.content)


def test_choices_regexes_and_grammars(server):
    def text(**constraint):
        return server.post("/v1/completions", {"prompt": "The", "max_tokens": 60} | constraint).json()["choices"][0]["text"]
    assert text(guided_choice=["north", "south"]) in ("north", "south")
    assert text(structured_outputs={"choice": ["north"]}) == "north"
    assert text(guided_regex="[0-9]{4}-[0-9]{2}").replace("-", "").isdigit()
    assert text(grammar='root ::= "yes" | "no"') in ("yes", "no")
    check_animal(text(json_schema=SCHEMA))


def test_a_model_without_template(start, tmp_path):
    from conftest import TALES
    folder = tmp_path / "plain"
    folder.mkdir()
    for name in ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "special_tokens_map.json"):
        (folder / name).symlink_to(TALES / name)
    config = json.loads((TALES / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with start(models=(str(folder),)) as server:
        answer = server.post("/v1/chat/completions", {"messages": ASK})
        assert answer.status_code == 400 and answer.json()["error"]["code"] == "no_chat_template"
        assert server.post("/v1/completions", {"prompt": "Once"}).status_code == 200
    with start("--chat-template", "chatml", models=(str(folder),)) as server:
        assert server.post("/v1/chat/completions", {"messages": ASK, "max_tokens": 5}).status_code == 200
