#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets into FOLDER/<target>/: small valid files, and a few that are nearly so.

The file is over 600 lines because the seeds of all targets share the writers of small files.

  make_seeds.py FOLDER     tools/fuzz.sh gives build/fuzz/seeds. Needs nothing but Python.
"""
import base64
import io
import json
import math
import pathlib
import struct
import sys
import zipfile
import zlib

SOURCES = pathlib.Path(__file__).resolve().parents[1]
ROOT = pathlib.Path()  # set below


def save(target, name, data):
    assert len(data) < 20000, (target, name, len(data))
    (ROOT / target).mkdir(parents=True, exist_ok=True)
    (ROOT / target / name).write_bytes(data.encode() if isinstance(data, str) else data)


# GGUF ---------------------------------------------------------------------------------------------------------------

def counted(text):
    return struct.pack("<Q", len(text)) + text.encode()


SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}


def payload(kind, value):
    if kind == 8:
        return counted(value)
    if kind == 9:
        inner, items = value
        return struct.pack("<IQ", inner, len(items)) + b"".join(payload(inner, item) for item in items)
    return struct.pack("<" + SCALARS[kind], value)


def gguf(keys, tensors, version=3, alignment=32):
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    for key, kind, value in keys:
        out += counted(key) + struct.pack("<I", kind) + payload(kind, value)
    data = b""
    for name, sizes, kind, content in tensors:
        data += b"\0" * (-len(data) % alignment)
        out += counted(name) + struct.pack("<I", len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes)
        out += struct.pack("<IQ", kind, len(data))
        data += content
    return out + (b"\0" * (-len(out) % alignment) + data if tensors else b"")


EVERY_TYPE = [(f"k.{kind}", kind, 1) for kind in SCALARS] + [
    ("general.architecture", 8, "llama"),
    ("k.strings", 9, (8, ["a", "", "bc"])),
    ("k.bools", 9, (7, [0, 1])),
    ("k.floats", 9, (6, [0.5, -1.0])),
    ("k.nested", 9, (9, [(0, [1, 2]), (8, ["x"])])),
]
# ggml type number -> (elements, bytes) of a block
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84),
          11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 19: (256, 50), 20: (32, 18), 21: (256, 110),
          23: (256, 136), 24: (1, 1), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17)}


def split_part(number, count, tensor):
    return gguf([("split.no", 2, number), ("split.count", 2, count), ("split.tensors.count", 5, count)],
                [(tensor, [2], 0, bytes(8))])


def gguf_seeds():
    save("gguf", "every_value", gguf(EVERY_TYPE, []))
    save("gguf", "every_block", gguf([], [(f"t{k}", [n, 2], k, bytes(2 * b)) for k, (n, b) in BLOCKS.items()]))
    save("gguf", "version_2", gguf(EVERY_TYPE[:3], [("a", [3, 2], 0, bytes(24))], version=2))
    save("gguf", "aligned_64", gguf([("general.alignment", 4, 64)],
                                    [("a", [1], 0, bytes(4)), ("b", [1, 1, 1, 1], 1, bytes(2))], alignment=64))
    save("gguf", "split", split_part(0, 2, "a") + b"PART" + split_part(1, 2, "b"))


# safetensors --------------------------------------------------------------------------------------------------------

def safetensors(header, data=b""):
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text)) + text + data


def safetensors_seeds():
    header = {"__metadata__": {"format": "pt"}}
    offset = 0
    for kind, size in (("F32", 4), ("F16", 2), ("BF16", 2), ("I64", 8), ("F8_E4M3", 1)):
        header["w." + kind] = {"dtype": kind, "shape": [2, 3], "data_offsets": [offset, offset + 6 * size]}
        offset += 6 * size
    save("safetensors", "types", safetensors(header, bytes(offset)))
    save("safetensors", "scalar", safetensors({"s": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}, bytes(4)))
    save("safetensors", "escapes", safetensors(
        '{ "\\u00e9\\ud83d\\ude00\\n" : {"data_offsets":[0,0] , "shape":[0,1],"dtype":"U8"},"__metadata__":[1.5e-3,'
        '-0,true,false,null,"\\\\",{"a":[]}]}'))
    placed = {"metadata": {"total_size": 8}, "weight_map": {"x": "a", "y": "b"}}
    save("safetensors_index", "two_files", json.dumps(placed))
    save("safetensors_index", "one_file", '{"weight_map":{"x":"a"}}')
    save("safetensors_index", "outside", '{"weight_map":{"x":"../a"}}')


# llama2.c -----------------------------------------------------------------------------------------------------------

def llama2c_seeds():
    for name, vocab in (("tied", 3), ("untied", -3)):
        dim, hidden, layers, heads, kv_heads, context = 4, 3, 2, 2, 1, 2
        head = dim // heads
        floats = (abs(vocab) * dim + layers * (2 * dim + 2 * dim * dim + 2 * head * kv_heads * dim + 3 * dim * hidden)
                  + dim + context * head + (abs(vocab) * dim if vocab < 0 else 0))
        save("llama2c", name,
             struct.pack("<7i", dim, hidden, layers, heads, kv_heads, vocab, context) + bytes(4 * floats))
    pieces = ["<unk>", "\n<s>\n", "\n</s>\n"] + [f"<0x{i:02X}>" for i in range(256)] + [" a", "b", " ab"]
    binary = struct.pack("<i", 9)
    for i, piece in enumerate(pieces):
        binary += struct.pack("<fi", -float(i), len(piece.encode())) + piece.encode()
    save("llama2c_tokenizer", "small", binary)
    save("llama2c_tokenizer", "no_bytes", struct.pack("<i", 3) + struct.pack("<fi", 0.5, 1) + b"a")


# tokenizers ---------------------------------------------------------------------------------------------------------

def varint(value):
    out = b""
    while True:
        out += bytes([value & 127 | (128 if value > 127 else 0)])
        value >>= 7
        if not value:
            return out


def field(number, wire, content):
    return varint(number << 3 | wire) + (varint(len(content)) + content if wire == 2 else content)


def tokenizer_seeds():
    added = [{"id": i, "content": text, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False} for i, text in ((0, "<unk>"), (1, "<s>"), (2, "</s>"))]
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2, "\u2581": 3, "a": 4, "b": 5, "ab": 6, "\u2581ab": 7, "<0x0A>": 8}
    spm = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        "pre_tokenizer": None,
        "post_processor": {"type": "TemplateProcessing", "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": vocab, "merges": ["a b", "\u2581 ab"]}}
    save("tokenizer_json", "spm", json.dumps(spm, ensure_ascii=False))
    byte_level = {
        "added_tokens": added[2:],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}| ?\\p{L}+|\\s+"}, "behavior": "Isolated",
             "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "</s>": 2, "\u0120": 3, "ab": 4, "\u0120ab": 5},
                  "merges": [["a", "b"], ["\u0120", "ab"]]}}
    save("tokenizer_json", "byte_level", json.dumps(byte_level))

    clip_vocab = {c + end: i for i, (c, end) in enumerate((c, end) for end in ("", "</w>") for c in "ab")}
    clip_vocab.update({"ab</w>": 4, "<|startoftext|>": 5, "<|endoftext|>": 6})
    clip = {
        "added_tokens": [{"id": i, "content": text, "special": True, "normalized": False}
                         for i, text in ((5, "<|startoftext|>"), (6, "<|endoftext|>"))],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "}, {"type": "Lowercase"}]},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[\\p{L}]+|[\\p{N}]"}, "behavior": "Removed",
                          "invert": True},
        "post_processor": {"type": "RobertaProcessing", "sep": ["<|endoftext|>", 6], "cls": ["<|startoftext|>", 5]},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "unk_token": "<|endoftext|>", "end_of_word_suffix": "</w>", "vocab": clip_vocab,
                  "merges": ["a b</w>"]}}
    save("tokenizer_json", "clip", json.dumps(clip))
    save("vocab_merges", "clip", json.dumps(clip_vocab) + "\0#version: 0.2\na b</w>\n")
    # A map of one character: "\n" becomes a space. Root, the place of "\n" below it, the leaf below that.
    units = [0] * 256
    units[0] = 1 << 10
    units[1 ^ 10] = (64 << 10) | 1 << 8 | 10
    units[1 ^ 10 ^ 64] = 1 << 31
    charsmap = struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + b" \0"
    scored = [["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0], ["\u2581", -2.0], ["a", -3.0], ["b", -3.5],
              ["\u2581ab", -2.5], ["ab", -4.0]]
    unigram = {
        "added_tokens": [{"id": i, "content": scored[i][0], "special": True, "normalized": False} for i in range(3)],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()},
            {"type": "Strip", "strip_left": False, "strip_right": True}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "WhitespaceSplit"},
            {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}]},
        "post_processor": {"type": "TemplateProcessing", "single": [
            {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
            "pair": [], "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}},
        "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
        "model": {"type": "Unigram", "unk_id": 2, "vocab": scored, "byte_fallback": False}}
    save("tokenizer_json", "unigram", json.dumps(unigram))

    def piece(text, score, kind):
        return field(1, 2, field(1, 2, text.encode()) + field(2, 5, struct.pack("<f", score)) + field(3, 0, varint(kind)))

    model = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3)
    model += b"".join(piece(f"<0x{i:02X}>", 0, 6) for i in range(256))
    model += b"".join(piece(text, -i, 1) for i, text in enumerate(("\u2581", "a", "b", "ab", "\u2581ab")))
    trainer = field(3, 0, varint(2)) + field(35, 0, varint(1)) + field(40, 0, varint(0))
    normalizer = field(1, 2, b"identity") + field(3, 0, varint(1)) + field(4, 0, varint(0)) + field(5, 0, varint(1))
    save("sentencepiece_model", "bpe", model + field(2, 2, trainer) + field(3, 2, normalizer))
    kinds = {"<pad>": 3, "</s>": 3, "<unk>": 2}
    model = b"".join(piece(text, score, kinds.get(text, 1)) for text, score in scored) + piece("user", 0, 4)
    trainer = field(3, 0, varint(1)) + field(40, 0, varint(2)) + field(41, 0, varint(2**64 - 1)) + field(42, 0, varint(1))
    normalizer = field(1, 2, b"nmt_nfkc") + field(2, 2, charsmap) + field(4, 0, varint(1))
    save("sentencepiece_model", "unigram", model + field(2, 2, trainer) + field(3, 2, normalizer))
    save("sentencepiece_model", "pieces", piece("<unk>", 0, 2) + piece("a", -1, 1) + piece("b", -2, 4))


# models --------------------------------------------------------------------------------------------------------------

def model_seeds():
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
             "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-06,
             "hidden_act": "silu", "tie_word_embeddings": True, "model_type": "qwen2"}
    window = {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 2}
    for name, more in {
            "plain": {"rope_theta": 10000.0, "rope_scaling": None, "head_dim": 16},
            "windows": window,
            "layer_types": {**window, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
            "linear": {"rope_scaling": {"type": "linear", "factor": 2.0}, "partial_rotary_factor": 0.5},
            "dynamic": {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}},
            "llama3": {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                        "high_freq_factor": 4.0, "original_max_position_embeddings": 64}},
            "yarn": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32, "beta_slow": 1, "mscale": 0.7,
                                      "mscale_all_dim": 1.0, "truncate": False, "attention_factor": 1.2,
                                      "original_max_position_embeddings": 32}},
            "factors": {"rope_freq_factors": [1.0, 2.0, 4.0, 8.0]}}.items():
        save("config", name, json.dumps({**sizes, **more}))

    def keys(arch, more=()):
        named = [("block_count", 4, 1), ("embedding_length", 4, 8), ("feed_forward_length", 4, 6),
                 ("attention.head_count", 4, 2), ("context_length", 4, 32), *more]
        return [("general.architecture", 8, arch)] + [(f"{arch}.{key}", kind, value) for key, kind, value in named]

    shapes = {"token_embd.weight": [8, 5], "output_norm.weight": [8], "blk.0.attn_norm.weight": [8],
              "blk.0.attn_q.weight": [8, 8], "blk.0.attn_k.weight": [8, 4], "blk.0.attn_v.weight": [8, 4],
              "blk.0.attn_output.weight": [8, 8], "blk.0.ffn_norm.weight": [8], "blk.0.ffn_gate.weight": [8, 6],
              "blk.0.ffn_up.weight": [8, 6], "blk.0.ffn_down.weight": [6, 8]}

    def tensors(more=()):
        every = {**shapes, **dict(more)}
        return [(name, shape, 1, bytes(2 * math.prod(shape))) for name, shape in every.items()]

    vocab = [("tokenizer.ggml.model", 8, "gpt2"), ("tokenizer.ggml.pre", 8, "qwen2"),
             ("tokenizer.ggml.tokens", 9, (8, ["a", "b", "ab", "<s>", "</s>"])),
             ("tokenizer.ggml.token_type", 9, (5, [1, 1, 1, 3, 3])), ("tokenizer.ggml.merges", 9, (8, ["a b"])),
             ("tokenizer.ggml.bos_token_id", 4, 3), ("tokenizer.ggml.eos_token_id", 4, 4)]
    scaled = [("rope.scaling.type", 8, "yarn"), ("rope.scaling.factor", 6, 2.0), ("rope.freq_base", 6, 10000.0),
              ("rope.scaling.original_context_length", 4, 16), ("attention.sliding_window", 4, 8),
              ("attention.head_count_kv", 9, (5, [1])), ("rope.dimension_count", 4, 4)]
    save("gguf_model", "llama_factors", gguf(keys("llama"), tensors({"rope_freqs.weight": [2]})))
    save("gguf_model", "llama_scaled", gguf(keys("llama", scaled) + vocab, tensors()))
    save("gguf_model", "qwen3", gguf(keys("qwen3", [("attention.key_length", 4, 4)]) + vocab,
                                     tensors({"blk.0.attn_q_norm.weight": [4], "output.weight": [8, 5]})))


# Files of torch.save: a zip archive of a pickle, written opcode by opcode, and of storages -------------------------------

def torch_text(text):
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def torch_tuple(numbers):
    return b"(" + b"".join(b"K" + bytes([n]) for n in numbers) + b"t"


def torch_tensor(storage, key, elements, offset, shape, strides):
    return (b"ctorch._utils\n_rebuild_tensor_v2\n((" + torch_text("storage") + f"ctorch\n{storage}\n".encode() + torch_text(key) +
            torch_text("cpu") + b"K" + bytes([elements]) + b"tQK" + bytes([offset]) + torch_tuple(shape) + torch_tuple(strides) +
            b"\x89ccollections\nOrderedDict\n)RtR")


def torch_file(pickle, storages):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        members = {"x/data.pkl": pickle, "x/byteorder": b"little"} | {f"x/data/{k}": v for k, v in storages.items()}
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # of 1980: the same bytes every time
    return out.getvalue()


def torch_seeds():
    w = torch_text("w") + torch_tensor("HalfStorage", "0", 6, 0, [2, 3], [3, 1])
    b = torch_text("b") + torch_tensor("FloatStorage", "1", 2, 1, [1], [1])
    n = torch_text("n") + torch_tensor("LongStorage", "2", 1, 0, [], [])
    data = {"0": bytes(12), "1": bytes(8), "2": bytes(8)}
    ordered = b"ccollections\nOrderedDict\n)Rq\x00("
    save("torch_file", "tensors", torch_file(b"\x80\x02" + ordered + w + b + n + b"u.", data))
    save("torch_file", "metadata", torch_file(b"\x80\x02" + ordered + w + b"u}" + torch_text("_metadata") + b"h\x00sb.", data))
    save("torch_file", "state_dict", torch_file(
        b"\x80\x02}(" + torch_text("epoch") + b"K\x05" + torch_text("state_dict") + ordered + w + b"uu.", data))
    save("torch_file", "protocol4", torch_file(
        b"\x80\x04\x95" + bytes(8) + b"}\x94(" + torch_text("p") + b"ctorch._utils\n_rebuild_parameter\n(" + w[6:] +
        b"\x88NtR\x8c\x01k\x8a\x02\xff\xffu.", data))


# .npy and images ----------------------------------------------------------------------------------------------------

def npy_seeds():
    def npy(header, values, version=1):
        size = struct.pack("<H" if version == 1 else "<I", len(header))
        return b"\x93NUMPY" + bytes([version, 0]) + size + header.encode() + values

    def header(kind, shape, order="False"):
        return f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}\n"

    save("npy", "f4", npy(header("<f4", (2, 3)), struct.pack("<6f", *range(6))))
    save("npy", "f8_scalar", npy(header("<f8", ()), struct.pack("<d", 0.5), 2))
    save("npy", "f2", npy(header("<f2", (3,)), struct.pack("<3e", 1, 2, 3)))
    save("npy", "fortran", npy(header("<f4", (1, 2), "True"), bytes(8)))
    save("npy", "structured", npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", bytes(4)))


def image_seeds():
    """Copies of the small files of every kind that the tests read."""
    folder = SOURCES / "tests/golden/image/files"
    for name in ("grey_1.png", "palette_4_interlaced.png", "rgba_16.png", "rgb_8_interlaced.png", "grey_alpha_8.png",
                 "colour.jpg", "progressive_444.jpg", "grey_jpeg.jpg", "turned_6.jpg", "cmyk.jpg"):
        save("image", name, (folder / name).read_bytes())
    for path in sorted((SOURCES / "tests/golden/image/formats").glob("*.*")):
        if path.suffix != ".npz" and path.stat().st_size < 1200:
            save("image", path.name, path.read_bytes())
    save("image", "lossy.webp", base64.b64decode("UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQAA3AAAAAA"))
    save("image", "lossless.webp", base64.b64decode("UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA=="))


def template_seeds():
    """Templates with their messages after a zero byte, one for each part of the language."""
    messages = json.dumps([{"role": "system", "content": "S"}, {"role": "user", "content": [{"type": "text", "text": "é"}]},
                           {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}])
    templates = {
        "loop": "{% for m in messages if m.role != 'tool' %}{{ loop.index ~ m.role }}{% else %}-{% endfor %}",
        "recursive": "{% for i in [1, [2]] recursive %}{{ loop(i) if i is iterable else i }}{% break %}{% endfor %}",
        "namespace": "{%- set ns = namespace(a=[], b=0) -%}{% for i in range(5) %}{% set ns.b = ns.b + i %}{% endfor %}{{ ns }}",
        "macro": "{% macro m(a, b=a) %}{{ caller(a) if caller }}{{ varargs }}{{ kwargs }}{% endmacro %}{% call(x) m(1, 2, k=3) %}{{ x }}{% endcall %}",
        "filters": "{{ messages|selectattr('role', 'eq', 'user')|map(attribute='content')|first|tojson(indent=2) }}{{ 'a b'|title|center(9)|indent }}",
        "sorts": "{{ x|dictsort }}{{ messages|groupby('role')|list }}{{ [3, 1]|sort(reverse=true)|batch(2, 0)|list }}{{ [1, 1]|unique|sum }}",
        "strings": "{{ 'a-b'.split('-')[-1:] }}{{ '%05.1f|%s' % (n, x) }}{{ '{:>5} {a!r}'.format(n, a=x) }}{{ 'é'.upper().rjust(9)[::-1] }}",
        "numbers": "{{ 7 // 2 ** 2 % 3 - -1.5 / 2 }}{{ '0x1f'|int(base=16) + '2.5'|float|round(1, 'ceil') }}{{ 1 < n <= 3 in [true] }}",
        "blocks": "{% set t %}a{% generation %}b{% endgeneration %}{% endset %}{% filter upper|trim %}{{ t }}{% endfilter %}{% with a = 1 %}{{ a }}{% endwith %}",
        "space": "{#- c -#}\n  {%- if x is mapping and not n is odd -%} a {%+ elif y is defined %} b {% endif +%}\n{% raw %}{{ }}{% endraw %}",
        "errors": "{{ raise_exception('no ' ~ messages[0]['content']) if n == 3 else strftime_now('%d') }}",
    }
    for name, template in templates.items():
        save("jinja", name, template + "\0" + messages)


def chat_output_seeds():
    """The first byte is the place of the format in the list of the target, the second the size of the pieces."""
    outputs = {
        (0, "think"): "<think>\nSo.\n</think>\n\nHello",
        (1, "harmony"): "<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>commentary to=functions.f<|message|>{}<|call|>",
        (3, "gemma"): '<|tool_call>call:f{a:<|"|>b<|"|>,c:[1,{d:true}]}<tool_call|>',
        (4, "nested"): ']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="f">]<]minimax[>[<a>1]<]minimax[>[</a>]<]minimax[>[</invoke>]<]minimax[>[</tool_call>',
        (6, "dsml"): '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="a" string="true">b</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>',
        (7, "kimi"): '<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>',
        (9, "fenced"): '<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜>',
        (12, "xml"): "<tool_call>\n<function=f>\n<parameter=a>\n[1, 'x']\n</parameter>\n</function>\n</tool_call>",
        (15, "glm"): "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>b</arg_value>\n</tool_call>",
        (19, "python"): "<|tool_call_start|>[f(a=1, b={'c': [None, \"d\"]}), g()]<|tool_call_end|>",
        (25, "mistral"): '[TOOL_CALLS]f[CALL_ID]abc[ARGS]{"a": "b"}',
        (26, "hermes"): 'Hi <tool_call>\n{"name": "f", "arguments": {"a": [1, "x"]}}\n</tool_call>',
        (27, "llama"): '{"name": "f", "parameters": {}}; {"name": "g", "parameters": "{}"}',
    }
    for (row, name), text in outputs.items():
        save("chat_output", name, bytes([row, 5]) + text.encode())


def constraint_seeds():
    """The first byte chooses: 0 a grammar, 1 a regular expression, 2 a JSON Schema."""
    grammars = ['root ::= "a" [b-d]* | x\nx ::= "(" x? ")" # comment', "root ::= root \"+\" root | [0-9]{1,3}", "root ::= <[1]> !<[2]> .",
                'root ::= ("a"? "b"?){2,900} [^x-z\\]\\u00e9]+']
    patterns = ["^(ab|c)*[^d-f]{2,70}$", "\\d+(\\.\\w{1,3})?|\\p{Lu}\\S", "(?<n>a)(?:b)*?c+"]
    schemas = ['{}', '{"type":"object","properties":{"a":{"$ref":"#"},"b":{"enum":[1,"x"]}},"required":["a"],"minProperties":1}',
               '{"type":"string","pattern":"^(ab)+$","maxLength":9,"minLength":2}', '{"type":"array","prefixItems":[{"type":"integer","multipleOf":3,"minimum":-5}],"items":false}',
               '{"oneOf":[{"type":"number","maximum":1.5},{"type":"string","format":"date"}]}',
               '{"type":"object","patternProperties":{"^a":{"type":"null"}},"additionalProperties":false,"propertyNames":{"maxLength":3}}']
    for kind, texts in enumerate((grammars, patterns, schemas)):
        for i, text in enumerate(texts):
            save("constraint", f"{kind}_{i}", bytes([kind]) + text.encode())


def json_seeds():
    """Valid JSON of every kind of value, nested as deep as the bound and beyond it, and texts that are nearly JSON."""
    for name, text in {"values": '{"a": [1, -2.5e3, "x\\u00e9\\n", true, false, null], "b": {}}', "deep": "[" * 64 + "]" * 64,
                       "deeper": '{"a":' * 65 + "1" + "}" * 65, "infinities": '{"a": [NaN, -Infinity, Infinity]}',
                       "zero": "{}\0{}", "brackets": '["[[[[[[[[[[[[\\"[[", "]"]', "cut": '{"a": [1, {"b": "', "many": "[" + "1," * 120 + "1]"}.items():
        save("json_text", name, text)


def config_seeds():
    """Configs of the golden models of every kind, without their weights; the settings beside them."""
    golden = SOURCES / "tests/golden"
    for path in sorted([*golden.glob("*/config.json"), *golden.glob("encoders/*/config.json"), *golden.glob("image/*/config.json"),
                        *golden.glob("image/*/*/config.json")]):
        if len(path.read_bytes()) < 8192:
            save("model_config", path.parent.relative_to(golden).as_posix().replace("/", "_"), path.read_bytes())
    quantizations = {
        "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "sym": True},
        "awq": {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True},
        "w8a8": {"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {"group_0": {
            "targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True},
            "input_activations": {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}}}, "ignore": ["lm_head"]},
        "pack": {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {
            "targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}}}}}
    for name, method in quantizations.items():
        save("model_config", name, json.dumps({"model_type": "llama", "quantization_config": method}))
    save("model_config", "text_part", json.dumps({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text",
                                                  "layer_types": ["full_attention"], "rope_scaling": {"rope_type": "linear", "factor": 8}}}))

    added = {"content": "<s>", "special": True, "lstrip": False}
    save("hf_config", "tokenizer", b"\0" + json.dumps({"tokenizer_class": "CLIPTokenizer", "bos_token": "<s>", "eos_token": added,
         "add_bos_token": True, "model_max_length": 10**30, "added_tokens_decoder": {"0": added, "5": added}}).encode())
    save("hf_config", "generation", b'\1{"eos_token_id": [1, 2], "pad_token_id": 0}')
    save("hf_config", "special", b'\2{"pad_token": {"content": "<pad>"}}')
    masks = {"format": 1, "masks": [{"steps": 28, "computed": [0, 1, 2, 4, 7, 11, 16], "psnr": 41.2}]}
    save("pipeline_config", "masks", b"\0" + json.dumps(masks).encode())
    save("pipeline_config", "words", b"\1" + json.dumps({"known": ["a", "red"], "draws": "houses"}).encode())
    for path in sorted(golden.glob("image/*/scheduler/scheduler_config.json")):
        save("pipeline_config", path.parents[1].name, b"\2" + path.read_bytes())
    for name in ("DDIMScheduler", "PNDMScheduler", "LCMScheduler", "EulerAncestralDiscreteScheduler", "UniPCMultistepScheduler",
                 "DPMSolverMultistepScheduler", "FlowMatchEulerDiscreteScheduler"):
        save("pipeline_config", name, b"\2" + json.dumps({"_class_name": name, "num_train_timesteps": 1000, "use_karras_sigmas": False,
             "beta_schedule": "scaled_linear", "timestep_spacing": "leading", "prediction_type": "epsilon"}).encode())


def vocabulary_seeds():
    """The first byte chooses: even a list of BERT's words, odd one of RWKV's literals."""
    save("vocab_text", "bert", b"\0" + "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##b", "##c", "it"]).encode())
    save("vocab_text", "rwkv", b"\1" + "\n".join(["1 'a' 1", "2 'ab' 2", "3 b'\\xe2\\x96' 2", "4 '\\n' 1", '5 "\'" 1']).encode() + b"\n")


def imatrix_seeds():
    old = struct.pack("<i", 1) + struct.pack("<i", 3) + b"a.w" + struct.pack("<ii4f", 2, 4, 1, 0, 2.5, 3)
    save("imatrix", "old", old + struct.pack("<ii", 2, 5) + b"a.txt")
    values = struct.pack("<4f", 1, 0, 2.5, 3)
    keys = [("general.type", 8, "imatrix"), ("imatrix.datasets", 9, (8, ["a.txt"])), ("imatrix.chunk_count", 4, 2),
            ("imatrix.chunk_size", 4, 16)]
    save("imatrix", "new", gguf(keys, [("blk.0.attn_q.weight.in_sum2", (4, 1), 0, values),
                                       ("blk.0.attn_q.weight.counts", (1, 1), 0, struct.pack("<f", 2))]))


def adapter_seeds():
    """adapter_config.json, a zero byte, safetensors; and a GGUF adapter."""
    def file(names):
        header, data = {}, b""
        for name, shape in names.items():
            part = struct.pack(f"<{math.prod(shape)}f", *range(math.prod(shape)))
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
            data += part
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + data
    config = json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "none", "use_rslora": True,
                         "rank_pattern": {"q_proj": 2}, "alpha_pattern": {".*v_proj": 3}}).encode()
    module = "base_model.model.model.layers.0.self_attn.q_proj"
    save("adapter", "peft", config + b"\0" + file({module + ".lora_A.weight": (2, 4), module + ".lora_B.weight": (3, 2)}))
    save("adapter", "kohya", b"{}\0" + file({"lora_unet_transformer_blocks_0_attn_to_q.lora_down.weight": (2, 4),
         "lora_unet_transformer_blocks_0_attn_to_q.lora_up.weight": (3, 2), "lora_unet_transformer_blocks_0_attn_to_q.alpha": (1,)}))
    keys = [("general.type", 8, "adapter"), ("adapter.type", 8, "lora"), ("general.architecture", 8, "llama"), ("adapter.lora.alpha", 6, 4.0)]
    save("adapter", "gguf", gguf(keys, [("blk.0.attn_q.weight.lora_a", (4, 2), 0, bytes(32)), ("blk.0.attn_q.weight.lora_b", (2, 3), 0, bytes(24))]))


def request_seeds():
    """A form with its boundary in the first line; queries; names and descriptions of the Hub."""
    parts = "".join(f'--x\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n{value}\r\n'
                    for name, file, value in (("a", "", "3"), ("b[]", "", "u"), ("b[]", "", "v"), ("image", '; filename="a\\".png"', "PNG")))
    save("form", "form", "x\n" + parts + "--x--\r\n")
    save("form", "query", "a=1&b[]=x%20y&b[]=z&c=+%C3%A9&d=true")
    save("form", "body", '{"a": 3, "b": ["x"], "c": "abc", "d": {"e": [1, null]}}')
    files = [{"rfilename": "config.json", "size": 2, "blobId": "a" * 40}, {"rfilename": "m-Q4_K_M-00001-of-00002.gguf"},
             {"rfilename": "m-Q4_K_M-00002-of-00002.gguf", "lfs": {"sha256": "b" * 64, "size": 5}}, {"rfilename": "1_Pooling/config.json"},
             {"rfilename": "model.safetensors", "size": 9}, {"rfilename": "a-_b.gguf"}, {"rfilename": "model_index.json"}, {"rfilename": "vae/config.json"}]
    save("hub", "revision", json.dumps({"sha": "0" * 40, "siblings": files}))
    for name, text in {"name": "hf:owner/name@v1.0:dir/a.gguf", "address": "https://huggingface.co/owner/name/blob/main/a.gguf",
                       "tag": "hf.co/owner/name:Q8_0"}.items():
        save("hub", name, text)


def lark_seeds():
    grammars = ['start: a+ [B]\na: "x" -> first | "y"i~2..3 /z[0-9]*/s\nB.2: "\\u00e9" | "a".."f"',
                'start: item ("," item)*\n?item: NUMBER | "(" start ")"\n%import common.NUMBER\n%import common (WS, LF)\n%ignore WS',
                'start: "*** Begin" LF part+\npart: "+" /(.*)/ LF\n    | "-" /(.+)/ LF  // a comment\n%import common.LF',
                '!start: start "+" T | T\nT: U | _V\nU: "\\"\\n"\n_V: /[^"\\\\\\x00-\\x1f]/']
    for i, text in enumerate(grammars):
        save("lark", str(i), text)


def image_text_seeds():
    """Settings in images. The first byte chooses: 0 A1111's parameters, 1 ComfyUI's graph, 2 Redline's options, 3 EXIF, 4 a file."""
    parameters = ('a lighthouse,\nat night\nNegative prompt: blurry\nSteps: 20, Sampler: DPM++ 2M, Schedule type: Karras, CFG scale: 7.5, '
                  'Seed: 9, Size: 512x768, Model: sd, Lora hashes: "a: 1, b: 2", Version: v1.10')
    graph = json.dumps({
        "1": {"class_type": "SamplerCustomAdvanced", "inputs": {"noise": ["2", 0], "guider": ["3", 0], "sampler": ["4", 0],
              "sigmas": ["5", 0], "latent_image": ["9", 0]}},
        "2": {"class_type": "RandomNoise", "inputs": {"noise_seed": ["8", 0]}},
        "3": {"class_type": "BasicGuider", "inputs": {"conditioning": ["7", 0], "cfg": 3.5}},
        "4": {"class_type": "KSamplerSelect", "inputs": {"sampler_name": "euler"}},
        "5": {"class_type": "BasicScheduler", "inputs": {"scheduler": "karras", "steps": 20, "denoise": 0.5}},
        "6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a fox"}},
        "7": {"class_type": "FluxGuidance", "inputs": {"guidance": 3.5, "conditioning": ["6", 0]}},
        "8": {"class_type": "PrimitiveInt", "inputs": {"value": 5}},
        "9": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 2}}})
    sampler = json.dumps({"3": {"class_type": "KSampler", "inputs": {"seed": 5, "steps": 4, "cfg": 7.0, "sampler_name": "euler",
                          "scheduler": "normal", "denoise": 1.0, "positive": ["6", 0], "negative": ["6", 0], "latent_image": ["5", 0]}},
                          "6": {"class_type": "CLIPTextEncode", "inputs": {"text": ["6", 0]}}})
    own = json.dumps({"version": "redline 0.1", "MODEL": "m", "PROMPT": "p", "steps": 4, "guidance": 3.5, "lora": ["a:0.5"], "seed": 7})

    def exif(order):
        mark, pack = (b"II*\0", "<") if order == "little" else (b"MM\0*", ">")
        comment = b"UNICODE\0" + parameters.encode("utf-16-be")
        description = own.encode() + b"\0"
        entry = lambda tag, kind, count, value: struct.pack(pack + "HHII", tag, kind, count, value)
        at = 8 + 2 + 3 * 12 + 4  # of the second folder
        values = at + 2 + 12 + 4
        return (mark + struct.pack(pack + "IH", 8, 3) + entry(0x010e, 2, len(description), values) +
                struct.pack(pack + "HHIHH", 0x0112, 3, 1, 6, 0) + entry(0x8769, 4, 1, at) + bytes(4) +
                struct.pack(pack + "H", 1) + entry(0x9286, 7, len(comment), values + len(description)) + bytes(4) + description + comment)

    def png(*chunks):
        chunk = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)) +
                b"".join(chunk(name, data) for name, data in chunks) + chunk(b"IDAT", zlib.compress(bytes(4))) + chunk(b"IEND", b""))

    def webp(data):
        lossy = base64.b64decode("UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQAA3AAAAAA")[12:]
        chunk = lambda name, data: name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)
        body = b"WEBP" + chunk(b"VP8X", b"\x08" + bytes(9)) + lossy + chunk(b"EXIF", data)
        return b"RIFF" + struct.pack("<I", len(body)) + body

    for name, kind, text in (("parameters", 0, parameters), ("graph", 1, graph), ("sampler", 1, sampler), ("own", 2, own)):
        save("image_settings", name, bytes([kind]) + text.encode())
    for order in ("little", "big"):
        save("image_settings", "exif_" + order, b"\3" + exif(order))
    save("image_settings", "text.png", b"\4" + png((b"tEXt", b"parameters\0" + parameters.encode())))
    save("image_settings", "compressed.png", b"\4" + png((b"zTXt", b"prompt\0\0" + zlib.compress(graph.encode())),
                                                        (b"iTXt", b"x\0\0\0en\0y\0z")))
    save("image_settings", "international.png", b"\4" + png((b"iTXt", b"redline\0\1\0\0\0" + zlib.compress(own.encode()))))
    save("image_settings", "exif.png", b"\4" + png((b"eXIf", exif("big"))))
    save("image_settings", "exif.webp", b"\4" + webp(exif("little")))
    save("image", "base64", base64.b64encode(png((b"tRNS", struct.pack(">HHH", 0, 0, 0)))))


