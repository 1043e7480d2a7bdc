"""tools/kernel_records: schema, score, audit rules, and the table generated from the traces."""
import copy
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "kernel_records"
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("kernel_records", str(TOOL))
records = importlib.util.module_from_spec(importlib.util.spec_from_loader("kernel_records", loader))
loader.exec_module(records)


def trace(kernel="linear_q8", isa="avx512_vnni", rows=4, seconds=2e-3, dtype="q4_0", n=64, k=32, time="2026-01-01T00:00:00Z",
          cpu="Intel(R) Xeon(R) Processor"):
    return {"definition": f"linear.{dtype}", "workload": {"M": rows, "N": n, "K": k},
            "solution": {"kernel": f"{kernel}.{dtype}", "isa": isa, "sources_sha256": "0" * 64}, "status": "passed", "why": "",
            "error": {"of_bound": 0.4, "absolute": 1e-6, "elements": 256, "seeds": 10}, "threads": 1, "cached": False,
            "latency": {"median": seconds, "min": seconds, "max": seconds, "laps": 9, "runs_per_lap": 1},
            "bound": {"seconds": 1e-3, "by": "read", "bytes": 1e6, "from_memory": 1e6, "operations": 1e6},
            "baseline": {"kernel": "linear", "median": 4e-3}, "score": records.sol_score(seconds, 4e-3, 1e-3),
            "machine": {"cpu": cpu, "ceilings": {}}, "time": time}


@pytest.fixture
def folder(tmp_path):
    for name in ("definitions", "workloads"):
        (tmp_path / name).mkdir()
        for path in (ROOT / "bench" / name).glob("linear.q4_0.*"):
            shutil.copy(path, tmp_path / name)
    (tmp_path / "traces").mkdir()
    return tmp_path


def write(folder, *traces):
    (folder / "traces/linear.q4_0.jsonl").write_text("".join(json.dumps(t) + "\n" for t in traces))


def tool(*arguments):
    return subprocess.run([sys.executable, TOOL, *map(str, arguments)], capture_output=True, text=True)


def test_the_records_of_this_tree_are_sound_and_the_table_is_theirs():
    assert records.faults(ROOT / "bench") == []
    run = tool("table", "--check")
    assert run.returncode == 0, run.stderr
    definitions, workloads, _traces = records.load(ROOT / "bench")
    assert set(workloads) <= set(definitions) and len(definitions) >= 5


def test_score():
    assert records.sol_score(1, 4, 1) == 1 and records.sol_score(4, 4, 1) == 0.5
    assert records.sol_score(2, 1, 1) == 0 and records.sol_score(1, 0.5, 1) == 1
    assert records.sol_score(0.5, 4, 1) > 1


def changed(path, value):
    t = trace()
    at = t
    *parents, last = path.split(".")
    for name in parents:
        at = at[name]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return t


@pytest.mark.parametrize("path, value, why", [
    ("definition", "linear.q9", "not among the definitions"), ("workload", {"M": 1, "N": 2}, "axes"),
    ("workload.M", 0, "axis M = 0"), ("workload.M", True, "axis M"), ("solution.isa", "sse2", "known instruction set"),
    ("solution.sources_sha256", "", "hash of its sources"), ("status", "good", "its status"), ("threads", 0, "threads"),
    ("machine", {}, "machine"), ("error.of_bound", 1.2, "passed with an error"), ("error.seeds", 3, "ten are wanted"),
    ("latency", None, "no latency"), ("latency.min", 0.9e-3, "faster than its bound"), ("score", 1.5, "its times make"),
    ("error.of_bound", float("nan"), "passed with an error"), ("status", "quarantined", "does not say why"),
    ("cached", None, "cached")])
def test_audit(folder, path, value, why):
    assert records.trace_fault(trace(), records.load(folder)[0]) is None
    write(folder, changed(path, value))
    run = tool("--folder", folder, "check")
    assert run.returncode == 1 and "traces/linear.q4_0.jsonl:1" in run.stderr and why in run.stderr, run.stderr
    assert tool("--folder", folder, "table", "--output", folder / "table.inc").returncode == 1
    assert not (folder / "table.inc").exists(), "a table was made of traces that are not sound"


def test_what_did_not_pass_is_kept_and_not_used(folder):
    bad = trace(seconds=1e-9)
    bad.update(status="quarantined", why="faster than its bound")
    write(folder, trace("linear"), trace("linear_q8", seconds=3e-3), bad)
    run = tool("--folder", folder, "check")
    assert run.returncode == 0 and "3 traces" in run.stdout and "1 did not pass" in run.stdout
    assert "kI8Grouped" not in records.table_text(records.load(folder)[2])


def test_damaged_records(folder):
    (folder / "traces/linear.q4_0.jsonl").write_text("{\n")
    run = tool("--folder", folder, "check")
    assert run.returncode == 2 and "linear.q4_0.jsonl:1: no JSON" in run.stderr
    write(folder)
    (folder / "workloads/linear.q4_0.jsonl").write_text('{"name": "a", "axes": {"M": 1, "N": 2, "K": 3}}\n' * 2)
    assert any("come twice" in f for f in records.faults(folder))
    (folder / "definitions/linear.q4_0.json").unlink()
    assert any("no such definition" in f for f in records.faults(folder))


