"""What a recording may be given as, and what is refused."""

from __future__ import annotations

import io
import json
import threading
import time
from pathlib import Path
from typing import Any

import orlop
import pytest
from conftest import COMPLETE, FAILED, snapshot_in


def test_every_form_gives_the_same_answer() -> None:
    data = FAILED.read_bytes()
    expected = orlop.describe(FAILED).devices[0].peak_live
    with open(FAILED, "rb") as file:
        forms: list[Any] = [str(FAILED), data, bytearray(data), memoryview(data), file]
        forms += [io.BytesIO(data), snapshot_in(FAILED)]
        for form in forms:
            assert orlop.describe(form).devices[0].peak_live == expected, type(form)


def test_lists_of_segments_and_json_texts_are_read() -> None:
    snapshot = snapshot_in(COMPLETE)
    segments = orlop.describe(snapshot["segments"]).devices[0]
    assert (segments.events, segments.end_live > 0) == (0, True)
    text = io.StringIO(json.dumps(snapshot))
    assert orlop.describe(text).devices[0].allocations > 0


def test_errors_have_classes_and_names(tmp_path: Path) -> None:
    missing = tmp_path / "missing.pickle"
    with pytest.raises(FileNotFoundError) as caught:
        orlop.what_if(missing)
    assert (caught.value.filename, str(missing) in str(caught.value)) == (str(missing), True)
    with pytest.raises(IsADirectoryError):
        orlop.what_if(tmp_path)
    missing.write_bytes(b"no recording")
    with pytest.raises(orlop.RecordingError, match="missing.pickle: "):
        orlop.what_if(missing)
    with pytest.raises(orlop.RecordingError, match="the recording: "):
        orlop.what_if(b"")
    with pytest.raises(orlop.RecordingError, match="on this device"):
        orlop.what_if(FAILED, device=7)
    with pytest.raises(ValueError, match="torch: "):
        orlop.what_if(FAILED, torch="newest")
    with pytest.raises(ValueError, match="tolerance: "):
        orlop.gate(FAILED, FAILED, tolerance="some")
    with pytest.raises(TypeError, match="not int"):
        orlop.what_if(3)  # type: ignore[arg-type]
    assert issubclass(orlop.RecordingError, orlop.OrlopError)


def test_progress_is_reported_and_may_stop_the_call() -> None:
    calls: list[tuple[str, int, int]] = []
    orlop.what_if(COMPLETE, progress=lambda *call: calls.append(call))
    assert calls[-1] == ("computing", 1, 1)

    def stop(stage: str, done: int, total: int, /) -> None:
        raise LookupError(stage)

    with pytest.raises(LookupError):
        orlop.what_if(COMPLETE, progress=stop)


def test_other_threads_run_while_an_answer_is_computed() -> None:
    ticks = []
    done = threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.monotonic()
    orlop.what_if(COMPLETE)
    end = time.monotonic()
    done.set()
    thread.join()
    during = [at for at in ticks if start < at < end]
    assert len(during) > 2, "the GIL is released"
