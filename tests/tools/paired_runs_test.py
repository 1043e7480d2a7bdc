"""tools/compare and tools/regress against stand-ins with the output format of the real programs and speeds from a file."""
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

import pytest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
import paired_runs as runs  # noqa: E402

# A stand-in takes its speeds in order from the list in SPEEDS next to it, and logs its arguments and CPU affinity.
HEAD = f"""#!{sys.executable}
import json, os, pathlib, sys
me = pathlib.Path(__file__).resolve()
log = me.with_suffix(".log")
count = len(log.read_text().splitlines()) if log.exists() else 0
with log.open("a") as file:
    file.write(json.dumps([sys.argv[1:], sorted(os.sched_getaffinity(0)), os.environ.get("OMP_PLACES")]) + "\\n")
with me.parent.joinpath("order").open("a") as file:
    file.write(me.name + "\\n")
speeds = json.loads(me.with_suffix(".speeds").read_text())
speed = speeds[count % len(speeds)]
def numbers(*flags):
    for flag in flags:
        if flag in sys.argv:
            return [int(n) for n in sys.argv[sys.argv.index(flag) + 1].split(",")]
    return []
"""
REDLINE = HEAD + """
rows = [{"phase": phase, "tokens": n, "depth": d, "tokens_per_s": speed * (d + 1), "state_before": {"read_gb_per_s": 20 + count}}
        for d in numbers("--depth") for phase in ("prefill", "decode") for n in numbers("--" + phase)]
rows += [{"phase": "batch", "tokens": 16, "streams": s, "depth": d, "tokens_per_s": speed}
         for d in numbers("--depth") for s in numbers("--batch")]
fault = me.with_suffix(".fault")
if fault.exists():
    rows[0]["error"] = fault.read_text()
print(json.dumps({"isa": "amx", "machine": {}, "rows": rows}))
"""
LLAMA = HEAD + """
assert sys.argv[sys.argv.index("-o") + 1] == "json"
print(json.dumps([{"build_commit": "abc", "n_prompt": p, "n_gen": n, "n_depth": d, "avg_ts": speed * (d + 1)}
                  for d in numbers("-d") or [0] for p, n in [(p, 0) for p in numbers("-p")] + [(0, n) for n in numbers("-n")] if p + n]))
"""
BATCHED = HEAD + """
for pp in numbers("-npp"):
    for pl in numbers("-npl"):
        print(json.dumps({"pp": pp, "tg": numbers("-ntg")[0], "pl": pl, "speed_tg": speed, "speed": 1.0}))
"""
# The Python of an engine's environment: its first argument is tools/text_peers.py.
ENGINE = HEAD + """
print("WARNING: no tokenizer")
rows = [{"phase": phase, "tokens": n, "depth": d, "tokens_per_s": speed} for d in numbers("--depth") for phase in ("prefill", "decode")
        for n in numbers("--" + phase) if phase == "decode" or d == 0]
rows += [{"phase": "prefill", "tokens": n, "depth": d, "skipped": "not measured at a depth"} for d in numbers("--depth") if d
         for n in numbers("--prefill")]
rows += [{"phase": "batch", "tokens": 32, "streams": s, "depth": d, "tokens_per_s": speed} for d in numbers("--depth") for s in numbers("--batch")]
print(json.dumps({"isa": "engine 1.0", "machine": None, "rows": rows}))
"""


class Bench:
    def __init__(self, folder):
        self.folder = folder
        self.model = folder / "model.gguf"
        self.model.write_text("weights")

    def program(self, name, text, speeds):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        path.with_suffix(".speeds").write_text(json.dumps(speeds))
        return path

    def log(self, name):
        return [json.loads(line) for line in (self.folder / name).with_suffix(".log").read_text().splitlines()]

    def compare(self, *arguments):
        command = [sys.executable, TOOLS / "compare", "--redline", self.folder / "redline", *arguments, self.model]
        return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120)


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    made.program("redline", REDLINE, [1, 20, 22, 18, 20, 20, 20])  # the first run only warms up
    made.program("llama", LLAMA, [1, 10, 10, 10, 8, 10, 10])
    return made


