"""HTTP itself: hostile requests get a 4xx that says why, and the server lives; limits, TLS, keys, draining."""
import json
import signal
import socket
import ssl
import subprocess
import time

import httpx
import pytest

STORY = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 30}


def raw(server, data, timeout=30):
    """What comes back for these bytes until the server closes or is silent."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=timeout) as s:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR) if data.endswith(b"<end>") else None
        got = b""
        while chunk := s.recv(65536):
            got += chunk
            head, _, body = got.partition(b"\r\n\r\n")
            if b"Connection: close" not in head and b"Content-Length: %d\r\n" % len(body) in head + b"\r\n":
                break
        return got


def status_and_error(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


def post(path, body, headers=b"", length=None):
    length = len(body) if length is None else length
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n%s" % (path, headers, length, body)


@pytest.mark.parametrize("request_bytes, status, param", [
    (b"GET /livez HTTP/1.1\r\n\r\n", 400, "host"),
    (b"GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "host"),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nBad Header: 1\r\n\r\n", 400, None),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n", 400, None),
    (b"GET / HTTP/2.0\r\n\r\n", 400, None),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, None),
    (b"GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, None),
    (b"GET /%00 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, None),
    (b"GET nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, None),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 40000 + b"\r\n\r\n", 431, None),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400, "content-length"),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", 400, "content-length"),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 5\r\n\r\n{}", 400, "content-length"),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400, "content-length"),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2, 2\r\n\r\n{}", 400, "content-length"),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n", 413, None),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2;" + b"a" * 1000000, 400, None),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
     "transfer-encoding"),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n", 400,
     None),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400,
     "transfer-encoding"),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400, "transfer-encoding"),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", 400, None),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", 400,
     "content-encoding"),
])
def test_malformed_http(server, request_bytes, status, param):
    got, error = status_and_error(raw(server, request_bytes))
    assert got == status, error
    assert error["message"]
    if param:
        assert error["param"] == param
    assert server.is_alive()


@pytest.mark.parametrize("body, param", [
    (b"", None),
    (b"{", None),
    (b"[]", None),
    (b"null", None),
    (b"\xff\xfe", None),
    (b'{"prompt": "\xc3\x28"}', None),
    (b'{"prompt": "\\ud800"}', None),
    (b'{"prompt": "a"} {}', None),
    (b"[" * 100000, None),
    (b'{"a":' * 30000 + b"1" + b"}" * 30000, None),
    (b'{"max_tokens": 1e999}', None),
    (b'{"max_tokens": 123456789012345678901234567890}', "max_tokens"),
    (b'{"max_tokens": -3}', "max_tokens"),
    (b'{"max_tokens": 1.5}', "max_tokens"),
    (b'{"max_tokens": "many"}', "max_tokens"),
    (b'{"n": 1000000000}', "n"),
    (b'{"n": 0}', "n"),
    (b'{"temperature": -0.1}', "temperature"),
    (b'{"temperature": true}', "temperature"),
    (b'{"top_p": 2}', "top_p"),
    (b'{"stop": ["a", 1]}', "stop[1]"),
    (b'{"stop": {}}', "stop"),
    (b'{"stream": "yes"}', "stream"),
    (b'{"prompt": {}}', "prompt"),
    (b'{"prompt": []}', "prompt"),
    (b'{"prompt": [1, "a"]}', "prompt[1]"),
    (b'{"prompt": [4096]}', "prompt[0]"),
    (b'{"prompt": [[1], [-5]]}', "prompt[1][0]"),
    (b'{"prompt": [[]], "logprobs": 1, "echo": true, "lora": [{"name": "none"}]}', "lora[0]"),
    (b'{"suffix": "x"}', "suffix"),
    (b'{"n": 3, "best_of": 2}', "best_of"),
    (b'{"best_of": 2, "stream": true}', "best_of"),
    (b'{"presence_penalty": 101}', "presence_penalty"),
    (b'{"frequency_penalty": "much"}', "frequency_penalty"),
    (b'{"repeat_last_n": -2}', "repeat_last_n"),
    (b'{"logit_bias": {"5": "x"}}', "logit_bias.5"),
    (b'{"logit_bias": {"five": 1}}', "logit_bias.five"),
    (b'{"logit_bias": {"4096": 1}}', "logit_bias.4096"),
    (b'{"logit_bias": {"5": 1e30}}', "logit_bias.5"),
    (b'{"logit_bias": {"5": true}}', "logit_bias.5"),
    (b'{"logit_bias": [[1, 2], [3]]}', "logit_bias[1]"),
    (b'{"logit_bias": [1]}', "logit_bias[0]"),
    (b'{"logit_bias": 1}', "logit_bias"),
    (b'{"bad_words": [""]}', "bad_words[0]"),
    (b'{"bad_words": "x"}', "bad_words"),
    (b'{"typical_p": 0}', "typical_p"),
    (b'{"top_n_sigma": -2}', "top_n_sigma"),
    (b'{"xtc_probability": 2}', "xtc_probability"),
    (b'{"xtc_threshold": -1}', "xtc_threshold"),
    (b'{"dry_multiplier": -1}', "dry_multiplier"),
    (b'{"dry_base": 0}', "dry_base"),
    (b'{"dry_allowed_length": -1}', "dry_allowed_length"),
    (b'{"dry_penalty_last_n": -2}', "dry_penalty_last_n"),
    (b'{"dry_sequence_breakers": [""]}', "dry_sequence_breakers[0]"),
    (b'{"mirostat": 3}', "mirostat"),
    (b'{"mirostat_tau": -1}', "mirostat_tau"),
    (b'{"mirostat_eta": -1}', "mirostat_eta"),
    (b'{"dynatemp_range": -1}', "dynatemp_range"),
    (b'{"dynatemp_exponent": -1}', "dynatemp_exponent"),
    (b'{"samplers": ["top_q"]}', "samplers"),
    (b'{"samplers": ["top_k", "top_k"]}', "samplers"),
    (b'{"min_tokens": -1}', "min_tokens"), (b'{"stop_token_ids": 5}', "stop_token_ids"),
    (b'{"stop_token_ids": [5, 4096]}', "stop_token_ids[1]"),
    (b'{"use_beam_search": true, "stop": "a"}', "stop"), (b'{"use_beam_search": 1}', "use_beam_search"),
    (b'{"maxtokens": 5}', "maxtokens"),
    (b'{"model": "gpt-4"}', "model"),
    (b'{"stream_options": {"include_usag": true}}', "stream_options.include_usag"),
])
def test_malformed_bodies_name_the_field(server, body, param):
    answer = server.client.post("/v1/completions", content=body)
    assert answer.status_code == (404 if b"gpt-4" in body or b"lora" in body else 400)
    assert answer.json()["error"]["param"] == param
    assert server.is_alive()


TOO_LARGE = 40 << 20  # of --max-body's 32 MiB, and far above what sockets hold


def send_too_much(s, is_chunked):
    """The answer to a client that only listens when it has sent all of a body."""
    head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
    if is_chunked:
        s.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % TOO_LARGE)
    else:
        s.sendall(head + b"Content-Length: %d\r\n\r\n" % TOO_LARGE)
    part = bytes(1 << 20)
    for _ in range(TOO_LARGE // len(part)):
        s.sendall(part)
    got = b""
    while chunk := s.recv(65536):
        got += chunk
    return status_and_error(got)


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_that_is_too_large_is_refused_while_it_is_sent(server, is_chunked):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
        status, error = send_too_much(s, is_chunked)
    assert status == 413 and "33554432 bytes" in error["message"]
    assert server.is_alive()


def test_a_body_is_read_in_chunks_and_after_100_continue(server):
    body = json.dumps(STORY).encode()
    expected = server.post("/v1/completions", STORY).json()["choices"]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + 7]), body[i:i + 7]) for i in range(0, len(body), 7)) + b"0\r\n\r\n"
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    answer = raw(server, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["choices"] == expected
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as s:
        s.sendall(head + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        assert s.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        s.sendall(body)
        assert s.recv(65536).startswith(b"HTTP/1.1 200 OK")


def test_requests_of_one_connection_are_answered_in_order(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as s:
        first = post(b"/v1/completions", json.dumps(STORY | {"max_tokens": 40}).encode(), b"X-Request-Id: first\r\n")
        s.sendall(first + b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: second\r\nConnection: close\r\n\r\n")
        got = b""
        while chunk := s.recv(65536):
            got += chunk
    assert got.count(b"HTTP/1.1 200 OK") == 2
    assert got.index(b"X-Request-Id: first") < got.index(b"X-Request-Id: second")


def test_http_1_0_and_head(server):
    answer = raw(server, b"GET /livez HTTP/1.0\r\n\r\n")
    assert b'{"status":"ok"}' in answer and b"Connection: close" in answer
    body = json.dumps(STORY | {"stream": True}).encode()
    streamed = raw(server, b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    assert b"Transfer-Encoding" not in streamed and streamed.endswith(b"data: [DONE]\n\n")
    head = server.client.head("/v1/models")
    assert head.status_code == 200 and int(head.headers["content-length"]) > 0 and head.content == b""


def test_request_ids_and_the_log(server):
    answer = server.post("/v1/completions", STORY, headers={"X-Request-Id": "abc-1"})
    assert answer.headers["x-request-id"] == "abc-1"
    forged = server.client.get("/livez", headers={"X-Request-Id": 'a b"'})
    assert forged.headers["x-request-id"] != 'a b"'
    eventually(lambda: '"id":"abc-1"' in server.log.read_text())  # a thread of its own writes it
    lines = [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
    entry = next(line for line in lines if line["id"] == "abc-1")
    assert entry["status"] == 200 and entry["model"] == "redline-tales" and entry["tokens"] == 30
    assert entry["path"] == "/v1/completions" and entry["finish"] == "length" and entry["prompt_tokens"] == 5


def eventually(condition):
    """Waits for what must come, without a limit of its own that a slow machine would reach."""
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def test_a_client_that_leaves_frees_its_place(server):
    for stream in (True, False):
        before = server.metric("vllm:request_success_total")
        body = json.dumps(STORY | {"max_tokens": 900, "ignore_eos": True, "stream": stream, "n": 8}).encode()
        s = socket.create_connection(("127.0.0.1", server.port))
        s.sendall(post(b"/v1/completions", body))
        eventually(lambda: server.metric("vllm:num_requests_running") > 0)
        s.close()
        eventually(lambda: server.metric("vllm:num_requests_running") == 0)
        assert server.metric("vllm:request_success_total") == before + 8
    text = server.get("/metrics").text
    cancelled = [line for line in text.splitlines() if 'finished_reason="cancelled"' in line]
    assert float(cancelled[0].split()[-1]) > 0


@pytest.mark.parametrize("path, options", [
    (b"/v1/completions", {}),
    (b"/v1/completions", {"stream": True}),
    (b"/api/generate", {"model": "redline-tales", "raw": True, "stream": True}),
    (b"/v1/responses", {"model": "redline-tales", "input": "Go on.", "background": True, "stream": True}),
])
def test_a_client_that_only_stops_sending_is_answered(server, path, options):
    body = {"ignore_eos": True, "max_tokens": 300} if path == b"/v1/completions" else {}
    if b"responses" not in path:
        body["prompt"] = STORY["prompt"]
    request = post(path, json.dumps(body | options).encode(), b"X-Request-Id: half\r\n")
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
        s.sendall(request)
        s.shutdown(socket.SHUT_WR)
        got = b""
        while chunk := s.recv(65536):
            got += chunk
    got = got.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    head, _, rest = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    if options:
        assert rest.endswith(b"0\r\n\r\n")
    else:
        assert b"Connection: close" in head
        assert json.loads(rest)["usage"]["completion_tokens"] == 300


def test_a_client_that_stops_sending_and_then_leaves_frees_its_place(server):
    for version, stream in ((b"HTTP/1.1", True), (b"HTTP/1.1", False), (b"HTTP/1.0", True), (b"HTTP/1.0", False)):
        body = json.dumps(STORY | {"max_tokens": 900, "ignore_eos": True, "stream": stream, "n": 8}).encode()
        before = server.metric("vllm:generation_tokens_total")
        with socket.create_connection(("127.0.0.1", server.port)) as s:
            s.sendall(post(b"/v1/completions", body).replace(b"HTTP/1.1", version))
            eventually(lambda: server.metric("vllm:num_requests_running") > 0)
            s.shutdown(socket.SHUT_WR)
        eventually(lambda: server.metric("vllm:num_requests_running") == 0)
        assert server.metric("vllm:generation_tokens_total") - before < 8 * 900


def test_the_second_of_two_requests_is_answered_after_the_end_of_sending(server):
    long = post(b"/v1/completions", json.dumps(STORY | {"max_tokens": 200, "ignore_eos": True}).encode())
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
        s.sendall(long + long)
        s.shutdown(socket.SHUT_WR)
        got = b""
        while chunk := s.recv(65536):
            got += chunk
    assert got.count(b"HTTP/1.1 200 OK") == 2


def test_a_reader_that_stops_loses_its_connection_only(server):
    body = json.dumps({"prompt": "Once", "max_tokens": 900, "ignore_eos": True, "stream": True, "n": 16, "logprobs": 20})
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", server.port))
        s.sendall(post(b"/v1/completions", body.encode(), b"X-Request-Id: slow-reader\r\n"))
        assert s.recv(100)
        expected = server.post("/v1/completions", STORY).json()["choices"]
        assert server.post("/v1/completions", STORY).json()["choices"] == expected
        eventually(lambda: '"id":"slow-reader"' in server.log.read_text())
        entry = next(line for line in server.log.read_text().splitlines() if '"id":"slow-reader"' in line)
        assert json.loads(entry)["cut"]
        eventually(lambda: server.metric("vllm:num_requests_running") == 0)
    assert server.is_alive()


def test_a_slow_reader_that_goes_on_gets_all(start):
    """The time limit is one for progress: the whole answer may take much longer."""
    body = json.dumps({"prompt": "Once", "max_tokens": 400, "ignore_eos": True, "stream": True, "n": 8, "logprobs": 10}).encode()
    with start("--write-timeout", "2") as server, socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
        s.settimeout(60)
        s.connect(("127.0.0.1", server.port))
        s.sendall(post(b"/v1/completions", body))
        got = bytearray()
        while not got.endswith(b"0\r\n\r\n"):
            part = s.recv(16384)
            assert part, "the connection was cut"
            got += part
            time.sleep(0.02)  # slower than the texts are generated
        assert b"data: [DONE]" in got[-100:]
        assert len(got) > 2**20


def test_slow_requests_are_dropped(start):
    with start("--idle-timeout", "1", "--read-timeout", "1") as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as idle:
            assert idle.recv(10) == b""
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as body:
            body.sendall(post(b"/v1/completions", b'{"pro', length=100))
            assert body.recv(10) == b""
        # A head that comes byte by byte is dropped too, however often a byte comes.
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as loris:
            with pytest.raises(OSError):
                loris.sendall(b"GET / HTTP/1.1\r\n")
                while True:
                    loris.sendall(b"a")
                    time.sleep(0.2)
        assert server.is_alive()


def test_many_connections(start):
    with start("--max-connections", "20") as server:
        open_ones = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(40)]
        answers = 0
        for s in open_ones[20:]:
            try:
                answers += s.recv(1000).startswith(b"HTTP/1.1 503")
            except ConnectionResetError:
                pass
        assert answers > 0
        for s in open_ones:
            s.close()
        eventually(lambda: server.get("/livez").status_code == 200)


def test_keys(start, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("ann k-ann\nbob k-bob 2\n")
    with start("--api-key", "root", "--api-keys-file", str(keys), waits=False) as server:
        eventually(lambda: server.get("/health").status_code == 200)
        assert server.get("/v1/models").status_code == 401
        assert server.get("/v1/models", headers={"Authorization": "Bearer wrong"}).status_code == 401
        for key in ("root", "k-ann"):
            assert server.get("/v1/models", headers={"Authorization": "Bearer " + key}).status_code == 200
        statuses = [server.get("/v1/models", headers={"x-api-key": "k-bob"}).status_code for _ in range(3)]
        assert statuses == [200, 200, 429]
        eventually(lambda: '"client":"ann"' in server.log.read_text())


def test_a_key_is_checked_before_the_body(start):
    with start("--api-key", "root", waits=False) as server:
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30000000\r\nExpect: 100-continue\r\n"
        status, error = status_and_error(raw(server, head + b"\r\n"))
        assert status == 401 and error["code"] == "invalid_api_key"
        eventually(lambda: server.get("/health").status_code == 200)
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as s:
            s.sendall(head + b"Authorization: Bearer root\r\n\r\n")
            assert s.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize("text", ["a", " ", "7", "\n", "\u00e9"])
def test_a_text_that_cannot_fit_is_refused_before_it_is_encoded(server, text):
    for path in ("/tokenize", "/v1/completions"):
        answer = server.post(path, {"prompt": text * 3_000_000})
        assert answer.status_code == 400 and answer.json()["error"]["code"] == "context_length_exceeded"
        assert answer.json()["error"]["param"] == "prompt"


def test_the_log_has_one_line_for_each_request(server):
    path = "/" + "".join(f"%{c:02X}" for c in range(1, 256)) + "%E2%80%A8%C2%85" + "x" * 3000
    answer = server.client.get(path, headers={"X-Request-Id": "odd-path"})
    assert answer.status_code == 404
    eventually(lambda: '"id":"odd-path"' in server.log.read_text())
    line = next(line for line in server.log.read_bytes().split(b"\n") if b'"id":"odd-path"' in line)
    assert line.isascii() and len(line) < 4096 and json.loads(line)["status"] == 404


def test_a_log_on_a_full_disk(start):
    with start("--access-log", "/dev/full") as server:
        for _ in range(3):
            assert server.post("/v1/completions", STORY).status_code == 200
        eventually(lambda: "the access log cannot be written: No space left on device" in server.log.read_text())
        assert server.log.read_text().count("cannot be written") == 1


@pytest.mark.parametrize("flags, message", [
    (("--access-log", "/nowhere/log"), "--access-log /nowhere/log: cannot be written"),
    (("--api-keys-file", "/nowhere/keys"), "/nowhere/keys"),
    (("--api-keys-file", "/proc/self/mem"), "/proc/self/mem"),  # exists, and cannot be read
    (("--api-keys-file", "/dev"), "/dev"),
    (("--api-keys-file", "/dev/null"), "/dev/null: is not a regular file"),
])
def test_files_that_cannot_be_used(start, flags, message):
    with pytest.raises(AssertionError, match=message):
        with start(*flags):
            pass


def test_tls(start, tmp_path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    with start("--tls-cert", str(certificate), "--tls-key", str(key)) as server:
        assert server.url.startswith("https://")
        assert server.post("/v1/completions", STORY).status_code == 200
        streamed = server.post("/v1/completions", STORY | {"stream": True})
        assert streamed.text.endswith("data: [DONE]\n\n")
        context = ssl.create_default_context(cafile=str(certificate))
        with socket.create_connection(("127.0.0.1", server.port)) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as s:
                assert s.version() in ("TLSv1.2", "TLSv1.3")
                assert send_too_much(s, is_chunked=False)[0] == 413
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200 OK" not in plain.recv(100)
        assert server.is_alive()


def test_sigterm_drains(start):
    with start() as server:
        body = STORY | {"max_tokens": 900, "ignore_eos": True, "stream": True}
        with server.client.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            text = list(lines)
        assert text[-2:] == ["data: [DONE]", ""] or text[-1] == "data: [DONE]"
        assert '"finish_reason":"length"' in "".join(text)
        assert server.process.wait(60) == 0


def test_new_requests_are_refused_while_draining_and_the_second_signal_stops(start):
    with start("--max-sequences", "32") as server:
        body = json.dumps({"prompt": "Once", "max_tokens": 1000, "ignore_eos": True, "stream": True, "n": 32}).encode()
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
            s.sendall(post(b"/v1/completions", body))
            assert s.recv(1000)
            server.process.send_signal(signal.SIGTERM)
            refused = None
            for _ in range(1000):
                try:
                    refused = httpx.post(server.url + "/v1/completions", json=STORY)
                except httpx.ConnectError:  # it had time to finish
                    break
                if refused.status_code == 503:
                    assert refused.headers["retry-after"] and refused.headers["connection"] == "close"
                    assert httpx.get(server.url + "/health").status_code == 503
                    break
            server.process.send_signal(signal.SIGINT)
            assert server.process.wait(60) == 0


def test_the_port_in_use(server, start):
    with pytest.raises(AssertionError, match="cannot listen on 127.0.0.1 port"):
        with start("--port", str(server.port)):
            pass


def test_cors(start):
    with start("--cors-origin", "https://app.example") as server:
        good, evil = {"Origin": "https://app.example"}, {"Origin": "https://evil.example"}
        preflight = server.client.options("/v1/completions", headers=good | {"Access-Control-Request-Method": "POST"})
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-origin"] == "https://app.example"
        assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
        answer = server.post("/v1/completions", STORY, headers=good)
        assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == "https://app.example"
        assert server.post("/v1/completions", STORY, headers=evil).status_code == 403
        assert server.client.options("/v1/completions", headers=evil).status_code == 403


def test_several_models(start):
    from conftest import TALES
    with start(models=(f"one={TALES}", f"two={TALES}")) as server:
        assert [m["id"] for m in server.get("/v1/models").json()["data"]] == ["one", "two"]
        assert server.post("/v1/completions", STORY).json()["error"]["param"] == "model"
        texts = {name: server.post("/v1/completions", STORY | {"model": name}).json()["choices"] for name in ("one", "two")}
        assert texts["one"] == texts["two"]
