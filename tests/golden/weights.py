#!/usr/bin/env python3
"""The random weights of the golden models: stored as a recipe each, written as files in the build.

    python tests/golden/weights.py OUT      writes OUT: tests/golden without its scripts, with the files of every recipe

A recipe is a weights.txt in the folder of the files that it describes:

    file model.safetensors SHA256           one line per shard; tensors are dealt to the shards in turn
    dtype bf16
    draw torch 3 gain 1.2                   the generator with its seed, and so the distribution: see the functions below
    blocks 32                               matrices of whole blocks again: integers of a generator with this seed
    same lm_head.weight shared.weight       a tensor, and the one that it equals
    stored pos_embed.pos_embed              a tensor whose bits are in the file pos_embed.pos_embed.npy
    gguf BF16 SHA256                        also model.gguf, under llama.cpp's names
    flux ../original.gguf SHA256            also the same under the names of the original FLUX checkpoint
    tensors                                 the rest, in the order of drawing: module paths by indentation, then shapes
    encoder
     conv_in
      weight 8 3 3 3
      bias 8

or one line, `link ../other`: the files of another folder, and after it perhaps `gguf`. The makers call describe(), which checks
that the recipe gives the bytes of the file that they saved. Needs numpy and gguf; PyTorch is for the makers alone.

over 600 lines: recipes, and the names of all families in GGUF files.
"""
import hashlib
import json
import os
import pathlib
import shutil
import struct
import sys

try:
  import gguf
  import numpy as np
except ImportError:
  sys.exit("The weights of tests/golden are made with the Python packages numpy and gguf: run tools/setup.sh test")

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import encoder_gguf
import moe_gguf
import recurrent_gguf

RECIPE = "weights.txt"
SAFETENSORS = {"f32": "F32", "f16": "F16", "bf16": "BF16"}


class TorchGenerator:
  """torch.Generator().manual_seed(seed) on a CPU, the part that torch.randn(..., dtype=torch.float64) uses."""

  def __init__(self, seed):
    self.engine = np.random.MT19937()
    self.engine._legacy_seeding(seed)
    self.second = None  # of a pair of normal values

  def uniform(self, count):
    words = self.engine.random_raw(2 * count).astype(np.uint64)
    return ((words[0::2] << np.uint64(32) | words[1::2]) & np.uint64((1 << 53) - 1)).astype(np.float64) * 2.0**-53

  def randn(self, count):
    if count < 16:
      return np.array([self.one() for _ in range(count)])
    values = self.uniform(count)
    whole = count // 16 * 16
    values[:whole] = self.pairs(values[:whole])
    if whole < count:  # the last 16 again
      values[-16:] = self.pairs(self.uniform(16))
    return values

  def one(self):
    value, self.second = self.second, None
    if value is None:
      angle, u = self.uniform(2)
      radius = np.sqrt(-2 * np.log1p(-u))
      value, self.second = radius * np.cos(2 * np.pi * angle), radius * np.sin(2 * np.pi * angle)
    return value

  def integers(self, low, high, count):
    """torch.randint(low, high, ...)"""
    return low + (self.engine.random_raw(count) % (high - low)).astype(np.int64)

  @staticmethod
  def pairs(uniform):
    """Box-Muller, 8 and 8 values of every 16."""
    u = uniform.reshape(-1, 2, 8)
    radius, angle = np.sqrt(-2 * np.log(1 - u[:, 0])), 2 * np.pi * u[:, 1]
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)


def draw_torch(seed, tensors, gain=1.0):
  """Weights like those of a trained network: norms around one, biases of visible size, linears that keep the scale of x."""
  generator = TorchGenerator(int(seed))
  for name, shape in tensors.items():
    noise = generator.randn(int(np.prod(shape, dtype=np.int64))).reshape(shape)
    if len(shape) == 1:
      yield name, (1.0 if name.endswith("weight") else 0.0) + 0.2 * noise
    else:
      yield name, float(gain) * noise / np.prod(shape[1:])**0.5


