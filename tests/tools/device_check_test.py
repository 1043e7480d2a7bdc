"""tools/device_check: what it makes of a program that passes, fails, hangs or is not there, and how it compares results."""
import importlib.machinery
import importlib.util
import json
import pathlib
import struct
import subprocess
import sys
import time
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
loader = importlib.machinery.SourceFileLoader("device_check", str(ROOT / "tools/device_check"))
spec = importlib.util.spec_from_loader("device_check", loader)
device_check = importlib.util.module_from_spec(spec)
sys.modules["device_check"] = device_check
loader.exec_module(device_check)

DEVICES = {"devices": [{"name": "cpu", "available": True}, {"name": "cuda:0", "available": True}]}
REFUSES = 'echo "redline: invalid argument: cuda:999: the NVIDIA driver lists 1 GPU" >&2; exit 2'


def check(folder, *arguments, devices=DEVICES, otherwise=REFUSES):
    """Runs the tool over a bundle whose program is a shell script; its exit status, and what it has written."""
    program = folder / "redline"
    program.write_text(f"#!/bin/sh\nif [ \"$1\" = devices ]; then echo '{json.dumps(devices)}'; exit 0; fi\n{otherwise}\n")
    program.chmod(0o755)
    done = subprocess.run([sys.executable, ROOT / "tools/device_check", "--bundle", folder, *arguments], capture_output=True, text=True, timeout=60)
    report = folder / "device_check.json"
    return done, json.loads(report.read_text())["parts"] if report.is_file() else {}


def test_parts_pass_and_are_written(tmp_path):
    done, parts = check(tmp_path, "--suite", "machine,refusals")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [entry["status"] for entry in parts.values()] == ["passed", "passed"] and "cuda:999" in parts["refusals"]["result"]["message"]


def test_a_device_that_cannot_be_used_ends_it(tmp_path):
    missing = {"devices": [{"name": "cuda", "available": False, "reason": "the NVIDIA driver finds no GPU"}]}
    done, parts = check(tmp_path, devices=missing)
    assert done.returncode == 1 and list(parts) == ["machine"] and "cannot be used" in parts["machine"]["why"]


def test_a_device_that_computes_wrongly_is_tested_all_the_same(tmp_path):
    wrong = {"devices": [{"name": "cuda:0", "available": False, "reason": "cuda:0: its kernels compute wrong numbers"}]}
    unchecked = f"if [ \"$1\" = devices ]; then [ \"$REDLINE_DEVICE_CHECK\" = 0 ] && echo '{json.dumps(DEVICES)}' || echo '{json.dumps(wrong)}'; exit 0; fi\n"
    program = tmp_path / "redline"
    program.write_text(f"#!/bin/sh\n{unchecked}{REFUSES}\n")
    program.chmod(0o755)
    subprocess.run([sys.executable, ROOT / "tools/device_check", "--bundle", tmp_path, "--suite", "machine,refusals"], capture_output=True, text=True, timeout=60)
    parts = json.loads((tmp_path / "device_check.json").read_text())["parts"]
    assert parts["machine"]["status"] == "failed" and "wrong numbers" in parts["machine"]["why"] and parts["refusals"]["status"] == "passed", parts


# A test program: of two suites, where one test fails, one ends the process, and those after a failure fail too.
TESTS = """#!{python}
import os, sys
filters = [a.split("=", 1)[1].split(":") for a in sys.argv if a.startswith("--gtest_filter=")][0]
names = ["Good/AOp.Runs/0", "Good/AOp.Runs/1", "BOp.Fails", "BOp.AfterIt", "BOp.Ends", "BOp.Last"]
if "--gtest_list_tests" in sys.argv:
    print("Good/AOp.\\n  Runs/0  # GetParam() = 3\\n  Runs/1\\nBOp.\\n  Fails\\n  AfterIt\\n  Ends\\n  Last\\n  DISABLED_Old")
    sys.exit()
broken = False
for name in names:
    if name not in filters:
        continue
    print("[ RUN      ] " + name, flush=True)
    if name == "BOp.Ends":
        os._exit(7)
    broken = broken or name == "BOp.Fails"
    if broken:
        print("an error of the device at " + name)
    print(("[  FAILED  ] " if broken else "[       OK ] ") + name + " (3 ms)", flush=True)
sys.exit(broken)
"""


def test_tests_that_fail_run_again_alone(tmp_path):
    for name in ("graph_tests", "runtime_tests"):
        (tmp_path / name).write_text(TESTS.format(python=sys.executable))
        (tmp_path / name).chmod(0o755)
    done, parts = check(tmp_path, "--suite", "ops")
    assert done.returncode == 1, done.stdout + done.stderr
    result = parts["ops"]["result"]
    for part in ("graph", "attention"):  # the second one runs though the first one fails
        failed = result[part]["failed"]
        assert result[part]["tests"] == 6 and failed["BOp.Fails"] == "an error of the device at BOp.Fails", failed
        assert failed["BOp.Ends"].startswith("ends the process: exit status 7"), failed
        assert set(failed) - {"BOp.AfterIt", "BOp.Last"} == {"BOp.Fails", "BOp.Ends"}, failed
        assert all(text.startswith("only beside others: ") for name, text in failed.items() if name in ("BOp.AfterIt", "BOp.Last")), failed


