"""A progress bar on standard error: one line that is rewritten. Without a terminal nothing is printed."""
from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TextIO


def in_notebook() -> bool:
    """Returns True if a Jupyter kernel runs this process; its standard error shows carriage returns as a terminal does."""
    ipython = sys.modules.get("IPython")
    get = getattr(ipython, "get_ipython", None)
    shell = get() if get else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


def is_wanted(progress: bool | None, stream: TextIO | None = None) -> bool:
    """Returns True if a bar is shown. `progress`: True, False, or None: in a terminal or a notebook only."""
    if progress is not None:
        return progress
    if os.environ.get("TERM") == "dumb" or os.environ.get("REDLINE_PROGRESS") == "off":
        return False
    stream = stream or sys.stderr
    return in_notebook() or (stream is not None and stream.isatty())


def clock(seconds: float) -> str:
    """
    >>> clock(5), clock(65), clock(3661)
    ('00:05', '01:05', '1:01:01')
    """
    minutes, s = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{s:02}" if hours else f"{minutes:02}:{s:02}"


def bar_text(done: int, total: int, seconds: float, unit: str, width: int) -> str:
    """
    >>> bar_text(5, 20, 2.0, "step", 60)
    ' 25%|█████▎               | 5/20 [00:02<00:06, 2.50 step/s]'
    """
    rate = done / seconds if seconds > 0 and done else 0.0
    left = clock((total - done) / rate) if rate else "?"
    speed = (f"{rate:.2f} {unit}/s" if rate >= 1 or not rate else f"{1 / rate:.2f} s/{unit}") if rate else f"? {unit}/s"
    head = f"{done * 100 // total if total else 0:3}%|"
    tail = f"| {done}/{total} [{clock(seconds)}<{left}, {speed}]"
    room = max(width - len(head) - len(tail) - 1, 0)
    eighths = room * 8 * done // total if total else 0
    full, part = divmod(eighths, 8)
    bar = "█" * full + (" ▏▎▍▌▋▊▉"[part] if part and full < room else "")
    return head + bar.ljust(room) + tail


class ProgressBar:
    """Shows `done` of `total`, at most ten times a second.

    >>> import io
    >>> text = io.StringIO()
    >>> with ProgressBar(2, unit="step", stream=text, shown=True) as bar:
    ...     bar.update(1); bar.update(2)
    >>> "2/2" in text.getvalue() and text.getvalue().endswith("\\n")
    True
    """

    def __init__(self, total: int, unit: str = "it", stream: TextIO | None = None, shown: bool | None = None) -> None:
        self.total, self.unit = total, unit
        self._stream = stream or sys.stderr
        self._shown = is_wanted(shown, self._stream)
        self._begin = time.monotonic()
        self._last = 0.0
        self._done = 0

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, done: int, total: int | None = None) -> None:
        self._done = done
        if total is not None:
            self.total = total
        if not self._shown:
            return
        now = time.monotonic()
        if now - self._last < 0.1 and done < self.total:
            return
        self._last = now
        width = shutil.get_terminal_size((80, 24)).columns if not in_notebook() else 80
        text = bar_text(done, self.total, now - self._begin, self.unit, min(width, 100))
        self._write("\r" + text)

    def close(self) -> None:
        if self._shown and self._last:
            self._write("\n")
        self._shown = False

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError, UnicodeError):
            self._shown = False  # a closed stream, or one that cannot show the bar
