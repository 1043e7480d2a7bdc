#!/usr/bin/env python3
"""symbols.py LIBRARY HEADER: libredline.so exports what c_api.h declares, under a version, and nothing else."""
import re
import subprocess
import sys

library, header = sys.argv[1:]
with open(header, encoding="utf-8") as file:
    declared = set(re.findall(r"\b(redline_\w+)\(", re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)))
listing = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", library], check=True, capture_output=True, text=True)
exported, wrong = set(), []
for line in listing.stdout.splitlines():
    kind, _, symbol = line.rpartition(" ")
    name, _, version = symbol.partition("@")
    if kind.endswith(" A") or name.startswith("REDLINE_"):  # the version node itself
        continue
    # A small letter is a local symbol, which nothing links with; binutils before 2.39 list those of thread-local variables.
    if kind[-1].islower() and kind[-1] not in "uvw":
        continue
    exported.add(name)
    if not name.startswith("redline_") or not version.lstrip("@").startswith("REDLINE_"):
        wrong.append(line)
for name in sorted(declared - exported):
    wrong.append(f"{name} is declared and not exported")
for name in sorted(exported - declared):
    wrong.append(f"{name} is exported and not declared")
print(*wrong, f"{len(exported)} functions of {len(declared)} declared ones", sep="\n")
sys.exit(1 if wrong or not declared else 0)
