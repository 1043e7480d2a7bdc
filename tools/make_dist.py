#!/usr/bin/env python3
"""Packs build/PRESET into a tarball that runs without a compiler or further packages: redline-VERSION-linux-ARCH.tar.xz.

  make_dist.py [--level N] [PRESET [FOLDER]]     PRESET: release; FOLDER: build/dist; N: 0 (fast) to 9 (small), default 6

The tarball holds bin/redline, the shared libraries that it needs and the CUDA module in lib/redline, the bundled models, a man
page, completion for three shells, and the licences of all that. glibc, libstdc++ and libgcc come from the system, at the
versions below or newer: Debian 12, Ubuntu 22.04, Fedora 36. It can be unpacked anywhere, and equal builds give equal files.

Needs a build for every machine (make dist does that), patchelf, readelf, and dpkg for the licences of libraries.
"""
import argparse
import gzip
import hashlib
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The oldest supported systems have these.
MAX_VERSIONS = {"GLIBC": (2, 35), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)}
FROM_SYSTEM = re.compile(r"^(linux-vdso|ld-linux.*|libc|libm|libdl|libpthread|librt|libresolv|libstdc\+\+|libgcc_s)\.so")
# Compiled into the binary from headers alone: no library names them.
HEADER_PACKAGES = ["nlohmann-json3-dev", "libboost1.74-dev", "libboost1.83-dev", "libboost1.88-dev"]


def fail(message):
    sys.exit(f"make_dist: {message}")


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def needed_versions(path):
    """{"GLIBC": (2, 34), ...}: the newest version of each kind of symbol that an ELF file needs."""
    versions = {}
    for kind, number in re.findall(r"Name: (GLIBC|GLIBCXX|CXXABI|GCC)_([0-9.]+)", run("readelf", "--version-info", "--wide", str(path))):
        version = tuple(map(int, number.split(".")))
        versions[kind] = max(version, versions.get(kind, ()))
    return versions


def too_new(versions):
    """The kinds of symbols that the oldest supported systems lack, with their versions."""
    return [f"{kind}_{'.'.join(map(str, version))}" for kind, version in sorted(versions.items())
            if version > MAX_VERSIONS[kind]]


def libraries_of(binary):
    """{file name: path} of all libraries that a binary loads at its start and that the tarball brings."""
    found = {}
    for name, path in re.findall(r"^\s*(\S+) => (\S+)", run("ldd", str(binary)), re.MULTILINE):
        if FROM_SYSTEM.match(name):
            continue
        if path == "not":
            fail(f"{binary} needs {name}, which is not on this machine")
        found[name] = pathlib.Path(path)
    return found


def package_of(path):
    """The Debian package that a file is of."""
    for candidate in (path, path.resolve(), pathlib.Path("/usr") / path.resolve().relative_to("/")):
        answer = subprocess.run(["dpkg-query", "-S", str(candidate)], capture_output=True, text=True)
        if answer.returncode == 0:
            return answer.stdout.split(":")[0]
    fail(f"no package holds {path}: its licence is not known")


def copy_licences(folder, libraries):
    folder.mkdir(parents=True)
    packages = {package_of(path) for path in libraries.values()}
    for package in HEADER_PACKAGES:
        if subprocess.run(["dpkg-query", "-W", package], capture_output=True).returncode == 0:
            packages.add(package)
    for package in sorted(packages):
        text = pathlib.Path("/usr/share/doc") / package / "copyright"
        if not text.exists():
            fail(f"the package {package} has no {text}")
        shutil.copyfile(text, folder / f"{package}.txt")
    with gzip.open(ROOT / "web/dist/licenses.txt.gz") as packed:
        (folder / "web-page.txt").write_bytes(packed.read())


