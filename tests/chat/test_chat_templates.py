"""Every template in ../shared/models/chat-templates renders byte for byte like jinja2 with transformers' options: for
conversations with system messages, tools, calls and results, reasoning and content in parts, with and without generation
prompt. Where jinja2 raises, redline must give an error."""

import itertools

import pytest
from jinja_reference import ROOT, compare, reference

TEMPLATES = sorted((ROOT.parent / "shared/models/chat-templates").glob("*.jinja"))

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": 'Current weather of a "city" <anywhere> & more',
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Name of the city, e.g. Zürich"},
                    "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                    "days": {"type": "integer", "description": "How many days", "default": 1},
                    "where": {
                        "type": "object",
                        "description": "A place",
                        "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
                        "required": ["lat"],
                    },
                    "tags": {"type": "array", "items": {"type": "string"}, "description": "Tags"},
                },
                "required": ["city", "unit"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "now",
            "description": "The time",
            "parameters": {"type": "object", "properties": {}, "required": []},
        },
    },
]


def call(name, arguments, number=0):
    return {"id": f"call_{number:05d}"[:9], "type": "function", "function": {"name": name, "arguments": arguments}}


ARGUMENTS = {"city": "Zürich", "unit": "celsius", "days": 3, "where": {"lat": 47.5, "lon": None}, "tags": ["a", "b's"], "on": True}
CONVERSATIONS = {
    "user": [{"role": "user", "content": "Hello!"}],
    "system": [{"role": "system", "content": "Be brief.\n"}, {"role": "user", "content": " Hi 😀 <b>\n\n"}],
    "turns": [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": "Two"},
        {"role": "user", "content": "Three"},
        {"role": "assistant", "content": "Four\n"},
        {"role": "user", "content": "Five"},
    ],
    "reasoning": [
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": "2", "reasoning_content": "One and one.\nTwo."},
        {"role": "user", "content": "And 2 + 2?"},
        {"role": "assistant", "content": "<think>\nFour, of course.\n</think>\n\n4"},
        {"role": "user", "content": "Thanks"},
    ],
    "thinking": [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": "Gone", "thinking": "Away.", "reasoning": "So it is."},
        {"role": "user", "content": "Back"},
    ],
    "answered": [{"role": "user", "content": "Ping"}, {"role": "assistant", "content": "Pong", "reasoning_content": "Ping?"}],
    "calls": [
        {"role": "system", "content": "Use tools."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", "tool_calls": [call("get_weather", ARGUMENTS)]},
        {"role": "tool", "content": '{"temperature": 21.5}', "tool_call_id": "call_0000", "name": "get_weather"},
        {"role": "assistant", "content": "21.5 degrees."},
        {"role": "user", "content": "Thanks"},
    ],
    "calls as text": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call("get_weather", '{"city": "Bern", "unit": "celsius"}')]},
        {"role": "tool", "content": "rain", "tool_call_id": "call_0000", "name": "get_weather"},
    ],
    "parallel calls": [
        {"role": "user", "content": "Weather and time?"},
        {
            "role": "assistant",
            "content": "Looking.",
            "reasoning_content": "Two calls.",
            "tool_calls": [call("get_weather", {"city": "Basel", "unit": "celsius"}, 1), call("now", {}, 2)],
        },
        {"role": "tool", "content": "sun", "tool_call_id": "call_0001", "name": "get_weather"},
        {"role": "tool", "content": "12:00", "tool_call_id": "call_0002", "name": "now"},
        {"role": "assistant", "content": "Sun at noon."},
        {"role": "user", "content": "Great"},
    ],
    "results only": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", "tool_calls": [call("get_weather", {"city": "Chur", "unit": "celsius"}, 1)]},
        {"role": "tool", "content": [{"type": "text", "text": "fog"}], "tool_call_id": "call_0001", "name": "get_weather"},
    ],
    "parts": [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": [{"type": "text", "text": "Part one. "}, {"type": "text", "text": "Part two."}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Yes."}]},
        {"role": "user", "content": [{"type": "text", "text": "And?"}]},
    ],
    "pictures": [
        {
            "role": "user",
            "content": [
                {"type": "image", "image": "a.png"},
                {"type": "image_url", "image_url": {"url": "b.png"}},
                {"type": "text", "text": "What is it?"},
            ],
        }
    ],
    "developer": [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "Hi"}],
    "wrong order": [{"role": "assistant", "content": "I begin"}, {"role": "user", "content": "Hi"}],
    "unknown role": [{"role": "user", "content": "Hi"}, {"role": "robot", "content": "beep"}],
    "empty content": [{"role": "user", "content": ""}],
    "no messages": [],
}
VARIABLES = {
    "": {},
    "thinking": {"enable_thinking": True, "thinking": True, "reasoning_effort": "high"},
    "functions": {"functions": '[{"name": "now"}]', "datetime": "2026-03-09", "custom_instructions": "Be kind."},
    "no thinking": {"enable_thinking": False, "thinking": False, "thinking_mode": "disabled"},
}
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def cases(template):
    text = template.read_text(encoding="utf-8")
    for (name, messages), tools, prompt, (mode, variables) in itertools.product(
        CONVERSATIONS.items(), (None, TOOLS), (False, True), VARIABLES.items()
    ):
        what = f"{template.name}: {name}, {'tools' if tools else 'no tools'}, prompt {prompt}, {mode}"
        yield what, text, {
            **SPECIAL,
            **variables,
            "messages": messages,
            "tools": tools,
            "documents": None,
            "add_generation_prompt": prompt,
        }


@pytest.mark.skipif(not TEMPLATES, reason="no ../shared/models/chat-templates")
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda t: t.stem)
def test_like_transformers(template, tmp_path):
    rendered = compare(list(cases(template)), tmp_path)
    assert rendered >= 12, f"only {rendered} conversations render in jinja2: the comparison is empty"


def test_the_reference_raises_and_renders():
    """The reference itself: what it allows and what it refuses."""
    assert reference("{% generation %}{{ [1]|tojson }}{% endgeneration %}{% for i in range(9) %}{% break %}{% endfor %}", {}) == "[1]"
    assert isinstance(reference("{{ raise_exception('no') }}", {}), Exception)
    assert isinstance(reference("{{ x.append(1) }}", {"x": []}), Exception)