def draw_numpy(seed, tensors, norm=1.0):
  """`norm`: the mean of norm weights; 0 where the model adds 1 itself. Every tensor is scaled to have a visible effect: attention is far from uniform, norms far from 1, biases far from 0."""
  generator = seed if isinstance(seed, np.random.Generator) else np.random.default_rng(int(seed))
  for name, shape in tensors.items():
    x = generator.standard_normal(tuple(shape))
    if name.endswith("norm.weight") or (len(shape) == 1 and name.endswith("weight")):
      x = float(norm) + 0.3 * x
    elif name.endswith("bias") or len(shape) == 1:
      x = 0.4 * x
    elif "embed_tokens" in name:
      x = 0.7 * x
    else:
      gain = 1.7 if ("q_proj" in name or "k_proj" in name) else 1.2
      x = gain / np.sqrt(shape[1]) * x
    yield name, x


def integer_blocks(seed, shapes):
  """Matrices of whole blocks of 32: integers times a power of two, 127 itself in each block, so that q8_0 stores them exactly."""
  generator = TorchGenerator(int(seed))
  for name, shape in shapes.items():
    if len(shape) == 2 and shape[1] % 32 == 0:
      whole = generator.integers(-126, 127, shape[0] * shape[1]).reshape(shape)
      whole[:, ::32] = 127
      yield name, whole * 2.0**-9


DRAW = {"torch": draw_torch, "numpy": draw_numpy}


def to_bits(values, dtype):
  """float64 to float32 to the stored type, each rounded to nearest even."""
  single = np.ascontiguousarray(values, dtype=np.float32)
  if dtype == "f32":
    return single.view(np.uint32)
  if dtype == "f16":
    return single.astype(np.float16).view(np.uint16)
  bits = single.view(np.uint32).astype(np.uint64)
  return ((bits + np.uint64(0x7fff) + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)).astype(np.uint16)


def to_float32(bits, dtype):
  if dtype == "f32":
    return bits.view(np.float32)
  if dtype == "f16":
    return bits.view(np.float16).astype(np.float32)
  return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


class Recipe:
  def __init__(self):
    self.files, self.dtype, self.draw, self.same, self.stored = [], "", [], {}, []
    self.gguf, self.link, self.tensors = None, None, {}
    self.blocks, self.flux = None, []

  def parse(self, text):
    lines = iter(text.splitlines())
    for line in lines:
      word, *rest = line.split()
      if word == "file":
        self.files.append(tuple(rest))
      elif word == "dtype":
        self.dtype, = rest
      elif word == "draw":
        self.draw = rest
      elif word == "same":
        self.same[rest[0]] = rest[1]
      elif word == "stored":
        self.stored.append(rest[0])
      elif word == "gguf":
        self.gguf = tuple(rest)
      elif word == "link":
        self.link, = rest
      elif word == "blocks":
        self.blocks, = rest
      elif word == "flux":
        self.flux.append(tuple(rest))
      elif word == "tensors":
        break
      else:
        raise ValueError(f"{RECIPE}: unknown line: {line}")
    path = []
    for line in lines:
      part, *shape = line.split()
      del path[len(line) - len(line.lstrip(" ")):]
      if shape:
        self.tensors[".".join([*path, part])] = [int(n) for n in shape]
      else:
        path.append(part)
    return self

  def text(self):
    lines = [f"file {name} {digest}" for name, digest in self.files]
    if self.link:
      lines.append(f"link {self.link}")
    else:
      lines += [f"dtype {self.dtype}", " ".join(["draw", *map(str, self.draw)])]
    lines += [f"same {name} {other}" for name, other in self.same.items()]
    lines += [f"stored {name}" for name in self.stored]
    if self.gguf:
      lines.append(" ".join(["gguf", *self.gguf]))
    if self.blocks is not None:
      lines.append(f"blocks {self.blocks}")
    lines += [f"flux {name} {digest}" for name, digest in self.flux]
    if self.tensors:
      lines.append("tensors")
    path = []
    for name, shape in self.tensors.items():
      *modules, last = name.split(".")
      common = len(os.path.commonprefix([path, modules]))
      lines += [" " * depth + modules[depth] for depth in range(common, len(modules))]
      lines.append(" " * len(modules) + " ".join([last, *map(str, shape)]))
      path = modules
    return "\n".join(lines) + "\n"

  def make_tensors(self, folder):
    """All tensors as bits. `folder`: where stored tensors are."""
    kind, seed, *options = self.draw
    options = dict(zip(options[0::2], options[1::2]))
    made = {name: to_bits(values, self.dtype) for name, values in DRAW[kind](seed, self.tensors, **options)}
    if self.blocks is not None:
      made.update({name: to_bits(values, self.dtype) for name, values in integer_blocks(self.blocks, self.tensors)})
    made.update({name: made[other] for name, other in self.same.items()})
    made.update({name: np.load(folder / f"{name}.npy") for name in self.stored})
    return made

  def file_bytes(self, tensors):
    """Of each file."""
    names = sorted(tensors)
    for shard in range(len(self.files)):
      part = {name: (self.dtype, tensors[name]) for name in names[shard::len(self.files)]}
      yield safetensors_bytes(part, {"format": "pt"} if self.draw[0] == "numpy" else None)


