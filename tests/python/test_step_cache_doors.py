"""Every rule of the step cache through Python, `redline image`, the server and `redline compare`: the same image of the
same seed, with the same steps computed."""
import base64
import contextlib
import io
import json
import subprocess
import urllib.request

import numpy as np
import pytest
import redline
from redline_binary import binary

PIL = pytest.importorskip("PIL.Image")
PROMPT = "a large red circle on a blue background"
STEPS, SIDE, SEED = 8, 64, 5
# Options that a rule needs here: redline-shapes has ten blocks, and dbcache's default warm-up takes all eight steps.
PARAMETERS = {"dbcache": ":fn=1,warmup=2,threshold=1"}
RULES = [rule.name for rule in redline.step_cache_rules()]


@pytest.fixture(scope="module")
def shapes(root, painter):
    return str(root / "assets/redline-shapes")


@pytest.fixture(scope="module")
def server(shapes):
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(subprocess.Popen(
            [binary(), "serve", shapes, "--port", "0", "--threads", "2"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
        stack.callback(process.terminate)
        yield process.stdout.readline().split()[-1]


def of_python(painter, spec):
    result = painter(PROMPT, num_inference_steps=STEPS, seed=SEED, width=SIDE, height=SIDE, cache=spec)
    return result.pixels[0], result.executed_share


def of_command(shapes, spec, folder):
    run = subprocess.run([binary(), "image", shapes, PROMPT, "--steps", str(STEPS), "--seed", str(SEED), "--size", f"{SIDE}x{SIDE}",
                          "--cache", spec, "--threads", "2", "-o", str(folder / "a.png"), "--json"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return np.asarray(PIL.open(folder / "a.png").convert("RGB")), json.loads(run.stdout)["executed_share"]


def of_server(url, spec):
    body = {"prompt": PROMPT, "steps": STEPS, "seed": SEED, "size": f"{SIDE}x{SIDE}", "cache": spec}
    request = urllib.request.Request(url + "/v1/images/generations", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        file = base64.b64decode(json.load(answer)["data"][0]["b64_json"])
    return np.asarray(PIL.open(io.BytesIO(file)).convert("RGB"))


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_draws_the_same_image_through_every_door(painter, shapes, server, tmp_path, rule):
    spec = rule + PARAMETERS.get(rule, "")
    image, share = of_python(painter, spec)
    by_command, share_by_command = of_command(shapes, spec, tmp_path)
    np.testing.assert_array_equal(by_command, image)
    assert share_by_command == pytest.approx(share)
    np.testing.assert_array_equal(of_server(server, spec), image)
    plain, _ = of_python(painter, "none")
    assert np.array_equal(plain, image) == (share == 1), "images differ exactly where steps were left out"


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_compared(shapes, tmp_path, rule):
    (tmp_path / "prompts.txt").write_text(PROMPT + "\n")
    run = subprocess.run([binary(), "compare", shapes, "--prompts", str(tmp_path / "prompts.txt"), "-n", "1", "--steps", str(STEPS),
                          "--size", f"{SIDE}x{SIDE}", "--cache", rule + PARAMETERS.get(rule, ""), "--threads", "2", "--json"],
                         capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    setting = json.loads(run.stdout)["settings"][0]
    assert setting["name"].startswith(rule)
    assert (setting["executed_share"] == 1) == (setting["psnr"]["mean"] == 100)
