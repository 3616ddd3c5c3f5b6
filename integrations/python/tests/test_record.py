"""The recorder: what it asks of PyTorch, and what it does at an error."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import orlop
import pytest
from conftest import StandInCuda


def test_an_error_is_explained_and_raised(cuda: StandInCuda, tmp_path: Path) -> None:
    out = io.StringIO()
    recording = orlop.record(tmp_path / "oom.pickle", file=out)
    with pytest.raises(cuda.OutOfMemoryError, match="the original"):
        with recording:
            assert recording.is_recording
            raise cuda.OutOfMemoryError("the original")
    assert recording.path == tmp_path / "oom.pickle" and recording.verdict is not None
    assert "expandable_segments:True" in recording.verdict.remedy
    assert out.getvalue().splitlines()[1:] == str(recording.verdict).splitlines()
    assert orlop.describe(recording.path).devices[0].failed
    assert [call["enabled"] for call in cuda.calls] == ["all", None]
    assert not recording.is_recording


def test_an_earlier_snapshot_stays(cuda: StandInCuda, tmp_path: Path) -> None:
    (tmp_path / "oom.pickle").write_text("earlier")
    with pytest.raises(cuda.OutOfMemoryError):
        with orlop.record(tmp_path / "oom.pickle", file=io.StringIO()) as recording:
            raise cuda.OutOfMemoryError
    assert recording.path == tmp_path / "oom-2.pickle"
    assert (tmp_path / "oom.pickle").read_text() == "earlier"


def test_ranks_have_files_of_their_own(
    cuda: StandInCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    with pytest.raises(cuda.OutOfMemoryError):
        with orlop.record(tmp_path / "oom.pickle", file=io.StringIO()) as recording:
            raise cuda.OutOfMemoryError
    assert recording.path == tmp_path / "oom-rank3.pickle"


def test_a_wrapped_error_is_found(cuda: StandInCuda, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        with orlop.record(tmp_path / "oom.pickle", file=io.StringIO()) as recording:
            try:
                raise cuda.OutOfMemoryError
            except RuntimeError as error:
                raise ValueError("training failed") from error
    assert recording.verdict is not None


def test_other_errors_are_not_explained(cuda: StandInCuda, tmp_path: Path) -> None:
    out = io.StringIO()
    for error in ValueError("no"), RuntimeError("no"), KeyboardInterrupt():
        with pytest.raises(type(error)):
            with orlop.record(tmp_path / "oom.pickle", file=out) as recording:
                raise error
        assert recording.verdict is None
    assert out.getvalue() == "" and not list(tmp_path.iterdir())


def test_a_failed_explanation_does_not_hide_the_error(cuda: StandInCuda, tmp_path: Path) -> None:
    out = io.StringIO()
    with pytest.raises(cuda.OutOfMemoryError, match="the original"):
        with orlop.record(tmp_path / "missing" / "oom.pickle", file=out):
            raise cuda.OutOfMemoryError("the original")
    assert "no verdict" in out.getvalue()


def test_a_history_of_the_program_goes_on(cuda: StandInCuda) -> None:
    with orlop.record():
        # PyTorch 2.11 loses exceptions when it takes the stack of a free.
        assert cuda.history is not None and cuda.history["context"] == "alloc"
    cuda._record_memory_history(enabled="state")
    with orlop.record() as recording:
        assert recording.is_recording and orlop.describe(recording.snapshot()).devices
    assert cuda.history == {"enabled": "state"}


def test_a_decorated_function_is_recorded_at_each_call(cuda: StandInCuda) -> None:
    @orlop.record(max_entries=7)
    def train() -> bool:
        return cuda.history is not None and cuda.history["max_entries"] == 7

    assert train() and train() and cuda.history is None
    assert len(cuda.calls) == 4


def test_without_a_device_nothing_is_recorded(cuda: StandInCuda) -> None:
    cuda.is_available = lambda: False
    with pytest.warns(orlop.NotRecordedWarning, match="no CUDA device") as warned:
        with orlop.record() as recording:
            assert not recording.is_recording
            with pytest.raises(orlop.OrlopError, match="nothing is being recorded"):
                recording.snapshot()
    assert warned[0].filename == __file__
    assert cuda.calls == []


def test_without_a_device_the_message_is_explained(cuda: StandInCuda) -> None:
    cuda.is_available = lambda: False
    out = io.StringIO()
    message = (
        "MPS backend out of memory (MPS allocated: 17.00 GB, other allocations: 1.00 GB, max allowed: "
        "18.13 GB). Tried to allocate 512.00 MB on private pool."
    )
    with pytest.warns(orlop.NotRecordedWarning), pytest.raises(RuntimeError):
        with orlop.record(file=out) as recording:
            raise RuntimeError(message)
    assert recording.verdict is not None and "512 MiB" in recording.verdict.finding
    assert "from the message alone" in out.getvalue()


def test_without_pytorch_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.warns(orlop.NotRecordedWarning, match="not installed"):
        with orlop.record():
            pass
