#!/usr/bin/env python3
"""Writes a language model of a known shape with random weights in the formats of other engines, for tools/compare.

  PYTHON tools/peer_models.py FOLDER llama-1b hf                  bf16 safetensors and a tokenizer: the source of the other formats
  PYTHON tools/peer_models.py FOLDER llama-1b openvino int4-128   also bf16, int8, int4-32 ..; needs openvino, nncf, optimum-intel
  PYTHON tools/peer_models.py FOLDER llama-1b vllm w8a8           also int4-128, int4-32 ..: compressed-tensors

Writes FOLDER/SHAPE-hf, FOLDER/SHAPE-openvino-TYPE, FOLDER/SHAPE-vllm-TYPE. What is there already is kept. ONNX Runtime GenAI
has a converter of its own (python -m onnxruntime_genai.models.builder -i FOLDER/SHAPE-hf -o OUT -p int4 -e cpu).
"""
import json
import os
import pathlib
import shutil
import sys

SHAPES = {
    "llama-1b": dict(hidden=2048, layers=16, heads=32, kv_heads=8, head_dim=64, ff=8192, vocab=128256, bias=False, theta=500000.0),
    "qwen-0.5b": dict(hidden=896, layers=24, heads=14, kv_heads=2, head_dim=64, ff=4864, vocab=151936, bias=True, theta=1000000.0),
}


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1))


