#!/usr/bin/env python3
"""The kept inputs of a fuzz target as one archive, fuzz/corpus/TARGET.tar.gz: the same inputs give the same bytes.

  corpus.py pack FOLDER ARCHIVE      every file of FOLDER, named by its content's hash, smallest first
  corpus.py unpack ARCHIVE FOLDER    into FOLDER, which is recreated; without an archive it is empty
"""
import gzip
import hashlib
import io
import pathlib
import shutil
import sys
import tarfile


def pack(folder, archive):
    contents = {path.read_bytes() for path in pathlib.Path(folder).iterdir()}
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for content in sorted(contents, key=lambda c: (len(c), c)):
            entry = tarfile.TarInfo(hashlib.sha1(content).hexdigest())  # as libFuzzer names them; no time, no owner
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    with open(archive, "wb") as out, gzip.GzipFile("", "wb", 9, out, mtime=0) as packed:
        packed.write(raw.getvalue())


def unpack(archive, folder):
    folder = pathlib.Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if not pathlib.Path(archive).exists():
        return
    with tarfile.open(archive) as tar:
        for entry in tar:
            (folder / pathlib.PurePath(entry.name).name).write_bytes(tar.extractfile(entry).read())


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in ("pack", "unpack"):
        sys.exit(__doc__)
    {"pack": pack, "unpack": unpack}[sys.argv[1]](*sys.argv[2:])
