"""tools/setup.sh against stand-ins for dpkg-query, apt-get, apt-cache, sudo and id."""
import os
import pathlib
import shutil
import subprocess
import time

import pytest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"

STANDINS = {
    # "ii  name" for each of the arguments that is installed
    "dpkg-query": 'shift 2; for p; do grep -qx "$p" "$FAKE/installed" && echo "ii  $p"; done; true',
    "apt-cache": 'grep -qx "$2" "$FAKE/available" && echo "  Candidate: 1.0" || echo "  Candidate: (none)"',
    "apt-get": """echo "apt-get $*" >>"$FAKE/log"
case $1 in
  update) [ ! -e "$FAKE/no_network" ] && cat "$FAKE/archive" >"$FAKE/available" ;;
  install) shift; for p; do case $p in -*) ;; *) grep -qx "$p" "$FAKE/available" || exit 100; echo "$p" >>"$FAKE/installed" ;; esac; done ;;
esac""",
    "sudo": 'echo "sudo $*" >>"$FAKE/log"; exec "$@"',
    "id": 'cat "$FAKE/uid"',
    "g++": "echo 12",
}
BUILD = "g++ cmake ninja-build pkg-config libfmt-dev libhwloc-dev nlohmann-json3-dev libpcre2-dev libutf8proc-dev libpng-dev libjpeg-dev libwebp-dev zlib1g-dev libboost-dev libssl-dev libcurl4-openssl-dev libedit-dev python3-dev".split()


class Machine:
    """A distribution whose archive has `archive`; nothing is installed, no package list fetched yet."""

    def __init__(self, folder, distribution, version):
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name, body in STANDINS.items():
            self.command(name, body)
        # Only these of the real system: what the script calls, not the tools that it looks for.
        for name in "bash env find grep sed cut cat tail mktemp rm mkdir tr cmp dirname test".split():
            self.bin.joinpath(name).symlink_to(shutil.which(name))
        (folder / "tools").mkdir()
        shutil.copy(TOOLS / "setup.sh", folder / "tools")
        shutil.copy(TOOLS / "requirements-test.txt", folder / "tools")
        (folder / "build/venv").mkdir(parents=True)
        shutil.copy(TOOLS / "requirements-test.txt", folder / "build/venv/requirements.txt")  # no pip here
        (folder / "os-release").write_text(f'ID={distribution}\nVERSION_ID="{version}"\n')
        for name in ("installed", "available", "archive", "log"):
            (folder / name).write_text("")
        (folder / "uid").write_text("0\n")
        self.archive(*BUILD)

    def command(self, name, body):
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)

    def archive(self, *packages):
        with (self.folder / "archive").open("a") as file:
            file.writelines(f"{package}\n" for package in packages)

    def lines(self, name):
        return (self.folder / name).read_text().splitlines()

    def setup(self, *arguments):
        environment = {"PATH": str(self.bin), "FAKE": str(self.folder), "SETUP_OS_RELEASE": str(self.folder / "os-release")}
        return subprocess.run(["tools/setup.sh", *arguments], cwd=self.folder, env=environment, text=True,
                              capture_output=True, timeout=60)


@pytest.fixture
def debian(tmp_path):
    return Machine(tmp_path, "debian", "12")


def test_installs_once_and_then_does_nothing(debian):
    first = debian.setup()
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("setup: installing g++ cmake ninja-build")
    assert debian.lines("log")[0].startswith("apt-get update")
    assert sorted(debian.lines("installed")) == sorted(BUILD)
    (debian.folder / "log").write_text("")
    second = debian.setup()
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert debian.lines("log") == []


def test_installs_only_what_is_missing_without_an_update(debian):
    debian.folder.joinpath("installed").write_text("\n".join(BUILD[:-1]) + "\n")
    debian.folder.joinpath("available").write_text("\n".join(BUILD) + "\n")
    assert debian.setup().stdout == f"setup: installing {BUILD[-1]} \n"
    assert [line.split()[-1] for line in debian.lines("log")] == [BUILD[-1]]


def test_stale_lists_are_fetched_again(debian):
    debian.folder.joinpath("available").write_text("\n".join(BUILD) + "\n")
    debian.command("apt-get", STANDINS["apt-get"].replace("install) shift;", 'install) shift; [ -e "$FAKE/fresh" ] || exit 100;')
                   .replace("update) ", 'update) touch "$FAKE/fresh"; '))
    debian.bin.joinpath("touch").symlink_to(shutil.which("touch"))
    assert debian.setup().returncode == 0
    assert [line.split()[1] for line in debian.lines("log")] == ["install", "update", "install"]


