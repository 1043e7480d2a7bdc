"""Tiny random encoders, and their hidden states and scores in PyTorch transformers.

    python tests/golden/encoders/make_encoders.py [NAME ...]

Needs torch, transformers 5, safetensors, gguf, numpy. A case is a folder: config.json, weights.txt (../weights.py) and io.npz
with "lengths" of its texts, their "tokens" and "token_types" one after the other, "hidden" [tokens, width] and, of classifiers,
"scores" [texts, labels]. Each text is computed alone, in float64 from end to end (../make_golden.py). Settings that a case is there for
must change the result by 1e-3 (`without`).
"""
import argparse
import json
import pathlib
import sys

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import weights
from make_golden import DTYPES, float32_means_float64, relative

BERT = dict(model_type="bert", architectures=["BertModel"], vocab_size=300, hidden_size=32, num_hidden_layers=2,
            num_attention_heads=4, intermediate_size=48, max_position_embeddings=64, type_vocab_size=2, layer_norm_eps=1e-12,
            hidden_act="gelu", pad_token_id=0)
ROBERTA = dict(BERT, model_type="roberta", architectures=["RobertaModel"], max_position_embeddings=66, type_vocab_size=1,
               layer_norm_eps=1e-5, pad_token_id=1, bos_token_id=0, eos_token_id=2)
MODERN = dict(model_type="modernbert", architectures=["ModernBertModel"], vocab_size=300, hidden_size=32, num_hidden_layers=4,
              num_attention_heads=2, intermediate_size=40, max_position_embeddings=128, norm_eps=1e-5, hidden_activation="gelu",
              local_attention=8, global_attn_every_n_layers=3, global_rope_theta=160000.0, local_rope_theta=10000.0,
              attention_bias=False, mlp_bias=False, norm_bias=False, pad_token_id=0, bos_token_id=2, eos_token_id=3,
              cls_token_id=2, sep_token_id=3, classifier_pooling="cls")
# A decoder that is used as an encoder: saved without its output matrix, as Qwen3-Embedding is.
QWEN3 = dict(model_type="qwen3", architectures=["Qwen3Model"], vocab_size=300, hidden_size=32, intermediate_size=48,
             num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=12, max_position_embeddings=128,
             rms_norm_eps=1e-6, rope_theta=1000000.0, hidden_act="silu", tie_word_embeddings=True, attention_bias=False,
             use_sliding_window=False, sliding_window=None, max_window_layers=2, bos_token_id=2, eos_token_id=3, pad_token_id=0)
LABEL = dict(id2label={"0": "LABEL_0"}, label2id={"LABEL_0": 0})


def case(name, base, change=None, *, dtype="f32", gguf_type=None, lengths=(5, 1, 33, 12), without=()):
  return dict(name=name, config={**base, **(change or {})}, dtype=dtype, gguf_type=gguf_type, lengths=lengths, without=without)


CASES = [
    case("bert", BERT, gguf_type="F32"),
    case("bert_odd", BERT, dict(hidden_size=30, num_attention_heads=3, intermediate_size=37, num_hidden_layers=3, hidden_act="gelu_new",
         layer_norm_eps=1e-3, vocab_size=97), dtype="bf16", lengths=(64, 2, 31), without=[{"hidden_act": "relu"}, {"layer_norm_eps": 1e-12}]),
    case("bert_head_dim_1", BERT, dict(hidden_size=6, num_attention_heads=6, intermediate_size=5, vocab_size=70), dtype="f16", gguf_type="F16",
         lengths=(3, 9, 1, 1, 20)),
    case("bert_cross_encoder", BERT, dict(architectures=["BertForSequenceClassification"], **LABEL), lengths=(9, 30, 4)),
    case("roberta", ROBERTA, gguf_type="F32", lengths=(64, 1, 7)),
    case("roberta_cross_encoder", ROBERTA, dict(architectures=["RobertaForSequenceClassification"], hidden_size=20, num_attention_heads=5,
         **LABEL), dtype="bf16", gguf_type="F32", lengths=(9, 30, 4)),
    case("modernbert", MODERN, gguf_type="F32", lengths=(40, 3, 100, 1), without=[{"local_attention": 16},
         {"global_attn_every_n_layers": 2}, {"local_rope_theta": 160000.0}]),
    case("modernbert_bias", MODERN, dict(hidden_size=36, num_attention_heads=3, intermediate_size=29, attention_bias=True, mlp_bias=True,
         norm_bias=True, local_attention=6, global_attn_every_n_layers=2, num_hidden_layers=3), dtype="bf16", lengths=(17, 64, 33)),
    case("modernbert_reranker", MODERN, dict(architectures=["ModernBertForSequenceClassification"], classifier_pooling="mean",
         **LABEL), lengths=(21, 50, 2), without=[{"classifier_pooling": "cls"}]),
    case("qwen3_embedding", QWEN3, gguf_type="F32", lengths=(40, 1, 100, 33)),
]


