"""`redline pull` and the names of Hub models, against a server that speaks the Hub's API and fails as the real one does."""
import json
import os
import pathlib
import random
import resource
import signal
import subprocess
import threading
import time

import pytest
from fake_hub import COMMIT, Repository, git_sha1
from redline_binary import ROOT, binary

TALES = ROOT / "assets/redline-tales"
BLOB = random.Random(1).randbytes(700_001)
REPO = "models--owner--name"


def folder_files():
    return {"config.json": "{}", "tokenizer.json": '{"a": 1}', "model.safetensors": BLOB, "README.md": "long",
            "pytorch_model.bin": b"pickle", "onnx/model.onnx": b"no", "model.fp16.safetensors": b"variant", ".gitattributes": "x"}


def gguf_files(*names):
    return {name: b"GGUF" + name.encode() * 100 for name in names}


@pytest.fixture
def redline(environment):
    def run(*arguments, status=0, **changes):
        limit = changes.pop("file_limit", None)
        env = {k: v for k, v in (environment | changes).items() if v is not None}

        def set_limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        done = subprocess.run([binary(), *arguments], env=env, capture_output=True, text=True, timeout=120,
                              preexec_fn=set_limit if limit else None)
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr
    return run


@pytest.fixture
def cache(environment):
    return pathlib.Path(environment["HF_HOME"]) / "hub"


def pulled(redline, *arguments):
    return json.loads(redline("pull", *arguments, "--json"))


def partial_files(cache):
    return list(cache.rglob("*.incomplete"))


def test_a_folder_in_the_layout_of_huggingface_hub(hub, redline, cache):
    hub.repositories["owner/name"] = Repository(folder_files(), lfs=["model.safetensors"])
    result = pulled(redline, "hf:owner/name")
    assert sorted(f["path"] for f in result["files"]) == ["config.json", "model.safetensors", "tokenizer.json"]
    snapshot = cache / REPO / "snapshots" / COMMIT
    assert result["path"] == str(snapshot) and result["commit"] == COMMIT and result["kind"] == "huggingface"
    assert (snapshot / "model.safetensors").read_bytes() == BLOB
    etag = hub.repositories["owner/name"].etag("model.safetensors")
    assert os.readlink(snapshot / "model.safetensors") == f"../../blobs/{etag}"
    assert os.readlink(snapshot / "config.json") == f"../../blobs/{git_sha1(b'{}')}"
    assert (cache / REPO / "refs/main").read_text() == COMMIT
    assert (cache / ".locks" / REPO / f"{etag}.lock").exists()
    assert not partial_files(cache)
    assert result["fetched_bytes"] == result["missing_bytes"] == len(BLOB) + 2 + 8
    before = len(hub.requests)
    again = pulled(redline, "hf:owner/name")
    assert again["missing_bytes"] == again["fetched_bytes"] == 0 and len(hub.requests) == before + 1


def test_the_cache_is_that_of_huggingface_hub(hub, redline, cache, environment, monkeypatch):
    hub_library = pytest.importorskip("huggingface_hub")
    hub.repositories["owner/name"] = Repository(folder_files(), lfs=["model.safetensors"])
    pulled(redline, "hf:owner/name")
    there = {"cache_dir": str(cache), "local_files_only": True}
    assert pathlib.Path(hub_library.hf_hub_download("owner/name", "model.safetensors", **there)).read_bytes() == BLOB
    assert hub_library.snapshot_download("owner/name", **there) == str(cache / REPO / "snapshots" / COMMIT)
    found = {r.repo_id: r for r in hub_library.scan_cache_dir(cache).repos}
    assert found["owner/name"].nb_files == 3 and not hub_library.scan_cache_dir(cache).warnings
    # And the other way round: what it has fetched is used without a request.
    hub.repositories["owner/other"] = Repository(folder_files(), lfs=["model.safetensors"])
    hub_library.snapshot_download("owner/other", endpoint=hub.endpoint, cache_dir=str(cache),
                                  allow_patterns=["*.json", "model.safetensors"])
    before = len(hub.requests)
    shown = redline("list", "--json", HF_HUB_OFFLINE="1")
    assert "hf:owner/other" in [m["model"] for m in json.loads(shown)["models"]]
    assert pulled(redline, "hf:owner/other")["missing_bytes"] == 0
    assert len(hub.requests) == before + 1


