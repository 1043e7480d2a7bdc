"""Exceptions. Each carries the message of the engine, which names what was wrong and how to fix it."""
from __future__ import annotations

__all__ = ["Cancelled", "ClosedError", "Error", "InternalError", "InvalidArgument", "NotFound", "OutOfMemory",
           "Unsupported", "FileError"]


class Error(Exception):
    """Base class of every error of the engine.

    ``code`` is the name of the kind of failure, the same as in the C++ and C interfaces and on the command line.

    >>> InvalidArgument("top_p is 2; use a value from 0 to 1").code
    'invalid_argument'
    """

    code = "error"


class InvalidArgument(Error, ValueError):
    """A value that the engine cannot use. The message has the name, the value and what is possible."""

    code = "invalid_argument"


class NotFound(Error, FileNotFoundError):
    """A model, a file, an adapter or a prompt name that does not exist."""

    code = "not_found"

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class Unsupported(Error, NotImplementedError):
    """A model family, a weight format or a feature that the engine does not have."""

    code = "unsupported"


class OutOfMemory(Error, MemoryError):
    """The memory or the cache does not suffice. The message has the bytes needed and available."""

    code = "out_of_memory"


class Cancelled(Error):
    """The call was cancelled before it had a result."""

    code = "cancelled"


class FileError(Error, OSError):
    """A file that cannot be read or written."""

    code = "io"

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class InternalError(Error, RuntimeError):
    """An error of the engine itself, to be reported."""

    code = "internal"


class ClosedError(InvalidArgument):
    """The model has been closed, or belongs to the process that this one was forked from."""