def table_of(*traces):
    lines = records.table_text([("", t) for t in traces]).splitlines()
    return [line for line in lines if not line.startswith("//")]


def sweep(kernel, isa, **seconds):
    return [trace(kernel, isa, int(rows[1:]), s) for rows, s in seconds.items()]


def test_the_fastest_serves_its_rows():
    f32 = sweep("linear", "avx512", m1=3e-3, m8=9e-3, m64=40e-3)
    q8 = sweep("linear_q8", "avx512_vnni", m1=1e-3, m8=4e-3, m64=30e-3)
    requantized = sweep("linear_requantized", "avx512_vnni", m1=5e-3, m8=6e-3, m64=31e-3)
    tiles = sweep("linear_tiles", "amx", m1=5e-3, m8=5e-3, m64=6e-3)
    assert table_of(*f32, *q8, *requantized, *tiles) == [
        '{"intel", "avx512_vnni", "q4_0", 1, {{0, ActivationLayout::kI8Grouped}}},',
        '{"intel", "amx", "q4_0", 2, {{0, ActivationLayout::kI8Grouped}, {11, ActivationLayout::kBf16Tiled}}},']


def test_a_range_begins_where_the_lines_cross():
    q8 = sweep("linear_q8", "amx", m16=1e-3, m64=4e-3)  # as the rows
    assert table_of(*q8, *sweep("linear_tiles", "amx", m16=2e-3, m64=2e-3)) == [
        '{"intel", "amx", "q4_0", 2, {{0, ActivationLayout::kI8Grouped}, {33, ActivationLayout::kBf16Tiled}}},']  # equal at 32
    assert table_of(*q8, *sweep("linear_tiles", "amx", m16=1.05e-3, m64=1e-3))[0].endswith("{17, ActivationLayout::kBf16Tiled}}},")
    assert table_of(*q8, *sweep("linear_tiles", "amx", m16=2e-3, m64=3.8e-3))[0].endswith("{59, ActivationLayout::kBf16Tiled}}},")


def test_requantized_weights_begin_with_one_number_of_rows_for_all_types():
    q8 = sweep("linear_q8", "avx512_vnni", m1=1e-3, m64=4e-3, m512=9e-3)
    requantized = sweep("linear_requantized", "avx512_vnni", m1=2e-3, m64=3e-3, m512=6e-3)
    both = "2, {{0, ActivationLayout::kI8Grouped}, {65, ActivationLayout::kI8TiledGroups}}},"
    assert table_of(*q8, *requantized) == [f'{{"intel", "avx512_vnni", "q4_0", {both}']
    slow = sweep("linear_requantized", "avx512_vnni", m1=2e-3, m64=5e-3, m512=9.5e-3)
    assert table_of(*q8, *slow) == ['{"intel", "avx512_vnni", "q4_0", 1, {{0, ActivationLayout::kI8Grouped}}},']


def test_without_measurements_of_requantized_weights_the_rule_holds():
    both = (*sweep("linear", "avx512", m1=3e-3, m512=90e-3), *sweep("linear_q8", "avx512_vnni", m1=1e-3, m512=9e-3))
    assert table_of(*both) == []
    assert table_of(*both, *sweep("linear_requantized", "avx512_vnni", m1=1e-4, m512=6e-3)) == [
        '{"intel", "avx512_vnni", "q4_0", 2, {{0, ActivationLayout::kI8Grouped}, {65, ActivationLayout::kI8TiledGroups}}},']


def test_vectors_do_not_requantize_beside_tiles():
    q8 = sweep("linear_q8", "avx512_vnni", m1=1e-3, m512=9e-3)
    requantized = sweep("linear_requantized", "avx512_vnni", m1=2e-3, m512=6e-3)
    tiles = sweep("linear_tiles", "amx", m1=4e-3, m512=7e-3)
    assert "kI8TiledGroups" not in table_of(*q8, *requantized, *tiles)[-1]


def test_each_maker_has_its_own_records():
    measured = {"Intel(R) Xeon(R)": (3e-3, 1e-3), "AMD EPYC": (1e-3, 3e-3), "Another": (1e-3, 3e-3)}
    assert table_of(*(trace(kernel, "avx512", 4, seconds, cpu=cpu) for cpu, both in measured.items()
                      for kernel, seconds in zip(("linear", "linear_q8"), both))) == [
        '{"amd", "avx512", "q4_0", 1, {{0, ActivationLayout::kF32}}},',
        '{"intel", "avx512", "q4_0", 1, {{0, ActivationLayout::kI8Grouped}}},']


def test_the_stand_in_of_tiles_is_never_chosen():
    assert table_of(*sweep("linear", "avx512", m1=2e-3), *sweep("linear_tiles", "generic", m1=1e-3)) == []


