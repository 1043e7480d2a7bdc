#!/usr/bin/env python3
"""Writes redline.ipynb: its cells are below. `# ---` begins a cell of code, `# ===` one of text."""
import json
import pathlib

CELLS = '''
# ===
# Redline in a notebook

Text and images on the CPU, with the two models of the repository. Run it from the root of the repository.
# ---
import numpy as np
import redline

redline.devices()
# ===
## Text

A model is a GGUF file, a Hugging Face folder, `hf:owner/name`, or the name of a bundled model.
# ---
model = redline.Model("redline-tales")
story = model.generate("Once upon a time", max_tokens=60, temperature=0.7, seed=1)
story
# ---
for chunk in model.generate("The little dog", max_tokens=40, temperature=0.7, seed=2, stream=True):
    print(chunk.text, end="")
# ===
A list of prompts runs as one batch.
# ---
for completion in model.generate(["One day", "In the garden", "The old man"], max_tokens=20, seed=3):
    print(completion.text.strip().split("\\n")[0], "|", completion.usage.total_tokens, "tokens")
# ===
The output can be made to match a JSON Schema, a regular expression, a grammar, or one of a list.
# ---
print(model.generate("The cat as JSON: ", json_schema={
    "type": "object",
    "properties": {"color": {"enum": ["black", "white"]}, "age": {"type": "integer", "minimum": 0, "maximum": 20}},
    "required": ["color", "age"],
}, seed=4).text)
# ===
## Logits

`logits()` gives a NumPy array that the engine has written.
# ---
logits = model.logits("Once upon a")
best = np.argsort(logits)[::-1][:5]
for token in best:
    print(f"{logits[token]:7.3f}  {model.tokenizer.decode([int(token)])!r}")
# ===
## Images
# ---
painter = redline.ImagePipeline("redline-shapes")
result = painter("a large red house on a meadow", seed=6)
result
# ---
result.images[0].size, result.to_numpy().shape, result.seed
# ===
A step cache computes some of the steps and forecasts the others.
# ---
cached = painter("a large red house on a meadow", seed=6, cache="auto", quality=0.5)
print(f"{cached.cache}: {100 * cached.executed_share:.0f} % of the operations")
cached
# ===
## Speed
# ---
redline.bench(model, prefill=128, decode=32)
'''


def cells():
    for part in CELLS.strip().split("# ---\n"):
        code, *texts = part.split("# ===\n")
        if code.strip():
            lines = code.strip("\n").splitlines(keepends=True)
            yield {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": lines}
        for text in texts:
            yield {"cell_type": "markdown", "metadata": {}, "source": text.strip("\n").splitlines(keepends=True)}


def main():
    notebook = {
        "cells": [{"id": f"cell-{i}", **cell} for i, cell in enumerate(cells())],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                     "language_info": {"name": "python", "version": "3.10"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path = pathlib.Path(__file__).with_name("redline.ipynb")
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
