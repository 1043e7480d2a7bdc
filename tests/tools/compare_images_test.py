"""tools/compare_images against stand-ins with the output format of the real programs."""
import json
import pathlib
import subprocess
import sys

import pytest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
import paired_runs as runs  # noqa: E402
import image_peers as peers  # noqa: E402

REDLINE = """
report = {"step_ms": [900.0, 500.0, 520.0], "decode_ms": 250.0}
if "broken" in sys.argv:
    del report["decode_ms"]
print(json.dumps(report))
"""
# Two loads: one before the image, which is not counted, and one during sampling, which is subtracted.
SD_CLI = """
print("[INFO ] x.cpp:1 - loading tensors completed, taking 9.00s (read: 9s)")
print("[INFO ] x.cpp:2 - generating image: 1/1 - seed 42")
print("[INFO ] x.cpp:3 - loading tensors completed, taking 0.50s (read: 0.4s)")
steps = int(sys.argv[sys.argv.index("--steps") + 1])
print(f"[INFO ] x.cpp:4 - sampling completed, taking {0.5 + 2.0 * steps:.2f}s")
print("[INFO ] x.cpp:5 - decoding 1 latents")
print("[INFO ] x.cpp:6 - loading tensors completed, taking 0.25s (read: 0.2s)")
print("[INFO ] x.cpp:7 - decode_first_stage completed, taking 1.25s")
"""


@pytest.fixture
def program(tmp_path):
    def make(name, body):
        path = tmp_path / name
        path.write_text(f"#!{sys.executable}\nimport json, sys\n" + body)
        path.chmod(0o755)
        return str(path)
    return make


def compare(*arguments):
    return subprocess.run([sys.executable, str(TOOLS / "compare_images"), *arguments], capture_output=True, text=True, timeout=60)


def test_ratios_are_of_steps_and_decoding_without_loading(program, tmp_path):
    ours, theirs = program("redline", REDLINE), program("sd-cli", SD_CLI)
    done = compare(str(tmp_path), "--redline", ours, "--sd-cli", theirs, "--steps", "4", "--rounds", "2", "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)["programs"]
    assert record["redline"]["step_s"]["values"] == [0.52, 0.52]
    assert record["sd.cpp"]["step_s"]["median"] == pytest.approx(2.0)
    assert record["sd.cpp"]["decode_s"]["median"] == pytest.approx(1.0)
    assert record["sd.cpp"]["step_s_ratio"]["median"] == pytest.approx(2.0 / 0.52)
    assert record["sd.cpp"]["peak_bytes"] > 0


def test_the_table_names_every_program(program, tmp_path):
    done = compare(str(tmp_path), "--redline", program("redline", REDLINE), "--sd-cli", program("sd-cli", SD_CLI),
                   "--rounds", "1")
    assert done.returncode == 0, done.stderr
    assert "redline" in done.stdout and "sd.cpp" in done.stdout


def test_output_that_does_not_say_what_was_measured_is_refused():
    with pytest.raises(runs.Refusal, match="sampling"):
        peers.SdCli.parse("nothing of the kind", 4, 0)
    with pytest.raises(runs.Refusal, match="cannot be read"):
        peers.Redline.parse('{"step_ms": []}', 0)
    with pytest.raises(runs.Refusal, match="cannot be read"):
        peers.Redline.parse("no json", 0)


def test_a_program_that_fails_is_shown_with_its_last_words(program, tmp_path):
    failing = program("redline", 'print("no such folder", file=sys.stderr)\nsys.exit(3)\n')
    done = compare(str(tmp_path), "--redline", failing, "--sd-cli", failing, "--rounds", "1")
    assert done.returncode == 3 and "status 3" in done.stderr and "no such folder" in done.stderr


def test_one_that_never_ends_is_stopped(program, tmp_path):
    slow = program("redline", "import time\ntime.sleep(60)\n")
    done = compare(str(tmp_path), "--redline", slow, "--sd-cli", slow, "--timeout", "1")
    assert done.returncode == 3 and "within 1 s" in done.stderr


@pytest.mark.parametrize("arguments, word", [([], "--sd-cli"), (["--sd-cli", "x", "--compile"], "--python"), (["--sd-cli", "x", "--size", "12"], "WxH"),
                                             (["--sd-cli", "/nowhere/sd", "--rounds", "1"], "does not start")])
def test_wrong_usage_says_what_to_give(program, tmp_path, arguments, word):
    done = compare(str(tmp_path), "--redline", program("redline", REDLINE), *arguments)
    assert done.returncode == 2 and word in done.stderr
