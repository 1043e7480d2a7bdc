"""Lists the devices of this machine."""
from __future__ import annotations

import dataclasses
import json
from typing import Any

from redline import _redline
from redline._tables import html_table, text_table

__all__ = ["Device", "Devices", "devices"]


@dataclasses.dataclass(frozen=True)
class Device:
    """A device that models run on. ``isa`` is the instruction set of the kernels in use, ``isas`` those of this machine; sizes are bytes."""

    name: str
    description: str
    cores: int
    isa: str
    isas: list[str]
    memory_bytes: int
    memory_available_bytes: int
    caches: Any
    more: dict[str, Any] = dataclasses.field(default_factory=dict)


class Devices(list[Device]):
    """A list of devices that prints as a table."""

    def _rows(self) -> list[dict[str, Any]]:
        return [{"name": d.name, "description": d.description, "cores": d.cores, "instructions": d.isa,
                 "memory": f"{d.memory_bytes / 2**30:.1f} GiB", "available": f"{d.memory_available_bytes / 2**30:.1f} GiB"}
                for d in self]

    def __str__(self) -> str:
        return text_table(self._rows())

    def _repr_html_(self) -> str:
        return html_table(self._rows())


def devices() -> Devices:
    """Returns the devices that models run on. Nothing is measured; ``redline devices`` on the command line also gives their limits.

    >>> import redline
    >>> cpu = redline.devices()[0]
    >>> cpu.name, cpu.cores >= 1, cpu.isa in cpu.isas
    ('cpu', True, True)
    """
    found = Devices()
    names = {field.name for field in dataclasses.fields(Device)}
    for row in json.loads(_redline.devices())["devices"]:
        isas = [i["name"] if isinstance(i, dict) else i for i in row.get("isas", [])
                if not isinstance(i, dict) or i.get("supported", True)]
        values = {k: v for k, v in row.items() if k in names and k != "isas"}
        found.append(Device(**values, isas=isas, more={k: v for k, v in row.items() if k not in names}))
    return found
