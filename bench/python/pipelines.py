#!/usr/bin/env python3
"""Whole pipelines of diffusers: eager, torch.compile and redline.diffusers.accelerate, in turn (A B C A B C ...).

  python bench/python/pipelines.py shapes                        the bundled pipeline, its trained weights
  python bench/python/pipelines.py sd15 --side 512 --steps 10    the widths of Stable Diffusion 1.5, few blocks, random weights;
                                                                 sdxl, sd3, flux, pixart: pipeline_shapes.py
  python bench/python/pipelines.py shapes --engines eager,redline --dtype bf16 --rounds 7

Wall-clock of pipe(...) from the prompt to the pixels. The pictures are compared first: 50 dB to eager in float32, else 25 dB for what
bfloat16 does to a whole loop. A first round warms up, and compiles the denoiser and the VAE's decoder: with a folder in
TORCHINDUCTOR_CACHE_DIR the next run finds what this one compiled. GFLOP are those of matrix products and convolutions that PyTorch
counts; the share is of the ceiling that `redline devices` measures. Needs torch, diffusers, transformers.
"""
import argparse
import copy
import json
import math
import os
import pathlib
import statistics
import subprocess
import time

import diffusers
import torch
from pipeline_shapes import SHAPES
from torch.utils.flop_counter import FlopCounterMode

import redline.diffusers

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENGINES = ("eager", "compiled", "redline")
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
PROMPT = "a large red circle on a blue background"


PIPELINES = {  # how it is made, its blocks, pixels, steps, further arguments of a call
    "shapes": (lambda: diffusers.FluxPipeline.from_pretrained(ROOT / "assets/redline-shapes"), "all blocks", 128, 28,
               dict(max_sequence_length=64, true_cfg_scale=4.0, negative_prompt="")),
    **SHAPES,
}


class Stages:
    """Seconds that a pipeline spends in each of its networks."""

    def __init__(self, pipe):
        self.seconds = {}
        for name, module in pipe.components.items():
            if name.startswith("text_encoder") and module is not None:
                module.forward = self._timed("text", module.forward)
            elif name in ("transformer", "unet") and module is not None:
                module.forward = self._timed("denoiser", module.forward)
            elif name == "vae":
                module.decode = self._timed("vae", module.decode)

    def _timed(self, stage, call):
        def timed(*args, **kwargs):
            begin = time.perf_counter()
            result = call(*args, **kwargs)
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - begin
            return result
        return timed


def prepare(pipe, engine, dtype, redline_type, threads):
    pipe.set_progress_bar_config(disable=True)
    if engine == "redline":
        return redline.diffusers.accelerate(pipe, dtype=redline_type or dtype, threads=threads)
    if engine == "compiled":
        for name in ("transformer", "unet"):
            if getattr(pipe, name, None) is not None:
                setattr(pipe, name, torch.compile(getattr(pipe, name)))
        pipe.vae.decode = torch.compile(pipe.vae.decode)
    return pipe


def sharing(pipe):
    """A pipeline with modules of its own, whose tensors are those of another."""
    tensors = {}
    for part in pipe.components.values():
        if isinstance(part, torch.nn.Module):
            tensors.update((id(tensor), tensor) for tensor in (*part.parameters(), *part.buffers()))
    return copy.deepcopy(pipe, tensors)


def psnr(got, expected):
    error = float(((got - expected) ** 2).mean())
    return math.inf if error == 0 else -10 * math.log10(error)


def ceiling(dtype, threads):
    """GOP/s of this machine; None: no program to measure it."""
    for program in (os.environ.get("REDLINE_BINARY"), ROOT / "build/release/redline", ROOT / "build/dev/redline"):
        if program and pathlib.Path(program).exists():
            done = subprocess.run([program, "devices", "--json"], capture_output=True, text=True, check=False)
            found = json.loads(done.stdout)["ceilings"].get(dtype) or {} if done.returncode == 0 else {}
            return found.get("per_thread" if threads == 1 else "all")
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipeline", choices=PIPELINES)
    parser.add_argument("--side", type=int, metavar="PIXELS")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--dtype", choices=TYPES, default="f32")
    parser.add_argument("--redline-type", metavar="TYPE", help='"q8", ...; default: the same')
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    make, blocks, side, steps, more = PIPELINES[args.pipeline]
    side, steps, engines = args.side or side, args.steps or steps, args.engines.split(",")
    torch.set_num_threads(args.threads)
    settings = dict(height=side, width=side, num_inference_steps=steps, output_type="np", **more)

    def call(pipe):
        return pipe(PROMPT, generator=torch.manual_seed(1), **settings).images

    first = make().to(torch.float32)  # transformers loads text encoders as they are stored
    for part in first.components.values():
        if isinstance(part, torch.nn.Module):
            part.eval().requires_grad_(False)
    exact = copy.deepcopy(first) if args.dtype != "f32" else first
    first = first.to(TYPES[args.dtype])
    with FlopCounterMode(display=False) as counter:
        expected = call(prepare(exact, "eager", args.dtype, None, args.threads))
    gflop = counter.get_total_flops() / 1e9
    del exact
    pipes = {}
    for engine in engines:  # eager and compiled share their weights
        pipe = copy.deepcopy(first) if engine == "redline" else sharing(first)
        pipes[engine] = prepare(pipe, engine, args.dtype, args.redline_type, args.threads)
    stages = {engine: Stages(pipe) for engine, pipe in pipes.items()}
    least = 50 if args.dtype == "f32" and not args.redline_type else 25
    for engine, pipe in pipes.items():
        begin = time.perf_counter()
        found = psnr(call(pipe), expected)
        print(f"{engine}: {found:.1f} dB to eager in float32; the first call took {time.perf_counter() - begin:.1f} s", flush=True)
        if found < least:
            raise SystemExit(f"{engine}: less than {least} dB")
        stages[engine].seconds.clear()
    # Measured before and after: other programs on the machine can take a core away from one of the two.
    limit = ceiling(args.dtype, args.threads)
    times = {engine: [] for engine in engines}
    for _ in range(args.rounds):
        for engine, pipe in pipes.items():
            begin = time.perf_counter()
            call(pipe)
            times[engine].append(time.perf_counter() - begin)
    limit = max(limit, ceiling(args.dtype, args.threads)) if limit else None
    print(f"{args.pipeline} ({blocks}), {side}x{side}, {steps} steps, {args.dtype}, {args.threads} threads, {gflop:.0f} GFLOP")
    for engine, found in times.items():
        median = statistics.median(found)
        share = f", {100 * gflop / median / limit:.0f} % of {limit:.0f} GOP/s" if limit else ""
        ratio = statistics.median(a / b for a, b in zip(times[engines[0]], found))
        print(f"{engine:9} {median:8.3f} s ({min(found):.3f} .. {max(found):.3f}), {gflop / median:6.0f} GFLOP/s{share}, "
              f"{ratio:.2f} times {engines[0]}")
        parts = {stage: seconds / args.rounds for stage, seconds in stages[engine].seconds.items()}
        parts["rest"] = statistics.fmean(found) - sum(parts.values())
        print("          of it " + ", ".join(f"{stage} {seconds:.3f} s" for stage, seconds in parts.items()))


if __name__ == "__main__":
    main()
