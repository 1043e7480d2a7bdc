"""Tables for terminals and notebooks."""
from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any


def cell(value: Any) -> str:
    """
    >>> cell(1234567), cell(0.123456), cell("q4_0"), cell([1, 2])
    ('1,234,567', '0.1235', 'q4_0', '1, 2')
    """
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(cell(v) for v in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {cell(v)}" for k, v in value.items())
    return str(value)


def rows_of(values: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    if isinstance(values, Mapping):
        return [], [[name, cell(value)] for name, value in values.items()]
    names = list(dict.fromkeys(name for row in values for name in row))
    return names, [[cell(row.get(name, "")) for name in names] for row in values]


def html_table(values: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
    """
    >>> html_table({"a": "<b>"})
    '<table><tr><th>a</th><td>&lt;b&gt;</td></tr></table>'
    """
    names, rows = rows_of(values)
    head = "<tr>" + "".join(f"<th>{html.escape(name)}</th>" for name in names) + "</tr>" if names else ""
    body = ""
    for row in rows:
        first = "td" if names else "th"
        body += f"<tr><{first}>{html.escape(row[0])}</{first}>" + "".join(f"<td>{html.escape(c)}</td>" for c in row[1:]) + "</tr>"
    return f"<table>{head}{body}</table>"


def text_table(values: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
    """
    >>> print(text_table([{"run": "prefill", "tokens/s": 12.5}, {"run": "decode", "tokens/s": 3}]))
    run      tokens/s
    prefill  12.5
    decode   3
    """
    names, rows = rows_of(values)
    lines = [names, *rows] if names else rows
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))] if lines else []
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths)).rstrip() for line in lines)
