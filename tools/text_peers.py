#!/usr/bin/env python3
"""Measures a language model in OpenVINO GenAI, vLLM (CPU) or ONNX Runtime GenAI, with the rows of `redline bench`.

  PYTHON tools/text_peers.py openvino --model FOLDER --prefill 512 --decode 64 --depth 0,4096
  PYTHON tools/text_peers.py vllm --model FOLDER --batch 16 --zentorch FOLDER

tools/compare runs it with the Python of the engine's virtual environment; docs/benchmarks.md says how to make one, and
tools/peer_models.py writes models of a known shape with random weights. Prints JSON. Prompts are random tokens, other ones
in every run.
"""
import argparse
import glob
import json
import os
import statistics
import sys
import time

BATCH_STEPS = 32  # decoded per stream


def arguments():
    numbers = lambda text: [int(part) for part in text.split(",")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=["openvino", "vllm", "onnxruntime"])
    parser.add_argument("--model", required=True, metavar="FOLDER")
    parser.add_argument("--prefill", type=numbers, default=[])
    parser.add_argument("--decode", type=numbers, default=[])
    parser.add_argument("--depth", type=numbers, default=[0])
    parser.add_argument("--batch", type=numbers, default=[])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--property", action="append", default=[], metavar="KEY=VALUE", help="of OpenVINO's CPU plugin")
    parser.add_argument("--zentorch", metavar="FOLDER", help="where zentorch is installed, for vLLM on AMD CPUs")
    parser.add_argument("--cache", metavar="FOLDER", help="compiled models of vLLM")
    return parser.parse_args()


class OpenVino:
    """Continuous batching, a step at a time."""

    def __init__(self, args, streams, _length):
        import openvino
        import openvino_genai
        self.ov, self.genai, self.made = openvino, openvino_genai, 0
        self.version = f"openvino-genai {openvino_genai.get_version()}"
        properties = {"INFERENCE_NUM_THREADS": args.threads, "PERFORMANCE_HINT": "LATENCY"}
        properties.update(text.split("=", 1) for text in args.property)
        config = openvino_genai.SchedulerConfig()
        config.max_num_batched_tokens, config.max_num_seqs, config.cache_size = 512, max(16, streams), 2
        config.enable_prefix_caching, config.dynamic_split_fuse = False, True
        self.pipe = openvino_genai.ContinuousBatchingPipeline(args.model, config, "CPU", properties)

    def run(self, prompts, tokens):
        """[(seconds, new tokens)] of every step."""
        import numpy as np
        config = self.genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = tokens
        config.ignore_eos, config.do_sample = True, False
        handles = []
        for prompt in prompts:
            self.made += 1
            handles.append(self.pipe.add_request(self.made, self.ov.Tensor(np.array([prompt], dtype=np.int64)), config))
        steps = []
        while self.pipe.has_non_finished_requests():
            begin = time.perf_counter()
            self.pipe.step()
            seconds, new = time.perf_counter() - begin, 0
            for handle in handles:
                while handle.can_read():
                    new += sum(len(output.generated_ids) for output in handle.read().values())
            steps.append((seconds, new))
        return steps


class Vllm:
    def __init__(self, args, streams, length):
        import vllm
        self.params = vllm.SamplingParams
        self.llm = vllm.LLM(args.model, dtype="bfloat16", max_model_len=length, max_num_batched_tokens=512,
                            max_num_seqs=max(16, streams), enable_prefix_caching=False, skip_tokenizer_init=True,
                            disable_log_stats=True, seed=0)
        self.engine, self.made = self.llm.llm_engine, 0
        self.version = f"vllm {vllm.__version__}" + (" with zentorch" if args.zentorch else "")

    @staticmethod
    def prepare(args):
        """The environment that vLLM reads. The allocator it asks for has to be loaded before the process starts."""
        cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))[:args.threads]))
        wanted = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": cpus,
                  "VLLM_CPU_NUM_OF_RESERVED_CPU": "0", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
                  "VLLM_LOGGING_LEVEL": "WARNING", "VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
        if args.cache:
            wanted |= {"VLLM_CACHE_ROOT": f"{args.cache}/vllm", "TORCHINDUCTOR_CACHE_DIR": f"{args.cache}/inductor"}
        for name, value in wanted.items():
            os.environ.setdefault(name, value)
        if args.zentorch:
            sys.path.append(args.zentorch)
            os.environ["PYTHONPATH"] = args.zentorch
        if "libgomp" not in os.environ.get("LD_PRELOAD", ""):
            site = next(path for path in sys.path if os.path.isdir(path + "/torch"))
            libraries = [next(iter(glob.glob(site + pattern)), "") for pattern in
                         ("/vllm/libs/libtcmalloc*.so*", "/torch/lib/libgomp*.so*")]
            libraries[1] = libraries[1] or next(iter(glob.glob(site + "/torch.libs/libgomp*.so*")), "")
            os.environ["LD_PRELOAD"] = ":".join(filter(None, libraries))
            os.execv(sys.executable, [sys.executable, *sys.argv])

    def run(self, prompts, tokens):
        counts = {}
        for prompt in prompts:
            self.made += 1
            self.engine.add_request(str(self.made), {"prompt_token_ids": prompt},
                                    self.params(max_tokens=tokens, ignore_eos=True, temperature=0.0, detokenize=False))
        steps = []
        while self.engine.has_unfinished_requests():
            begin = time.perf_counter()
            outputs = self.engine.step()
            seconds, new = time.perf_counter() - begin, 0
            for output in outputs:
                count = len(output.outputs[0].token_ids)
                new += count - counts.get(output.request_id, 0)
                counts[output.request_id] = count
            steps.append((seconds, new))
        return steps