def http_seeds():
    head = "GET {} HTTP/1.1\r\nHost: localhost:8080\r\nX-Request-Id: a-1\r\n{}\r\n"
    save("http_head", "get", head.format("/v1/models?limit=2&after=x%20y", ""))
    save("http_head", "proxy", head.format("http://host:80?a=/b", "Content-Encoding: identity\r\n"))
    save("http_head", "length", head.replace("GET", "POST").format("/v1/chat/completions", "Content-Length: 2\r\n") + "{}")
    save("http_head", "both", head.format("/", "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n") + "{}")
    save("http_head", "chunked", head.replace("GET", "POST").format("/%2e%2E/", "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n") +
         "3;a=b\r\nabc\r\n0\r\nTrailer: x\r\n\r\n")
    save("http_head", "old", "HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n folded\r\n\r\n")
    save("http_head", "target", "/a%2Fb%00?c")
    save("api_keys", "keys", "# NAME KEY RATE\nann secret\n\n  bob  other  2.5\n")
    save("api_keys", "header", "Bearer secret\nann secret 1e3\n")
    save("api_keys", "wrong", "ann k1 -\nann k2 5 6\n")


def field_seeds():
    """The first byte chooses the API."""
    bodies = [{"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True}},
               "reasoning_effort": "low", "n_predict": 5, "repeat_penalty": 1.1, "max_completion_tokens": 3},
              {"guided_regex": "a+", "guided_choice": ["a", "b"], "chat_template_kwargs": {"enable_thinking": False}, "num_predict": 7},
              {"structured_outputs": {"json": "{}", "regex": "b"}, "temperatur": 1, "thinking": {"type": "enabled", "budget_tokens": 5},
               "reasoning": {"effort": "high"}, "stop_sequences": ["x"]},
              {"grammar": 'root ::= "a"', "format": {"type": "object"}, "options": {"seed": 1, "mirostat": 2}, "logprobs": True}]
    for api in range(10):
        for i, body in enumerate(bodies):
            save("request_fields", f"{api}_{i}", bytes([api]) + json.dumps(body).encode())


