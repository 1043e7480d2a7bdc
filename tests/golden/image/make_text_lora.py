"""LoRA files for the tiny text encoders clip_l and t5_gated, and the outputs of transformers with PEFT.

    python tests/golden/image/make_text_lora.py

Needs torch, transformers, peft, safetensors, numpy. Fixed seeds. text_lora/ holds peft.safetensors (diffusers' names: CLIP is
text_encoder, T5 text_encoder_2, as in FLUX) and kohya.safetensors (lora_te1 and lora_te3, alpha not the rank); io.npz: the outputs of
run "one" of both encoders with each at weight one, and with none.
"""
import json
import pathlib

import numpy as np
import torch
import transformers
from peft import LoraConfig, inject_adapter_in_model
from safetensors.torch import save_file

from golden_case import load_weights

HERE = pathlib.Path(__file__).resolve().parent
ENCODERS = {
    "clip": ("clip_l", transformers.CLIPTextModel, transformers.CLIPTextConfig, "text_encoder", "lora_te1", "text_model.",
             {"peft": ["q_proj", "v_proj", "fc2"], "kohya": ["k_proj", "out_proj", "fc1", "q_proj"]}),
    "t5": ("t5_gated", transformers.T5EncoderModel, transformers.T5Config, "text_encoder_2", "lora_te3", "",
           {"peft": ["q", "wi_0", "wo"], "kohya": ["k", "o", "wi_1"]}),
}
RANKS = {"peft": (4, 4), "kohya": (3, 2)}

files = {name: {} for name in RANKS}
arrays = {}
g = torch.Generator().manual_seed(17)
for encoder, (case, kind, config_kind, component, kohya, scope, targets) in ENCODERS.items():
  io = {k[4:]: torch.from_numpy(v) for k, v in np.load(HERE / case / "io.npz").items() if k.startswith("one.")}
  ids = io["tokens"].long().reshape(tuple(int(v) for v in io["sizes"]))
  for name in [None, *RANKS]:
    config = json.loads((HERE / case / "config.json").read_text())
    model = kind(config_kind(**config)).double().eval()
    model.load_state_dict(load_weights(case), strict=False)
    if name is not None:
      rank, alpha = RANKS[name]
      inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=alpha, target_modules=targets[name]), model, "default")
      model.double()
      with torch.no_grad():
        for key, value in model.named_parameters():
          if ".lora_" not in key:
            continue
          value.copy_((0.2 * torch.randn(value.shape, generator=g, dtype=torch.float64)).to(torch.bfloat16).double())
          module, side = key.replace(".default.weight", "").rsplit(".lora_", 1)
          module = scope + module.removeprefix(scope)  # some versions of transformers leave it out
          if name == "peft":
            files[name][f"{component}.{module}.lora_{side}.weight"] = value.to(torch.bfloat16)
          else:
            spelled = f"{kohya}_{module.replace('.', '_')}"
            files[name][f"{spelled}.lora_{'down' if side == 'A' else 'up'}.weight"] = value.to(torch.bfloat16)
            files[name][f"{spelled}.alpha"] = torch.tensor(float(alpha))
    with torch.no_grad():
      hidden = model(input_ids=ids).last_hidden_state
    arrays[f"{name or 'none'}.{encoder}"] = hidden.reshape(-1, hidden.shape[-1]).float().numpy()

folder = HERE / "text_lora"
folder.mkdir(exist_ok=True)
for name, tensors in files.items():
  save_file({k: v.detach().clone().contiguous() for k, v in tensors.items()}, folder / f"{name}.safetensors")
np.savez_compressed(folder / "io.npz", **arrays)
for encoder in ENCODERS:
  base = arrays[f"none.{encoder}"]
  print(encoder, {n: float(np.abs(arrays[f"{n}.{encoder}"] - base).max()) for n in RANKS}, float(np.abs(base).max()))
  golden = np.load(HERE / ENCODERS[encoder][0] / "io.npz")["one.hidden"]
  assert np.abs(golden.reshape(base.shape) - base).max() < 1e-4, "the encoder is not the one of the case"
