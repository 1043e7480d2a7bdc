"""Names, tensors and keys of models with recurrent states in GGUF files (weights.py)."""
import math

import gguf
import numpy as np

MAMBA2 = {"norm": "attn_norm", "mixer.in_proj": "ssm_in", "mixer.conv1d": "ssm_conv1d", "mixer.out_proj": "ssm_out",
          "mixer.norm": "ssm_norm"}
MODELS = ("mamba2",)
DELTA = {"post_attention_layernorm": "post_attention_norm", "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate",
         "linear_attn.in_proj_ba": "ssm_ba", "linear_attn.in_proj_b": "ssm_beta", "linear_attn.in_proj_a": "ssm_alpha",
         "linear_attn.conv1d": "ssm_conv1d", "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out"}
GRANITE = {name.replace("mixer.", "mamba."): own for name, own in MAMBA2.items() if name != "norm"}
LFM2 = {"operator_norm": "attn_norm", "ffn_norm": "ffn_norm", "self_attn.out_proj": "attn_output", "self_attn.q_layernorm": "attn_q_norm",
        "self_attn.k_layernorm": "attn_k_norm", "conv.conv": "shortconv.conv", "conv.in_proj": "shortconv.in_proj",
        "conv.out_proj": "shortconv.out_proj", "feed_forward.w1": "ffn_gate", "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down",
        "feed_forward.gate": "ffn_gate_inp", "feed_forward.expert": "exp_probs_b", "feed_forward.experts.w1": "ffn_gate_exps",
        "feed_forward.experts.w3": "ffn_up_exps", "feed_forward.experts.w2": "ffn_down_exps"}
FALCON_H1 = dict(GRANITE, **{"pre_ff_layernorm": "ffn_norm", "feed_forward.gate_proj": "ffn_gate", "feed_forward.up_proj": "ffn_up",
                             "feed_forward.down_proj": "ffn_down"})
FLOAT32 = ("conv1d.weight", ".conv.conv.weight", ".A_log", ".mamba.D", ".mamba.norm.weight")  # in all files


def decay_of(a_log):
  """-exp(A_log), in float64 and one number at a time: the same bits wherever it runs."""
  return np.array([-math.exp(float(x)) for x in a_log], dtype=np.float32)


def plain_name(name):
  """Of the tensors of a gated delta network or a mixer of Granite 4 that have no kind of their own."""
  for own, gguf_name in (("A_log", "ssm_a"), ("D", "ssm_d"), ("dt_bias", "ssm_dt.bias")):
    if name.endswith((f".linear_attn.{own}", f".mamba.{own}")):
      return f"blk.{name.split('.')[2]}.{gguf_name}"


