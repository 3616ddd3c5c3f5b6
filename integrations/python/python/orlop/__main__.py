"""The program: ``python -m orlop`` is ``orlop``."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from orlop import _native


def main(*command: str) -> int:
    """Runs the program with a command and the arguments of this process, and returns its exit code."""
    # Ctrl-C ends the program at once: no Python code runs until it returns.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.run_program(["orlop", *command, *sys.argv[1:]], sys.executable, str(Path(__file__).parent))


if __name__ == "__main__":
    sys.exit(main())
