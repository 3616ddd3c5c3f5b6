"""Out of memory in PyTorch: where the bytes went, and which allocator settings would have fitted.

==============================  ====================================================================
question                        function
==============================  ====================================================================
why did this program fail?      :func:`record` around it
which setting helps?            :func:`what_if`
what uses the memory?           :func:`describe`
what does this message mean?    :func:`why_oom`
what grew between two runs?     :func:`diff`
what does another size need?    :func:`fit`
is it more than allowed?        :func:`gate`, :func:`baseline`
how does it look over time?     :func:`report`
does it fit a GPU I have not?   :func:`dry_run`
==============================  ====================================================================

A recording is given as a path, as bytes, as an open file, or as the object that
``torch.cuda.memory._snapshot()`` returns. No function needs a GPU, except :func:`record`.

Beside the answers, there is host memory of orlop: a :class:`Tensor` of :func:`empty` or :func:`zeros` shares
its memory with NumPy, PyTorch and others, by DLPack and the buffer protocol, without a copy.
:func:`from_dlpack` and :func:`from_buffer` are the other direction.
"""

from orlop._answer import Verdict
from orlop._answers import baseline, describe, diff, fit, gate, report, what_if, why_oom
from orlop._inputs import Progress, RecordingSource
from orlop._native import (
    InternalError,
    OrlopError,
    RecordingError,
    Tensor,
    empty,
    from_buffer,
    from_dlpack,
    live_bytes,
    zeros,
)
from orlop._record import NotRecordedWarning, record
from orlop._report import Report
from orlop._results import (
    Advice,
    Change,
    Description,
    DeviceDescription,
    DeviceDiff,
    DeviceSettings,
    Diff,
    Estimate,
    FailedRequest,
    Fit,
    Gate,
    GateCheck,
    LargestSize,
    OomMessage,
    OomMessages,
    Setting,
    SettingFailure,
    Site,
    SiteDiff,
    SiteFit,
    SmallestMemory,
    WhatIf,
)
from orlop.dry_run import DryRun, dry_run

__all__ = [
    "Advice",
    "Change",
    "Description",
    "DeviceDescription",
    "DeviceDiff",
    "DeviceSettings",
    "Diff",
    "DryRun",
    "Estimate",
    "FailedRequest",
    "Fit",
    "Gate",
    "GateCheck",
    "InternalError",
    "LargestSize",
    "NotRecordedWarning",
    "OomMessage",
    "OomMessages",
    "OrlopError",
    "Progress",
    "RecordingError",
    "RecordingSource",
    "Report",
    "Setting",
    "SettingFailure",
    "Site",
    "SiteDiff",
    "SiteFit",
    "SmallestMemory",
    "Tensor",
    "Verdict",
    "WhatIf",
    "baseline",
    "describe",
    "diff",
    "dry_run",
    "empty",
    "fit",
    "from_buffer",
    "from_dlpack",
    "gate",
    "live_bytes",
    "record",
    "report",
    "what_if",
    "why_oom",
    "zeros",
]
