"""Random checkpoints compared with PyTorch transformers through the command line: shapes without a golden file.

    pytest tests/e2e/test_models.py            # 24 models
    REDLINE_E2E_MODELS=500 pytest tests/e2e/test_models.py

Needs torch, transformers, safetensors, gguf, numpy (else skipped) and the binary: REDLINE_BINARY, or build/*/redline.
"""
import importlib.util
import os
import pathlib
import subprocess

import pytest
import redline_binary

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("safetensors")
pytest.importorskip("gguf")

ROOT = pathlib.Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("make_golden", ROOT / "tests/golden/make_golden.py")
golden = importlib.util.module_from_spec(spec)
spec.loader.exec_module(golden)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)


@pytest.fixture(scope="session", name="binary")
def binary_fixture():
    return redline_binary.binary()


def random_case(rng):
  """One configuration that transformers accepts, with its stored type and spelling."""
  pick = lambda *options: options[rng.integers(len(options))]
  base = dict(pick(golden.LLAMA, golden.LLAMA, golden.MISTRAL, golden.QWEN2, golden.QWEN3))
  kind = base["model_type"]
  kv_heads = int(rng.integers(1, 5))
  heads = kv_heads * int(rng.integers(1, 5))
  head_dim = 2 * int(rng.integers(1, 81))
  hidden = heads * int(rng.integers(1, 24))  # transformers requires a multiple of the heads
  if kind == "qwen2":
    head_dim = 2 * int(rng.integers(1, 33))
    hidden = heads * head_dim
  else:
    base["head_dim"] = head_dim
  layers = int(rng.integers(1, 4))
  base.update(num_attention_heads=heads, num_key_value_heads=kv_heads, hidden_size=hidden, num_hidden_layers=layers,
              intermediate_size=int(rng.integers(1, 130)), vocab_size=int(rng.integers(5, 200)),
              tie_word_embeddings=bool(rng.integers(2)), rms_norm_eps=pick(1e-5, 1e-6, 1e-3),
              rope_theta=pick(10000.0, 500000.0, 1e6, 123.0), max_position_embeddings=64)
  if kind in ("llama", "qwen3"):
    base["attention_bias"] = bool(rng.integers(2))
  if kind == "llama":
    base["mlp_bias"] = bool(rng.integers(2))
  if kind == "mistral":
    base["sliding_window"] = pick(None, 1, 3, 16, 40)
  if kind.startswith("qwen"):
    base.update(use_sliding_window=bool(rng.integers(2)), sliding_window=int(rng.integers(1, 40)),
                max_window_layers=int(rng.integers(0, layers + 1)))
    if rng.integers(4) == 0:
      del base["max_window_layers"]
  original, factor = int(rng.integers(8, 64)), float(pick(1.5, 2.0, 8.0))
  base["rope_scaling"] = pick(None, None, dict(rope_type="linear", factor=factor), dict(rope_type="dynamic", factor=factor),
      dict(golden.LLAMA3, factor=factor, original_max_position_embeddings=original),
      dict(rope_type="yarn", factor=factor, original_max_position_embeddings=original, beta_fast=pick(32.0, 4.0),
           truncate=bool(rng.integers(2))))
  if base["rope_scaling"] and base["rope_scaling"]["rope_type"] == "dynamic" and head_dim == 2:
    base["rope_scaling"] = None  # its exponent is dim / (dim - 2)
  return base, pick("f32", "f16", "bf16"), int(pick(4, 5)), int(pick(1, 1, 3))


def can_be_gguf(config):
  """llama.cpp's names cannot express windows in these families, dynamic scaling, or biases in Qwen3's attention; frequency
  factors exist for "llama" only. Its yarn ramp has no option for `truncate`."""
  kind, scaling = config["model_type"], (config["rope_scaling"] or {}).get("rope_type")
  window = config.get("use_sliding_window") or kind == "mistral" and config["sliding_window"]
  return not (window or scaling in ("dynamic", "yarn") or scaling == "llama3" and kind.startswith("qwen") or
              kind == "qwen3" and config["attention_bias"])


def run_logits(binary, model, tokens, out, *more):
  command = [binary, "logits", str(model), "--tokens", ",".join(map(str, tokens)), "--out", str(out), "--dtype", "f32", *more]
  done = subprocess.run(command, capture_output=True, text=True, timeout=120)
  assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
  return np.load(out)


@pytest.mark.parametrize("seed", range(int(os.environ.get("REDLINE_E2E_MODELS", "24"))))
def test_random_model(binary, tmp_path, seed):
  rng = np.random.default_rng([20240607, seed])
  config, dtype, style, shards = random_case(rng)
  text = golden.json.dumps(golden.config_json(config, style, dtype), indent=1)
  (tmp_path / "config.json").write_text(text)
  model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(tmp_path))
  golden.random_weights(model, rng)
  golden.save_weights(tmp_path, model, dtype, shards)
  tokens = rng.integers(0, config["vocab_size"], int(rng.integers(1, 60))).tolist()

  loaded = golden.open_model(tmp_path)
  with torch.no_grad():
    float32 = loaded(torch.tensor([tokens]), use_cache=False).logits[0].double().numpy()
  has_gguf_form = can_be_gguf(config)
  if has_gguf_form:
    golden.write_gguf(tmp_path / "model.gguf", loaded, config, "F32", "random")
  want = golden.logits_of(loaded, tokens)
  # A random model may amplify rounding; the float32 run of transformers shows by how much.
  bound = max(2e-5, 10 * golden.relative(float32, want))
  forms = [tmp_path] + ([tmp_path / "model.gguf"] if has_gguf_form else [])
  for form in forms:
    got = run_logits(binary, form, tokens, tmp_path / "out.npy")
    assert got.shape == want.shape and got.dtype == np.float32
    assert golden.relative(got, want) <= bound, f"{form}: {golden.relative(got, want):.2e} > {bound:.2e}\n{text}"
