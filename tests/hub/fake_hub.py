"""A server that speaks the part of the Hugging Face Hub's API that downloads need, and fails on request.

Large files are redirected to a second port, as the Hub redirects to its storage. `faults` maps a path of a repository to what
goes wrong with it; each entry is used once, in order:

    ("drop", n)        the connection ends after n bytes of the body
    ("status", code)   an answer of this status; ("status", code, headers)
    ("silence", s)     nothing for s seconds
    ("slow", s)        a pause of s seconds before every 64 KiB
    ("hold", n)        n bytes of the body, then nothing until the client hangs up
    ("norange",)       the whole file, whatever range was asked for
    ("bytes", data)    these bytes in place of the file's
    ("length", n)      a Content-Length of n
    ("trickle", s)     a body of bytes that come one by one, a pause of s seconds before each
    ("endless",)       a body that never ends
    ("redirect",)      a redirect to itself
    ("headers", n)     headers of n bytes
    ("body", data)     an answer of 200 with these bytes; ("body", data, headers)

They are of files; "api" is the description of a revision, with "status", "silence" and those after "length".
"""
import collections
import contextlib
import hashlib
import http.server
import json
import re
import threading
import time
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repository:
    def __init__(self, files, lfs=(), commit=COMMIT, token=None, gated=False, revisions=("main",)):
        self.files = {path: data.encode() if isinstance(data, str) else data for path, data in files.items()}
        self.lfs, self.commit, self.token, self.gated = set(lfs), commit, token, gated
        self.revisions = {*revisions, commit}
        self.sizes = {}  # that the Hub claims, where they are wrong
        self.etags = {}

    def etag(self, path):
        if path in self.etags:
            return self.etags[path]
        data = self.files[path]
        return hashlib.sha256(data).hexdigest() if path in self.lfs else git_sha1(data)

    def sibling(self, path, has_blobs):
        size = self.sizes.get(path, len(self.files[path]))
        if not has_blobs:
            return {"rfilename": path}
        if path in self.lfs:
            return {"rfilename": path, "size": size, "blobId": "0" * 40,
                    "lfs": {"sha256": self.etag(path), "size": size, "pointerSize": 134}}
        return {"rfilename": path, "size": size, "blobId": self.etag(path)}