def test_uses_sudo_only_when_not_root_and_something_is_missing(debian):
    debian.folder.joinpath("uid").write_text("1000\n")
    assert debian.setup().returncode == 0
    assert any(line.startswith("sudo ") for line in debian.lines("log"))
    (debian.folder / "log").write_text("")
    (debian.bin / "sudo").unlink()
    assert debian.setup().returncode == 0


def test_without_sudo_it_says_what_to_install_by_hand(debian):
    debian.folder.joinpath("uid").write_text("1000\n")
    (debian.bin / "sudo").unlink()
    run = debian.setup()
    assert run.returncode == 1
    assert "as root, install by hand: apt-get install g++ cmake" in run.stderr


def test_without_a_network_it_names_the_packages(debian):
    debian.folder.joinpath("no_network").write_text("")
    run = debian.setup()
    assert run.returncode == 1
    assert "is there a network?" in run.stderr and "libutf8proc-dev" in run.stderr


def test_check_installs_nothing(debian):
    run = debian.setup("--check")
    assert run.returncode == 1 and run.stderr.startswith("setup: missing: g++ cmake")
    assert debian.lines("log") == []


def test_ubuntu_22_04_gets_gcc_12(tmp_path):
    ubuntu = Machine(tmp_path, "ubuntu", "22.04")
    ubuntu.archive("g++-12")
    ubuntu.command("g++", "echo 11")
    assert ubuntu.setup().returncode == 0
    assert "g++-12" in ubuntu.lines("installed")
    assert ubuntu.setup("--compiler").returncode == 1
    ubuntu.command("g++-12", "echo 12")
    assert ubuntu.setup("--compiler").stdout == "g++-12\n"


def archive_of_tests(machine, *optional):
    """The archive has what tests need, and of the optional packages these."""
    script = (TOOLS / "setup.sh").read_text()
    tests = next(line for line in script.splitlines() if line.startswith("test_packages=("))
    machine.archive(*tests[len("test_packages=("):-1].split(), *optional)


def test_an_optional_package_that_is_not_packaged_is_not_asked_for_every_time(debian):
    archive_of_tests(debian, "libclang-rt-14-dev")
    run = debian.setup("test")
    assert run.returncode == 0, run.stderr
    assert "librapidcheck-dev is not packaged for debian 12" in run.stdout
    assert "libclang-rt-14-dev" in debian.lines("installed")
    assert debian.setup("test").stdout == ""


def test_an_optional_package_that_appears_later_is_installed_after_a_day(debian):
    archive_of_tests(debian, "libclang-rt-14-dev", "libdnnl-dev")
    debian.setup("test")
    debian.archive("librapidcheck-dev")
    assert debian.setup("test").stdout == ""
    yesterday = time.time() - 25 * 3600
    os.utime(debian.folder / "build/.packages-unavailable", (yesterday, yesterday))
    assert "installing  librapidcheck-dev" in debian.setup("test").stdout
    assert "librapidcheck-dev" in debian.lines("installed")


def test_what_another_distribution_lacked_is_asked_for_at_once(debian):
    archive_of_tests(debian, "libclang-rt-14-dev", "libdnnl-dev")
    debian.setup("test")
    debian.archive("librapidcheck-dev", "libclang-rt-19-dev")
    (debian.folder / "os-release").write_text('ID=debian\nVERSION_ID="13"\n')
    assert debian.setup("test").returncode == 0
    assert "librapidcheck-dev" in debian.lines("installed")


def test_apt_cache_may_write_on_after_the_line_that_is_looked_for(debian):
    """It does, a table of versions: a reader that leaves at the first match ends it by SIGPIPE, which is not an answer."""
    debian.command("apt-cache", STANDINS["apt-cache"] + """
for ((i = 0; i < 20000; ++i)); do echo "     1.0 500" || exit 141; done""")
    archive_of_tests(debian, "librapidcheck-dev", "libdnnl-dev", "libclang-rt-14-dev")
    run = debian.setup("test")
    assert run.returncode == 0, run.stderr
    assert "not packaged" not in run.stdout
    assert {"librapidcheck-dev", "libdnnl-dev", "libclang-rt-14-dev"} <= set(debian.lines("installed"))


@pytest.mark.parametrize("distribution,version", [("fedora", "40"), ("debian", "11"), ("ubuntu", "20.04")])
def test_another_system_needs_the_tools_and_is_told_which(tmp_path, distribution, version):
    machine = Machine(tmp_path, distribution, version)
    run = machine.setup()
    assert run.returncode == 1
    assert f'this is "{distribution} {version}"' in run.stderr
    assert "Missing: cmake ninja pkg-config." in run.stderr
    for tool in ("cmake", "ninja", "pkg-config"):
        machine.command(tool, "true")
    assert machine.setup().returncode == 0
    assert machine.lines("log") == []


def test_unknown_argument(debian):
    assert 'unknown argument "tests"' in debian.setup("tests").stderr
