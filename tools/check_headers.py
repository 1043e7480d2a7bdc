#!/usr/bin/env python3
"""Every header compiles alone: whoever includes it need not know what to include before it.

  check_headers.py [--compiler g++] [HEADER...]     default: all of src/, include/ and tests/
"""
import argparse
import concurrent.futures
import os
import pathlib
import shlex
import subprocess
import sys
import sysconfig

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLAGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers",
         "-Wno-unused-function", "-Isrc", "-Iinclude", "-Itests", '-DREDLINE_SOURCE_DIR="."', '-DREDLINE_SHARED_DIR=".."', '-DREDLINE_GOLDEN_DIR="."']
# The headers of the kernel sources are compiled once per instruction set; the plain one stands for all here.
KERNEL_FLAGS = ["-DREDLINE_ISA_NS=isa_generic", '-DREDLINE_SIMD="kernels/cpu/simd_generic.inc"']


def module_flags():
    """Those of the Python package's extension module; None where Python's headers or nanobind are not installed."""
    try:
        import nanobind
    except ImportError:
        return None
    include = pathlib.Path(sysconfig.get_path("include"))
    return ["-isystem", include, "-isystem", nanobind.include_dir(), "-DPy_LIMITED_API=0x030a0000", "-fvisibility=hidden",
            "-DNB_BACKEND_MODULE=nanobind_backend"] if (include / "Python.h").exists() else None


def compile_alone(compiler, header):
    """The compiler's complaint, "" when there is none."""
    flags = FLAGS + (KERNEL_FLAGS if header.startswith("src/kernels/cpu/") else [])
    if header.startswith("src/python/"):
        more = module_flags()
        if more is None:
            return ""
        flags = flags + more
    # Included from an empty source, so that the header is not a main file (no warning about #pragma once).
    command = [*shlex.split(compiler), *flags, "-x", "c++", "-"]
    run = subprocess.run(command, input=f'#include "{ROOT / header}"\n', cwd=ROOT, text=True, capture_output=True)
    return run.stderr or ("" if run.returncode == 0 else f"{header}: the compiler ended with {run.returncode}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("headers", nargs="*")
    options = parser.parse_args()
    headers = options.headers or sorted(
        str(path.relative_to(ROOT)) for folder in ("include", "src", "tests") for path in (ROOT / folder).rglob("*.h"))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = list(pool.map(lambda header: compile_alone(options.compiler, header), headers))
    for header, complaint in zip(headers, complaints):
        if complaint:
            print(f"{header} does not compile alone:\n{complaint}")
    return 1 if any(complaints) else 0


if __name__ == "__main__":
    sys.exit(main())
