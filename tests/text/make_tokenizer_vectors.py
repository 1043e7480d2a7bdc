#!/usr/bin/env python3
"""Writes tests/golden/tokenizers: small tokenizer.json files of many kinds, and random Unicode text tokenized with
them by the tokenizers package. Deterministic; needs the tokenizers package. Run it again when a kind is added."""

import json
import random
import sys
import unicodedata
from pathlib import Path

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "tokenizers"
CORPUS = (Path(__file__).resolve().parents[2] / "assets" / "redline-tales" / "README.md").read_text("utf-8") + """
Once upon a time, there was a little girl named Lily. She didn't know what she'd do; they'll say it's 1234567 or 42.
def f(x):\n    return x ** 2  # été, naïve, Ελλάδα, Привет, 你好世界, こんにちは, 안녕하세요, שלום, مرحبا, हिन्दी
\t\tif (a != b) { printf("%d\\n", 100000); }\r\n\r\n   spaces   and\ttabs\x20\x20\x20
THE QUICK BROWN FOX'S ISN'T WE'VE I'M YOU'RE
"""

# --- random text ---------------------------------------------------------------------------------------------------

RANGES = {
    "ascii": [(0x20, 0x7E)],
    "letters": [(0x61, 0x7A), (0x41, 0x5A)],
    "digits": [(0x30, 0x39)],
    "other digits": [(0x660, 0x669), (0x966, 0x96F), (0xB2, 0xB3), (0xBC, 0xBE), (0x2160, 0x2188), (0x2460, 0x24FF)],
    "space": [(0x20, 0x20)],
    "white": [(0x9, 0xD), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x180E, 0x180E), (0x2000, 0x200B),
              (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x2060), (0x3000, 0x3000), (0x20, 0x20)],
    "latin": [(0xC0, 0x24F), (0x1E00, 0x1EFF), (0x212A, 0x212B), (0x17F, 0x17F)],
    "marks": [(0x300, 0x36F), (0x591, 0x5BD), (0x64B, 0x65F), (0x900, 0x903), (0x20D0, 0x20F0)],
    "greek and cyrillic": [(0x370, 0x3FF), (0x400, 0x4FF), (0x1F00, 0x1FFF)],
    "right to left": [(0x5D0, 0x5EA), (0x620, 0x64A), (0x200E, 0x200F), (0x202A, 0x202E)],
    "indic and thai": [(0x905, 0x94D), (0xE01, 0xE3A)],
    "cjk": [(0x4E00, 0x9FA5), (0x3041, 0x30FF), (0x3000, 0x3020), (0xFF01, 0xFFEE), (0x20000, 0x2A6D6),
            (0xF900, 0xFA6D)],
    "hangul": [(0xAC00, 0xD7A3), (0x1100, 0x11FF)],
    "punctuation": [(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E), (0xA1, 0xBF), (0x2010, 0x205E)],
    "symbols": [(0x2190, 0x23FF), (0x2500, 0x27BF), (0x1F130, 0x1F189), (0x1D400, 0x1D7FF)],
    "emoji": [(0x1F300, 0x1F64F), (0x1F900, 0x1F9FF), (0x200D, 0x200D), (0xFE0F, 0xFE0F), (0x1F3FB, 0x1F3FF)],
    "controls": [(0x1, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0xFEFF, 0xFEFF)],
    "anything": [(0x1, 0xD7FF), (0xE000, 0x10FFFF)],
}
PHRASES = ["Once upon a time", "don't", "WE'VE", "I'LL", "'s", "'ſ", "naïve", "\r\n", "\n\n", "   ", "\u2581",
           "\u2581\u2581", "<0x0A>", "👩‍👩‍👧‍👦", "e\u0301", "ﬁ", "K", "İ", "ß", "1234567890", "a1b2", "x = 10000;", "</s>",
           "<unk>", "##a"]


def known(c):
    """Characters known to all libraries involved: they differ in their Unicode versions, and a character that one of
    them does not know tests nothing. The package's tables for marks and decompositions are the oldest (Unicode 9)."""
    category = unicodedata.category(c)
    if category[0] == "M":
        return unicodedata.ucd_3_2_0.category(c) != "Cn"
    return category not in ("Cn", "Cs") and c != "\U0001F16C"


