"""Worker threads that models may share."""
from __future__ import annotations

import os

from redline import _redline
from redline._convert import integer, kind_of, path_text, utf8
from redline._native import Closable
from redline.errors import InvalidArgument

__all__ = ["Runtime"]


def runtime_handle(runtime: object) -> _redline.Runtime:
    """Returns the handle of a Runtime that was given as an option."""
    if not isinstance(runtime, Runtime):
        raise InvalidArgument(f"runtime must be a redline.Runtime, not {kind_of(runtime)}")
    return runtime._use()


class Runtime(Closable["_redline.Runtime"]):
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
        options = _redline.RuntimeOptions()
        options.threads = integer("threads", threads, "int32")
        if trace_file is not None:
            options.trace_file = utf8("trace_file", path_text("trace_file", trace_file))
        self._open(_redline.open_runtime(options))

    def _again(self) -> str:
        return "redline.Runtime()"

    @property
    def threads(self) -> int:
        """Number of worker threads."""
        return self._use().threads
