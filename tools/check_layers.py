#!/usr/bin/env python3
"""Includes point down: fails on an #include that the table of layers below does not allow.

  check_layers.py [ROOT]        checks src/ and include/ under ROOT (default: this repository)
  check_layers.py --circles     prints the groups of files in one layer that include each other in a circle, with the reason
                                if they belong together
  check_layers.py --table       prints the Markdown table of docs/architecture.md
  check_layers.py --self-test   plants bad includes in a temporary tree and expects each to be found

Allowing a new edge is a decision about the architecture (docs/architecture.md): add it to the table below, with a reason.
"""
import pathlib
import re
import sys
import tempfile

# layer -> layers that it may include besides itself. "status" is include/redline/status.h, rgb_image.h, chat.h,
# device_notice.h, json_format.h, fill_in.h and precision.h, the public headers that the lower layers share; redline/runtime.h belongs to
# "runtime"; "api" is all of include/redline. The folders of kernels/ and backends/ are layers of their own: what runs on
# one device knows nothing of another.
_CORE = ["status", "base", "tensor", "kernels/cpu", "graph", "backends", "backends/cpu", "runtime"]
_MODELS = [*_CORE, "formats", "text", "chat"]
ALLOWED = {
    "api": [],
    "base": ["status"],
    # Ranks exchange bytes and know no graph, so that an op can name its group.
    "ranks": ["status", "base"],
    "tensor": ["status", "base"],
    "kernels/cpu": ["status", "base", "tensor"],
    # Kernels of tile tasks: templates that the emulated device and CUDA instantiate.
    "kernels/tiles": ["status", "base", "tensor"],
    "kernels/emu": ["status", "base", "tensor", "kernels/tiles"],
    "kernels/cuda": ["status", "base", "tensor", "kernels/tiles"],
    "graph": ["status", "base", "ranks", "tensor"],
    "backends": ["status", "base", "tensor", "graph"],
    "backends/cpu": ["status", "base", "ranks", "tensor", "kernels/cpu", "graph", "backends"],
    "backends/tiles": ["status", "base", "tensor", "kernels/tiles", "graph", "backends"],
    "runtime": [*_CORE, "ranks", "kernels/tiles", "kernels/emu", "backends/tiles"],
    # Measured limits of the machine. The engine's bounds and the costs of its work are types of the public API.
    "machine": ["status", "base", "tensor", "kernels/cpu", "api"],
    "formats": ["status", "base", "tensor"],
    # Images: bytes to arrays and back, orientation, transparency and resizing. No model.
    "media": ["status", "base", "formats"],
    "text": ["status", "base", "tensor"],
    # Grammars, JSON Schemas and regular expressions as masks of tokens.
    "constraints": ["status", "base", "text"],
    # Chat templates, and the formats in which the families write reasoning and tool calls.
    "chat": ["status", "base", "text", "constraints"],
    # The Hugging Face Hub: its files, not what is in them. Outside the library; only the commands fetch models.
    "hub": ["status", "base"],
    "models": _MODELS,
    "llm": [*_MODELS, "constraints", "machine", "models", "api"],
    "embedding": [*_MODELS, "models", "llm", "api"],
    "diffusion": [*_MODELS, "media", "models", "api"],
    # The C interface: the public API behind C functions. `redline_devices` asks the kernels.
    "capi": ["status", "base", "kernels/cpu", "api"],
    # The extension module of the Python package: over the C interface and nothing else.
    "python": ["api"],
    # Benchmarks and evaluation, outside the library: may use everything, and only the commands use it.
    "lab": [*_MODELS, "machine", "media", "models", "llm", "diffusion", "api"],
    # HTTP in front of the public API: models are reached through it only. Images travel as files.
    "server": ["status", "base", "formats", "media", "api"],
    # A thin front end: what runs a model comes through the api. What looks into files (inspect, convert, tokenize) reads
    # them with the readers themselves, `devices` asks the kernels, and lab measures.
    "cli": ["status", "base", "tensor", "kernels/cpu", "machine", "formats", "media", "text", "chat", "models", "hub", "lab", "server",
            "api"],
}
# Contents of each layer, for the table of docs/architecture.md and in its order.
CONTENTS = {
    "api": "the public API: headers for C++, c_api.h for C",
    "base": "Status helpers, settings, WorkerTeam, SlabAllocator, MappedFile, progress",
    "ranks": "rank groups and collectives: ranks as threads of one process",
    "tensor": "DType and block formats, activation layouts, KV pages, Dim and Shape, Layout, packed weights",
    "kernels/cpu": "CPU kernels, compiled once per instruction set; the table of function pointers",
    "kernels/tiles": "kernel bodies for GPUs, compiled by g++ and nvcc; the table of device functions",
    "kernels/emu": "the emulated device, which runs these kernels on a CPU",
    "kernels/cuda": "the CUDA module, which runs them on a GPU",
    "graph": "Graph, ops (shape rule, reference, cost), passes, Target, states, stage plans, arena, events, Program, Timeline. "
             "Knows no kernel and no device",
    "backends": "what back ends share: the Runner, memory that outlives steps, the table of lowerings",
    "backends/cpu": "the CPU's lowering of each op, packing of weights and its cache, memory, the Executor",
    "backends/tiles": "lowerings, packing and memory of tile devices, the TileRunner",
    "runtime": "Runtime (workers, kernels, timeline, weight cache), Executable (a graph ready to run), Interpreter, devices",
    "machine": "measured peaks of the machine, and the bounds of steps that follow from them",
    "formats": "readers and writers of files: GGUF, safetensors, ONNX, .npy, torch files, configs",
    "media": "images: files to pixels and back, orientation, transparency, resizing",
    "text": "Unicode, tokenizers",
    "constraints": "grammars, JSON Schemas and regular expressions as masks of tokens",
    "chat": "chat templates, reasoning and tool calls in the output of models",
    "models": "config, weight names and graph, one file per family (text/, encoders/, image/) over what families share (blocks/); checkpoint/: "
              "files as config and tensors; files/: GGUF, quantizing, adapters, random weights; onnx/: networks of ONNX files",
    "llm": "state of sequences, stepper, attention plan, scheduler, generation loop, sampler, prefix cache, engine",
    "embedding": "embeddings of texts and scores of classifiers: pooling, sentence-transformers' files, EmbeddingEngine",
    "diffusion": "pipelines, solvers, step cache, adapters, the denoising loop",
    "hub": "the Hugging Face Hub: names, the choice of files, downloads, the shared cache; not part of libredline",
    "capi": "the C interface over the public API; `libredline.so` exports nothing else ([c_api.md](c_api.md))",
    "python": "the extension module of the Python package over the C interface ([python.md](python.md))",
    "lab": "benchmarks, random networks, compare, calibrate, image metrics; not part of libredline",
    "server": "HTTP ([serving.md](serving.md)); not part of libredline",
    "cli": "one file per command ([cli.md](cli.md))",
}
# Files of the models that compute: they quantize weights for a file.
QUANTIZERS = ("quantize_file.cc",)
# Kernels of tiles work with the warps of the device that they are compiled for; one header of theirs includes them.
WARPS = ("kernels/cuda/warp.cuh", "kernels/emu/warp.h")
# A kernel source is compiled once per instruction set: a C++ header with templates or inline functions in it could leave
# code of a newer set in a symbol that all share.
KERNEL_SYSTEM_HEADERS = re.compile(r"c[a-z]+$|.+\.h$|cpu_kernels\.inc$")  # the last is the list of kernels of the build

