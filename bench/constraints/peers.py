#!/usr/bin/env python3
"""Times of token masks under JSON Schemas by xgrammar and llguidance, for the schemas and documents of cases.json.

  peers.py TOKENIZER IDS      TOKENIZER: folder with encoder.json; IDS: what the test ConstraintMasks.DISABLED_TimesAt128kTokens
                              wrote with REDLINE_MASK_IDS=IDS, so that all see the same tokens

Needs xgrammar, llguidance, numpy and torch. One thread, CPU time. Prints, per schema: milliseconds to compile, then microseconds of a mask.
"""
import json
import pathlib
import sys
import time

import llguidance
import llguidance.numpy
import numpy as np
import xgrammar


def bytes_of_pieces(encoder):
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelled = {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(b for b in range(256) if b not in printable)}
    size = max(encoder.values()) + 2  # the last one ends a text
    pieces = [b""] * size
    for piece, i in encoder.items():
        pieces[i] = bytes(spelled[c] for c in piece) if all(c in spelled for c in piece) else piece.encode()
    pieces[-1] = b"</s>"
    return pieces


class Vocabulary:
    def __init__(self, pieces):
        self.tokens, self.eos_token_id, self.bos_token_id, self.unk_token_id = pieces, len(pieces) - 1, None, None
        self.special_token_ids = [len(pieces) - 1]
        self.by_bytes = {piece: i for i, piece in enumerate(pieces)}

    def __call__(self, text):
        return [self.by_bytes[bytes([b])] for b in (text.encode() if isinstance(text, str) else text)]


def report(name, who, compile_s, times):
    us = np.array(times) * 1e6
    print(f"{name:18} {who:10} compile {compile_s * 1e3:8.2f} ms  mask mean {us.mean():8.2f} us  p50 {np.median(us):8.2f}  "
          f"p99.9 {np.quantile(us, .999):8.2f}  n {len(us)}")


def main():
    pieces = bytes_of_pieces(json.loads((pathlib.Path(sys.argv[1]) / "encoder.json").read_text()))
    runs = json.loads(pathlib.Path(sys.argv[2]).read_text())
    info = xgrammar.TokenizerInfo(pieces, xgrammar.VocabType.RAW, vocab_size=len(pieces), stop_token_ids=[len(pieces) - 1])
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    bits = xgrammar.allocate_token_bitmask(1, len(pieces))
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Vocabulary(pieces)))
    mask = llguidance.numpy.allocate_token_bitmask(1, len(pieces))
    every = {"xgrammar": [], "llguidance": []}
    for run in runs:
        begin = time.thread_time()
        compiled = compiler.compile_json_schema(run["schema"], any_whitespace=False, separators=(",", ":"))
        compile_s, times = time.thread_time() - begin, []
        for ids in run["ids"]:
            matcher = xgrammar.GrammarMatcher(compiled)
            for i in ids:
                begin = time.thread_time()
                matcher.fill_next_token_bitmask(bits)
                times.append(time.thread_time() - begin)
                assert matcher.accept_token(i), (run["name"], i)
        report(run["name"], "xgrammar", compile_s, times)
        every["xgrammar"] += times
        begin = time.thread_time()
        grammar = llguidance.LLMatcher.grammar_from_json_schema(run["schema"], overrides={"whitespace_flexible": False})
        first = llguidance.LLMatcher(tokenizer, grammar)
        compile_s, times = time.thread_time() - begin, []
        for ids in run["ids"]:
            matcher = first.deep_copy()
            for i in ids:
                begin = time.thread_time()
                llguidance.numpy.fill_next_token_bitmask(matcher, mask, 0)
                times.append(time.thread_time() - begin)
                assert matcher.consume_token(i), (run["name"], i, matcher.get_error())
        report(run["name"], "llguidance", compile_s, times)
        every["llguidance"] += times
    for who, times in every.items():
        report("all", who, 0, times)


if __name__ == "__main__":
    main()
