"""The answers, as frozen dataclasses. Sizes are in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orlop._answer import Answer, JudgedAnswer, Verdict, at, frame, row

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Advice:
    """Settings of PyTorch that are better than the recorded ones."""

    conf: str
    """The value for ``PYTORCH_CUDA_ALLOC_CONF``."""
    peak_reserved: int
    saves: int | None
    """The reduction of the peak of reserved bytes; ``None`` if the recorded settings do not fit."""
    retries: int
    """How often all cached memory is released to serve a request."""
    since: str
    """The first release of PyTorch that has these settings."""


@dataclass(frozen=True)
class SettingFailure:
    """The request at which a replay ran out of memory."""

    event: int | None
    """The index of the event in the recording."""
    bytes: int
    live: int
    reserved: int


@dataclass(frozen=True)
class SmallestMemory:
    """The result of the search for the smallest memory of a setting."""

    runs: int
    """A memory in which the replay completes."""
    fails: int
    """The largest memory that was tried in which it does not."""
    without_retry: int | None
    """A memory in which it completes without a retry."""


@dataclass(frozen=True)
class Setting:
    """The replay of an allocator with its settings."""

    rules: str
    conf: str | None
    """The value for ``PYTORCH_CUDA_ALLOC_CONF``; ``None`` for other allocators."""
    peak_live: int
    peak_reserved: int
    retries: int
    saves: int | None
    """The reduction of the peak of reserved bytes; ``None`` if either runs out of memory."""
    out_of_memory: SettingFailure | None
    smallest: SmallestMemory | None
    is_baseline: bool


@dataclass(frozen=True)
class DeviceSettings:
    """The settings that were tried on a device, best first."""

    device: int
    verdict: Verdict
    memory: int | None
    peak_live: int
    """The peak of live bytes: a lower bound for any allocator."""
    recorded_peak_reserved: int | None
    baseline: str
    advice: Advice | None
    reason: str
    """The reason for the advice, or for its absence."""
    settings: tuple[Setting, ...] = at("rows")


@dataclass(frozen=True, repr=False)
class WhatIf(JudgedAnswer):
    """The settings that were tried, by device: the most urgent first."""

    devices: tuple[DeviceSettings, ...]

    def verdicts(self) -> tuple[Verdict, ...]:
        """Returns the verdicts on the devices."""
        return tuple(device.verdict for device in self.devices)

    @property
    def advice(self) -> Advice | None:
        """The advice for the first device."""
        return self.devices[0].advice

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a table with a row for each setting of each device."""
        rows = []
        for device in self.devices:
            for setting in device.settings:
                cells = row(device.device, setting)
                cells["out_of_memory"] = setting.out_of_memory is not None
                cells["smallest"] = setting.smallest and setting.smallest.runs
                rows.append(cells)
        return frame(rows, Setting)


@dataclass(frozen=True)
class Site:
    """The live memory of a call site."""

    name: str
    bytes: int
    blocks: int
    share: float
    """The part of all live bytes, from 0 to 1."""


@dataclass(frozen=True)
class FailedRequest:
    """A request that failed for lack of memory."""

    event: int
    """The index of its event in the recording."""
    times: int
    """The number of equal requests."""
    requested: int
    site: str
    live: int = at("held.bytes")
    """Live bytes when it failed."""
    sites: tuple[Site, ...] = at("held.by_site.top")
    """The call sites with the most live bytes when it failed."""


@dataclass(frozen=True)
class DeviceDescription:
    """The memory of a run on a device."""

    device: int
    verdict: Verdict
    memory: int | None
    events: int
    allocations: int
    frees: int
    peak_reserved: int | None
    peak_live: int = at("peak.held.bytes")
    end_live: int = at("end.held.bytes")
    sites: tuple[Site, ...] = at("peak.held.by_site.top")
    """The call sites with the most live bytes at the peak."""
    failed: tuple[FailedRequest, ...] = at("out_of_memory")


@dataclass(frozen=True, repr=False)
class Description(JudgedAnswer):
    """The memory of a run by device: the most urgent first."""

    settings: str | None
    """The recorded ``PYTORCH_CUDA_ALLOC_CONF``."""
    warnings: tuple[str, ...]
    devices: tuple[DeviceDescription, ...]

    def verdicts(self) -> tuple[Verdict, ...]:
        """Returns the verdicts on the devices."""
        return tuple(device.verdict for device in self.devices)

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a table of the call sites at the peak of each device."""
        rows = [row(device.device, site) for device in self.devices for site in device.sites]
        return frame(rows, Site)


@dataclass(frozen=True)
class OomMessage:
    """The numbers of a message about memory, and what they mean."""

    verdict: Verdict
    framework: str
    device: str | None
    requested: int | None
    total: int | None
    free: int | None
    live: int | None
    unused: int | None
    """Memory that the allocator reserves and does not use."""
    this_process: int | None
    other_processes: int
    fitting_tokens: int | None
    """The tokens of the longest sequence that fits, as vLLM estimates it."""
    times: int
    """The number of equal messages."""


@dataclass(frozen=True, repr=False)
class OomMessages(JudgedAnswer):
    """The messages of a log, in its order."""

    messages: tuple[OomMessage, ...]

    def verdicts(self) -> tuple[Verdict, ...]:
        """Returns the verdicts on the messages."""
        return tuple(message.verdict for message in self.messages)

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a table of the numbers, without the verdicts."""
        rows = [row(message.device, message) for message in self.messages]
        return frame(rows, OomMessage, drop="verdict")


