"""langchain-openai, unmodified: messages, streams, structured output and tools."""
import asyncio
import json

import pytest

langchain_openai = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed (tools/requirements-test.txt)")

STORY = "Tell me a story about a cat."
SCHEMA = {"title": "animal", "type": "object", "properties": {"animal": {"enum": ["cat", "dog"]}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
          "required": ["animal", "age"], "additionalProperties": False}


@pytest.fixture(scope="module")
def chat(server):
    return langchain_openai.ChatOpenAI(model="redline-tales", base_url=server.url + "/v1", api_key="any", temperature=0,
                                       max_tokens=200, seed=1, max_retries=0)


def test_messages_and_streams(chat):
    whole = chat.invoke([("system", "Be kind."), ("human", STORY)])
    assert whole.content and whole.usage_metadata["input_tokens"] > 0
    assert whole.response_metadata["finish_reason"] in ("stop", "length")
    assert "".join(part.content for part in chat.stream([("system", "Be kind."), ("human", STORY)])) == whole.content
    assert [m.content for m in chat.batch([[("system", "Be kind."), ("human", STORY)]] * 3)] == [whole.content] * 3


def test_async(chat):
    async def run():
        whole = await chat.ainvoke(STORY)
        assert "".join([part.content async for part in chat.astream(STORY)]) == whole.content
    asyncio.run(run())


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(chat, method):
    value = chat.with_structured_output(SCHEMA, method=method).invoke(STORY)
    assert value["animal"] in ("cat", "dog") and 0 <= value["age"] <= 99


def test_tools(chat):
    tool = {"type": "function", "function": {"name": "animal", "description": "says which", "parameters": SCHEMA}}
    for choice in ("any", "animal"):
        message = chat.bind_tools([tool], tool_choice=choice, parallel_tool_calls=False).invoke(STORY)
        assert [call["name"] for call in message.tool_calls] == ["animal"]
        assert message.tool_calls[0]["args"]["animal"] in ("cat", "dog")
    # The call and its answer are read back.
    answer = {"role": "tool", "tool_call_id": message.tool_calls[0]["id"], "content": json.dumps({"sound": "meow"})}
    assert chat.invoke([("human", STORY), message, answer]).content


def test_responses(server):
    chat = langchain_openai.ChatOpenAI(model="redline-tales", base_url=server.url + "/v1", api_key="any", temperature=0,
                                       max_tokens=60, max_retries=0, use_responses_api=True)
    whole = chat.invoke(STORY)
    assert whole.text and "".join(part.text for part in chat.stream(STORY)) == whole.text
