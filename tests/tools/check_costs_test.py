"""The costs of additions: counted on a temporary copy, and compared with docs/architecture.md."""
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECK = ROOT / "tools" / "check_costs.py"


def run(*arguments):
    return subprocess.run([sys.executable, CHECK, *arguments], text=True, capture_output=True)


def test_every_kind_stays_within_its_bracket():
    check = run()
    assert check.returncode == 0, check.stderr
    kinds = run("--list").stdout.splitlines()
    assert [line.split(":")[0] for line in check.stdout.splitlines()] == kinds


def test_the_counts_are_in_the_documentation():
    table = run("--table").stdout.splitlines()
    document = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    missing = [row for row in table[2:] if row not in document]
    assert not missing, "\n".join(["docs/architecture.md lacks:", *missing])


def test_an_unknown_kind_is_named():
    check = run("colour")
    assert check.returncode == 2
    assert 'there is no kind "colour"; the kinds are: op, text family' in check.stderr


@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
def test_a_rule_compiles():
    check = run("--build", "step-cache rule")
    assert check.returncode == 0, check.stderr