def safetensors_bytes(tensors, metadata=None):
  """As the safetensors package writes them: wide types first, then by name. `tensors`: name -> (dtype, bits)."""
  header, data, offset = {"__metadata__": metadata} if metadata else {}, [], 0
  for name, (dtype, bits) in sorted(tensors.items(), key=lambda item: (-item[1][1].itemsize, item[0])):
    header[name] = {"dtype": SAFETENSORS[dtype], "shape": list(bits.shape), "data_offsets": [offset, offset + bits.nbytes]}
    data.append(bits.tobytes())
    offset += bits.nbytes
  head = json.dumps(header, separators=(",", ":")).encode()
  head += b" " * (-len(head) % 8)
  return struct.pack("<Q", len(head)) + head + b"".join(data)


def digest_of(data):
  return hashlib.sha256(data).hexdigest()


def open_recipe(folder):
  return Recipe().parse((folder / RECIPE).read_text())


def write_checked(path, data, digest):
  if digest_of(data) != digest:
    raise SystemExit(f"{path}: the recipe gives other bytes than those that the expected outputs belong to; numpy {np.__version__}")
  path.write_bytes(data)


def write_files(source, folder):
  """The files of the recipe in `source`, to `folder`."""
  recipe = open_recipe(source)
  of, tensors_of = (recipe, source) if not recipe.link else (open_recipe(source / recipe.link), source / recipe.link)
  if recipe.link:
    for name, _ in of.files:
      (folder / name).symlink_to(os.path.join(recipe.link, name))
    if not recipe.gguf:
      return
  tensors = of.make_tensors(tensors_of)
  for (name, digest), data in zip(recipe.files, of.file_bytes(tensors)):
    write_checked(folder / name, data, digest)
  if recipe.gguf:
    gguf_type, digest = recipe.gguf
    path = folder / "model.gguf"
    config = plain_config(json.loads((source / "config.json").read_text()))
    write_gguf(path, {name: to_float32(bits, of.dtype) for name, bits in sorted(tensors.items())}, config, gguf_type, source.name)
    write_checked(path, path.read_bytes(), digest)
  for name, digest in recipe.flux:
    path = folder / name
    write_flux(path, {n: (of.dtype, bits) for n, bits in tensors.items()})
    write_checked(path, path.read_bytes(), digest)


def describe(folder, files, dtype, draw, tensors, *, same=None, stored=None, gguf_type=None, blocks=None, flux=()):
  """Called by a maker that has saved `files`, and those of `flux`, in `folder`: replaces them by their recipe, which must
  give the same bytes. `tensors`: name -> shape in the order of drawing; `stored`: name -> bits."""
  recipe = Recipe()
  recipe.files = [(name, digest_of((folder / name).read_bytes())) for name in files]
  recipe.dtype, recipe.draw, recipe.same, recipe.stored = dtype, draw, same or {}, list(stored or {})
  recipe.blocks, recipe.flux = blocks, [(name, digest_of((folder / name).read_bytes())) for name in flux]
  recipe.tensors = {name: list(shape) for name, shape in tensors.items()}
  if gguf_type:
    recipe.gguf = (gguf_type, digest_of((folder / "model.gguf").read_bytes()))
  for name in recipe.stored:
    np.save(folder / f"{name}.npy", stored[name])
  (folder / RECIPE).write_text(recipe.text())
  made = [*files, *(["model.gguf"] if gguf_type else []), *flux]
  write_files(folder, folder)  # checks them
  for name in made:
    (folder / name).unlink()


