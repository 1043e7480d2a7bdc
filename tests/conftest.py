"""Every test may import the modules of tests/support, and starts programs that ignore no signal."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "support"))

from inherited_signals import restore_for_programs  # noqa: E402

restore_for_programs()