@pytest.mark.parametrize("selection, expected", [
    ("", ["m-Q4_K_M.gguf"]), (":q8_0", ["m-Q8_0.gguf"]), (":Q4_K_S", ["m-Q4_K_S.gguf"]), (":latest", ["m-Q4_K_M.gguf"]),
    (":m-Q8_0.gguf", ["m-Q8_0.gguf"]), (":mmproj-F16.gguf", ["mmproj-F16.gguf"]),
    (":BF16", ["BF16/m-BF16-00001-of-00002.gguf", "BF16/m-BF16-00002-of-00002.gguf"]), (":README.md", ["README.md"])])
def test_one_gguf_file_of_many(hub, redline, cache, selection, expected):
    names = ["m-Q4_K_S.gguf", "m-Q8_0.gguf", "m-Q4_K_M.gguf", "mmproj-F16.gguf", "BF16/m-BF16-00001-of-00002.gguf",
             "BF16/m-BF16-00002-of-00002.gguf", "README.md", "config.json"]
    hub.repositories["owner/name"] = Repository(gguf_files(*names), lfs=names[:6])
    result = pulled(redline, "hf:owner/name" + selection)
    assert [f["path"] for f in result["files"]] == expected
    assert result["path"] == str(cache / REPO / "snapshots" / COMMIT / expected[0])


def test_wrong_selections_list_what_there_is(hub, redline):
    hub.repositories["owner/name"] = Repository(gguf_files("m-Q4_K_M.gguf", "m-Q8_0.gguf", "m-Q6_K-00001-of-00002.gguf"))
    assert 'has no file or quantization "IQ2_XXS"; it has Q4_K_M, Q6_K, Q8_0' in redline("pull", "hf:owner/name:IQ2_XXS", status=3)
    assert "did you mean" in redline("pull", "hf:owner/name:Q4_KM", status=3)
    assert "part 2 of 2 is missing: m-Q6_K-00002-of-00002.gguf" in redline("pull", "hf:owner/name:Q6_K", status=3)
    hub.repositories["owner/bare"] = Repository({"pytorch_model.bin": b"x"})
    assert "only files of PyTorch without a config.json" in redline("pull", "hf:owner/bare", status=4)
    assert "invalid_argument" in redline("pull", "hf:owner/name/more", status=2)
    assert "invalid_argument" in redline("pull", "hf:owner/name:../x", status=2)


def test_files_of_pytorch_are_pulled_where_there_is_no_other(hub, redline):
    hub.repositories["owner/old"] = Repository({"config.json": "{}", "pytorch_model.bin": b"x", "pytorch_model.h5": b"y"})
    result = json.loads(redline("pull", "hf:owner/old", "--json"))
    assert sorted(f["path"] for f in result["files"]) == ["config.json", "pytorch_model.bin"]
    hub.repositories["owner/both"] = Repository({"config.json": "{}", "pytorch_model.bin": b"x", "model.safetensors": BLOB})
    result = json.loads(redline("pull", "hf:owner/both", "--json"))
    assert sorted(f["path"] for f in result["files"]) == ["config.json", "model.safetensors"]


def test_parts_of_safetensors_and_modules(hub, redline):
    parts = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    wanted = ["config.json", "model.safetensors.index.json", *parts, "1_Pooling/config.json", "modules.json",
              "additional_chat_templates/rag.jinja"]
    others = ["consolidated.safetensors", "original/params.json", "openvino/openvino_model.bin", "trainer_state.json"]
    hub.repositories["owner/name"] = Repository({name: "{}" for name in wanted + others}, lfs=parts)
    assert sorted(f["path"] for f in pulled(redline, "hf:owner/name")["files"]) == sorted(wanted)


def test_a_pipeline(hub, redline):
    wanted = ["model_index.json", "scheduler/scheduler_config.json", "tokenizer/vocab.json", "tokenizer/merges.txt",
              "transformer/config.json", "transformer/diffusion_pytorch_model.safetensors", "text_encoder/config.json",
              "text_encoder/model.safetensors", "vae/config.json", "vae/diffusion_pytorch_model.safetensors"]
    others = ["big-single-file.safetensors", "transformer/diffusion_pytorch_model.fp16.safetensors", "vae/diffusion_pytorch_model.bin",
              "safety_checker/model.safetensors", "safety_checker/config.json", "text_encoder/pytorch_model.bin"]
    hub.repositories["owner/name"] = Repository({name: "{}" for name in wanted + others})
    result = pulled(redline, "hf:owner/name")
    assert sorted(f["path"] for f in result["files"]) == sorted(wanted) and result["kind"] == "diffusers"