def test_in_turn_and_ratios(bench):
    run = bench.compare("--peer", f"llama-bench={bench.folder / 'llama'}", "--prefill", "8,512", "--decode", "4", "--depth", "0,64",
                        "--threads", "1", "--json")
    assert run.returncode == 0, run.stderr
    record = json.loads(run.stdout)
    assert (bench.folder / "order").read_text().split() == ["redline", "llama"] * 7
    assert [(r["phase"], r["depth"], r["tokens"]) for r in record["rows"]] == [
        ("prefill", 0, 8), ("prefill", 0, 512), ("prefill", 64, 8), ("prefill", 64, 512), ("decode", 0, 4), ("decode", 64, 4)]
    ratio = record["rows"][0]["ratio"]["llama-bench"]
    assert ratio["pairs"] == [2.0, 2.2, 1.8, 2.5, 2.0, 2.0]
    assert (ratio["median"], ratio["low"], ratio["high"], ratio["coverage"], ratio["verdict"]) == (2.0, 1.8, 2.5, 1 - 2 / 64, "faster")
    assert record["rows"][2]["tokens_per_s"]["redline"]["median"] == 20 * 65
    read = record["machine"]["read_gb_per_s"]
    assert (read["min"], read["median"], read["max"], len(read["values"])) == (21, 23.5, 26, 6 * 6)
    assert record["programs"]["llama-bench"]["facts"]["build_commit"] == "abc"


def test_same_cores_and_the_answer_is_checked_once(bench):
    run = bench.compare("--peer", f"llama-bench={bench.folder / 'llama'}", "--prefill", "8", "--threads", "1", "--rounds", "2",
                        "--peer-args", "llama-bench=-ctk f16")
    assert run.returncode == 0, run.stderr
    ours, theirs = bench.log("redline"), bench.log("llama")
    cpus = ours[0][1]
    assert len(cpus) == 1 and all(cpus == line[1] for line in ours + theirs)
    assert all(line[2] == f"{{{cpus[0]}}}" for line in theirs)
    assert all(line[0][-2:] == ["-ctk", "f16"] and "-d" not in line[0] for line in theirs)
    assert ["--no-check" in line[0] for line in ours] == [False, True, True]
    assert "too few rounds for 95 %" in run.stdout and "undecided" in run.stdout


def test_table(bench):
    bench.program("old", REDLINE, [1, 10, 30, 10, 30, 10, 30])
    bench.program("batched", BATCHED, [40])
    run = bench.compare("--peer", f"llama-bench={bench.folder / 'llama'}", "--peer", f"old:redline={bench.folder / 'old'}",
                        "--peer", f"llama-batched-bench={bench.folder / 'batched'}", "--prefill", "8", "--batch", "4")
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    prefill = next(line for line in lines if line.startswith("prefill 8"))
    batch = next(line for line in lines if line.startswith("4 streams"))
    assert "20.0 (18.0..22.0)" in prefill and "2.00  1.80..2.50  faster" in prefill and "0.67..2.00  undecided" in prefill
    assert "0.50  0.45..0.55  slower" in batch and batch.split()[4] == "-", batch  # llama-bench cannot run several streams
    assert any(line.startswith("machine (CPUs ") and "read gb/s 21..26" in line for line in lines)


def test_engines_with_a_python_api(bench):
    for name in ("ov", "vllm", "ort"):
        bench.program(name, ENGINE, [10])
    run = bench.compare("--peer", f"openvino={bench.folder / 'ov'}", "--peer-args", "openvino=--model ov_folder --property A=1",
                        "--peer", f"vllm={bench.folder / 'vllm'}", "--peer", f"ort:onnxruntime={bench.folder / 'ort'}",
                        "--prefill", "8", "--decode", "4", "--batch", "16", "--depth", "0,64", "--rounds", "1", "--threads", "1", "--json")
    assert run.returncode == 0, run.stderr
    record = json.loads(run.stdout)
    assert [r["faults"].get("vllm") for r in record["rows"] if r["phase"] == "prefill"] == [None, "skipped: not measured at a depth"]
    assert all(set(r["ratio"]) == {"openvino", "vllm", "ort"} for r in record["rows"] if not r["faults"])
    assert record["programs"]["ort"]["facts"]["isa"] == "engine 1.0"
    said = bench.log("ov")[0][0]
    assert pathlib.Path(said[0]).name == "text_peers.py" and said[1] == "openvino"
    assert said[-4:] == ["--model", "ov_folder", "--property", "A=1"] and str(bench.model) not in said
    assert [bench.log(name)[0][0][1] for name in ("vllm", "ort")] == ["vllm", "onnxruntime"]
    bench.program("ov", "#!/bin/sh\necho no module named openvino\n", [1])
    run = bench.compare("--peer", f"openvino={bench.folder / 'ov'}", "--prefill", "8")
    assert run.returncode == 3 and "no line of JSON" in run.stderr and "names the model" in run.stderr


def test_reads_the_table_of_a_peer_without_json(bench):
    table = """main: n_kv_max = 68
|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|     1 |     16 |    4 |     68 |    0.193 |    20.78 |    1.709 |    20.00 |    1.902 |    35.75 |"""
    bench.program("batched", f"#!/bin/sh\ncat >&2 <<'END'\n{table}\nEND\n", [1])
    run = bench.compare("--peer", f"llama-batched-bench={bench.folder / 'batched'}", "--batch", "4")
    assert run.returncode == 0, run.stderr
    assert "20.0 (20.0..20.0)" in next(line for line in run.stdout.splitlines() if line.startswith("4 streams"))


