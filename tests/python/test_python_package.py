"""The package as such: declarations, types, documentation, examples."""
import doctest
import importlib
import json
import os
import pathlib
import pkgutil
import re
import subprocess
import sys

import pytest
import redline
from redline import _redline

MODULES = [m.name for m in pkgutil.iter_modules(redline.__path__, "redline.")]


def test_the_stubs_are_those_of_the_module(root, tmp_path):
    pytest.importorskip("nanobind")
    stubs = tmp_path / "_redline.pyi"
    done = subprocess.run([sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "_redline", "-i",
                           pathlib.Path(_redline.__file__).parent, "-o", stubs], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert stubs.read_text() == (root / "python/redline/_redline.pyi").read_text(), (
        "python/redline/_redline.pyi is out of date: build/venv/bin/python -m nanobind.stubgen -m _redline -i build/dev "
        "-o python/redline/_redline.pyi")


# What Python does without: cancelling and notices come as exceptions and signals.
NOT_IN_PYTHON = {"canceller", "on_step", "on_wait", "on_notice", "user_data", "struct_size"}


@pytest.mark.parametrize("name", ["runtime_options", "model_options", "generate_options", "logits_options", "embedding_options",
                                  "embed_options", "image_pipeline_options", "image_request", "network_options", "network_step"])
def test_structs_have_the_fields_of_the_header(root, name):
    header = re.sub(r"/\*.*?\*/", "", (root / "include/redline/c_api.h").read_text(), flags=re.S)
    body = re.search(r"typedef struct redline_%s \{(.*?)\} redline_%s;" % (name, name), header, flags=re.S)[1]
    for table in re.findall(r'#include "(redline/\w+\.inc)"', body):
        rows = (root / "include" / table).read_text()
        body = "".join(f"{row};" for row in re.findall(r"^REDLINE_(?:REQUEST_)?OPTION\(\s*\w+, (\w+)", rows, flags=re.M))
        body += "".join(f"{row};" for row in re.findall(r"^REDLINE_OPTION_C\((.*)\)$", rows, flags=re.M))
    body = re.sub(r"void \(\*(\w+)\)\(.*?\)", r"function \1", body)
    fields = set(re.findall(r"(\w+)\s*[,;]", body))
    kind = getattr(_redline, "".join(part.title() for part in name.split("_")))
    counts = {field for field in fields if field.startswith("num_")} - {"num_images", "num_inference_steps", "num_speculative_tokens"}
    assert fields - counts - NOT_IN_PYTHON == set(kind.fields())


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name, painter):
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        pytest.skip(f"{name} needs PyTorch, which is not installed")
    result = doctest.testmod(module, optionflags=flags)
    assert result.failed == 0


def test_everything_public_is_documented():
    for name in redline.__all__:
        value = getattr(redline, name)
        assert value.__doc__, name
        if isinstance(value, type) and value.__module__.startswith("redline"):
            for member, function in vars(value).items():
                if not member.startswith("_") and (callable(function) or isinstance(function, property)):
                    assert function.__doc__, f"{name}.{member}"
    assert set(redline.__all__) <= set(dir(redline))
    with pytest.raises(AttributeError, match="has no attribute 'modle'"):
        _ = redline.modle


def test_version(root):
    assert f"project(redline VERSION {redline.__version__} " in (root / "CMakeLists.txt").read_text()


@pytest.mark.without_library
def test_mypy(root):
    pytest.importorskip("mypy")
    done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", root / "build/mypy"], cwd=root, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.without_library
def test_pyright(root):
    pytest.importorskip("pyright")
    done = subprocess.run([sys.executable, "-m", "pyright", "--pythonpath", sys.executable], cwd=root, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.without_library
def test_types_of_callers(root, tmp_path):
    pytest.importorskip("mypy")
    program = tmp_path / "caller.py"
    program.write_text("""
import redline
model = redline.Model("x")
reveal_type(model.generate("a"))
reveal_type(model.generate(["a"]))
reveal_type(model.generate("a", stream=True))
model.generate("a", max_tokens="b")
model.generate("a", max_token=1)
for chunk in model.chat("a", stream=True):
    reveal_type(chunk)
""")
    done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", root / "build/mypy", "--config-file=", program],
                          capture_output=True, text=True, check=False, env={**os.environ, "MYPYPATH": str(root / "python")})
    lines = [line.split(": ", 1)[1] for line in done.stdout.splitlines() if "caller.py" in line]
    kinds = [line.split('"')[1] for line in lines if "Revealed" in line]
    assert kinds == ["redline.results.Completion", "list[redline.results.Completion]",
                     "redline._generation.Stream[redline.results.Chunk, redline.results.Completion]",
                     "redline.results.ChatChunk"], done.stdout
    wrong = {line.split(":")[1] for line in done.stdout.splitlines() if " error: " in line}
    assert wrong == {"7", "8"}, done.stdout


def test_the_example_does_what_those_in_c_and_cpp_do(root, painter, tmp_path):
    arguments = [root / "assets/redline-tales", painter.path, "out.png"]
    commands = {"python": [sys.executable, root / "examples/python/hello.py"]}
    tests = pathlib.Path(_redline.library_path()).resolve().parent / "tests"
    commands.update({name: [tests / name] for name in ("example_c", "example_cpp") if (tests / name).exists()})
    outputs = {}
    for name, command in commands.items():
        folder = tmp_path / name
        folder.mkdir()
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, cwd=folder)
        assert done.returncode == 0, done.stderr
        outputs[name] = done.stdout, (folder / "out.png").read_bytes()
    text, png = outputs["python"]
    assert text.startswith("Once upon a time") and "[80 tokens, length]" in text and png.startswith(b"\x89PNG")
    assert all(output == (text, png) for output in outputs.values())


def test_the_notebook(root, painter, monkeypatch, capsys):
    """Its cells one after the other, as a notebook runs them."""
    monkeypatch.chdir(root)
    notebook = json.loads((root / "examples/python/redline.ipynb").read_text())
    assert notebook["nbformat"] == 4
    names = {"__name__": "__main__"}
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        try:
            exec(compile(source, f"cell {number}", "exec"), names)
        except Exception as error:
            pytest.fail(f"cell {number} failed with {error!r}:\n{source}")
    assert capsys.readouterr().out


def test_the_notebook_in_jupyter(root, painter):
    """The same in a kernel, whose outputs have images and tables."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install nbclient ipykernel")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    notebook = nbformat.read(root / "examples/python/redline.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(root)}}).execute()
    kinds = {kind for cell in notebook.cells for output in cell.get("outputs", ()) for kind in output.get("data", {})}
    assert {"image/png", "text/html", "text/plain"} <= kinds
