"""Out of memory in PyTorch: where the bytes went, and which allocator settings would have fitted.

==============================  ====================================================================
question                        function
==============================  ====================================================================
why did this program fail?      :func:`record` around it
which setting helps?            :func:`what_if`
what uses the memory?           :func:`describe`
what does this message mean?    :func:`why_oom`
what grew between two runs?     :func:`diff`
is it more than allowed?        :func:`gate`, :func:`baseline`
how does it look over time?     :func:`report`
==============================  ====================================================================

A recording is given as a path, as bytes, as an open file, or as the object that
``torch.cuda.memory._snapshot()`` returns. No function needs a GPU, except :func:`record`.
"""

from orlop._answers import baseline, describe, diff, gate, report, what_if, why_oom
from orlop._inputs import Progress, RecordingSource
from orlop._native import InternalError, OrlopError, RecordingError
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
    FailedRequest,
    Gate,
    GateCheck,
    OomMessage,
    OomMessages,
    Setting,
    SettingFailure,
    Site,
    SiteDiff,
    SmallestMemory,
    Verdict,
    WhatIf,
)

__all__ = [
    "Advice",
    "Change",
    "Description",
    "DeviceDescription",
    "DeviceDiff",
    "DeviceSettings",
    "Diff",
    "FailedRequest",
    "Gate",
    "GateCheck",
    "InternalError",
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
    "SmallestMemory",
    "Verdict",
    "WhatIf",
    "baseline",
    "describe",
    "diff",
    "gate",
    "record",
    "report",
    "what_if",
    "why_oom",
]
