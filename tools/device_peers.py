#!/usr/bin/env python3
"""Measures other engines on a GPU, on the shapes of `redline bench`, for tools/device_check.

  python3 tools/device_peers.py --device cuda --shapes llama-1b,llama-8b --batch 1,16,64
  python3 tools/device_peers.py --llama-bench PATH --gguf MODEL.gguf
  python3 tools/device_peers.py --dry-run                                 every engine on the CPU with tiny shapes, to find wrong calls

Needs a Python with torch; of transformers, diffusers and flashinfer it measures those that are installed. Weights and inputs
are random, never zeros, and everything is compiled (torch.compile). Prints JSON: a row for each engine, shape and phase, or
the reason why there is none. Measurements that take longer than --budget are left out. The file of --output always has the rows so far.
"""
import argparse
import inspect
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

# As src/models/files/random_model.cc: hidden, intermediate, layers, heads, key-value heads, size of a head, vocabulary.
SHAPES = {
    "tiny": (256, 512, 2, 4, 2, 64, 512),
    "llama-1b": (2048, 8192, 16, 32, 8, 64, 128256),
    "llama-8b": (4096, 14336, 32, 32, 8, 128, 128256),
}
NETWORKS = ("flux-block", "sd15-unet", "flux-vae")


class Rows(list):
    """Written to a file with each new one."""
    def __init__(self, output):
        super().__init__()
        self.output = output

    def append(self, row):
        super().append(row)
        if self.output:
            pathlib.Path(self.output).write_text(json.dumps({"rows": self}, indent=1) + "\n")