def random_text(rng, extra=(), most=12):
    """Random text of many scripts; `extra` are strings to insert at random."""
    out = []
    for _ in range(rng.randint(0, most)):
        if rng.random() < 0.2:
            out.append(rng.choice(PHRASES))
        elif extra and rng.random() < 0.15:
            out.append(rng.choice(extra))
        else:
            ranges = RANGES[rng.choice(list(RANGES))]
            for _ in range(rng.choice([1, 1, 2, 3, 5, 9])):
                low, high = rng.choice(ranges)
                c = chr(rng.randint(low, high))
                if known(c):
                    out.append(c)
        if rng.random() < 0.4:
            out.append(" ")
    return "".join(out)


# --- the kinds ----------------------------------------------------------------------------------------------------

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
             r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
POSSESSIVE = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
              r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s")
CLASSES = r"\w+|\d+\b|[^\w\s]+$|^\s+|\S\B|\W|\h{,2}"
DECODED = ("word_level", "bpe_prefix")  # whose texts are written too
EXTRA = ["1234567", "12345x", "987654²", "<|user|>", "<|end|>", "<s>", "<pad>", "[MASK]", "tok", "  ", "Ab"]


def shapes():
    from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                            trainers)

    alphabet = pre_tokenizers.ByteLevel.alphabet()

    def trained(pre, normalizer=None, decoder=None, byte_level=True, fallback=False, unk=None, size=360, **options):
        tokenizer = Tokenizer(models.BPE(unk_token=unk, byte_fallback=fallback, fuse_unk=fallback))
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        if pre is not None:
            tokenizer.pre_tokenizer = pre
        if decoder is not None:
            tokenizer.decoder = decoder
        special = [unk] if unk else []
        if fallback:
            special += [f"<0x{b:02X}>" for b in range(256)]
        trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False, min_frequency=2,
                                      initial_alphabet=alphabet if byte_level else [],
                                      limit_alphabet=1000 if byte_level else 60)
        tokenizer.train_from_iterator(CORPUS.splitlines(keepends=True), trainer)
        spec = json.loads(tokenizer.to_str())
        if fallback:  # byte tokens are plain tokens of the model
            spec["added_tokens"] = [t for t in spec["added_tokens"] if t["content"] == unk]
        spec["model"].update(options)
        return Tokenizer.from_str(json.dumps(spec))

    def byte_level(*before, use_regex=False, **options):
        steps = [*before, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)]
        pre = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
        return trained(pre, decoder=decoders.ByteLevel(), **options)

    def split(pattern, behavior="isolated", invert=False):
        return pre_tokenizers.Split(pattern, behavior, invert)

    def llama_decoder():
        return decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])

    made = {}
    made["gpt2"] = byte_level(use_regex=True)
    made["gpt2"].add_special_tokens(["<s>", "<|user|>", "<|end|>"])
    made["gpt2"].post_processor = processors.TemplateProcessing(
        single="<s> $A <|end|>", pair="<s> $A $B", special_tokens=[("<s>", 360), ("<|end|>", 362)])
    made["prefix_space"] = trained(pre_tokenizers.ByteLevel(add_prefix_space=True), decoder=decoders.ByteLevel())
    made["prefix_space"].add_special_tokens(
        [AddedToken("[MASK]", lstrip=True), AddedToken("<pad>", rstrip=True), "<s>"])
    made["prefix_space"].add_tokens(
        [AddedToken("tok", single_word=True, normalized=False), AddedToken("Ab", lstrip=True, rstrip=True)])
    made["llama3"] = byte_level(split(Regex(LLAMA3)), ignore_merges=True)
    made["qwen2"] = byte_level(split(Regex(QWEN2)), normalizer=normalizers.NFC())
    made["qwen2"].add_special_tokens(["<|user|>", "<|end|>"])
    made["gpt4o"] = byte_level(split(Regex(GPT4O)))
    made["deepseek3"] = byte_level(
        split(Regex(r"\p{N}{1,3}")), split(Regex("[一-龥\u3040-ゟ゠-ヿ]+")), split(Regex(DEEPSEEK3)))
    made["possessive"] = byte_level(split(Regex(POSSESSIVE)))
    made["classes"] = byte_level(split(Regex(CLASSES)), split(Regex(r"(?=(\d{3})+(?!\d))")))
    made["digits"] = byte_level(
        split(Regex(r"\d{1,3}(?=(?:\d{3})*\b)")), split(Regex(r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))")))
    made["falcon"] = trained(pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(False), split(Regex("[0-9][0-9][0-9]"))]), decoder=decoders.ByteLevel())
    made["behaviours"] = byte_level(
        split(" ", "merged_with_next"), split(Regex(r"\p{P}"), "merged_with_previous"),
        split(Regex(r"\p{Lu}"), "contiguous"), split(Regex(r"[a-m\p{N}]+"), "isolated", True),
        pre_tokenizers.Digits(True))
    made["llama2"] = trained(None, normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
                             llama_decoder(), byte_level=False, fallback=True, unk="<unk>", size=420)
    made["llama2"].add_special_tokens([AddedToken("<s>", normalized=False), AddedToken("</s>", normalized=False)])
    made["llama2"].add_tokens([AddedToken("<|user|>", normalized=True), AddedToken("  ", normalized=False)])
    made["metaspace_first"] = trained(pre_tokenizers.Metaspace("▁", "first", True), None, llama_decoder(),
                                      byte_level=False, fallback=True, unk="<unk>", size=420)
    made["metaspace_first"].add_special_tokens(["<s>", "<|end|>"])
    made["metaspace_always"] = trained(pre_tokenizers.Metaspace("▁", "always", False), None,
                                       decoders.Metaspace("▁", "always", False),
                                       byte_level=False, unk="<unk>", size=260)
    made["words"] = trained(pre_tokenizers.Whitespace(), normalizers.Sequence([
        normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip(),
        normalizers.Replace(Regex("a+"), "ä")]),
        None, byte_level=False, unk="<unk>", size=220)
    made["delimiters"] = trained(pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.CharDelimiterSplit("e"),
        pre_tokenizers.Punctuation("merged_with_previous"), pre_tokenizers.Digits(True)]),
        normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]), None,
        byte_level=False, unk="<unk>", size=220)

    def word_piece(prefix="##", size=300, cleanup=True, **options):
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", continuing_subword_prefix=prefix,
                                               max_input_chars_per_word=20))
        tokenizer.normalizer = normalizers.BertNormalizer(**options)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece(prefix=prefix, cleanup=cleanup)
        trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
                                            continuing_subword_prefix=prefix, show_progress=False, limit_alphabet=140)
        tokenizer.train_from_iterator(CORPUS.splitlines(keepends=True), trainer)
        return tokenizer

    made["bert"] = word_piece()
    made["bert"].post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    made["bert_cased"] = word_piece(prefix="@@", cleanup=False, lowercase=False, handle_chinese_chars=False)
    made["bert_cased"].post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made["bert_accents"] = word_piece(lowercase=True, strip_accents=False, clean_text=False)
    made["bert_accents"].post_processor = processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2))

    def word_level():
        tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.Lowercase()])
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.FixedLength(4)])
        trainer = trainers.WordLevelTrainer(vocab_size=200, special_tokens=["[UNK]", "<s>"], show_progress=False)
        tokenizer.train_from_iterator(CORPUS.splitlines(keepends=True) + list("abcdefghijklmnopqrstuvwxyz0123456789"), trainer)
        return tokenizer

    made["word_level"] = word_level()

    def prefixed_bpe():
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##", end_of_word_suffix="</w>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
        trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>"], show_progress=False, min_frequency=2,
                                      continuing_subword_prefix="##", end_of_word_suffix="</w>", limit_alphabet=60)
        tokenizer.train_from_iterator(CORPUS.splitlines(keepends=True), trainer)
        return tokenizer

    made["bpe_prefix"] = prefixed_bpe()
    return made


