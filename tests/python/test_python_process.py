"""Importing, Ctrl-C, fork, the end of the process."""
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

INTERRUPT = """
import redline, signal, sys, time, _thread
model = redline.Model(sys.argv[1])
{before}
print("ready", flush=True)
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", flush=True)
    print(model.generate("Once", max_tokens=2, ignore_eos=True).finish_reason)
"""


def python(code, *arguments, **options):
    return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=300,
                          check=False, **options)


@pytest.mark.without_library
def test_import_loads_no_array_library_and_not_the_engine():
    found = python("import sys; before = set(sys.modules); import redline; "
                   "print([m for m in ('numpy', 'torch', 'PIL', 'asyncio', 'redline._native') if m in sys.modules])")
    assert found.stdout == "[]\n", found.stderr


@pytest.mark.without_library
def test_the_missing_library_is_named(tmp_path):
    found = python("import redline; redline.devices()", env={**os.environ, "REDLINE_LIBRARY": str(tmp_path / "none.so")})
    assert "ImportError: redline: no libredline.so; looked for" in found.stderr and "none.so" in found.stderr
    (tmp_path / "text.so").write_text("no library")
    found = python("import redline; redline.devices()", env={**os.environ, "REDLINE_LIBRARY": str(tmp_path / "text.so")})
    assert "text.so cannot be loaded" in found.stderr


def test_another_library(tmp_path):
    """REDLINE_LIBRARY replaces the library that the module finds beside it; one of another name is refused."""
    from redline import _redline

    used = pathlib.Path(_redline.library_path()).resolve()
    (tmp_path / "libredline.so").symlink_to(used)
    code = "import redline; from redline import _redline; print(_redline.library_path())"
    found = python(code, env={**os.environ, "REDLINE_LIBRARY": str(tmp_path / "libredline.so")})
    assert found.stdout.strip() == str(tmp_path / "libredline.so"), found.stderr
    unrelated = next(line.split()[-1] for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if "libc.so.6" in line)
    found = python(code, env={**os.environ, "REDLINE_LIBRARY": unrelated})
    assert f"{unrelated} is not the library that" in found.stderr


def interrupt(program, *arguments):
    """Sends SIGINT to the program, a moment after it is ready."""
    process = subprocess.Popen([sys.executable, "-c", program, *map(str, arguments)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    return process.returncode, out, errors


@pytest.mark.parametrize("call", [
    "while True: model.generate('Once', max_tokens=4000, ignore_eos=True)",
    "while True: list(model.generate('Once', max_tokens=4000, ignore_eos=True, stream=True))",
    "while True: model.logits([1] * 1000)",
    "while True: model.generate(['Once'] * 20, max_tokens=1000, ignore_eos=True)",
])
def test_ctrl_c(root, call):
    code, out, errors = interrupt(INTERRUPT.format(before="", call=call), root / "assets/redline-tales")
    assert (code, out) == (0, "interrupted\nlength\n"), errors


def test_ctrl_c_in_a_pipeline(root, painter):
    program = """
import redline, sys
painter = redline.ImagePipeline(sys.argv[1])
print("ready", flush=True)
try:
    while True: painter("a red circle", num_inference_steps=200)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    print(len(painter("a red circle", num_inference_steps=1)))
"""
    code, out, errors = interrupt(program, painter.path)
    assert (code, out) == (0, "interrupted\n1\n"), errors


def test_after_fork(root):
    found = python("""
import os, redline, sys
model = redline.Model(sys.argv[1])
model.generate("Once", max_tokens=1)
stream = model.generate("Once", max_tokens=500, ignore_eos=True, stream=True)
next(stream)
child = os.fork()
if child == 0:
    for use in (lambda: model.generate("Once"), lambda: model.logits([1]), lambda: model.tokenizer, model.new_sequence):
        try:
            use()
            print("no error")
        except redline.ClosedError as error:
            print("before fork()" in str(error) and "open it in this process: redline.Model(path)" in str(error), flush=True)
    print(redline.Model(sys.argv[1]).generate("Once", max_tokens=2, ignore_eos=True).finish_reason, flush=True)
    sys.exit(0)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), model.generate("Once", max_tokens=2, ignore_eos=True).finish_reason)
""", root / "assets/redline-tales")
    assert found.stdout == "True\nTrue\nTrue\nTrue\nlength\n0 length\n", found.stderr


def test_multiprocessing_by_spawn(root, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("""
import multiprocessing, redline, sys

def work(path):
    return redline.Model(path, threads=1).generate("Once", max_tokens=3, temperature=0).text

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(len(set(pool.map(work, [sys.argv[1]] * 2))))
""")
    found = subprocess.run([sys.executable, program, root / "assets/redline-tales"], capture_output=True, text=True, timeout=300,
                           check=False)
    assert found.stdout == "1\n", found.stderr


def test_the_process_ends_with_open_models_and_running_requests(root):
    found = python("""
import redline, sys, threading, time

class Slow:  # a moment in which daemon threads ask for the lock of an interpreter that ends
    def __del__(self, sleep=time.sleep):
        sleep(0.15)

slow = Slow()
model = redline.Model(sys.argv[1])
stream = model.generate("Once", max_tokens=4000, ignore_eos=True, stream=True)
next(stream)

def forever(call):
    while True:
        call()

for call in (lambda: model.generate("The dog", max_tokens=4000, ignore_eos=True), lambda: model.logits([1] * 200),
             lambda: list(model.generate("A cat", max_tokens=4000, ignore_eos=True, stream=True))):
    threading.Thread(target=forever, args=(call,), daemon=True).start()
next(stream)
time.sleep(0.1)
print("end")
""", root / "assets/redline-tales")
    assert (found.returncode, found.stdout) == (0, "end\n"), found.stderr


def test_threads_may_be_joined_when_the_interpreter_ends(root):
    found = python("""
import atexit, sys, threading, time
ends = threading.Event()

@atexit.register  # before the package registers anything, so it runs after it
def join():
    ends.set()
    worker.join()
    print("joined")

import redline
model = redline.Model(sys.argv[1], threads=1)

def work():
    while not ends.is_set():
        model.tokenizer.encode("Once upon a time")

def spin():
    while True:
        sum(range(1000))

worker = threading.Thread(target=work, daemon=True)
worker.start()
for _ in range(3):  # they hold the lock of the interpreter while others wait for it
    threading.Thread(target=spin, daemon=True).start()
for _ in range(6):
    threading.Thread(target=lambda: [model.tokenizer.encode("The dog") for _ in iter(int, 1)], daemon=True).start()
time.sleep(0.2)
""", root / "assets/redline-tales")
    assert (found.returncode, found.stdout) == (0, "joined\n"), found.stderr
