"""schemathesis over /openapi.json: no 5xx, and no answer that the description does not have.

Boundary values of every field take most of the time, and the APIs share most of their fields: here they are tried where that is
cheap, and random bodies everywhere. cmake --build build/dev --target long tries them at every endpoint.
"""
import pathlib
import subprocess
import sys
import tempfile

import pytest

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,negative_data_rejection"
# Their fields are those of /v1/completions, /v1/images/generations and /tokenize, or lists of messages; embeddings_test.py has its own.
LIKE_OTHERS = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens", "/v1/images/edits", "/v1/predictions",
               "/api/chat", "/api/generate", "/apply-template", "/v1/embeddings", "/api/embed", "/api/embeddings", "/v1/rerank", "/rerank", "/v1/reranking", "/reranking",
               "/chat/completions", "/completion", "/completions", "/infill", "/embedding", "/embeddings")
NEVER = "/v1/unload_lora_adapter"  # other tests need the adapters


def run(url, phases, examples, *paths):
    done = subprocess.run([sys.executable, "-m", "schemathesis.cli", "run", url + "/openapi.json", "--checks", CHECKS, "--phases", phases,
                           "--max-examples", str(examples), "--seed", "1", "--suppress-health-check", "all", "--generation-database", "none",
                           "--request-timeout", "60", "--no-color", "--exclude-path", NEVER, *paths],
                          capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-4000:]
    return done.stdout


def test_the_description_is_true(server):
    pytest.importorskip("schemathesis", reason="schemathesis needs Python 3.11")
    run(server.url, "examples,coverage,fuzzing", 8, *(f"--exclude-path={path}" for path in LIKE_OTHERS))
    run(server.url, "examples,fuzzing", 8, *(f"--include-path={path}" for path in LIKE_OTHERS))
    assert server.is_alive()


def main():
    sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))  # as pytest does it
    from conftest import TALES, serve
    with tempfile.TemporaryDirectory() as folder, serve(pathlib.Path(folder), f"--lora=shout={TALES}/adapters/shout") as server:
        print("\n".join(run(server.url, "examples,coverage,fuzzing,stateful", 20).splitlines()[-12:]))
        assert server.is_alive()


if __name__ == "__main__":
    sys.exit(main())
