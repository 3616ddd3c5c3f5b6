"""Tensors: memory that NumPy, PyTorch and others share, in both directions."""

from __future__ import annotations

import array
import ctypes
import gc
import hashlib
import mmap
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orlop
import pytest
from conftest import dry_run

# Types that NumPy has, too.
DTYPES: list[Any] = ["bool", "float16", "float32", "float64", "complex64", "complex128"] + [
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
]


@pytest.fixture(autouse=True)
def everything_is_released() -> Iterator[None]:
    """Checks that a test leaves no memory behind, of orlop or of another library."""
    gc.collect()
    before = orlop.live_bytes()
    yield
    gc.collect()
    assert orlop.live_bytes() == before


# Host memory in both directions with PyTorch: a program, because PyTorch runs in a dry run.
PYTORCH = """
import gc, json, sys
import numpy, torch
import orlop

facts = {}
before = orlop.live_bytes()
source = orlop.zeros((2, 3), "bfloat16")
shared = torch.from_dlpack(source)
shared += 2
back = torch.from_dlpack(orlop.from_dlpack(shared))
back[0, 0] = 9
facts["bfloat16"] = [str(shared.dtype), list(shared.shape), shared.float().tolist()]
facts["same"] = shared.data_ptr() == back.data_ptr()
del source, back
gc.collect()
facts["kept"] = orlop.live_bytes() > before
facts["alive"] = shared.float().sum().item()
del shared
gc.collect()
facts["released"] = orlop.live_bytes() == before
tensor = orlop.from_dlpack(torch.arange(12, dtype=torch.int64).reshape(3, 4).t())
facts["strided"] = numpy.asarray(tensor).tolist()
by_buffer = torch.frombuffer(orlop.zeros(4, "int32"), dtype=torch.int32)
by_buffer += 1
facts["frombuffer"] = by_buffer.tolist()
facts["copy"] = torch.from_dlpack(orlop.zeros(3), copy=True).tolist()
try:
    orlop.from_dlpack(torch.ones(3, requires_grad=True))
except BufferError as error:
    facts["graph"] = str(error)
try:
    orlop.from_dlpack(torch.ones(3, device="cuda"))
except BufferError as error:
    facts["cuda"] = str(error)
at_exit = torch.from_dlpack(orlop.zeros(1000))
del sys.modules["orlop"], orlop
print(json.dumps(facts))
"""


