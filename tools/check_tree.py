#!/usr/bin/env python3
"""Checks the tracked files: size, length of files and lines, Markdown links, and that every test file is compiled.

  check_tree.py [BUILD_DIR]     BUILD_DIR: a build with tests, to see that every test file is compiled into one
"""
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE = (".h", ".cc", ".inc", ".py", ".sh", ".cmake")
CPP = (".h", ".cc", ".inc", ".cu", ".cuh", ".c")
MAX_COLUMNS = 120
MAX_LINES = 600
HEAD_LINES = 30
MAX_TRACKED_MIB = 60
# Written in pieces, so that this file does not find itself.
MACHINE_PATHS = re.compile("/(?:" + "|".join(["wo" + "rk", "ro" + "ot", "ho" + "me/[a-z]+", "Us" + "ers/[A-Za-z]+"]) + ")/")
REGISTRY_HOSTS = re.compile("|".join(["py" + r"pi\.org", "pythonh" + r"osted\.org", "np" + r"mjs\.org",
                                      r"deb\.deb" + r"ian\.org", r"archive\.ub" + r"untu\.com", "crat" + r"es\.io"]))


def git_files():
    listing = subprocess.run(["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    names = [name for name in listing.stdout.decode().split("\0") if name]
    return [name for name in names if (ROOT / name).is_file() and not name.startswith("assets/")]


def check_file(name):
    try:
        text = (ROOT / name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return  # binary: golden files, images
    lines = text.splitlines()
    if name.endswith(CODE):
        if len(lines) > MAX_LINES and not any(f"over {MAX_LINES} lines" in line for line in lines[:HEAD_LINES]):
            yield f'{name}:1: {len(lines)} lines; split it, or give the reason ("over {MAX_LINES} lines: ...") in its head'
        if text and not text.endswith("\n"):
            yield f"{name}:{len(lines)}: no newline at the end"
    for number, line in enumerate(lines, 1):
        if MACHINE_PATHS.search(line):
            yield f"{name}:{number}: a path of somebody's machine"
        if REGISTRY_HOSTS.search(line):
            yield f"{name}:{number}: the host name of a package registry; the tools know theirs"
        # A string literal may be longer: it is what a user or a file format has.
        if name.endswith(CPP) and len(line) > MAX_COLUMNS and '"' not in line:
            yield f"{name}:{number}: {len(line)} columns; {MAX_COLUMNS} are the most"
        if name.endswith(CODE) and line != line.rstrip():
            yield f"{name}:{number}: blanks at the end of the line"


def check_size():
    """The sum of the files that git tracks: what a clone checks out."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    names = [name for name in listing.stdout.decode().split("\0") if name]
    sizes = {name: (ROOT / name).lstat().st_size for name in names if (ROOT / name).is_symlink() or (ROOT / name).is_file()}
    total = sum(sizes.values()) / 2**20
    if total > MAX_TRACKED_MIB:
        largest = ", ".join(f"{name} {sizes[name] / 2**20:.1f}" for name in sorted(sizes, key=sizes.get, reverse=True)[:5])
        yield (f"the tracked files have {total:.1f} MiB, more than {MAX_TRACKED_MIB} MiB; the largest, in MiB: {largest}. "
               f"Random weights belong in recipes (tests/golden/weights.py), what a script makes into the build")


def without_code(text):
    """Markdown with code blanked: blocks, indented lines, spans."""
    text = re.sub(r"^```.*?^```|^    [^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S | re.M)
    return re.sub(r"`[^`\n]*`", lambda m: " " * len(m.group()), text)


def anchors(text):
    """The anchors that a code host gives the headings of a Markdown text: lower case, blanks as hyphens, no punctuation."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    titles = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in re.findall(r"^#+ +(.*?) *$", text, flags=re.M))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def check_links(name, root=ROOT):
    """The relative links of a Markdown file: their files and anchors exist."""
    for found in re.finditer(r"\]\(([^)\s]+)\)", text := without_code((root / name).read_text(encoding="utf-8"))):
        link = found.group(1)
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (root / name).parent / file if file else root / name
        where = f"{name}:{text.count(chr(10), 0, found.start()) + 1}"
        if not target.exists():
            yield f"{where}: a link to {file}, which does not exist"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8")):
            yield f"{where}: a link to {link}, and {target.name} has no such heading"


def check_tests_registered(names, build):
    database = build / "compile_commands.json"
    if not database.exists():
        yield f"{build}: no compile_commands.json; configure it first (cmake --preset dev)"
        return
    compiled = set()
    for entry in json.loads(database.read_text()):
        file = pathlib.Path(entry["file"]).resolve()
        compiled.add(str(file))
        if file.name.startswith("unity_") and file.exists():  # cmake/RedlineUnity.cmake
            compiled.update(re.findall(r'#include "(.*)"', file.read_text()))
    # What needs a library that is not installed, by name (tests/CMakeLists.txt).
    listing = build / "tests/left_out.txt"
    left_out = {str(pathlib.Path(line).resolve()) for line in listing.read_text().splitlines()} if listing.exists() else set()
    for name in names:
        if not name.startswith("tests/") or not name.endswith("_test.cc"):
            continue
        if str((ROOT / name).resolve()) in compiled | left_out:
            continue
        yield f"{name}:1: no test program of {build} compiles this file: build again, or name its folder in tests/CMakeLists.txt"


def main():
    names = git_files()
    found = [what for name in names for what in check_file(name)] + list(check_size())
    found += [what for name in names if name.endswith(".md") for what in check_links(name)]
    if len(sys.argv) > 1:
        found += check_tests_registered(names, pathlib.Path(sys.argv[1]))
    for what in found:
        print(what)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
