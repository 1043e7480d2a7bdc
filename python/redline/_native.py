"""The library behind the package: finding and loading it, its handles, its errors, its texts."""
from __future__ import annotations

import ctypes
import os
import pathlib
import threading
from collections.abc import Callable, Generator
from typing import Any

from redline import _c_api
from redline.errors import (Cancelled, ClosedError, Error, FileError, InternalError, InvalidArgument, NotFound, OutOfMemory,
                            Unsupported)

_ERRORS: dict[int, type[Error]] = {
    _c_api.INVALID_ARGUMENT: InvalidArgument,
    _c_api.NOT_FOUND: NotFound,
    _c_api.UNSUPPORTED: Unsupported,
    _c_api.OUT_OF_MEMORY: OutOfMemory,
    _c_api.CANCELLED: Cancelled,
    _c_api.IO: FileError,
    _c_api.INTERNAL: InternalError,
}
_FILE = "libredline.so"
_lock = threading.Lock()
_library: Any = None


def candidates() -> list[pathlib.Path]:
    """Where the library is looked for: REDLINE_LIBRARY, the package, the builds of the source tree."""
    if named := os.environ.get("REDLINE_LIBRARY"):
        return [pathlib.Path(named)]
    package = pathlib.Path(__file__).resolve().parent
    found = [package / "lib" / _FILE]
    if package.parent.name == "python":
        found += [package.parents[1] / "build" / preset / _FILE for preset in ("release", "dev")]
    return found


def library() -> Any:
    """The loaded library. ImportError: it is missing, cannot be loaded, or is of another version."""
    return _library if _library is not None else _load()


def _load() -> Any:
    global _library
    with _lock:
        if _library is not None:
            return _library
        paths = candidates()
        path = next((p for p in paths if p.is_file()), None)
        if path is None:
            raise ImportError(f"redline: no {_FILE}; looked for {', '.join(map(str, paths))}. Install the package with pip, "
                              "build the library in the source tree, or name it in REDLINE_LIBRARY")
        try:
            loaded = ctypes.CDLL(str(path))
        except OSError as error:
            raise ImportError(f"redline: {path} cannot be loaded: {error}") from error
        for name, result, arguments in _c_api.FUNCTIONS:
            try:
                function = getattr(loaded, name)
            except AttributeError:
                raise ImportError(f"redline: {path} has no {name}; it is older than this package") from None
            function.restype, function.argtypes = result, arguments
        major, minor = divmod(loaded.redline_version_number() // 100, 100)
        if (major, minor) != (_c_api.VERSION_MAJOR, _c_api.VERSION_MINOR):
            raise ImportError(f"redline: {path} is version {major}.{minor}, and this package needs "
                              f"{_c_api.VERSION_MAJOR}.{_c_api.VERSION_MINOR}")
        _library = loaded
        return loaded


def version() -> str:
    text: bytes = library().redline_version()
    return text.decode()


def raise_error(code: int, error: ctypes.c_void_p) -> None:
    """Raises what `error` says, and frees it."""
    lib = library()
    message = lib.redline_error_message(error).decode("utf-8", "replace") if error else ""
    lib.redline_error_free(error)
    raise _ERRORS.get(code, InternalError)(message or lib.redline_code_name(code).decode())


def call(function: Any, *arguments: Any) -> None:
    """Calls a function whose last parameter is the error, and raises that."""
    error = ctypes.c_void_p()
    code = function(*arguments, ctypes.byref(error))
    if code != _c_api.OK:
        raise_error(code, error)


class Handle:
    """Owns one handle of the library, which is released with the last reference to this object.

    A call keeps a reference while it runs, so closing a model in one thread does not free what another one uses.
    """

    __slots__ = ("__weakref__", "_release", "pid", "value")

    def __init__(self, value: int | None, release: Callable[[int], None]) -> None:
        self.value, self._release = value, release
        self.pid = os.getpid()

    def __del__(self) -> None:
        if self.value is not None:
            self._release(self.value)


class HandleMemory:
    """Makes arrays over memory of a handle, which lives as long as they do."""

    def __init__(self, handle: Handle, address: int, shape: tuple[int, ...], typestr: str) -> None:
        self._handle = handle
        self.__array_interface__ = {"version": 3, "data": (address, False), "shape": shape, "typestr": typestr}


class Closable:
    """Base of models: close(), `with`, no pickling, no use after fork."""

    _handle: Handle | None = None
    _name = "model"

    def _use(self) -> Handle:
        handle = self._handle
        if handle is None:
            raise ClosedError(f"this {self._name} is closed; open it again: {self._again()}")
        if handle.pid != os.getpid():
            raise ClosedError(f"this {self._name} was opened before fork(), and the threads that compute are in the parent "
                              f"process; open it in this process: {self._again()}, or start processes by \"spawn\"")
        return handle

    def _again(self) -> str:
        return f"redline.{type(self).__name__}(path)"

    @property
    def closed(self) -> bool:
        """Whether close() has been called."""
        return self._handle is None

    def close(self) -> None:
        """Ends what still runs and frees the memory. A second call does nothing."""
        self._handle = None

    def __enter__(self) -> Any:
        Closable._use(self)  # a model of embeddings refuses what needs text in its own
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"a {type(self).__name__} cannot be pickled or copied: it has threads and mapped memory. Pass its path, "
                        f"and open it where it is used: {self._again()}")


def take_text(pointer: ctypes.c_void_p, length: int | None = None) -> str:
    """Text that the library gave away; frees it."""
    try:
        data = ctypes.string_at(pointer) if length is None else ctypes.string_at(pointer, length)
    finally:
        library().redline_free(pointer)
    return data.decode("utf-8", "replace")


def text_of(function: Any, *arguments: Any) -> str:
    """The text that a function gives in a char** before its error."""
    text = ctypes.c_void_p()
    call(function, *arguments, ctypes.byref(text))
    return take_text(text)


class StepCheck:
    """A callback on the calling thread between steps: lets Python handle signals, and carries an exception to the caller.

    The callback is a generator's send(): a signal's exception is raised inside its `try`. In a plain function it could be raised
    before the first line, where ctypes would drop it.
    """

    def __init__(self, action: Callable[[Any], Any] | None = None) -> None:
        self.error: BaseException | None = None
        self._loop = self._run(action)
        next(self._loop)

    def _run(self, action: Callable[[Any], Any] | None) -> Generator[int, Any, None]:
        answer = 0
        while True:
            try:
                while True:
                    argument = yield answer
                    if action is not None:
                        answer = 1 if action(argument) is False else 0
            except GeneratorExit:
                return
            except BaseException as error:  # KeyboardInterrupt too: re-raised in the caller
                self.error, answer = error, 1

    def on_step(self) -> Any:
        return _c_api.redline_on_step(self._loop.send)

    def on_image_step(self) -> Any:
        # send() takes one argument, the progress; user_data is left where the caller put it.
        function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(_c_api.redline_image_progress))(self._loop.send)
        return ctypes.cast(function, _c_api.redline_on_image_step), function

    def run(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Makes the call, and raises what was raised within it: that, not "cancelled"."""
        try:
            function(*arguments)
        except Cancelled:
            if self.error is None:
                raise
        finally:
            self._loop.close()
            error, self.error = self.error, None
            if error is not None:
                raise error
