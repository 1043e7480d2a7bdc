#!/usr/bin/env python3
"""What hostile requests cost the others, on this machine: delay of /livez, gaps between a stream's tokens, memory.

  hostile_clients.py REDLINE MODEL [--only NAME] [--connections N] [--seconds S]

Starts REDLINE serve MODEL, sends one kind of hostile request after another, each from a few connections on the
loopback address and at most for --seconds, and prints a table. The checks of the bounds themselves are tests
(tests/server/http_server_test.cc, tests/base/fair_pool_test.cc, tests/llm/delivery_test.cc), which count work.
"""
import argparse
import contextlib
import http.client
import itertools
import json
import multiprocessing
import socket
import subprocess
import tempfile
import threading
import time

PROMPT_BYTES = 20_000_000
# Only the first tool is in the prompt, so that many tools fit in the context.
TEMPLATE = """{% for message in messages %}{{ message.content }}
{% endfor %}{% if tools %}Call {{ tools[0] | tojson }} as <tool_call>{"name": "..."}</tool_call>.{% endif %}"""


def body_of(**fields):
    return json.dumps(fields).encode()


def many_tools(count, salt):
    """Tools with schemas of their own, whose values are alike. A `salt` makes the list new to the server's caches."""
    for i in range(count):
        properties = {"path": {"type": "string", "description": f"the path of tool {i}"},
                      "mode": {"enum": ["fast", "slow", f"{salt}{i}"]},
                      "count": {"type": "integer", "minimum": 0, "maximum": 100},
                      "names": {"type": "array", "items": {"type": "string", "maxLength": 20}},
                      "pattern": {"type": "string", "pattern": "^[a-z]{1,8}(-[a-z0-9]+)*$"}}
        schema = {"type": "object", "properties": properties, "required": ["path", "mode"]}
        yield {"type": "function", "function": {"name": f"tool_number_{i}", "parameters": schema}}


def hostile_requests():
    """Name, path and body of each kind."""
    texts = {"one word": "a" * PROMPT_BYTES, "spaces": " " * PROMPT_BYTES, "digits": "7" * PROMPT_BYTES}
    for name, text in texts.items():
        yield f"{name}, /tokenize", "/tokenize", body_of(prompt=text)
        yield f"{name}, /v1/completions", "/v1/completions", body_of(prompt=text, max_tokens=4)
    yield "many values", "/tokenize", b'{"prompt": [' + b"0," * 10_000_000 + b"0]}"
    yield "many members", "/tokenize", b"{" + b",".join(b'"k%d":0' % i for i in range(2_000_000)) + b"}"
    constrained = {"prompt": "Once", "max_tokens": 8}
    yield "choices", "/v1/completions", body_of(guided_choice=[f"{i:05} " + "x" * 94 for i in range(10_000)], **constrained)
    yield "regex", "/v1/completions", body_of(guided_regex="a" * 1_000_000, **constrained)
    optional = {f"property_{i}": {"type": "integer"} for i in range(3_000)}
    yield "optional properties", "/v1/completions", body_of(guided_json={"type": "object", "properties": optional}, **constrained)
    yield "enum", "/v1/completions", body_of(guided_json={"enum": [f"value {i}" for i in range(20_000)]}, **constrained)
    yield "parse states", "/v1/completions", body_of(guided_grammar='root ::= a a a a a a a a\na ::= "" | [a-z]* a [a-z]* | [a-z ]*', **constrained)
    asked = {"messages": [{"role": "user", "content": "Once"}], "max_tokens": 8, "tool_choice": "required"}
    yield "required tools", "/v1/chat/completions", body_of(tools=list(many_tools(500, "SALT")), **asked)
    logprobs = {"prompt": "Once", "max_tokens": 900, "ignore_eos": True, "n": 8, "logprobs": 100}
    yield "log probabilities", "/v1/completions", body_of(**logprobs)


