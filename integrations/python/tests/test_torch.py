"""The allocator for PyTorch: with a stand-in for PyTorch, and with PyTorch in a dry run."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from conftest import dry_run

PROGRAM = """
import json, sys, threading
import torch
import orlop.torch

orlop.torch.install(sys.argv[1], limit=8 << 30, patch=True)
model = torch.nn.Linear(512, 512, device="cuda")
side = torch.cuda.Stream()
for _ in range(5):
    with torch.cuda.stream(side):
        batch = torch.ones(1 << 12, 512, device="cuda")
    torch.cuda.current_stream().wait_stream(side)
    batch.record_stream(torch.cuda.current_stream())
    model(batch).sum().backward()
    del batch
try:
    torch.empty(16 << 30, dtype=torch.uint8, device="cuda")
    message = None
except torch.OutOfMemoryError as error:
    message = str(error)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    torch.ones(1 << 20, device="cuda")
del graph
worker = threading.Thread(target=lambda: torch.ones(1000, device="cuda"))
worker.start()
worker.join()
kept = torch.ones(1000, device="cuda")
print(json.dumps({
    "message": message,
    "stats": torch.cuda.memory_stats(),
    "own": orlop.torch.stats(),
    "allocated": torch.cuda.memory_allocated(),
    "trimmed": orlop.torch.trim(),
    "last_error": orlop.torch.last_error(),
}))
"""


BUDGETS = """
import json
import torch
import orlop.torch

orlop.torch.install(limit=8 << 30)
weights = torch.nn.Linear(1024, 1024, device="cuda")
cache = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda")]
facts = {"called": []}

def attempt(size):
    try:
        torch.empty(size, dtype=torch.uint8, device="cuda")
        return None
    except torch.OutOfMemoryError as error:
        return str(error)

with orlop.torch.budget("256MiB"):
    with orlop.torch.budget("64MiB"):
        facts["inner"] = attempt(128 << 20)
        # The backward pass allocates on a thread of its own.
        wide = torch.ones(1 << 12, 1024, device="cuda")
        try:
            weights(wide).square().sum().backward()
            facts["backward"] = None
        except torch.OutOfMemoryError as error:
            facts["backward"] = str(error)
        del wide
    facts["outer"] = attempt(128 << 20)
facts["after"] = attempt(1 << 30)

def drop_cache(device, size):
    facts["called"].append([device, size])
    cache.clear()
    return True

facts["full"] = attempt(15 << 29)
with orlop.torch.on_pressure(drop_cache):
    facts["relieved"] = attempt(15 << 29)
orlop.torch.on_pressure(drop_cache).__enter__()
print(json.dumps(facts))
"""


class StandInAllocator:
    """As PyTorch's allocator object: it keeps the hooks."""

    def __init__(self, *functions: str) -> None:
        self.functions = functions
        self.hooks: dict[str, int] = {}

    def allocator(self) -> StandInAllocator:
        return self

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("set_"):
            raise AttributeError(name)
        return lambda address: self.hooks.__setitem__(name, address)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    """PyTorch's parts that `install` and `pool` use."""
    module = types.ModuleType("torch")
    current: list[StandInAllocator] = []
    memory = types.SimpleNamespace(
        CUDAPluggableAllocator=StandInAllocator, change_current_allocator=current.append
    )
    fake: Any = module
    fake.current, fake.open_pools = current, []
    fake.cuda = types.SimpleNamespace(
        memory=memory,
        init=lambda: None,
        current_device=lambda: 0,
        MemPool=lambda allocator, no_split: types.SimpleNamespace(id=(0, len(fake.open_pools) + 1)),
    )
    fake._C = types.SimpleNamespace(
        _cuda_beginAllocateToPool=lambda device, pool: fake.open_pools.append(pool),
        _cuda_endAllocateToPool=lambda device, pool: fake.open_pools.remove(pool),
        _cuda_releasePool=lambda device, pool: None,
    )
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def test_it_imports_without_pytorch() -> None:
    code = "import sys; sys.modules['torch'] = None; import orlop.torch"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_library_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import orlop.torch

    monkeypatch.setenv("ORLOP_TORCH_LIBRARY", str(tmp_path / "none.so"))
    with pytest.raises(orlop.torch.AllocatorError, match="none.so, which ORLOP_TORCH_LIBRARY names"):
        orlop.torch.library_path()


def test_every_hook_is_a_function_of_the_library(stand_in: Any) -> None:
    import orlop.torch

    orlop.torch.install(patch=True)
    (allocator,) = stand_in.current
    assert allocator.functions[1:] == ("orlop_torch_malloc", "orlop_torch_free")
    assert set(allocator.hooks) == set(orlop.torch._HOOKS)
    assert len(set(allocator.hooks.values())) == len(allocator.hooks)
    assert stand_in._C._cuda_resetPeakMemoryStats is orlop.torch.reset_peak_stats


def test_settings_that_are_wrong_are_refused(stand_in: Any) -> None:
    import orlop.torch

    with pytest.raises(orlop.torch.AllocatorError, match="no door"):
        orlop.torch.install("window")
    with pytest.raises(orlop.torch.AllocatorError, match="no policy is named"):
        orlop.torch.install(policy="best")
    for limit in (0, -1, 1 << 64):
        with pytest.raises(orlop.torch.AllocatorError, match="the limit is"):
            orlop.torch.install(limit=limit)
    assert stand_in.current == []