class OnnxRuntime:
    """A static batch; it has no scheduler."""

    def __init__(self, args, _streams, _length):
        import onnxruntime_genai as genai
        self.genai, self.version = genai, f"onnxruntime-genai {genai.__version__}"
        config = genai.Config(args.model)
        config.overlay(json.dumps({"model": {"decoder": {"session_options": {
            "intra_op_num_threads": args.threads, "inter_op_num_threads": 1}}}}))
        self.model = genai.Model(config)

    def run(self, prompts, tokens):
        import numpy as np
        params = self.genai.GeneratorParams(self.model)
        length = len(prompts[0]) + tokens + 1
        params.set_search_options(max_length=length, min_length=length, batch_size=len(prompts), do_sample=False,
                                  past_present_share_buffer=True)
        generator = self.genai.Generator(self.model, params)
        steps = []
        for step in range(tokens):
            begin = time.perf_counter()
            if step == 0:
                generator.append_tokens(np.array(prompts, dtype=np.int32))
            generator.generate_next_token()
            steps.append((time.perf_counter() - begin, len(prompts)))
        return steps


ENGINES = {"openvino": OpenVino, "vllm": Vllm, "onnxruntime": OnnxRuntime}


def vocabulary(folder):
    for name in ("config.json", "genai_config.json"):
        if os.path.exists(f"{folder}/{name}"):
            config = json.load(open(f"{folder}/{name}", encoding="utf-8"))
            return config.get("vocab_size") or config["model"]["vocab_size"]
    sys.exit(f"{folder} has neither config.json nor genai_config.json")


def measure(args, engine):
    import numpy as np
    rng, last = np.random.default_rng(1), vocabulary(args.model) - 100
    prompt = lambda length: rng.integers(300, last, size=length).tolist()
    engine.run([prompt(64)], 4)
    rows = []

    def row(phase, depth, tokens, streams, speed):
        """The median after a first run that warms up."""
        speeds = [speed() for _ in range(args.repeat + 1)][1:]
        rows.append({"phase": phase, "depth": depth, "tokens": tokens, "streams": streams,
                     "tokens_per_s": statistics.median(speeds), "all": speeds})

    def prefill(tokens):
        return tokens / sum(seconds for seconds, _ in engine.run([prompt(tokens)], 1))

    def decode(depth, tokens, streams):
        steps = engine.run([prompt(max(depth, 2)) for _ in range(streams)], tokens + 1)
        full = [seconds for seconds, new in steps if new == streams][-tokens:]
        return len(full) * streams / sum(full)

    for depth in args.depth:
        for tokens in args.prefill:
            if depth == 0:
                row("prefill", 0, tokens, 1, lambda: prefill(tokens))
            else:
                rows.append({"phase": "prefill", "depth": depth, "tokens": tokens, "skipped": "not measured at a depth"})
        for tokens in args.decode:
            row("decode", depth, tokens, 1, lambda: decode(depth, tokens, 1))
        for streams in args.batch:
            row("batch", depth, BATCH_STEPS, streams, lambda: decode(depth, BATCH_STEPS, streams))
    return rows


def main():
    args = arguments()
    if args.engine == "vllm":
        Vllm.prepare(args)
    streams = max(args.batch, default=1)
    length = max([*args.prefill, *(depth + max(args.decode, default=BATCH_STEPS) for depth in args.depth)]) + BATCH_STEPS + 64
    engine = ENGINES[args.engine](args, streams, length)
    print(json.dumps({"isa": engine.version, "machine": None, "rows": measure(args, engine)}), flush=True)
    os._exit(0)  # the engines' threads do not always end


if __name__ == "__main__":
    main()
