"""Every row of every table of options: the defaults of C, C++ and Python, and the docstrings that name it."""
import pathlib
import re
import subprocess

import pytest
import redline
from redline import _redline
from redline._options import option_lines

# Heading in `redline help options`, the struct of the extension module, the class whose docstring lists the rows.
TABLES = {
    "Language models": (_redline.ModelOptions, redline.Model),
    "Embedding models": (_redline.EmbeddingOptions, redline.EmbeddingModel),
    "Image models": (_redline.ImagePipelineOptions, redline.ImagePipeline),
    "Single networks": (_redline.NetworkOptions, None),
    "Sampling": (_redline.GenerateOptions, None),
    "Texts": (_redline.GenerateOptions, None),
    "Images": (_redline.ImageRequest, None),
}


@pytest.fixture(scope="module")
def sections():
    """Lines of the tables in C++, by heading: (name, default, rest)."""
    program = pathlib.Path(_redline.__file__).parent / "redline"
    if not program.exists():
        pytest.skip(f"{program} is not built")
    text = subprocess.run([program, "help", "options"], capture_output=True, text=True, check=True).stdout
    found = {}
    for section in text.split("\n## ")[1:]:
        title, body = section.split("\n", 1)
        found[title] = re.findall(r"^- `(\w+)`, default (\S+?)(?: \((.*?)\))?(?:, flag `.*?`[^:]*)?: (.*)$", body, flags=re.M)
    return found


@pytest.mark.parametrize("title", TABLES)
def test_defaults_of_all_languages_agree(sections, title):
    struct = TABLES[title][0]
    rows = {row[0]: row for row in struct.rows()}
    assert sections[title]
    for name, cpp_default, unset, meaning in sections[title]:
        _, kind, default, python_meaning, details, python_unset = rows[name]
        assert (unset, meaning) == (python_unset, f"{python_meaning}.{' ' if details else ''}{details}")
        if kind == "bool":
            assert cpp_default == str(default).lower(), name
        elif kind in ("int", "float"):
            assert float(cpp_default) == pytest.approx(default, rel=1e-6), name
        else:  # NULL in C, which stands for the default of C++; None for an empty text
            assert (default or "") == ("" if cpp_default == "unset" else cpp_default.strip('"')), name


def test_all_rows_are_in_a_table(sections):
    in_cpp = [name for lines in sections.values() for name, *_ in lines]
    structs = dict.fromkeys(struct for struct, _ in TABLES.values())
    assert sorted(in_cpp) == sorted(row[0] for struct in structs for row in struct.rows())


@pytest.mark.parametrize("title", [title for title, (_, cls) in TABLES.items() if cls])
def test_docstrings_have_all_rows(title):
    struct, cls = TABLES[title]
    doc = " ".join(cls.__doc__.split())
    assert "{options}" not in doc
    assert " ".join(option_lines(struct).split()) in doc
    for name, _, _, meaning, _, _ in struct.rows():
        assert f"``{name}`` (" in doc and " ".join(meaning.split()) in doc


def test_rows_are_keywords():
    for name, kind, default, *_ in _redline.ModelOptions.rows():
        wrong = [] if kind != "str" else 3
        with pytest.raises(redline.InvalidArgument, match=name):
            redline.Model("redline-tales", **{name: wrong})
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'gpu_layer'; use gpu_layers"):
        redline.Model("redline-tales", gpu_layer=3)
    with pytest.raises(AttributeError, match="no field gpu_layer"):
        _redline.ModelOptions().gpu_layer = 3
