"""The questions to a recording."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from orlop import _native
from orlop._answer import from_json
from orlop._inputs import Progress, RecordingSource, contents_of
from orlop._report import Report
from orlop._results import Description, Diff, Fit, Gate, OomMessages, WhatIf


def what_if(
    recording: RecordingSource,
    *,
    memory: int | None = None,
    torch: str | None = None,
    device: int | None = None,
    quick: bool = False,
    progress: Progress | None = None,
) -> WhatIf:
    """Replays a recording with other settings of the allocator, and ranks them.

    Args:
        recording: The recording.
        memory: The memory of the device in bytes; default: as recorded, or else unlimited.
        torch: Only settings that this release of PyTorch has, such as ``"2.6"``.
        device: Only the device with this number.
        quick: Search neither the smallest memory of each setting nor a perfect plan.
        progress: Called while it computes.

    Raises:
        RecordingError: The recording cannot be read, or has nothing on the device.
        OSError: The file cannot be opened.
        ValueError: The release is not one.
    """
    name, contents = contents_of(recording)
    answer = _native.what_if(
        name, contents, memory=memory, torch=torch, device=device, quick=quick, progress=progress
    )
    return from_json(WhatIf, {"devices": json.loads(answer)})


def describe(
    recording: RecordingSource,
    *,
    depth: int = 1,
    top: int = 10,
    progress: Progress | None = None,
) -> Description:
    """Describes the memory of a run: call sites at the peak, fragmentation, failed requests.

    Args:
        recording: The recording.
        depth: The number of program lines in the name of a call site.
        top: The maximum number of call sites in a list.
        progress: Called while it computes.

    Raises:
        RecordingError: The recording cannot be read, or is empty.
        OSError: The file cannot be opened.
    """
    name, contents = contents_of(recording)
    answer = _native.describe(name, contents, depth=depth, top=top, progress=progress)
    return from_json(Description, json.loads(answer))


def why_oom(error: str | BaseException) -> OomMessages:
    """Explains the messages about memory in a log or in an exception.

    Known are those of PyTorch, JAX, TensorFlow, CuPy, Paddle, RMM, vLLM, llama.cpp, ONNX Runtime and CUDA.

    Raises:
        RecordingError: There is no such message.
    """
    return from_json(OomMessages, {"messages": json.loads(_native.why_oom(str(error)))})


def diff(
    before: RecordingSource,
    after: RecordingSource,
    *,
    depth: int = 1,
    lines: bool = False,
    progress: Progress | None = None,
) -> Diff:
    """Compares two runs by call site. Each is a recording or a baseline.

    Args:
        before: The first run.
        after: The second run.
        depth: The number of program lines in the name of a call site.
        lines: Count two lines of one function as two call sites.
        progress: Called while it computes.

    Raises:
        RecordingError: A recording cannot be read.
        OSError: A file cannot be opened.
    """
    answer = _native.diff(
        contents_of(before), contents_of(after), depth=depth, lines=lines, progress=progress
    )
    return from_json(Diff, json.loads(answer))


def gate(
    run: RecordingSource,
    baseline: RecordingSource,
    *,
    tolerance: str = "1%",
    progress: Progress | None = None,
) -> Gate:
    """Compares the memory of a run with a baseline, which :func:`baseline` wrote, or another run.

    The peaks of live and of reserved bytes and the number of allocations are compared. They are counted,
    not timed, so the same program has the same figures.

    Raises:
        RecordingError: A recording cannot be read, is cut off, or has no allocations.
        OSError: A file cannot be opened.
        ValueError: The tolerance is not a percentage.
    """
    answer = _native.gate(contents_of(run), contents_of(baseline), tolerance=tolerance, progress=progress)
    return from_json(Gate, json.loads(answer))


def fit(
    recordings: Mapping[int, RecordingSource],
    at: int,
    *,
    memory: int | None = None,
    device: int | None = None,
    progress: Progress | None = None,
) -> Fit:
    """Predicts what a run of another size needs, from recordings of the same program at two or more.

    Args:
        recordings: The recordings by their size: a batch, or the length of sequences.
        at: The size to predict.
        memory: Also find the largest size that fits this memory, in bytes.
        device: The number of the device; default: the one with the most events.
        progress: Called while it computes.

    Raises:
        RecordingError: A recording cannot be read or is cut off, or they are not of the same sequence of
            allocations and frees.
        OSError: A file cannot be opened.
    """
    named = [(size, contents_of(recording)) for size, recording in recordings.items()]
    answer = _native.fit(named, at=at, memory=memory, device=device, progress=progress)
    return from_json(Fit, json.loads(answer))


def baseline(
    run: RecordingSource,
    path: str | os.PathLike[str],
    *,
    depth: int = 1,
    progress: Progress | None = None,
) -> None:
    """Writes the baseline of a run to a file: JSON, small enough for a repository.

    Raises:
        RecordingError: The recording cannot be read, is cut off, or has no allocations.
        OSError: A file cannot be opened or written.
    """
    name, contents = contents_of(run)
    text = _native.profile(name, contents, depth=depth, progress=progress)
    Path(path).write_text(text, encoding="utf-8")


def report(
    recording: RecordingSource,
    path: str | os.PathLike[str] | None = None,
    *,
    title: str | None = None,
    device: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Makes a page that shows every block over time. Notebooks display it.

    Args:
        recording: The recording.
        path: The file to write, if any.
        title: The title of the page; default: the name of the recording.
        device: Only the device with this number.
        progress: Called while it computes.

    Raises:
        RecordingError: The recording cannot be read, or has nothing on the device.
        OSError: A file cannot be opened or written.
    """
    name, contents = contents_of(recording)
    page = _native.report(
        name, contents, title=title or Path(name or "recording").name, device=device, progress=progress
    )
    made = Report(page.decode("utf-8"))
    if path is not None:
        made.save(path)
    return made
