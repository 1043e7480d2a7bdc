"""The soak of soak.py, short: cmake --build build/dev --target long runs ten minutes of it."""
import os

import soak

SECONDS = float(os.environ.get("REDLINE_SOAK_SECONDS", "4"))
IDLE_S = 1.5  # the clock of the kernel counts hundredths of a second


def test_many_clients(tmp_path):
    print(soak.soak(tmp_path, SECONDS, 32, 1))


def test_idle_streams(tmp_path):
    print(soak.idle_streams(tmp_path, IDLE_S))
