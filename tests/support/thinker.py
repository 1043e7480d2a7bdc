"""A model that thinks first: a copy of the bundled model whose full stop is the end of its reasoning."""
import json

from redline_binary import ROOT

TALES = ROOT / "assets/redline-tales"
# As Qwen3.5's: the prompt opens the reasoning, and leaves it out where enable_thinking is false.
TEMPLATE = """{% if tools %}<tool_call>{"name": NAME, "arguments": ARGUMENTS}</tool_call> {{ tools | tojson }}
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% if enable_thinking is defined and not enable_thinking %}
</think>

{% endif %}{% endif %}"""


def make_thinker(folder):
    """Makes the folder of the model."""
    folder.mkdir()
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        (folder / name).symlink_to(TALES / name)
    tokenizer = json.loads((TALES / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    end = vocabulary["</think>"] = vocabulary.pop(".")
    tokenizer["model"]["merges"] = [merge for merge in tokenizer["model"]["merges"] if "." not in merge]
    tokenizer["added_tokens"].append(tokenizer["added_tokens"][0] | {"id": end, "content": "</think>"})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    config = json.loads((TALES / "tokenizer_config.json").read_text(encoding="utf-8"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": TEMPLATE}), encoding="utf-8")
    return folder