def class_of(config):
  return getattr(transformers, config["architectures"][0])


def written(config, dtype):
  return dict(config, dtype=DTYPES[dtype][0], transformers_version="5.0.0")


def open_model(folder, config):
  (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
  return class_of(config).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def outputs(model, texts):
  """Hidden states of all texts, and scores of a classifier. Texts are (tokens, token types)."""
  hidden, scores = [], []
  for tokens, types in texts:
    more = {"token_type_ids": torch.tensor([types])} if model.config.model_type == "bert" else {}
    with torch.no_grad():
      out = model(input_ids=torch.tensor([tokens]), output_hidden_states=True, **more)
    hidden.append((out.last_hidden_state if hasattr(out, "last_hidden_state") else out.hidden_states[-1])[0])
    if hasattr(out, "logits"):
      scores.append(out.logits[0])
  return [torch.cat(hidden).numpy()] + ([torch.stack(scores).numpy()] if scores else [])


def exact_outputs(model, texts):
  with float32_means_float64():
    model = model.double()
    for module in list(model.modules()):
      if hasattr(module, "rotary_emb"):
        module.rotary_emb = type(module.rotary_emb)(model.config)
    return outputs(model, texts)


def make(c, seed):
  folder = HERE / c["name"]
  folder.mkdir(exist_ok=True)
  for old in folder.iterdir():
    old.unlink()
  config = written(c["config"], c["dtype"])
  (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
  model = class_of(config)(transformers.AutoConfig.from_pretrained(folder))
  parameters = dict(sorted(model.named_parameters()))
  shapes = {name: tuple(p.shape) for name, p in parameters.items()}
  draw = ["torch", seed, "gain", 1.5]
  with torch.no_grad():
    for name, x in weights.draw_torch(seed, shapes, 1.5):
      parameters[name].copy_(torch.from_numpy(x.astype(np.float32)))
  save_file({n: p.detach().to(DTYPES[c["dtype"]][1]).contiguous() for n, p in parameters.items()}, folder / "model.safetensors")

  rng = np.random.default_rng(seed)
  texts = []
  for n in c["lengths"]:
    tokens = rng.integers(5, config["vocab_size"], n).tolist()
    second = int(rng.integers(1, n + 1)) if config["model_type"] == "bert" else n
    texts.append((tokens, [0] * second + [1] * (n - second)))
  plain = open_model(folder, config)
  if c["gguf_type"]:
    weights.write_gguf(folder / "model.gguf", {n: p.detach().float().numpy() for n, p in sorted(plain.named_parameters())}, config,
                       c["gguf_type"], c["name"])
  float32 = outputs(plain, texts)
  exact = exact_outputs(plain, texts)
  own = max(relative(a, b) for a, b in zip(float32, exact))
  assert own < 2e-5, (c["name"], own)
  moves = []
  for change in c["without"]:
    moves.append(relative(exact_outputs(open_model(folder, dict(config, **change)), texts)[-1], exact[-1]))
    assert moves[-1] > 1e-3, (c["name"], change, moves[-1])
  (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
  arrays = dict(lengths=np.array(c["lengths"], np.float32), tokens=np.array(sum((t for t, _ in texts), []), np.float32),
                token_types=np.array(sum((t for _, t in texts), []), np.float32), hidden=exact[0].astype(np.float32))
  if len(exact) > 1:
    arrays["scores"] = exact[1].astype(np.float32)
  np.savez(folder / "io.npz", **{f"all.{name}": array for name, array in arrays.items()})
  weights.describe(folder, ["model.safetensors"], c["dtype"], draw, shapes, gguf_type=c["gguf_type"])
  print(f"{c['name']:24} float32 of transformers off by {own:.1e}; without: {' '.join(f'{m:.1e}' for m in moves)}")


def main():
  p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  p.add_argument("names", nargs="*", help="cases to make; default: all")
  args = p.parse_args()
  transformers.logging.set_verbosity_error()
  transformers.logging.disable_progress_bar()
  torch.set_num_threads(1)
  for i, c in enumerate(CASES):
    if not args.names or c["name"] in args.names:
      make(c, 700 + i)


if __name__ == "__main__":
  main()
