"""The extension module behind the package: finding and loading it, and what its handles have in common."""
from __future__ import annotations

import importlib.util
import os
import pathlib
import sys
import threading
from types import ModuleType
from typing import Any, Generic, TypeVar

from redline.errors import ClosedError

MODULE = "_redline.abi3.so"
_NAME = "redline._redline"
_lock = threading.Lock()

H = TypeVar("H")


def candidates() -> list[pathlib.Path]:
    """Returns the places in which the extension module is looked for: the package, the folder of REDLINE_LIBRARY, the builds of the source tree."""
    package = pathlib.Path(__file__).resolve().parent
    folders = [package]
    if named := os.environ.get("REDLINE_LIBRARY"):
        folders.append(pathlib.Path(named).absolute().parent)
    if package.parent.name == "python":
        folders += [package.parents[1] / "build" / preset for preset in ("release", "dev")]
    return [folder / MODULE for folder in folders]


def load() -> ModuleType:
    """Returns the extension module. ImportError: it or its library is missing, cannot be loaded, or is of another version."""
    with _lock:
        if _NAME not in sys.modules:
            sys.modules[_NAME] = _load()
        return sys.modules[_NAME]


def _load() -> ModuleType:
    named = os.environ.get("REDLINE_LIBRARY")
    if named:
        _load_library(named)
    spec = importlib.util.find_spec(_NAME)
    if spec is None:
        paths = candidates()
        path = next((p for p in paths if p.is_file()), None)
        if path is None:
            raise ImportError(f"redline: no {MODULE}; looked for {', '.join(map(str, paths))}. Install the package with pip, or "
                              "build it in the source tree: make dev")
        spec = importlib.util.spec_from_file_location(_NAME, path)
    assert spec is not None and spec.loader is not None
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        raise ImportError(f"redline: {spec.origin} cannot be loaded: {error}") from error
    if named and not os.path.samefile(named, module.library_path()):
        raise ImportError(f"redline: {named} is not the library that {spec.origin} needs; it loaded {module.library_path()}")
    return module


def _load_library(path: str) -> None:
    """Loads the library that REDLINE_LIBRARY names, before the module loads one of the same name."""
    import ctypes

    if not os.path.isfile(path):
        raise ImportError(f"redline: no libredline.so; looked for {path}, which REDLINE_LIBRARY names")
    try:
        ctypes.CDLL(os.path.abspath(path))
    except OSError as error:
        raise ImportError(f"redline: {path} cannot be loaded: {error}") from error


class Closable(Generic[H]):
    """Base of models: close(), `with`, no pickling, no use after fork.

    The handle is an object of the extension module, which is released with its last reference. A call keeps one while it runs, so
    closing a model in one thread does not free what another one uses.
    """

    _handle: H | None = None
    _pid = 0
    _name = "model"

    def _open(self, handle: H) -> None:
        self._handle, self._pid = handle, os.getpid()

    def _use(self) -> H:
        handle = self._handle
        if handle is None:
            raise ClosedError(f"this {self._name} is closed; open it again: {self._again()}")
        if self._pid != os.getpid():
            raise ClosedError(f"this {self._name} was opened before fork(), and the threads that compute are in the parent "
                              f"process; open it in this process: {self._again()}, or start processes by \"spawn\"")
        return handle

    def _again(self) -> str:
        return f"redline.{type(self).__name__}(path)"

    @property
    def closed(self) -> bool:
        """True after close() has been called."""
        return self._handle is None

    def close(self) -> None:
        """Ends what still runs and frees the memory. A second call does nothing."""
        self._handle = None

    def __enter__(self) -> Any:
        Closable._use(self)  # not self._use(): that of an embedding model refuses calls that need text
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"a {type(self).__name__} cannot be pickled or copied: it has threads and mapped memory. Pass its path, "
                        f"and open it where it is used: {self._again()}")
