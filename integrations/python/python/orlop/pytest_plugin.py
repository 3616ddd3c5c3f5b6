"""The pytest plugin: memory gates for tests.

A test with the marker ``orlop_gate`` is recorded. ``pytest --orlop-write-baseline FOLDER`` writes a baseline
of each, ``pytest --orlop-gate FOLDER`` fails those that exceed theirs. A test can also give a recording
itself, with the fixture ``orlop_recording``, and needs no GPU with ``orlop_dry_run``.
"""

from __future__ import annotations

import itertools
import urllib.parse
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from orlop import DryRun, RecordingSource

# orlop itself is imported by the tests that need it: pytest loads this file in every run.

GIVEN = pytest.StashKey[Any]()

# Characters of test names that file names keep.
KEPT = "[]-_.,=+ "


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("orlop", "memory gates (orlop)")
    group.addoption(
        "--orlop-gate",
        metavar="FOLDER",
        help="fail tests with the marker orlop_gate that need more memory than their baseline in FOLDER",
    )
    group.addoption(
        "--orlop-write-baseline",
        metavar="FOLDER",
        help="write the baselines of tests with the marker orlop_gate to FOLDER",
    )
    group.addoption(
        "--orlop-tolerance",
        metavar="PERCENT",
        default="1%",
        help="the allowed excess over the baseline; default: %(default)s",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker, and refuses contradictory options."""
    config.addinivalue_line(
        "markers",
        "orlop_gate: compare the memory of this test with its baseline (--orlop-gate)",
    )
    if config.getoption("--orlop-gate") and config.getoption("--orlop-write-baseline"):
        raise pytest.UsageError("--orlop-gate and --orlop-write-baseline exclude each other")


@pytest.fixture
def orlop_recording(request: pytest.FixtureRequest) -> Callable[[RecordingSource], None]:
    """Returns a function that takes the recording of this test, in place of one by PyTorch."""

    def give(recording: RecordingSource) -> None:
        request.node.stash[GIVEN] = recording

    return give


@pytest.fixture
def orlop_dry_run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., DryRun]:
    """Returns the function :func:`orlop.dry_run`, whose last snapshot is the recording of this test."""
    numbers = itertools.count(1)

    def run(program: Any, /, *arguments: Any, **options: Any) -> DryRun:
        import orlop

        # Each run has a folder of its own, so that the snapshots of all are there until the test ends.
        options = {"output": tmp_path / f"orlop-dry-run-{next(numbers)}", **options}
        result = orlop.dry_run(program, *arguments, **options)
        request.node.stash[GIVEN] = result.snapshot
        return result

    return run


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Records a test, and compares it with its baseline."""
    gate = item.config.getoption("--orlop-gate")
    folder = gate or item.config.getoption("--orlop-write-baseline")
    if not folder or item.get_closest_marker("orlop_gate") is None:
        return (yield)
    import orlop

    with warnings.catch_warnings():
        # A test without a recording is skipped below.
        warnings.simplefilter("ignore", orlop.NotRecordedWarning)
        recording = orlop.record()
        recording.start()
    try:
        result = yield
        run = item.stash.get(GIVEN, None)
        if run is None and recording.is_recording:
            run = recording.snapshot()
    finally:
        recording.stop()
    if run is None:
        pytest.skip("the memory gate checked nothing: no CUDA device, and no recording was given")
    path = baseline_path(Path(folder), item.nodeid)
    if gate:
        check(run, path, item.config.getoption("--orlop-tolerance"))
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        orlop.baseline(run, path)
    return result


def check(run: RecordingSource, path: Path, tolerance: str) -> None:
    """Fails the test if the run exceeds its baseline."""
    import orlop

    if not path.exists():
        pytest.fail(f"no baseline {path}: --orlop-write-baseline writes it", pytrace=False)
    gate = orlop.gate(run, path, tolerance=tolerance)
    failed = [str(check) for check in gate.checks if not check.passed]
    if failed:
        pytest.fail("\n".join(failed), pytrace=False)


def baseline_path(folder: Path, test: str) -> Path:
    """Returns the file of a test's baseline: a folder for each file and class, as in its name."""
    file, *names = test.split("::")
    parts = [*file.split("/"), *names]
    quoted = [urllib.parse.quote(part, safe=KEPT) for part in parts]
    return folder.joinpath(*quoted[:-1], f"{quoted[-1]}.json")