# Groups of files in one layer that include each other in a circle. The number may only fall.
MAX_CIRCLES = 3
# Circles that are not counted, because they are a table with its rows or the halves of one class or kernel. Maps the files
# of a circle to the reason.
ONE_THING = {
    "chat/jinja/methods chat/jinja/objects chat/jinja/operations": "parts of one interpreter: values, their operators and methods",
    "chat/plain_values chat/tool_call_parts chat/tool_call_syntax": "the table of call syntaxes, a row of it, and what rows share",
    "cli/comfy_settings cli/read_settings": "the table of readers of settings, and a row",
    "constraints/json_schema constraints/json_schema_compiler": "halves of one compiler",
    "diffusion/denoiser diffusion/step_invariants": "halves of one class",
    "diffusion/solver diffusion/solver_row": "the table of solvers, and what a row is",
    "formats/gguf formats/gguf_parser": "halves of one reader",
    "formats/onnx formats/onnx_parser": "halves of one reader",
    "kernels/cpu/activation kernels/cpu/activation_functions": "a kernel and its functions",
    "kernels/cpu/attention/attention kernels/cpu/attention/attention_with_tiles": "a kernel and its form with tiles",
    "kernels/cpu/convolution/conv2d kernels/cpu/convolution/conv2d_dots kernels/cpu/convolution/conv2d_patches "
    "kernels/cpu/convolution/conv2d_tiles kernels/cpu/convolution/conv_gather": "parts of one kernel",
    "kernels/cpu/linear/linear_tiles kernels/cpu/linear/linear_tiles_few": "a kernel and its form for few rows",
    "kernels/emu/warp kernels/tiles/warp": "the device selects the warps that its kernels are compiled with",
    "lab/random/random_networks lab/random/tensor_programs": "the table of random networks, and rows",
    "models/checkpoint/checkpoint models/checkpoint/quantized_checkpoint": "the reader of checkpoints, and the table of their quantized formats",
    "models/onnx/onnx_inference models/onnx/onnx_network": "the builder of networks, and what the rules of operators read",
    "server/http_connection server/http_server": "halves of one server",
    "text/hf_config text/rwkv": "the table of tokenizers, and a row",
}
ROWS_OF_TENSOR = "tensor/blocks/"  # the block formats are rows of the table of data types, tensor/dtype
SOURCES = (".kernel.cc", ".cc", ".h", ".inc", ".cuh", ".cu")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def layer_of_include(name):
    if name in ("redline/status.h", "redline/rgb_image.h", "redline/chat.h", "redline/device_notice.h", "redline/precision.h",
                "redline/json_format.h", "redline/fill_in.h"):
        return "status"
    if name == "redline/runtime.h":
        return "runtime"
    return "api" if name.startswith("redline/") else layer_of_path(name.split("/"))


