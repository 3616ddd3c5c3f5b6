"""The extension module: answers as JSON, and tensors."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

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

_DType: TypeAlias = Literal[
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float8_e4m3fn",
    "float8_e5m2",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
_Kind: TypeAlias = Literal["default", "persistent", "workspace", "kv_cache", "host_pinned", "host_pageable"]

@final
class Tensor:
    """A tensor in host memory of orlop, or over the memory of another library.

    It has no operators: NumPy and PyTorch compute on its memory. What shares the memory (an array, a view, a
    capsule) keeps it, also after the tensor is gone.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""

    @property
    def dtype(self) -> _DType:
        """The name of the element type."""

    @property
    def kind(self) -> _Kind:
        """The name of the memory kind."""

    @property
    def nbytes(self) -> int:
        """The bytes of the elements."""

    @property
    def readonly(self) -> bool:
        """Whether the memory must not be written."""

    def resize(self, shape: int | Sequence[int]) -> None:
        """Changes the shape to a row-major one. Elements keep their positions; new ones are arbitrary.

        Raises:
            BufferError: The memory is exported, or read-only.
            MemoryError: There is not enough memory.
        """

    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Returns a capsule of version 1, or of the version before if `max_version` does not allow it.

        Raises:
            BufferError: The memory is read-only, and the capsule has no flag for it; or an argument asks for
                another device.
        """

    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

def empty(
    shape: int | Sequence[int], dtype: _DType = "float32", *, kind: _Kind = "default", tag: str = ""
) -> Tensor:
    """Returns a tensor with arbitrary elements.

    Args:
        shape: The sizes of the dimensions.
        dtype: The element type.
        kind: The memory kind that it is counted under.
        tag: The name that reports show.

    Raises:
        MemoryError: There is not enough memory.
        ValueError: The shape, the type or the kind is invalid.
    """

def zeros(
    shape: int | Sequence[int], dtype: _DType = "float32", *, kind: _Kind = "default", tag: str = ""
) -> Tensor:
    """Returns a tensor of zeros. Arguments and exceptions are those of :func:`empty`."""

def from_dlpack(source: Any, /) -> Tensor:
    """Returns a tensor over the memory of an object with ``__dlpack__``, such as an array of NumPy.

    Raises:
        BufferError: The memory is not the host's, or its layout or element type has no tensor.
        ValueError: A stride is negative.
    """

def from_buffer(source: Any, /) -> Tensor:
    """Returns a tensor over the memory of an object with the buffer protocol, such as a ``bytearray``.

    Raises:
        BufferError: The format or the layout has no tensor.
    """

def live_bytes() -> int:
    """Returns the bytes in live blocks of host memory: tensors', and other libraries' under tensors."""
