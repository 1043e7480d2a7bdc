"""The node pack inside ComfyUI: its server runs the example workflows, and its sampler a MODEL with a step cache.

Runs where REDLINE_COMFYUI names a checkout of ComfyUI. REDLINE_COMFYUI_PYTHON is the command in that folder before the options,
default "python main.py".
"""
import json
import math
import os
import pathlib
import shlex
import socket
import subprocess
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
import redline

FOLDER = os.environ.get("REDLINE_COMFYUI")
pytestmark = pytest.mark.skipif(not FOLDER, reason="REDLINE_COMFYUI names no checkout of ComfyUI")

# ComfyUI takes the number of heads and the rope axes of FLUX as constants; those of the bundled model are others.
SMALL_FLUX = """
import comfy.model_detection as detection
detect = detection.detect_unet_config
def detect_small(*args, **options):
    config = detect(*args, **options)
    if config and config.get("image_model") == "flux" and config.get("hidden_size") == 256:
        config["num_heads"], config["axes_dim"] = 4, [16, 24, 24]
    return config
detection.detect_unet_config = detect_small
NODE_CLASS_MAPPINGS = {}
"""


class Server:
    def __init__(self, base, root):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.output = base / "output"
        nodes, models = base / "custom_nodes", base / "models" / "diffusion_models"
        nodes.mkdir(parents=True)
        models.mkdir(parents=True)
        (nodes / "comfyui_redline").symlink_to(root / "comfyui_redline")
        (nodes / "small_flux.py").write_text(SMALL_FLUX)
        (models / "small.safetensors").symlink_to(root / "assets/redline-shapes/transformer/diffusion_pytorch_model.safetensors")
        start = shlex.split(os.environ.get("REDLINE_COMFYUI_PYTHON", "python main.py"))
        self.log = open(base / "log", "w+")  # noqa: SIM115
        package = str(pathlib.Path(redline.__file__).parent.parent)
        self.process = subprocess.Popen(
            [*start, "--cpu", "--port", str(port), "--base-directory", str(base), "--disable-auto-launch"], cwd=FOLDER,
            stdout=self.log, stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])})

    def get(self, path):
        return json.load(urllib.request.urlopen(self.url + path, timeout=30))

    def wait(self, what, seconds):
        end = time.time() + seconds
        while time.time() < end:
            assert self.process.poll() is None, self.text()
            try:
                if (found := what()) is not None:
                    return found
            except (urllib.error.URLError, ConnectionError):
                pass
            time.sleep(0.2)
        raise AssertionError(self.text())

    def text(self):
        self.log.seek(0)
        return self.log.read()[-4000:]

    def run(self, graph):
        """The images of a workflow, as arrays."""
        request = urllib.request.Request(self.url + "/prompt", json.dumps({"prompt": graph}).encode(),
                                         {"Content-Type": "application/json"})
        try:
            number = json.load(urllib.request.urlopen(request, timeout=30))["prompt_id"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error
        done = self.wait(lambda: self.get(f"/history/{number}").get(number), 300)
        assert done["status"]["status_str"] == "success", done["status"]["messages"][-1]
        from PIL import Image

        return [np.asarray(Image.open(self.output / image["filename"])).astype(np.float64)
                for out in done["outputs"].values() for image in out["images"]]


@pytest.fixture(scope="module", name="server")
def server_fixture(tmp_path_factory, root):
    server = Server(tmp_path_factory.mktemp("comfyui"), root)
    try:
        server.wait(lambda: server.get("/object_info/RedlineLoader") or None, 120)
        yield server
    finally:
        server.process.terminate()
        server.process.wait(30)


def psnr(a, b):
    error = ((a - b) ** 2).mean()
    return math.inf if error == 0 else 10 * np.log10(255**2 / error)


@pytest.mark.parametrize("name", ["text_to_image", "encode_sample_decode"])
def test_workflow(server, root, name):
    graph = json.loads((root / f"comfyui_redline/workflows/{name}.json").read_text())
    for node in graph.values():
        if node["class_type"] == "RedlineLoader":
            node["inputs"]["path"] = str(root / "assets/redline-shapes")
    images = server.run(graph)
    assert [image.shape for image in images] == [(128, 128, 3)]
    assert images[0].std() > 20


def sampler_graph(root, **cache):
    graph = {
        "1": {"class_type": "RedlineLoader", "inputs": {"path": str(root / "assets/redline-shapes"), "dtype": "f32", "threads": 0}},
        "2": {"class_type": "RedlineTextEncode", "inputs": {"pipeline": ["1", 0], "text": "a large red house on a meadow"}},
        "3": {"class_type": "RedlineTextEncode", "inputs": {"pipeline": ["1", 0], "text": ""}},
        "4": {"class_type": "UNETLoader", "inputs": {"unet_name": "small.safetensors", "weight_dtype": "default"}},
        "5": {"class_type": "EmptySD3LatentImage", "inputs": {"width": 128, "height": 128, "batch_size": 1}},
        "6": {"class_type": "KSampler", "inputs": {
            "model": ["4", 0], "positive": ["2", 0], "negative": ["3", 0], "latent_image": ["5", 0], "seed": 6, "steps": 28, "cfg": 4.0,
            "sampler_name": "euler", "scheduler": "simple", "denoise": 1.0}},
        "7": {"class_type": "RedlineVAEDecode", "inputs": {"pipeline": ["1", 0], "latent": ["6", 0]}},
        "8": {"class_type": "SaveImage", "inputs": {"images": ["7", 0], "filename_prefix": "model"}},
    }
    if cache:
        graph["9"] = {"class_type": "RedlineApplyCache", "inputs": {
            "model": ["4", 0], "method": "first block cache", "residual_diff_threshold": 0.12, "start": 0.0, "end": 1.0,
            "max_consecutive_cache_hits": -1, **cache}}
        graph["6"]["inputs"]["model"] = ["9", 0]
    return graph


def test_step_caches_of_a_model(server, root):
    plain, = server.run(sampler_graph(root))
    # At threshold 0 every block runs, through the replacements.
    off, = server.run(sampler_graph(root, residual_diff_threshold=0.0))
    assert psnr(off, plain) == math.inf
    for settings in ({"residual_diff_threshold": 0.12}, {"method": "redline"}, {"method": "redline", "steps_budget": 12}):
        cached, = server.run(sampler_graph(root, **settings))
        assert 35 < psnr(cached, plain) < math.inf, settings  # steps were skipped, and the image is the same one
