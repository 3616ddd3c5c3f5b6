"""The callbacks, in trainers of the real packages, on the CPU."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import orlop
from conftest import FAILED, snapshot_in


class Recorder:
    """What is called of PyTorch, which has no CUDA device here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[Any] = []
        self.observers: list[Any] = []
        memory = torch.cuda.memory
        monkeypatch.setattr(memory, "_snapshot", lambda: snapshot_in(FAILED))
        monkeypatch.setattr(
            memory, "_record_memory_history", lambda **options: self.calls.append(options["enabled"])
        )
        monkeypatch.setattr("orlop._record._torch_with_cuda", lambda: torch)
        monkeypatch.setattr("orlop._record._is_history_enabled", lambda _: False)
        monkeypatch.setattr(
            torch._C, "_cuda_attach_out_of_memory_observer", self.observers.append, raising=False
        )


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(monkeypatch)


def lightning_run(callback: Any, error: BaseException | None) -> None:
    lightning = pytest.importorskip("lightning.pytorch", reason="Lightning is not installed")

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            if error is not None:
                raise error
            return self.layer(batch).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", callbacks=[callback], enable_model_summary=False, **options
    )
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(4, 2)))


def test_lightning(recorder: Recorder, tmp_path: Path) -> None:
    pytest.importorskip("lightning.pytorch", reason="Lightning is not installed")
    from orlop.lightning import MemoryCallback

    lightning_run(MemoryCallback(), None)
    assert recorder.calls == ["all", None]
    out = io.StringIO()
    callback = MemoryCallback(tmp_path / "oom.pickle", file=out)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        lightning_run(callback, torch.cuda.OutOfMemoryError("no memory"))
    assert recorder.calls == ["all", None] * 2
    assert callback.recording.path == tmp_path / "oom.pickle"
    assert "expandable_segments:True" in out.getvalue()


def test_transformers(recorder: Recorder, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="Transformers is not installed")
    pytest.importorskip("accelerate", reason="Accelerate is not installed")
    from orlop.transformers import MemoryCallback

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def forward(self, x: Any) -> Any:
            # As the allocator does before PyTorch raises the error.
            for observer in recorder.observers:
                observer(0, 1, 2, 3)
            return {"loss": self.layer(x).sum()}

    out = io.StringIO()
    callback = MemoryCallback(tmp_path / "oom.pickle", file=out)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=1, report_to=[], use_cpu=True, disable_tqdm=True
    )
    data = [{"x": torch.ones(2)}]
    trainer = transformers.Trainer(Model(), arguments, train_dataset=data, callbacks=[callback])
    trainer.train()
    assert recorder.calls == ["all", None]
    assert len(recorder.observers) == 1
    assert callback.recording.path == tmp_path / "oom.pickle"
    assert "expandable_segments:True" in out.getvalue()
    recorder.observers[0](0, 1, 2, 3)
    assert not (tmp_path / "oom-2.pickle").exists(), "the recording has ended"


def test_the_installed_pytorch_is_understood() -> None:
    if torch.cuda.is_available():
        pytest.skip("a CUDA device is there: see test_record_on_cuda")
    with pytest.warns(orlop.NotRecordedWarning, match="no CUDA device"):
        with orlop.record() as recording:
            torch.ones(4).sum()
    assert not recording.is_recording


def test_record_on_cuda(tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    out = io.StringIO()
    with pytest.raises(torch.cuda.OutOfMemoryError):
        with orlop.record(tmp_path / "oom.pickle", file=out) as recording:
            kept = [torch.empty(1 << 20, device="cuda")]
            while True:
                kept.append(torch.empty(1 << 30, device="cuda"))
    assert recording.path is not None and orlop.describe(recording.path).devices[0].failed
    assert "ran out of memory" in out.getvalue()
