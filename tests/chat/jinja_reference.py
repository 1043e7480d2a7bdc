"""jinja2 as transformers sets it up for chat templates, and `redline template --batch` beside it."""

import copy
import json
import subprocess
from datetime import datetime
from pathlib import Path

import pytest

jinja2 = pytest.importorskip("jinja2", reason="jinja2 is the reference")
from jinja2 import ext, nodes, sandbox  # noqa: E402

from redline_binary import binary  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2026, 3, 9, 7, 5, 2)


class GenerationBlocks(ext.Extension):
    """{% generation %} ... {% endgeneration %}: a call block around its text."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_text_of"), [], [], body).set_lineno(line)

    def _text_of(self, caller):
        return caller()


def fail(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    env = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlocks, ext.loopcontrols]
    )

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = fail
    env.globals["strftime_now"] = NOW.strftime
    return env


ENVIRONMENT = environment()
_COMPILED = {}


def reference(template, variables):
    """The text, or the exception."""
    try:
        if template not in _COMPILED:
            _COMPILED[template] = ENVIRONMENT.from_string(template)
        return _COMPILED[template].render(**copy.deepcopy(variables))  # some filters of jinja2 change their input
    except (MemoryError, KeyboardInterrupt):
        raise
    except BaseException as problem:  # templates raise whatever Python raises
        return problem


def render_batch(lines, tmp_path):
    """One {"text": ...} or {"error": ...} for each line, from one process."""
    empty = tmp_path / "empty.jinja"
    empty.write_text("")
    batch = tmp_path / "batch.jsonl"
    batch.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    command = [binary(), "template", str(empty), "--batch", str(batch), "--now", NOW.isoformat()]
    run = subprocess.run(command, capture_output=True, timeout=300)
    assert run.returncode == 0, run.stderr.decode()
    # Not splitlines(): it also cuts at characters such as U+2028, which JSON leaves as they are.
    results = [json.loads(line) for line in run.stdout.decode().split("\n") if line]
    assert len(results) == len(lines)
    return results


def line_of(template, variables):
    """A line of the batch: `variables` as the template sees them."""
    variables = dict(variables)
    line = {"template": template, "messages": variables.pop("messages", [])}
    tools = variables.pop("tools", None)
    if tools is not None:
        line["tools"] = tools
    line["add_generation_prompt"] = variables.pop("add_generation_prompt", True)
    variables.pop("documents", None)
    line["variables"] = variables
    return line


def compare(cases, tmp_path):
    """cases: (name, template, variables). Asserts equal texts, and errors where jinja2 raises; returns how many render."""
    complete = []
    for name, template, variables in cases:
        variables = {"messages": [], "tools": None, "documents": None, "add_generation_prompt": True, **variables}
        complete.append((name, template, variables))
    results = render_batch([line_of(template, variables) for _, template, variables in complete], tmp_path)
    rendered, wrong = 0, []
    for (name, template, variables), result in zip(complete, results):
        expected = reference(template, variables)
        if isinstance(expected, str) and " at 0x" in expected:
            continue  # an address in the memory of Python
        if isinstance(expected, str):
            rendered += 1
            if result.get("text") != expected:
                wrong.append((name, template, repr(expected), result))
        elif "error" not in result:
            wrong.append((name, template, f"raises {expected!r}", result))
    shown = [f"{n}\n  template {t!r:.600}\n  jinja2   {e:.1500}\n  redline  {str(r):.1500}" for n, t, e, r in wrong[:10]]
    assert not wrong, f"{len(wrong)} of {len(cases)} differ:\n" + "\n".join(shown)
    return rendered