def test_results_are_written_as_they_come(tmp_path):
    """The first model is measured; at the second one the budget ends."""
    otherwise = f"case \"$*\" in *{device_check.BENCHES[0][0]}:{device_check.BENCHES[0][1]}*) echo '{{\"rows\": [{{\"tokens_per_s\": 5, \"phase\": \"decode\"}}]}}';; *) exec sleep 60;; esac"
    program = tmp_path / "redline"
    program.write_text(f"#!/bin/sh\n{otherwise}\n")
    program.chmod(0o755)
    report = tmp_path / "device_check.json"
    running = subprocess.Popen([sys.executable, ROOT / "tools/device_check", "--bundle", tmp_path, "--suite", "bench"], stdout=subprocess.DEVNULL)
    try:
        for _ in range(300):
            if report.is_file() and (json.loads(report.read_text())["parts"]["bench"].get("result") or {}):
                break
            time.sleep(0.1)
    finally:
        running.kill()
        running.wait()
    entry = json.loads(report.read_text())["parts"]["bench"]
    assert entry["status"] == "running" and list(entry["result"]) == [":".join(device_check.BENCHES[0])], entry


def test_a_part_that_hangs_is_ended_and_the_next_one_runs(tmp_path):
    done, parts = check(tmp_path, "--suite", "refusals,peers", "--budget", "2", otherwise="exec sleep 30")
    assert done.returncode == 1 and parts["refusals"]["status"] == "failed" and parts["refusals"]["seconds"] < 10
    assert parts["peers"]["status"] == "skipped"


def speeds(**changed):
    return {"model": "NVIDIA H200", "read_bytes_per_s": 4.3e12, "copy_bytes_per_s": 4.2e12, "upload_bytes_per_s": 2e10, "download_bytes_per_s": 2e10,
            "launch_seconds": 3e-6, "own_rows": 192,
            "peaks": [{"type": "bf16", "by": "cuBLASLt 13.0.2", "operations_per_s": 7.9e14, "reason": ""},
                      {"type": "e4m3", "by": "", "operations_per_s": None, "reason": "cuBLASLt 13.0.2 has no such product on NVIDIA A100"}], **changed}


def test_ceilings_name_the_machine_and_are_never_zeros(tmp_path):
    done, parts = check(tmp_path, "--suite", "ceilings", otherwise=f"echo '{json.dumps(speeds())}'")
    assert done.returncode == 0 and parts["ceilings"]["result"]["gb_per_s"]["read_bytes_per_s"] == 4300, done.stdout + done.stderr
    assert json.loads((tmp_path / "device_check.json").read_text())["machine"] == "NVIDIA H200" and "read 4300.0 GB/s" in done.stdout
    assert "bf16 790.0 TOP/s, e4m3: none, cuBLASLt 13.0.2 has no such product on NVIDIA A100" in done.stdout, done.stdout
    done, parts = check(tmp_path, "--suite", "ceilings", otherwise=f"echo '{json.dumps(speeds(copy_bytes_per_s=0))}'")
    assert done.returncode == 1 and "a rate is nothing" in parts["ceilings"]["why"]
    # A GPU without its library is measured, and has no record.
    script = f"case \"$*\" in *--record*) echo 'redline: unsupported: --record: cuda:0 has no matrix library' >&2; exit 4;; esac; echo '{json.dumps(speeds(own_rows=None))}'"
    done, parts = check(tmp_path, "--suite", "ceilings", otherwise=script)
    assert done.returncode == 0 and parts["ceilings"]["result"]["own_rows"] is None


def test_kernels_are_shown_beside_the_ceilings(tmp_path):
    stage = {"op": "linear", "rows": 16, "cols": 4096, "count": 32, "seconds": 1e-5, "bound_seconds": 8e-6}
    report = speeds(steps=[{"rows": 16, "stages": [stage, {**stage, "op": "attention", "bound_seconds": 0}]}])
    done, parts = check(tmp_path, "--suite", "kernels", otherwise=f"echo '{json.dumps(report)}'")
    assert done.returncode == 0 and set(parts["kernels"]["result"]) == {model for model, _ in device_check.KERNELS}
    assert "32 x linear             4096 cols      10.0 us  80% of the ceiling" in done.stdout, done.stdout
    done, parts = check(tmp_path, "--suite", "kernels", otherwise="echo no >&2; exit 1")
    assert done.returncode == 1 and "no model was measured" in parts["kernels"]["why"]


