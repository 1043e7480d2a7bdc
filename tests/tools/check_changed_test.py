"""Which tests `make check` takes for which changed files."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_changed  # noqa: E402

LAYERS = ["base", "text", "models", "diffusion", "llm", "cli"]


def chosen(*names):
    tools = {"tests/tools/regress_test.py": 'TOOLS / "regress"', "tests/tools/other_test.py": "progress"}
    return check_changed.tests_of(names, LAYERS, ["convert", "run"], tools, {"golden.h": ["models"]}.get)


def test_sources_and_tests_stand_for_their_floor():
    assert chosen("src/text/bpe.cc", "tests/models/golden_test.cc") == (["models", "text"], [], [])
    assert chosen("tests/golden/tokenizers/gpt2.json") == (["text"], [], [])
    assert chosen("tests/golden/image/flux_dev/config.json") == (["diffusion", "models"], [], [])
    assert chosen("tests/support/golden.h") == (["models"], [], [])
    assert chosen("include/redline/text.h") == (["cli", "diffusion", "llm"], [], [])


def test_commands_and_tools():
    assert chosen("src/cli/convert_command.cc") == (["cli"], ["convert"], [])
    assert chosen("tests/e2e/run.test") == ([], ["run"], [])
    assert chosen("tools/regress") == ([], [], ["tests/tools/regress_test.py"])


def test_the_rest_has_no_tests():
    assert chosen("docs/cli.md", "README.md", "src/lonely/x.cc") == ([], [], [])
