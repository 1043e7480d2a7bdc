"""Programs that generate the same image from the same diffusers folder: command line and output parser of each. For
tools/compare_images; standard library only (diffusers runs in its own process)."""
import dataclasses
import json
import os
import re
import shlex
import statistics
import subprocess
import tempfile
import time

import paired_runs as runs


@dataclasses.dataclass
class Request:
    folder: str
    prompt: str
    width: int
    height: int
    steps: int
    guidance: float
    threads: int
    cpus: list
    timeout: int


@dataclasses.dataclass
class Drawing:
    """Cost of one image: seconds, and peak memory in bytes (0: unknown)."""
    step_s: float
    decode_s: float
    peak_bytes: int = 0


def run_program(label, command, request):
    """(stdout, stderr, peak memory in bytes) of a command on the request's CPUs. Refusal when it fails."""
    with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        environment = {**os.environ, "OMP_NUM_THREADS": str(request.threads), "OMP_PROC_BIND": "true",
                       "OMP_PLACES": ",".join(f"{{{cpu}}}" for cpu in request.cpus)}
        try:
            process = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=environment,
                                       preexec_fn=lambda: os.sched_setaffinity(0, request.cpus))
        except OSError as error:
            raise runs.Refusal(f"{label}: {command[0]} does not start: {error}", 2) from None
        deadline = time.monotonic() + request.timeout
        while True:  # only wait4 gives the memory of this one child
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                break
            if time.monotonic() > deadline:
                process.kill()
                os.wait4(process.pid, 0)
                process.returncode = -9
                raise runs.Refusal(f"{label}: no image within {request.timeout} s; ask for fewer steps, or raise --timeout\n"
                                   f"  command: {shlex.join(command)}")
            time.sleep(0.02)
        out.seek(0), err.seek(0)
        stdout, stderr = out.read(), err.read()
    if process.returncode != 0:
        said = (stderr.strip() or stdout.strip()).splitlines()[-4:]
        raise runs.Refusal("\n  ".join([f"{label}: ended with status {process.returncode}", f"command: {shlex.join(command)}", *said]))
    return stdout, stderr, usage.ru_maxrss * 1024


class Redline:
    label = "redline"

    def __init__(self, path, dtype):
        self.path, self.dtype = path, dtype

    def draw(self, request):
        with tempfile.TemporaryDirectory() as folder:
            command = [self.path, "image", request.folder, request.prompt, "--size", f"{request.width}x{request.height}", "--steps",
                       str(request.steps), "--guidance", str(request.guidance), "--solver", "euler", "--seed", "1", "--dtype", self.dtype,
                       "--threads", str(request.threads), "--json", "--output", os.path.join(folder, "picture.png")]
            stdout, _, peak = run_program(self.label, command, request)
        return self.parse(stdout, peak)

    @staticmethod
    def parse(stdout, peak):
        try:
            report = json.loads(stdout)
            return Drawing(statistics.median(report["step_ms"]) / 1e3, report["decode_ms"] / 1e3, peak)
        except (ValueError, KeyError, TypeError, statistics.StatisticsError) as error:
            raise runs.Refusal(f"redline: its report cannot be read: {error}") from None


class SdCli:
    """stable-diffusion.cpp's sd-cli. It loads weights on first use; that time is subtracted."""
    label = "sd.cpp"

    def __init__(self, path, extra=()):
        self.path, self.extra = path, list(extra)

    def draw(self, request):
        with tempfile.TemporaryDirectory() as folder:
            command = [self.path, "-m", request.folder, "-p", request.prompt, "-W", str(request.width), "-H", str(request.height), "--steps",
                       str(request.steps), "--cfg-scale", str(request.guidance), "--sampling-method", "euler", "-s", "1", "-t",
                       str(request.threads), "-o", os.path.join(folder, "picture.png"), *self.extra]
            stdout, stderr, peak = run_program(self.label, command, request)
        return self.parse(stdout + stderr, request.steps, peak)

    @staticmethod
    def parse(text, steps, peak):
        spans = {}
        for name, begin, end in (("sampling", "generating image: ", "sampling completed, taking "),
                                 ("decoding", "decoding ", "decode_first_stage completed, taking ")):
            found = re.search(re.escape(begin) + r"(.*?)" + re.escape(end) + r"([0-9.]+)s", text, re.DOTALL)
            if not found:
                raise runs.Refusal(f'sd.cpp: its output does not say how long {name} took; is it sd-cli with "{end.strip()}"?')
            loads = re.findall(r"loading tensors completed, taking ([0-9.]+)s", found.group(1))
            spans[name] = float(found.group(2)) - sum(map(float, loads))
        return Drawing(spans["sampling"] / steps, spans["decoding"], peak)


# The process that runs diffusers: reads a line, prints a line of JSON.
DIFFUSERS = r'''
import sys, time, json, torch, diffusers
folder, dtype, threads, compiled = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "1"
torch.set_num_threads(threads)
pipe = diffusers.DiffusionPipeline.from_pretrained(folder, torch_dtype={"bf16": torch.bfloat16, "f32": torch.float32}[dtype], safety_checker=None)
pipe.set_progress_bar_config(disable=True)
if hasattr(pipe, "unet"): pipe.scheduler = diffusers.EulerDiscreteScheduler.from_config(pipe.scheduler.config)
name = "unet" if hasattr(pipe, "unet") else "transformer"
if compiled: setattr(pipe, name, torch.compile(getattr(pipe, name)))
print("ready", flush=True)
for line in sys.stdin:
  r = json.loads(line)
  marks = []
  def mark(pipe, step, timestep, kwargs): marks.append(time.perf_counter()); return kwargs
  z = pipe(r["prompt"], width=r["width"], height=r["height"], num_inference_steps=r["steps"] + 1, guidance_scale=r["guidance"],
           output_type="latent", callback_on_step_end=mark).images
  steps = sorted(b - a for a, b in zip(marks, marks[1:]))
  begin = time.perf_counter()
  with torch.inference_mode(): pipe.vae.decode(z.to(pipe.vae.dtype) if z.dim() == 4 else pipe._unpack_latents(z, r["height"], r["width"], pipe.vae_scale_factor))
  print(json.dumps({"step_s": steps[len(steps) // 2], "decode_s": time.perf_counter() - begin}), flush=True)
'''


class Diffusers:
    """diffusers' own pipeline in a process that persists over all rounds; the first step of each image is not counted."""

    def __init__(self, python, dtype, compiled, request):
        self.label = "diffusers " + ("compiled" if compiled else "eager")
        self.process = subprocess.Popen([python, "-c", DIFFUSERS, request.folder, dtype, str(request.threads), str(int(compiled))],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        preexec_fn=lambda: os.sched_setaffinity(0, request.cpus))
        if self.process.stdout.readline().strip() != "ready":
            raise runs.Refusal(f"{self.label}: {python} did not open {request.folder}; has it torch, transformers and diffusers?")

    def draw(self, request):
        wanted = {name: getattr(request, name) for name in ("prompt", "width", "height", "steps", "guidance")}
        self.process.stdin.write(json.dumps(wanted) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise runs.Refusal(f"{self.label}: ended without an image (its error stands above)")
        return Drawing(**json.loads(line))

    def close(self):
        self.process.stdin.close()
        self.process.wait()
