#!/usr/bin/env python3
"""Writes tests/golden/tokenizers/sentencepiece.model, a small SentencePiece BPE model as Llama 2's (byte tokens, identity normalizer,
digits apart), and sentencepiece.vectors.json: what the sentencepiece package makes of random text. Deterministic; needs that package."""
import io
import json
import random
from pathlib import Path

import sentencepiece

from make_tokenizer_vectors import GOLDEN, random_text

CORPUS = Path(__file__).resolve().parents[2] / "assets/redline-tales/reference/eval.txt"


def main():
    out = io.BytesIO()  # no file: its name would stand in the model
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS.read_text("utf-8").splitlines()), model_writer=out, model_type="bpe", vocab_size=420,
        byte_fallback=True, split_digits=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        character_coverage=0.9995, num_threads=1, user_defined_symbols=["<|user|>"], minloglevel=2)
    model = out.getvalue()
    (GOLDEN / "sentencepiece.model").write_bytes(model)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    rng = random.Random(5)
    texts = ["", "Once upon a time, there was a little girl.", "  two  spaces ", "\n", "3.14"]
    texts += [random_text(rng, ["there was", " ", "<|user|>", "the "]) for _ in range(40)]
    # The package encodes the names of control tokens as text; transformers and the engine do not.
    vectors = [{"text": text, "ids": [1, *processor.encode(text)]} for text in texts
               if not any(mark in text for mark in ("<unk>", "<s>", "</s>"))]
    (GOLDEN / "sentencepiece.vectors.json").write_text("[\n" + ",\n".join(json.dumps(v) for v in vectors) + "\n]\n")
    print(len(model), "bytes,", len(vectors), "texts")


if __name__ == "__main__":
    main()
