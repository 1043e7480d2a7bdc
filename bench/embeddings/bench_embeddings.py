#!/usr/bin/env python3
"""Sentences per second of `redline embed` beside sentence-transformers (PyTorch), on the same model, in turn.

    bench_embeddings.py --redline BINARY MODEL TEXTS [--threads N] [--rounds N] [--dtype f32,bf16,q8]
                        [--backend torch|openvino]

TEXTS: one sentence a line. Each round measures every engine once; the figure is the median. sentence-transformers sorts the texts by
length and takes them in batches of 32, its default; loading is not counted for either. The last lines say how much the embeddings
differ.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time


def main():
  p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  p.add_argument("model", type=pathlib.Path)
  p.add_argument("texts", type=pathlib.Path)
  p.add_argument("--redline", required=True)
  p.add_argument("--threads", type=int, default=2)
  p.add_argument("--rounds", type=int, default=5)
  p.add_argument("--dtype", default="f32,auto", metavar="TYPE,..", help="of Redline, as redline embed --dtype")
  p.add_argument("--backend", default="torch", help="of sentence-transformers")
  args = p.parse_args()
  texts = args.texts.read_text().splitlines()
  out = {}

  def redline(dtype):
    command = [args.redline, "embed", str(args.model), str(args.texts), "--dtype", dtype, "--threads", str(args.threads), "--truncate",
               "--json"]
    out[f"redline {dtype}"] = done = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return done["embed_ms"] / 1e3

  types = args.dtype.split(",")
  engines = {f"redline {dtype}": (lambda dtype=dtype: redline(dtype)) for dtype in types}
  try:
    import torch
    from sentence_transformers import SentenceTransformer
    torch.set_num_threads(args.threads)
    peer = SentenceTransformer(str(args.model), device="cpu", backend=args.backend)

    def sentence_transformers():
      begin = time.perf_counter()
      out["peer"] = peer.encode(texts)
      return time.perf_counter() - begin
    engines[f"sentence-transformers {args.backend}"] = sentence_transformers
  except ImportError as error:
    print(f"without sentence-transformers: {error}", file=sys.stderr)

  seconds = {name: [] for name in engines}
  for _ in range(args.rounds):
    for name, run in engines.items():
      seconds[name].append(run())
  tokens = sum(out[f"redline {types[0]}"]["tokens"])
  print(f"{len(texts)} texts, {tokens} tokens, {args.threads} threads, median of {args.rounds}")
  for name, values in seconds.items():
    middle = statistics.median(values)
    print(f"{name:28} {len(texts) / middle:9.1f} texts/s {tokens / middle:10.0f} tokens/s   "
          f"{len(texts) / max(values):.1f} to {len(texts) / min(values):.1f} texts/s")
  if "peer" in out:
    for name in (f"redline {dtype}" for dtype in types):
      error = max(abs(a - float(b)) for x, y in zip(out[name]["embeddings"], out["peer"]) for a, b in zip(x, y))
      print(f"{name}: largest difference from sentence-transformers {error:.1e}")
  return 0


if __name__ == "__main__":
  sys.exit(main())
