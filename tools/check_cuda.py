#!/usr/bin/env python3
"""Checks the machine code of the CUDA module: stack frames and spills, registers, the instructions that kernels are written
for, and the size of the code of kernels and sources, which bounds the time that compiling them takes.

usage: check_cuda.py MODULE

Reads MODULE (redline_cuda.so) with cuobjdump and nvdisasm: of the toolkit, or the packages nvidia-cuda-cuobjdump and
nvidia-cuda-nvdisasm in this Python's environment. Exits 1 and names the kernels when it finds something, 2 when there is
nothing to check. Without the tools it says so and exits 0.
"""
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

# A quarter of a multiprocessor has 16,384 registers, for two of the eight warps of a block, or three with the loader.
MAX_REGISTERS, MAX_WITH_LOADER = 255, 168
PRODUCT = ("UBLKCP", "SYNCS")  # bulk copies and mbarriers of the ring
LANE_COPIES = ("LDGSTS.E.BYPASS.128", "ARRIVES.LDGSTSBAR")  # before sm_90
# A source takes at most 12 s of nvcc's time for each architecture. Time is no property of the code; its size is, and the
# compilers' time grows with it, faster within a kernel than from kernel to kernel.
MAX_KERNEL_SIZE, MAX_SOURCE_SIZE = 32000, 60000
# By kernel: each must occur. A prefix of the mnemonic with its modifiers.
REQUIRED = {
    "Linear": ("HMMA.16816.F32.BF16", "IMMA.16832.S8.S8", *PRODUCT),
    "ExpertLinear": ("HMMA.16816.F32.BF16", "IMMA.16832.S8.S8", *PRODUCT),
    "Conv2d": ("HMMA.16816.F32.BF16", *PRODUCT),
    "WideLinear": ("HGMMA.64x64x16.F32.BF16", "IGMMA.64x64x32.S8.S8", *PRODUCT),
    "WideConv2d": ("HGMMA.64x64x16.F32.BF16", *PRODUCT),
    "LinearF32": ("FFMA", "LDS.128", *PRODUCT),
    "ExpertLinearF32": ("FFMA", "LDS.128", *PRODUCT),
    "Conv2dF32": ("FFMA", "LDS.128", *PRODUCT),
    "Attention": ("SHFL.BFLY",),
    "AttentionF16": ("HMMA.16816.F32", "SHFL.BFLY", "LDS"),
    "JointAttention": ("SHFL.BFLY", "SHFL.IDX", "LDS"),
    "JointAttentionBf16": ("HMMA.16816.F32.BF16", "SHFL.BFLY", "LDS"),
    # Counters of events: polled and released at the scope of the GPU.
    "persistent": ("HMMA.16816.F32.BF16", "IMMA.16832.S8.S8", *PRODUCT, "LDG.E.64.STRONG.GPU", "REDG.E.ADD.64.STRONG.GPU", "NANOSLEEP"),
}
# How the kernels' templates are spelled.
ALIASES = {
    "BasicLinear<redline::tiles::detail::DenseRows>": "Linear",
    "BasicLinear<redline::tiles::detail::ExpertRows>": "ExpertLinear",
    "BasicLinear<redline::tiles::detail::PatchRows>": "Conv2d",
    "BasicWideLinear<redline::tiles::detail::DenseRows>": "WideLinear",
    "BasicWideLinear<redline::tiles::detail::PatchRows>": "WideConv2d",
    "BasicLinearF32<redline::tiles::detail::DenseRows>": "LinearF32",
    "BasicLinearF32<redline::tiles::detail::ExpertRows>": "ExpertLinearF32",
    "BasicLinearF32<redline::tiles::detail::PatchRows>": "Conv2dF32",
    "BasicAdapterDown<redline::tiles::AdapterDownArgs>": "AdapterDown",
    "BasicAdapterDown<redline::tiles::ConvAdapterDownArgs>": "ConvAdapterDown",
}


@dataclasses.dataclass
class Kernel:
    registers: int = 0
    stack: int = 0
    size: int = 0
    instructions: set = dataclasses.field(default_factory=set)


def kernel_name(symbol):
    """"Linear" of a demangled run_stage<...>; "persistent" of the whole step."""
    if "run_whole_step" in symbol:
        return "persistent"
    found = re.search(r"run_stage<redline::tiles::(.*?) ?>\(", symbol)
    name = re.sub(r", 64>", ">", found.group(1).replace(" >", ">")) if found else symbol  # 64: rows of a pass
    return ALIASES.get(name, name)


