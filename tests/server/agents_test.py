"""Requests of agents: what real programs sent, with texts of our own, and system prompts of which a part changes."""
import json
import pathlib

import pytest
from conftest import TALES, serve

CLIENTS = pathlib.Path(__file__).parent / "clients"  # tools/record_clients --fixtures
MODEL = "redline-tales"
# As Qwen3.5's, it refuses a message of the system that is not the first; and it writes no tools.
ONE_SYSTEM = """{%- for message in messages -%}
{%- if message.role == 'system' and not loop.first -%}{{ raise_exception('System message must be at the beginning.') }}{%- endif -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""


@pytest.fixture(scope="module")
def agents(tmp_path_factory):
    """The bundled model, with a longer context than it was trained for."""
    folder = tmp_path_factory.mktemp("agents")
    (folder / "one_system.jinja").write_text(ONE_SYSTEM, encoding="utf-8")
    with serve(folder, "--threads", "2", "--context", "16384", "--chat-template", str(folder / "one_system.jinja")) as running:
        yield running


def recorded():
    for file in sorted(CLIENTS.glob("*.json")):
        for i, request in enumerate(json.loads(file.read_text(encoding="utf-8"))):
            yield pytest.param(request, id=f"{file.stem}-{i}")


def events_of(text):
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def limited(request, streams):
    body = request["body"] | {"model": MODEL, "stream": streams}
    for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"):
        body.pop(name, None)
    body["max_output_tokens" if request["path"].startswith("/v1/responses") else "max_tokens"] = 3
    if not streams:
        body.pop("stream_options", None)
    return body


@pytest.mark.parametrize("request_of_client", recorded())
def test_requests_of_real_clients_are_answered(agents, request_of_client):
    path, headers = request_of_client["path"], request_of_client.get("headers", {})
    whole = agents.post(path, limited(request_of_client, False), headers=headers)
    assert whole.status_code == 200, whole.text[:1000]
    answer = whole.json()
    streamed = agents.post(path, limited(request_of_client, True), headers=headers)
    assert streamed.status_code == 200, streamed.text[:1000]
    events = events_of(streamed.text)
    kind = path.split("?")[0]
    if kind == "/v1/messages":
        assert answer["type"] == "message" and answer["usage"]["output_tokens"] <= 3
        assert events[0]["type"] == "message_start" and events[-1]["type"] == "message_stop"
    elif kind == "/v1/responses":
        assert answer["object"] == "response" and answer["output"]
        assert events[0]["type"] == "response.created" and events[-1]["type"] in ("response.completed", "response.incomplete")
    else:
        assert answer["choices"][0]["message"]["role"] == "assistant"
        assert events[0]["choices"][0]["delta"]["role"] == "assistant" and streamed.text.rstrip().endswith("data: [DONE]")


def test_several_system_messages_with_a_template_that_allows_one(agents):
    rules = [{"role": "system", "content": "You tell stories."}, {"role": "developer", "content": "They are short."}]
    talk = [{"role": "user", "content": "Begin."}, {"role": "assistant", "content": "Once."}, {"role": "user", "content": "On."}]
    late = {"role": "system", "content": "The cat is named Tom."}
    merged = agents.post("/apply-template", {"messages": rules + talk}).json()["prompt"]
    assert merged.startswith("<|im_start|>system\nYou tell stories.\n\nThey are short.<|im_end|>\n<|im_start|>user\nBegin.")
    with_late = agents.post("/apply-template", {"messages": rules + talk[:1] + [late] + talk[1:]}).json()["prompt"]
    assert with_late == merged.replace("They are short.", "They are short.\n\nThe cat is named Tom.")
    body = {"model": MODEL, "max_tokens": 3, "messages": [{"role": "user", "content": "hi"},
                                                          {"role": "system", "content": "Available agents: x"}]}
    assert agents.post("/v1/messages", body).status_code == 200
    counted = agents.post("/v1/messages/count_tokens", {k: v for k, v in body.items() if k != "max_tokens"}).json()
    first = {"model": MODEL, "system": "Available agents: x", "messages": body["messages"][:1]}
    assert counted == agents.post("/v1/messages/count_tokens", first).json()


def test_a_changed_block_of_the_system_prompt_keeps_the_part_before_it(agents):
    """The state of what stands before the change is reused, up to the border of a page of 32 tokens."""
    before = "Rules of the house: " + " ".join(f"Rule {i} says that cats sleep." for i in range(150))
    after = " ".join(f"Line {i} of the end." for i in range(80))

    def ask(block):
        system = [{"type": "text", "text": text} for text in (before, block, after)]
        usage = agents.post("/v1/messages", {"model": MODEL, "max_tokens": 1, "system": system,
                                             "messages": [{"role": "user", "content": "Go."}]}).json()["usage"]
        return usage["cache_read_input_tokens"], usage["input_tokens"] + usage["cache_read_input_tokens"]

    def count(text):
        body = {"model": MODEL, "system": text, "messages": [{"role": "user", "content": "Go."}]}
        return agents.post("/v1/messages/count_tokens", body).json()["input_tokens"]

    ask("Today is Monday.")
    reused, whole = ask("Today is Tuesday.")
    prefix = count(before) - count("") - 2
    assert prefix - 64 <= reused < prefix + 32 < whole, (reused, prefix, whole)
    again, whole = ask("Today is Tuesday.")
    assert again == whole - 1  # all but the last token, which is always computed


def test_tools_reach_a_model_whose_template_has_none(agents):
    tool = {"type": "function", "function": {"name": "find_a_cat", "parameters": {"type": "object", "properties": {}}}}
    ask = [{"role": "user", "content": "Go."}]
    prompt = agents.post("/apply-template", {"messages": ask, "tools": [tool]}).json()["prompt"]
    assert prompt.startswith("<|im_start|>system\nYou can call functions.") and '"name":"find_a_cat"' in prompt
    assert "find_a_cat" not in agents.post("/apply-template", {"messages": ask}).json()["prompt"]
