"""What one client can take from others, through a real server: its share of the steps, connections that it never reads, and the
end of the server. Orders and states are compared, never times."""
import concurrent.futures
import json
import secrets
import signal
import socket
import threading
import time

import httpx

from conftest import ROOT, STOP_S

PROMPT = {"prompt": "Once upon a time", "temperature": 0, "ignore_eos": True}


def eventually(condition):
    """Waits for what must come; the limit is far above what it takes."""
    for _ in range(12000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def test_random_users_of_one_key_do_not_delay_another_key(start, tmp_path):
    """40 requests of a key, each with a user of its own, and 5 of another key: half of the steps are the other key's, so that its
    requests end before most of the 40. If every user had a turn, they would end last."""
    keys = tmp_path / "keys"
    keys.write_text("many k-many\nfew k-few\n")
    order, lock = [], threading.Lock()
    with start("--api-keys-file", str(keys), "--threads", "2", "--max-sequences", "2", waits=False) as server:
        server.client.headers["Authorization"] = "Bearer k-few"
        eventually(lambda: server.get("/health").status_code == 200)

        def ask(key, user):
            answer = httpx.post(server.url + "/v1/completions", json=PROMPT | {"max_tokens": 100, "user": user}, timeout=600,
                                headers={"Authorization": f"Bearer {key}"})
            with lock:
                order.append(key)
            assert answer.status_code == 200, answer.text

        with concurrent.futures.ThreadPoolExecutor(45) as pool:
            asked = [pool.submit(ask, "k-many", secrets.token_hex(8)) for _ in range(40)]
            eventually(lambda: server.metric("vllm:num_requests_running") + server.metric("vllm:num_requests_waiting") >= 35)
            asked += [pool.submit(ask, "k-few", "") for _ in range(5)]
            for one in asked:
                one.result()
    assert len(order) == 45
    last = max(i for i, key in enumerate(order) if key == "k-few")
    # With equal shares 5 of the 40 requests end meanwhile, and the two that were in progress. The bound is above twice that,
    # because answers may be read in another order than they were sent.
    assert order[:last].count("k-many") <= 20, order


def test_clients_that_never_read_are_gone_after_the_write_timeout(start):
    """Their answers fit into the socket's buffer of the server, so that no write waits for them."""
    body = json.dumps(PROMPT | {"max_tokens": 100, "stream": True, "logprobs": 20}).encode()
    request = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with start("--threads", "2", "--write-timeout", "1", "--idle-timeout", "86400") as server:
        clients = []
        for _ in range(40):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", server.port))
            client.sendall(request)
            clients.append(client)
        try:
            eventually(lambda: server.metric("vllm:request_success_total") >= 40)
            eventually(lambda: server.metric("redline:http_connections") <= 1)  # the one that asks
            assert server.metric("vllm:num_requests_running") == 0
        finally:
            for client in clients:
                client.close()
        assert server.is_alive()


def test_short_answers_that_nobody_reads_end_with_the_idle_timeout(start):
    """They fit into the client's own buffer, so that the server has sent them whole. 40 clients of a round are gone before the
    next round begins. If the server kept their answers, of 40 KB each, its memory would grow by 1.6 MB a round."""
    body = json.dumps({"messages": [{"role": "user", "content": "a " * 20_000}]}).encode()
    request = b"POST /apply-template HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with start("--threads", "2", "--idle-timeout", "1", "--write-timeout", "3600") as server:
        memory = []
        for _ in range(8):
            clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(40)]
            for client in clients:
                client.sendall(request)
            for client in clients:
                client.settimeout(STOP_S)
                head = client.recv(200, socket.MSG_PEEK).decode()
                assert head.startswith("HTTP/1.1 200"), head
                assert int(head.split("Content-Length: ")[1].split("\r\n")[0]) > 32_000
            eventually(lambda: server.metric("redline:http_connections") <= 1)  # the one that asks
            for client in clients:
                client.close()
            memory.append(server.memory_mib())
        assert memory[-1] - memory[3] < 3, memory
        assert server.is_alive()


def test_sigterm_ends_within_the_drain_time_whatever_a_webhook_receiver_does(start):
    """The receiver takes the connection and never answers; the wait for the process only keeps the test from hanging."""
    with socket.create_server(("127.0.0.1", 0)) as receiver:
        url = f"http://127.0.0.1:{receiver.getsockname()[1]}/hook"
        with start("--threads", "2", "--drain-timeout", "3", models=(str(ROOT / "assets/redline-shapes"),)) as server:
            path = "/v1/predictions"
            sent = server.post(path, {"input": {"prompt": "a red circle", "steps": 2}, "webhook": url}).json()
            receiver.settimeout(STOP_S)
            connection, _ = receiver.accept()
            with connection:
                eventually(lambda: server.get(f"{path}/{sent['id']}").json()["status"] == "succeeded")
                server.process.send_signal(signal.SIGTERM)
                assert server.process.wait(STOP_S) == 0