def roff(text):
    """A paragraph for man: Markdown's marks become fonts, and nothing in it is taken for a request."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("\\", r"\e").replace("-", r"\-")
    text = re.sub(r"`([^`]*)`", r"\\fB\1\\fR", text)
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def is_rule(line):
    return re.match(r"\|[-| ]+\|$", line) is not None


def man_page(markdown, version):
    """redline(1), of the text that `redline help --markdown` prints."""
    lines = [f'.TH REDLINE 1 "" "redline {version}" "User Commands"', ".SH NAME",
             r"redline \- run language, image and embedding models", ".SH SYNOPSIS", r".B redline", r".I COMMAND",
             "[options]", ".SH DESCRIPTION"]
    is_code = False
    rows = markdown.splitlines()
    for line, following in zip(rows, [*rows[1:], ""]):
        if line.startswith("```"):
            is_code = not is_code
            lines.append(".nf" if is_code else ".fi")
        elif is_code:
            lines.append(re.sub(r"^([.'])", r"\\&\1", line.replace("\\", r"\e").replace("-", r"\-")))
        elif line.startswith("## "):
            lines.append(f'.SH "{roff(line[3:]).upper() if not line.startswith("## redline") else roff(line[3:])}"')
        elif line.startswith("### "):
            lines.append(f'.SS "{roff(line[4:])}"')
        elif is_rule(line) or is_rule(following) or line.startswith(("<!--", "# ")):  # a table's head and what is below it
            continue
        elif line.startswith("- "):
            lines += [r".IP \(bu 2", roff(line[2:])]
        elif line.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
            lines += [".TP", roff(cells[0]), roff("; ".join(c.replace(r"\|", "|") for c in cells[1:] if c)) or r"\&"]
        else:
            lines.append(roff(line) if line else ".PP")
    return "\n".join(lines) + "\n"


def write_tarball(folder, file, time_s, level):
    """All files in the order of their names, of one owner and one time."""
    def plain(info):
        info.uid = info.gid = 0
        info.uname = info.gname = "root"
        info.mtime = time_s
        return info
    with tarfile.open(file, "w:xz", preset=level) as tar:
        tar.add(folder, folder.name, recursive=False, filter=plain)
        for path in sorted(folder.rglob("*")):
            tar.add(path, f"{folder.name}/{path.relative_to(folder)}", recursive=False, filter=plain)


def patchelf_program():
    own = ROOT / "build/venv/bin/patchelf"
    found = str(own) if own.exists() else shutil.which("patchelf")
    return found or fail("there is no patchelf; run tools/setup.sh test")


def make(preset, target, level):
    build = ROOT / "build" / preset
    if not (build / "redline").exists():
        fail(f"{build}/redline is not built; run make dist")
    patchelf = patchelf_program()
    version = run(str(build / "redline"), "version", "--json")
    version = re.search(r'"version": *"([^"]+)"', version).group(1)
    name = f"redline-{version}-linux-{platform.machine()}"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        prefix = pathlib.Path(temporary) / name
        run("cmake", "--install", str(build), "--prefix", str(prefix), "--strip")
        # Those who compile against Redline use make install.
        shutil.rmtree(prefix / "include")
        for path in [*prefix.glob("lib*/libredline*"), *prefix.glob("lib*/*/libredline*"), *prefix.glob("lib*/**/cmake"),
                     *prefix.glob("lib*/**/pkgconfig")]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.parent != prefix / "lib/redline":  # the CUDA module
                path.unlink()
        for path in sorted(prefix.glob("lib*/**/"), reverse=True):
            if not any(path.iterdir()):
                path.rmdir()
        binary, own = prefix / "bin/redline", prefix / "lib/redline"
        own.mkdir(parents=True, exist_ok=True)
        libraries = libraries_of(build / "redline")
        for library, path in libraries.items():
            shutil.copyfile(path.resolve(), own / library)
            (own / library).chmod(0o755)
            run(patchelf, "--force-rpath", "--set-rpath", "$ORIGIN", str(own / library))
        run(patchelf, "--force-rpath", "--set-rpath", "$ORIGIN/../lib/redline", str(binary))
        for path in [binary, *sorted(own.iterdir())]:
            newer = too_new(needed_versions(path))
            if newer:
                fail(f"{path.relative_to(prefix)} needs {', '.join(newer)}, which the oldest supported systems lack")
        copy_licences(prefix / "share/doc/redline/licenses", libraries)
        man = prefix / "share/man/man1/redline.1"
        man.parent.mkdir(parents=True)
        # `help --markdown` leaves out the options of the tables, which `help options` lists.
        text = "\n".join(run(str(binary), "help", *what) for what in (["--markdown"], ["options"]))
        man.write_text(man_page(text, version), encoding="utf-8")
        file = target / f"{name}.tar.xz"
        time_s = run("git", "-C", str(ROOT), "log", "-1", "--format=%ct").strip() if (ROOT / ".git").exists() else "0"
        write_tarball(prefix, file, int(time_s), level)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    (target / f"{file.name}.sha256").write_text(f"{digest}  {file.name}\n", encoding="utf-8")
    return file


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", type=int, choices=range(10), default=6)
    parser.add_argument("preset", nargs="?", default="release")
    parser.add_argument("folder", nargs="?", default="build/dist")
    args = parser.parse_args()
    try:
        file = make(args.preset, ROOT / args.folder, args.level)
    except subprocess.CalledProcessError as error:
        fail(f"{' '.join(map(str, error.cmd))}: {error.stderr.strip() or error.stdout.strip()}")
    print(f"{file}: {file.stat().st_size >> 20} MiB")


if __name__ == "__main__":
    main()
