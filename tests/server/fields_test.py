"""The fields of other servers through the real clients of OpenAI and Ollama, and llama.cpp's endpoints with the bundled model."""
import json

import ollama
import openai
import pytest

MODEL = "redline-tales"
ASK = [{"role": "user", "content": "Tell me a story about a cat."}]
STORY = "Once upon a time"


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0) as made:
        yield made


def ignored(answer):
    return answer.headers.get("x-redline-ignored", "")


@pytest.mark.parametrize("extra, named", [
    ({"cache_prompt": True, "id_slot": -1, "n_keep": 0, "timings_per_token": True}, "cache_prompt, id_slot, n_keep, timings_per_token"),
    ({"repeat_penalty": 1.1, "n_predict": 3, "do_sample": False, "include_stop_str_in_output": True, "keep_alive": None}, ""),
    ({"provider": {"order": ["a"]}, "transforms": [], "usage": {"include": True}, "reasoning": {"effort": "low"}}, "provider, transforms"),
    ({"guided_decoding_backend": None, "documents": None, "chat_template": None, "request_id": None}, ""),
    ({"options": {"num_predict": 3, "num_ctx": 4096}, "think": False}, "options.num_ctx"),
    ({"ttl": 60, "draft_model": "x"}, "draft_model, keep_alive"),
    ({"functions": [], "function_call": "none", "stop": ["", "zz"], "reasoning_effort": "max"}, ""),
    ({"of_next_year": {"a": 1}}, "of_next_year"),
])
def test_chats_with_fields_of_other_servers(client, extra, named):
    answer = client.chat.completions.with_raw_response.create(model=MODEL, messages=ASK, max_tokens=3, temperature=0, extra_body=extra)
    assert ignored(answer) == named
    assert answer.parse().usage.completion_tokens <= 3


def test_no_limit_and_greedy(client):
    greedy = client.completions.create(model=MODEL, prompt=STORY, max_tokens=12, temperature=0).choices[0].text
    assert client.completions.create(model=MODEL, prompt=STORY, max_tokens=12, temperature=1.5,
                                     extra_body={"do_sample": False}).choices[0].text == greedy
    whole = client.chat.completions.create(model=MODEL, messages=ASK, temperature=0)
    unlimited = client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=-1, temperature=0)
    assert unlimited.choices[0].message.content == whole.choices[0].message.content


def test_a_stop_string_stays_where_that_is_asked_for(client):
    options = dict(model=MODEL, messages=ASK, max_tokens=60, temperature=0, stop=["."])
    without = client.chat.completions.create(**options).choices[0].message.content
    assert not without.endswith(".")
    extra = {"include_stop_str_in_output": True}
    assert client.chat.completions.create(**options, extra_body=extra).choices[0].message.content == without + "."
    stream = client.chat.completions.create(**options, extra_body=extra, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == without + "."


def test_a_json_object_with_a_schema(client):
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["a"],
              "additionalProperties": False}
    answer = client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=40, temperature=0,
                                            response_format={"type": "json_object", "schema": schema})
    assert list(json.loads(answer.choices[0].message.content)) == ["a"]


def test_typing_errors_have_a_suggestion(client):
    with pytest.raises(openai.BadRequestError, match='did you mean "temperature"') as error:
        client.chat.completions.create(model=MODEL, messages=ASK, extra_body={"temperatur": 1})
    assert error.value.param == "temperatur"


def test_options_of_ollama(server):
    llama = ollama.Client(host=server.url)
    answer = llama.chat(model=MODEL, messages=ASK, options={"num_predict": 3, "vocab_only": False, "num_gpu": 1, "stop": [""]})
    assert answer.eval_count <= 3


def test_llama_cpp(server):
    reference = server.post("/v1/completions", {"prompt": STORY, "max_tokens": 9, "temperature": 0, "ignore_eos": True}).json()
    body = {"prompt": STORY, "n_predict": 9, "temperature": 0, "ignore_eos": True, "return_tokens": True, "cache_prompt": True}
    answer = server.post("/completion", body).json()
    assert answer["content"] == reference["choices"][0]["text"] and answer["stop_type"] == "limit"
    assert len(answer["tokens"]) == answer["tokens_predicted"] == 9
    text = ""
    for line in server.post("/completion", body | {"stream": True}).text.splitlines():
        text += json.loads(line[6:])["content"] if line else ""
    assert text == answer["content"]
    refused = server.post("/infill", {"input_prefix": "a", "input_suffix": "b"})
    assert refused.status_code == 400 and "Qwen2.5-Coder" in refused.text
    props = server.get("/props").json()
    assert props["total_slots"] == len(server.get("/slots").json()) > 1
    assert props["default_generation_settings"]["n_ctx"] > 0


def test_names_of_models(start):
    with start("--alias", "gpt-4o,local", "--any-model-name") as server:
        for name in ("gpt-4o", "local", "local:latest", "claude-sonnet-4-5"):
            answer = server.post("/v1/completions", {"model": name, "prompt": STORY, "max_tokens": 1})
            assert answer.status_code == 200 and answer.json()["model"] == name
        assert [m["id"] for m in server.get("/v1/models").json()["data"]] == [MODEL, "gpt-4o", "local"]
