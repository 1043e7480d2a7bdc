"""The programs in examples/server, as they are, against a server."""
import importlib.util
import subprocess
import sys

import pytest
from conftest import ROOT


@pytest.mark.parametrize("name, package", [("langchain", "langchain_openai"), ("llamaindex", "llama_index.llms.openai_like")])
def test_example(server, name, package):
    parent = package.partition(".")[0]
    if importlib.util.find_spec(parent) is None or importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: see the head of examples/server/{name}_example.py")
    done = subprocess.run([sys.executable, ROOT / f"examples/server/{name}_example.py", server.url + "/v1", "redline-tales"],
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    assert len(lines) >= 2 and len(done.stdout) > 100 and "streamed: " in done.stdout
