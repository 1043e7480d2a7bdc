"""The Makefile on a machine without a compiler, with stand-ins for tools/setup.sh and cmake."""
import os
import pathlib
import shutil
import subprocess

MAKEFILE = pathlib.Path(__file__).resolve().parents[2] / "Makefile"


def run_make(tmp_path, target):
    """The lines that the stand-in of cmake writes: its compiler and its arguments."""
    shutil.copy(MAKEFILE, tmp_path)
    commands = {
        "tools/setup.sh": '[ "$1" = --compiler ] || exec touch installed\n[ -e installed ] && echo g++-12',
        "tools/make_wheel.sh": "",
        "tools/make_dist.py": "",
        "bin/cmake": 'echo "$CXX $*" >>log',
    }
    for name, body in commands.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in ("CXX", "MAKEFLAGS", "MAKELEVEL")}
    environment["PATH"] = f"{tmp_path}/bin:{os.environ['PATH']}"
    subprocess.run(["make", target], cwd=tmp_path, env=environment, check=True, timeout=60)
    return (tmp_path / "log").read_text().splitlines()


def test_the_compiler_is_asked_for_after_it_was_installed(tmp_path):
    assert run_make(tmp_path, "release")[0].startswith("g++-12 --preset release ")


def test_make_builds_for_this_machine_and_what_others_get_for_all(tmp_path):
    configured = run_make(tmp_path, "release")[0]
    assert "-DREDLINE_CPU_ISAS=native -DREDLINE_CUDA=GPU" in configured
    for target in ("install", "wheel", "dist"):
        folder = tmp_path / target
        folder.mkdir()
        assert "-DREDLINE_CPU_ISAS= -DREDLINE_CUDA=AUTO" in run_make(folder, target)[0]
        # A folder that was configured for this machine is configured again.
        (folder / "build/release").mkdir(parents=True)
        (folder / "build/release/build.ninja").touch()
        (folder / "log").unlink()
        assert "-DREDLINE_CPU_ISAS= -DREDLINE_CUDA=AUTO" in run_make(folder, target)[0]
