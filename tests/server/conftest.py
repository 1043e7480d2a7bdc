"""A server per test session, stopped by its process id; each test file may start others with other flags."""
import contextlib
import pathlib
import signal
import subprocess

import httpx
import pytest
from redline_binary import binary

ROOT = pathlib.Path(__file__).resolve().parents[2]
TALES = ROOT / "assets/redline-tales"
STOP_S = 60  # far above what a stop takes; a test fails then instead of hanging


class Server:
    def __init__(self, process, url, log):
        self.process, self.url, self.log = process, url, log
        self.port = int(url.rsplit(":", 1)[1])
        self.client = httpx.Client(base_url=url, timeout=120, verify=False)

    def post(self, path, body=None, **options):
        return self.client.post(path, json=body, **options)

    def get(self, path, **options):
        return self.client.get(path, **options)

    def is_alive(self):
        return self.process.poll() is None and self.get("/livez").status_code == 200

    def metric(self, name):
        """The sum of a metric over its labels."""
        lines = [line for line in self.get("/metrics").text.splitlines() if line.startswith((name + "{", name + " "))]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def memory_mib(self):
        """The resident memory of the process."""
        lines = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

    def stop(self, signal_number=signal.SIGTERM):
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        try:
            return self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


@contextlib.contextmanager
def serve(folder, *flags, models=(str(TALES),), waits=True):
    log = folder / "log.txt"
    errors = open(log, "w", encoding="utf-8")
    port = () if "--port" in flags else ("--port", "0")
    command = [binary(), "serve", *models, *port, *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    server = None
    try:
        line = process.stdout.readline()
        assert line.startswith("listening on "), log.read_text(encoding="utf-8")
        server = Server(process, line.split()[-1], log)
        if waits:
            while server.get("/health").status_code != 200:
                assert process.poll() is None, log.read_text(encoding="utf-8")
        yield server
    finally:
        if server:
            server.stop()
        elif process.poll() is None:
            process.terminate()
            process.wait(STOP_S)
        process.stdout.close()
        errors.close()
    said = log.read_text(encoding="utf-8", errors="replace")
    assert "WARNING: ThreadSanitizer" not in said, said[said.index("WARNING: ThreadSanitizer"):][:20000]


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    adapters = [f"--lora={name}={TALES}/adapters/{name}" for name in ("shout", "lower")]
    with serve(tmp_path_factory.mktemp("server"), "--threads", "2", "--dtype", "f32", "--write-timeout", "2", *adapters) as running:
        yield running


@pytest.fixture(scope="session")
def start(tmp_path_factory):
    """start("--flag", ...) as a context manager."""
    return lambda *flags, **options: serve(tmp_path_factory.mktemp("server"), *flags, **options)
