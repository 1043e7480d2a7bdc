#!/usr/bin/env python3
"""Runs text files of commands with their expected output and exit code, similar to DuckDB's sqllogictest.

    # a comment
    needs {shared}/models/stories260K      skip the rest of the file when the path is absent
    run version --json                     one step: arguments of redline, quoted as in a shell
    shell {redline} help | head -1         or a step for bash
    env REDLINE_THREADS=1                  applies to this step, as do the lines below
    stdin "text\\n"                         a JSON string; the default is empty
    interrupt 20                           send Ctrl-C once stdout has this many bytes
    exit 0                                 required
    stdout "redline 0.1.0\\n"               equal to a JSON string
    stdout /regex/                         found in it (^ and $ match at lines); !/regex/: not found
    stdout = {shared}/file.txt             equal to a file, byte for byte
    json rows.0.phase "prefill"            a value inside stdout as JSON; `json rows.# 4` is a length
    stderr ...                             as stdout
    fields except Record.field; ...         last: the steps of this file printed every field of docs/json.md but these

The JSON that a run step prints to stdout must have the fields of docs/json.md, and no others.
{redline} {built} {assets} {golden} {shared} {tmp} stand for paths; {built} is the folder of redline, {golden} the golden
models that the build makes there, {tmp} a fresh one per file. A step that fails (exit other than 0) must leave stdout empty
unless a stdout line says otherwise. Exit code 77: everything was skipped.
"""
import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests/support"))

from inherited_signals import restore_for_programs  # noqa: E402

STEP_TIMEOUT_S = 240


class Fields:
    """The records of docs/json.md, and which of their fields have been printed."""

    def __init__(self, path):
        self.documents, self.records, self.seen = {}, {}, set()
        for line in path.read_text().splitlines():
            if line.startswith(("## ", "### ")):
                name = line.lstrip("# ")
                record = (self.documents if name.startswith("redline ") else self.records).setdefault(name, {})
            elif line.startswith("| ") and not line.startswith("| field |"):
                field, kind = (cell.strip(" `") for cell in line.split("|")[1:3])
                record[field] = kind

    def differences(self, value, kind, where, seen):
        """How a value differs from its type."""
        if kind.endswith(" or null"):
            return [] if value is None else self.differences(value, kind.removesuffix(" or null"), where, seen)
        container, _, of = kind.partition(" of ")
        if of and not isinstance(value, {"list": list, "map": dict}[container]):
            return [f"{where} is no {container}"]
        if of:
            parts = value.items() if container == "map" else enumerate(value)
            return [d for key, part in parts for d in self.differences(part, of, f"{where}.{key}", seen)]
        if kind in self.records:
            return self.of_record(value, kind, self.records[kind], where, seen)
        types = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "any": object}[kind]
        fits = isinstance(value, types) and (kind in ("boolean", "any") or not isinstance(value, bool))
        return [] if fits else [f"{where} is {value!r}, no {kind}"]

    def of_record(self, value, name, fields, where, seen):
        if not isinstance(value, dict):
            return [f"{where} is not an object"]
        found, known = [], {field.removesuffix("?"): kind for field, kind in fields.items()}
        found += [f"{where}.{key} is not documented" for key in value if key not in known]
        found += [f"{where}.{field} is missing" for field in fields if not field.endswith("?") and field not in value]
        for key, part in value.items():
            if key in known:
                seen.add((name, key))
                found += self.differences(part, known[key], f"{where}.{key}", seen)
        return found

    def check(self, command, out):
        """What is wrong with a document of `redline COMMAND`, by the record that it is most like."""
        try:
            parsed = json.loads(out)
        except ValueError as error:
            return [f"stdout is not JSON: {error}"]
        best = None
        for name, fields in self.documents.items():
            if name.split()[1] != command:
                continue
            seen = set()
            found = [d for value in (parsed if isinstance(parsed, list) else [parsed])
                     for d in self.of_record(value, name, fields, command, seen)]
            if best is None or len(found) < len(best[0]):
                best = found, seen
        if best is None:
            return [f"docs/json.md has no document for {command}"]
        self.seen |= best[1]
        return best[0]

    def unseen(self, exceptions):
        every = {(name, field.removesuffix("?")) for records in (self.documents, self.records)
                 for name, fields in records.items() for field in fields}
        return sorted(f"{name}.{field}" for name, field in every - self.seen if f"{name}.{field}" not in exceptions)


class Step:
    def __init__(self, line_number, argv):
        self.line_number, self.argv = line_number, argv
        self.env, self.stdin, self.interrupt, self.exit, self.checks = {}, b"", None, None, []
        self.prints_json = Path(argv[0]).name == "redline" and "--json" in argv