def tiled(x, groups, heads, axis=0):
  """Heads in the order (head of the group, group), which is how llama.cpp repeats the keys of a group."""
  x = np.moveaxis(x, axis, 0)
  by_group = x.reshape(groups, heads // groups, -1, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)
  return np.moveaxis(by_group, 0, axis)


def delta_tensors(tensors, arch, config):
  groups, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
  key, value = config["linear_key_head_dim"], config["linear_value_head_dim"]
  found = {}
  for name, x in tensors.items():
    part = name.partition(".linear_attn.")[2]
    if part == "in_proj_qkvz.weight":  # by group: queries, keys, values, z
      own = heads // groups * value
      q, k, v, z = np.split(x.reshape(groups, -1, x.shape[-1]), [key, 2 * key, 2 * key + own], axis=1)
      found[name.replace("qkvz", "qkv")] = np.concatenate([y.reshape(-1, x.shape[-1]) for y in (q, k, v)])
      found[name.replace("qkvz", "z")] = z.reshape(-1, x.shape[-1])
      continue
    if part == "A_log":
      x = decay_of(x)
    if part == "conv1d.weight":
      x = x[:, 0]
    if arch in ("qwen35", "qwen35moe") and groups != heads:
      keys = 2 * groups * key
      if part in ("in_proj_qkv.weight", "conv1d.weight"):
        x = np.concatenate([x[:keys], tiled(x[keys:], groups, heads)])
      elif part in ("in_proj_z.weight", "in_proj_b.weight", "in_proj_a.weight", "A_log", "dt_bias"):
        x = tiled(x, groups, heads)
      elif part == "out_proj.weight":
        x = tiled(x, groups, heads, axis=1)
    found[name] = x
  return found


def granite_tensors(tensors, config):
  """Of Granite 4. Without experts its MLP, gate and up apart already, has the names of a Llama."""
  for name, x in tensors.items():
    if name.endswith(".mamba.A_log"):
      x = decay_of(x)[:, None]
    elif name.endswith(".mamba.D"):
      x = x[:, None]
    elif name.endswith(".mamba.conv1d.weight"):
      x = x[:, 0]
    elif name.endswith(".mamba.norm.weight"):
      x = x.reshape(config["mamba_n_groups"], -1)
    if not config["num_local_experts"]:
      name = name.replace("shared_mlp.output_linear", "mlp.down_proj").replace("shared_mlp.", "mlp.")
    yield name, x


def lfm2_kv_heads(config):
  return [config["num_key_value_heads"] if kind == "full_attention" else 0 for kind in config["layer_types"]]


def lfm2_width(config):
  """Of the MLP."""
  if not config["block_auto_adjust_ff_dim"]:
    return config["intermediate_size"]
  width, multiple = int(config["block_ffn_dim_multiplier"] * int(2 * config["intermediate_size"] / 3)), config["block_multiple_of"]
  return -(-width // multiple) * multiple


def granite_kv_heads(config):
  """Of each layer; none where there is no attention."""
  return [config["num_key_value_heads"] if kind == "attention" else 0 for kind in config["layer_types"]]


def add_key(w, arch, key, value):
  """Older versions of the gguf package have no methods for these."""
  w.add_uint32(f"{arch}.{key}", value)


def add_granite_keys(w, arch, config):
  if arch == "granitehybrid":
    w.add_bool(f"{arch}.rope.scaling.finetuned", config["position_embedding_type"] == "rope")
  add_key(w, arch, "ssm.conv_kernel", config.get("mamba_d_conv", 4))
  add_key(w, arch, "ssm.state_size", config["mamba_d_state"])
  add_key(w, arch, "ssm.group_count", config["mamba_n_groups"])
  add_key(w, arch, "ssm.inner_size", config["mamba_n_heads"] * config["mamba_d_head"])
  add_key(w, arch, "ssm.time_step_rank", config["mamba_n_heads"])


def add_keys(w, arch, config):
  if arch in ("granitehybrid", "falcon-h1"):
    add_granite_keys(w, arch, config)
  if arch in ("lfm2", "lfm2moe"):
    add_key(w, arch, "shortconv.l_cache", config["conv_L_cache"])
  if arch not in ("qwen3next", "qwen35", "qwen35moe"):
    return
  add_key(w, arch, "ssm.conv_kernel", config["linear_conv_kernel_dim"])
  add_key(w, arch, "ssm.state_size", config["linear_key_head_dim"])
  add_key(w, arch, "ssm.group_count", config["linear_num_key_heads"])
  add_key(w, arch, "ssm.time_step_rank", config["linear_num_value_heads"])
  add_key(w, arch, "ssm.inner_size", config["linear_value_head_dim"] * config["linear_num_value_heads"])
  add_key(w, arch, "full_attention_interval", config["full_attention_interval"])


def mamba2_tensors(tensors, config):
  for name, x in tensors.items():
    stem, _, kind = name.rpartition(".")
    top = {"backbone.embeddings": "token_embd", "backbone.norm_f": "output_norm", "lm_head": "output"}
    if stem in top:
      yield f"{top[stem]}.{kind}", x, kind == "weight" and x.ndim > 1
      continue
    _, _, layer, rest = name.split(".", 3)
    blk = f"blk.{layer}."
    if rest == "mixer.A_log":
      yield blk + "ssm_a", decay_of(x)[:, None], False
    elif rest == "mixer.D":
      yield blk + "ssm_d", x[:, None], False
    elif rest == "mixer.dt_bias":
      yield blk + "ssm_dt.bias", x, False
    else:
      stem, _, kind = rest.rpartition(".")
      if stem == "mixer.conv1d" and kind == "weight":
        x = x[:, 0]
      if stem == "mixer.norm":
        x = x.reshape(config["n_groups"], -1)
      yield f"{blk}{MAMBA2[stem]}.{kind}", x, stem.endswith("_proj") and kind == "weight"


def add_tensor(w, name, x, may_round, gguf_type):
  x = np.ascontiguousarray(x)
  if not may_round or gguf_type == "F32":
    w.add_tensor(name, x)
  elif gguf_type == "F16":
    w.add_tensor(name, x.astype(np.float16))
  else:
    bits = (x.view(np.uint32) >> 16).astype(np.uint16)  # exact: the values are bf16 already
    assert np.array_equal((bits.astype(np.uint32) << 16).view(np.float32), x), name
    w.add_tensor(name, bits.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)


def write(path, tensors, config, gguf_type, name):
  """What llama.cpp's converter writes for a Mamba-2, vocabulary left out."""
  arch = config["model_type"]
  w = gguf.GGUFWriter(path, arch)
  w.add_name(name)
  w.add_vocab_size(config["vocab_size"])
  w.add_context_length(2**20)
  w.add_embedding_length(config["hidden_size"])
  w.add_feed_forward_length(0)
  w.add_head_count(0)
  w.add_block_count(config["num_hidden_layers"])
  add_key(w, arch, "ssm.conv_kernel", config["conv_kernel"])
  add_key(w, arch, "ssm.inner_size", config["num_heads"] * config["head_dim"])
  add_key(w, arch, "ssm.state_size", config["state_size"])
  add_key(w, arch, "ssm.time_step_rank", config["num_heads"])
  add_key(w, arch, "ssm.group_count", config["n_groups"])
  w.add_layer_norm_rms_eps(config["layer_norm_epsilon"])
  w.add_tokenizer_model("none")
  for n, x, may_round in mamba2_tensors(tensors, config):
    add_tensor(w, n, x, may_round, gguf_type)
  w.write_header_to_file()
  w.write_kv_data_to_file()
  w.write_tensors_to_file()
  w.close()