def test_revisions_and_addresses(hub, redline, cache):
    other = "f" * 40
    hub.repositories["owner/name"] = Repository(gguf_files("m-Q8_0.gguf"), commit=other, revisions=["v1.0", "refs/pr/2"])
    for name in ("hf:owner/name@v1.0", f"hf:owner/name@{other}", "hf:owner/name@refs/pr/2:Q8_0",
                 "https://huggingface.co/owner/name/blob/v1.0/m-Q8_0.gguf"):
        assert pulled(redline, name)["commit"] == other
    assert (cache / REPO / "refs/refs/pr/2").read_text() == other
    assert "has no such revision" in redline("pull", "hf:owner/name", status=3)


def test_a_server_without_sizes_is_asked_for_each_file(hub, redline):
    hub.has_blobs = False
    hub.repositories["owner/name"] = Repository(folder_files(), lfs=["model.safetensors"])
    assert pulled(redline, "hf:owner/name")["bytes"] == len(BLOB) + 2 + 8
    assert hub.count("/resolve/", "HEAD") == 3


def test_broken_transfers_go_on_where_they_ended(hub, redline, cache):
    hub.repositories["owner/name"] = Repository(folder_files(), lfs=["model.safetensors"])
    hub.faults["model.safetensors"] = [("drop", 100_000), ("drop", 0), ("drop", 50_000), ("status", 503), ("silence", 3)]
    result = pulled(redline, "hf:owner/name")
    assert result["fetched_bytes"] == result["missing_bytes"]
    ranges = [h.get("Range") for port, _, path, h in hub.requests if port == "storage"]
    assert ranges[0] is None and ranges[1:3] == ["bytes=100000-"] * 2 and ranges[-1] == "bytes=150000-"
    assert (cache / REPO / "snapshots" / COMMIT / "model.safetensors").read_bytes() == BLOB


def test_an_interrupted_pull_goes_on_in_the_next(hub, redline, cache, environment):
    hub.repositories["owner/name"] = Repository(folder_files(), lfs=["model.safetensors"])
    hub.faults["model.safetensors"] = [("hold", 200_000)]
    process = subprocess.Popen([binary(), "pull", "hf:owner/name"], env=environment, stderr=subprocess.PIPE, text=True)
    blob = cache / REPO / "blobs" / (hub.repositories["owner/name"].etag("model.safetensors") + ".incomplete")
    while not blob.exists() or blob.stat().st_size <= 1 << 17:  # this file alone: the others may be renamed meanwhile
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert "the next pull resumes from here" in process.communicate(timeout=60)[1] and process.returncode == 130
    there = blob.stat().st_size  # the interruption may have left some of the small file too
    assert there > 1 << 17
    assert not (cache / REPO / "refs").exists() and not list(cache.rglob("snapshots/*"))  # nothing looks whole
    result = pulled(redline, "hf:owner/name")
    assert result["fetched_bytes"] == result["missing_bytes"] <= len(BLOB) + 10 - there
    assert hub.requests[-1][3].get("Range") == f"bytes={there}-" or any(
        h.get("Range") == f"bytes={there}-" for _, _, _, h in hub.requests)


def test_servers_without_ranges_and_damaged_remains(hub, redline, cache):
    repository = hub.repositories["owner/name"] = Repository(folder_files(), lfs=["model.safetensors"])
    blobs = cache / REPO / "blobs"
    blobs.mkdir(parents=True)
    partial = blobs / (repository.etag("model.safetensors") + ".incomplete")
    partial.write_bytes(BLOB[:1000])
    hub.faults["model.safetensors"] = [("norange",)]
    assert pulled(redline, "hf:owner/name")["bytes"] == len(BLOB) + 10
    redline("rm", "hf:owner/name")
    blobs.mkdir(parents=True)
    partial.write_bytes(b"x" * 1000)  # not what the file begins with
    assert pulled(redline, "hf:owner/name")["bytes"] == len(BLOB) + 10
    redline("rm", "hf:owner/name")
    blobs.mkdir(parents=True)
    partial.write_bytes(b"x" * (len(BLOB) + 1))
    pulled(redline, "hf:owner/name")
    assert (cache / REPO / "snapshots" / COMMIT / "model.safetensors").read_bytes() == BLOB
    # A blob that a crash has cut short is not taken for whole.
    with open(blobs / repository.etag("model.safetensors"), "r+b") as file:
        file.truncate(10)
    assert pulled(redline, "hf:owner/name")["fetched_bytes"] == len(BLOB)