def layer_of_path(parts):
    """The layer of a file by its path under src/: the folder, or in kernels/ and backends/ the one below."""
    folder = "/".join(parts[:2])
    return folder if folder in ALLOWED else parts[0]


def problem(layer, path, bracket, name):
    """What is wrong with this include, or None."""
    if layer == "models" and name.startswith("kernels/") and path.name not in QUANTIZERS:
        return f'"{name}": a model is a graph and runs no kernel; only {", ".join(QUANTIZERS)} may'
    if layer == "kernels/tiles" and path.name == "warp.h" and name in WARPS:
        return None
    is_kernel_source = layer == "kernels/cpu" and ".kernel." in path.name
    if bracket == "<":
        if name.startswith("redline/") or layer_of_path(name.split("/")) in ALLOWED:
            return f'<{name}> is ours: write "{name}"'
        if is_kernel_source and not KERNEL_SYSTEM_HEADERS.match(name):
            return f"<{name}>: a kernel source may include C headers only"
        return None
    target = layer_of_include(name)
    if target not in ALLOWED and target != "status":
        return f'"{name}" names no layer; write the path from src/, or <{name}> for a library'
    if is_kernel_source and target not in ("kernels/cpu", "tensor"):
        return f'"{name}": a kernel source may include kernels/cpu/ and tensor/ only'
    if layer == "api":
        return None if name.startswith("redline/") else f'"{name}": a public header may include public headers only'
    if target != layer and target not in ALLOWED[layer]:
        allowed = ", ".join(ALLOWED[layer]) or "nothing else"
        return f'"{name}": layer {layer} may not rest on {target} (allowed: {allowed})'
    return None


def check(root):
    """One "file:line: what" for each include that is not allowed."""
    found = []
    files = sorted([*root.glob("src/**/*"), *root.glob("include/redline/**/*")])
    for path in (p for p in files if p.suffix in (".h", ".cc", ".inc", ".cu", ".cuh")):
        relative = path.relative_to(root)
        layer = "api" if relative.parts[0] == "include" else layer_of_path(relative.parts[1:])
        if layer not in ALLOWED:
            found.append(f"{relative}:1: the folder src/{layer} is not in the table of tools/check_layers.py")
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            what = match and problem(layer, path, match[1], match[2])
            if what:
                found.append(f"{relative}:{number}: {what}")
    return found


