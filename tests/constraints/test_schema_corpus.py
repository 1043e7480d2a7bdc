"""No invalid instance of the JSON-Schema-Test-Suite and of MaskBench is accepted, and few schemas are refused.

The corpora are in a cache that bench/constraints/schema_corpus.py fills; without them the tests are skipped.
"""
import json
import pathlib
import subprocess
import sys

import pytest
from redline_binary import binary

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "bench" / "constraints" / "schema_corpus.py"


@pytest.mark.parametrize("corpus, options, every, most_refused", [
    ("suite", [], 1, 0.15), ("suite", ["--relaxed", "--additional"], 1, 0.10), ("maskbench", ["--additional"], 60, 0.10)])
def test_json_schema_corpus_has_no_wrong_acceptance(tmp_path, corpus, options, every, most_refused):
    program = pathlib.Path(binary()).parent / "tests" / "json_schema_corpus"
    if not program.is_file():
        pytest.skip("no json_schema_corpus: build the tests")
    figures = tmp_path / "figures.json"
    done = subprocess.run([sys.executable, SCRIPT, corpus, "--offline", "--jobs", "2", "--every", str(every), "--program", program,
                           "--json", figures, *options], capture_output=True, text=True)
    result = json.loads(figures.read_text()).get(corpus)
    if result is None:
        pytest.skip(f"{corpus} is not in the cache: run bench/constraints/schema_corpus.py {corpus}")
    assert done.returncode == 0, done.stdout
    assert result.get("invalid_accepted", 0) == 0, result["wrong"]
    assert result["invalid"] > 100 and result["refused"] < most_refused * result["schemas"], done.stdout
