#!/usr/bin/env python3
"""Counts the files that an addition touches: adds one component of each kind to a temporary copy of the tree.

  check_costs.py [KIND...]     all kinds, or those named; fails when one touches more files than it may
  check_costs.py --build       also configures the copy and compiles every touched source (the target addition_costs)
  check_costs.py --table       prints the Markdown table of docs/architecture/additions.md
  check_costs.py --list        the kinds

Each addition is a function of cost_additions.py that writes the component's own file, adds its row to the list of its
registry if the build does not find it, and writes its test. Then the count comes from comparing the copy, of all files of
the repository, with the original, not from what the function says.

A registration outside of the registry would not be counted: no source may compare with a registered name, or list names of
step-cache rules and solvers, outside of the file that defines the row.
"""
import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from cost_additions import ADDITIONS

ROOT = pathlib.Path(__file__).resolve().parents[1]


class Tree:
    """A copy of the sources in which something is added."""

    def __init__(self, root):
        self.root = root

    def read(self, name):
        return (self.root / name).read_text(encoding="utf-8")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(exist_ok=True)  # the first family of its kind makes the folder
        path.unlink(missing_ok=True)  # a link to the original
        path.write_text(text, encoding="utf-8")

    def replace(self, name, pattern, to):
        text, count = re.subn(pattern, to, self.read(name), count=1, flags=re.S)
        if count != 1:
            raise ValueError(f"{name}: nothing matches {pattern}")
        self.write(name, text)

    def add_row(self, name, row_type, array, symbol):
        """Names a row in the list of its registry: the declaration and the array."""
        self.replace(name, rf"(extern const {row_type} [^;]*);", rf"\1, {symbol};")
        self.replace(name, rf"({array}\[\] = {{[^;]*?),?(\s*}};)", rf"\1, &{symbol}\2")

    def restore(self):
        """As the original again."""
        for name in self.touched():
            (self.root / name).unlink()
            if (ROOT / name).is_file():
                copy_file(name, self.root)

    def touched(self):
        """Files that differ from the original, or are new."""
        found = []
        for folder, folders, files in os.walk(self.root):
            if folder == str(self.root) and "build" in folders:
                folders.remove("build")
            for file in files:
                path = pathlib.Path(folder, file)
                original = ROOT / path.relative_to(self.root)
                if not original.is_file() or not (original.samefile(path) or original.read_bytes() == path.read_bytes()):
                    found.append(str(path.relative_to(self.root)))
        return sorted(found)


def copy_file(name, to):
    (to / name).parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(ROOT / name, to / name, follow_symlinks=False)
    except OSError:
        shutil.copy(ROOT / name, to / name, follow_symlinks=False)


def copy_tree(to):
    """All files of the repository, those not yet added too, as links where the file system can."""
    names = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True,
                           text=True).stdout.split("\0")
    for name in names:
        if (ROOT / name).is_file():
            copy_file(name, to)


# Where names of a registry's rows are: files, and what precedes a name. The names that other places may not list.
REGISTRIES = (
    ("src/models/**/*.cc", r"\.model_type = ", False),
    ("src/models/**/*.cc", r"\.gguf_architecture = ", False),
    ("src/models/**/*.cc", r"\.gguf = \{\.architecture = ", False),
    ("src/diffusion/solvers/*.cc", r"\.name = ", True),
    ("src/diffusion/step_cache/rules/*.cc", r"\.name = ", True),
)
# Words that are also something else. Tokenizers have names of models; a reranker is one model.
WORDS = {"none", "auto", "redline", "mask"}
COMPARING = {"src/text/gguf_tokenizer.cc", "src/text/hf_to_gguf_vocab.cc", "src/embedding/causal_reranker.cc"}
# What users of other programs write, and examples.
LISTING = {"python/redline/_cache_calls.py", "python/redline/diffusers.py"}