def parse(path, names):
    steps, needs, fields = [], [], None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        for name, value in names.items():
            line = line.replace("{" + name + "}", value)
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        try:
            if word == "needs":
                needs.append((len(steps), rest))
            elif word == "run":
                steps.append(Step(number, [names["redline"], *shlex.split(rest)]))
            elif word == "shell":
                steps.append(Step(number, ["bash", "-o", "pipefail", "-c", rest]))
            elif word == "env":
                key, _, value = rest.partition("=")
                steps[-1].env[key] = value
            elif word == "stdin":
                steps[-1].stdin = json.loads(rest).encode()
            elif word == "interrupt":
                steps[-1].interrupt = int(rest)
            elif word == "exit":
                steps[-1].exit = int(rest)
            elif word == "fields":
                fields = rest.removeprefix("except ").split("; ")
            elif word in ("stdout", "stderr", "json"):
                steps[-1].checks.append((number, word, rest))
            else:
                sys.exit(f"{path}:{number}: unknown word {word!r}")
        except (ValueError, IndexError) as error:
            sys.exit(f"{path}:{number}: {error}")
    for step in steps:
        if step.exit is None:
            sys.exit(f"{path}:{step.line_number}: the step states no exit code")
    return steps, needs, fields


def execute(step, cwd):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("REDLINE_")} | step.env
    process = subprocess.Popen(step.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               cwd=cwd, env=environment, bufsize=0)
    head = b""
    if step.interrupt is not None:
        process.stdin.write(step.stdin)
        process.stdin.close()
        process.stdin = None
        while len(head) < step.interrupt and (byte := process.stdout.read(1)):
            head += byte
        process.send_signal(signal.SIGINT)
        step.stdin = None
    try:
        out, err = process.communicate(step.stdin, timeout=STEP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None, head, b""
    return process.returncode, head + out, err


def look_up(document, path):
    """The value at `path`. Keys may have dots ("metadata.general.name")."""
    parts = [part for part in path.split(".") if part]
    while parts:
        part = parts.pop(0)
        if part == "#":
            document = len(document)
        elif isinstance(document, list):
            document = document[int(part)]
        else:
            while part not in document and parts:
                part += "." + parts.pop(0)
            document = document[part]
    return document


def check(word, rest, out, err):
    """What is wrong, or None."""
    if word == "json":
        path, _, expected = rest.partition(" ")
        try:
            found = look_up(json.loads(out), path)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            return f"json {path}: {type(error).__name__} {error}"
        if expected.startswith("/"):
            return None if re.search(expected[1:-1], str(found)) else f"json {path} is {found!r}"
        return None if found == json.loads(expected) else f"json {path} is {found!r}"
    got = out if word == "stdout" else err
    if rest.startswith("="):
        return None if got == Path(rest[1:].strip()).read_bytes() else f"{word} differs from {rest[1:].strip()}"
    if rest.startswith('"'):
        return None if got == json.loads(rest).encode() else f"{word} is not {rest}"
    wanted = not rest.startswith("!")
    pattern = rest.removeprefix("!")
    if not (pattern.startswith("/") and pattern.endswith("/") and len(pattern) > 2):
        return f"cannot read the expectation {rest}"
    found = re.search(pattern[1:-1], got.decode(errors="replace"), re.MULTILINE) is not None
    return None if found == wanted else f"{word} {'lacks' if wanted else 'has'} {pattern}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--redline", required=True)
    arguments.add_argument("--shared", default=str(REPOSITORY.parent / "shared"))
    arguments.add_argument("file", type=Path)
    options = arguments.parse_args()
    restore_for_programs()
    with tempfile.TemporaryDirectory(prefix="redline-e2e-") as tmp:
        names = {"redline": str(Path(options.redline).resolve()), "built": str(Path(options.redline).resolve().parent),
                 "assets": str(REPOSITORY / "assets"),
                 "golden": str(Path(options.redline).resolve().parent / "golden"), "shared": options.shared, "tmp": tmp}
        steps, needs, every_field_except = parse(options.file, names)
        fields = Fields(REPOSITORY / "docs/json.md")
        for position, path in needs:
            if not Path(path).exists():
                print(f"{options.file.name}: steps from number {position + 1} on skipped: {path} is absent")
                steps = steps[:position]
        if not steps:
            return 77
        failures = 0
        for step in steps:
            code, out, err = execute(step, REPOSITORY)
            problems = []
            if code != step.exit:
                problems.append("did not end in time" if code is None else f"exit code {code}, expected {step.exit}")
            if step.exit != 0 and out and not any(w != "stderr" for _, w, _ in step.checks):
                problems.append("a failed command wrote to stdout")
            if step.prints_json and step.exit == 0 and code == 0:
                problems += fields.check(step.argv[1], out)
            problems += [f"line {n}: {p}" for n, w, r in step.checks if (p := check(w, r, out, err))]
            if not problems:
                continue
            failures += 1
            print(f"{options.file}:{step.line_number}: {shlex.join(step.argv)}", *problems, sep="\n  ")
            print(f"  stdout: {out[:2000]!r}\n  stderr: {err[:2000]!r}")
        unseen = [] if every_field_except is None else fields.unseen(every_field_except)
        if unseen:
            failures += 1
            print(f"{options.file}: documented, but never printed: {' '.join(unseen)}")
        print(f"{options.file.name}: {len(steps) - failures} of {len(steps)} steps pass")
        return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
