"""Which tests `make check` takes for which changed files."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_changed  # noqa: E402

LAYERS = ["base", "text", "models", "diffusion", "llm", "server", "cli"]


def chosen(*names):
    tools = {"tests/tools/regress_test.py": 'TOOLS / "regress"', "tests/tools/other_test.py": "progress"}
    users = {"support/golden.h": ["models"], "redline/text.h": ["llm", "server", "cli", "support"]}
    return check_changed.tests_of(names, LAYERS, ["convert", "run"], tools, users.get)


def test_sources_and_tests_stand_for_their_floor():
    assert chosen("src/text/bpe.cc", "tests/models/golden_test.cc") == (["models", "text"], [], [])
    assert chosen("tests/golden/tokenizers/gpt2.json") == (["text"], [], [])
    assert chosen("tests/golden/image/flux_dev/config.json") == (["diffusion", "models"], [], [])
    assert chosen("tests/support/golden.h") == (["models"], [], [])
    assert chosen("include/redline/text.h") == (["cli", "llm", "server"], [], [])


def test_public_headers_stand_for_the_layers_that_include_them():
    def chosen_of_repository(name):
        return check_changed.tests_of([name], {"capi", "cli", "diffusion", "embedding", "lab", "llm", "server", "text"}, [], {},
                                      check_changed.users_of)[0]

    assert {"capi", "cli", "embedding", "server"} <= set(chosen_of_repository("include/redline/embedding.h"))
    assert "text" not in chosen_of_repository("include/redline/embedding.h")
    # runtime.h is included by image.h, which calls of the C interface include.
    assert {"capi", "diffusion", "llm"} <= set(chosen_of_repository("include/redline/runtime.h"))


def test_commands_and_tools():
    assert chosen("src/cli/convert_command.cc") == (["cli"], ["convert"], [])
    assert chosen("tests/e2e/run.test") == ([], ["run"], [])
    assert chosen("tools/regress") == ([], [], ["tests/tools/regress_test.py"])


def test_the_rest_has_no_tests():
    assert chosen("docs/cli.md", "README.md", "src/lonely/x.cc") == ([], [], [])