def find_strangers(root):
    """Lines that compare with a registered name, or list one, outside of the registry."""
    sources = [path for folder, pattern in (("src", "*.cc"), ("src", "*.h"), ("include", "*.h"), ("python", "*.py"),
                                            ("comfyui_redline", "*.py")) for path in sorted((root / folder).rglob(pattern))]
    texts = {str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in sources}
    found = []
    for pattern, before, is_listed in REGISTRIES:
        owners, rows = {}, sorted(root.glob(pattern))
        for path in rows:
            row = str(path.relative_to(root))
            for name in set(re.findall(before + r'"([^"]+)"', texts[row])) - WORDS:
                owners.setdefault(name, set()).add(row)
        assert owners, f"no rows in {pattern}"
        any_name = "|".join(map(re.escape, sorted(owners)))
        compares = re.compile(rf"""[=!]= ?["'](?P<a>{any_name})["']|["'](?P<b>{any_name})["'] ?[=!]=""")
        lists = re.compile(rf"""["'](?P<a>{any_name})["'](?P<b>)""")
        for file, text in texts.items():
            if file in LISTING or (root / file in rows if is_listed else file in COMPARING):
                continue
            for number, line in enumerate(text.splitlines(), 1):
                code = line.split("//")[0] if file.endswith((".cc", ".h")) else line
                match = (lists if is_listed else compares).search(code)
                if match and file not in owners[match["a"] or match["b"]]:
                    found.append(f"{file}:{number}: {line.strip()}")
    return found


def compile_touched(tree, sources):
    """Configures the copy and compiles `sources` with the commands of its build. Gives what went wrong, or ""."""
    build = tree.root / "build"
    configure = subprocess.run(
        ["cmake", "-S", tree.root, "-B", build, "-DREDLINE_TESTS=ON", "-DREDLINE_UNITY=OFF", "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON",
         "-DCMAKE_BUILD_TYPE=Debug", "--log-level=WARNING"], text=True, capture_output=True)
    if configure.returncode:
        return configure.stderr
    commands = {}  # a kernel has one for each instruction set
    for entry in json.loads((build / "compile_commands.json").read_text()):
        commands.setdefault(entry["file"], []).append(entry)
    for source in sources:
        if str(tree.root / source) not in commands:
            return f"{source} is in no target"
    for entry in (entry for source in sources for entry in commands[str(tree.root / source)]):
        command = shlex.split(entry["command"])
        pathlib.Path(entry["directory"], command[command.index("-o") + 1]).parent.mkdir(parents=True, exist_ok=True)
        run = subprocess.run(command, cwd=entry["directory"], text=True, capture_output=True)
        if run.returncode:
            return run.stderr
    return ""


def measure(tree, kind, build):
    """(files touched, what went wrong or "")."""
    ADDITIONS[kind][0](tree)
    files = tree.touched()
    sources = [name for name in files if name.endswith(".cc")]
    # A header is compiled through a source that includes it.
    sources += {"block format": ["src/tensor/dtype.cc"], "instruction set": ["src/kernels/cpu/rms_norm.kernel.cc"],
                "engine option": ["src/capi/model.cc", "src/cli/option_rows.cc", "src/cli/run_command.cc"]}.get(kind, [])
    error = compile_touched(tree, sources) if build else ""
    tree.restore()
    return files, error


def show(tree, kind, args):
    """Prints what one kind costs; whether that is within its bracket, and compiles."""
    _, goal, bracket, which = ADDITIONS[kind]
    files, error = measure(tree, kind, args.build)
    if args.table:
        print(f"| {kind} | {goal or '-'} | {len(files)} | {which} |")
    else:
        print(f"{kind}: {len(files)} of at most {bracket} files (goal: {goal or 'none'}): {', '.join(files)}", flush=True)
    if len(files) > bracket:
        print(f"check_costs: a {kind} touches more files than its bracket", file=sys.stderr)
    if error:
        print(f"check_costs: {kind}: {error}", file=sys.stderr)
    return len(files) <= bracket and not error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        print("\n".join(ADDITIONS))
        return 0
    unknown = [kind for kind in args.kinds if kind not in ADDITIONS]
    if unknown:
        print(f'check_costs: there is no kind "{unknown[0]}"; the kinds are: {", ".join(ADDITIONS)}', file=sys.stderr)
        return 2
    failed = False
    if args.table:
        print("| to add | goal | files | which |\n|---|---|---|---|")
    build_folder = ROOT / "build"  # on the same file system, for links
    with tempfile.TemporaryDirectory(prefix="costs-", dir=build_folder if build_folder.is_dir() else None) as folder:
        tree = Tree(pathlib.Path(folder).resolve() / "tree")
        copy_tree(tree.root)
        for kind in args.kinds or ADDITIONS:
            failed |= not show(tree, kind, args)
    strangers = find_strangers(ROOT)
    if strangers:
        print("check_costs: names of a registry outside of it:", *strangers, sep="\n", file=sys.stderr)
    failed |= bool(strangers)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