def test_a_pool_without_settings_keeps_those_that_were_given(
    stand_in: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import orlop.torch

    given: list[tuple[bytes, int]] = []

    def configure(policy: bytes, limit: int) -> int:
        given.append((policy, limit))
        return 0

    library = types.SimpleNamespace(orlop_torch_configure=configure)
    monkeypatch.setattr(orlop.torch, "_library", lambda: library)
    for _ in range(2):
        with orlop.torch.pool():
            pass
    assert given == []
    with orlop.torch.pool(limit=1 << 30), orlop.torch.pool(), orlop.torch.pool(policy="torch"):
        pass
    assert given == [(b"orlop", 1 << 30), (b"torch", 0)]
    assert stand_in.open_pools == []


def test_a_stream_that_cannot_be_retired_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import orlop.torch

    retired: list[tuple[int, int]] = []

    def retire_stream(device: int, stream: int) -> int:
        retired.append((device, stream))
        return 0 if device == 0 else -1

    library = types.SimpleNamespace(orlop_torch_retire_stream=retire_stream)
    monkeypatch.setattr(orlop.torch, "_library", lambda: library)
    monkeypatch.setattr(orlop.torch, "last_error", lambda: "it captures")
    stream = types.SimpleNamespace(device=types.SimpleNamespace(index=0), cuda_stream=4096)
    orlop.torch.retire(stream)
    stream.device.index = 1
    with pytest.raises(orlop.torch.AllocatorError, match="it captures"):
        orlop.torch.retire(stream)
    assert retired == [(0, 4096), (1, 4096)]


@pytest.mark.parametrize("door", ["all", "pool"])
def test_a_program_of_pytorch_runs(door: str, tmp_path: Path) -> None:
    facts = dry_run(tmp_path, PROGRAM, door)
    assert facts["message"].startswith("CUDA out of memory. Tried to allocate 16")
    assert facts["allocated"] == facts["stats"]["allocated_bytes.all.current"] > 0
    if door == "all":
        assert "by orlop" in facts["message"] and "limit 8.00 GiB" in facts["message"]
        own = {key: value for key, value in facts["own"].items() if not key.startswith("orlop.")}
        assert own == {key: value for key, value in facts["stats"].items() if key != "max_split_size"}
        assert facts["trimmed"] > 0


def test_budgets_and_callbacks_hold_in_a_program_of_pytorch(tmp_path: Path) -> None:
    facts = dry_run(tmp_path, BUDGETS)
    assert "of a budget of 64.0 MiB are in live blocks" in facts["inner"]
    assert "of a budget of 64.0 MiB are in live blocks" in facts["backward"]
    assert facts["outer"] is None and facts["after"] is None
    assert "limit 8.00 GiB" in facts["full"]
    assert facts["relieved"] is None and facts["called"] == [[0, 15 << 29]]


def test_budgets_have_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    import orlop.torch

    opened: list[tuple[int, int]] = []
    closed: list[tuple[int, int]] = []

    def open_budget(device: int, size: int) -> int:
        opened.append((device, size))
        return len(opened) if device < 2 else 0

    library = types.SimpleNamespace(
        orlop_torch_open_budget=open_budget,
        orlop_torch_close_budget=lambda device, budget: closed.append((device, budget)),
    )
    monkeypatch.setattr(orlop.torch, "_library", lambda: library)
    monkeypatch.setattr(orlop.torch, "last_error", lambda: "there is no device 7")
    with orlop.torch.budget("1.5GiB", device=0), orlop.torch.budget("64 MiB", device=1):
        with pytest.raises(ValueError, match="of the scope"), orlop.torch.budget(1000, device=0):
            raise ValueError("of the scope")
    assert opened == [(0, 3 << 29), (1, 64 << 20), (0, 1000)]
    assert closed == [(0, 3), (1, 2), (0, 1)]
    for wrong in ("4 parsecs", "", "-1", -1, 1 << 64):
        with (
            pytest.raises(orlop.torch.AllocatorError, match="size|budget"),
            orlop.torch.budget(wrong, device=0),
        ):
            pass
    with pytest.raises(orlop.torch.AllocatorError, match="no device 7"), orlop.torch.budget(1, device=7):
        pass


def test_the_newest_callback_is_asked_first(capfd: pytest.CaptureFixture[str]) -> None:
    import orlop.torch

    asked: list[str] = []

    def older(device: int, size: int) -> bool:
        asked.append(f"older {device} {size}")
        return True

    def newer(device: int, size: int) -> bool:
        asked.append("newer")
        return False

    def faulty(device: int, size: int) -> bool:
        raise ValueError("of a test")

    relieve: Any = orlop.torch._relieve
    assert relieve(1, 1000) == 0
    with orlop.torch.on_pressure(older):
        with orlop.torch.on_pressure(newer):
            assert relieve(1, 1 << 40) == 1
        assert asked == ["newer", f"older 1 {1 << 40}"]
        with orlop.torch.on_pressure(faulty):
            assert relieve(1, 1000) == 1
        assert asked[2:] == ["older 1 1000"]
    with orlop.torch.on_pressure(faulty):
        assert relieve(1, 1000) == 0
    assert capfd.readouterr().err.count("ValueError: of a test") == 2
    assert relieve(1, 1000) == 0
