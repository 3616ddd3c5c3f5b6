"""A callback for PyTorch Lightning.

::

    from orlop.lightning import MemoryCallback

    trainer = lightning.Trainer(callbacks=[MemoryCallback()])
"""

from __future__ import annotations

import importlib
from typing import Any

from orlop._record import record


def _callback_class() -> Any:
    """Returns the base of callbacks of the installed package: `lightning`, or else `pytorch_lightning`."""
    try:
        return importlib.import_module("lightning.pytorch.callbacks").Callback
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("lightning"):
            raise
        return importlib.import_module("pytorch_lightning.callbacks").Callback


class MemoryCallback(_callback_class()):  # type: ignore[misc]
    """Records a run of the trainer as :class:`orlop.record` does, whose arguments it takes."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()
        self.recording = record(*arguments, **options)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Starts the recording."""
        self.recording.start()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Explains an out-of-memory error, which the trainer raises again."""
        self.recording.explain(exception)
        # The trainer does not call teardown() after an exception.
        self.recording.stop()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Stops the recording."""
        self.recording.stop()
