"""Worker threads that models may share."""
from __future__ import annotations

import ctypes
import os

from redline import _c_api
from redline._convert import integer, kind_of, path_text, utf8
from redline._native import Closable, Handle, call, library
from redline.errors import InvalidArgument

__all__ = ["Runtime"]


def runtime_value(runtime: object) -> int | None:
    """The handle of a Runtime that was given as an option."""
    if not isinstance(runtime, Runtime):
        raise InvalidArgument(f"runtime must be a redline.Runtime, not {kind_of(runtime)}")
    return runtime._use().value


class Runtime(Closable):
    """Worker threads and scratch memory; steps of the models that share one take turns.

    >>> import redline
    >>> runtime = redline.Runtime(threads=1)
    >>> runtime.threads
    1
    >>> writer = redline.Model("redline-tales", runtime=runtime)
    >>> painter = redline.ImagePipeline("redline-shapes", runtime=runtime)
    """

    _name = "runtime"

    def __init__(self, threads: int = 0, trace_file: str | os.PathLike[str] | None = None) -> None:
        options = _c_api.redline_runtime_options()
        library().redline_runtime_options_init(ctypes.byref(options), ctypes.sizeof(options))
        options.threads = integer("threads", threads, ctypes.c_int32)
        if trace_file is not None:
            options.trace_file = utf8("trace_file", path_text("trace_file", trace_file))
        pointer = ctypes.c_void_p()
        call(library().redline_runtime_open, ctypes.byref(options), ctypes.byref(pointer))
        self._handle = Handle(pointer.value, library().redline_runtime_release)

    def _again(self) -> str:
        return "redline.Runtime()"

    @property
    def threads(self) -> int:
        """Number of worker threads."""
        return int(library().redline_runtime_threads(self._use().value))