@pytest.mark.parametrize("output, why", [
    ("error: no such model", "cannot be read"), ("[]", "no list of tests"), ("{", "cannot be read"),
    ('[{"n_prompt": 8, "n_gen": 0, "avg_ts": null}]', "avg_ts = None where a number above 0"),
    ('[{"n_prompt": 8, "n_gen": 0, "avg_ts": 0}]', "avg_ts = 0"), ('[{"n_prompt": "8", "n_gen": 0, "avg_ts": 3}]', "not a whole number"),
    ('[{"n_prompt": 16, "n_gen": 0, "avg_ts": 5}]', "lacks prefill 8"), ('[{"n_prompt": 8, "n_gen": 0, "avg_ts": Infinity}]', "avg_ts"),
    ("[3]", "cannot be read")])
def test_refuses_what_cannot_be_read(bench, output, why):
    bench.program("llama", f"#!/bin/sh\ncat <<'END'\n{output}\nEND\n", [1])
    run = bench.compare("--peer", f"llama-bench={bench.folder / 'llama'}", "--prefill", "8")
    assert (run.returncode, run.stdout) == (3, "")
    assert "llama-bench:" in run.stderr and why in run.stderr and "command:" in run.stderr and "understand -o json" in run.stderr


def test_refuses_failures(bench):
    bench.program("llama", "#!/bin/sh\necho cannot map model >&2\nexit 4\n", [1])
    run = bench.compare("--peer", f"llama-bench={bench.folder / 'llama'}", "--prefill", "8")
    assert run.returncode == 3 and "ended with status 4" in run.stderr and "said: cannot map model" in run.stderr
    bench.program("llama", "#!/bin/sh\nexec sleep 60\n", [1])
    run = bench.compare("--peer", f"llama-bench={bench.folder / 'llama'}", "--prefill", "8", "--timeout", "1")
    assert run.returncode == 3 and "no answer within 1 s" in run.stderr
    run = bench.compare("--peer", "llama-bench=/nowhere/llama-bench")
    assert run.returncode == 2 and "/nowhere/llama-bench is not a program" in run.stderr


def test_a_figure_that_is_not_to_be_believed_is_not_compared(bench):
    bench.folder.joinpath("redline.fault").write_text("faster than its bound")
    run = bench.compare("--peer", f"llama-bench={bench.folder / 'llama'}", "--prefill", "8", "--decode", "4")
    assert run.returncode == 0
    assert "not compared: prefill 8, redline: faster than its bound" in run.stdout
    assert next(line for line in run.stdout.splitlines() if line.startswith("prefill 8")).endswith("-")


@pytest.mark.parametrize("arguments, why", [
    (["--peer", "llama=x"], "KIND one of redline, llama-bench"), (["--peer", "llama-bench"], "should read"),
    (["--peer", "redline={llama}"], "two programs are called 'redline'"),
    (["--peer", "llama-bench={llama}", "--threads", "100000"], "--threads"),
    (["--peer", "llama-bench={llama}", "--peer-args", "other=-x"], "no program is called 'other'"),
    (["--peer", "llama-bench={llama}", "--batch", "4"], "measures prefill and decode only"),
    (["--peer", "llama-bench={llama}", "--prefill", "0"], "whole numbers from 1 on"),
    (["--peer", "llama-bench={llama}", "--prefill", "8,8"], "different whole numbers"),
    (["--peer", "llama-bench={llama}", "--rounds", "0"], "whole number from 1 on"), ([], "--peer")])
def test_usage(bench, arguments, why):
    run = bench.compare(*(a.format(llama=bench.folder / "llama") for a in arguments))
    assert run.returncode == 2 and why in run.stderr, run.stderr


def test_interval_holds_the_median_as_often_as_it_says():
    assert runs.median_interval([3, 1, 2, 5, 4, 6]) == (1, 6, 1 - 2 / 64)
    assert runs.median_interval(range(1, 13), 0.99)[:2] == (2, 11)
    assert runs.median_interval([7]) == (7, 7, 0.0)
    random.seed(5)
    for n in (6, 9, 20):
        held = 0
        for _ in range(4000):
            low, high, coverage = runs.median_interval([random.expovariate(1) for _ in range(n)])
            held += low <= 0.6931 <= high
        assert coverage >= 0.95
        assert abs(held / 4000 - coverage) < 4 * (0.05 * 0.95 / 4000) ** 0.5


def test_a_batch_row_asks_for_no_more_than_its_own():
    rows = [runs.Row("decode", 0, 64), runs.Row("batch", 0, 0, 4)]
    assert set(rows) == set(runs.Request.of_rows(rows, 2).rows())


