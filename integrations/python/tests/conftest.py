"""Recordings of the repository, PyTorch in a dry run, and a stand-in for PyTorch with a CUDA device."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
TESTDATA = ROOT / "testdata"
TARGETS = [ROOT / "target" / profile for profile in ("release", "debug")]

# An out-of-memory error for which a setting helps, and the same training without a limit.
FAILED = TESTDATA / "torch-runs/resnet-train.limit1.pickle.gz"
COMPLETE = TESTDATA / "torch-runs/resnet-train.default.pickle.gz"
EXPANDABLE = TESTDATA / "torch-runs/resnet-train.expandable.pickle.gz"


def snapshot_in(path: Path) -> Any:
    """Returns the object that `torch.cuda.memory._snapshot()` returned."""
    with gzip.open(path) as file:
        return pickle.load(file)


def built(name: str) -> Path:
    """Returns a file that cargo built."""
    found = [target / name for target in TARGETS if (target / name).is_file()]
    if not found:
        pytest.skip(f"{name} is not built: cargo build -p orlop-cli -p orlop-dryrun-cuda")
    return found[0]


def dry_run(folder: Path, program: str, *arguments: str) -> Any:
    """Runs a program that prints an object of JSON, with PyTorch on the stand-ins of a dry run and this
    package, without the dry run's recording. Checks that the interpreter ended without an error.
    """
    python = os.environ.get("ORLOP_TEST_TORCH_PYTHON")
    if not python:
        pytest.skip("ORLOP_TEST_TORCH_PYTHON names no Python with PyTorch for CUDA 13")
    import orlop

    path = folder / "program.py"
    path.write_text(program)
    # The extension is one for all versions of Python.
    shutil.copytree(Path(orlop.__file__).parent, folder / "orlop")
    command = ["sh", "-c", f'PYTHONPATH={folder} exec "$@"', "sh", python, str(path), *arguments]
    options = ["--device", "h100", "--python", python, "--quick", "--output", str(folder / "out")]
    done = subprocess.run(
        [built("orlop"), "dry-run", *options, "--", *command],
        check=False,
        capture_output=True,
        text=True,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, done.stderr
    assert "Traceback" not in done.stderr and "terminate" not in done.stderr, done.stderr
    return json.loads(lines[0])


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
