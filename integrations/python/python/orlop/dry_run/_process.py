"""The process of a dry run, which an exception in the caller ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from typing import IO

LAST_LINES = 1.0
"""The seconds in which the standard error of an ended program is read to its end."""

END = 5.0
"""The seconds that an interrupted program has to end its own processes, such as those of torchrun."""


def run(command: list[str], environment: Mapping[str, str]) -> tuple[int, str, list[str]]:
    """Runs a command. Copies its standard error to that of this process.

    Returns its exit code, its standard output, and the errors that it reported. Processes that it leaves
    behind are not waited for, although they have its standard error.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        # A session of its own: the whole group can be ended, and a terminal interrupts only this process.
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=output,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        try:
            errors: list[str] = []
            copier = threading.Thread(target=copy_lines, args=(process.stderr, errors), daemon=True)
            copier.start()
            code = process.wait()
        except BaseException:
            end_group(process)
            raise
        copier.join(LAST_LINES)
        output.seek(0)
        return code, output.read(), errors


def copy_lines(lines: IO[str], errors: list[str]) -> None:
    """Copies lines to the standard error, and collects the errors of ``orlop`` among them."""
    with lines:
        for line in lines:
            sys.stderr.write(line)
            if line.startswith(("orlop: ", "error: ")):
                errors.append(line.partition(": ")[2].strip())


def end_group(leader: subprocess.Popen[str]) -> None:
    """Ends the processes of a group: with a request, and those that are left after a while without."""
    end = time.monotonic() + END
    try:
        os.killpg(leader.pid, signal.SIGTERM)
        while time.monotonic() < end:
            leader.poll()
            os.killpg(leader.pid, 0)
            time.sleep(0.05)
        os.killpg(leader.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    leader.wait()
