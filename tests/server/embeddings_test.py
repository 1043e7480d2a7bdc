"""Embeddings through the official clients, unmodified, of a tiny random encoder and a cross-encoder."""
import asyncio
import json
import pathlib
import subprocess
import sys

import httpx
import numpy as np
import ollama
import openai
import pytest
from conftest import TALES
from openapi_test import CHECKS
from redline_binary import binary

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXTS = ["a fox", "", "Once upon a time, there was a little girl named Lily."]


@pytest.fixture(scope="module")
def served(start, tmp_path_factory):
    golden = pathlib.Path(binary()).parent / "golden"
    if not golden.is_dir():
        pytest.skip(f"{golden} is not there: the golden models are made by the build of the tests")
    models = []
    for name in ("bert", "bert_cross_encoder"):
        folder = tmp_path_factory.mktemp(name)
        for file in ("config.json", "model.safetensors"):
            (folder / file).symlink_to(golden / "encoders" / name / file)
        (folder / "tokenizer.json").symlink_to(ROOT / "tests/golden/tokenizers/bert.json")
        models.append(f"{name}={folder}")
    with start("--threads", "2", "--dtype", "f32", models=models) as running:
        yield running


@pytest.fixture(scope="module")
def client(served):
    with openai.OpenAI(base_url=served.url + "/v1", api_key="any", max_retries=0) as made:
        yield made


def test_the_client_reads_both_encodings(client):
    # Without an encoding the client asks for base64 and decodes it.
    coded = client.embeddings.create(model="bert", input=TEXTS)
    plain = client.embeddings.create(model="bert", input=TEXTS, encoding_format="float")
    assert [e.index for e in coded.data] == [0, 1, 2]
    assert coded.usage.prompt_tokens == coded.usage.total_tokens > 6
    a, b = (np.array([e.embedding for e in answer.data], np.float32) for answer in (coded, plain))
    assert a.shape == (3, 32) and np.array_equal(a, b)
    assert np.allclose((a * a).sum(1), 1, atol=1e-6)
    few = client.embeddings.create(model="bert", input=TEXTS[0], dimensions=5)
    assert np.allclose(few.data[0].embedding, a[0, :5] / np.linalg.norm(a[0, :5]), atol=1e-6)


def test_async_requests_share_the_model(served):
    async def main():
        async with openai.AsyncOpenAI(base_url=served.url + "/v1", api_key="any", max_retries=0) as client:
            answers = await asyncio.gather(*(client.embeddings.create(model="bert", input="a fox " * (i % 7)) for i in range(24)))
            return [a.data[0].embedding for a in answers]
    vectors = asyncio.run(main())
    assert all(vectors[i] == vectors[i % 7] for i in range(24))


def test_errors_are_the_clients_own(client):
    with pytest.raises(openai.NotFoundError, match="bert"):
        client.embeddings.create(model="text-embedding-3-small", input="a")
    with pytest.raises(openai.BadRequestError, match="102 tokens are more than the model's 64"):
        client.embeddings.create(model="bert", input="a " * 100)
    names = {m.id for m in client.models.list()}
    assert names == {"bert", "bert_cross_encoder"}


def test_ollamas_client(served, client):
    want = client.embeddings.create(model="bert", input=TEXTS).data
    llama = ollama.Client(host=served.url)
    got = llama.embed(model="bert", input=TEXTS)
    assert np.allclose(got.embeddings, [e.embedding for e in want], atol=1e-6)
    assert got.prompt_eval_count > 6
    assert np.allclose(llama.embeddings(model="bert", prompt=TEXTS[0]).embedding, want[0].embedding, atol=1e-6)
    assert {m.model for m in llama.list().models} == {"bert", "bert_cross_encoder"}
    assert "embedding" in llama.show("bert").capabilities


def test_rerank(served):
    body = {"model": "bert_cross_encoder", "query": "a fox", "documents": [*TEXTS, "the quick brown fox"], "top_n": 3}
    for path in ("/v1/rerank", "/rerank"):
        answer = httpx.post(served.url + path, json=body).json()
        scores = [r["relevance_score"] for r in answer["results"]]
        assert len(scores) == 3 and scores == sorted(scores, reverse=True) and all(0 < s < 1 for s in scores)
        assert all(r["document"]["text"] == body["documents"][r["index"]] for r in answer["results"])


def test_the_description_is_true(served):
    pytest.importorskip("schemathesis", reason="schemathesis needs Python 3.11")
    done = subprocess.run([sys.executable, "-m", "schemathesis.cli", "run", served.url + "/openapi.json", "--checks", CHECKS,
                           "--max-examples", "10", "--seed", "1", "--suppress-health-check", "all", "--generation-database", "none",
                           "--request-timeout", "60", "--no-color", "--include-path-regex", "embed|rerank"],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-4000:]
    assert served.is_alive()


def test_a_language_model_gives_embeddings(start, tmp_path):
    """With --pooling a model that chats also answers every request for embeddings, with vectors of `redline embed`."""
    texts = ["The cat sat on the mat.", "Once upon a time"]
    for pooling in ("mean", "last"):
        with start("--pooling", pooling, "--dtype", "f32") as server:
            listed = server.get("/v1/models").json()["data"]
            assert [model["id"] for model in listed] == ["redline-tales"]  # it is listed once
            answer = server.post("/v1/embeddings", {"model": "redline-tales", "input": texts}).json()
            vectors = np.array([row["embedding"] for row in answer["data"]])
            made = subprocess.run([binary(), "embed", str(TALES), "--pooling", pooling, "--dtype", "f32", "--json", *texts], check=True,
                                  capture_output=True, text=True)
            np.testing.assert_allclose(vectors, np.array(json.loads(made.stdout)["embeddings"]), atol=1e-5)
            np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
            assert server.post("/api/embed", {"model": "redline-tales", "input": texts}).status_code == 200
            assert server.post("/embedding", {"content": texts[0]}).status_code == 200
            told = server.post("/v1/completions", {"model": "redline-tales", "prompt": texts[1], "max_tokens": 4})
            assert told.json()["usage"]["completion_tokens"] == 4
            ranked = server.post("/v1/rerank", {"query": texts[0], "documents": texts}).json()["results"]
            assert ranked[0]["index"] == 0 and abs(ranked[0]["relevance_score"] - 1) < 1e-5  # by the cosine


def test_without_pooling_the_flag_is_named(start):
    with start() as server:
        answer = server.post("/v1/embeddings", {"model": "redline-tales", "input": "x"})
        assert answer.status_code == 404 and "--pooling last" in answer.json()["error"]["message"]
