"""The answers: figures of a known run, as dataclasses, as JSON and as tables."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import orlop
import pytest
from conftest import COMPLETE, EXPANDABLE, FAILED, TESTDATA


def program(*arguments: object) -> str:
    command = [sys.executable, "-m", "orlop", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_what_if_is_the_answer_of_the_program() -> None:
    answer = orlop.what_if(FAILED, quick=True)
    [expected] = json.loads(program("what-if", "--quick", "--json", FAILED))
    [device] = answer.to_dict()["devices"]
    for rows in device["rows"], expected["rows"]:
        for row in rows:
            row["nanoseconds"] = 0
    assert device == {name: expected[name] for name in device}
    assert answer.advice is not None and answer.advice.conf == "expandable_segments:True"
    assert str(answer.verdict).splitlines() == list(expected["verdict"].values())


def test_what_if_takes_the_options_of_the_program() -> None:
    limited = orlop.what_if(COMPLETE, memory=1 << 30, quick=True).devices[0]
    assert limited.memory == 1 << 30
    assert all(setting.out_of_memory for setting in limited.settings)
    old = orlop.what_if(COMPLETE, torch="2.0", quick=True).devices[0]
    new = orlop.what_if(COMPLETE, quick=True).devices[0]
    assert len(old.settings) < len(new.settings)
    searched = orlop.what_if(EXPANDABLE).devices[0].settings[0].smallest
    assert searched is not None and searched.fails < searched.runs


def test_describe_is_the_answer_of_the_program() -> None:
    answer = orlop.describe(FAILED, top=3)
    [expected] = json.loads(program("info", "--top", 3, "--json", FAILED))
    [device] = answer.to_dict()["devices"]
    assert device == expected["devices"][0] | {"verdict": expected["verdicts"][0]}
    [described] = answer.devices
    assert len(described.sites) == 3
    assert described.failed[0].requested == expected["devices"][0]["out_of_memory"][0]["requested"]
    assert described.peak_reserved is not None and described.peak_reserved > described.peak_live


def test_why_oom_reads_texts_and_exceptions() -> None:
    text = (
        "CUDA out of memory. Tried to allocate 4.00 GiB (GPU 0; 8.00 GiB total capacity; "
        "7.00 GiB already allocated; 512.00 MiB free; 7.25 GiB reserved in total by PyTorch)"
    )
    for error in text, RuntimeError(text):
        answer = orlop.why_oom(error)
        assert answer.messages[0].requested == 4 << 30
        assert answer.verdict.remedy.startswith("No allocator could have served it")
    with pytest.raises(orlop.RecordingError, match="no message"):
        orlop.why_oom("all is well")


def test_diff_and_gate_name_what_grew(tmp_path: Path) -> None:
    diff = orlop.diff(EXPANDABLE, COMPLETE)
    expected = json.loads(program("diff", EXPANDABLE, COMPLETE, "--json"))["verdict"]
    assert diff.to_dict()["verdict"] == dataclasses.asdict(diff.verdict) == expected
    assert diff.verdict.remedy.endswith("is fragmentation: live memory is the same.")
    [device] = diff.devices
    assert device.peak_reserved is not None and device.peak_reserved.growth > 1 << 30
    assert device.peak_live.growth == 0
    baseline = tmp_path / "baseline.json"
    orlop.baseline(EXPANDABLE, baseline)
    passed = orlop.gate(EXPANDABLE, baseline)
    assert passed.passed and passed.verdict.finding.startswith("Passed: ")
    assert orlop.diff(EXPANDABLE, baseline).verdict.next.endswith("--write-baseline FILE")
    gate = orlop.gate(COMPLETE, baseline)
    [failed] = [check for check in gate.checks if not check.passed]
    assert (failed.metric, gate.passed, gate.tolerance) == ("peak_reserved", False, "1%")
    assert gate.verdict.finding.startswith("FAILED: ") and str(gate).startswith(str(gate.verdict))
    assert "of fragmentation" in str(gate)
    assert orlop.gate(COMPLETE, baseline, tolerance="50%").passed


def test_a_report_is_the_page_of_the_program(tmp_path: Path) -> None:
    made, expected = tmp_path / "made.html", tmp_path / "expected.html"
    page = orlop.report(FAILED, made, title="a < b")
    program("report", FAILED, "--title", "a < b", "-o", expected)
    assert page.html == made.read_text(encoding="utf-8") == expected.read_text(encoding="utf-8")
    assert page.html.startswith("<!doctype html>") and "<title>a &lt; b</title>" in page.html
    frame = page._repr_html_()
    assert frame.startswith("<iframe") and frame.count("<") == 2, "the page is escaped"


def test_fit_is_the_answer_of_the_program() -> None:
    files = {size: TESTDATA / f"fit/transformer-batch{size}.pickle.gz" for size in (8, 16, 24)}
    answer = orlop.fit(files, at=48, memory=8 << 30)
    options = ["--at", "batch=48", "--memory", "8GiB", "--json"]
    expected = json.loads(program("fit", *files.values(), *options))
    assert answer.to_dict() == {name: value for name, value in expected.items() if name != "name"}
    assert answer.recorded == (8, 16, 24) and answer.live.min <= answer.live.bytes <= answer.live.max
    assert answer.largest is not None and answer.largest.size is not None and answer.largest.size >= 24
    assert "at size 48" in repr(answer)
    with pytest.raises(ValueError, match="8"):
        orlop.fit({8: files[8]}, at=16)
    with pytest.raises(orlop.RecordingError):
        orlop.fit({8: files[8], 9: COMPLETE}, at=16)


def test_tables_have_a_row_for_each_entry() -> None:
    pytest.importorskip("pandas")
    what_if = orlop.what_if(FAILED, quick=True)
    table = what_if.to_pandas()
    assert list(table["rules"]) == [setting.rules for setting in what_if.devices[0].settings]
    assert table["out_of_memory"].any() and not table["out_of_memory"].all()
    sites = orlop.describe(FAILED).to_pandas()
    assert list(sites.columns) == ["device", "name", "bytes", "blocks", "share"]
    assert (sites["bytes"] > 0).all()
    other = FAILED.with_name("gpt2-train.limit1.pickle.gz")
    diff = orlop.diff(FAILED, other).to_pandas()
    assert diff["is_new"].any() and diff["is_gone"].any() and diff["peak"].iloc[0] > 0
    gate = orlop.gate(COMPLETE, EXPANDABLE).to_pandas()
    assert list(gate["metric"]) == ["peak_live", "peak_reserved", "allocations"]
    message = "RuntimeError: CUDA error: out of memory"
    assert orlop.why_oom(message).to_pandas().shape == (1, 11)


def test_answers_print_what_matters() -> None:
    answer = orlop.describe(FAILED)
    assert repr(answer) == f"<Description>\n{answer.verdict}"
    assert answer._repr_html_().startswith("<p>device 0 ran out of memory") and "&lt;" in answer._repr_html_()
    diff = orlop.diff(COMPLETE, FAILED.with_name("gpt2-train.limit1.pickle.gz"))
    figures = str(diff).removeprefix(f"{diff.verdict}\n")
    assert figures.startswith("device 0: peak live 4,867,706,512 to ") and "run.py" in figures


def test_answers_are_frozen() -> None:
    answer = orlop.describe(FAILED)
    with pytest.raises(dataclasses.FrozenInstanceError):
        answer.devices = ()  # type: ignore[misc]
    answer.to_dict().clear()
    assert answer.to_dict()
