"""tools/check_fresh against stand-ins for id, debootstrap, unshare, mount, chroot and tar: no root, no network."""
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/check_fresh"

STANDINS = {
    "id": 'echo "$FAKE_UID"',
    "debootstrap": """echo "debootstrap $*" >>"$FAKE/log"
[ ! -e "$FAKE/no_network" ] || { echo "E: no network"; exit 1; }
for argument; do case $argument in /*) system=$argument ;; esac; done
mkdir -p "$system"/etc/apt/apt.conf.d "$system"/etc/sudoers.d "$system"/dev "$system"/usr/local/share/ca-certificates "$system"/home
echo "deb http://mirror.invalid/debian bookworm main" >"$system/etc/apt/sources.list" """,
    "unshare": 'while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"',
    "mount": 'echo "mount $*" >>"$FAKE/log"',
    "tar": 'exec "$REAL_TAR" --no-same-owner "$@"',
    # What runs as somebody runs in the folder of that user within the system; of the rest only ~ has an answer.
    "chroot": """echo "chroot $*" >>"$FAKE/log"
case $1 in --userspec=*) shift ;; *) case $* in *"echo ~"*) echo /home ;; esac; exit ;; esac
system=$1; shift 3
while [ "${1#*=}" != "$1" ]; do case $1 in HOME=*) HOME=$system${1#HOME=} ;; PATH=*) ;; *) export "$1" ;; esac; shift; done
exec "$@" """,
}


class Machine:
    def __init__(self, folder):
        self.folder = folder
        self.repository = folder / "repository"
        for part in ("bin", "scripts", "temporary", "repository/tools"):
            (folder / part).mkdir(parents=True)
        for name, body in STANDINS.items():
            (folder / "bin" / name).write_text(f"#!/bin/bash\n{body}\n")
            (folder / "bin" / name).chmod(0o755)
        (folder / "debian-archive-keyring.gpg").write_text("")
        (folder / "scripts/bookworm").write_text(f"keyring {folder}/debian-archive-keyring.gpg\n")
        (folder / "scripts/jammy").write_text(f"keyring {folder}/ubuntu-archive-keyring.gpg\n")
        (folder / "log").write_text("")
        shutil.copy(TOOL, self.repository / "tools")
        (self.repository / ".gitignore").write_text("/build/\n")
        for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all"]):
            subprocess.run(["git", *command], cwd=self.repository, check=True)

    def start(self, *arguments, **variables):
        environment = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "FAKE": str(self.folder), "FAKE_UID": "0",
                       "REAL_TAR": shutil.which("tar"), "DEBOOTSTRAP_DIR": str(self.folder),
                       "TMPDIR": str(self.folder / "temporary"), **variables}
        return subprocess.Popen(["tools/check_fresh", *arguments], cwd=self.repository, env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *arguments, **variables):
        process = self.start(*arguments, **variables)
        process.output, process.errors = process.communicate(timeout=60)
        return process

    def log(self, word):
        return [line for line in (self.folder / "log").read_text().splitlines() if line.startswith(word)]

    def left(self):
        return list((self.folder / "temporary").iterdir())


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_runs_as_root_and_with_sudo_in_a_clone_and_leaves_nothing(machine):
    run = machine.run("--suite", "bookworm", "--", "bash", "-c", "test -x tools/check_fresh && test ! -e ../shared && echo $USER")
    assert run.returncode == 0, run.output + run.errors
    assert [line.split() for line in run.output.splitlines()[-2:]] == [
        ["bookworm", "root", "passed", "0", "root"], ["bookworm", "sudo", "passed", "0", "visitor"]]
    assert len(machine.log("debootstrap")) == 1
    assert any("dpkg --purge sudo" in line for line in machine.log("chroot"))
    assert machine.left() == []


def test_a_failure_shows_its_count_and_does_not_hide_the_rest(machine):
    script = 'echo "2 passed, 1 failed, 0 skipped"; echo "make: Error 1"; test $USER = visitor'
    run = machine.run("--suite", "bookworm", "--", "bash", "-c", script)
    assert run.returncode == 1
    assert [line.split(None, 4)[2:] for line in run.output.splitlines()[-2:]] == [
        ["FAILED", "0", "2 passed, 1 failed, 0 skipped"], ["passed", "0", "2 passed, 1 failed, 0 skipped"]]
    assert "make: Error 1" in run.errors
    assert machine.left() == []


def test_a_kept_base_is_fetched_once(machine):
    arguments = ["--suite", "bookworm", "--user", "root", "--folder", str(machine.folder / "bases"), "--", "true"]
    assert [machine.run(*arguments).returncode for _ in range(2)] == [0, 0]
    assert len(machine.log("debootstrap")) == 1


def test_a_base_that_cannot_be_fetched_is_a_failure_and_not_kept(machine):
    (machine.folder / "no_network").write_text("")
    run = machine.run("--suite", "bookworm", "--folder", str(machine.folder / "bases"), "--", "true")
    assert run.returncode == 1 and "E: no network" in run.errors
    assert list((machine.folder / "bases").iterdir()) == [] and machine.left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_what_runs_and_cleans_up(machine, number):
    process = machine.start("--suite", "bookworm", "--user", "sudo", "--", "bash", "-c", "echo $$ >../pid; exec sleep 300")
    found = []
    for _ in range(600):
        found = [path for path in machine.folder.glob("temporary/*/*/home/pid") if path.read_text().strip()]
        if found:
            break
        time.sleep(0.05)
    pid = int(found[0].read_text())
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert machine.left() == []
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_keep_shared_and_uncommitted_changes(machine):
    (machine.folder / "seen").mkdir()
    (machine.repository / "new").write_text("")
    run = machine.run("--suite", "bookworm", "--user", "sudo", "--keep", "--shared", str(machine.folder / "seen"), "--", "test", "!", "-e", "new")
    assert run.returncode == 0, run.errors
    assert "uncommitted changes are not in the clone" in run.errors
    assert any("remount,bind,ro" in line for line in machine.log("mount"))
    assert run.output.splitlines()[-1] == f"kept: {machine.left()[0]}"


@pytest.mark.parametrize("arguments,said", [
    (["tests"], 'unknown argument "tests"'),
    (["--suite"], "--suite needs a value"),
    (["--user", "me"], '--user is root, sudo or both, not "me"'),
    (["--suite", "bookworm", "--"], "no command after --"),
    (["--suite", "hamm"], 'debootstrap knows no suite "hamm"'),
    (["--suite", "jammy"], "it is in the package ubuntu-keyring"),
    (["--suite", "bookworm", "--suite", "jammy", "--mirror", "http://mirror.invalid"], "--mirror is the archive of one --suite"),
    (["--shared", "nowhere"], "there is no folder nowhere"),
])
def test_wrong_usage(machine, arguments, said):
    run = machine.run(*arguments)
    assert run.returncode == 2 and said in run.errors
    assert machine.log("") == []


def test_needs_root(machine):
    run = machine.run("--suite", "bookworm", FAKE_UID="1000")
    assert run.returncode == 2 and "needs root" in run.errors