class OlderProducer:
    """An array that knows only capsules from before version 1."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __dlpack__(self, stream: None = None) -> Any:
        return self.inner.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return self.inner.__dlpack_device__()


def capsule_name(capsule: Any) -> bytes:
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    found: bytes = name(capsule)
    return found


def test_a_tensor_tells_what_it_is() -> None:
    tensor = orlop.zeros((2, 3), "int16", kind="kv_cache", tag="cache")
    assert (tensor.shape, tensor.dtype, tensor.kind, tensor.nbytes) == ((2, 3), "int16", "kv_cache", 12)
    assert not tensor.readonly
    assert repr(tensor) == "orlop.Tensor(shape=[2, 3], dtype=int16, kind=kv_cache)"
    assert bytes(tensor) == bytes(12)
    assert orlop.empty(5).shape == (5,)
    assert orlop.empty(()).shape == ()


def test_wrong_arguments_are_errors() -> None:
    wrong: Any = "float31"
    with pytest.raises(ValueError, match="not a dtype"):
        orlop.empty(1, wrong)
    with pytest.raises(ValueError, match="not a memory kind"):
        orlop.empty(1, kind=wrong)
    with pytest.raises(TypeError):
        orlop.empty(-1)
    with pytest.raises(ValueError, match="does not fit in the address space"):
        orlop.empty((1 << 40, 1 << 40))
    with pytest.raises(MemoryError):
        orlop.empty(1 << 56, "uint8")


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_sees_the_elements_in_place(dtype: Any) -> None:
    numpy = pytest.importorskip("numpy")
    tensor = orlop.zeros((3, 4), dtype)
    by_buffer, by_dlpack = numpy.asarray(tensor), numpy.from_dlpack(tensor)
    for array_ in (by_buffer, by_dlpack):
        assert (array_.shape, array_.dtype, array_.flags.writeable) == ((3, 4), numpy.dtype(dtype), True)
    by_buffer[1, 2] = 1
    assert by_dlpack[1, 2] == 1 and by_dlpack.sum() == 1
    # And back: the same bytes, under a third and a fourth tensor.
    for imported in (orlop.from_dlpack(by_dlpack), orlop.from_buffer(by_buffer), orlop.from_dlpack(tensor)):
        assert (imported.shape, imported.dtype) == ((3, 4), dtype)
        assert bytes(imported) == by_buffer.tobytes()


def test_arrays_of_numpy_with_strides_come_in_as_they_are() -> None:
    numpy = pytest.importorskip("numpy")
    base = numpy.arange(24, dtype="int32").reshape(4, 6)
    for view in (base.T, base[::2, 1:5], base[:, :1], base[:0], numpy.broadcast_to(base[0], (3, 6))):
        for tensor in (orlop.from_dlpack(view), orlop.from_buffer(view)):
            assert tensor.shape == view.shape
            assert (numpy.from_dlpack(tensor) == view).all() and (numpy.asarray(tensor) == view).all()
    for backward in (base[::-1], base[:, ::-1]):
        for function in (orlop.from_dlpack, orlop.from_buffer):
            with pytest.raises((BufferError, ValueError)):
                function(backward)


def test_the_order_that_a_consumer_asks_for_is_checked() -> None:
    numpy = pytest.importorskip("numpy")
    transposed = orlop.from_dlpack(numpy.zeros((3, 4)).T)
    view = memoryview(transposed)  # type: ignore[arg-type]
    assert view.f_contiguous and not view.c_contiguous and view.strides == (8, 32)
    with pytest.raises(BufferError, match="order"):
        hashlib.sha256(transposed)  # type: ignore[arg-type]


def test_an_array_keeps_the_memory_and_not_the_tensor() -> None:
    numpy = pytest.importorskip("numpy")
    before = orlop.live_bytes()
    arrays = [numpy.asarray(orlop.zeros(1000)), numpy.from_dlpack(orlop.zeros(1000))]
    gc.collect()
    assert orlop.live_bytes() >= before + 8000
    assert all((array_ == 0).all() for array_ in arrays)
    arrays.clear()
    assert orlop.live_bytes() == before


def test_a_tensor_keeps_the_memory_of_others() -> None:
    numpy = pytest.importorskip("numpy")
    before = orlop.live_bytes()
    tensors = [orlop.from_dlpack(numpy.full(1000, 7.0)), orlop.from_buffer(array.array("d", [7.0] * 1000))]
    gc.collect()
    assert orlop.live_bytes() == before + 16000
    # Through two libraries and back.
    last = [numpy.from_dlpack(orlop.from_buffer(numpy.from_dlpack(tensor))) for tensor in tensors]
    tensors.clear()
    gc.collect()
    assert all((array_ == 7).all() for array_ in last)


def test_capsules_have_the_version_that_is_asked_for() -> None:
    tensor = orlop.zeros(4)
    for version, name in [
        (None, b"dltensor"),
        ((0, 8), b"dltensor"),
        ((1, 0), b"dltensor_versioned"),
        ((2, 0), b"dltensor_versioned"),
    ]:
        assert capsule_name(tensor.__dlpack__(max_version=version)) == name
    assert tensor.__dlpack_device__() == (1, 0)
    assert capsule_name(tensor.__dlpack__(dl_device=(1, 0), copy=False)) == b"dltensor"
    with pytest.raises(BufferError, match="dl_device"):
        tensor.__dlpack__(dl_device=(2, 0))
    stream: Any = 1
    with pytest.raises(BufferError, match="stream"):
        tensor.__dlpack__(stream=stream)


def test_a_capsule_is_consumed_once() -> None:
    class Once:
        def __init__(self, capsule: object) -> None:
            self.capsule = capsule

        def __dlpack__(self, **options: object) -> object:
            return self.capsule

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    tensor = orlop.zeros(4)
    for version, used in [(None, b"used_dltensor"), ((1, 0), b"used_dltensor_versioned")]:
        once = Once(tensor.__dlpack__(max_version=version))
        imported = orlop.from_dlpack(once)
        assert capsule_name(once.capsule) == used
        with pytest.raises(BufferError, match="no unused capsule"):
            orlop.from_dlpack(once)
        assert bytes(imported) == bytes(16)
    with pytest.raises(BufferError, match="no unused capsule"):
        orlop.from_dlpack(Once(None))


def test_older_producers_are_imported() -> None:
    numpy = pytest.importorskip("numpy")
    source = numpy.arange(6.0)
    tensor = orlop.from_dlpack(OlderProducer(source))
    source[0] = 9
    assert numpy.asarray(tensor)[0] == 9
    array_ = numpy.from_dlpack(OlderProducer(orlop.zeros(3)))
    assert (array_ == 0).all()


def test_a_copy_is_another_memory() -> None:
    numpy = pytest.importorskip("numpy")
    tensor = orlop.zeros(8)
    copy = numpy.from_dlpack(tensor, copy=True)
    older = numpy.from_dlpack(OlderProducer(CopyProducer(tensor)))
    copy[:] = 5
    assert (older == 0).all() and bytes(tensor) == bytes(32)
    tensor.resize(100)


class CopyProducer:
    """A tensor that exports copies."""

    def __init__(self, inner: orlop.Tensor) -> None:
        self.inner = inner

    def __dlpack__(self) -> Any:
        return self.inner.__dlpack__(copy=True)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.inner.__dlpack_device__()


def test_memory_that_is_read_only_stays_so() -> None:
    numpy = pytest.importorskip("numpy")
    frozen = numpy.arange(6.0)
    frozen.flags.writeable = False
    for tensor in (orlop.from_buffer(b"abcdef"), orlop.from_dlpack(frozen)):
        assert tensor.readonly
        assert memoryview(tensor).readonly  # type: ignore[arg-type]
        assert not numpy.asarray(tensor).flags.writeable
        assert not numpy.from_dlpack(tensor).flags.writeable
        with pytest.raises(BufferError, match="read-only"):
            tensor.__dlpack__()
        with pytest.raises(BufferError, match="read-only"):
            tensor.resize(100)
        with pytest.raises((BufferError, TypeError), match="not writable"):
            ctypes.c_char.from_buffer(tensor)  # type: ignore[arg-type]
    assert not orlop.from_buffer(bytearray(b"abcdef")).readonly


def test_an_exported_tensor_cannot_be_resized() -> None:
    numpy = pytest.importorskip("numpy")
    tensor = orlop.zeros(4)
    for export in (
        lambda: memoryview(tensor),  # type: ignore[arg-type]
        lambda: numpy.asarray(tensor),
        lambda: numpy.from_dlpack(tensor),
        lambda: tensor.__dlpack__(),
        lambda: tensor.__dlpack__(max_version=(1, 0)),
        lambda: orlop.from_dlpack(tensor),
    ):
        exported = export()
        with pytest.raises(BufferError, match="the memory is exported"):
            tensor.resize(1 << 20)
        assert tensor.shape == (4,)
        del exported
    tensor.resize((2, 1 << 10))
    assert tensor.shape == (2, 1 << 10) and bytes(tensor)[:16] == bytes(16)
    # The exporter's rule holds on the other side, too.
    buffer = bytearray(8)
    imported = orlop.from_buffer(buffer)
    with pytest.raises(BufferError):
        buffer.append(0)
    del imported
    buffer.append(0)


def test_buffers_of_python_are_imported() -> None:
    anonymous = mmap.mmap(-1, 4096)
    tensor = orlop.from_buffer(anonymous)
    memoryview(tensor)[0] = 7  # type: ignore[arg-type]
    assert (tensor.shape, tensor.dtype, anonymous[0]) == ((4096,), "uint8", 7)
    for code, dtype in [("i", "int32"), ("q", "int64"), ("H", "uint16"), ("f", "float32"), ("d", "float64")]:
        assert orlop.from_buffer(array.array(code, [1, 2])).dtype == dtype
    assert orlop.from_buffer(b"").shape == (0,)
    assert orlop.from_buffer((ctypes.c_int16 * 3 * 2)()).shape == (2, 3)
    text = orlop.from_buffer(ctypes.create_string_buffer(b"text"))
    assert (text.shape, text.dtype) == ((5,), "uint8")
    with pytest.raises(BufferError, match="no dtype corresponds to the format"):
        orlop.from_buffer(array.array("w" if sys.version_info >= (3, 13) else "u", "text"))
    with pytest.raises(TypeError):
        orlop.from_buffer(object())


def test_buffers_without_dimensions_are_one_element() -> None:
    numpy = pytest.importorskip("numpy")
    source = numpy.array(3.0)
    for tensor in [orlop.from_buffer(source), orlop.from_buffer(orlop.from_buffer(source))]:
        assert (tensor.shape, tensor.dtype, tensor.nbytes) == ((), "float64", 8)
        assert numpy.asarray(tensor) == 3.0
    source[...] = 4.0
    assert numpy.asarray(tensor) == 4.0
    number = orlop.from_buffer(ctypes.c_int32(5))
    assert (number.shape, number.dtype, bytes(number)) == ((), "int32", bytes([5, 0, 0, 0]))


def test_types_without_a_format_are_for_dlpack_only() -> None:
    tensor = orlop.zeros(4, "bfloat16")
    with pytest.raises(BufferError, match="no format for bfloat16"):
        memoryview(tensor)  # type: ignore[arg-type]
    assert orlop.from_dlpack(tensor).dtype == "bfloat16"


def test_memory_of_a_device_is_refused() -> None:
    class OnDevice:
        def __dlpack__(self, **options: object) -> object:
            raise AssertionError("it is not asked")

        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

    with pytest.raises(BufferError, match="device type 2"):
        orlop.from_dlpack(OnDevice())


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ]


def test_a_capsule_of_a_device_is_refused_whatever_was_announced() -> None:
    deleted: list[Any] = []
    deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleted.append)
    data, shape = ctypes.create_string_buffer(4096), (ctypes.c_int64 * 1)(4)
    address = -(-ctypes.addressof(data) // 256) * 256
    managed = DLTensor(address, 2, 0, 1, 2, 32, 1, shape, None, 0, None, deleter)
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

    class Announced:
        def __dlpack__(self, **options: object) -> Any:
            return make(ctypes.addressof(managed), b"dltensor", None)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    with pytest.raises(BufferError, match="device type 2"):
        orlop.from_dlpack(Announced())
    assert deleted == [ctypes.addressof(managed)]


def test_builds_without_a_lock_take_it_for_the_module() -> None:
    assert getattr(sys, "_is_gil_enabled", lambda: True)()


# Consumers that end after the module: at exit, and in the interpreter's last collection.
AT_EXIT = """
import atexit, gc, sys
import numpy
import orlop

