#!/usr/bin/env python3
"""Builds and runs the tests of what changed, then checks format, includes and tree: `make check`.

  check_changed.py [BASE]     BASE: a revision; default: where HEAD left origin/main, else HEAD~1. The work tree counts too.
  check_changed.py --list [BASE]     only prints the tests that would run

A changed source or test stands for its layer's test program (src/text, tests/text: text_tests), a changed command for its
tests/e2e file, a changed tool for the tests in tests/tools that name it. A public header stands for the layers that include it. Tests with the label slow are left out. The library is one
target, so every layer is compiled before any test runs; layers above a changed header are not tested: `make test` does that.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/dev"


def git(*arguments):
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def default_base():
    head = git("rev-parse", "HEAD")
    base = git("merge-base", "HEAD", "origin/main")
    return base if base and base != head else git("rev-parse", "HEAD~1") or head


def changed_files(base):
    names = git("diff", "--name-only", base).splitlines()
    names += git("ls-files", "-o", "--exclude-standard").splitlines()
    return sorted(set(names))


def tests_of(names, layers, e2e, tool_tests, users_of=lambda header: []):
    """Of changed files: layers, e2e names and files of Python tests. `tool_tests`: path -> text of each; `users_of`: the layers
    that include a header, "support/x.h" or "redline/x.h"."""
    chosen_layers, chosen_e2e, chosen_tools = set(), set(), set()
    for name in names:
        parts = name.split("/")
        if parts[0] in ("src", "tests") and len(parts) > 2 and parts[1] in layers:
            chosen_layers.add(parts[1])
        if name.startswith("tests/golden/"):
            chosen_layers.update({"tokenizers": ["text"], "image": ["models", "diffusion"], "blocks.npz": ["tensor"]}.get(parts[2], ["models"]))
        if name.startswith("tests/support/"):
            chosen_layers.update(users_of(f"support/{parts[-1]}"))
        if name.startswith("include/redline/"):
            chosen_layers.update(users_of(f"redline/{parts[-1]}"))
        command = re.fullmatch(r"src/cli/(\w+)_command\.cc|tests/e2e/(\w+)\.test", name)
        if command and (command[1] or command[2]) in e2e:
            chosen_e2e.add(command[1] or command[2])
        if name in tool_tests:
            chosen_tools.add(name)
        if parts[0] == "tools" and len(parts) == 2:
            word = re.compile(rf"\b{re.escape(pathlib.Path(name).stem)}\b")
            chosen_tools.update(path for path, text in tool_tests.items() if word.search(text))
    return sorted(chosen_layers & set(layers)), sorted(chosen_e2e), sorted(chosen_tools)


def users_of(header):
    """Layers whose sources or tests include a header, "support/x.h" or "redline/x.h", or one that includes it."""
    found, headers = set(), [header]
    for name in headers:  # which include each other
        for path in git("grep", "-lF", f'#include "{name}"', "--", "include", "src", "tests").splitlines():
            folder, rest = path.split("/", 1)
            if path.startswith(("include/", "tests/support/")):
                headers += [rest] if rest not in headers else []
            else:
                found.add(rest.split("/")[0])
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", nargs="?", default=None)
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    base = git("rev-parse", "--verify", "--quiet", f"{arguments.base}^{{commit}}") if arguments.base else default_base()
    if not base:
        sys.exit(f"check: {arguments.base} is not a revision of this repository")
    layers = [path.name for path in (ROOT / "tests").iterdir() if any(path.rglob("*_test.cc")) or any(path.rglob("*_test.c"))]
    e2e = [path.stem for path in (ROOT / "tests/e2e").glob("*.test")]
    tool_tests = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "tests/tools").glob("*_test.py")}

    layers, e2e, tools = tests_of(changed_files(base), layers, e2e, tool_tests, users_of)
    chosen = [*(f"{layer}_tests" for layer in layers), *(f"e2e.{name}" for name in e2e), *tools]
    print(f"check: since {base[:9]}: {', '.join(chosen) or 'nothing that has tests'}", flush=True)
    if arguments.list:
        return 0

    def run(what, *command, hide=None):
        """`hide`: lines that are not worth showing."""
        begin = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE if hide else None, text=True, errors="replace")
        if hide:
            print(*(line for line in done.stdout.splitlines() if not re.search(hide, line)), sep="\n")
        print(f"check: {what}: {'ok' if done.returncode == 0 else 'FAILED'}, {time.monotonic() - begin:.0f} s", flush=True)
        return done.returncode == 0

    good = True
    if not (BUILD / "build.ninja").exists():
        good = run("configure", "cmake", "--preset", "dev")
    if layers or e2e:
        targets = [f"{layer}_tests" for layer in layers] + (["redline_cli", "tales_gguf", "golden"] if e2e else [])
        built = good and run("build", "cmake", "--build", str(BUILD), "--target", *targets)
        pattern = "|".join([*(rf"^{layer}\." for layer in layers), *(rf"^e2e\.{name}$" for name in e2e)])
        good = built and run("tests", "ctest", "--test-dir", str(BUILD), "-R", pattern, "-LE", "slow", "-j", str(os.cpu_count()),
                             "--output-on-failure", "--no-tests=error", hide=r"^ *\d+/\d+ Test.* Passed |^ *Start |^$|^Internal ctest|^Test project")
    python = ROOT / "build/venv/bin/python"
    if tools:
        good &= run("tools", str(python if python.exists() else sys.executable), "-m", "pytest", "-q", "-p", "no:cacheprovider", *tools)
    good &= run("format, includes, tree", "tools/check", "format", "layers", "tree")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
