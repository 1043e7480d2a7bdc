"""Resolves names of models to paths, as on the command line: a path, the name of a bundled model, or hf:owner/name."""
from __future__ import annotations

import difflib
import os
import pathlib
import re
import shutil
import sys

from redline.errors import InvalidArgument, NotFound


def roots() -> list[pathlib.Path]:
    """Returns the folders in which a bare name is looked up."""
    found = [pathlib.Path("assets"), pathlib.Path(sys.prefix) / "share/redline", pathlib.Path(__file__).resolve().parent / "models"]
    source = pathlib.Path(__file__).resolve().parents[2] / "assets"
    if (source / "redline-tales").is_dir():
        found.append(source)
    if program := shutil.which("redline"):
        found.append(pathlib.Path(program).resolve().parent.parent / "share/redline")
    return found


def hub_cache() -> pathlib.Path:
    if cache := os.environ.get("HF_HUB_CACHE"):
        return pathlib.Path(cache)
    home = os.environ.get("HF_HOME") or pathlib.Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "huggingface"
    return pathlib.Path(home).expanduser() / "hub"


def find_hub_model(name: str) -> str:
    """Returns the path of hf:owner/name[:TYPE][@revision] in the cache of huggingface_hub."""
    found = re.fullmatch(r"hf:([\w.-]+/[\w.-]+)(?::([\w.-]+))?(?:@(.+))?", name)
    if not found:
        raise InvalidArgument(f'model "{name}": write hf:owner/name, hf:owner/name:Q4_K_M or hf:owner/name@revision')
    repository, kind, revision = found[1], found[2], found[3] or "main"
    folder = hub_cache() / ("models--" + repository.replace("/", "--"))
    reference = folder / "refs" / revision
    commit = reference.read_text().strip() if reference.is_file() else revision
    snapshot = folder / "snapshots" / commit
    if not snapshot.is_dir():
        raise NotFound(f"model {name}: it is not in {hub_cache()}; download it with: redline pull {name}")
    files = sorted(snapshot.rglob("*.gguf"))
    if kind:
        matching = [f for f in files if kind.lower() in f.name.lower()]
        if not matching:
            raise NotFound(f"model {name}: no GGUF file of type {kind} among {', '.join(f.name for f in files) or 'no files'}; "
                           f"download it with: redline pull {name}")
        return str(matching[0])
    if not (snapshot / "config.json").exists() and not (snapshot / "model_index.json").exists() and files:
        return str(files[0])
    return str(snapshot)


def find_model(name: str) -> str:
    """Returns the path of a model. NotFound: there is no such model; the message has the nearest name.

    >>> find_model("redline-tails")
    Traceback (most recent call last):
    redline.errors.NotFound: model redline-tails: no such file or folder; did you mean ...redline-tales?
    """
    if name.startswith("hf:"):
        return find_hub_model(name)
    if not name:
        raise InvalidArgument("the name of the model is empty")
    if os.path.lexists(name):
        return name
    if not os.path.isabs(name):
        for root in roots():
            if (root / name).exists():
                return str(root / name)
    if name == "redline-shapes":
        raise NotFound(f"model {name}: it is not in the wheel; it is in assets/ of the source tree, where a build unpacks it, and in "
                       "share/redline after make install")
    wanted = pathlib.Path(name)
    places = [wanted.parent] if wanted.parent != pathlib.Path(".") else [pathlib.Path("."), *roots()]
    known = {entry.name: entry for place in reversed(places) if place.is_dir() for entry in place.iterdir()}
    near = difflib.get_close_matches(wanted.name, known, 1, 0.75)
    if near:
        raise NotFound(f"model {name}: no such file or folder; did you mean {known[near[0]]}?")
    if re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name):
        raise NotFound(f"model {name}: no such file or folder; a model on Hugging Face is hf:{name}")
    raise NotFound(f"model {name}: no such file or folder")
