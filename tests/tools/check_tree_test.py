"""tools/check_tree.py: the bound on what a clone checks out."""
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
