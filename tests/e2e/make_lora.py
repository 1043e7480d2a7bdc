#!/usr/bin/env python3
"""make_lora.py FILE: writes a LoRA adapter of rank 2 for a bundled model: FILE.safetensors for redline-shapes, with
diffusers' names, or FILE.gguf for redline-tales, as llama.cpp's converter writes it."""
import json
import struct
import sys

HIDDEN, RANK = 256, 2
MODULE = "transformer.single_transformer_blocks.0.attn.to_q"


def values(count):
    return struct.pack(f"<{count}f", *(0.001 * (i % 7 - 3) for i in range(count)))


def safetensors():
    header, data = {"__metadata__": {"modelspec.title": "a test", "ss_base_model_version": "flux"}}, b""
    for name, shape in {"lora_A": [RANK, HIDDEN], "lora_B": [HIDDEN, RANK]}.items():
        end = len(data) + 4 * RANK * HIDDEN
        header[f"{MODULE}.{name}.weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), end]}
        data += values(RANK * HIDDEN)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def gguf():
    def text(string):
        return struct.pack("<Q", len(string)) + string.encode()

    type_f32, type_string = 6, 8
    metadata = {"general.type": "adapter", "adapter.type": "lora", "general.architecture": "llama"}
    entries = b"".join(text(key) + struct.pack("<I", type_string) + text(value) for key, value in metadata.items())
    entries += text("adapter.lora.alpha") + struct.pack("<If", type_f32, 4.0)
    tensors, data = b"", b""
    for name, shape in {"lora_a": (HIDDEN, RANK), "lora_b": (RANK, HIDDEN)}.items():
        tensors += text(f"blk.0.attn_output.weight.{name}") + struct.pack("<IQQIQ", 2, *shape, 0, len(data))
        data += values(RANK * HIDDEN)
    head = b"GGUF" + struct.pack("<IQQ", 3, 2, len(metadata) + 1) + entries + tensors
    return head + b"\0" * (-len(head) % 32) + data


with open(sys.argv[1], "wb") as file:
    file.write(gguf() if sys.argv[1].endswith(".gguf") else safetensors())
