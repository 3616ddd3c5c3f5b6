"""The extension module: answers as JSON."""

from collections.abc import Sequence
from pathlib import Path

from orlop._inputs import Progress

class OrlopError(Exception):
    """The base of all exceptions of this package."""

class RecordingError(OrlopError):
    """A recording that cannot be read, or has no answer."""

class InternalError(OrlopError):
    """A defect of this package. Please report it."""

def run_program(arguments: Sequence[str], interpreter: str, folder: str) -> int: ...
def describe(
    name: str | None,
    contents: bytes | Path,
    *,
    depth: int,
    top: int,
    progress: Progress | None = None,
) -> str: ...
def what_if(
    name: str | None,
    contents: bytes | Path,
    *,
    memory: int | None = None,
    torch: str | None = None,
    device: int | None = None,
    quick: bool = False,
    progress: Progress | None = None,
) -> str: ...
def report(
    name: str | None,
    contents: bytes | Path,
    *,
    title: str,
    device: int | None = None,
    progress: Progress | None = None,
) -> bytes: ...
def diff(
    before: tuple[str | None, bytes | Path],
    after: tuple[str | None, bytes | Path],
    *,
    depth: int,
    lines: bool,
    progress: Progress | None = None,
) -> str: ...
def gate(
    run: tuple[str | None, bytes | Path],
    baseline: tuple[str | None, bytes | Path],
    *,
    tolerance: str,
    progress: Progress | None = None,
) -> str: ...
def fit(
    recordings: Sequence[tuple[int, tuple[str | None, bytes | Path]]],
    *,
    at: int,
    memory: int | None = None,
    device: int | None = None,
    progress: Progress | None = None,
) -> str: ...
def profile(
    name: str | None, contents: bytes | Path, *, depth: int, progress: Progress | None = None
) -> str: ...
def why_oom(text: str) -> str: ...
