"""The Makefile on a machine without a compiler, with stand-ins for tools/setup.sh and cmake."""
import os
import pathlib
import shutil
import subprocess

MAKEFILE = pathlib.Path(__file__).resolve().parents[2] / "Makefile"


def test_the_compiler_is_asked_for_after_it_was_installed(tmp_path):
    shutil.copy(MAKEFILE, tmp_path)
    commands = {
        "tools/setup.sh": '[ "$1" = --compiler ] || exec touch installed\n[ -e installed ] && echo g++-12',
        "bin/cmake": 'echo "$1 $CXX" >>log',
    }
    for name, body in commands.items():
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in ("CXX", "MAKEFLAGS", "MAKELEVEL")}
    environment["PATH"] = f"{tmp_path}/bin:{os.environ['PATH']}"
    subprocess.run(["make", "release"], cwd=tmp_path, env=environment, check=True, timeout=60)
    assert (tmp_path / "log").read_text().splitlines()[0] == "--preset g++-12"
