"""tools/compare_networks against stand-ins, and tools/plot_rows."""
import json
import os
import pathlib
import subprocess
import sys
import xml.dom.minidom

import pytest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
# Its second argument is tools/network_peers.py; the seconds of a run are in SECONDS_engine.
PYTHON = f"""#!{sys.executable}
import os, sys
name, engine = sys.argv[2], sys.argv[6]
with open(os.environ["LOG"], "a") as file:
    file.write(" ".join([*sys.argv[2:7], os.environ["OMP_PROC_BIND"], str(len(os.sched_getaffinity(0)))]) + "\\n")
if name == "flux-vae":
    sys.exit(1)
print("UserWarning: a module", flush=True)
print("ready", flush=True)
for _ in sys.stdin:
    print("a warning\\n" + os.environ["SECONDS_" + engine], flush=True)
"""
REDLINE = """#!/bin/sh
echo '{"median_s": 2.0, "share": 0.5, "ceiling": "bf16"}'
"""


def compare(folder, *arguments, **seconds):
    for name, text in (("python", PYTHON), ("redline", REDLINE)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    command = [sys.executable, TOOLS / "compare_networks", "--redline", folder / "redline", "--python", folder / "python", "--threads", "1",
               "--rounds", "2", *arguments]
    environment = {**os.environ, "LOG": str(folder / "log"), **{f"SECONDS_{engine}": str(s) for engine, s in seconds.items()}}
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60, env=environment)


def test_engines_in_turn(tmp_path):
    run = compare(tmp_path, "flux-block", "--engine", "eager,openvino", "--compile", eager=6, openvino=1, compiled=4)
    assert run.returncode == 0, run.stderr
    assert "redline bf16 2000.0 ms (50% of the ceiling)" in run.stdout
    assert all(part in run.stdout for part in ("eager bf16 6000.0 ms, 3.00x", "openvino bf16 1000.0 ms, 0.50x", "compiled bf16 4000.0 ms, 2.00x"))
    said = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert sorted(line[4] for line in said) == ["compiled", "eager", "openvino"]
    assert all(line[:4] == ["flux-block", "1024", "bf16", "1"] and line[5:] == ["true", "1"] for line in said)


def test_json_and_types(tmp_path):
    run = compare(tmp_path, "sd15-unet", "--engine", "torchao", "--redline-type", "w8a8", "--json", torchao=3)
    row = json.loads(run.stdout)[0]
    assert (row["side"], row["redline_type"], row["torchao_s"], row["ratio_torchao"]) == (512, "w8a8", [3.0, 3.0], [1.5, 1.5])


def test_refuses(tmp_path):
    run = compare(tmp_path, "flux-vae", eager=1)
    assert run.returncode == 3 and "eager did not start flux-vae" in run.stderr
    assert compare(tmp_path, "flux-block", "--engine", "eager,tensorrt").returncode == 2


def record(rows, seconds, status="passed"):
    return {"workload": {"M": rows, "N": 8192, "K": 2048}, "status": status, "why": "", "latency": {"min": seconds, "median": seconds},
            "bound": {"seconds": 1.0}, "threads": 2, "machine": {"cpu": "a <CPU>"}}


@pytest.mark.parametrize("status", ["passed", "wrong"])
def test_plot_of_rows(tmp_path, status):
    (tmp_path / "a.json").write_text(json.dumps([record(1, 2.0), record(16, 4.0, status)]))
    (tmp_path / "b.json").write_text(json.dumps([record(1, 1.25), record(16, 5.0)]))
    command = [sys.executable, TOOLS / "plot_rows", tmp_path / "out.svg", f"q4_0={tmp_path / 'a.json'}", f"q4_0={tmp_path / 'b.json'}"]
    run = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60)
    if status == "wrong":
        assert run.returncode == 1 and "a.json" in run.stderr
        return
    assert run.returncode == 0, run.stderr
    titles = [t.firstChild.data for t in xml.dom.minidom.parse(str(tmp_path / "out.svg")).getElementsByTagName("title")]
    assert titles == ["q4_0, 1 rows: 0.80", "q4_0, 16 rows: 0.25"]
