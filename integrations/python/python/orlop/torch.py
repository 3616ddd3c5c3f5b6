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
import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from orlop import _native

__all__ = [
    "AllocatorError",
    "budget",
    "install",
    "last_error",
    "library_path",
    "on_pressure",
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


# What `on_pressure` registered, by scope.
_CALLBACKS: list[Callable[[int, int], bool]] = []

_PRESSURE_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_uint64)

# A size with a unit, as reports print it.
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([KMGT]iB|B)?")

_UNITS = {None: 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


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


@contextlib.contextmanager
def budget(size: int | str, *, device: int | None = None) -> Iterator[None]:
    """Opens a scope in which the live bytes of a device grow by at most `size`, by all threads together.

    A request beyond raises ``torch.OutOfMemoryError``, and the program goes on. Scopes nest: each has its own
    budget. The allocator is that of :func:`install` with the door ``"all"``.

    Args:
        size: In bytes, or a text such as ``"4GiB"``.
        device: The device; the current one if it is not given.

    Raises:
        AllocatorError: The size is invalid, or the device does not exist.
    """
    number, bytes_ = _device(device), _bytes(size)
    opened = _library().orlop_torch_open_budget(number, bytes_)
    if opened == 0:
        raise AllocatorError(last_error())
    try:
        yield
    finally:
        _library().orlop_torch_close_budget(number, opened)


@contextlib.contextmanager
def on_pressure(callback: Callable[[int, int], bool]) -> Iterator[None]:
    """Opens a scope in which `callback` is called before a request of PyTorch would fail.

    It is called on the thread of the request with the device and the bytes, and returns ``True`` if it freed
    tensors: the request is then tried once more. The newest scope is asked first, then the others. An exception
    of the callback is printed, and counts as nothing freed. Its own requests do not call it again.
    """
    _CALLBACKS.append(callback)
    _set_pressure_callback(_relieve)
    try:
        yield
    finally:
        _CALLBACKS.remove(callback)
        if not _CALLBACKS:
            _set_pressure_callback(_PRESSURE_CALLBACK())


def _ask_callbacks(device: int, bytes_: int) -> int:
    for callback in list(reversed(_CALLBACKS)):
        try:
            if callback(device, bytes_):
                return 1
        except BaseException:  # noqa: BLE001 - the caller is not Python, and would get any number
            traceback.print_exc()
    return 0


_relieve = _PRESSURE_CALLBACK(_ask_callbacks)


def _set_pressure_callback(callback: Any) -> None:
    _library().orlop_torch_set_pressure_callback(callback)
    # No request calls it when the interpreter is gone.
    atexit.unregister(_remove_pressure_callback)
    atexit.register(_remove_pressure_callback)


def _remove_pressure_callback() -> None:
    _library().orlop_torch_set_pressure_callback(_PRESSURE_CALLBACK())


def _bytes(size: int | str) -> int:
    """Returns a size in bytes."""
    if isinstance(size, str):
        found = _SIZE.fullmatch(size.strip())
        if found is None:
            raise AllocatorError(f'{size!r} is no size: a number of bytes, or a text such as "4GiB"')
        size = int(float(found[1]) * _UNITS[found[2]])
    if not 0 <= size < 1 << 64:
        raise AllocatorError(f"the budget is {size} bytes: at least 0")
    return size


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
    library.orlop_torch_open_budget.argtypes = [ctypes.c_int, ctypes.c_uint64]
    library.orlop_torch_open_budget.restype = ctypes.c_uint64
    library.orlop_torch_close_budget.argtypes = [ctypes.c_int, ctypes.c_uint64]
    library.orlop_torch_set_pressure_callback.argtypes = [_PRESSURE_CALLBACK]
    library.orlop_torch_set_pressure_callback.restype = None
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
