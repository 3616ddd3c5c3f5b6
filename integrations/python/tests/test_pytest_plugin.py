"""The pytest plugin, in runs of pytest."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import COMPLETE, EXPANDABLE
from test_dry_run import needs_torch

TEST = """
import pytest

@pytest.mark.orlop_gate
@pytest.mark.parametrize("size", ["1/2"])
def test_training(orlop_recording, size):
    orlop_recording({recording!r})

def test_other():
    pass
"""


def run(pytester: pytest.Pytester, recording: Path, *options: str) -> pytest.RunResult:
    pytester.makepyfile(test_model=TEST.format(recording=str(recording)))
    # A process of its own: a stand-in of this one is not there.
    return pytester.runpytest_subprocess("-rs", *options)


def test_a_gate_fails_what_exceeds_its_baseline(pytester: pytest.Pytester) -> None:
    run(pytester, EXPANDABLE, "--orlop-write-baseline", "baseline").assert_outcomes(passed=2)
    assert (pytester.path / "baseline/test_model.py/test_training[1%2F2].json").is_file()
    run(pytester, EXPANDABLE, "--orlop-gate", "baseline").assert_outcomes(passed=2)
    failed = run(pytester, COMPLETE, "--orlop-gate", "baseline")
    failed.assert_outcomes(passed=1, failed=1)
    failed.stdout.fnmatch_lines(["*peak_reserved: *over the baseline of*FAILED: *fragmentation*"])
    run(pytester, COMPLETE, "--orlop-gate", "baseline", "--orlop-tolerance", "50%").assert_outcomes(passed=2)


def test_a_missing_baseline_fails(pytester: pytest.Pytester) -> None:
    failed = run(pytester, COMPLETE, "--orlop-gate", "nowhere")
    failed.assert_outcomes(passed=1, failed=1)
    failed.stdout.fnmatch_lines(["*no baseline nowhere*--orlop-write-baseline writes it*"])


def test_a_gate_without_a_recording_is_skipped(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import pytest\n@pytest.mark.orlop_gate\ndef test_training(): pass\n"
        "@pytest.mark.orlop_gate\ndef test_failing(): assert False"
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1, failed=1)
    gated = pytester.runpytest_subprocess("-rs", "--orlop-gate", "baseline")
    gated.assert_outcomes(skipped=1, failed=1)
    gated.stdout.fnmatch_lines(["*checked nothing: no CUDA device*"])


DRY_TEST = """
import pytest

@pytest.mark.orlop_gate
def test_training(orlop_dry_run):
    assert orlop_dry_run("train.py", device="h100").fits
"""

TRAIN = "import torch\ntorch.empty({mebibytes} << 20, dtype=torch.uint8, device='cuda')\n"


@needs_torch
def test_a_gate_of_dry_runs_needs_no_gpu(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_model=DRY_TEST, train=TRAIN.format(mebibytes=64))
    pytester.runpytest_subprocess("--orlop-write-baseline", "baseline").assert_outcomes(passed=1)
    pytester.runpytest_subprocess("--orlop-gate", "baseline").assert_outcomes(passed=1)
    pytester.makepyfile(train=TRAIN.format(mebibytes=96))
    failed = pytester.runpytest_subprocess("--orlop-gate", "baseline")
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(["*peak_reserved: 100,663,296, +33,554,432 over the baseline*train.py:2*"])


TWO_RUNS = """
import types

import orlop

def run(program, *, output):
    output.mkdir()
    snapshot = output / "snapshot.pickle"
    snapshot.write_text(program)
    return types.SimpleNamespace(snapshot=snapshot)

def test_batches(orlop_dry_run, monkeypatch):
    monkeypatch.setattr(orlop, "dry_run", run)
    runs = [orlop_dry_run("one"), orlop_dry_run("two")]
    assert [run.snapshot.read_text() for run in runs] == ["one", "two"]
"""


def test_each_dry_run_keeps_its_snapshot(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_model=TWO_RUNS)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_contradictory_options_are_refused(pytester: pytest.Pytester) -> None:
    done = pytester.runpytest_subprocess("--orlop-gate", "a", "--orlop-write-baseline", "a")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*exclude each other*"])
