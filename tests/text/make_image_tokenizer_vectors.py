#!/usr/bin/env python3
"""Writes tests/golden/image_tokenizers.json: prompts tokenized by transformers and sentencepiece with the tokenizers of
CLIP and T5: those of the bundled image model and the published ones next to the checkout (../shared/models).

    python tests/text/make_image_tokenizer_vectors.py

Deterministic; needs transformers, tokenizers, sentencepiece. Special tokens in the text are parsed, as in those libraries.
"""
import json
import random
import shutil
import tempfile
from pathlib import Path

import sentencepiece
import transformers
from tokenizers import Tokenizer

from make_tokenizer_vectors import random_text

ROOT = Path(__file__).resolve().parents[2]
SHAPES = ROOT / "assets" / "redline-shapes"
SHARED = ROOT.parent / "shared" / "models"

TEXTS = [
    "", " ", "\n", "a", "A", "  a  ", "a large red circle on a blue background", "A photo of an astronaut riding a horse on Mars",
    "masterpiece, best quality, 8k, (detailed:1.3), [cat|dog]", "it's Bob's, they've we'll I'd 'S 'VE", "1234567890 3.14 42nd",
    "été naïve Ünïcödé ß İstanbul ſ K Å", "e\u0301 a\u0308 \u0041\u030a", "你好，世界！一只猫", "こんにちは世界 カタカナ ｶﾀｶﾅ", "안녕하세요 세계",
    "Привет мир", "שלום עולם مرحبا بالعالم", "हिन्दी में एक बिल्ली", "ภาษาไทย", "🙂🚀🎨👩‍👩‍👧‍👦🏳️‍🌈🇩🇪🇫🇷👍🏽", "a🙂b", "①②③ ½ ² ㎏ ﬁ ﬂ",
    "\t tab\tand\nnewline\r\n\r\nend \u00a0\u2003\u3000 spaces", "a\u200bb\u200dc\ufeffd\u00ad", "\u2581a \u2581\u2581b", "<|startoftext|>hi<|endoftext|>",
    "</s> <pad> <unk> <extra_id_0> x<extra_id_1>y", "hello! wow!!! !", "a" * 200, "ab " * 120, "the cat sat on the mat. " * 20,
    "x" * 30 + "字" * 30, "#hashtag @user https://example.com/a?b=c&d=%20", "C++ <b>html</b> {json: \"x\"} $5 €9 ~^`|\\", "…—–‘’“”«»",
    "\u0301 mark first", "①\u0301 é\u0327 g̈", "a\u0000b", "\ufffd", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝒮𝒸𝓇𝒾𝓅𝓉", "ǅ ǆ Ǆ ẞ ΑΣ ας", "  multiple   inner    spaces  ",
]


def texts():
    rng = random.Random(20260711)
    made = list(TEXTS)
    while len(made) < 160:
        text = random_text(rng, ["!", "</s>", "<|endoftext|>", "cat", "Painting of "])
        if 1 <= len(text) <= 80:
            made.append(text)
    return made


def sentencepiece_ids(path, extra):
    """`extra`: special tokens that the file does not know; T5 is split at those and at its own."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    specials = ["<pad>", "</s>", "<unk>", *extra]

    def encode(text):
        return None if any(s in text for s in specials) else processor.encode(text) + [processor.piece_to_id("</s>")]

    return encode


def main():
    tables = {}
    clip, t5 = SHARED / "tokenizer-clip", SHARED / "tokenizer-t5"
    tables["clip"] = transformers.CLIPTokenizer.from_pretrained(clip)
    with tempfile.TemporaryDirectory() as folder:  # Stable Diffusion 2 and SDXL pad with "!"
        for name in ("vocab.json", "merges.txt"):
            shutil.copy(clip / name, folder)
        config = {"tokenizer_class": "CLIPTokenizer", "pad_token": "!", "bos_token": "<|startoftext|>",
                  "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>", "model_max_length": 77}
        (Path(folder) / "tokenizer_config.json").write_text(json.dumps(config))
        tables["clip_exclamation"] = transformers.CLIPTokenizer.from_pretrained(folder)
    tables["shapes_clip"] = transformers.CLIPTokenizer.from_pretrained(SHAPES / "tokenizer")
    tables["t5"] = Tokenizer.from_file(str(t5 / "tokenizer.json"))
    tables["shapes_t5"] = Tokenizer.from_file(str(SHAPES / "tokenizer_2" / "tokenizer.json"))
    every = texts()
    ids = {}
    for name, tokenizer in tables.items():
        encode = (lambda t: tokenizer(t).input_ids) if callable(tokenizer) else (lambda t: tokenizer.encode(t).ids)
        ids[name] = [encode(text) for text in every]
    extra = [f"<extra_id_{i}>" for i in range(100)]
    for name, path in (("t5_spiece", t5 / "spiece.model"), ("shapes_t5_spiece", SHAPES / "tokenizer_2" / "spiece.model")):
        encode = sentencepiece_ids(path, extra)
        ids[name] = [encode(text) for text in every]

    # How far the two implementations of T5's tokenizer, and version 5 of transformers, agree.
    slow = transformers.T5Tokenizer.from_pretrained(t5)
    for name, other in (("sentencepiece", ids["t5_spiece"]), ("transformers", [slow(t).input_ids for t in every])):
        print(name, sum(a != b for a, b in zip(ids["t5"], other) if b is not None), "of", len(every), "differ from tokenizer.json")
    rows = ",\n".join(json.dumps({"text": text, **{name: ids[name][i] for name in ids if ids[name][i] is not None}},
                                 separators=(",", ":")) for i, text in enumerate(every))
    (ROOT / "tests" / "golden" / "image_tokenizers.json").write_text(f"[\n{rows}\n]\n")


if __name__ == "__main__":
    main()