def batch_seeds():
    request = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Once", "model": "m"}}
    lines = [json.dumps(request), "", json.dumps({**request, "custom_id": "b", "body": {"stream": True}}), "not JSON", json.dumps({"custom_id": "c"})]
    answers = [{"id": "batch_req_1", "custom_id": "a", "response": {"status_code": 200, "request_id": "r", "body": {}}, "error": None},
               {"id": "batch_req_2", "custom_id": None, "response": None, "error": {"code": "x", "message": "line 4", "param": None, "line": 4}}]
    save("batch_file", "requests", "\r\n".join(lines) + "\n")
    save("batch_file", "answers", "\n".join(lines) + "\0" + "\n".join(json.dumps(row) for row in answers) + '\n{"id": "cut')
    save("batch_file", "failed", "\n".join(lines) + "\0" + json.dumps({**answers[0], "response": {"status_code": 500}}) + "\n")


def stream_seeds():
    """The first byte chooses where the stream is cut."""
    event = {"choices": [{"text": "a", "index": 0}], "usage": None}
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}}
    save("event_stream", "completion", "\5data: " + json.dumps(event) + "\n\ndata: " + json.dumps(usage) + "\n\ndata: [DONE]\n\n")
    save("event_stream", "fields", "\1: ping\r\n\r\nevent: x\r\nid: 1\r\ndata:{\r\ndata: }\r\n\r\nretry: 5\n\ndata\n\n")


