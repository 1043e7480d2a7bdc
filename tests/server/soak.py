"""Clients of every kind against one server for a long time: nothing is lost, nothing is left behind.

  soak.py [--seconds 600] [--clients 32] [--seed 1]

At the end every request has had its answer, no request runs, no cache page is in use, and the memory of the process was flat
over the second half (from 300 s on; before that it still warms up). Then 1,000 streams that say nothing cost less than 100 MB
and next to no time of the processor.
"""
import argparse
import asyncio
import collections
import json
import os
import pathlib
import random
import resource
import socket
import struct
import sys
import tempfile
import time

import httpx

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))  # as pytest does it

from conftest import ROOT, TALES, serve  # noqa: E402

WARM_S = 300
FLAT = 0.01
FILL, FILLERS = 4000, 8
IDLE_STREAMS, IDLE_MIB, IDLE_S, IDLE_SHARE = 1000, 100, 5, 0.05
PROMPTS = ["Once upon a time", "One day", "The little dog", "There was a big tree. " * 20, "Lily and Tom " * 60]
QUESTIONS = ["Tell me a story about a cat.", "Who are you?", "Write about the sea."]
SCHEMA = {"type": "object", "properties": {"animal": {"enum": ["cat", "dog"]}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
          "required": ["animal", "age"], "additionalProperties": False}
BAD = [("/v1/completions", {"prompt": 3}), ("/v1/completions", {"max_tokens": -3}), ("/v1/completions", {"maxtokens": 1}),
       ("/v1/chat/completions", {"messages": []}), ("/v1/completions", {"model": "none"}), ("/tokenize", {}), ("/nowhere", {}),
       ("/v1/completions", {"prompt": "word " * 3000}), ("/v1/completions", {"guided_regex": "("})]


class Soak:
    def __init__(self, server, seconds, clients, seed):
        self.server = server
        self.random = random.Random(seed)
        self.counts, self.problems = collections.Counter(), []
        self.seconds, self.num_clients = seconds, clients
        self.rss = []

    def body(self, **options):
        r = self.random
        return {"prompt": r.choice(PROMPTS), "max_tokens": r.choice([1, 5, 40, 200]), "seed": r.randrange(1000),
                "temperature": r.choice([0, 1]), "n": r.choice([1, 1, 1, 3])} | options

    def check(self, kind, answer, statuses):
        self.counts[f"{kind} {answer.status_code}"] += 1
        if answer.status_code not in statuses:
            self.problems.append(f"{kind}: {answer.status_code} {answer.text[:300]}")

    async def whole(self, client):
        model = self.random.choice(["redline-tales", "redline-tales", "shout", "lower"])
        self.check("whole", await client.post("/v1/completions", json=self.body(model=model)), (200, 429))

    async def constrained(self, client):
        answer = await client.post("/v1/completions", json=self.body(json_schema=SCHEMA, max_tokens=200, n=1, model="redline-tales"))
        self.check("constrained", answer, (200, 429))
        if answer.status_code == 200 and answer.json()["choices"][0]["finish_reason"] == "stop":
            assert set(json.loads(answer.json()["choices"][0]["text"])) == {"animal", "age"}

    async def talk(self, client):
        """A conversation, whose turns continue from each other's state."""
        messages = [{"role": "user", "content": self.random.choice(QUESTIONS)}]
        for _ in range(3):
            body = {"model": "redline-tales", "messages": messages, "max_tokens": 40, "temperature": 0}
            answer = await client.post("/v1/chat/completions", json=body)
            self.check("talk", answer, (200, 429))
            if answer.status_code != 200:
                return
            messages += [answer.json()["choices"][0]["message"], {"role": "user", "content": "And then?"}]

    async def background(self, client):
        """A response that is polled, cancelled or left alone."""
        body = {"model": "redline-tales", "input": self.random.choice(QUESTIONS), "max_output_tokens": 100, "background": True}
        answer = await client.post("/v1/responses", json=body)
        self.check("background", answer, (200, 429))
        wanted = self.random.randrange(20)
        for poll in range(wanted if answer.status_code == 200 else 0):
            path = f"/v1/responses/{answer.json()['id']}"
            ends = poll == wanted - 1 and poll % 2
            answer = await (client.post(path + "/cancel") if ends else client.get(path))
            self.check("poll", answer, (200,))
            if answer.json()["status"] not in ("queued", "in_progress"):
                return
            await asyncio.sleep(0.01)

    async def followed(self, client):
        """A response whose events are read in parts, over several connections: none is lost, none comes twice."""
        body = {"model": "redline-tales", "input": self.random.choice(QUESTIONS), "max_output_tokens": 60, "background": True, "stream": True}
        path, next_number, method, last = "/v1/responses", 0, "POST", None
        while last is None:
            wanted = self.random.choice([1, 5, 1000])
            async with client.stream(method, path, json=body if method == "POST" else None) as answer:
                if answer.status_code != 200:
                    await answer.aread()
                    self.check("followed", answer, (429,) if method == "POST" else (200,))
                    return
                async for line in answer.aiter_lines():
                    if not line.startswith("data: "):
                        continue
                    event = json.loads(line[len("data: "):])
                    if event["sequence_number"] != next_number:
                        self.problems.append(f"event {event['sequence_number']} came as number {next_number}")
                        return
                    next_number += 1
                    id = event["response"]["id"] if "response" in event else id
                    if event["type"] in ("response.completed", "response.incomplete", "response.failed"):
                        last = event
                    wanted -= 1
                    if wanted == 0:
                        break
            self.check("events", answer, (200,))
            method, path = "GET", f"/v1/responses/{id}?stream=true&starting_after={next_number - 1}"
            if last is None and self.random.random() < 0.1:
                self.check("end", await client.post(f"/v1/responses/{id}/cancel"), (200,))
        self.counts[last["response"]["status"]] += 1
        if last["type"] == "response.failed" and last["response"]["status"] != "cancelled":
            self.problems.append(f"a response failed: {last}")

    async def conversation(self, client):
        """Responses that a conversation on the server keeps; it is deleted, or left to be evicted."""
        answer = await client.post("/v1/conversations", json={"items": [{"role": "user", "content": "We talk about a cat."}]})
        self.check("conversation", answer, (200,))
        path, items = f"/v1/conversations/{answer.json()['id']}", 1
        for _ in range(self.random.randrange(4)):
            body = {"model": "redline-tales", "input": self.random.choice(QUESTIONS), "max_output_tokens": 20,
                    "conversation": answer.json()["id"]}
            turn = await client.post("/v1/responses", json=body)
            self.check("turn", turn, (200, 429))
            items += 2 * (turn.status_code == 200)
        listed = await client.get(f"{path}/items", params={"limit": 100})
        self.check("items", listed, (200,))
        if len(listed.json()["data"]) != items:
            self.problems.append(f"a conversation of {items} items lists {len(listed.json()['data'])}")
        if self.random.random() < 0.5:
            self.check("forget", await client.delete(path), (200,))
            self.check("forgotten", await client.get(path), (404,))

    async def stream(self, client, cancels=False):
        async with client.stream("POST", "/v1/completions", json=self.body(stream=True, model="redline-tales")) as answer:
            if answer.status_code != 200:
                await answer.aread()
                self.check("stream", answer, (429,))
                return
            last, events, wanted = "", 0, self.random.randrange(20)
            async for line in answer.aiter_lines():
                last, events = line or last, events + 1
                if cancels and events > wanted:
                    self.counts["cancelled"] += 1
                    return
            self.check("stream", answer, (200,))
            if last != "data: [DONE]":
                self.problems.append(f"a stream ended with {last[:200]!r}")

    async def vanish(self, client):
        """Ends the connection without a word, anywhere: in the request, before the answer, in it."""
        body = json.dumps(self.body(stream=True, model="redline-tales", max_tokens=500)).encode()
        request = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        s = writer.get_extra_info("socket")
        writer.write(request[:self.random.choice([10, len(request) // 2, len(request), len(request)])])
        await writer.drain()
        await asyncio.sleep(self.random.random() * 0.2)
        if self.random.random() < 0.5:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        elif self.random.random() < 0.3:
            s.shutdown(socket.SHUT_WR)
        writer.transport.abort() if self.random.random() < 0.5 else writer.close()
        self.counts["vanished"] += 1

    async def bad(self, client):
        path, body = self.random.choice(BAD)
        if self.random.random() < 0.2:
            answer = await client.post("/v1/completions", content=b"{" * self.random.randrange(1, 500))
        else:
            answer = await client.post(path, json=body)
        self.check("bad", answer, (400, 404, 429))

    async def adapter(self, client, name):
        load = {"model": "redline-tales", "lora_name": name, "lora_path": f"{TALES}/adapters/tolstoy"}
        self.check("load", await client.post("/v1/load_lora_adapter", json=load), (200,))
        self.check("adapter", await client.post("/v1/completions", json=self.body(model=name)), (200, 429))
        self.check("unload", await client.post("/v1/unload_lora_adapter", json={"model": "redline-tales", "lora_name": name}), (200,))

    async def client(self, number):
        kinds = [self.whole, self.stream, lambda c: self.stream(c, True), self.vanish, self.bad, self.constrained, self.talk, self.background,
                 self.followed, self.conversation, lambda c: self.adapter(c, f"own{number}")]
        weights = [6, 6, 4, 3, 3, 2, 2, 2, 2, 2, 1]
        async with httpx.AsyncClient(base_url=self.server.url, timeout=120) as client:
            while time.monotonic() < self.end:
                kind = self.random.choices(kinds, weights)[0]
                self.counts["begun"] += 1
                try:
                    await kind(client)
                    self.counts["answered"] += 1
                except Exception as error:
                    self.problems.append(f"{getattr(kind, '__name__', 'client')}: {type(error).__name__} {error}")

    async def sample(self):
        while time.monotonic() < self.end:
            self.rss.append(self.server.memory_mib())
            await asyncio.sleep(min(1, self.seconds / 100))

    async def run(self):
        await self.fill()
        self.end = time.monotonic() + self.seconds
        await asyncio.gather(self.sample(), *(self.client(i) for i in range(self.num_clients)))

    async def fill(self):
        """Fills what the server keeps for its clients, whose limits the load alone may not reach: conversations, responses (1,000 each)
        with their events, and the tokens of known texts (16 MiB)."""
        items = [{"role": "user", "content": "We talk about a cat. " * 4} for _ in range(5)]
        long = "Once upon a time there was a cat. " * 60

        async def post(client, path, body):
            answer = await client.post(path, json=body)
            self.check("fill", answer, (200,))
            return answer

        async def worker(number):
            async with httpx.AsyncClient(base_url=self.server.url, timeout=120) as client:
                for i in range(number, FILL, FILLERS):
                    if i < 1000:
                        talk = (await post(client, "/v1/conversations", {"items": items})).json()
                        body = {"model": "redline-tales", "input": f"{QUESTIONS[0]} {i}", "max_output_tokens": 20, "conversation": talk["id"]}
                        if i % 7 < 2:  # the share of followed() among the kinds that make responses; their events are kept
                            body |= {"max_output_tokens": 60, "background": True, "stream": True}
                        await post(client, "/v1/responses", body)
                    body = {"model": "redline-tales", "messages": [{"role": "user", "content": f"{long} {i}"}], "max_tokens": 1}
                    await post(client, "/v1/chat/completions", body)

        await asyncio.gather(*(worker(i) for i in range(FILLERS)))

    def finish(self):
        idle = ("vllm:num_requests_running", "vllm:num_requests_waiting")
        for _ in range(6000):
            if all(self.server.metric(name) == 0 for name in idle) and used_pages(self.server) == 0:
                break
            time.sleep(0.01)
        else:
            self.problems.append(f"left behind: {[(n, self.server.metric(n)) for n in idle]}, pages in use: {used_pages(self.server)}")
        if self.counts["begun"] != self.counts["answered"]:
            self.problems.append(f"{self.counts['begun'] - self.counts['answered']} requests had no answer")
        half = self.rss[len(self.rss) // 2:]
        quarters = half[:len(half) // 2], half[len(half) // 2:]
        growth = max(quarters[1]) / max(quarters[0]) - 1
        if self.seconds >= WARM_S and growth > FLAT:
            self.problems.append(f"memory grew by {100 * growth:.2f} % within the second half: {self.rss[::max(1, len(self.rss) // 40)]}")
        return growth


def used_pages(server):
    lines = [line for line in server.get("/metrics").text.splitlines() if line.startswith("redline:cache_pages{") and 'state="used"' in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def http_cpu_s(pid):
    """Time of the thread of the sockets and of those that handle requests."""
    ticks = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().startswith("http"):
            fields = (task / "stat").read_text().rsplit(") ", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def idle_streams(folder, seconds=IDLE_S):
    """Streams of events of an image that waits in the queue: each has sent its head and an event, and now says nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = IDLE_STREAMS + 200
    if soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            return f"not measured: at most {hard} open files are allowed here"
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    with serve(folder, "--threads", "1", models=(str(ROOT / "assets/redline-shapes"),)) as server:
        image = {"input": {"prompt": "a red circle", "steps": 1000, "seed": 1}}
        ids = [server.post("/v1/predictions", image).json()["id"] for _ in range(2)]
        request = f"GET /v1/predictions/{ids[1]}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        deadline = time.monotonic() + 60
        while server.get(f"/v1/predictions/{ids[0]}").json()["progress"]["step"] < 1:  # memory of the image's first step is not the streams'
            assert time.monotonic() < deadline, "the first step of the image takes more than a minute"
            time.sleep(0.02)
        before = server.memory_mib()
        streams = []
        try:
            for _ in range(IDLE_STREAMS):
                streams.append(socket.create_connection(("127.0.0.1", server.port), timeout=60))
                streams[-1].sendall(request)
            for s in streams:
                got = b""
                while b"event: queue" not in got and b"event: progress" not in got:
                    part = s.recv(4096)
                    assert part, got
                    got += part
            memory = server.memory_mib() - before
            begin = http_cpu_s(server.process.pid)
            time.sleep(seconds)
            cpu = http_cpu_s(server.process.pid) - begin
            status = server.get(f"/v1/predictions/{ids[1]}").json()["status"]
        finally:
            for s in streams:
                s.close()
            for prediction in ids:
                server.post(f"/v1/predictions/{prediction}/cancel")
        assert memory < IDLE_MIB, f"{IDLE_STREAMS} idle streams take {memory:.0f} MiB"
        if status != "queued":
            return f"{IDLE_STREAMS} idle streams: {memory:.1f} MiB; the time was not measured, the image before was drawn too soon"
        assert cpu < IDLE_SHARE * seconds, f"{IDLE_STREAMS} idle streams take {cpu} s of the processor in {seconds} s"
        return f"{IDLE_STREAMS} idle streams: {memory:.1f} MiB, {cpu:.2f} s of the processor in {seconds} s"


def soak(folder, seconds, clients, seed):
    flags = ["--threads", "2", "--max-lora-rank", "64", "--max-sequences", "16", "--max-queue", "64", "--cache-memory", "8",
             "--write-timeout", "5", *(f"--lora={name}={TALES}/adapters/{name}" for name in ("shout", "lower"))]
    with serve(folder, *flags) as server:
        run = Soak(server, seconds, clients, seed)
        asyncio.run(run.run())
        growth = run.finish()
        assert server.is_alive()
        assert not run.problems, "\n".join(run.problems[:20])
        return f"{run.counts['answered']} requests in {seconds} s, memory {run.rss[-1]:.0f} MiB ({100 * growth:+.2f} %): {dict(run.counts)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(soak(pathlib.Path(folder), options.seconds, options.clients, options.seed))
        print(idle_streams(pathlib.Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
