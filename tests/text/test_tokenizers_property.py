"""Fresh random text through `redline tokenize` and through the tokenizers package: the ids must be equal.

`redline tokenize MODEL --json -` reads the text from standard input and prints {"ids": [...]}. REDLINE_BINARY names
the binary, TOKENIZER_SEED the draw (printed, so that a failure can be repeated)."""

import json
import os
import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers package is the reference")

from make_tokenizer_vectors import EXTRA, GOLDEN, LLAMA3, random_text  # noqa: E402
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


# --- the tokenizers of ../shared/models ---------------------------------------------------------------------------

SHARED = Path(os.environ.get("REDLINE_SHARED_DIR", ROOT.parent / "shared")) / "models"


def byte_level_json(vocab, merges, pattern, ignore_merges):
    """A tokenizer.json of byte-level BPE."""
    return {"added_tokens": [], "normalizer": None, "post_processor": None, "decoder": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
            "model": {"type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": ignore_merges, "dropout": None,
                      "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False}}


def merges_in_order(vocab):
    """Of a vocabulary whose ids are in the order of its merges: the last two parts of every piece."""
    rank = {piece: i for piece, i in vocab.items()}
    merges = []
    for piece, i in sorted(vocab.items(), key=lambda item: item[1]):
        parts = list(piece)
        while len(parts) > 2:
            best = min(range(len(parts) - 1), key=lambda k: rank.get(parts[k] + parts[k + 1], i))
            if rank.get(parts[best] + parts[best + 1], i) >= i:
                break
            parts[best:best + 2] = [parts[best] + parts[best + 1]]
        if len(parts) == 2:
            merges.append(parts)
    return merges


def read_sentencepiece(path):
    """(piece, score, type) of a tokenizer.model: fields 1, 2 and 3 of the messages in field 1."""
    data, at, pieces = path.read_bytes(), 0, []

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key != 0x0A:  # another message of the model
            assert key & 7 == 2, key
            size = varint()
            at += size
            continue
        end = varint() + at
        piece, score, kind = "", 0.0, 1
        while at < end:
            field = varint()
            if field == 0x0A:
                size = varint()
                piece = data[at:at + size].decode()
                at += size
            elif field == 0x15:
                score, = struct.unpack("<f", data[at:at + 4])
                at += 4
            else:
                assert field == 0x18, field
                kind = varint()
        pieces.append((piece, score, kind))
    return pieces


def sentencepiece_json(path):
    """As transformers converts a BPE model: every way to make a piece of two others is a merge, in the order of scores."""
    pieces = read_sentencepiece(path)
    vocab = {piece: i for i, (piece, _score, _kind) in enumerate(pieces)}
    merges = []
    for piece, score, kind in pieces:
        if kind == 1:
            merges += sorted(((score, piece[:k], piece[k:]) for k in range(1, len(piece))
                              if piece[:k] in vocab and piece[k:] in vocab), key=lambda m: (vocab[m[1]], vocab[m[2]]))
    merges.sort(key=lambda m: -m[0])
    return {"added_tokens": [], "post_processor": None, "decoder": None, "pre_tokenizer": None,
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": "\u2581"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
            "model": {"type": "BPE", "vocab": vocab, "merges": [[left, right] for _, left, right in merges],
                      "unk_token": pieces[0][0], "fuse_unk": True, "byte_fallback": True, "dropout": None,
                      "continuing_subword_prefix": None, "end_of_word_suffix": None, "ignore_merges": False}}


def make_shared(name, folder):
    """What redline opens, and the tokenizer.json of the reference."""
    source = SHARED / name
    if (source / "tokenizer.json").exists():
        return source, source / "tokenizer.json"
    spec = None
    if (source / "tokenizer.model").exists():
        spec, opened = sentencepiece_json(source / "tokenizer.model"), source
    elif (source / "vocab.bpe").exists():
        vocab = json.loads((source / "encoder.json").read_text())
        lines = (source / "vocab.bpe").read_text().splitlines()
        merges = [line.split(" ") for line in lines if line and not line.startswith("#version")]
        spec, opened = byte_level_json(vocab, merges, LLAMA3, True), folder
    else:
        vocab = json.loads((source / "vocab.json").read_text())
        spec, opened = byte_level_json(vocab, merges_in_order(vocab), GPT2, False), folder
    (folder / "tokenizer.json").write_text(json.dumps(spec))
    return opened, folder / "tokenizer.json"


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def without(specials, text, reference):
    """The text without strings that the reference would read as special tokens, also where its normalizer makes them (of
    full-width letters, or around a character that it drops) or the removal of another one does."""
    normalize = reference.normalizer.normalize_str if specials else None
    for special in specials:
        while special in text:
            text = text.replace(special, special[1:])
        if special in normalize(text):
            text = "".join(c for c in text if special[-1] not in normalize(c))
    return text


@pytest.mark.parametrize("name", ["tokenizer-clip", "tokenizer-gpt2", "tokenizer-llama2", "tokenizer-llama3.2",
                                  "tokenizer-neox20b", "tokenizer-t5"])
def test_ids_of_real_vocabularies_equal(name, tmp_path):
    if not (SHARED / name).is_dir():
        pytest.skip(f"{SHARED / name} is not here")
    seed = int(os.environ.get("TOKENIZER_SEED", random.SystemRandom().randrange(1 << 30)))
    print(f"TOKENIZER_SEED={seed}")
    rng = random.Random(seed)
    opened, spec = make_shared(name, tmp_path)
    reference = tokenizers.Tokenizer.from_file(str(spec))
    reference.encode_special_tokens = True
    # The package's Unigram finds special tokens in plain text, in spite of encode_special_tokens; ours does not.
    parsed = json.loads(spec.read_text())
    unigram_specials = [t["content"] for t in parsed["added_tokens"]] if parsed["model"].get("type") == "Unigram" else []
    # Few calls with much text; the last one is long enough for what is done with long texts only.
    for most in (8, 8, 40, 40, 40, 4000):
        text = without(unigram_specials, random_text(rng, EXTRA, most), reference)
        if not text:
            continue
        ids = redline_ids(opened, text)
        want = reference.encode(text).ids
        if name == "tokenizer-llama2":
            want = [1, *want]  # BOS, which the conversion leaves out
        at = next((i for i, (a, b) in enumerate(zip(ids, want)) if a != b), min(len(ids), len(want)))
        assert ids == want, (at, ids[at:at + 5], want[at:at + 5], text[:2000])
