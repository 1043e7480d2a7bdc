"""Converts Python's values to those of the C interface; errors name the argument."""
from __future__ import annotations

import array
import math
import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from redline.errors import InvalidArgument

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    TokenIds = NDArray[np.int32] | array.array[int]

_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1), "uint64": (0, 2**64 - 1)}


def kind_of(value: object) -> str:
    return f"{value!r:.60} ({type(value).__name__})"


def integer(name: str, value: Any, kind: str = "int64") -> int:
    """Returns an integer of this type; floats such as 3.0 are refused."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{name} must be an integer, not {kind_of(value)}") from None
    low, high = _RANGES[kind]
    if not low <= number <= high:
        raise InvalidArgument(f"{name} is {number}; it must be from {low} to {high}")
    return number


def real(name: str, value: Any) -> float:
    if isinstance(value, (str, bytes)) or value is None:
        raise InvalidArgument(f"{name} must be a number, not {kind_of(value)}")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument(f"{name} must be a number, not {kind_of(value)}") from None
    if math.isnan(number):
        raise InvalidArgument(f"{name} is NaN")
    return number


def utf8(name: str, value: Any, may_have_zero: bool = False) -> bytes:
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} must be a str, not {kind_of(value)}")
    try:
        data = value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{name} has half of a surrogate pair at position {error.start}, which UTF-8 cannot hold; "
                              'use text.encode("utf-8", "replace").decode()') from None
    if not may_have_zero and b"\0" in data:
        raise InvalidArgument(f"{name} has a zero character at byte {data.index(0)}")
    return data


def path_text(name: str, value: Any) -> str:
    """Returns a path, given as str or os.PathLike."""
    path = value.__fspath__() if hasattr(value, "__fspath__") else value
    if isinstance(path, bytes):
        path = path.decode("utf-8", "surrogateescape")
    if not isinstance(path, str):
        raise InvalidArgument(f"{name} must be a path (str or os.PathLike), not {kind_of(value)}")
    return path


def texts(name: str, value: Any) -> list[str]:
    """Returns the list of one or several strings."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, Iterable) or isinstance(value, (bytes, dict)):
        raise InvalidArgument(f"{name} must be a str or a list of str, not {kind_of(value)}")
    found = list(value)
    for i, item in enumerate(found):
        if not isinstance(item, str):
            raise InvalidArgument(f"{name}[{i}] must be a str, not {kind_of(item)}")
    return found


def text_list(name: str, value: Any) -> list[bytes]:
    return [utf8(name, text) for text in texts(name, value)]


def assign(options: Any, field: str, value: Any, name: str = "") -> None:
    """Sets a field of a struct of the extension module to a value of the field's kind."""
    name, kind = name or field, options.kind(field)
    if kind == "text":
        converted: Any = utf8(name, value)
    elif kind == "real":
        converted = real(name, value)
    else:
        converted = integer(name, value, kind)
    setattr(options, field, converted)


def is_array(value: object) -> bool:
    """Returns True for objects that share their memory, such as NumPy's arrays and PyTorch's tensors; not for numbers and texts."""
    return hasattr(value, "__array_interface__") or hasattr(value, "__dlpack__") or hasattr(value, "__array__")


def as_numpy(name: str, value: Any) -> NDArray[Any]:
    """Returns a NumPy array, over the same memory if possible. Memory of another device than the CPU is an error."""
    import numpy as np

    if isinstance(value, np.ndarray):
        return value
    device = getattr(value, "__dlpack_device__", None)
    if device is not None:
        kind = int(device()[0])
        if kind not in (1, 3, 13):  # kDLCPU, kDLCUDAHost, kDLCUDAManaged
            raise InvalidArgument(f"{name} is on another device (DLPack device {kind}); move it to the CPU first, as with .cpu()")
    if getattr(value, "requires_grad", False):
        value = value.detach()
    try:
        return np.asarray(np.from_dlpack(value) if device is not None and hasattr(value, "__dlpack__") else value)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        try:
            return np.asarray(value)
        except Exception:
            raise InvalidArgument(f"{name} is not an array that can be read ({kind_of(type(value))}): {error}") from None


def float_array(name: str, value: Any, axes: Sequence[str]) -> NDArray[np.float32]:
    """Returns a dense float32 array with as many axes as named; other float types are converted, other layouts copied."""
    import numpy as np

    found = as_numpy(name, value)
    if found.dtype.kind != "f":
        raise InvalidArgument(f"{name} has dtype {found.dtype}; use {name}.astype(\"float32\")")
    if found.ndim != len(axes):
        raise InvalidArgument(f"{name} has shape {list(found.shape)}; it must be [{', '.join(axes)}]")
    return np.ascontiguousarray(found, dtype=np.float32)


def token_ids(name: str, value: Any) -> TokenIds:
    """Returns token ids as a dense int32 array, in memory that the engine reads."""
    if is_array(value):
        import numpy as np

        found = as_numpy(name, value)
        if found.dtype.kind not in "iu":
            raise InvalidArgument(f"{name} has dtype {found.dtype}; token ids are integers: use {name}.astype(\"int32\")")
        if found.ndim != 1:
            raise InvalidArgument(f"{name} has shape {list(found.shape)}; the ids of one text are [tokens]")
        if found.size and (int(found.max()) > 2**31 - 1 or int(found.min()) < -(2**31)):
            raise InvalidArgument(f"{name} has an id beyond the range of int32")
        return np.ascontiguousarray(found, dtype=np.int32)
    try:
        return array.array("i", value)
    except TypeError:
        wrong = next((x for x in value if not hasattr(x, "__index__")), None) if isinstance(value, Iterable) else value
        raise InvalidArgument(f"{name}: token ids must be integers, not {kind_of(wrong)}") from None
    except OverflowError:
        raise InvalidArgument(f"{name} has an id beyond the range of int32") from None
