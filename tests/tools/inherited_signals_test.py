"""Programs that tests start do not inherit signals that the run of the tests ignores (SIGINT, SIGTERM, SIGHUP, SIGPIPE ...)."""
import pathlib
import signal
import subprocess
import sys

import pytest

TESTS = pathlib.Path(__file__).resolve().parents[1]
START = "import subprocess; subprocess.run(['cat', '/proc/self/status'])"
IGNORED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2,
           signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)


def ignored_by_a_program_of(code):
    """What `cat` ignores when a Python that ignores IGNORED runs `code` and starts it."""
    def ignore():
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)
    status = subprocess.run([sys.executable, "-c", code + START], preexec_fn=ignore, restore_signals=False, text=True,
                            capture_output=True, cwd=TESTS, check=True).stdout
    mask = int(next(line for line in status.splitlines() if line.startswith("SigIgn")).split()[1], 16)
    return {number for number in IGNORED if mask >> (number - 1) & 1}


@pytest.mark.skipif(not pathlib.Path("/proc/self/status").exists(), reason="this system has no /proc")
def test_programs_that_tests_start_ignore_no_signal():
    assert signal.SIGINT in ignored_by_a_program_of("")
    assert ignored_by_a_program_of("import conftest\n") == set()


def test_the_run_itself_goes_on_ignoring_them():
    """nohup and a background job's Ctrl-C protection stay."""
    code = "import conftest, os, signal\nfor s in (1, 2, 3, 15): os.kill(os.getpid(), s)\nprint('alive')"
    run = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, cwd=TESTS,
                         preexec_fn=lambda: [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 3, 15)])
    assert run.stdout == "alive\n"