def main():
    rng = random.Random(20240607)
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name, tokenizer in shapes().items():
        vectors = []
        while len(vectors) < 24:
            text = random_text(rng, EXTRA)
            if not 1 <= len(text) <= 80:
                continue
            row = {"text": text}
            for key, inert in (("ids", True), ("special_ids", False)):
                tokenizer.encode_special_tokens = inert
                row[key] = tokenizer.encode(text, add_special_tokens=True).ids
            if row["special_ids"] == row["ids"]:
                del row["special_ids"]
            if name in DECODED:
                row["decoded"] = tokenizer.decode(row["ids"])
            vectors.append(row)
        tokenizer.encode_special_tokens = False
        compact = {"ensure_ascii": False, "separators": (",", ":")}
        spec = json.dumps(json.loads(tokenizer.to_str()), **compact)
        (GOLDEN / f"{name}.json").write_text(spec + "\n", encoding="utf-8")
        rows = ",\n".join(json.dumps(v, ensure_ascii=True, separators=(",", ":")) for v in vectors)
        (GOLDEN / f"{name}.vectors.json").write_text(f"[\n{rows}\n]\n", encoding="utf-8")
    total = sum(f.stat().st_size for f in GOLDEN.iterdir())
    print(f"{total} bytes in {GOLDEN}", file=sys.stderr)


if __name__ == "__main__":
    main()