def describe_link(folder, link, files, gguf_type=None):
  """The same where `files` are those of the recipe in folder/link."""
  recipe = Recipe()
  recipe.link = link
  for name in files:
    (folder / name).unlink()
  if gguf_type:
    recipe.gguf = (gguf_type, digest_of((folder / "model.gguf").read_bytes()))
    (folder / "model.gguf").unlink()
  (folder / RECIPE).write_text(recipe.text())
  write_files(folder, folder)
  for name in [*files, *(["model.gguf"] if gguf_type else [])]:
    (folder / name).unlink()


# The GGUF twins of language models.


def plain_config(config):
  """rope_theta and rope_scaling as transformers 4 spells them."""
  if "rope_parameters" in config:
    scaling = dict(config["rope_parameters"])
    config = dict(config, rope_theta=scaling.pop("rope_theta"), rope_scaling=scaling if scaling["rope_type"] != "default" else None)
  return config


def interleaved(weight, num_heads):
  """Rows of each head from (first half, second half) to llama.cpp's pairs: rows i and i + D/2 become neighbours."""
  d = weight.shape[0] // num_heads
  return weight.reshape(num_heads, 2, d // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


PROJECTIONS = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
               "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
               "mlp.down_proj": "ffn_down"}
HEAD_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
GGUF_NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", **PROJECTIONS, **HEAD_NORMS, **moe_gguf.EXPERTS, **moe_gguf.LATENT}
POST_NORMS = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
HUNYUAN = {"self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm", "mlp.gate.wg": "ffn_gate_inp",
           "mlp.shared_mlp.gate_proj": "ffn_gate_shexp", "mlp.shared_mlp.up_proj": "ffn_up_shexp",
           "mlp.shared_mlp.down_proj": "ffn_down_shexp"}
