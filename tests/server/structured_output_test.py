"""Structured output of a model that thinks first: a copy of the bundled model whose full stop is the end of its reasoning."""
import json

import anthropic
import jsonschema
import ollama
import openai
import pytest
from conftest import serve
from thinker import make_thinker

MODEL = "thinker"
ASK = [{"role": "user", "content": "Tell me a story about a cat"}]
SCHEMA = {"type": "object", "properties": {"animal": {"enum": ["cat", "dog"]}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
          "required": ["animal", "age"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "animal", "schema": SCHEMA}}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Bern", "Ulm"]}}, "required": ["city"], "additionalProperties": False}}}


@pytest.fixture(scope="module")
def thinker(tmp_path_factory):
    folder = make_thinker(tmp_path_factory.mktemp(MODEL) / MODEL)
    with serve(tmp_path_factory.mktemp("server"), "--threads", "2", "--dtype", "f32", models=(str(folder),)) as running:
        yield running


def chat(server, **fields):
    answer = server.post("/v1/chat/completions", {"messages": ASK, "temperature": 0, "max_tokens": 200} | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


def joined(chunks):
    content, reasoning = "", ""
    for chunk in chunks:
        delta = chunk.choices[0].delta
        content += delta.content or ""
        reasoning += getattr(delta, "reasoning_content", None) or ""
    return content, reasoning


def check(text):
    jsonschema.validate(json.loads(text), SCHEMA)


def test_reasoning_then_json_through_every_api(thinker):
    with openai.OpenAI(base_url=thinker.url + "/v1", api_key="any", max_retries=0) as client:
        options = dict(model=MODEL, messages=ASK, temperature=0, max_tokens=200, response_format=FORMAT)
        message = client.chat.completions.create(**options).choices[0].message
        check(message.content)
        assert message.reasoning_content
        content, reasoning = joined(client.chat.completions.create(stream=True, **options))
        assert (content, reasoning) == (message.content, message.reasoning_content)
        options = dict(model=MODEL, input=ASK, temperature=0, max_output_tokens=200,
                       text={"format": {"type": "json_schema", "name": "animal", "schema": SCHEMA}})
        answer = client.responses.create(**options)
        check(answer.output_text)
        assert [item.type for item in answer.output] == ["reasoning", "message"]
        *_, last = client.responses.create(stream=True, **options)
        assert last.response.output_text == answer.output_text
    with anthropic.Anthropic(base_url=thinker.url, api_key="any", max_retries=0) as client:
        options = dict(model=MODEL, max_tokens=200, messages=ASK,
                       extra_body={"temperature": 0, "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}})
        blocks = client.messages.create(**options).content
        assert [block.type for block in blocks] == ["thinking", "text"]
        check(blocks[1].text)
        with client.messages.stream(**options) as stream:
            assert stream.get_final_message().content[1].text == blocks[1].text
    client = ollama.Client(host=thinker.url)
    options = dict(model=MODEL, messages=ASK, format=SCHEMA, options={"temperature": 0, "num_predict": 200})
    message = client.chat(**options).message
    check(message.content)
    assert message.thinking
    assert "".join(part.message.content or "" for part in client.chat(stream=True, **options)) == message.content


@pytest.mark.parametrize("fields, right", [
    ({"json_schema": SCHEMA}, lambda text: check(text) is None),
    ({"guided_json": SCHEMA}, lambda text: check(text) is None),
    ({"guided_regex": " ?[0-9]{4}"}, lambda text: text.strip(" ").isdigit() and len(text.strip(" ")) == 4),
    ({"guided_choice": ["north", " south"]}, lambda text: text in ("north", " south")),
    ({"guided_grammar": 'root ::= "yes" | "no"'}, lambda text: text in ("yes", "no")),
    ({"grammar": 'root ::= "\\n" [a-c]{2}'}, lambda text: len(text) == 3 and text[0] == "\n"),
    ({"structured_outputs": {"regex": "[xy]{3}"}}, lambda text: len(text) == 3 and set(text) <= {"x", "y"}),
], ids=lambda value: next(iter(value)) if isinstance(value, dict) else "")
def test_every_constraint_holds_after_the_reasoning(thinker, fields, right):
    choice = chat(thinker, temperature=1, seed=3, **fields)
    assert choice["finish_reason"] == "stop" and choice["message"]["reasoning_content"]
    assert right(choice["message"]["content"]), choice


def test_an_object_after_the_reasoning(thinker):
    """Any object: it may be too long for the limit, but it begins as one."""
    message = chat(thinker, response_format={"type": "json_object"})["message"]
    assert message["content"].startswith("{") and message["reasoning_content"]


@pytest.mark.parametrize("fields", [{"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}])
def test_with_thinking_off_the_constraint_holds_from_the_first_token(thinker, fields):
    choice = chat(thinker, guided_choice=["The answer"], **fields)
    assert choice["message"]["content"] == "The answer" and "reasoning_content" not in choice["message"]
    answer = thinker.post("/api/chat", {"model": MODEL, "messages": ASK, "think": False, "stream": False, "format": SCHEMA}).json()
    check(answer["message"]["content"])
    assert not answer["message"].get("thinking")


def test_tools_with_a_response_format(thinker):
    """A call, or text of the schema: in one grammar. Which one, the seed decides."""
    kinds = set()
    for seed in range(12):
        message = chat(thinker, tools=[TOOL], response_format=FORMAT, temperature=2, seed=seed, parallel_tool_calls=False)["message"]
        kinds.add("call" if message.get("tool_calls") else "text")
        if message.get("tool_calls"):
            assert json.loads(message["tool_calls"][0]["function"]["arguments"])["city"] in ("Bern", "Ulm")
            assert not message["content"]
        else:
            check(message["content"])
    assert kinds == {"call", "text"}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_demanded_call_goes_before_the_format(thinker, choice):
    message = chat(thinker, tools=[TOOL], tool_choice=choice, response_format=FORMAT)["message"]
    assert json.loads(message["tool_calls"][0]["function"]["arguments"])["city"] in ("Bern", "Ulm")


def by_chat(server, schema, stop, stream, **fields):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0) as client:
        options = dict(model=MODEL, messages=ASK, temperature=0, max_tokens=200, stop=stop, stream=stream, extra_body=fields,
                       response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
        answer = client.chat.completions.create(**options)
        if stream:
            content, reasoning = joined(answer)
            return reasoning, content
        message = answer.choices[0].message
        return getattr(message, "reasoning_content", None) or "", message.content or ""


def by_responses(server, schema, stop, stream, **fields):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0) as client:
        options = dict(model=MODEL, input=ASK, temperature=0, max_output_tokens=200, stream=stream, extra_body=fields | {"stop": stop},
                       text={"format": {"type": "json_schema", "name": "x", "schema": schema}})
        answer = client.responses.create(**options)
        if stream:
            events = list(answer)
            answer = events[-1].response
            assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == answer.output_text
        reasoning = [part.text for item in answer.output if item.type == "reasoning" for part in item.content or item.summary]
        return "".join(reasoning), answer.output_text


def by_messages(server, schema, stop, stream, **fields):
    with anthropic.Anthropic(base_url=server.url, api_key="any", max_retries=0) as client:
        extra = {"temperature": 0, "output_config": {"format": {"type": "json_schema", "schema": schema}}} | fields
        options = dict(model=MODEL, max_tokens=200, messages=ASK, stop_sequences=stop, extra_body=extra)
        if stream:
            with client.messages.stream(**options) as parts:
                answer = parts.get_final_message()
        else:
            answer = client.messages.create(**options)
        assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", stop[0])
        return ("".join(block.thinking for block in answer.content if block.type == "thinking"),
                "".join(block.text for block in answer.content if block.type == "text"))


def by_ollama(server, schema, stop, stream, **fields):
    options = {"temperature": 0, "num_predict": 200, "stop": stop} | fields
    answer = ollama.Client(host=server.url).chat(model=MODEL, messages=ASK, format=schema, stream=stream, options=options)
    parts = list(answer) if stream else [answer]
    return "".join(part.message.thinking or "" for part in parts), "".join(part.message.content or "" for part in parts)


def by_ollama_generate(server, schema, stop, stream, **fields):
    options = {"temperature": 0, "num_predict": 200, "stop": stop} | fields
    answer = ollama.Client(host=server.url).generate(MODEL, ASK[0]["content"], format=schema, stream=stream, options=options)
    parts = list(answer) if stream else [answer]
    return "".join(part.thinking or "" for part in parts), "".join(part.response or "" for part in parts)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("ask", [by_chat, by_responses, by_messages, by_ollama, by_ollama_generate])
def test_stop_strings_act_on_the_answer(thinker, ask, stream):
    """The stop string is a word of the reasoning and of the answer. It ends the answer, and the reasoning only where the request
    says so."""
    reasoning = chat(thinker, response_format={"type": "json_object"})["message"]["reasoning_content"]
    word = reasoning.split()[2]
    schema = {"enum": [f"one {word} three"]}
    assert ask(thinker, schema, [word], stream) == (reasoning, '"one ')
    cut, answer = ask(thinker, schema, [word], stream, stop_in_reasoning=True)
    assert not answer and cut.rstrip() == reasoning[:reasoning.index(word)].rstrip()  # some APIs trim the reasoning


def test_a_stop_string_is_named(thinker):
    """As vLLM does, in `stop_reason`."""
    choice = chat(thinker, guided_choice=["one two three"], stop=["two"])
    assert choice["message"]["content"] == "one " and choice["stop_reason"] == "two"


def test_a_cut_call_leaves_no_pieces(thinker):
    fields = {"tools": [TOOL], "tool_choice": "required", "chat_template_kwargs": {"enable_thinking": False}}
    whole = chat(thinker, **fields)
    assert whole["message"]["tool_calls"]
    calls = 0
    for limit in range(1, 60):
        message = chat(thinker, max_tokens=limit, **fields)["message"]
        assert not message["content"], (limit, message)
        calls += bool(message.get("tool_calls"))
    assert calls > 1


def one_value(server, schema, **fields):
    body = {"messages": ASK, "max_tokens": 60, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema} |
                                                                   ({"strict": fields.pop("strict")} if "strict" in fields else {})}}
    return server.post("/v1/chat/completions", body | fields)


@pytest.mark.parametrize("keyword, schema", [
    ("uniqueItems", {"type": "array", "items": {"type": "string", "maxLength": 2}, "uniqueItems": True, "maxItems": 2}),
    ("oneOf", {"oneOf": [{"patternProperties": {"a": {"type": "null"}}}, {"type": "object"}]}),
])
def test_what_is_not_enforced_is_named_or_refused(server, keyword, schema):
    answer = one_value(server, schema)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-redline-ignored"] == f"response_format.json_schema.schema.{keyword}"
    assert one_value(server, schema, strict=False).headers["x-redline-ignored"] == f"response_format.json_schema.schema.{keyword}"
    refused = one_value(server, schema, strict=True)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["param"] == "response_format.json_schema.schema" and keyword in error["message"]


def test_white_space_and_further_members_as_the_options_say(server):
    schema = {"type": "object", "properties": {"a": {"enum": [[1, 2]]}}, "required": ["a"]}

    def texts(**options):
        fields = {"structured_outputs": options} if options else {}
        answers = [one_value(server, schema, temperature=1.5, seed=seed, **fields).json()["choices"][0] for seed in range(8)]
        return [answer["message"]["content"] for answer in answers]

    assert any(" " in text or "\n" in text for text in texts())
    assert set(texts(disable_any_whitespace=True)) == {'{"a":[1,2]}'}
    assert all(json.loads(text) == {"a": [1, 2]} for text in texts(disable_additional_properties=True, disable_any_whitespace=True))
    assert any(text != '{"a":[1,2]}' for text in texts(disable_additional_properties=False, disable_any_whitespace=True))