def test_only_rows_and_shapes_that_all_were_measured_with_count():
    f32 = sweep("linear", "avx512", m1=1e-3, m8=3e-3)
    q8 = sweep("linear_q8", "avx512", m8=2e-3, m64=1e-3)
    assert table_of(*f32, *q8) == ['{"intel", "avx512", "q4_0", 1, {{0, ActivationLayout::kI8Grouped}}},']
    assert table_of(*f32) == [], "one kernel is not a choice"
    other = [trace("linear_q8", "avx512", 8, 1e-3, n=128)]
    assert table_of(*f32, *other) == []


def test_a_change_of_kernel_must_be_worth_it():
    q8 = sweep("linear_q8", "amx", m1=1.01e-3, m8=1e-3)
    assert table_of(*q8, *sweep("linear_tiles", "amx", m1=1e-3, m8=1.01e-3)) in (
        ['{"intel", "amx", "q4_0", 1, {{0, ActivationLayout::kI8Grouped}}},'], ['{"intel", "amx", "q4_0", 1, {{0, ActivationLayout::kBf16Tiled}}},'])
    assert len(table_of(*q8, *sweep("linear_tiles", "amx", m1=1.2e-3, m8=0.9e-3))[0].split("ActivationLayout")) == 3


def test_rounding_must_be_worth_it():
    f32 = sweep("linear", "avx512", m1=1e-3, m8=1e-3)
    assert table_of(*f32, *sweep("linear_q8", "avx512", m1=0.97e-3, m8=0.97e-3)) == ['{"intel", "avx512", "q4_0", 1, {{0, ActivationLayout::kF32}}},']
    assert table_of(*f32, *sweep("linear_q8", "avx512", m1=0.9e-3, m8=0.9e-3)) == ['{"intel", "avx512", "q4_0", 1, {{0, ActivationLayout::kI8Grouped}}},']


def test_the_newest_trace_counts():
    q8 = trace("linear_q8", "avx512", seconds=9e-3)
    newer = copy.deepcopy(q8)
    newer["time"], newer["latency"]["median"] = "2026-02-01T00:00:00Z", 1e-3
    for order in ([q8, newer], [newer, q8]):
        assert "kI8Grouped" in table_of(trace("linear", "avx512", seconds=2e-3), *order)[0]


def test_table_check(folder):
    write(folder, *sweep("linear", "avx512", m1=2e-3), *sweep("linear_q8", "avx512", m1=1e-3 * 1.1))
    output = folder / "table.inc"
    assert tool("--folder", folder, "table", "--output", output).returncode == 0
    assert tool("--folder", folder, "table", "--check", "--output", output).returncode == 0
    output.write_text(output.read_text().replace("kI8Grouped", "kF32"))
    run = tool("--folder", folder, "table", "--check", "--output", output)
    assert run.returncode == 1 and "not what the traces say" in run.stderr


def test_hashes_are_those_of_the_build(tmp_path):
    header = tmp_path / "kernel_sources.h"
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("no cmake here")
    subprocess.run([cmake, f"-DROOT={ROOT}", f"-DOUTPUT={header}", "-P", ROOT / "cmake/KernelSources.cmake"], check=True)
    built = dict(re.findall(r'\{"(\w+)", "([0-9a-f]{64})"\}', header.read_text()))
    for kernel in ("linear_q8.q4_0", "prepare_x.q8", "attention.f16", "kv_append.f16", "rms_norm", "embedding.q8_0"):
        family = records.family_of(kernel.split(".")[0])
        assert records.sources_hash(ROOT, kernel) == built[family], kernel


def test_a_family_has_the_layout_that_its_kernels_share():
    files = {kernel: records.family_files(ROOT, kernel) for kernel in ("linear.f32", "prepare_x.i8", "attention.f16", "kv_append.f32", "rope")}
    has = lambda name: {kernel for kernel in files if f"src/tensor/{name}" in files[kernel]}
    assert has("activation_layout.h") == {"linear.f32", "prepare_x.i8"} and has("kv_page.h") == {"attention.f16", "kv_append.f32"}
    assert has("packed_weight.cc") == set(files)


@pytest.mark.skipif(not os.environ.get("REDLINE_BINARY"), reason="REDLINE_BINARY names no program")
def test_measure_appends_sound_traces(folder):
    (folder / "workloads/linear.q4_0.jsonl").write_text(
        '{"name": "tiny.1", "axes": {"M": 1, "N": 48, "K": 256}}\n{"name": "tiny.5", "axes": {"M": 5, "N": 48, "K": 256}}\n')
    for _ in range(2):
        run = tool("--folder", folder, "measure", "--redline", os.environ["REDLINE_BINARY"], "--seconds", "0.001",
                   "--kernel", "linear,linear_q8", "--isa", "generic")
        assert run.returncode == 0, run.stderr
    traces = [t for _place, t in records.load(folder)[2]]
    assert len(traces) == 8 and records.faults(folder) == []
    assert {t["solution"]["kernel"] for t in traces} == {"linear.q4_0", "linear_q8.q4_0"}
    assert all(t["solution"]["sources_sha256"] == records.sources_hash(ROOT, "linear") for t in traces)
