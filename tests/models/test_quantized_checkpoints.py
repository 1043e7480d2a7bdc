"""GPTQ, AWQ and pack-quantized checkpoints against the code of the packages that write them.

Random tensors are unpacked by compressed-tensors, AutoAWQ and GPTQModel, and by `redline convert --type f32`, which writes the weights
of the same folder: every element is the same number. The packages need PyTorch, but neither a GPU nor an installation of their own
dependencies: `pip install --no-deps compressed-tensors autoawq`, and GPTQModel's sources unpacked into a folder that REDLINE_GPTQMODEL
names. A package that is not there skips its test.
"""
import importlib.util
import inspect
import json
import os
import pathlib
import subprocess
import sys
import types

import pytest

from redline_binary import binary

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
safetensors_torch = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
gguf = pytest.importorskip("gguf", reason="gguf is not installed")

HIDDEN, INNER, VOCAB = 128, 192, 64
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": INNER,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True}
LAYER = "model.layers.0."
MATRICES = {f"{LAYER}self_attn.{n}_proj": (HIDDEN, HIDDEN) for n in "qkvo"} | {
    f"{LAYER}mlp.gate_proj": (INNER, HIDDEN), f"{LAYER}mlp.up_proj": (INNER, HIDDEN), f"{LAYER}mlp.down_proj": (HIDDEN, INNER)}
# Their names in GGUF; q and k have their rows in another order there.
COMPARED = {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "self_attn.v_proj": "attn_v",
            "self_attn.o_proj": "attn_output"}


def source_of(package, *path):
    """A file of an installed package, which is not imported: its __init__ may need others."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed: pip install --no-deps {package}")
    return pathlib.Path(next(iter(spec.submodule_search_locations)), *path)


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def words(*shape):
    return torch.randint(-2**31, 2**31, shape, dtype=torch.int64).to(torch.int32)


def scales(*shape, dtype=torch.float16):
    return (torch.rand(shape) * 0.01 + 0.001).to(dtype)


def check(folder, quantization, tensors, wanted):
    """`wanted`: float32 matrices [rows, columns] by module."""
    tensors = dict(tensors)
    tensors["model.embed_tokens.weight"] = torch.randn(VOCAB, HIDDEN)
    for norm in (f"{LAYER}input_layernorm", f"{LAYER}post_attention_layernorm", "model.norm"):
        tensors[f"{norm}.weight"] = torch.ones(HIDDEN)
    (folder / "config.json").write_text(json.dumps(CONFIG | {"quantization_config": quantization}))
    safetensors_torch.save_file({name: t.contiguous() for name, t in tensors.items()}, folder / "model.safetensors")
    out = folder / "out.gguf"
    subprocess.run([binary(), "convert", folder, out, "--type", "f32", "--no-tokenizer"], check=True, capture_output=True, text=True)
    written = {t.name: t for t in gguf.GGUFReader(out).tensors}
    for module, name in COMPARED.items():
        got = torch.from_numpy(written[f"blk.0.{name}.weight"].data.copy())
        want = wanted[LAYER + module].to(torch.float32)
        assert got.shape == want.shape
        assert torch.equal(got, want), f"{module}: {(got != want).sum()} of {want.numel()} elements differ"
    shown = json.loads(subprocess.run([binary(), "show", folder, "--json"], check=True, capture_output=True, text=True).stdout)
    assert shown["quantization"]


@pytest.mark.parametrize("bits, group, symmetric, actorder, dtype", [
    (4, 32, True, None, torch.float16), (4, 64, False, None, torch.float16), (4, None, True, None, torch.bfloat16),
    (8, 64, True, None, torch.bfloat16), (8, None, True, None, torch.float16), (4, 64, True, "group", torch.float16),
    (4, 32, False, "group", torch.bfloat16), (2, 32, False, None, torch.float16)])
def test_compressed_tensors(tmp_path, bits, group, symmetric, actorder, dtype):
    pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")
    from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.lifecycle.forward import dequantize
    if actorder and "g_idx" not in inspect.signature(dequantize).parameters:
        pytest.skip("this version of compressed-tensors does not read weight_g_idx any more")
    torch.manual_seed(bits)
    args = QuantizationArgs(num_bits=bits, type="int", symmetric=symmetric, dynamic=False, strategy="group" if group else "channel",
                            group_size=group)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    tensors, wanted = {}, {}
    for module, (rows, cols) in MATRICES.items():
        groups = cols // (group or cols)
        state = {"weight": torch.randn(rows, cols).to(dtype) * 0.05, "weight_scale": scales(rows, groups, dtype=dtype)}
        low, high = -2**(bits - 1), 2**(bits - 1)
        state["weight_zero_point"] = (torch.zeros(rows, groups, dtype=torch.int8) if symmetric else
                                      torch.randint(low, high, (rows, groups), dtype=torch.int8))
        if actorder:
            state["weight_g_idx"] = (torch.randperm(cols) // group).to(torch.int32)
        packed = PackedQuantizationCompressor.compress(state, scheme)
        for name, tensor in packed.items():
            tensors[f"{module}.{name}"] = tensor
        # In float32, so that the product is not rounded.
        packed["weight_scale"] = packed["weight_scale"].float()
        wanted[module] = PackedQuantizationCompressor.decompress(packed, scheme)["weight"]
    group_0 = json.loads(scheme.model_dump_json())
    group_0["weights"]["actorder"] = actorder  # "group" is read, but no longer written, by newer versions
    check(tmp_path, {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"], "kv_cache_scheme": None,
                     "config_groups": {"group_0": group_0}}, tensors, wanted)


@pytest.mark.parametrize("group", [32, 64])
def test_awq(tmp_path, group):
    awq = load("awq_packing", source_of("awq", "utils", "packing_utils.py"))
    torch.manual_seed(group)
    tensors, wanted = {}, {}
    for module, (rows, cols) in MATRICES.items():
        packed = {"qweight": words(cols, rows // 8), "qzeros": words(cols // group, rows // 8), "scales": scales(cols // group, rows)}
        tensors |= {f"{module}.{name}": tensor for name, tensor in packed.items()}
        wanted[module] = awq.dequantize_gemm(packed["qweight"], packed["qzeros"], packed["scales"].float(), 4, group).t()
    check(tmp_path, {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm", "zero_point": True}, tensors, wanted)


def gptqmodel():
    """GPTQModel's reader of checkpoints, without the package around it."""
    folder = os.environ.get("REDLINE_GPTQMODEL")
    if not folder:
        pytest.skip("REDLINE_GPTQMODEL does not name a folder with the sources of GPTQModel")
    root = pathlib.Path(folder)
    for name in ("gptqmodel", "gptqmodel.utils", "gptqmodel.quantization"):
        package = types.ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")))]
        sys.modules.setdefault(name, package)
    # What it imports for other formats: these need packages of their own.
    for name in ("gptqmodel.utils.logger", "gptqmodel.quantization.dtype"):
        unused = types.ModuleType(name)
        unused.__getattr__ = lambda attribute: (lambda *arguments: ())
        sys.modules.setdefault(name, unused)
    return importlib.import_module("gptqmodel.utils.model_dequant")


