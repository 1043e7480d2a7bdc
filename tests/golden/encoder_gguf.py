"""GGUF twins of the encoders in tests/golden/encoders, as llama.cpp's converter writes them, vocabulary left out."""
import gguf
import numpy as np

BERT_TOP = {"embeddings.word_embeddings": "token_embd", "embeddings.LayerNorm": "token_embd_norm",
            "embeddings.position_embeddings": "position_embd", "embeddings.token_type_embeddings": "token_types",
            "classifier.dense": "cls", "classifier.out_proj": "cls.output"}
BERT_LAYER = {"attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
              "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
              "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}
MODERN_TOP = {"embeddings.tok_embeddings": "token_embd", "embeddings.norm": "token_embd_norm", "final_norm": "output_norm",
              "head.dense": "cls", "head.norm": "cls.norm", "classifier": "cls.output"}
MODERN_LAYER = {"attn_norm": "attn_norm", "attn.Wqkv": "attn_qkv", "attn.Wo": "attn_output", "mlp_norm": "ffn_norm",
                "mlp.Wi": "ffn_up", "mlp.Wo": "ffn_down"}
ENCODERS = {"bert": ("bert", "encoder.layer.", BERT_TOP, BERT_LAYER), "roberta": ("bert", "encoder.layer.", BERT_TOP, BERT_LAYER),
            "modernbert": ("modern-bert", "layers.", MODERN_TOP, MODERN_LAYER)}


def gguf_name(model_type, name):
  """None: the converter drops the tensor."""
  _, layers, top, of_layer = ENCODERS[model_type]
  for prefix in ("bert.", "roberta.", "model."):
    name = name.removeprefix(prefix)
  stem, kind = name.rsplit(".", 1)
  if stem.startswith("pooler."):
    return None
  if stem.startswith(layers):
    layer, rest = stem.removeprefix(layers).split(".", 1)
    return f"blk.{layer}.{of_layer[rest]}.{kind}"
  return f"{top[stem]}.{kind}"


def write(path, tensors, config, gguf_type, name):
  """`tensors`: name -> float32 values."""
  kind = config["model_type"]
  skipped = config["pad_token_id"] + 1 if kind == "roberta" else 0  # positions that no token has
  w = gguf.GGUFWriter(path, ENCODERS[kind][0])
  w.add_name(name)
  w.add_vocab_size(config["vocab_size"])
  w.add_context_length(config["max_position_embeddings"] - skipped)
  w.add_embedding_length(config["hidden_size"])
  w.add_block_count(config["num_hidden_layers"])
  w.add_feed_forward_length(config["intermediate_size"])
  w.add_head_count(config["num_attention_heads"])
  w.add_layer_norm_eps(config["norm_eps"] if kind == "modernbert" else config["layer_norm_eps"])
  w.add_causal_attention(False)
  w.add_pooling_type(gguf.PoolingType.MEAN)
  w.add_tokenizer_model("none")
  if kind == "modernbert":
    w.add_rope_freq_base(config["global_rope_theta"])
    w.add_float32("modern-bert.rope.freq_base_swa", config["local_rope_theta"])
    w.add_sliding_window(config["local_attention"])
    w.add_uint32("modern-bert.attention.sliding_window_pattern", config["global_attn_every_n_layers"])
    w.add_rope_scaling_type(gguf.RopeScalingType.NONE)
  for n, x in tensors.items():
    to = gguf_name(kind, n)
    if to is None:
      continue
    x = np.ascontiguousarray(x[skipped:] if to == "position_embd.weight" else x)
    # Norms, biases and what is added to the embeddings stay float32.
    is_wide = x.ndim == 1 or gguf_type == "F32" or to in ("position_embd.weight", "token_types.weight")
    w.add_tensor(to, x if is_wide else x.astype(np.float16))
  w.write_header_to_file()
  w.write_kv_data_to_file()
  w.write_tensors_to_file()
  w.close()