@pytest.mark.parametrize("fault, message", [
    (("bytes", BLOB[:-1] + b"x"), "its checksum is"), (("bytes", BLOB + b"more"), "the server has"),
    (("bytes", BLOB[:-5]), "the server has")])
def test_wrong_contents_are_not_kept(hub, redline, cache, fault, message):
    hub.repositories["owner/name"] = Repository(folder_files(), lfs=["model.safetensors"])
    hub.faults["model.safetensors"] = [fault] * 8
    error = redline("pull", "hf:owner/name", status=6)
    assert message in error and "model.safetensors" in error
    assert not list(cache.rglob("snapshots/*")) and not (cache / REPO / "refs").exists()
    hub.faults.clear()
    assert pulled(redline, "hf:owner/name")["path"]


def test_wrong_claims_of_the_hub(hub, redline):
    repository = hub.repositories["owner/name"] = Repository(folder_files())
    repository.sizes["config.json"] = 5
    assert "the server has 2 bytes of it" in redline("pull", "hf:owner/name", status=6)
    repository.sizes.clear()
    repository.etags["config.json"] = "0" * 40
    assert "its checksum is " + git_sha1(b"{}") in redline("pull", "hf:owner/name", status=6)
    repository.sizes["model.safetensors"] = 10**17
    assert "GB are needed" in redline("pull", "hf:owner/name", status=6)
    hub.repositories["owner/evil"] = Repository({"config.json": "{}", "../../../evil.safetensors": b"x"})
    assert "not that of a Hub" in redline("pull", "hf:owner/evil", status=6)


def test_a_full_disk(hub, redline, cache):
    hub.repositories["owner/name"] = Repository(folder_files(), lfs=["model.safetensors"])
    error = redline("pull", "hf:owner/name", status=6, file_limit=300_000)
    assert "writing failed" in error and "stays for the next pull" in error
    assert pulled(redline, "hf:owner/name")["fetched_bytes"] <= len(BLOB) + 10 - 300_000


def test_tokens_and_access(hub, redline, environment, tmp_path):
    hub.repositories["owner/gated"] = Repository(folder_files(), lfs=["model.safetensors"], token="secret", gated=True)
    hub.repositories["owner/private"] = Repository(folder_files(), token="secret")
    assert "set HF_TOKEN" in redline("pull", "hf:owner/private", status=3)
    gated = redline("pull", "hf:owner/gated", status=6)
    assert f"ask for it at {hub.endpoint}/owner/gated" in gated and "set HF_TOKEN" in gated
    assert "the token of HF_TOKEN may not read it" in redline("pull", "hf:owner/gated", status=6, HF_TOKEN="another")
    assert "refuses the token" in redline("pull", "hf:owner/gated", status=6, HF_TOKEN="bad")
    assert redline("pull", "hf:owner/gated", HF_TOKEN="secret")  # the storage refuses a request with the token
    (tmp_path / "token").write_text("secret\n")
    assert redline("pull", "hf:owner/private", HF_TOKEN_PATH=str(tmp_path / "token"))
    assert "no such repository" in redline("pull", "hf:owner/nothing", status=3, HF_TOKEN="secret")
    assert "control characters" in redline("pull", "hf:owner/nothing", status=2, HF_TOKEN="a b")


def described(*names, **more):
    """The Hub's description of a repository, as bytes."""
    return json.dumps({"sha": COMMIT, "siblings": [{"rfilename": name, "size": 1, "blobId": "0" * 40} for name in names]} | more).encode()


