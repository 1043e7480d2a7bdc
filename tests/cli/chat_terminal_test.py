"""`redline chat` on a terminal: editing, history, pasted text, Ctrl-C, reasoning."""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import termios
import time

import pytest
from redline_binary import ROOT, binary

TALES = ROOT / "assets/redline-tales"
WAIT_S = 60  # far above what anything takes
LEFT, UP, HOME, CTRL_C, CTRL_D, CTRL_J = "\x1b[D", "\x1b[A", "\x1b[H", "\x03", "\x04", "\n"


class Session:
    def __init__(self, environment, *flags):
        master, terminal = pty.openpty()
        self.master, self.seen, self.position = master, "", 0
        self.process = subprocess.Popen([binary(), "chat", str(TALES), *flags], stdin=terminal,
                                        stdout=terminal, stderr=terminal, env=environment, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(terminal)

    def read(self):
        if select.select([self.master], [], [], 0.1)[0]:
            try:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
            except OSError:  # the other end is closed
                return False
        return True

    def wait(self, pattern):
        """Waits for a regular expression in what has not been waited for yet."""
        end = time.monotonic() + WAIT_S
        while not (match := re.search(pattern, self.seen[self.position:], re.DOTALL)):
            assert time.monotonic() < end and self.read(), f"no {pattern!r} in {self.seen[self.position:]!r}"
        self.position += match.end()
        return match

    def type(self, text):
        os.write(self.master, text.encode())

    def prompt(self):
        self.wait(r">>> ")

    def answered(self):
        """Redrawing a line repeats the prompt, so this waits for the end of an answer with --max-tokens first."""
        self.wait(r"tokens: max-tokens\)")
        self.prompt()

    def end(self):
        end = time.monotonic() + WAIT_S
        while self.process.poll() is None and time.monotonic() < end:
            self.read()
        return self.process.wait(1)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)


@pytest.fixture
def environment(tmp_path):
    return os.environ | {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"), "TERM": "xterm", "LC_ALL": "C.UTF-8"}


@pytest.fixture
def start(environment):
    sessions = []

    def start(*flags):
        sessions.append(Session(environment, *flags))
        return sessions[-1]
    yield start
    for session in sessions:
        session.close()


def has_editor():
    return "libedit" in subprocess.run(["ldd", binary()], capture_output=True, text=True).stdout


editor = pytest.mark.skipif("not has_editor()", reason="built without libedit")


def saved(path):
    return [(m["role"], m["content"]) for m in json.loads(pathlib.Path(path).read_text())["messages"]]


def said(path):
    return [content for role, content in saved(path) if role == "user"]


def test_a_conversation(start, tmp_path):
    session = start("--max-tokens", "4", "--temperature", "0")
    session.wait("/help lists commands")
    session.prompt()
    session.type("Once\r")
    session.prompt()
    session.type(f"/save {tmp_path}/a.json\r")
    session.wait("2 messages written")
    session.type("/nothing\r")
    session.wait("is not a command")
    session.prompt()
    session.type(CTRL_D)
    assert session.end() == 0
    assert said(tmp_path / "a.json") == ["Once"]


@editor
def test_editing_and_history(start, tmp_path):
    session = start("--max-tokens", "1")
    session.prompt()
    session.type("héllo wrld" + 3 * LEFT + "o\r")
    session.answered()
    session.type(UP + HOME + "Oh, \r")
    session.answered()
    session.type("one" + CTRL_J + "two\r")
    session.answered()
    session.type("\x1b[200~three\r\nfour\n\x1b[201~five\r")
    session.answered()
    session.type(f"/sav\t{tmp_path}/a.json\r")
    session.wait("8 messages")
    session.type("/exit\r")
    assert session.end() == 0
    assert [s.replace("\r\n", "\n").replace("\n\n", "\n") for s in said(tmp_path / "a.json")] == [
        "héllo world", "Oh, héllo world", "one\ntwo", "three\nfour\nfive"]
    history = tmp_path / "state/redline/chat_history"
    assert history.stat().st_mode & 0o77 == 0
    # The next session remembers.
    session = start("--max-tokens", "1")
    session.prompt()
    session.type(UP + UP + UP + "\r")  # /exit, /save, the pasted lines
    session.answered()
    session.type(f"/save {tmp_path}/b.json\r")
    session.wait("2 messages")
    assert said(tmp_path / "b.json") == [said(tmp_path / "a.json")[-1]]


@editor
def test_ctrl_c_leaves_the_line(start, tmp_path):
    session = start("--max-tokens", "1")
    session.prompt()
    session.type("not this" + CTRL_C)
    session.wait(r"\^C")
    session.prompt()
    session.type(CTRL_C)
    session.wait("Ctrl-D or /exit ends")
    session.prompt()
    session.type("but this\r")
    session.answered()
    session.type(f"/save {tmp_path}/a.json\r")
    session.wait("2 messages")
    assert said(tmp_path / "a.json") == ["but this"]
    session.prompt()
    session.type("/edit\r")
    session.wait("but this")
    session.type(" too\r")
    session.answered()
    session.type(f"/save {tmp_path}/a.json\r")
    session.wait("2 messages")
    assert said(tmp_path / "a.json") == ["but this too"]


def test_ctrl_c_stops_the_answer_and_keeps_the_session(start, tmp_path):
    session = start("--seed", "1", "--regex", "[a-z ]{900,}", "--context", "2048", "--interpreter")
    session.prompt()
    session.type("Once upon a time\r")
    session.wait(r"time\r\n.*\w+ \w+")
    session.type(CTRL_C)
    session.wait("stopped; /retry answers again")
    session.prompt()
    session.type(f"/save {tmp_path}/a.json\r")
    session.wait("2 messages")
    roles = [role for role, _ in saved(tmp_path / "a.json")]
    assert roles == ["user", "assistant"] and saved(tmp_path / "a.json")[1][1]
    session.prompt()
    session.type("/set max-tokens 1\r")
    session.prompt()
    session.type("/retry\r")
    session.answered()
    session.type(CTRL_D)
    assert session.end() == 0


def test_a_signal_ends_it_and_restores_the_terminal(start):
    session = start()
    session.prompt()
    before = termios.tcgetattr(session.master)[3]
    session.process.send_signal(signal.SIGTERM)
    assert session.end() == -signal.SIGTERM
    after = termios.tcgetattr(session.master)[3]
    assert after & termios.ICANON and after & termios.ECHO, (before, after)
