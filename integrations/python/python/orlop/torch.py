"""orlop as the allocator of PyTorch's CUDA memory.

::

    import orlop.torch

    orlop.torch.install()  # Before the first use of CUDA.

Every block of the program is then one of orlop's device engine. A request that fails raises
``torch.OutOfMemoryError`` with orlop's report. PyTorch itself has no statistics of other allocators: with
``install(patch=True)`` its functions (``torch.cuda.memory_allocated`` and the like) answer by orlop's.

:func:`pool` is another way: PyTorch's own allocator stays, with its statistics and snapshots, and takes its
segments from orlop while the pool is open.

PyTorch is imported when a function needs it. The library is this package's extension, or the one that
``ORLOP_TORCH_LIBRARY`` names.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from orlop import _native

__all__ = [
    "AllocatorError",
    "install",
    "last_error",
    "library_path",
    "pool",
    "report",
    "reset_peak_stats",
    "retire",
    "stats",
    "trim",
]

# The setter of PyTorch's allocator object, and the function of the library.
_HOOKS = {
    "set_reset_fn": "orlop_torch_empty_cache",
    "set_memory_fraction_fn": "orlop_torch_memory_fraction",
    "set_base_alloc_fn": "orlop_torch_base_alloc",
    "set_record_stream_fn": "orlop_torch_record_stream",
    "set_begin_allocate_to_pool": "orlop_torch_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "orlop_torch_end_allocate_to_pool",
    "set_release_pool": "orlop_torch_release_pool",
}


class AllocatorError(RuntimeError):
    """The allocator cannot be installed, or does not answer."""


def library_path() -> Path:
    """Returns the path of the library.

    Raises:
        AllocatorError: There is none.
    """
    given = os.environ.get("ORLOP_TORCH_LIBRARY")
    path = Path(given or _native.__file__)
    if not path.is_file():
        raise AllocatorError(f"{path}, which ORLOP_TORCH_LIBRARY names, does not exist")
    return path


def install(
    door: str = "all",
    *,
    policy: str | None = None,
    limit: int | None = None,
    patch: bool = False,
) -> None:
    """Makes orlop the allocator of the process, before the first use of CUDA.

    Args:
        door: ``"all"``: orlop serves every request. ``"pool"``: a :func:`pool` is open until the process ends.
        policy: ``"orlop"``, which is the default; ``"orlop:hold_to_peak=N"`` (a 2^N-th more than the peak is
            reserved before pages move; ``off`` for no bound); ``"orlop:streams=apart"`` (no stream waits for
            another before a request would fail); or ``"torch"`` with PyTorch's settings after a colon
            (``"torch:expandable_segments:True"``).
        limit: The maximum of reserved bytes of a device; at least 1.
        patch: Whether PyTorch's functions of statistics answer by orlop's; of the door ``"pool"`` they are
            PyTorch's own.

    Raises:
        AllocatorError: CUDA is in use, or a setting is invalid or not that of the allocator in use.
    """
    if door == "pool":
        # It is open until the process ends, and is closed while the driver is there.
        scope = pool(policy=policy, limit=limit)
        scope.__enter__()
        atexit.register(scope.__exit__, None, None, None)
        return
    if door != "all":
        raise AllocatorError(f'no door is named {door!r}: "all" or "pool"')
    import torch

    allocator = _pluggable("orlop_torch_malloc", "orlop_torch_free")
    _configure(policy, limit)
    inner = allocator.allocator()
    for setter, function in _HOOKS.items():
        getattr(inner, setter)(_address(function))
    try:
        torch.cuda.memory.change_current_allocator(allocator)
    except RuntimeError as error:
        raise AllocatorError("CUDA is in use: install the allocator before its first use") from error
    if patch:
        _patch()


@contextlib.contextmanager
def pool(*, policy: str | None = None, limit: int | None = None, no_split: bool = False) -> Iterator[Any]:
    """Opens a ``torch.cuda.MemPool`` over orlop, for requests of all threads on the current device.

    While it is open, PyTorch does not release cached segments, not even before an out-of-memory error, and
    PyTorch 2.11 does not reuse blocks with a recorded stream (``Tensor.record_stream``). It must not be closed
    while another thread captures a graph: the wait for the device would end the capture.

    Args:
        policy: As for :func:`install`. Without policy and limit, those that were given before stay.
        limit: As for :func:`install`.
        no_split: Whether PyTorch takes a segment for each block.

    Yields:
        The pool.

    Raises:
        AllocatorError: A setting is invalid, or not that of the allocator in use.
    """
    import torch

    allocator = _pluggable("orlop_torch_segment_malloc", "orlop_torch_segment_free")
    _configure(policy, limit)
    torch.cuda.init()
    made = torch.cuda.MemPool(allocator.allocator(), no_split=no_split)
    device = torch.cuda.current_device()
    torch._C._cuda_beginAllocateToPool(device, made.id)
    try:
        yield made
    finally:
        torch._C._cuda_endAllocateToPool(device, made.id)
        torch._C._cuda_releasePool(device, made.id)


def trim(device: int | None = None) -> int:
    """Releases the cached memory of a device, and returns its bytes."""
    return int(_library().orlop_torch_trim(_device(device)))


def retire(stream: Any) -> None:
    """Waits for the work of a stream and makes orlop forget it, so that the program can destroy it.

    For a stream that the program wraps (``torch.cuda.ExternalStream``): otherwise it must exist until the end
    of the process, because orlop gives it work after its blocks were freed, too. The program gives it no work
    meanwhile. Tensors that it used may live on.

    Args:
        stream: A ``torch.cuda.Stream``.

    Raises:
        AllocatorError: The stream captures, or the device failed. It must not be destroyed then.
    """
    if _library().orlop_torch_retire_stream(stream.device.index, stream.cuda_stream) != 0:
        raise AllocatorError(last_error())


def stats(device: int | None = None) -> dict[str, int]:
    """Returns the statistics of a device, with the keys of ``torch.cuda.memory_stats``."""
    found: dict[str, int] = json.loads(_text(_library().orlop_torch_stats, _device(device)))
    return found


def reset_peak_stats(device: int | None = None) -> None:
    """Sets the peaks of a device's statistics to the current values."""
    _library().orlop_torch_reset_peaks(_device(device))