def folder_seeds():
    """Files of a folder with a zero byte between them."""
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
               {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
               {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]
    flags = {"word_embedding_dimension": 32, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    prompts = {"prompts": {"query": "q: ", "document": ""}, "default_prompt_name": "query"}
    for name, pooling in (("flags", flags), ("mode", {"pooling_mode": "last", "include_prompt": False}), ("list", {"pooling_mode": ["mean", "max"]})):
        save("embedding_config", name, "\0".join(map(json.dumps, (modules, pooling, {"max_seq_length": 16, "do_lower_case": True}, prompts))))
    save("embedding_config", "settings", "\0\0{}\0" + json.dumps(prompts))
    index = {"_class_name": "StableDiffusion3Pipeline", "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
             "transformer": ["diffusers", "SD3Transformer2DModel"], "text_encoder": [None, None], "force_zeros_for_empty_prompt": True,
             "vae": ["diffusers", "AutoencoderKL"], "tokenizer": ["transformers", "CLIPTokenizer"]}
    own = {"step_cache": "step_cache.json", "prompt_words": {"known": ["a"], "draws": "houses"},
           "defaults": {"width": 64, "height": 64, "steps": 4, "guidance": 3.5, "max_sequence_length": 77, "negative_prompt": "n"}}
    scheduler = {"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 3.0, "x": float("nan")}
    save("pipeline_files", "sd3", "\0".join(map(json.dumps, (index, own, scheduler))))
    save("pipeline_files", "plain", json.dumps({"_class_name": "x", "scheduler": ["a", "b"], "../x": ["a", "b"]}) + "\0{}\0{}")


def page_seeds():
    """The first byte chooses what is done to the file, pairs of a place and a value follow."""
    for name, patches in {"valid": b"", "no_group": b"\x38\0", "more_groups": b"\x38\7", "key": b"\x40\7", "tokens": b"\x44\xff\x47\xff",
                          "size": b"\x48\0", "page": b"\x80\5"}.items():
        for kind in range(4):
            save("page_store", f"{name}_{kind}", bytes([kind]) + patches)


def step_seeds():
    """Steps in the order of StepMessage::to_bytes: each list is its size, then its elements."""
    def some(*elements):
        return struct.pack("<Q", len(elements)) + b"".join(elements)

    def ints(*values):
        return some(*(struct.pack("<i", v) for v in values))

    def floats(*values):
        return some(*(struct.pack("<f", v) for v in values))

    for name, full in (("empty", False), ("full", True)):
        adapters = [struct.pack("<Bqq", 0, 0, 2) + some(struct.pack("<Qf", 77, 0.5))] if full else []
        edits = some(struct.pack("<ifff", 3, 1.0, 1.1, 0.2))
        samples = [struct.pack("<B", 2) + edits + struct.pack("<fqffd", 1.5, 40, 0.9, 0.05, 0.25)] if full else []
        save("step_message", name, b"".join([
            some(*([struct.pack("<iii", 0, 4, 2), struct.pack("<iii", 1, 0, -1)] if full else [])),  # page changes
            some(struct.pack("<iiq", 0, 2, 30)),  # sequences
            ints(5, 6), ints(30, 31), ints(), ints(1), ints(), ints(*([0] if full else [])),
            floats(*([0.5, -1.0] if full else [])), some(*([floats(1.0, 2.0)] if full else [])),
            some(ints(2, 3) + ints(0, 2)), some(*adapters), some(*samples)]))


def word_seeds():
    save("prompt_list", "lines", "a red house\r\n\n(a tree:1.2) BREAK [a:b:3] embedding:x <lora:y:1>\n")
    save("prompt_list", "json", '["a", {"prompt": "b", "seed": 3}]')
    save("prompt_list", "tokens", "[1, 2 3]\t4\n")
    for i, rule in enumerate(("auto", "fbcache:threshold=0.08,forecast=taylor", "mask:steps=0-3+7+9,span=output", "none",
                              "teacache:threshold=0.2,first=2,last=1,max_consecutive=3,share_decision=1")):
        for kind in range(3):
            save("cache_rule", f"{i}_{kind}", bytes([kind]) + rule.encode())


# ONNX ---------------------------------------------------------------------------------------------------------------

def onnx_seeds():
    for path in sorted((SOURCES / "tests/formats/onnx").glob("*.onnx")):
        for target in ("onnx", "onnx_network"):
            save(target, path.stem, path.read_bytes())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    ROOT = pathlib.Path(sys.argv[1])
    torch_seeds()
    gguf_seeds()
    safetensors_seeds()
    llama2c_seeds()
    tokenizer_seeds()
    model_seeds()
    npy_seeds()
    image_seeds()
    template_seeds()
    chat_output_seeds()
    constraint_seeds()
    json_seeds()
    config_seeds()
    vocabulary_seeds()
    imatrix_seeds()
    adapter_seeds()
    request_seeds()
    lark_seeds()
    image_text_seeds()
    http_seeds()
    field_seeds()
    batch_seeds()
    stream_seeds()
    folder_seeds()
    page_seeds()
    step_seeds()
    word_seeds()
    onnx_seeds()
