"""Recordings as arguments."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias


class Readable(Protocol):
    """An open file."""

    def read(self) -> bytes | str: ...


class Progress(Protocol):
    """A function that is called about 20 times a second while an answer is computed.

    ``stage`` is ``"reading"``, counted in bytes, or ``"computing"``, counted in devices. ``total`` is 0
    if it is unknown. An exception ends the computation and is raised to the caller.
    """

    def __call__(self, stage: str, done: int, total: int, /) -> object: ...


RecordingSource: TypeAlias = (
    str
    | os.PathLike[str]
    | bytes
    | bytearray
    | memoryview
    | Readable
    | Mapping[str, Any]
    | Sequence[Mapping[str, Any]]
)
"""A path, the contents of a file, an open file, or what ``torch.cuda.memory._snapshot()`` returns.

The list of segments that ``torch.cuda.memory_snapshot()`` returns is also accepted.
"""


def contents_of(source: RecordingSource) -> tuple[str | None, bytes | Path]:
    """Returns the name of a recording's file, if there is one, and its contents or its file."""
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        return str(path), path
    if isinstance(source, bytes):
        return None, source
    if isinstance(source, (bytearray, memoryview)):
        return None, bytes(source)
    if isinstance(source, (dict, list)):
        return None, pickle.dumps(source)
    if hasattr(source, "read"):
        data = source.read()
        name = getattr(source, "name", None)
        contents = data.encode() if isinstance(data, str) else bytes(data)
        return name if isinstance(name, str) else None, contents
    raise TypeError(
        "a recording is a path, bytes, an open file, or what torch.cuda.memory._snapshot() returns, "
        f"not {type(source).__name__}"
    )
