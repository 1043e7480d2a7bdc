"""The costs of additions (tools/cost_additions.py): counted on a temporary copy, and compared with docs/architecture/additions.md."""
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECK = ROOT / "tools" / "check_costs.py"


def run(*arguments):
    return subprocess.run([sys.executable, CHECK, *arguments], text=True, capture_output=True)


def test_every_kind_stays_within_its_bracket_and_is_documented():
    check = run("--table")
    assert check.returncode == 0, check.stderr
    rows = check.stdout.splitlines()[2:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == run("--list").stdout.splitlines()
    document = (ROOT / "docs" / "architecture" / "additions.md").read_text(encoding="utf-8")
    missing = [row for row in rows if row not in document]
    assert not missing, "\n".join(["docs/architecture/additions.md lacks:", *missing])


def test_names_outside_of_their_registry_are_found(tmp_path):
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import check_costs
    finally:
        sys.path.pop(0)
    for folder in ("src/models", "src/diffusion/solvers", "src/diffusion/step_cache/rules", "comfyui_redline"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src/models/finch.cc").write_text(
        '.model_type = "finch",\n.gguf = {.architecture = "finch"},\n.gguf_architecture = "wren"\nx == "finch"\n')
    (tmp_path / "src/diffusion/solvers/heun.cc").write_text('.name = "heun",\n')
    (tmp_path / "src/diffusion/step_cache/rules/late_rule.cc").write_text('.name = "late",\n')
    assert check_costs.find_strangers(tmp_path) == []
    (tmp_path / "src/models/mix.cc").write_text('if (arch == "finch") return;  // == "wren"\nset("wren");\n')
    (tmp_path / "comfyui_redline/nodes.py").write_text('RULES = ["none", "late"]\n')
    assert {line.split(": ")[0] for line in check_costs.find_strangers(tmp_path)} == {"src/models/mix.cc:1", "comfyui_redline/nodes.py:1"}


def test_an_unknown_kind_is_named():
    check = run("colour")
    assert check.returncode == 2
    assert 'there is no kind "colour"; the kinds are: op, collective op, fusion, text family' in check.stderr


@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
def test_a_rule_compiles():
    check = run("--build", "step-cache rule")
    assert check.returncode == 0, check.stderr