# A repository of two revisions whose "build" copies a stand-in.
CMAKE = """#!/bin/sh
echo "$*" >>"$FAKE/cmake.log"
case $1 in
  --build) [ ! -e broken ] || { echo "error: expected ;"; exit 1; }; mkdir -p build/release; cp program build/release/redline ;;
esac
"""
PROGRAM = REDLINE.replace("me = pathlib.Path(__file__).resolve()",
                          'me = pathlib.Path(os.environ["FAKE"]) / "VERSION"')


@pytest.fixture
def history(tmp_path):
    tree = tmp_path / "tree"
    (tree / "tools").mkdir(parents=True)
    for name in ("regress", "paired_runs.py"):
        shutil.copy(TOOLS / name, tree / "tools")
    (tree / "assets/redline-tales").mkdir(parents=True)
    (tree / "assets/redline-tales/model.safetensors").write_text("weights")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/cmake").write_text(CMAKE)
    (tmp_path / "bin/cmake").chmod(0o755)

    class History:
        folder = tmp_path

        @staticmethod
        def git(*arguments):
            environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
            return subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments], cwd=tree, check=True,
                                  capture_output=True, text=True, env=environment).stdout

        @staticmethod
        def revision(name, speeds):
            (tree / "program").write_text(PROGRAM.replace("VERSION", name))
            (tree / "program").chmod(0o755)
            (tmp_path / f"{name}.speeds").write_text(json.dumps(speeds))
            History.git("add", "-A")
            History.git("commit", "-q", "-m", name)
            History.git("tag", name)

        @staticmethod
        def regress(*arguments):
            environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "FAKE": str(tmp_path)}
            return subprocess.run([sys.executable, "tools/regress", *arguments], cwd=tree, env=environment, capture_output=True,
                                  text=True, timeout=120)

        @staticmethod
        def runs_of(name):
            return len((tmp_path / f"{name}.log").read_text().splitlines())

    History.git("init", "-q")
    History.revision("old", [100])
    return History


def test_a_slowdown_is_confirmed_before_it_is_said(history):
    history.revision("new", [80, 82])
    run = history.regress("old")
    assert run.returncode == 1, run.stderr
    assert run.stdout.count("SLOWER, confirmed") == 4 and "4 confirmed slowdowns of more than 5 % in 4 rows" in run.stdout
    assert (history.runs_of("old"), history.runs_of("new")) == (1 + 3 + 12,) * 2


def test_no_slowdown_needs_no_second_pass(history):
    history.revision("new", [100, 97, 103])
    run = history.regress("old", "new")
    assert run.returncode == 0, run.stderr
    assert "no confirmed slowdowns of more than 5 % in 4 rows" in run.stdout
    assert history.runs_of("new") == 1 + 3


def test_a_slow_first_pass_that_does_not_come_again_is_no_slowdown(history):
    history.revision("new", [100, 80, 80, 80] + [100, 101, 99] * 10)
    run = history.regress("old", "--json")
    assert run.returncode == 0, run.stderr
    rows = json.loads(run.stdout)["rows"]
    assert all(r["second"] and not r["slower"] and len(r["second"]["pairs"]) == 12 for r in rows)


def test_slower_within_the_limit_or_within_the_noise_is_no_slowdown(history):
    history.revision("new", [96])
    assert history.regress("old").returncode == 0
    history.revision("noisy", [80, 80, 80, 80] + [60, 130] * 10)
    run = history.regress("old", "--limit", "1")
    assert run.returncode == 0 and run.stdout.count("not confirmed") == 4


def test_order_alternates(history):
    history.revision("new", [100])
    assert history.regress("old", "--rounds", "3", "--decode", "4").returncode == 0
    order = (history.folder / "order").read_text().split()
    assert order == ["old", "new"] + ["old", "new", "new", "old", "old", "new"]


def test_kept_builds_are_used_again(history):
    history.revision("new", [100])
    keep = str(history.folder / "kept")
    for _ in range(2):
        assert history.regress("old", "--keep", keep).returncode == 0
    assert (history.folder / "cmake.log").read_text().count("--build") == 2


def test_regress_refuses(history):
    run = history.regress("nothing")
    assert run.returncode == 2 and "'nothing' is not a revision" in run.stderr
    run = history.regress("old")
    assert run.returncode == 2 and "the same revision" in run.stderr
    history.folder.joinpath("tree/broken").write_text("")
    history.revision("broken-one", [1])
    run = history.regress("old")
    assert run.returncode == 3 and "does not build" in run.stderr and "error: expected ;" in run.stderr
    run = history.regress("old", "--model", "/nowhere.gguf")
    assert run.returncode == 2 and "there is no /nowhere.gguf" in run.stderr
    run = history.regress("old", "--confirm-rounds", "5")
    assert run.returncode == 2 and "from 8 on" in run.stderr