def unit_of(name):
    """A header and its source are one unit: "text/bpe" of "text/bpe.h" and "text/bpe.cc"."""
    suffix = next((s for s in SOURCES if name.endswith(s)), "")
    return name[: len(name) - len(suffix)]


def counted_circles(root):
    """The circles that are not one thing by the table above."""
    return [group for group in circles(root) if " ".join(group) not in ONE_THING and not group[0].startswith(ROWS_OF_TENSOR)]


def circles(root):
    """The groups of units in one layer that include each other in a circle, each sorted: the strongly connected components
    (Tarjan 1972) of more than one unit."""
    includes = {}
    for path in sorted((root / "src").glob("**/*")):
        if not path.name.endswith(SOURCES):
            continue
        unit = unit_of(str(path.relative_to(root / "src")))
        targets = includes.setdefault(unit, set())
        for match in filter(None, map(INCLUDE.match, path.read_text(encoding="utf-8").splitlines())):
            target = unit_of(match[2])
            if target != unit and target.split("/")[0] == unit.split("/")[0] and (root / "src" / match[2]).is_file():
                targets.add(target)
    index, low, stack, found = {}, {}, [], []

    def visit(unit):
        index[unit] = low[unit] = len(index)
        stack.append(unit)
        for target in sorted(includes.get(unit, ())):
            if target not in index:
                visit(target)
            if target in stack:
                low[unit] = min(low[unit], low[target])
        if low[unit] == index[unit]:
            group = stack[stack.index(unit):]
            del stack[stack.index(unit):]
            if len(group) > 1:
                found.append(sorted(group))

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 10 * len(includes) + 1000))
    for unit in includes:
        if unit not in index:
            visit(unit)
    sys.setrecursionlimit(limit)
    return sorted(found)


