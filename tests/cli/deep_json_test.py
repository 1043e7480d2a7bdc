"""JSON that nests 1,000 and 100,000 levels deep, in every file of a model: refused at once, with the file and the place."""
import json
import pathlib
import shutil
import subprocess

import pytest
from redline_binary import ROOT, binary

DEEP = "JSON nested more than 64"
MODEL = {"config.json": ["layer_types", "rope_scaling", "quantization_config", "eos_token_id"], "generation_config.json": ["eos_token_id"],
         "tokenizer_config.json": ["added_tokens_decoder"], "special_tokens_map.json": ["pad_token"], "tokenizer.json": ["model"],
         "chat_template.json": ["chat_template"], "model.safetensors.index.json": ["metadata"]}
PIPELINE = {"model_index.json": ["vae"], "redline.json": ["defaults"], "scheduler/scheduler_config.json": ["x"],
            "transformer/config.json": ["x"], "step_cache.json": ["masks"]}


def golden(name):
    folder = pathlib.Path(binary()).parent / "golden" / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there: the golden models are made by the build of the tests")
    return folder


def nested(levels, is_list):
    return "[" * levels + "]" * levels if is_list else '{"a":' * levels + "1" + "}" * levels


def deepen(path, key, levels, is_list=True):
    """Puts a value of so many levels under `key`."""
    members = json.loads(path.read_text()) if path.exists() else {}
    members[key] = "@@"
    path.write_text(json.dumps(members).replace('"@@"', nested(levels, is_list)))


def said(*arguments, **options):
    run = subprocess.run([binary(), *map(str, arguments)], capture_output=True, text=True, timeout=60, **options)
    assert run.returncode >= 0, f"ended by signal {-run.returncode}"
    return run.stdout + run.stderr


def places(files):
    return [(file, key, levels) for file, keys in files.items() for key in keys for levels in ((1000, 100_000) if file == "config.json" else (1000,))]


@pytest.mark.parametrize("file, key, levels", places(MODEL))
def test_files_of_a_language_model(tmp_path, file, key, levels):
    folder = tmp_path / "model"
    shutil.copytree(golden("rope_plain"), folder)
    if file.startswith(("tokenizer_", "special", "generation", "chat")):  # read with a tokenizer
        shutil.copy(ROOT / "assets/redline-tales/tokenizer.json", folder)
    if file.startswith("model."):
        (folder / "model.safetensors").unlink()
    deepen(folder / file, key, levels, is_list=key != "rope_scaling")
    message = said("run", folder, "x", "--max-tokens", "1")
    assert DEEP in message and pathlib.PurePath(file).name in message and "at byte" in message, message[:500]


@pytest.mark.parametrize("file, key, levels", places(PIPELINE))
def test_files_of_an_image_pipeline(tmp_path, file, key, levels):
    folder = tmp_path / "pipeline"
    shutil.copytree(golden("image/pipeline_pixart"), folder)
    deepen(folder / file, key, levels)
    message = said("image", folder, "x", "--steps", "1", "--width", "64", "--height", "64", "--output", tmp_path / "x.png")
    assert DEEP in message and pathlib.PurePath(file).name in message and "at byte" in message, message[:500]


def test_other_files(tmp_path):
    """--masks, adapter_config.json, lists of prompts, saved conversations, lines of a batch, headers of safetensors."""
    deep = tmp_path / "deep.json"
    levels = 100_000
    deep.write_text(nested(levels, True))
    masks = said("image", golden("image/pipeline_pixart"), "x", "--masks", deep, "--output", tmp_path / "x.png")
    assert DEEP in masks and str(deep) in masks
    adapter = tmp_path / "adapter"
    adapter.mkdir(exist_ok=True)
    (adapter / "adapter_config.json").write_text('{"peft_type": "LORA", "x": ' + nested(levels, False) + "}")
    message = said("run", ROOT / "assets/redline-tales", "x", "--lora", adapter)
    assert DEEP in message and "adapter_config.json" in message
    assert "not a JSON list of prompts" in said("compare", golden("image/pipeline_pixart"), "--prompts", deep)
    assert "expected a JSON list of messages" in said("chat", ROOT / "assets/redline-tales", "--load", deep, input="")
    (tmp_path / "lines").write_text(nested(levels, True) + "\n")
    assert "line 1 is not JSON" in said("template", ROOT / "assets/redline-tales", "--batch", tmp_path / "lines")
    header = ('{"__metadata__": ' + nested(levels, False) + "}").encode()
    (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert "invalid_argument" in said("inspect", tmp_path / "x.safetensors")