def test_peers_that_are_not_installed_are_named(tmp_path):
    done, parts = check(tmp_path, "--suite", "peers", "--python", sys.executable)
    assert done.returncode == 0 and parts["peers"]["status"] == "skipped" and "not installed: torch" in parts["peers"]["why"], parts
    wrong = subprocess.run([sys.executable, ROOT / "tools/device_peers.py", "--shapes", "llama-2b"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "llama-8b" in wrong.stderr


def test_a_llama_bench_is_asked_for_the_same_rows(tmp_path):
    rows = [{"n_prompt": 512, "n_gen": 0, "avg_ts": 900.5, "build_commit": "abc"}, {"n_prompt": 0, "n_gen": 64, "avg_ts": 40.25, "build_commit": "abc"}]
    tool = tmp_path / "llama-bench"
    tool.write_text(f"#!/bin/sh\necho \"$@\" >{tmp_path}/asked\necho '{json.dumps(rows)}'\n")
    tool.chmod(0o755)
    done = subprocess.run([sys.executable, ROOT / "tools/device_peers.py", "--device", "cpu", "--shapes", "none", "--networks", "none", "--llama-bench", tool,
                           "--gguf", "m.gguf"], capture_output=True, text=True)
    found = json.loads(done.stdout)["rows"]
    assert done.returncode == 0 and [(row["phase"], row["tokens_per_s"]) for row in found if "why" not in row] == [("prefill", 900.5), ("decode of 1", 40.25)]
    assert "-m m.gguf -p 512 -n 64 -ngl 0" in (tmp_path / "asked").read_text()


# Stand-ins for packages of a GPU: what a dry run asks of them.
FLASHINFER = """
class BatchDecodeWithPagedKVCacheWrapper:
    def __init__(self, float_workspace_buffer, kv_layout="NHD", use_cuda_graph=False): pass
    def plan(self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, pos_encoding_mode="NONE", window_left=-1,
             logits_soft_cap=None, q_data_type="float16", kv_data_type=None, data_type=None): pass
    def run(self, q, paged_kv_cache): pass
"""
TORCH = """
bfloat16, int32, uint8 = "bfloat16", "int32", "uint8"
class Tensor:
    def __mul__(self, other): return self
def make(*sizes, **options): return Tensor()
zeros = arange = randperm = full = randn = make
def manual_seed(seed): pass
def set_grad_enabled(enabled): pass
"""


def dry_run(folder, *arguments, **modules):
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    done = subprocess.run([sys.executable, ROOT / "tools/device_peers.py", "--dry-run", "--output", folder / "rows.json", *arguments], capture_output=True,
                          text=True, timeout=60, env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"})
    assert json.loads(done.stdout) == json.loads((folder / "rows.json").read_text()), done.stderr
    return {row["engine"]: row for row in json.loads(done.stdout)["rows"]}


def test_a_dry_run_asks_every_peer(tmp_path):
    rows = dry_run(tmp_path, torch=TORCH, flashinfer=FLASHINFER)
    assert rows["flashinfer"]["why"] == "a dry run: the calls fit its signatures"
    assert all("not installed" in rows[name]["why"] for name in ("diffusers", "transformers")), rows
    rows = dry_run(tmp_path, torch=TORCH, flashinfer=FLASHINFER.replace("kv_data_type=None, ", ""))
    assert "TypeError" in rows["flashinfer"]["why"] and "kv_data_type" in rows["flashinfer"]["why"]


def test_rows_of_peers_outlive_their_time(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nwhile [ $# -gt 1 ]; do [ \"$1\" = --output ] && echo '{\"rows\": [{\"engine\": \"x\", \"seconds\": 1}]}' >\"$2\"; shift; done\nexec sleep 30\n")
    python.chmod(0o755)
    done, parts = check(tmp_path, "--suite", "peers", "--budget", "3", "--python", python)
    assert done.returncode == 0 and parts["peers"]["result"]["rows"][0]["engine"] == "x", parts


def test_wrong_usage(tmp_path):
    assert check(tmp_path, "--suite", "speed")[0].returncode == 2
    empty = subprocess.run([sys.executable, ROOT / "tools/device_check", "--bundle", tmp_path / "none"], capture_output=True, text=True)
    assert empty.returncode == 2 and "device_bundle" in empty.stderr


def test_arrays_and_images_are_compared(tmp_path):
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }".ljust(117) + "\n"
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack("<2f", 3, 4))
    values = device_check.npy_floats(tmp_path / "x.npy")
    assert list(values) == [3, 4] and device_check.relative_error([3, 4], values) == 0
    assert abs(device_check.relative_error([3, 9], values) - 1) < 1e-6 and device_check.relative_error([3, float("nan")], values) == float("inf")

    def png(rows):  # each with its filter
        part = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        return (b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", 2, len(rows), 8, 2, 0, 0, 0))
                + part(b"IDAT", zlib.compress(b"".join(bytes(row) for row in rows))) + part(b"IEND", b""))

    # The same row by each filter: none, left, up, average, Paeth.
    rows = [(0, 1, 2, 3, 11, 12, 13), (1, 1, 2, 3, 10, 10, 10), (2, 0, 0, 0, 0, 0, 0), (3, 1, 1, 2, 5, 5, 5), (4, 0, 0, 0, 0, 0, 0)]
    (tmp_path / "x.png").write_bytes(png(rows))
    assert device_check.png_bytes(tmp_path / "x.png") == bytes((1, 2, 3, 11, 12, 13)) * 5
