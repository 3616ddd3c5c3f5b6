"""Recordings of the repository, and a stand-in for PyTorch with a CUDA device."""

from __future__ import annotations

import gzip
import pickle
import sys
import types
from pathlib import Path
from typing import Any

import pytest

TESTDATA = Path(__file__).parents[3] / "testdata"

# An out-of-memory error for which a setting helps, and the same training without a limit.
FAILED = TESTDATA / "torch-runs/resnet-train.limit1.pickle.gz"
COMPLETE = TESTDATA / "torch-runs/resnet-train.default.pickle.gz"
EXPANDABLE = TESTDATA / "torch-runs/resnet-train.expandable.pickle.gz"


def snapshot_in(path: Path) -> Any:
    """Returns the object that `torch.cuda.memory._snapshot()` returned."""
    with gzip.open(path) as file:
        return pickle.load(file)


class StandInCuda:
    """What `record` calls of PyTorch, with the recording of a real run."""

    class OutOfMemoryError(RuntimeError):
        """As `torch.cuda.OutOfMemoryError`."""

    def __init__(self) -> None:
        self.is_available = lambda: True
        self.is_initialized = lambda: bool(self.calls)
        self.memory = self
        self.history: dict[str, Any] | None = None
        self.calls: list[dict[str, Any]] = []
        self.observers: list[Any] = []

    def _record_memory_history(self, **options: Any) -> None:
        self.calls.append(options)
        self.history = options if options["enabled"] else None

    def _snapshot(self) -> Any:
        assert self.history is not None, "the history is dropped when the recording stops"
        return snapshot_in(FAILED)

    def _cuda_isHistoryEnabled(self) -> bool:
        assert self.calls, "PyTorch crashes before CUDA is initialized"
        return self.history is not None

    def _cuda_attach_out_of_memory_observer(self, observer: Any) -> None:
        self.observers.append(observer)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> StandInCuda:
    """Puts the stand-in in place of the module torch."""
    stand_in = StandInCuda()
    module = types.ModuleType("torch")
    module.cuda = module._C = stand_in  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", module)
    return stand_in
