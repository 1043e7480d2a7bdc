"""The inputs that fuzzing starts from: seeds that are generated, and kept inputs in one archive a target."""
import pathlib
import subprocess
import sys
import tarfile

import pytest

FUZZ = pathlib.Path(__file__).resolve().parents[2] / "fuzz"
TARGETS = sorted(source.name.removesuffix("_fuzz.cc") for source in FUZZ.glob("*_fuzz.cc"))
sys.path.insert(0, str(FUZZ))
import corpus  # noqa: E402


def contents(folder):
    return sorted(path.read_bytes() for path in folder.iterdir())


def test_every_target_has_seeds(tmp_path):
    subprocess.run([sys.executable, FUZZ / "make_seeds.py", tmp_path], check=True)
    assert sorted(folder.name for folder in tmp_path.iterdir()) == TARGETS
    assert all(contents(folder) for folder in tmp_path.iterdir())


@pytest.mark.parametrize("archive", sorted(FUZZ.glob("corpus/*")), ids=lambda path: path.name)
def test_archives_belong_to_targets_and_are_packed_by_the_tool(archive, tmp_path):
    assert archive.name.removesuffix(".tar.gz") in TARGETS
    corpus.unpack(archive, tmp_path / "inputs")
    assert contents(tmp_path / "inputs")
    corpus.pack(tmp_path / "inputs", tmp_path / "again.tar.gz")
    with tarfile.open(archive) as old, tarfile.open(tmp_path / "again.tar.gz") as new:
        assert [vars_of(entry) for entry in old] == [vars_of(entry) for entry in new]


def vars_of(entry):
    return entry.name, entry.size, entry.mtime, entry.uid, entry.gid, entry.uname, entry.mode


def test_an_archive_depends_on_nothing_but_the_inputs(tmp_path):
    for folder, names in ("one", ["b", "a"]), ("two", ["x", "y", "same"]):
        (tmp_path / folder).mkdir()
        for name, content in zip(names, [b"long input", b"in", b"in"]):
            (tmp_path / folder / name).write_bytes(content)
        corpus.pack(tmp_path / folder, tmp_path / f"{folder}.tar.gz")
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()
    corpus.unpack(tmp_path / "one.tar.gz", tmp_path / "one")
    assert contents(tmp_path / "one") == [b"in", b"long input"]
    corpus.unpack(tmp_path / "absent.tar.gz", tmp_path / "one")
    assert contents(tmp_path / "one") == []
