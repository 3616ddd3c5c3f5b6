"""A callback for the Trainer of Hugging Face Transformers.

::

    from orlop.transformers import MemoryCallback

    trainer = Trainer(..., callbacks=[MemoryCallback()])
"""

from __future__ import annotations

import weakref
from typing import Any

import transformers

from orlop._record import record


class MemoryCallback(transformers.TrainerCallback):  # type: ignore[misc]
    """Records a run of the trainer as :class:`orlop.record` does, whose arguments it takes.

    The trainer tells its callbacks of no exceptions, so PyTorch's allocator reports each request that fails,
    also those that the program catches, as with ``auto_find_batch_size``.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.recording = record(*arguments, **options)
        self._is_observing = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Starts the recording."""
        self.recording.start()
        if self.recording.is_recording and not self._is_observing:
            self._observe()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stops the recording."""
        self.recording.stop()

    def _observe(self) -> None:
        import torch

        # PyTorch keeps an observer for the life of the process, and must not keep the callback.
        recording = weakref.ref(self.recording)

        def observer(device: int, requested: int, device_total: int, device_free: int) -> None:
            observed = recording()
            if observed is not None and observed.is_recording:
                observed.explain(torch.cuda.OutOfMemoryError("a request failed"))

        torch._C._cuda_attach_out_of_memory_observer(observer)  # type: ignore[attr-defined]
        self._is_observing = True
