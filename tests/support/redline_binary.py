"""The program under test."""
import os
import pathlib
import shutil

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def find_binary():
    """What REDLINE_BINARY names, else a build of this folder, else one in PATH; None: there is none."""
    built = [ROOT / "build" / preset / "redline" for preset in ("release", "dev")]
    for path in [os.environ.get("REDLINE_BINARY"), *built, shutil.which("redline")]:
        if path and pathlib.Path(path).is_file():
            return str(path)
    return None


def binary():
    """The same; skips the test without one."""
    return find_binary() or pytest.skip("no redline binary: build it, or name it in REDLINE_BINARY")