@dataclass(frozen=True)
class Change:
    """A figure of the first run and of the second."""

    before: int
    after: int

    @property
    def growth(self) -> int:
        """The difference; negative if the second is smaller."""
        return self.after - self.before

    def __str__(self) -> str:
        return f"{self.before:,} to {self.after:,} ({self.growth:+,})"


@dataclass(frozen=True)
class SiteDiff:
    """The differences at a call site."""

    name: str
    is_new: bool
    is_gone: bool
    peak: Change
    end: Change
    allocations: Change


@dataclass(frozen=True)
class DeviceDiff:
    """The differences on a device."""

    device: int
    peak_live: Change
    peak_reserved: Change | None
    end_live: Change
    allocations: Change
    sites: tuple[SiteDiff, ...]
    """By call site, most growth at the peak first."""

    def __str__(self) -> str:
        figures = [f"peak live {self.peak_live}", f"live at the end {self.end_live}"]
        if self.peak_reserved is not None:
            figures.insert(1, f"peak reserved {self.peak_reserved}")
        grown = [f"  {site.name}: {site.peak}" for site in self.sites[:5] if site.peak.growth > 0]
        return "\n".join([f"device {self.device}: {'; '.join(figures)}; bytes", *grown])


@dataclass(frozen=True, repr=False)
class Diff(Answer):
    """The differences of the second run from the first."""

    verdict: Verdict
    devices: tuple[DeviceDiff, ...]

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a table of the growth at each call site."""
        rows = []
        for device in self.devices:
            for site in device.sites:
                cells = row(device.device, site)
                rows.append(cells | {name: cells[name].growth for name in ("peak", "end", "allocations")})
        return frame(rows, SiteDiff)

    def __str__(self) -> str:
        return "\n".join(map(str, (self.verdict, *self.devices)))


@dataclass(frozen=True)
class GateCheck:
    """A figure with its limit."""

    device: int
    before: int
    after: int
    limit: int
    passed: bool
    fragmentation: int
    """Growth of reserved bytes beyond that of live bytes, which has no call site."""
    sites: tuple[SiteDiff, ...]
    """If it failed: the call sites that grew, most growth first."""
    metric: str = at("measure")
    """``peak_live``, ``peak_reserved`` or ``allocations``."""

    def __str__(self) -> str:
        reasons = [
            f"{site.name} {growth:+,}"
            for site in self.sites[:3]
            if (growth := (site.allocations if self.metric == "allocations" else site.peak).growth)
        ]
        if self.fragmentation:
            reasons.insert(0, f"{self.fragmentation:+,} of fragmentation")
        verdict = "passed" if self.passed else "FAILED"
        text = (
            f"device {self.device}, {self.metric}: {self.after:,}, {self.after - self.before:+,} over "
            f"the baseline of {self.before:,}, limit {self.limit:,}: {verdict}"
        )
        return ": ".join([text, ", ".join(reasons)]) if reasons else text


@dataclass(frozen=True, repr=False)
class Gate(Answer):
    """The comparison of a run with its baseline."""

    verdict: Verdict
    passed: bool
    tolerance: str
    checks: tuple[GateCheck, ...]

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a table of the checks."""
        rows = [row(check.device, check) for check in self.checks]
        return frame(rows, GateCheck, drop="sites")

    def __str__(self) -> str:
        return "\n".join(map(str, (self.verdict, *self.checks)))


@dataclass(frozen=True)
class Estimate:
    """A number of bytes with its bounds."""

    bytes: int
    min: int
    max: int


@dataclass(frozen=True)
class SiteFit:
    """The live bytes of a call site at the predicted peak."""

    name: str
    bytes: int
    blocks: int


@dataclass(frozen=True)
class LargestSize:
    """The largest size that fits a memory."""

    memory: int
    size: int | None
    """``None`` if not even the smallest recorded one fits."""
    safe: int | None
    """The largest that fits even if every request is as large as the recordings allow."""


@dataclass(frozen=True, repr=False)
class Fit(Answer):
    """What a run of another size needs."""

    device: int
    recorded: tuple[int, ...]
    """The sizes of the recordings."""
    replay_error: float
    """The largest difference between a recording and its replay, from 0 to 1."""
    size: int
    live: Estimate
    """The peak of live bytes."""
    reserved: Estimate
    """The peak of reserved bytes."""
    largest: LargestSize | None
    sites: tuple[SiteFit, ...]
    """The call sites with the most live bytes at the peak."""

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a table of the call sites."""
        return frame([row(self.device, site) for site in self.sites], SiteFit)

    def __str__(self) -> str:
        live, reserved = (
            f"{each.bytes:,} ({each.min:,} to {each.max:,})" for each in (self.live, self.reserved)
        )
        text = f"device {self.device} at size {self.size}: {live} bytes live at the peak, {reserved} reserved"
        if self.largest is not None:
            text += f"; size {self.largest.size} is the largest that fits {self.largest.memory:,} bytes"
        return text
