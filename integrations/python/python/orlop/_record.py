"""Recording of a program that may run out of memory."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from orlop import _answers, _native
from orlop._answer import Verdict

MAX_ENTRIES = 100_000
"""The default number of events that PyTorch keeps: the last ones."""


class NotRecordedWarning(UserWarning):
    """Nothing is recorded: there is no CUDA device, or no PyTorch."""


class record(contextlib.ContextDecorator):
    """Records the memory of a program, and explains an out-of-memory error.

    ::

        with orlop.record():
            train()

    If the block fails for lack of memory, PyTorch's memory snapshot is written to a file, the verdict is
    printed to the standard error, and the exception goes on. The snapshot answers all further questions:
    ``orlop report orlop-oom.pickle``.

    Without a CUDA device nothing is recorded, with a :class:`NotRecordedWarning`; the message of an
    out-of-memory error of another device is explained all the same. A history that was already being
    recorded goes on, with its own settings, also after the block.

    Also usable as a decorator. For a program that catches the error itself, see :meth:`explain`.
    """

    path: Path | None
    """The snapshot, once it is written."""

    verdict: Verdict | None
    """The verdict on a failure, once there was one."""

    def __init__(
        self,
        path: str | os.PathLike[str] = "orlop-oom.pickle",
        *,
        max_entries: int = MAX_ENTRIES,
        stacks: str = "python",
        file: TextIO | None = None,
    ) -> None:
        """Prepares a recording.

        Args:
            path: The snapshot to write. A process of a distributed run, which has the variable ``RANK``,
                adds ``-rank<N>`` to the name. An existing file stays: the name gets a number.
            max_entries: The number of events that PyTorch keeps: the last ones.
            stacks: The call stacks to record: ``"python"``, or ``"all"`` for those of C++, too.
            file: Where the verdict is printed; default: the standard error.
        """
        self.path = None
        self.verdict = None
        self._given = Path(path)
        self._max_entries = max_entries
        self._stacks = stacks
        self._file = file
        self._is_recording = False
        self._is_outer = False

    @property
    def is_recording(self) -> bool:
        """Whether a history is being recorded."""
        return self._is_recording

    def start(self) -> None:
        """Starts the recording, as ``with`` does, unless it is started already."""
        if self._is_recording:
            return
        torch = _torch_with_cuda()
        if isinstance(torch, str):
            warnings.warn(f"orlop records nothing: {torch}", NotRecordedWarning, stacklevel=3)
            return
        self._is_outer = _is_history_enabled(torch)
        if not self._is_outer:
            # No stacks of frees: PyTorch 2.11 loses a pending Python exception when it records one.
            torch.cuda.memory._record_memory_history(
                enabled="all", context="alloc", stacks=self._stacks, max_entries=self._max_entries
            )
        self._is_recording = True

    def stop(self) -> None:
        """Stops the recording, as the end of ``with`` does."""
        if self._is_recording and not self._is_outer:
            import torch

            torch.cuda.memory._record_memory_history(enabled=None)
        self._is_recording = False

    def snapshot(self) -> dict[str, Any]:
        """Returns PyTorch's memory snapshot, which :func:`orlop.what_if` and the others take.

        Raises:
            OrlopError: Nothing is being recorded.
        """
        if not self._is_recording:
            raise _native.OrlopError("nothing is being recorded: call snapshot() inside of the block")
        import torch

        snapshot: dict[str, Any] = torch.cuda.memory._snapshot()
        return snapshot

    def explain(self, error: BaseException) -> bool:
        """Explains an exception if it is for lack of memory, as the end of ``with`` does.

        Returns:
            Whether it was. No failure of the explanation is raised; it is printed.
        """
        failures = [each for each in _chain(error) if _is_out_of_memory(each)]
        if not failures:
            return False
        try:
            self._explain(failures[0])
        # The program's own error is the one to raise.
        except Exception as failure:  # noqa: BLE001
            self._print(f"orlop: no verdict: {failure}")
        return True

    def _explain(self, error: BaseException) -> None:
        if self._is_recording:
            self.path = _write_new(_of_this_rank(self._given), self.snapshot())
            self.verdict = _answers.what_if(self.path, quick=True).verdict
            self._print(f"orlop: the memory snapshot is in {self.path}\n{self.verdict}")
        else:
            self.verdict = _answers.why_oom(error).verdict
            self._print(f"orlop: from the message alone\n{self.verdict}")

    def _print(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            print(text, file=self._file or sys.stderr, flush=True)

    # typing.Self needs Python 3.11.
    def __enter__(self) -> record:  # noqa: PYI034
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is not None:
                self.explain(error)
        finally:
            self.stop()

    def _recreate_cm(self) -> record:
        # Each call of a decorated function is a recording of its own.
        return record(self._given, max_entries=self._max_entries, stacks=self._stacks, file=self._file)


def _torch_with_cuda() -> Any:
    """Returns the module torch, or the reason why it cannot record."""
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed"
    # One for CUDA without the libraries of CUDA.
    except (OSError, ValueError) as error:
        return f"PyTorch cannot be loaded: {error}"
    if not torch.cuda.is_available():
        return "PyTorch has no CUDA device"
    return torch


def _is_history_enabled(torch: Any) -> bool:
    """Returns whether PyTorch records a history. Releases that do not tell are taken to record none."""
    is_enabled = getattr(torch._C, "_cuda_isHistoryEnabled", None)
    # Before CUDA is initialized there is no history, and PyTorch 2.15 crashes when it is asked.
    return is_enabled is not None and torch.cuda.is_initialized() and bool(is_enabled())


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Returns an exception and those that it was raised from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an exception is about memory: by its class, or by its message."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.cuda.OutOfMemoryError):
        return True
    if not isinstance(error, (RuntimeError, MemoryError)):
        return False
    try:
        _answers.why_oom(error)
    except _native.OrlopError:
        return False
    return True


def _of_this_rank(path: Path) -> Path:
    rank = os.environ.get("RANK", "")
    return path.with_stem(f"{path.stem}-rank{rank}") if rank.isdecimal() else path


def _write_new(path: Path, snapshot: dict[str, Any]) -> Path:
    """Writes a snapshot to a new file: a number is added to a name that exists."""
    for number in range(1, 1000):
        candidate = path if number == 1 else path.with_stem(f"{path.stem}-{number}")
        try:
            with open(candidate, "xb") as file:
                pickle.dump(snapshot, file)
        except FileExistsError:
            continue
        return candidate
    raise FileExistsError(f"{path}: 999 snapshots are there")
