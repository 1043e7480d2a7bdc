"""The layers (tools/check_layers.py): the table in docs/architecture.md, and the size of that overview."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECK = ROOT / "tools" / "check_layers.py"
OVERVIEW = ROOT / "docs" / "architecture.md"
MAX_LINES = 150


def run(*arguments):
    return subprocess.run([sys.executable, CHECK, *arguments], text=True, capture_output=True)


def test_the_table_of_layers_is_the_one_of_the_document():
    table = run("--table")
    assert table.returncode == 0, table.stderr
    document = OVERVIEW.read_text(encoding="utf-8")
    assert f"\n\n{table.stdout}\n" in document, \
        "docs/architecture.md: replace the table of layers and the line after it by the output of tools/check_layers.py --table"


def test_every_folder_of_the_sources_is_a_row():
    rows = run("--table").stdout
    for folder in (ROOT / "src").iterdir():
        if folder.is_dir() and folder.name != "kernels":
            assert f"| `src/{folder.name}` |" in rows, f"tools/check_layers.py: src/{folder.name} has no row"


def test_the_overview_stays_short_and_names_every_page_below_it():
    text = OVERVIEW.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_LINES, f"docs/architecture.md has more than {MAX_LINES} lines: move parts to a page of a topic"
    for page in sorted((ROOT / "docs" / "architecture").glob("*.md")):
        assert f"(architecture/{page.name})" in text, f"docs/architecture.md has no link to {page.name}"