def write_tokenizer(out, vocab_size):
    """Byte-level BPE without merges, with fillers, so that every token is text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for letter in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocab[letter] = len(vocab)
    while len(vocab) < vocab_size:
        vocab[f"w{len(vocab)}"] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>", "<unk>"])
    tokenizer.save(str(out / "tokenizer.json"))
    names = dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="</s>")
    write_json(out / "special_tokens_map.json", names)
    write_json(out / "tokenizer_config.json", dict(names, tokenizer_class="PreTrainedTokenizerFast", model_max_length=8192,
                                                  clean_up_tokenization_spaces=False))


def make_hf(out, shape):
    import torch
    from safetensors.torch import save_file
    h, d, heads, kv, ff = (shape[name] for name in ("hidden", "head_dim", "heads", "kv_heads", "ff"))
    generator = torch.Generator().manual_seed(1)
    numbers = lambda *size: (torch.randn(*size, generator=generator) * 0.02).to(torch.bfloat16)
    ones = lambda: torch.ones(h, dtype=torch.bfloat16)
    weights = {"model.embed_tokens.weight": numbers(shape["vocab"], h), "model.norm.weight": ones()}
    for layer in range(shape["layers"]):
        at = f"model.layers.{layer}."
        for name, rows in (("q", heads * d), ("k", kv * d), ("v", kv * d)):
            weights[f"{at}self_attn.{name}_proj.weight"] = numbers(rows, h)
            if shape["bias"]:
                weights[f"{at}self_attn.{name}_proj.bias"] = numbers(rows)
        weights[f"{at}self_attn.o_proj.weight"] = numbers(h, heads * d)
        weights[f"{at}mlp.gate_proj.weight"], weights[f"{at}mlp.up_proj.weight"] = numbers(ff, h), numbers(ff, h)
        weights[f"{at}mlp.down_proj.weight"] = numbers(h, ff)
        weights[f"{at}input_layernorm.weight"], weights[f"{at}post_attention_layernorm.weight"] = ones(), ones()
    out.mkdir(parents=True)
    config = dict(architectures=["Qwen2ForCausalLM" if shape["bias"] else "LlamaForCausalLM"],
                  model_type="qwen2" if shape["bias"] else "llama", hidden_size=h, intermediate_size=ff,
                  num_hidden_layers=shape["layers"], num_attention_heads=heads, num_key_value_heads=kv, head_dim=d,
                  hidden_act="silu", max_position_embeddings=8192, rms_norm_eps=1e-5, rope_theta=shape["theta"],
                  rope_parameters={"rope_type": "default", "rope_theta": shape["theta"]}, tie_word_embeddings=True,
                  torch_dtype="bfloat16", dtype="bfloat16", use_cache=True, vocab_size=shape["vocab"], bos_token_id=1,
                  eos_token_id=2, pad_token_id=2)
    if not shape["bias"]:
        config |= dict(attention_bias=False, mlp_bias=False)
    write_json(out / "config.json", config)
    write_json(out / "generation_config.json", dict(bos_token_id=1, eos_token_id=2, pad_token_id=2, do_sample=False))
    write_tokenizer(out, shape["vocab"])
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})


def make_openvino(out, hf, kind):
    import nncf
    import openvino as ov
    base = out.parent / out.name.replace(kind, "bf16")
    if not (base / "openvino_model.xml").exists():
        import torch
        from optimum.intel.openvino import OVModelForCausalLM
        model = OVModelForCausalLM.from_pretrained(hf, export=True, compile=False, load_in_8bit=False, torch_dtype=torch.bfloat16)
        model.save_pretrained(base)
        for path in hf.glob("*token*.json"):
            shutil.copy(path, base)
        from openvino_tokenizers import convert_tokenizer
        from transformers import AutoTokenizer
        for name, made in zip(("tokenizer", "detokenizer"), convert_tokenizer(AutoTokenizer.from_pretrained(hf), with_detokenizer=True)):
            ov.save_model(made, base / f"openvino_{name}.xml")
    if kind == "bf16":
        return
    model = ov.Core().read_model(base / "openvino_model.xml")
    modes = nncf.CompressWeightsMode
    if kind == "int8":
        model = nncf.compress_weights(model, mode=modes.INT8_SYM)
    else:  # all matrices, the head too
        model = nncf.compress_weights(model, mode=modes.INT4_SYM, group_size=int(kind.removeprefix("int4-")), ratio=1.0,
                                      all_layers=True, backup_mode=nncf.BackupMode.INT8_SYM)
    out.mkdir()
    for path in base.iterdir():
        if not path.name.startswith("openvino_model."):
            shutil.copy(path, out)
    ov.save_model(model, out / "openvino_model.xml", compress_to_fp16=False)


def make_vllm(out, hf, kind):
    import torch
    from safetensors.torch import load_file, save_file
    made, group = {}, None if kind == "w8a8" else int(kind.removeprefix("int4-"))
    for name, weight in load_file(hf / "model.safetensors").items():
        if not name.endswith("_proj.weight"):
            made[name] = weight
            continue
        values = weight.float()
        if group is None:
            scale = values.abs().amax(1, keepdim=True) / 127
            made[name] = (values / scale).round().clamp(-128, 127).to(torch.int8)
            made[name + "_scale"] = scale.to(torch.bfloat16)
            continue
        groups = values.view(len(values), -1, group)
        scale = groups.abs().amax(2, keepdim=True) / 7.5
        codes = ((groups / scale).round().clamp(-8, 7).view_as(values) + 8).to(torch.int32).view(len(values), -1, 8)
        made[name + "_packed"] = sum(codes[:, :, i] << (4 * i) for i in range(8)).to(torch.int32)
        made[name + "_scale"] = scale.squeeze(2).to(torch.bfloat16)
        made[name + "_shape"] = torch.tensor(values.shape)
    out.mkdir()
    for path in hf.iterdir():
        if path.name not in ("model.safetensors", "config.json"):
            shutil.copy(path, out)
    weights = dict(num_bits=8 if group is None else 4, type="int", symmetric=True, dynamic=False,
                   **(dict(strategy="channel") if group is None else dict(strategy="group", group_size=group)))
    activations = dict(num_bits=8, type="int", symmetric=True, strategy="token", dynamic=True) if group is None else None
    config = json.loads((hf / "config.json").read_text())
    config["quantization_config"] = dict(
        quant_method="compressed-tensors", format="int-quantized" if group is None else "pack-quantized",
        quantization_status="compressed", ignore=["lm_head"], kv_cache_scheme=None,
        config_groups={"group_0": dict(targets=["Linear"], weights=weights, input_activations=activations)})
    write_json(out / "config.json", config)
    save_file(made, out / "model.safetensors", metadata={"format": "pt"})


def main():
    if len(sys.argv) < 4 or sys.argv[2] not in SHAPES or sys.argv[3] not in ("hf", "openvino", "vllm"):
        print(__doc__, file=sys.stderr)
        return 2
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    folder, shape, engine = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    hf = folder / f"{shape}-hf"
    if not hf.exists():
        make_hf(hf, SHAPES[shape])
    for kind in sys.argv[4:] if engine != "hf" else ():
        out = folder / f"{shape}-{engine}-{kind}"
        if not out.exists():
            (make_openvino if engine == "openvino" else make_vllm)(out, hf, kind)
    return 0


if __name__ == "__main__":
    sys.exit(main())
