"""Names, tensors and keys of mixtures of experts in GGUF files (weights.py)."""
import gguf
import numpy as np

ROUTERS = ("mlp.gate.weight", "block_sparse_moe.gate.weight", "block_sparse_moe.router.layer.weight", "mlp.router.weight", "mlp.gate.wg.weight", "feed_forward.gate.weight", ".bias")  # float32 in all files
EXPERTS = {"mlp.gate": "ffn_gate_inp", "mlp.experts.gate_proj": "ffn_gate_exps", "mlp.experts.up_proj": "ffn_up_exps",
           "mlp.experts.down_proj": "ffn_down_exps", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
           "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
           "mlp.shared_expert.down_proj": "ffn_down_shexp", "block_sparse_moe.gate": "ffn_gate_inp",
           "block_sparse_moe.experts.w1": "ffn_gate_exps", "block_sparse_moe.experts.w3": "ffn_up_exps",
           "block_sparse_moe.experts.w2": "ffn_down_exps", "mlp.gate.e_score_correction": "exp_probs_b",
           "mlp.shared_experts.gate_proj": "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp",
           "mlp.shared_experts.down_proj": "ffn_down_shexp", "block_sparse_moe.router.layer": "ffn_gate_inp",
           "shared_mlp.gate_proj": "ffn_gate_shexp", "shared_mlp.up_proj": "ffn_up_shexp", "shared_mlp.output_linear": "ffn_down_shexp",
           "block_sparse_moe.gate_proj": "ffn_gate_exps", "block_sparse_moe.up_proj": "ffn_up_exps",
           "block_sparse_moe.output_linear": "ffn_down_exps"}
LATENT = {"self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
          "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
          "self_attn.k_b_proj": "attn_k_b", "self_attn.v_b_proj": "attn_v_b"}
GPT_OSS = {"post_attention_layernorm": "post_attention_norm", "self_attn.sinks": "attn_sinks", "mlp.router": "ffn_gate_inp"}


def stack_experts(tensors):
  """The matrices of all experts of a layer as one tensor, as GGUF has them."""
  stacked = {}
  for name, x in tensors.items():
    module, found, rest = name.partition(".experts.")
    number, _, part = rest.partition(".")
    if found and number.isdigit():
      stacked.setdefault(f"{module}.experts.{part}", {})[int(number)] = x
    else:
      stacked[name] = x
  return {n: np.stack([x[e] for e in sorted(x)]) if isinstance(x, dict) else x for n, x in stacked.items()}


def split_gpt_oss(tensors):
  """Gate and up, whose columns alternate, apart, and all matrices transposed."""
  found = {}
  for name, x in tensors.items():
    experts, _, part = name.rpartition(".")
    kind = "bias" if part.endswith("_bias") else "weight"
    if not experts.endswith(".experts"):
      found[name + ".weight" if name.endswith("sinks") else name] = x
      continue
    x = x if kind == "bias" else x.swapaxes(1, 2)
    if part.startswith("down_proj"):
      found[f"{experts}.down_proj.{kind}"] = x
    else:
      found[f"{experts}.gate_proj.{kind}"], found[f"{experts}.up_proj.{kind}"] = x[:, ::2], x[:, 1::2]
  return found


def split_granite(tensors):
  """Gate and up of the experts, and of that of all tokens, apart."""
  found = {}
  for name, x in tensors.items():
    if not name.endswith("input_linear.weight"):
      found[name] = x
      continue
    found[name.replace("input_linear", "gate_proj")], found[name.replace("input_linear", "up_proj")] = np.split(x, 2, axis=-2)
  return found


def plain_tensors(tensors, arch):
  """Correction biases as tensors with a kind, and gate and up of all experts in one tensor apart."""
  found = {}
  for name, x in tensors.items():
    if name.endswith(("e_score_correction_bias", ".expert_bias")):
      found[name.removesuffix("_bias") + ".bias"] = x.reshape(-1)
    elif arch == "qwen35moe" and name.endswith(".experts.gate_up_proj"):
      gate, up = np.split(x, 2, axis=1)
      found[name.replace("gate_up_proj", "gate_proj.weight")], found[name.replace("gate_up_proj", "up_proj.weight")] = gate, up
    elif arch == "qwen35moe" and name.endswith(".experts.down_proj"):
      found[name + ".weight"] = x
    else:
      found[name] = x
  return found