def report(device: int | None = None) -> str:
    """Returns a text about the memory of a device: who uses it, and the allocator's figures."""
    return _text(_library().orlop_torch_report, _device(device))


def last_error() -> str:
    """Returns the text of the last error of the process; empty if there was none."""
    return _read(_library().orlop_torch_last_error)


def _configure(policy: str | None, limit: int | None) -> None:
    """Gives settings; without any, the library keeps those that it has."""
    if limit is not None and not 1 <= limit < 1 << 64:
        raise AllocatorError(f"the limit is {limit} bytes: at least 1, or None")
    if policy is None and limit is None:
        return
    if _library().orlop_torch_configure((policy or "orlop").encode(), limit or 0) != 0:
        raise AllocatorError(last_error())


@functools.cache
def _pluggable(malloc: str, free: str) -> Any:
    """Returns PyTorch's object of an allocator, which is kept: memory that it made is freed by it."""
    import torch

    return torch.cuda.memory.CUDAPluggableAllocator(str(library_path()), malloc, free)


def _patch() -> None:
    import torch

    torch._C._cuda_memoryStats = _nested_stats
    torch._C._cuda_resetPeakMemoryStats = reset_peak_stats


def _nested_stats(device: int) -> dict[str, Any]:
    """Returns the statistics as ``torch.cuda.memory_stats_as_nested_dict`` has them."""
    nested: dict[str, Any] = {"max_split_size": -1}
    for key, value in stats(device).items():
        if key.startswith("orlop."):
            continue
        *path, last = key.split(".")
        place = nested
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return nested


def _device(device: int | None) -> int:
    if device is not None:
        return device
    import torch

    return int(torch.cuda.current_device())


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(library_path()))
    library.orlop_torch_configure.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
    library.orlop_torch_retire_stream.argtypes = [ctypes.c_int, ctypes.c_void_p]
    library.orlop_torch_trim.argtypes = [ctypes.c_int]
    library.orlop_torch_trim.restype = ctypes.c_uint64
    library.orlop_torch_reset_peaks.argtypes = [ctypes.c_int]
    for function in (library.orlop_torch_stats, library.orlop_torch_report):
        function.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
        function.restype = ctypes.c_size_t
    library.orlop_torch_last_error.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.orlop_torch_last_error.restype = ctypes.c_size_t
    return library


def _address(function: str) -> int:
    address = ctypes.cast(getattr(_library(), function), ctypes.c_void_p).value
    if address is None:
        raise AllocatorError(f"{library_path()} has no function {function}")
    return address


def _text(function: Callable[..., int], *arguments: int) -> str:
    text = _read(function, *arguments)
    if not text:
        raise AllocatorError(last_error())
    return text


def _read(function: Callable[..., int], *arguments: int) -> str:
    """Calls a function that writes a text, with room for all of it."""
    capacity = 4096
    while True:
        buffer = ctypes.create_string_buffer(capacity)
        length = function(*arguments, ctypes.cast(buffer, ctypes.c_void_p), capacity)
        if length <= capacity:
            return buffer.raw[:length].decode(errors="replace")
        capacity = length