@pytest.mark.parametrize("fault, message", [
    (("body", b"[" * 1000 + b"]" * 1000), "its JSON: at byte 64 (line 1): JSON nested more than 64 levels deep"),
    (("body", described("config.json", card={"a": [[[[] for _ in range(9)]] * 9]} | {"deep": eval("[" * 80 + "]" * 80)})),
     "JSON nested more than 64 levels deep"),
    (("body", b"{}", {"Content-Length": str(100 << 20)}), "its answer has more than 33554432 bytes"),
    (("endless",), "its answer has more than 33554432 bytes"),
    (("headers", 400_000), "headers"),
    (("redirect",), "redirects"),
    (("body", described("config.json")[:-10]), "bytes that are not JSON"),
    (("body", b"{}\0" + described("config.json")), "a zero byte in JSON"),
    (("body", described("config.json", "x" * 5000 + ".safetensors")), '..." of 5012 characters'),
    (("body", described("config.json", "x" * 300 + ".safetensors")), "file systems take up to 240 bytes"),
    (("body", described(*map(str, range(200_001)))), "200001 files; at most 200000 are listed"),
    (("body", described(*(f"{i}/config.json" for i in range(100)), "model_index.json")), "has 100 folders")])
def test_answers_of_a_hostile_hub_end_with_a_message(hub, redline, fault, message):
    """Deep JSON, 100 MB, a body without end, a wrong Content-Length, endless redirects, long names."""
    hub.repositories["owner/name"] = Repository(folder_files())
    hub.faults["api"] = [fault] * 20
    error = redline("pull", "hf:owner/name", status=3 if "folders" in message else 6)
    assert message in error and len(error) < 1000
    assert hub.count("/api/") <= 11  # ten redirects


def test_a_hub_that_sends_one_byte_a_second(hub, redline):
    hub.repositories["owner/name"] = Repository(folder_files(), lfs=["model.safetensors"])
    hub.faults["api"] = [("trickle", 0.3)] * 9
    error = redline("pull", "hf:owner/name", status=6, HF_HUB_DOWNLOAD_TIMEOUT="1")
    assert "the answer comes too slowly" in error and hub.count("/api/") == 1
    hub.faults.clear()
    hub.faults["config.json"] = [("trickle", 0.3)] * 9
    hub.repositories["owner/name"].sizes["config.json"] = 1_000_000
    error = redline("pull", "hf:owner/name", status=6, HF_HUB_DOWNLOAD_TIMEOUT="1")
    assert "the answer comes too slowly" in error and hub.count("config.json") == 2


def test_names_of_5000_characters(redline):
    long = "x" * 5000
    for name in (f"hf:owner/{long}", f"hf:{long}", f"hf:owner/name@{long}", f"hf:owner/name:{long}",
                 f"https://huggingface.co/owner/{long}", f"https://huggingface.co/owner/name/blob/main/{long}"):
        error = redline("pull", name, status=2)
        assert "characters, which no name of a model on Hugging Face has" in error and len(error) < 400


def test_busy_servers(hub, redline):
    hub.repositories["owner/name"] = Repository(folder_files())
    hub.faults["api"] = [("status", 429, {"Retry-After": "1"}), ("status", 502)]
    begin = time.monotonic()
    assert pulled(redline, "hf:owner/name") and time.monotonic() - begin >= 1
    hub.faults["api"] = [("status", 429, {"Retry-After": "86400"})]
    assert "limits the number of requests; try again in 86400 s" in redline("pull", "hf:owner/name", status=6)
    hub.faults["api"] = [("status", 500)] * 9
    assert "answers 500" in redline("pull", "hf:owner/name", status=6)
    hub.faults["api"] = [("status", 200)]
    assert "not that of a Hub" in redline("pull", "hf:owner/name", status=6)


