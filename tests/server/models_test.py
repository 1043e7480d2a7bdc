"""Several served models, more than --memory holds: loaded when they are named, unloaded by age."""
import json
import math
import shutil
import threading

import pytest

from conftest import ROOT, TALES
from http_test import STORY, eventually

SHAPES = ROOT / "assets/redline-shapes"
IMAGE = {"model": "redline-shapes", "prompt": "a red circle", "steps": 1, "seed": 1}
CACHE = ("--cache-memory", "4")


def statuses(server):
    return {m["id"]: m["status"] for m in server.get("/v1/models").json()["data"] if "parent" not in m}


def bytes_of(server):
    lines = [line for line in server.get("/metrics").text.splitlines() if line.startswith("redline:model_bytes{")]
    return {line.split('"')[1]: float(line.rsplit(" ", 1)[1]) for line in lines}


@pytest.fixture(scope="module")
def room_for_one(start):
    """MiB that hold either model, and not both."""
    with start(*CACHE, models=(str(TALES), str(SHAPES))) as server:
        sizes = bytes_of(server)
    assert set(sizes) == {"redline-tales", "redline-shapes"} and all(size > 0 for size in sizes.values())
    mib = math.ceil(max(sizes.values()) / 2**20)
    assert mib * 2**20 < sum(sizes.values())
    return str(mib)


def test_text_and_images_take_turns(start, room_for_one):
    adapter = f"--lora=shout={TALES}/adapters/shout"
    with start("--memory", room_for_one, *CACHE, adapter, models=(str(TALES), str(SHAPES))) as server:
        assert statuses(server) == {"redline-tales": "loaded", "redline-shapes": "unloaded"}
        story = server.post("/v1/completions", STORY).json()["choices"]
        shouted = server.post("/v1/completions", STORY | {"model": "shout"}).json()["choices"]
        assert server.post("/v1/images/generations", IMAGE).status_code == 200
        assert statuses(server) == {"redline-tales": "unloaded", "redline-shapes": "loaded"}
        assert server.get("/health").status_code == 200
        names = [m["id"] for m in server.get("/v1/models").json()["data"]]
        assert names == ["redline-tales", "redline-tales:shout", "redline-shapes"]
        # The adapter comes back with its model.
        assert server.post("/v1/completions", STORY | {"model": "redline-tales:shout"}).json()["choices"] == shouted
        assert server.post("/v1/completions", STORY).json()["choices"] == story
        assert statuses(server)["redline-shapes"] == "unloaded"
        # Images that wait in the queue keep their model; many at once load it once.
        loads = server.metric("redline:model_loads_total")
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(server.post("/v1/images/generations", IMAGE).status_code))
                   for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == [200] * 4 and server.metric("redline:model_loads_total") == loads + 1


def test_a_model_in_use_stays(start, room_for_one):
    with start("--memory", room_for_one, "--load-timeout", "0.5", *CACHE, models=(str(TALES), str(SHAPES))) as server:
        body = STORY | {"max_tokens": 900, "ignore_eos": True, "stream": True, "n": 8}
        with server.client.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            refused = server.post("/v1/images/generations", IMAGE)
            if server.metric("vllm:num_requests_running") > 0:  # else the texts had their end before it gave up
                assert refused.status_code == 503 and refused.headers["retry-after"]
            assert list(lines)[-2] == "data: [DONE]"
        assert server.post("/v1/images/generations", IMAGE).status_code in (200, 503)  # 503: a slow machine
        assert server.is_alive()


def test_idle_models_are_unloaded(start):
    with start("--keep-alive", "0.2", models=(str(TALES),)) as server:
        eventually(lambda: server.get("/api/ps").json()["models"] == [])
        assert statuses(server) == {"redline-tales": "unloaded"}
        used = server.metric("redline:cache_pages")
        assert used == 0
        assert server.post("/v1/completions", STORY).status_code == 200
        assert server.post("/api/generate", {"model": "redline-tales", "keep_alive": "1h"}).json()["done_reason"] == "load"
        running = server.get("/api/ps").json()["models"]
        assert running[0]["name"] == "redline-tales" and running[0]["size"] > 0 and not running[0]["expires_at"].startswith("9999")
        assert server.post("/api/generate", {"model": "redline-tales", "keep_alive": 0}).json()["done_reason"] == "unload"
        eventually(lambda: server.get("/api/ps").json()["models"] == [])