def self_test():
    good = {
        "include/redline/text.h": '#include <string>\n#include "redline/status.h"\n',
        "src/base/error.h": '#include <fmt/format.h>\n#include "redline/status.h"\n',
        "src/graph/ops/add.cc": '#include "graph/graph.h"\n#include "tensor/activation_layout.h"\n',
        "src/backends/cpu/lower/add.cc": '#include "graph/graph.h"\n#include "kernels/cpu/cpu_kernels.h"\n',
        "src/backends/tiles/lower/add.cc": '#include "backends/host_memory.h"\n#include "kernels/tiles/kernel.h"\n',
        "src/kernels/tiles/warp.h": '#include "kernels/emu/warp.h"\n',
        "src/kernels/cuda/add.cu": '#include "kernels/tiles/kernel.h"\n#include "kernels/cuda/warp.cuh"\n',
        "src/kernels/cpu/add.kernel.cc": '#include <cmath>\n#include <immintrin.h>\n#include "kernels/cpu/simd.h"\n',
        "src/models/text/llama.cc": '#include "formats/gguf.h"\n#include "runtime/program.h"\n',
        "src/lab/random/random_adapter.cc": '#include "llm/llm_engine.h"\n',
        "src/server/app.cc": '#include "redline/text.h"\n#include "server/http.h"\n#include "base/mapped_file.h"\n',
        "src/cli/run_command.cc": '#include "redline/text.h"\n#include "machine/peaks.h"\n',
        "src/capi/model.cc": '#include "redline/c_api.h"\n#include "base/error.h"\n',
    }
    bad = {
        "src/base/a.cc": '#include "tensor/dim.h"\n',
        "src/tensor/a.h": '\n#include "kernels/cpu/cpu_kernels.h"\n',
        "src/formats/a.cc": '#include "text/tokenizer.h"\n',
        "src/text/a.cc": '#  include "formats/gguf.h"\n',
        "src/graph/a.cc": '#include "redline/text.h"\n',
        "src/graph/c.cc": '#include "kernels/cpu/cpu_kernels.h"\n',
        "src/graph/b.cc": '#include "neighbour.h"\n',
        "src/backends/a.cc": '#include "backends/cpu/executor.h"\n',
        "src/backends/cpu/a.cc": '#include "backends/tiles/tile_program.h"\n',
        "src/backends/tiles/a.cc": '#include "kernels/cpu/cpu_kernels.h"\n',
        "src/kernels/cuda/a.cu": '#include "kernels/emu/machine.h"\n',
        "src/kernels/tiles/a.h": '#include "kernels/emu/warp.h"\n',
        "src/kernels/a.h": "\n",
        "src/llm/b.cc": '#include "kernels/emu/machine.h"\n',
        "src/models/a.cc": '#include "kernels/cpu/activation.h"\n',
        "src/runtime/a.cc": '#include "models/text/llama.h"\n',
        "src/diffusion/a.cc": '#include "lab/images/lpips.h"\n',
        "src/lab/a.cc": '#include "cli/terminal.h"\n',
        "src/capi/a.cc": '#include "llm/sampler.h"\n',
        "src/server/a.cc": '#include "llm/scheduler.h"\n',
        "src/cli/a.cc": '#include "llm/scheduler.h"\n',
        "src/kernels/cpu/a.kernel.cc": '#include <vector>\n',
        "src/kernels/cpu/b.kernel.cc": '#include "base/error.h"\n',
        "src/attic/a.cc": "\n",
        "src/llm/a.cc": '#include <base/error.h>\n',
        "include/redline/bad.h": '#include "base/error.h"\n',
    }
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in {**good, **bad}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        found = check(root)
    reported = {line.split(":")[0] for line in found}
    if reported != set(bad) or len(found) != len(bad):
        print("check_layers: the self-test expected one report for each of", sorted(bad), "and got", *found, sep="\n  ")
        return 1
    if not any(line.startswith("src/tensor/a.h:2: ") for line in found):
        print("check_layers: the self-test expected line 2 in", *found, sep="\n  ")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        sources = {
            "src/llm/a.h": '#include "llm/b.h"\n',
            "src/llm/b.cc": '#include "llm/b.h"\n#include "llm/c.h"\n',
            "src/llm/b.h": "",
            "src/llm/c.h": '#include "llm/a.h"\n#include "llm/d.h"\n',
            "src/llm/d.h": '#include "base/error.h"\n',
            "src/base/error.h": '#include "llm/d.h"\n',
        }
        for name, text in sources.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        if circles(root) != [["llm/a", "llm/b", "llm/c"]]:
            print("check_layers: the self-test expected one circle of llm/a, llm/b and llm/c and got", circles(root))
            return 1
    return 0


def table():
    """The layers with their contents and what they may include, in Markdown, and a line that explains the short names."""
    assert CONTENTS.keys() == ALLOWED.keys(), f"CONTENTS and ALLOWED differ in {sorted(CONTENTS.keys() ^ ALLOWED.keys())}"
    rows = ["| layer | contents | may include |", "|---|---|---|"]
    for layer, contents in CONTENTS.items():
        folder = "include/redline" if layer == "api" else f"src/{layer}"
        allowed = [name for name in ALLOWED[layer] if name != layer]
        if set(_CORE) <= {layer, *allowed} and layer != "runtime":
            allowed = ["core", *(name for name in allowed if name not in _CORE)]
        rows.append(f"| `{folder}` | {contents} | {', '.join(allowed) or 'nothing'} |")
    return [*rows, "", f"core: {', '.join(_CORE)}. status: the public headers that the lower layers share, such as status.h. "
                       "api: all public headers."]


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if sys.argv[1:] == ["--table"]:
        print("\n".join(table()))
        return 0
    if sys.argv[1:] == ["--circles"]:
        for group in circles(pathlib.Path(__file__).resolve().parent.parent):
            why = ONE_THING.get(" ".join(group)) or ("the table of data types, and rows" if group[0].startswith(ROWS_OF_TENSOR) else "")
            print(", ".join(group) + (f" ({why})" if why else ""))
        return 0
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    found = check(root)
    if (number := len(counted_circles(root))) > MAX_CIRCLES:
        found.append(f"{number} groups of files in one layer include each other in a circle, and {MAX_CIRCLES} may "
                     "(tools/check_layers.py --circles prints them)")
    gone = sorted(ONE_THING.keys() - {" ".join(group) for group in circles(root)})
    found += [f'"{names}" are no circle any more: remove their row from tools/check_layers.py' for names in gone]
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