class Hub:
    def __init__(self):
        self.repositories = {}
        self.faults = collections.defaultdict(list)
        self.requests = []  # (port name, method, path, headers)
        self.has_blobs = True
        self.lock = threading.Lock()
        self.servers = [self._serve("hub"), self._serve("storage")]
        ports = [s.server_address[1] for s in self.servers]
        self.endpoint, self.storage = f"http://127.0.0.1:{ports[0]}", f"http://localhost:{ports[1]}"  # another host

    def _serve(self, name):
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                self.answer(False)

            def do_GET(self):
                self.answer(True)

            def answer(self, with_body):
                with hub.lock:
                    hub.requests.append((name, self.command, self.path, dict(self.headers)))
                try:
                    hub.handle(self, name, with_body)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return server

    def close(self):
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def count(self, part, method="GET"):
        return sum(m == method and part in path for _, m, path, _ in self.requests)

    @staticmethod
    def send(handler, status, body=b"", headers=(), with_body=True):
        handler.send_response(status)
        headers = dict(headers)
        headers.setdefault("Content-Length", str(len(body)))
        for key, value in headers.items():
            handler.send_header(key, value)
        handler.end_headers()
        if with_body:
            handler.wfile.write(body)

    def error(self, handler, status, code, message, with_body):
        headers = {"X-Error-Code": code, "X-Error-Message": message}
        self.send(handler, status, json.dumps({"error": message}).encode(), headers, with_body)

    def handle(self, handler, name, with_body):
        path = urllib.parse.unquote(urllib.parse.urlparse(handler.path).path)
        if name == "storage":
            repository, file = re.fullmatch(r"/(.+?)\+(.+)", path).groups()
            if handler.headers.get("Authorization"):
                return self.send(handler, 400, b"the token went to the storage")
            return self.send_file(handler, self.repositories[repository], file, with_body)
        if match := re.fullmatch(r"/api/models/(.+)/revision/(.+)", path):
            repository, revision = match.groups()
            if self.take_fault(handler, "api", with_body):
                return None
            return self.describe(handler, repository, revision, with_body)
        if match := re.fullmatch(r"/api/models/(.+)/tree/(.+)", path):
            return self.list_tree(handler, *match.groups(), with_body)
        if match := re.fullmatch(r"/(.+?)/resolve/([^/]+)/(.+)", path):
            return self.resolve(handler, *match.groups(), with_body)
        return self.error(handler, 404, "", "no such page", with_body)

    def may_read(self, handler, repository, with_body):
        found = self.repositories.get(repository)
        token = (handler.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token and token == "bad":
            self.send(handler, 401, b"{}", {"X-Error-Message": "Invalid credentials in Authorization header"}, with_body)
        elif found is None or (found.token and token != found.token and not found.gated):
            self.error(handler, 404 if token else 401, "RepoNotFound", "Repository not found", with_body)
        elif found.token and token != found.token:
            self.error(handler, 403 if token else 401, "GatedRepo", "Access to this model is restricted", with_body)
        else:
            return found
        return None

    def describe(self, handler, repository, revision, with_body):
        found = self.may_read(handler, repository, with_body)
        if found is None:
            return None
        if revision not in found.revisions:
            return self.error(handler, 404, "RevisionNotFound", f"Invalid rev id: {revision}", with_body)
        has_blobs = self.has_blobs and "blobs=true" in handler.path
        body = {"id": repository, "sha": found.commit, "siblings": [found.sibling(p, has_blobs) for p in found.files]}
        return self.send(handler, 200, json.dumps(body).encode(), {"Content-Type": "application/json"}, with_body)

    def list_tree(self, handler, repository, revision, with_body):
        """What huggingface_hub asks for."""
        found = self.may_read(handler, repository, with_body)
        if found is None:
            return None
        entries = [{"type": "file", "path": path, "size": len(data), "oid": git_sha1(data)} for path, data in found.files.items()]
        for entry in entries:
            if entry["path"] in found.lfs:
                entry["lfs"] = {"oid": found.etag(entry["path"]), "size": entry["size"], "pointerSize": 134}
        return self.send(handler, 200, json.dumps(entries).encode(), {"Content-Type": "application/json"}, with_body)

    def resolve(self, handler, repository, revision, path, with_body):
        found = self.may_read(handler, repository, with_body)
        if found is None:
            return None
        if path not in found.files or revision not in found.revisions:
            return self.error(handler, 404, "EntryNotFound", "Entry not found", with_body)
        headers = {"X-Repo-Commit": found.commit, "ETag": f'"{found.etag(path)}"'}
        if path not in found.lfs:
            return self.send_file(handler, found, path, with_body, headers)
        headers |= {"X-Linked-Etag": f'"{found.etag(path)}"', "X-Linked-Size": str(len(found.files[path])),
                    "ETag": '"storage"', "Location": f"{self.storage}/{repository}+{urllib.parse.quote(path)}"}
        return self.send(handler, 302, b"", headers, with_body)

    def take_fault(self, handler, path, with_body):
        """A fault that is an answer of its own; others stay in the list."""
        with self.lock:
            fault = self.faults[path][0] if self.faults[path] else None
            if fault and fault[0] in ("status", "silence", "trickle", "endless", "redirect", "headers", "body"):
                self.faults[path].pop(0)
        if fault and fault[0] == "status":
            self.send(handler, fault[1], b"no", fault[2] if len(fault) > 2 else {}, with_body)
            return True
        if fault and fault[0] == "silence":
            time.sleep(fault[1])
            handler.close_connection = True
            return True
        if fault and fault[0] in ("trickle", "endless"):
            handler.send_response(200)
            if fault[0] == "trickle":
                handler.send_header("Content-Length", "1000000")
            handler.end_headers()
            handler.close_connection = True
            while True:  # until the client hangs up
                time.sleep(fault[1] if fault[0] == "trickle" else 0)
                handler.wfile.write(b" " if fault[0] == "trickle" else b" " * (1 << 20))
        if fault and fault[0] == "redirect":
            self.send(handler, 302, b"", {"Location": handler.path}, with_body)
            return True
        if fault and fault[0] == "headers":
            self.send(handler, 200, b"{}", {f"X-{i}": "x" * 1000 for i in range(fault[1] // 1000)}, with_body)
            return True
        if fault and fault[0] == "body":
            self.send(handler, 200, fault[1], fault[2] if len(fault) > 2 else {}, with_body)
            return True
        return False

    def send_file(self, handler, repository, path, with_body, headers=()):
        if self.take_fault(handler, path, with_body):
            return
        with self.lock:
            fault = self.faults[path].pop(0) if self.faults[path] and with_body else ("none",)
        data, status, headers = repository.files[path], 200, dict(headers)
        if fault[0] == "bytes":
            data = fault[1]
        match = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        if match and fault[0] != "norange":
            begin = int(match[1])
            if begin >= len(data):
                self.send(handler, 416, b"", {"Content-Range": f"bytes */{len(data)}"}, with_body)
                return
            headers["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
            data, status = data[begin:], 206
        if fault[0] == "length":
            headers["Content-Length"] = str(fault[1])
            handler.close_connection = True
        headers.setdefault("Content-Length", str(len(data)))
        handler.send_response(status)
        for key, value in headers.items():
            handler.send_header(key, value)
        handler.end_headers()
        if not with_body:
            return
        if fault[0] == "drop":
            handler.wfile.write(data[:fault[1]])
            handler.close_connection = True
        elif fault[0] == "slow":
            for begin in range(0, len(data), 1 << 16):
                time.sleep(fault[1])
                handler.wfile.write(data[begin:begin + (1 << 16)])
        elif fault[0] == "hold":
            handler.wfile.write(data[:fault[1]])
            handler.wfile.flush()
            handler.connection.settimeout(60)
            with contextlib.suppress(OSError):
                handler.connection.recv(1)  # ends with the connection: a client waits for the rest and says nothing
            handler.close_connection = True
        else:
            handler.wfile.write(data)