atexit.register(lambda: print(later.sum(), view[0], flush=True))
later = numpy.from_dlpack(orlop.zeros(1000) if {own} else orlop.from_dlpack(numpy.zeros(1000, "float32")))
later += 1
view = memoryview(orlop.from_buffer(bytearray(b"x" * 10)))
capsule = orlop.zeros(3).__dlpack__(max_version=(1, 0))
class Cycle: pass
cycle = Cycle()
cycle.itself, cycle.array, cycle.view = cycle, numpy.asarray(orlop.zeros(5)), view
for name in [name for name in sys.modules if name.startswith("orlop")]:
    del sys.modules[name]
del orlop, Cycle
gc.collect()
"""


@pytest.mark.parametrize("own", [True, False])
def test_consumers_outlive_the_module(own: bool) -> None:
    pytest.importorskip("numpy")
    command = [sys.executable, "-X", "dev", "-c", AT_EXIT.format(own=own)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1000.0 120\n", "")


def test_pytorch_sees_the_elements_in_place(tmp_path: Path) -> None:
    facts = dry_run(tmp_path, PYTORCH)
    assert facts["bfloat16"] == ["torch.bfloat16", [2, 3], [[9.0, 2.0, 2.0], [2.0, 2.0, 2.0]]]
    assert facts["same"] and facts["kept"] and facts["released"]
    assert facts["alive"] == 19
    assert facts["strided"] == [[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]]
    assert (facts["frombuffer"], facts["copy"]) == ([1] * 4, [0] * 3)
    assert "requires_grad" in facts["graph"] or "grad" in facts["graph"]
    assert "device type 2" in facts["cuda"]
