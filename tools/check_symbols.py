#!/usr/bin/env python3
"""Checks that code for an instruction set is only in the symbols of its own kernels.

usage: check_symbols.py BUILD_DIR

Every symbol that a kernels_<isa> object gives to the linker, strong, weak or common, must lie in redline::isa_<isa>: any
other name could be picked as the one copy for the whole program and crash an older CPU. Where objdump is there, the
other objects of the build are searched for AVX-512 registers, and the generic kernels for AVX ones.
Exits 1 and names the symbols when it finds one, 2 when there is nothing to check.
"""
import pathlib
import re
import shutil
import subprocess
import sys

# What nm calls defined and visible to the linker; V, W, u and C may be shared between objects.
GLOBAL_KINDS = set("ABCDGRSTVWuiI")
# Sanitizers give every object these.
ALLOWED = re.compile(r"^(__asan|__odr_asan|__ubsan|__tsan|__sancov|__emutls_[vt]\._ZN7redline\d+isa_)")


def defined(objects):
    """(object, kind, name) of every symbol that the objects give to the linker."""
    listing = subprocess.run(["nm", "--defined-only", "-A", *map(str, objects)], check=True, capture_output=True, text=True)
    for line in listing.stdout.splitlines():
        path, _, rest = line.rpartition(":")
        fields = rest.split()
        if len(fields) >= 2 and fields[-2] in GLOBAL_KINDS:
            yield path, fields[-2], fields[-1]


def leaks(isa, objects):
    # The Itanium ABI spells a name in redline::isa_avx2 as _ZN7redline8isa_avx2..., _ZNK..., or with a prefix for
    # vtables, guards and thread-local wrappers. The namespace must come first: std::sort<redline::isa_avx2::X> must not pass.
    namespace = f"isa_{isa}"
    own = re.compile(rf"^_Z(T[VTSIHW]|GV|GR|Z)?NK?7redline{len(namespace)}{namespace}")
    return [(path, kind, name) for path, kind, name in defined(objects) if not own.match(name) and not ALLOWED.match(name)]


def registers(objects, pattern):
    """Objects whose code names a register that matches, with the first such line."""
    return instructions(objects, rb"%%(%b)\d" % pattern.encode())


def instructions(objects, pattern):
    """Objects whose listing has a match, with the first such line."""
    for path in objects:
        code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", str(path)], check=True, capture_output=True).stdout
        # The listings are long: the pattern is searched for alone, and its line is cut out afterwards.
        if hit := re.search(pattern, code):
            line = code[code.rfind(b"\n", 0, hit.start()) + 1:code.find(b"\n", hit.end())]
            yield path, line.decode().strip()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1])
    objects = [path for path in build.rglob("*.o") if "CMakeFiles" in path.parts and "CompilerIdCXX" not in path.parts]
    kernels, others = {}, []
    for path in objects:
        folder = next((part for part in path.parts if part.startswith("kernels_") and part.endswith(".dir")), "")
        isa = folder[len("kernels_"):-len(".dir")]
        # kernels_tests is the test program of the layer of that name.
        if folder and isa != "tests":
            kernels.setdefault(isa, []).append(path)
        elif "tests" not in path.relative_to(build).parts:  # tests run on the machine that built them
            others.append(path)
    if not kernels:
        print(f"check_symbols: no kernels_<isa> objects below {build}: build first", file=sys.stderr)
        sys.exit(2)

    found = []
    for isa, paths in sorted(kernels.items()):
        for path, kind, name in leaks(isa, paths):
            found.append(f"{path}: {kind} {name}: outside redline::isa_{isa}")
    if shutil.which("objdump"):
        for path, line in registers(others, "[yz]mm"):
            found.append(f"{path}: {line}: wide registers outside the kernels")
        for path, line in registers(kernels.get("generic", []), "[yz]mm"):
            found.append(f"{path}: {line}: wide registers in the generic kernels")
        for isa in ("avx2", "avx2_vnni"):
            for path, line in registers(kernels.get(isa, []), "zmm"):
                found.append(f"{path}: {line}: AVX-512 registers in the {isa} kernels")
        # objdump marks the encoding of AVX-VNNI: "{vex} vpdpbusd". Without the mark it is that of AVX-512.
        for path, line in instructions(kernels.get("avx2_vnni", []), rb"\tvpdp"):
            found.append(f"{path}: {line}: AVX-512 instructions in the avx2_vnni kernels")
    for line in found:
        print(line)
    count = sum(map(len, kernels.values()))
    print(f"check_symbols: {count} kernel objects of {len(kernels)} instruction sets, {len(others)} others: "
          + (f"{len(found)} leaks" if found else "no leak"))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