def split_latent(tensors, config):
  """Keys and values of latent attention by head, the keys transposed, as GGUF has them."""
  heads, nope = config["num_attention_heads"], config["qk_nope_head_dim"]
  found = {}
  for name, x in tensors.items():
    name = name.replace("e_score_correction_bias", "e_score_correction.bias")
    if "kv_b_proj" not in name:
      found[name] = x
      continue
    by_head = x.reshape(heads, -1, x.shape[-1])
    found[name.replace("kv_b_proj", "k_b_proj")] = by_head[:, :nope].swapaxes(1, 2)
    found[name.replace("kv_b_proj", "v_b_proj")] = by_head[:, nope:]
  return found


def add_keys(w, arch, config):
  if arch in ("glm4moe", "dots1"):
    w.add_leading_dense_block_count(config["first_k_dense_replace"])
    w.add_expert_shared_count(config["n_shared_experts"])
    w.add_expert_weights_scale(config["routed_scaling_factor"])
    w.add_expert_weights_norm(config["norm_topk_prob"])
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    w.add_uint32(f"{arch}.expert_group_count", config["n_group"])
    w.add_uint32(f"{arch}.expert_group_used_count", config["topk_group"])
  if arch == "lfm2moe":
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    w.add_leading_dense_block_count(config["num_dense_layers"])
  if arch == "minimax-m2":
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    w.add_expert_feed_forward_length(config["intermediate_size"])
  if arch == "ernie4_5-moe":
    config = dict(config, num_experts=config["moe_num_experts"], num_experts_per_tok=config["moe_k"],
                  shared_expert_intermediate_size=config["moe_intermediate_size"] * config["moe_num_shared_experts"])
    w.add_leading_dense_block_count(config["moe_layer_start_index"])
    w.add_expert_shared_count(config["moe_num_shared_experts"])
    w.add_uint32(f"{arch}.interleave_moe_layer_step", config["moe_layer_interval"])
  if arch == "hunyuan-moe":
    config = dict(config, num_experts_per_tok=config["moe_topk"], moe_intermediate_size=config["intermediate_size"],
                  shared_expert_intermediate_size=config["intermediate_size"])
    w.add_expert_shared_count(1)
  if arch == "deepseek2":
    dense = config["mlp_layer_types"].count("dense") if "mlp_layer_types" in config else config["first_k_dense_replace"]
    w.add_leading_dense_block_count(dense)
    if config["q_lora_rank"]:
      w.add_q_lora_rank(config["q_lora_rank"])
    w.add_kv_lora_rank(config["kv_lora_rank"])
    w.add_key_length_mla(config["qk_nope_head_dim"] + config["qk_rope_head_dim"])
    w.add_value_length_mla(config["v_head_dim"])
    w.add_expert_shared_count(config["n_shared_experts"])
    w.add_expert_weights_scale(config["routed_scaling_factor"])
    w.add_expert_weights_norm(config["norm_topk_prob"])
    w.add_uint32("deepseek2.expert_group_count", config["n_group"])
    w.add_uint32("deepseek2.expert_group_used_count", config["topk_group"])
    w.add_expert_gating_func(gguf.ExpertGatingFuncType[config.get("scoring_func", "sigmoid").upper()])
    if config.get("rope_scaling"):
      w.add_rope_scaling_yarn_log_mul(0.1 * config["rope_scaling"]["mscale_all_dim"])
  experts = config.get("num_experts") or config.get("num_local_experts") or config.get("n_routed_experts")
  if experts:
    w.add_expert_count(experts)
    w.add_expert_used_count(config["num_experts_per_tok"])
    if config.get("moe_intermediate_size"):
      w.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if shared := config.get("shared_expert_intermediate_size", config.get("shared_intermediate_size")):
      w.add_expert_shared_feed_forward_length(shared)
