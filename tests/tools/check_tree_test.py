"""tools/check_tree.py: the bound on what a clone checks out; links between documents."""
import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("check_tree", ROOT / "tools/check_tree.py")
check_tree = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_tree)


def test_tracked_files_have_a_bound(monkeypatch):
    assert list(check_tree.check_size()) == []
    monkeypatch.setattr(check_tree, "MAX_TRACKED_MIB", 1)
    (message,) = check_tree.check_size()
    assert "MiB, more than 1 MiB" in message and "assets/weights.tar.xz" in message


def test_links_of_documents_lead_somewhere(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/other.md").write_text("# Two words, `code` and [a link](x.md)\n\n```\n# no heading\n```\n")
    good = ("[](docs/other.md) [](docs/other.md#two-words-code-and-a-link) [](#here) [](https://x.org/y) `[](code.md)`\n"
            "\n    [](indented.md)\n\n# Here\n")
    (tmp_path / "README.md").write_text(good)
    assert list(check_tree.check_links("README.md", tmp_path)) == []
    (tmp_path / "README.md").write_text("A line.\n[](docs/none.md) [](docs/other.md#no-heading) [](#there)\n")
    assert list(check_tree.check_links("README.md", tmp_path)) == [
        "README.md:2: a link to docs/none.md, which does not exist",
        "README.md:2: a link to docs/other.md#no-heading, and other.md has no such heading",
        "README.md:2: a link to #there, and README.md has no such heading"]