def test_keep_alive_is_listed_where_models_stay(server):
    answer = server.post("/api/generate", {"model": "redline-tales", "keep_alive": "5m"})
    assert answer.json()["done_reason"] == "load" and answer.headers["x-redline-ignored"] == "keep_alive"


def copy_of(folder, tmp_path):
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy)
    return copy


def test_a_file_that_is_truncated_between_two_loads(start, tmp_path):
    copy = copy_of(TALES, tmp_path)
    weights = copy / "model.safetensors"
    whole = weights.read_bytes()
    with start("--keep-alive", "0.2", models=(str(copy),)) as server:
        expected = server.post("/v1/completions", STORY).json()["choices"]
        eventually(lambda: server.get("/api/ps").json()["models"] == [])
        for size in (len(whole) // 2, 100, 0):
            weights.write_bytes(whole[:size])
            answer = server.post("/v1/completions", STORY)
            assert answer.status_code == 500
            assert answer.json()["error"]["code"] == "model_load_failed" and "model.safetensors" in answer.json()["error"]["message"]
        weights.unlink()
        assert server.post("/v1/completions", STORY).status_code == 500
        assert server.get("/health").status_code == 200
        weights.write_bytes(whole)
        assert server.post("/v1/completions", STORY).json()["choices"] == expected


def test_an_adapter_that_breaks(start, tmp_path):
    """While it is loaded, and between two loads of its model."""
    copy = copy_of(TALES / "adapters/shout", tmp_path)
    weights = copy / "adapter_model.safetensors"
    whole = weights.read_bytes()
    load = {"lora_name": "shout", "lora_path": str(copy)}
    with start("--keep-alive", "0.5", "--max-lora-rank", "64", models=(str(TALES),)) as server:
        for broken in (b"", whole[:50], whole[:-100], b"\xff" * 8 + whole[8:], whole[:8] + b"[" + whole[9:]):
            weights.write_bytes(broken)
            answer = server.post("/v1/load_lora_adapter", load)
            assert answer.status_code in (400, 500) and answer.json()["error"]["message"], answer.text
            assert server.is_alive()
        weights.write_bytes(whole)
        assert server.post("/v1/load_lora_adapter", load).status_code == 200
        shouted = server.post("/v1/completions", STORY | {"model": "shout"}).json()["choices"]
        for path, is_other in ((TALES / "adapters/lower", True), (copy, False)):
            answer = server.post("/v1/load_lora_adapter", load | {"lora_path": str(path), "load_inplace": True})
            assert answer.status_code == 200
            text = server.post("/v1/completions", STORY | {"model": "shout"}).json()["choices"]
            assert (text != shouted) == is_other
        # What is loaded does not depend on the file any more.
        config = json.loads((copy / "adapter_config.json").read_text())
        replaced = tmp_path / "replaced"
        replaced.write_bytes(b"nothing")
        replaced.rename(weights)
        assert server.post("/v1/load_lora_adapter", load | {"load_inplace": True}).status_code in (400, 500)
        assert server.post("/v1/completions", STORY | {"model": "shout"}).json()["choices"] == shouted
        eventually(lambda: server.get("/api/ps").json()["models"] == [])
        plain = server.post("/v1/completions", STORY)
        assert plain.status_code == 200  # the model goes on without the adapter
        assert server.post("/v1/completions", STORY | {"model": "shout"}).status_code == 404
        assert "the adapter shout is dropped" in server.log.read_text() and config


def test_memory_that_holds_no_model(start):
    with pytest.raises(AssertionError, match="--memory 1: the weights of redline-tales take 14 MiB"):
        with start("--memory", "1"):
            pass