GPT2 = {"ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm",
        "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
# Where they differ.
FAMILY_NAMES = {
    "qwen3next": recurrent_gguf.DELTA,
    "qwen35": recurrent_gguf.DELTA,
    "granitehybrid": recurrent_gguf.GRANITE,
    "gpt-oss": moe_gguf.GPT_OSS,
    "gemma2": dict(POST_NORMS, pre_feedforward_layernorm="ffn_norm"),
    "gemma3": dict(POST_NORMS, pre_feedforward_layernorm="ffn_norm"),
    "olmo2": POST_NORMS,
    "phi3": {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"},
    "glm4": {"post_self_attn_layernorm": "post_attention_norm", "mlp.gate_up_proj": "ffn_up",
             "post_mlp_layernorm": "post_ffw_norm"},
    "gpt2": GPT2,
    "gptneox": {"attention.query_key_value": "attn_qkv", "attention.dense": "attn_output",
                "post_attention_layernorm": "ffn_norm", "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"},
    "falcon": {"self_attention.query_key_value": "attn_qkv", "self_attention.dense": "attn_output",
               "ln_mlp": "attn_norm", "ln_attn": "attn_norm_2", "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"},
    "bloom": {"self_attention.query_key_value": "attn_qkv", "self_attention.dense": "attn_output",
              "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"},
    "mpt": {"norm_1": "attn_norm", "attn.Wqkv": "attn_qkv", "attn.out_proj": "attn_output", "norm_2": "ffn_norm",
            "ffn.up_proj": "ffn_up", "ffn.down_proj": "ffn_down"},
    "qwen35moe": recurrent_gguf.DELTA,
    "chatglm": {"mlp.gate_up_proj": "ffn_up"},
    "glm4moe": {"post_attention_layernorm": "post_attention_norm"},
    "seed_oss": {"post_attention_layernorm": "post_attention_norm"},
    "exaone4": POST_NORMS,
    "ernie4_5-moe": {"mlp.moe_statics.e_score_correction": "exp_probs_b"},
    "hunyuan-dense": HUNYUAN,
    "hunyuan-moe": HUNYUAN,
    "minimax-m2": {"block_sparse_moe.e_score_correction": "exp_probs_b"},
    "phi2": {"self_attn.dense": "attn_output", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"},
    "falcon-h1": recurrent_gguf.FALCON_H1,
    "lfm2": recurrent_gguf.LFM2,
    "lfm2moe": recurrent_gguf.LFM2,
    "starcoder": GPT2,
    "starcoder2": {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
}
ARCHITECTURES = {"mistral": "llama", "gpt_neox": "gptneox", "gemma3_text": "gemma3", "olmo3": "olmo2", "cohere": "command-r",
                 "mixtral": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe", "deepseek_v2": "deepseek2",
                 "deepseek_v3": "deepseek2", "gpt_oss": "gpt-oss", "qwen3_next": "qwen3next", "qwen3_5_text": "qwen35",
                 "granitemoeshared": "granitemoe", "granitemoehybrid": "granitehybrid", "glm": "chatglm", "glm4_moe": "glm4moe",
                 "glm4_moe_lite": "deepseek2", "qwen3_5_moe_text": "qwen35moe", "ernie4_5_moe": "ernie4_5-moe",
                 "hunyuan_v1_dense": "hunyuan-dense", "hunyuan_v1_moe": "hunyuan-moe", "minimax_m2": "minimax-m2", "phi": "phi2",
                 "gpt_bigcode": "starcoder", "ministral": "llama", "ministral3": "mistral3", "lfm2_moe": "lfm2moe", "falcon_h1": "falcon-h1"}
# Of these the converter reorders the rows of q and k to pairs of neighbours.
PERMUTED = ("llama", "granite", "granitemoe", "granitehybrid", "smollm3", "arcee", "olmo", "mistral3")
# In these files norms have the factor itself, which folders store minus 1.
PLUS_ONE = ("gemma", "gemma2", "gemma3", "qwen3next", "qwen35", "qwen35moe", "nemotron")


def gguf_name(name, arch="llama"):
  if plain := recurrent_gguf.plain_name(name):
    return plain
  for prefix in ("model.", "transformer.", "gpt_neox."):
    name = name.removeprefix(prefix)
  stem, kind = name.rsplit(".", 1)
  if stem.startswith(("layers.", "h.", "blocks.")):
    _, layer, rest = stem.split(".", 2)
    return f"blk.{layer}.{ {**GGUF_NAMES, **FAMILY_NAMES.get(arch, {})}[rest]}.{kind}"
  return {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output", "wte": "token_embd",
          "wpe": "position_embd", "ln_f": "output_norm", "embed_in": "token_embd", "final_layer_norm": "output_norm",
          "embed_out": "output", "word_embeddings": "token_embd", "word_embeddings_layernorm": "token_embd_norm",
          "norm_f": "output_norm", "final_layernorm": "output_norm", "embedding_norm": "token_embd_norm"}[stem] + "." + kind


def add_family_keys(w, arch, config):
  """What the families that came after Llama add."""
  moe_gguf.add_keys(w, arch, config)
  recurrent_gguf.add_keys(w, arch, config)
  if arch == "gemma2":
    w.add_attn_logit_softcapping(config["attn_logit_softcapping"])
    w.add_final_logit_softcapping(config["final_logit_softcapping"])
  if arch in ("gemma2", "gemma3", "olmo2", "phi3", "gpt-oss", "cohere2", "exaone4", "llama") and config.get("sliding_window"):
    w.add_sliding_window(config["sliding_window"])
  if arch in ("granite", "granitemoe", "granitehybrid"):
    w.add_embedding_scale(config["embedding_multiplier"])
    w.add_residual_scale(config["residual_multiplier"])
    w.add_attention_scale(config["attention_multiplier"])
    w.add_logit_scale(config["logits_scaling"])
  if arch == "gptneox":
    w.add_parallel_residual(config["use_parallel_residual"])
  if arch == "mistral3":
    w.add_rope_scaling_yarn_log_mul(config["rope_scaling"]["mscale_all_dim"])
    w.add_float32(f"{arch}.attention.temperature_scale", config["rope_scaling"]["llama_4_scaling_beta"])
  if arch in ("command-r", "cohere2"):
    w.add_logit_scale(config["logit_scale"])
  if arch == "mpt":
    w.add_max_alibi_bias(config["attn_config"]["alibi_bias_max"])


def write_gguf(path, tensors, config, gguf_type, name):
  """What llama.cpp's converter writes for this model, vocabulary left out. `tensors`: name -> float32 values."""
  if config["model_type"] in encoder_gguf.ENCODERS:
    return encoder_gguf.write(path, tensors, config, gguf_type, name)
  if config["model_type"] in recurrent_gguf.MODELS:
    return recurrent_gguf.write(path, tensors, config, gguf_type, name)
  arch = ARCHITECTURES.get(config["model_type"], config["model_type"])
  for common, own in (("hidden_size", "n_embd"), ("num_hidden_layers", "n_layer"), ("num_attention_heads", "n_head"),
                      ("max_position_embeddings", "n_positions"), ("layer_norm_eps", "layer_norm_epsilon"),
                      ("intermediate_size", "n_inner")):
    if own in config:
      config = {**config, common: config[own] or 4 * config["n_embd"]}
  if arch == "starcoder":
    kv_heads_of_starcoder = 1 if config.get("multi_query", True) else config["num_attention_heads"]
    config = dict(config, num_key_value_heads=kv_heads_of_starcoder)
  if arch == "falcon":
    config = dict(config, intermediate_size=config.get("ffn_hidden_size") or 4 * config["hidden_size"],
                  num_key_value_heads=config["num_kv_heads"] if config["new_decoder_architecture"] else 1)
  if arch == "bloom":
    config = dict(config, intermediate_size=4 * config["hidden_size"], max_position_embeddings=config["seq_length"])
  if arch == "mpt":
    config = dict(config, hidden_size=config["d_model"], num_hidden_layers=config["n_layers"], num_attention_heads=config["n_heads"],
                  intermediate_size=4 * config["d_model"], max_position_embeddings=config["max_seq_len"])
  heads = config["num_attention_heads"]
  kv_heads = config.get("num_key_value_heads", heads)
  head_dim = config.get("head_dim") or config["hidden_size"] // heads
  if arch == "deepseek2":
    tensors = moe_gguf.split_latent(tensors, config)
    kv_heads, head_dim = 1, config["kv_lora_rank"] + config["qk_rope_head_dim"]
  if arch == "gpt-oss":
    tensors = moe_gguf.split_gpt_oss(tensors)
  if arch in ("granitemoe", "granitehybrid"):
    tensors = moe_gguf.split_granite(tensors)
  if arch == "falcon-h1":
    tensors = dict(recurrent_gguf.granite_tensors(tensors, dict(config, num_local_experts=1)))
  if arch == "granitehybrid":
    tensors = dict(recurrent_gguf.granite_tensors(tensors, config))
    kv_heads_of_layers = recurrent_gguf.granite_kv_heads(config)
    if not config["num_local_experts"]:  # published models have one width for both
      config = dict(config, intermediate_size=config["shared_intermediate_size"])
  if arch in ("qwen3next", "qwen35", "qwen35moe"):
    tensors = recurrent_gguf.delta_tensors(tensors, arch, config)
  tensors = moe_gguf.plain_tensors(tensors, arch)
  if arch in ("lfm2", "lfm2moe"):
    tensors = {n: x[:, 0] if n.endswith("conv.conv.weight") else x for n, x in tensors.items()}
  if arch == "lfm2":
    config = dict(config, intermediate_size=recurrent_gguf.lfm2_width(config))
  w = gguf.GGUFWriter(path, arch)
  w.add_name(name)
  w.add_vocab_size(config["vocab_size"])
  w.add_context_length(config["max_position_embeddings"])
  w.add_embedding_length(config["hidden_size"])
  w.add_block_count(config["num_hidden_layers"])
  w.add_feed_forward_length(config.get("intermediate_size") or config["moe_intermediate_size"])
  w.add_head_count(heads)
  if arch in ("lfm2", "lfm2moe"):
    kv_heads_of_layers = recurrent_gguf.lfm2_kv_heads(config)
  w.add_head_count_kv(kv_heads_of_layers if arch in ("granitehybrid", "lfm2", "lfm2moe") else kv_heads)
  if arch in ("lfm2", "lfm2moe"):
    config = dict(config, rms_norm_eps=config["norm_eps"])
  if "rms_norm_eps" in config:
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
  else:
    w.add_layer_norm_eps(next((config[k] for k in ("layer_norm_eps", "norm_epsilon", "norm_eps") if k in config), 1e-5))
  if "rotary_emb_base" in config:
    config = dict(config, rope_theta=config["rotary_emb_base"])
  if "rope_theta" in config:
    w.add_rope_freq_base(config["rope_theta"])
  w.add_key_length(head_dim)
  w.add_value_length(config["kv_lora_rank"] if arch == "deepseek2" else head_dim)
  rotary_dim = int(head_dim * config.get("partial_rotary_factor", config.get("rotary_pct", 1.0)))
  if arch == "deepseek2":
    rotary_dim = config["qk_rope_head_dim"]
  if arch == "minimax-m2":
    rotary_dim = config["rotary_dim"]
  if arch == "llama" or rotary_dim != head_dim:
    w.add_rope_dimension_count(rotary_dim)
  add_family_keys(w, arch, config)
  w.add_tokenizer_model("none")
  scaling = config.get("rope_scaling") or {}
  kind = scaling.get("rope_type", scaling.get("type"))
  if kind in ("linear", "yarn"):
    w.add_rope_scaling_type(gguf.RopeScalingType(kind))
    w.add_rope_scaling_factor(scaling["factor"])
  if kind == "yarn":
    w.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
  if kind == "llama3":  # as factors that divide the frequencies
    exponents = np.arange(0, head_dim, 2, dtype=np.float64) / head_dim
    wavelength = 2 * np.pi * config["rope_theta"] ** exponents
    original, low, high = (scaling[k] for k in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"))
    smooth = np.clip((original / wavelength - low) / (high - low), 0, 1)
    w.add_tensor("rope_freqs.weight", (1 / ((1 - smooth) / scaling["factor"] + smooth)).astype(np.float32))
  if kind == "longrope":
    original = config["original_max_position_embeddings"]
    factor = config["max_position_embeddings"] / original
    w.add_rope_scaling_orig_ctx_len(original)
    w.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(factor) / np.log(original))))
    for length in ("long", "short"):
      w.add_tensor(f"rope_factors_{length}.weight", np.array(scaling[f"{length}_factor"], dtype=np.float32))
  for n, x in moe_gguf.stack_experts(tensors).items():
    if n.endswith("shared_expert_gate.weight"):
      x = x[0]
    if arch in PERMUTED and ("q_proj" in n or "k_proj" in n):
      x = interleaved(x, heads if "q_proj" in n else kv_heads)
    if arch == "gpt2" and x.ndim == 2 and ".h." in n:
      x = x.T
    if arch in ("gptneox", "bloom") and "query_key_value" in n:  # all queries, then all keys, then all values
      x = x.reshape(heads, 3, head_dim, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)
    if arch == "falcon" and "query_key_value" in n:  # the same; a group has queries, one key, one value
      groups = x.reshape(kv_heads, heads // kv_heads + 2, head_dim, *x.shape[1:])
      x = np.concatenate([part.reshape(-1, *x.shape[1:]) for part in (groups[:, :-2], groups[:, -2], groups[:, -1])])
    if arch in PLUS_ONE and n.endswith("norm.weight") and "linear_attn" not in n:
      x = x + np.float32(1)
    x = np.ascontiguousarray(x)
    if x.ndim == 1 or gguf_type == "F32" or gguf_name(n, arch).endswith("_norm.weight") or gguf_name(n, arch) == "position_embd.weight" or n.endswith((*moe_gguf.ROUTERS, *recurrent_gguf.FLOAT32)):
      w.add_tensor(gguf_name(n, arch), x)
    elif gguf_type == "F16":
      w.add_tensor(gguf_name(n, arch), x.astype(np.float16))
    else:
      bits = (x.view(np.uint32) >> 16).astype(np.uint16)  # exact: the values are bf16 already
      assert np.array_equal((bits.astype(np.uint32) << 16).view(np.float32), x), n
      w.add_tensor(gguf_name(n, arch), bits.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
  w.write_header_to_file()
  w.write_kv_data_to_file()
  w.write_tensors_to_file()
  w.close()


# The original names of FLUX.


def flux_names(state):
  """Tensors under the names of the original checkpoint (black-forest-labs/flux, src/flux/model.py), which concatenates some.
  `state`: those of FluxTransformer2DModel."""
  out = {}

  def move(to, source, new=None):
    for kind in ("weight", "bias"):
      if f"{source}.{kind}" in state:
        out[f"{to}.{new or kind}"] = state[f"{source}.{kind}"]

  def join(to, *sources):
    for kind in ("weight", "bias"):
      out[f"{to}.{kind}"] = np.concatenate([state[f"{s}.{kind}"] for s in sources])

  move("img_in", "x_embedder")
  move("txt_in", "context_embedder")
  for new, old in (("time", "timestep"), ("vector", "text"), ("guidance", "guidance")):
    move(f"{new}_in.in_layer", f"time_text_embed.{old}_embedder.linear_1")
    move(f"{new}_in.out_layer", f"time_text_embed.{old}_embedder.linear_2")
  move("final_layer.linear", "proj_out")
  for kind in ("weight", "bias"):
    scale, shift = np.split(state[f"norm_out.linear.{kind}"], 2)
    out[f"final_layer.adaLN_modulation.1.{kind}"] = np.concatenate([shift, scale])
  for i in range(sum(name.endswith(".norm1_context.linear.bias") for name in state)):
    to, of = f"double_blocks.{i}", f"transformer_blocks.{i}"
    move(f"{to}.img_mod.lin", f"{of}.norm1.linear")
    move(f"{to}.txt_mod.lin", f"{of}.norm1_context.linear")
    join(f"{to}.img_attn.qkv", f"{of}.attn.to_q", f"{of}.attn.to_k", f"{of}.attn.to_v")
    join(f"{to}.txt_attn.qkv", f"{of}.attn.add_q_proj", f"{of}.attn.add_k_proj", f"{of}.attn.add_v_proj")
    for stream, added, out_name, ff in (("img", "", "to_out.0", "ff"), ("txt", "added_", "to_add_out", "ff_context")):
      move(f"{to}.{stream}_attn.norm.query_norm", f"{of}.attn.norm_{added}q", "scale")
      move(f"{to}.{stream}_attn.norm.key_norm", f"{of}.attn.norm_{added}k", "scale")
      move(f"{to}.{stream}_attn.proj", f"{of}.attn.{out_name}")
      move(f"{to}.{stream}_mlp.0", f"{of}.{ff}.net.0.proj")
      move(f"{to}.{stream}_mlp.2", f"{of}.{ff}.net.2")
  for i in range(sum(name.endswith(".proj_mlp.bias") for name in state)):
    to, of = f"single_blocks.{i}", f"single_transformer_blocks.{i}"
    move(f"{to}.modulation.lin", f"{of}.norm.linear")
    join(f"{to}.linear1", f"{of}.attn.to_q", f"{of}.attn.to_k", f"{of}.attn.to_v", f"{of}.proj_mlp")
    move(f"{to}.linear2", f"{of}.proj_out")
    move(f"{to}.norm.query_norm", f"{of}.attn.norm_q", "scale")
    move(f"{to}.norm.key_norm", f"{of}.attn.norm_k", "scale")
  return out


def write_flux(path, tensors):
  """The safetensors file has the tensors below "model.diffusion_model." and an unrelated one; the GGUF has 8-bit blocks where
  rows are whole blocks, bfloat16 matrices and float32 vectors."""
  dtype = next(iter(tensors.values()))[0]
  original = flux_names({name: bits for name, (_dtype, bits) in tensors.items()})
  if path.suffix == ".safetensors":
    bundle = {f"model.diffusion_model.{name}": (dtype, bits) for name, bits in original.items()}
    bundle["text_encoders.clip_l.logit_scale"] = ("f32", to_bits(np.ones(1), "f32"))
    path.write_bytes(safetensors_bytes(bundle))
    return
  types = gguf.GGMLQuantizationType
  writer = gguf.GGUFWriter(str(path), "flux")
  for name, bits in original.items():
    values = to_float32(bits, dtype)
    kind = types.F32 if values.ndim == 1 else types.BF16 if values.shape[1] % 32 else types.Q8_0
    writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()


def main():
  if len(sys.argv) != 2:
    sys.exit(f"usage: {sys.argv[0]} OUT")
  out = pathlib.Path(sys.argv[1])
  shutil.rmtree(out, ignore_errors=True)
  recipes = []
  for folder, folders, names in os.walk(HERE):
    source = pathlib.Path(folder)
    to = out / source.relative_to(HERE)
    to.mkdir(parents=True)
    folders[:] = [f for f in folders if f != "__pycache__"]
    for name in [*names, *folders]:
      path = source / name
      if name == RECIPE:
        recipes.append(source)
      elif name.endswith(".py"):
        continue
      elif path.is_symlink() and not path.resolve().is_relative_to(HERE):
        (to / name).symlink_to(path.resolve())  # a tokenizer of assets/
      elif path.is_symlink() or path.is_file():
        shutil.copy(path, to / name, follow_symlinks=False)
  for source in recipes:
    write_files(source, out / source.relative_to(HERE))
  return 0


if __name__ == "__main__":
  sys.exit(main())
