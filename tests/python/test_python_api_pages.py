"""The API pages of docs/api: Sphinx makes them of the docstrings without a warning, and they have everything public."""
import subprocess
import sys

import pytest
import redline

pytest.importorskip("sphinx", reason="Sphinx is not installed (tools/requirements-test.txt)")


def test_api_pages(root, tmp_path):
    done = subprocess.run([sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", tmp_path / "doctrees",
                           root / "docs/api", tmp_path / "html"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    pages = "\n".join(path.read_text() for path in (tmp_path / "html").glob("*.html"))
    missing = [name for name in redline.__all__ if f'id="redline.{name}"' not in pages and f".{name}\"" not in pages]
    assert missing == []