def test_two_pulls_at_once(hub, redline, cache):
    hub.repositories["owner/name"] = Repository(folder_files(), lfs=["model.safetensors"])
    hub.faults["model.safetensors"] = [("slow", 0.05)]
    results = []
    threads = [threading.Thread(target=lambda: results.append(redline("pull", "hf:owner/name"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(results)) == 1 and len(results) == 2
    assert hub.count("+model.safetensors") == 1  # one of them fetched it
    assert (cache / REPO / "snapshots" / COMMIT / "model.safetensors").read_bytes() == BLOB and not partial_files(cache)


def test_no_network(hub, redline, environment):
    hub.repositories["owner/name"] = Repository(folder_files())
    assert "HF_HUB_OFFLINE is set" in redline("pull", "hf:owner/name", status=6, HF_HUB_OFFLINE="1")
    assert "HF_HUB_OFFLINE is set" in redline("run", "hf:owner/name", "x", status=3, HF_HUB_OFFLINE="1")
    gone = redline("pull", "hf:owner/name", status=6, HF_ENDPOINT="http://127.0.0.1:9")
    assert "http://127.0.0.1:9: " in gone and "onnect" in gone
    assert "expected an address" in redline("pull", "hf:owner/name", status=2, HF_ENDPOINT="ftp://x")
    assert "no folder for models" in redline("pull", "hf:owner/name", status=3, HF_HOME=None, HOME=None, XDG_CACHE_HOME=None)


def test_every_command_takes_a_name(hub, redline, cache, environment):
    """The bundled model as a repository: pulled by the first command, used by the others without a request."""
    files = {p.name: p.read_bytes() for p in TALES.iterdir() if p.is_file()}
    hub.repositories["owner/name"] = Repository(files, lfs=["model.safetensors"])
    greedy = ["--temperature", "0", "--max-tokens", "4", "--quiet"]
    text = redline("run", "hf:owner/name", "Once upon", *greedy)
    assert text == redline("run", str(TALES), "Once upon", *greedy)
    before = len(hub.requests)
    assert redline("tokenize", "hf:owner/name", "Once upon") == redline("tokenize", str(TALES), "Once upon")
    assert json.loads(redline("inspect", "hf:owner/name", "--json"))["runs"]
    shown = json.loads(redline("show", "hf:owner/name", "--json"))
    assert shown["commit"] == COMMIT and shown["parameters"] > 0
    redline("logits", "hf:owner/name", "--tokens", "1,2", "--out", str(cache / "x.npy"))
    assert (cache / "x.npy").exists() and len(hub.requests) == before
    error = redline("run", "owner/name", "x", status=3)
    assert "a model on Hugging Face is hf:owner/name" in error
    assert "redline pull hf:owner/none fetches it" in redline("show", "hf:owner/none", status=3)


def test_list_and_rm(hub, redline, cache):
    hub.repositories["owner/name"] = Repository(gguf_files("m-Q4_K_M.gguf", "m-Q8_0.gguf"), lfs=["m-Q4_K_M.gguf", "m-Q8_0.gguf"])
    hub.repositories["owner/folder"] = Repository(folder_files(), lfs=["model.safetensors"])
    for name in ("hf:owner/name", "hf:owner/name:Q8_0", "hf:owner/folder"):
        redline("pull", name)
    (cache / "models--owner--empty/refs").mkdir(parents=True)
    (cache / "datasets--owner--name").mkdir()

    def names():
        return [m["model"] for m in json.loads(redline("list", "--json"))["models"] if m["commit"]]
    assert names() == ["hf:owner/folder", "hf:owner/name:Q4_K_M", "hf:owner/name:Q8_0"]
    assert "hf:owner/name:Q8_0" in redline("list")
    removed = json.loads(redline("rm", "hf:owner/name:Q4_K_M", "--json"))
    assert removed["removed"] == ["hf:owner/name:Q4_K_M"] and removed["freed_bytes"] > 0
    assert names() == ["hf:owner/folder", "hf:owner/name:Q8_0"]
    assert len(list((cache / REPO / "blobs").iterdir())) == 1
    redline("rm", "hf:owner/name:Q8_0", "hf:owner/folder")
    assert names() == [] and not (cache / REPO).exists()
    assert "is not in" in redline("rm", "hf:owner/name", status=3)
    assert "remove it as any other file" in redline("rm", str(TALES), status=2)


def test_a_file_that_two_commits_share_survives_one_of_them(hub, redline, cache):
    files = folder_files()
    hub.repositories["owner/name"] = Repository(files, lfs=["model.safetensors"])
    redline("pull", "hf:owner/name")
    newer = "e" * 40
    hub.repositories["owner/name"] = Repository(files | {"config.json": '{"b": 2}'}, lfs=["model.safetensors"], commit=newer,
                                                revisions=["main", "v2"])
    assert pulled(redline, "hf:owner/name@v2")["fetched_bytes"] == 8
    redline("rm", "hf:owner/name@v2")
    assert (cache / REPO / "snapshots" / COMMIT / "model.safetensors").read_bytes() == BLOB
    assert not (cache / REPO / "snapshots" / newer).exists()


def test_progress_and_a_dry_run(hub, redline):
    hub.repositories["owner/name"] = Repository(folder_files(), lfs=["model.safetensors"])
    assert "3 files, 700 kB; 700 kB are missing" in redline("pull", "owner/name", "--dry-run")
    assert not hub.count("/resolve/")
