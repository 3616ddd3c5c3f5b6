"""Dry runs: a PyTorch program for CUDA on a machine without a GPU.

``python -m orlop.dry_run train.py`` is ``orlop dry-run train.py``. :func:`dry_run` does the same for a script
or a function, in a process of its own: the stand-ins for CUDA's libraries have to be there before PyTorch is
loaded, so that no context manager can make a dry run of a block of the running process.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orlop import _native
from orlop._answer import from_json
from orlop.dry_run._process import run
from orlop.dry_run._results import DryRun

MARKER = "ORLOP_DRY_RUN"
"""The variable that is set in the process of a dry run."""

INVALID = 2
"""The exit code of the program for an invalid command line."""

REFUSED = {"--sweep", "--find", "--help", "-h", "--version", "-V", "--"}
"""The options that do not answer with one dry run of the program."""


def dry_run(
    program: str | os.PathLike[str] | Callable[..., object],
    /,
    *arguments: Any,
    device: str = "h100",
    memory: int | None = None,
    options: Sequence[str] = (),
    output: str | os.PathLike[str] = "orlop-dry-run",
    environment: Mapping[str, str] | None = None,
) -> DryRun:
    """Runs a PyTorch program for CUDA without a GPU, and returns what it would have allocated.

    The process of the program is a new one with this interpreter. What it prints goes to the standard error.

    Args:
        program: The path of a script, or a function at the top of a module. That of a ``__main__`` module has
            to be behind ``if __name__ == "__main__"``, because the module is imported again.
        arguments: Its arguments. Those of a function are pickled.
        device: The GPU, such as ``"h100"``.
        memory: The memory of the GPU in bytes; default: as it has.
        options: More options of ``orlop dry-run``, such as ``["--late"]``; not ``--sweep`` and ``--find``.
        output: The folder for the snapshot. The results of an earlier dry run there are replaced.
        environment: More variables for the program.

    Raises:
        OrlopError: The program cannot be run, or never used a device: there is nothing to judge.
        ValueError: An option is invalid.
        TypeError: The function cannot be found by another process, or an argument cannot be pickled.
    """
    if os.environ.get(MARKER):
        raise _native.OrlopError("this process is a dry run itself")
    for option in options:
        if option.partition("=")[0] in REFUSED:
            raise ValueError(f"{option}: not an option of one dry run")
    command = [sys.executable, "-m", "orlop", "dry-run", "--json", "--quick", "--device", device]
    command += ["--output", os.fspath(output)]
    if memory is not None:
        command += ["--memory", str(memory)]
    command += [*options, "--", sys.executable]
    with tempfile.TemporaryDirectory() as folder:
        if callable(program):
            call = Path(folder, "call.pickle")
            write_call(call, program, arguments)
            command += [str(Path(__file__).with_name("_call.py")), str(call)]
        else:
            command += [os.fspath(program), *map(str, arguments)]
        return from_json(DryRun, answer_of(command, {**os.environ, **(environment or {})}))


def write_call(path: Path, function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    """Writes a call for ``_call.py``: how this process finds modules, then the function and its arguments."""
    try:
        call = pickle.dumps((function, arguments))
    except (pickle.PicklingError, AttributeError) as error:
        raise TypeError(f"another process cannot make this call: {error}") from error
    process = preparation_data()
    main = {"init_main_from_name", "init_main_from_path"} & process.keys()
    if b"__main__" not in call:
        for name in main:
            del process[name]
    elif not main:
        raise TypeError("another process cannot make this call: its __main__ is not a file or a module")
    path.write_bytes(pickle.dumps(process) + call)


def preparation_data() -> dict[str, Any]:
    """Returns how this process finds modules. The program chooses the start method of its processes itself."""
    # Here: most programs that load this package make no dry run of a function.
    import multiprocessing
    from multiprocessing import spawn

    is_chosen = multiprocessing.get_start_method(allow_none=True) is not None
    process = spawn.get_preparation_data("dry run")
    if not is_chosen:
        # get_preparation_data has fixed the start method of this process.
        multiprocessing.set_start_method(None, force=True)
    # Keys are only for the processes of a pool.
    for name in ("authkey", "start_method"):
        del process[name]
    return process


def answer_of(command: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """Runs the program and returns the JSON that it prints. Its standard error is that of this process."""
    code, text, said = run(command, environment)
    if text:
        found: dict[str, Any] = json.loads(text)
        return found
    reason = said[-1] if said else f"the program ended with the code {code}"
    raise ValueError(reason) if code == INVALID else _native.OrlopError(reason)


__all__ = ["DryRun", "dry_run"]