def read_kernels(resources, code):
    """By name, of the demangled output of cuobjdump -res-usage and -sass."""
    kernels = {}
    for symbol, registers, stack in re.findall(r"Function (.+):\n\s*REG:(\d+) STACK:(\d+)", resources):
        kernels[kernel_name(symbol)] = Kernel(int(registers), int(stack))
    for part in re.split(r"\n\s*Function : ", code)[1:]:
        symbol, _, body = part.partition("\n")
        kernel = kernels.setdefault(kernel_name(symbol), Kernel())
        instructions = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", body)
        kernel.size += len(instructions)
        kernel.instructions.update(instructions)
    return kernels


def source_sizes(code):
    """Of each source of the module, the instructions of its kernels."""
    parts = code.split("Fatbin elf code:")[1:]
    sizes = [sum(kernel.size for kernel in read_kernels("", part).values()) for part in parts]
    return [size for size in sizes if size > 0]


def required(name, architecture):
    """Instructions that the kernel must have there."""
    wanted = REQUIRED.get(name, ())
    if architecture == "sm_90a":
        return wanted
    copies = LANE_COPIES if PRODUCT[0] in wanted else ()
    # Atomics without a result have another name there.
    return tuple(i.replace("REDG.", "RED.") for i in wanted if i not in PRODUCT and not i.startswith(("HGMMA", "IGMMA"))) + copies


def findings(kernels, architecture="sm_90a"):
    for name, kernel in sorted(kernels.items()):
        if kernel.stack > 0:
            yield f"{name}: a stack frame of {kernel.stack} bytes: spilled registers, or an array whose index is not constant"
        registers = MAX_WITH_LOADER if "UBLKCP" in REQUIRED.get(name, ()) else MAX_REGISTERS
        if kernel.registers > registers:
            yield f"{name}: {kernel.registers} registers, at most {registers}"
        if kernel.size > MAX_KERNEL_SIZE:
            yield f"{name}: {kernel.size} instructions, at most {MAX_KERNEL_SIZE}: compiling it takes too long"
        for wanted in required(name, architecture):
            if not any(i == wanted or i.startswith(wanted + ".") for i in kernel.instructions):
                yield f"{name}: has no {wanted}"
    for name in sorted(REQUIRED.keys() - kernels.keys()):
        yield f"{name}: there is no such kernel"


def find_tools():
    """The folder of cuobjdump and nvdisasm, or None."""
    packages = pathlib.Path(sysconfig.get_paths()["purelib"]) / "nvidia/cu13/bin"
    for folder in (*map(pathlib.Path, os.environ.get("PATH", "").split(os.pathsep)), pathlib.Path("/usr/local/cuda/bin"), packages):
        if all((folder / tool).is_file() for tool in ("cuobjdump", "nvdisasm")):
            return folder
    return None


def run(folder, *arguments):
    """Demangled output. The package's files come without the right to run them."""
    tool = folder / "cuobjdump"
    if not os.access(tool, os.X_OK):
        for name in ("cuobjdump", "nvdisasm"):
            (folder / name).chmod(0o755)
    environment = dict(os.environ, PATH=f"{folder}{os.pathsep}{os.environ.get('PATH', '')}")
    text = subprocess.run([tool, *arguments], check=True, capture_output=True, text=True, env=environment).stdout
    return subprocess.run(["c++filt"], check=True, input=text, capture_output=True, text=True).stdout


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    module = pathlib.Path(sys.argv[1])
    if not module.is_file():
        print("cuda: not checked, the module is not built (no nvcc 13)")
        return
    folder = find_tools()
    if folder is None or shutil.which("c++filt") is None:
        print("cuda: not checked, cuobjdump or c++filt is not installed")
        return
    architectures = sorted(set(re.findall(r"\.(sm_\w+)\.cubin", run(folder, "-lelf", module))))
    if not architectures:
        print(f"{module}: has no kernels", file=sys.stderr)
        sys.exit(2)
    found = []
    for architecture in architectures:
        resources, code = (run(folder, flag, "-arch", architecture, module) for flag in ("-res-usage", "-sass"))
        found += [f"{architecture}: {line}" for line in findings(read_kernels(resources, code), architecture)]
        for size in source_sizes(code):
            if size > MAX_SOURCE_SIZE:
                found.append(f"{architecture}: a source has {size} instructions, at most {MAX_SOURCE_SIZE}: move kernels to another")
    for line in found:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
