"""Fresh random text through `redline tokenize` and through the tokenizers package: the ids must be equal.

`redline tokenize MODEL --json -` reads the text from standard input and prints {"ids": [...]}. REDLINE_BINARY names
the binary, TOKENIZER_SEED the draw (printed, so that a failure can be repeated)."""

import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers package is the reference")

from make_tokenizer_vectors import EXTRA, GOLDEN, random_text  # noqa: E402
from redline_binary import binary  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
SHAPES = sorted(p.stem for p in GOLDEN.glob("*.json") if not p.stem.endswith(".vectors"))


def redline_ids(folder, text):
    command = [binary(), "tokenize", str(folder), "--json", "-"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("REDLINE_")}
    run = subprocess.run(command, input=text.encode(), capture_output=True, timeout=60, env=environment)
    assert run.returncode == 0, run.stderr.decode()
    return json.loads(run.stdout)["ids"]


@pytest.mark.parametrize("shape", SHAPES)
def test_ids_equal(shape, tmp_path):
    seed = int(os.environ.get("TOKENIZER_SEED", random.SystemRandom().randrange(1 << 30)))
    print(f"TOKENIZER_SEED={seed}")
    rng = random.Random(seed)
    shutil.copy(GOLDEN / f"{shape}.json", tmp_path / "tokenizer.json")
    reference = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    reference.encode_special_tokens = True
    for _ in range(int(os.environ.get("TOKENIZER_DRAWS", "20"))):
        text = random_text(rng, EXTRA)
        assert redline_ids(tmp_path, text) == reference.encode(text).ids, repr(text)
