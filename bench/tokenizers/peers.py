#!/usr/bin/env python3
"""Speed of byte-level BPE on one core: redline, tokenizers and tiktoken on the same text and vocabulary, in turn.

  peers.py REDLINE FOLDER TEXT [--seconds S]     FOLDER: has a tokenizer.json of byte-level BPE

Needs tokenizers and tiktoken. Every one encodes the whole file; the ids must be equal. Prints the median of each in MB/s of
processor time, which other programs on the machine do not lengthen.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import tiktoken
import tokenizers

GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


def pattern_of(pre_tokenizer):
  """The split of the pre-tokenizer's first step."""
  if pre_tokenizer["type"] == "Sequence":
    return pattern_of(pre_tokenizer["pretokenizers"][0])
  return GPT2 if pre_tokenizer["type"] == "ByteLevel" else pre_tokenizer["pattern"]["Regex"]


def tiktoken_of(spec):
  printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
  byte_of = {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(b for b in range(256) if b not in printable)}
  added = {t["content"] for t in spec["added_tokens"]}
  ranks = {bytes(byte_of[c] for c in piece): i for piece, i in spec["model"]["vocab"].items()
           if piece not in added and all(c in byte_of for c in piece)}
  return tiktoken.Encoding("same", pat_str=pattern_of(spec["pre_tokenizer"]), mergeable_ranks=ranks, special_tokens={})


def timed(encode, seconds):
  times, ids, end = [], None, time.perf_counter() + seconds
  while time.perf_counter() < end or not times:
    begin = time.process_time()
    ids = encode()
    times.append(time.process_time() - begin)
  return statistics.median(times), ids


def main():
  p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  p.add_argument("redline"), p.add_argument("folder", type=pathlib.Path), p.add_argument("text", type=pathlib.Path)
  p.add_argument("--seconds", type=float, default=5)
  a = p.parse_args()
  os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
  text = a.text.read_text()
  spec = json.loads((a.folder / "tokenizer.json").read_text())
  size = len(text.encode())
  hf = tokenizers.Tokenizer.from_file(str(a.folder / "tokenizer.json"))
  ids = {}
  for turn in range(2):
    run = subprocess.run([a.redline, "bench", "tokenizer", str(a.folder), str(a.text), "--time", str(a.seconds), "--json"],
                         capture_output=True, text=True, check=True)
    print(f"redline     {json.loads(run.stdout)['mb_per_s']:7.1f} MB/s")
    seconds, ids["tokenizers"] = timed(lambda: hf.encode(text, add_special_tokens=False).ids, a.seconds)
    print(f"tokenizers  {size / seconds / 1e6:7.1f} MB/s")
    try:
      encoding = tiktoken_of(spec)
      seconds, ids["tiktoken"] = timed(lambda: encoding.encode_ordinary(text), a.seconds)
      print(f"tiktoken    {size / seconds / 1e6:7.1f} MB/s")
    except (KeyError, ValueError) as error:
      print(f"tiktoken    cannot take this vocabulary: {error}")
  run = subprocess.run([a.redline, "tokenize", str(a.folder), "--no-bos", "--json", "-"], input=text, capture_output=True,
                       text=True, check=True)
  ids["redline"] = json.loads(run.stdout)["ids"]
  for who, theirs in ids.items():
    print(f"{who}: {len(theirs)} tokens{'' if theirs == ids['redline'] else ', NOT THE SAME'}")
  return 0 if all(theirs == ids["redline"] for theirs in ids.values()) else 1


if __name__ == "__main__":
  sys.exit(main())
