"""Tiny random text encoders, CLIP and T5, and their outputs in transformers.

    python tests/golden/image/make_text_encoders.py

Needs torch, transformers, safetensors, numpy. Fixed seeds.
"""
import torch
import transformers

from golden_case import randomize, save

CLIP = dict(vocab_size=99, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
            max_position_embeddings=16, bos_token_id=97, eos_token_id=98, pad_token_id=98, projection_dim=20)
CLIP_CASES = {
    "clip_l": (transformers.CLIPTextModel, dict(CLIP, hidden_act="quick_gelu")),
    # A config from before the end token was corrected; a projection; more layers.
    "clip_g": (transformers.CLIPTextModelWithProjection,
               dict(CLIP, hidden_act="gelu", num_hidden_layers=3, eos_token_id=2, pad_token_id=1, num_attention_heads=1)),
}
T5 = dict(vocab_size=60, d_model=20, d_kv=8, d_ff=28, num_layers=3, num_heads=3, relative_attention_num_buckets=32,
          relative_attention_max_distance=128)
T5_CASES = {
    "t5_gated": dict(T5, feed_forward_proj="gated-gelu"),
    # Heads that do not add up to the model's width, few buckets.
    "t5_relu": dict(T5, feed_forward_proj="relu", num_heads=2, relative_attention_num_buckets=8, relative_attention_max_distance=20),
}
# Tokens of the items before padding, padded length.
CLIP_RUNS = {"one": ([5], 16), "two": ([3, 16], 16), "short": ([2, 4, 7], 7)}
T5_RUNS = {"one": ([7], 7), "two": ([3, 40], 40), "long": ([150], 160), "tiny": ([1, 2], 2)}


def clip_run(model, config, seed, lengths, padded):
  g = torch.Generator().manual_seed(seed)
  legacy = config["eos_token_id"] == 2
  pad = 98 if seed % 2 else 1
  ids = torch.full((len(lengths), padded), pad)
  for row, n in enumerate(lengths):
    # Ids below the end token; the legacy rule looks for the largest.
    ids[row, :n] = torch.cat([torch.tensor([97]), torch.randint(3, 97, (n - 2,), generator=g), torch.tensor([98])])
  with torch.no_grad():
    out = model(input_ids=ids, output_hidden_states=True)
  pooled = out.text_embeds if hasattr(out, "text_embeds") else out.pooler_output
  end = ids.argmax(-1) if legacy else (ids == config["eos_token_id"]).int().argmax(-1)
  return dict(tokens=ids.reshape(-1), sizes=torch.tensor([len(lengths), padded]), end=end, pooled=pooled,
              hidden=out.last_hidden_state.reshape(-1, config["hidden_size"]),
              penultimate=out.hidden_states[-2].reshape(-1, config["hidden_size"]))


def t5_run(model, config, seed, lengths, padded):
  g = torch.Generator().manual_seed(seed)
  ids = torch.zeros(len(lengths), padded, dtype=torch.long)
  mask = torch.zeros(len(lengths), padded, dtype=torch.long)
  for row, n in enumerate(lengths):
    ids[row, :n] = torch.cat([torch.randint(2, config["vocab_size"], (n - 1,), generator=g), torch.tensor([1])])
    mask[row, :n] = 1
  with torch.no_grad():
    masked = model(input_ids=ids, attention_mask=mask).last_hidden_state
    whole = model(input_ids=ids, attention_mask=torch.ones_like(mask)).last_hidden_state
  return dict(tokens=ids.reshape(-1), sizes=torch.tensor([len(lengths), padded]), key_lengths=torch.tensor(lengths),
              hidden=masked.reshape(-1, config["d_model"]), unmasked=whole.reshape(-1, config["d_model"]))


for number, (name, (kind, config)) in enumerate(CLIP_CASES.items()):
  model = kind(transformers.CLIPTextConfig(**config)).double().eval()
  randomize(model, number)
  save(name, model, dict(config, architectures=[kind.__name__], model_type="clip_text_model", layer_norm_eps=1e-5),
       {run: clip_run(model, config, 10 * number + i, *sizes) for i, (run, sizes) in enumerate(CLIP_RUNS.items())})

for number, (name, config) in enumerate(T5_CASES.items()):
  model = transformers.T5EncoderModel(transformers.T5Config(**config, attn_implementation="eager")).double().eval()
  randomize(model, 50 + number)
  save(name, model, dict(config, architectures=["T5EncoderModel"], model_type="t5", layer_norm_epsilon=1e-6),
       {run: t5_run(model, config, 50 + 10 * number + i, *sizes) for i, (run, sizes) in enumerate(T5_RUNS.items())})