@pytest.mark.parametrize("bits, group, v2, order, symmetric", [
    (4, 32, False, False, True), (4, 64, False, True, True), (4, 64, False, False, False), (4, 32, True, True, False),
    (8, 64, False, False, True), (2, 32, True, False, False)])
def test_gptq(tmp_path, bits, group, v2, order, symmetric):
    reader = gptqmodel()
    torch.manual_seed(bits + group)
    per = 32 // bits
    quantization = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": order, "sym": symmetric,
                    "checkpoint_format": "gptq_v2" if v2 else "gptq"}
    tensors, wanted = {}, {}
    for module, (rows, cols) in MATRICES.items():
        groups = cols // group
        # The zero point 0 has two readings in v1, as fields and as words.
        zeros = torch.full((groups, rows), 2**(bits - 1)) if symmetric else torch.randint(0 if v2 else 1, 2**bits, (groups, rows))
        g_idx = (torch.randperm(cols) if order else torch.arange(cols)) // group
        tensors |= {f"{module}.qweight": words(cols // per, rows),
                    f"{module}.qzeros": reader.pack_cols(zeros if v2 else zeros - 1, bits, pack_dtype=torch.int32),
                    f"{module}.scales": scales(groups, rows), f"{module}.g_idx": g_idx.to(torch.int32)}
    path = tmp_path / "theirs.safetensors"
    safetensors_torch.save_file({name: t.contiguous() for name, t in tensors.items()}, path)
    for name, tensor in reader.convert_gptq_file(path, torch.float32, quantization, "cpu").items():
        wanted[name.removesuffix(".weight")] = tensor
    path.unlink()
    check(tmp_path, quantization, tensors, wanted)