class Server:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])
        while self.get("/health") != 200:
            time.sleep(0.1)

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.request("GET", path)
        status = connection.getresponse().status
        connection.close()
        return status

    def memory_mib(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

    def post(self, path, body):
        """The status, or a word for a connection that was cut."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            return answer.status
        except OSError:
            return "cut"
        finally:
            connection.close()


class Watch:
    """Asks for /livez again and again, and reads one stream, until it is stopped."""

    def __init__(self, server):
        self.server, self.is_over = server, False
        self.liveness, self.gaps = [], []
        self.memory = server.memory_mib()
        self.threads = [threading.Thread(target=f, daemon=True) for f in (self.ask, self.read)]
        for thread in self.threads:
            thread.start()

    def ask(self):
        while not self.is_over:
            begin = time.monotonic()
            self.server.get("/livez")
            self.liveness.append(time.monotonic() - begin)
            self.memory = max(self.memory, self.server.memory_mib())
            time.sleep(0.01)

    def read(self):
        body = body_of(prompt="Once upon a time", max_tokens=900, ignore_eos=True, stream=True)
        while not self.is_over:
            connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=300)
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            answer, last = connection.getresponse(), None
            while line := answer.readline():
                if self.is_over:
                    break
                if line.startswith(b"data: {"):
                    now = time.monotonic()
                    if last:
                        self.gaps.append(now - last)
                    last = now
            connection.close()

    def stop(self):
        self.is_over = True
        for thread in self.threads:
            thread.join()
        return max(self.liveness) * 1e3, max(self.gaps, default=0) * 1e3, self.memory


def attack(server, path, body, connections, seconds):
    """Sends the request over and over from some connections of a process of its own; the statuses."""
    queue = multiprocessing.Queue()
    process = multiprocessing.Process(target=attack_here, args=(queue, server, path, body, connections, seconds))
    process.start()
    statuses = queue.get()
    process.join()
    return statuses


def attack_here(queue, server, path, body, connections, seconds):
    end, statuses = time.monotonic() + seconds, {}

    def run(number):
        for i in itertools.count():
            if time.monotonic() >= end:
                break
            status = server.post(path, body.replace(b"SALT", b"m%d-%d-" % (number, i)))
            statuses[status] = statuses.get(status, 0) + 1

    threads = [threading.Thread(target=run, args=(i,)) for i in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    queue.put(statuses)


def fill_bodies(server, connections=60, size=31 << 20):
    """Clients that send most of a body and then stop; how much memory the server takes."""
    head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (32 << 20)
    before, most, open_ones = server.memory_mib(), 0, []
    part = b"a" * (1 << 20)
    for _ in range(connections):
        s = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        open_ones.append(s)
        with contextlib.suppress(OSError):
            s.sendall(head)
            for _ in range(size >> 20):
                s.sendall(part)
        most = max(most, server.memory_mib())
    for s in open_ones:
        s.close()
    return before, most


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("redline")
    parser.add_argument("model")
    parser.add_argument("--only", default="")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3)
    args = parser.parse_args()
    with tempfile.NamedTemporaryFile("w", suffix=".jinja", encoding="utf-8") as template:
        template.write(TEMPLATE)
        template.flush()
        server = Server([args.redline, "serve", args.model, "--port", "0", "--access-log", "off",
                         "--chat-template", template.name])
    try:
        if not args.only or args.only in "bodies":
            before, most = fill_bodies(server)
            print(f"60 bodies of 31 MiB: {before:.0f} to {most:.0f} MiB", flush=True)
        print(f"{'request':32} {'livez max ms':>12} {'gap max ms':>11} {'MiB':>6}  statuses", flush=True)
        kinds = [("(nothing)", None, None), *hostile_requests()]
        for name, path, body in kinds:
            if args.only not in name:
                continue
            watch = Watch(server)
            if path:
                statuses = attack(server, path, body, args.connections, args.seconds)
            else:
                time.sleep(args.seconds)
                statuses = {}
            liveness, gap, memory = watch.stop()
            print(f"{name:32} {liveness:12.1f} {gap:11.1f} {memory:6.0f}  {statuses}", flush=True)
    finally:
        server.process.terminate()
        server.process.wait(60)


if __name__ == "__main__":
    main()