class Bench:
    def __init__(self, args, rows):
        import torch
        self.torch, self.args, self.rows = torch, args, rows
        self.end = time.monotonic() + args.budget
        self.dtype = torch.bfloat16
        torch.manual_seed(1)
        torch.set_grad_enabled(False)

    def sync(self):
        if self.args.device.startswith("cuda"):
            self.torch.cuda.synchronize()

    def time(self, run, repeat=None):
        """The median of some runs, after one that compiles and one that captures."""
        seconds = []
        for i in range((repeat or self.args.repeat) + 2):
            self.sync()
            begin = time.perf_counter()
            run(i)
            self.sync()
            if i >= 2:
                seconds.append(time.perf_counter() - begin)
        return statistics.median(seconds)

    def compile(self, function):
        if self.args.eager:
            return function
        if self.args.dry_run:  # traced as for a GPU; no code is generated
            return self.torch.compile(function, backend="aot_eager")
        return self.torch.compile(function, mode="reduce-overhead" if self.args.device.startswith("cuda") else "default")

    def measure(self, engine, shape, phase, run):
        """`run` returns the fields of the row."""
        row = {"engine": engine, "shape": shape, "phase": phase}
        if time.monotonic() > self.end:
            row["why"] = "the budget is spent"
        else:
            try:
                row.update(run())
            except ImportError as error:
                row["why"] = f"not installed: {error.name}"
            except Exception as error:  # an engine that fails is a result too
                row["why"] = f"{type(error).__name__}: {str(error)[:300]}"
        self.rows.append(row)

    def transformers(self, shape):
        import transformers
        hidden, intermediate, layers, heads, kv_heads, head_dim, vocab = SHAPES[shape]
        config = transformers.LlamaConfig(hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers, num_attention_heads=heads,
                                          num_key_value_heads=kv_heads, head_dim=head_dim, vocab_size=vocab, tie_word_embeddings=shape == "llama-1b",
                                          max_position_embeddings=8192)
        with self.torch.device(self.args.device):
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=self.dtype).eval()
        forward = self.compile(model.forward)
        name, args, torch = f"transformers {transformers.__version__}", self.args, self.torch

        def tokens(rows, count):
            return torch.randint(0, vocab, (rows, count), device=args.device)

        def prefill():
            def run(_):
                cache = transformers.StaticCache(config=config, max_cache_len=args.prefill)
                model(tokens(1, args.prefill), past_key_values=cache, use_cache=True, logits_to_keep=1)
            seconds = self.time(run)
            return {"tokens": args.prefill, "seconds": seconds, "tokens_per_s": args.prefill / seconds}

        def decode(rows):
            cache = transformers.StaticCache(config=config, max_cache_len=args.decode + 64)
            model(tokens(rows, 32), past_key_values=cache, use_cache=True, logits_to_keep=1)

            def step(i):
                position = torch.tensor([[32 + i]], device=args.device)
                forward(tokens(rows, 1), past_key_values=cache, position_ids=position.expand(rows, 1), use_cache=True)
            seconds = self.time(step, args.decode)
            return {"tokens": rows, "seconds": seconds, "tokens_per_s": rows / seconds}

        self.measure(name, shape, "prefill", prefill)
        for rows in args.batch:
            self.measure(name, shape, f"decode of {rows}", lambda rows=rows: decode(rows))

    def diffusers(self, network):
        import diffusers
        torch, args = self.torch, self.args
        random = lambda *sizes: torch.randn(*sizes, device=args.device, dtype=self.dtype)
        small = args.device == "cpu"
        with torch.device(args.device):
            if network == "flux-block":
                image, text, heads = (64, 16, 2) if small else (4096, 512, 24)
                dim = heads * 128
                model = diffusers.FluxTransformer2DModel(num_layers=1, num_single_layers=0, guidance_embeds=True, num_attention_heads=heads,
                                                         attention_head_dim=128).to(self.dtype).transformer_blocks[0]
                inputs = {"hidden_states": random(1, image, dim), "encoder_hidden_states": random(1, text, dim), "temb": random(1, dim),
                          "image_rotary_emb": (torch.randn(image + text, 128), torch.randn(image + text, 128))}
            elif network == "sd15-unet":
                side, channels = (16, (32, 32, 64, 64)) if small else (64, (320, 640, 1280, 1280))
                model = diffusers.UNet2DConditionModel(cross_attention_dim=768, attention_head_dim=8, block_out_channels=channels).to(self.dtype)
                inputs = {"sample": random(2, 4, side, side), "timestep": torch.tensor(500), "encoder_hidden_states": random(2, 77, 768)}
            else:
                side, channels = (8, (32,) * 4) if small else (128, (128, 256, 512, 512))
                model = diffusers.AutoencoderKL(latent_channels=16, block_out_channels=channels, layers_per_block=2, norm_num_groups=32,
                                                down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
                                                use_quant_conv=False, use_post_quant_conv=False).to(self.dtype).decoder
                inputs = {"sample": random(1, 16, side, side)}
        forward = self.compile(model.eval().forward)

        def run():
            return {"seconds": self.time(lambda _: forward(**inputs))}
        self.measure(f"diffusers {diffusers.__version__}", network, "a step", run)

    def flashinfer(self):
        def run():
            import flashinfer
            torch, rows, depth, page = self.torch, 16, 64 if self.args.dry_run else 4096, 32
            integers, numbers = {"dtype": torch.int32, "device": self.args.device}, {"dtype": self.dtype, "device": self.args.device}
            pages = rows * depth // page
            # Its counters start at zero.
            make = (torch.zeros(1 << 20 if self.args.dry_run else 1 << 27, dtype=torch.uint8, device=self.args.device), "NHD")
            begin = torch.arange(rows + 1, **integers) * (depth // page)
            plan = (begin, torch.randperm(pages, **integers), torch.full((rows,), page, **integers), 32, 8, 128, page)
            types = {"q_data_type": self.dtype, "kv_data_type": self.dtype}
            q, kv = torch.randn(rows, 32, 128, **numbers), torch.randn(pages, 2, page, 8, 128, **numbers)
            engine = flashinfer.BatchDecodeWithPagedKVCacheWrapper
            if self.args.dry_run:  # it has no CPU kernels
                for function, arguments, named in ((engine.__init__, make, {}), (engine.plan, plan, types), (engine.run, (q, kv), {})):
                    inspect.signature(function).bind(None, *arguments, **named)
                return {"why": "a dry run: the calls fit its signatures"}
            wrapper = engine(*make)
            wrapper.plan(*plan, **types)
            seconds = self.time(lambda _: wrapper.run(q, kv))
            return {"seconds": seconds, "gb_per_s": kv.numel() * 2 / seconds / 1e9}
        self.measure("flashinfer", "llama-8b", "decode attention of 16 at depth 4096", run)


def llama_bench(args, rows):
    """llama.cpp on a file that `redline bench --random SHAPE:TYPE --save` has written."""
    tool = args.llama_bench or shutil.which("llama-bench")
    if not tool:
        return rows.append({"engine": "llama.cpp", "shape": "", "phase": "", "why": "not installed: llama-bench"})
    for model in args.gguf:
        layers = "0" if args.device == "cpu" else "99"
        try:
            done = subprocess.run([tool, "-m", model, "-p", str(args.prefill), "-n", str(args.decode), "-ngl", layers, "-r", str(args.repeat), "-o", "json"],
                                  capture_output=True, text=True, timeout=args.budget)
            if done.returncode != 0:
                raise ValueError(done.stderr.strip()[-300:])
            for row in json.loads(done.stdout):
                phase = "prefill" if row["n_prompt"] else "decode of 1"
                rows.append({"engine": f"llama.cpp {row.get('build_commit', '')}", "shape": model, "phase": phase, "tokens_per_s": row["avg_ts"]})
        except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
            rows.append({"engine": "llama.cpp", "shape": model, "phase": "", "why": str(error)})
        streams = [batch for batch in args.batch if batch > 1]
        batched = pathlib.Path(tool).with_name("llama-batched-bench")
        if streams and batched.is_file():
            llama_batched(args, rows, batched, model, layers, streams)


def llama_batched(args, rows, tool, model, layers, streams):
    """Several streams that decode, from a prompt of 32 tokens each."""
    try:
        done = subprocess.run([str(tool), "-m", model, "-c", str(max(streams) * (32 + args.decode)), "-npp", "32", "-ntg", str(args.decode), "-npl",
                               ",".join(map(str, streams)), "-ngl", layers, "--output-format", "jsonl"], capture_output=True, text=True, timeout=args.budget)
        found = [json.loads(line) for line in (done.stdout + "\n" + done.stderr).splitlines() if line.startswith("{")]
        if done.returncode != 0 or not found:
            raise ValueError(done.stderr.strip()[-300:])
        for row in found:
            rows.append({"engine": "llama.cpp", "shape": model, "phase": f"decode of {row['pl']}", "tokens_per_s": row["speed_tg"]})
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
        rows.append({"engine": "llama.cpp", "shape": model, "phase": "decode of several", "why": str(error)})


def main():
    numbers = lambda text: [int(part) for part in text.split(",")]
    names = lambda text: [] if text == "none" else text.split(",")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shapes", type=names, default=["llama-1b", "llama-8b"])
    parser.add_argument("--networks", type=names, default=list(NETWORKS))
    parser.add_argument("--batch", type=numbers, default=[1, 4, 16, 64])
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--decode", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--budget", type=float, default=110, metavar="S")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, tiny, one run of each: the figures say nothing")
    parser.add_argument("--llama-bench", default="", metavar="PATH", help="default: of PATH")
    parser.add_argument("--gguf", action="append", default=[], metavar="FILE")
    parser.add_argument("--output", default="", metavar="FILE")
    args = parser.parse_args()
    if args.dry_run:
        args.device, args.shapes, args.batch, args.prefill, args.decode, args.repeat = "cpu", ["tiny"], [1, 4], 8, 2, 1
    for name in (*args.shapes, *args.networks):
        if name not in SHAPES and name not in NETWORKS:
            parser.error(f"there is no shape \"{name}\"; known are {', '.join((*SHAPES, *NETWORKS))}")
    rows = Rows(args.output)
    if args.gguf:
        llama_bench(args, rows)
    try:
        bench = Bench(args, rows)
    except ImportError as error:
        bench = None
        rows.append({"engine": "torch", "shape": "", "phase": "", "why": f"not installed: {error.name}"})
    if bench and args.device.startswith("cuda") and not bench.torch.cuda.is_available():
        rows.append({"engine": "torch", "shape": "", "phase": "", "why": "torch finds no GPU"})
        bench = None
    if bench:
        # Large models last: they take a minute to compile.
        if args.device.startswith("cuda") or args.dry_run:
            bench.flashinfer()
        for engine, shapes in ((bench.diffusers, args.networks), (bench.transformers, args.shapes)):
            for shape in shapes:
                try:
                    engine(shape)
                except ImportError as error:
                    bench.rows.append({"engine": engine.__name__, "shape": shape, "phase": "", "why": f"not installed: {error.name}"})
                except Exception as error:  # the others are measured all the same
                    bench.rows.append({"engine": engine.__name__, "shape": shape, "phase": "", "why": f"{type(error).__name__}: {str(error)[:300]}"})
    print(json.dumps({"rows": rows}, indent=1))
    # Without a single figure, whoever asked has no peers.
    return 0 if any("seconds" in row or "tokens_per_s" in row for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
