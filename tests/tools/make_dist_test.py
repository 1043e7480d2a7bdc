"""tools/make_dist.py: the versions of symbols that it lets pass, and the man page. tools/check_dist.sh packs a real build."""
import importlib.util
import pathlib
import shutil
import subprocess
import sys
import tarfile

import pytest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/make_dist.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("make_dist", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_symbol_that_the_oldest_systems_lack_is_named(tool):
    assert tool.too_new({"GLIBC": (2, 35), "GLIBCXX": (3, 4, 30)}) == []
    assert tool.too_new({"GLIBC": (2, 34), "GLIBCXX": (3, 4)}) == []
    assert tool.too_new({"GLIBC": (2, 36), "GLIBCXX": (3, 4, 31)}) == ["GLIBC_2.36", "GLIBCXX_3.4.31"]


def test_versions_are_those_of_the_file(tool):
    versions = tool.needed_versions(sys.executable)
    assert versions["GLIBC"] >= (2, 2, 5)


def test_libraries_of_the_system_stay_there(tool):
    for name in ("libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "linux-vdso.so.1"):
        assert tool.FROM_SYSTEM.match(name), name
    for name in ("libcurl.so.4", "libcrypto.so.3", "libmd.so.0", "libcom_err.so.2"):
        assert not tool.FROM_SYSTEM.match(name), name


MARKDOWN = """<!-- generated -->

# The `redline` command

A [link](json.md) and `--json`.

| command | what it does |
|---|---|
| `run` | stream text |

## redline run

```
  .dot \\ --flag
```
"""


def test_the_man_page_has_every_section_and_no_request_of_its_text(tool):
    page = tool.man_page(MARKDOWN, "1.2.3")
    assert page.startswith('.TH REDLINE 1 "" "redline 1.2.3"')
    assert r"A link and \fB\-\-json\fR." in page
    assert '.SH "redline run"' in page
    assert ".TP\n\\fBrun\\fR\nstream text\n" in page
    assert "what it does" not in page and "generated" not in page and "---" not in page
    assert "\n  .dot \\e \\-\\-flag\n" in page
    if shutil.which("groff"):
        said = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=page, capture_output=True, text=True, check=True)
        assert "--flag" in said.stdout and said.stderr == ""


def test_equal_folders_make_equal_tarballs(tool, tmp_path):
    files = []
    for name in ("a", "b"):
        folder = tmp_path / name / "redline-1"
        (folder / "bin").mkdir(parents=True)
        for file in ("z", "bin/x") if name == "a" else ("bin/x", "z"):
            (folder / file).write_text(file)
        files.append(tmp_path / f"{name}.tar.xz")
        tool.write_tarball(folder, files[-1], 1000, 0)
    assert files[0].read_bytes() == files[1].read_bytes()
    with tarfile.open(files[0]) as tar:
        assert [(m.name, m.uid, m.mtime) for m in tar] == [
            ("redline-1", 0, 1000), ("redline-1/bin", 0, 1000), ("redline-1/bin/x", 0, 1000), ("redline-1/z", 0, 1000)]
