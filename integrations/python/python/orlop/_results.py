"""The answers, as frozen dataclasses. Sizes are in bytes."""

from __future__ import annotations

import copy
import dataclasses
import html
import types
import typing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pandas

T = TypeVar("T")


def at(path: str) -> Any:
    """Returns a field whose value is at this path of the JSON object, such as ``"peak.held"``."""
    return field(metadata={"path": path})


def from_json(kind: type[T], value: Any) -> T:
    """Makes a dataclass of a JSON object. Names that it does not have are in :meth:`Answer.to_dict`."""
    made: T = _convert(kind, value)
    if isinstance(made, Answer):
        object.__setattr__(made, "_json", value)
    return made


def _convert(kind: Any, value: Any) -> Any:
    arguments = typing.get_args(kind)
    if isinstance(kind, types.UnionType):
        return None if value is None else _convert(arguments[0], value)
    if typing.get_origin(kind) is tuple:
        return tuple(_convert(arguments[0], item) for item in value)
    if not dataclasses.is_dataclass(kind):
        return value
    hints = typing.get_type_hints(kind)
    values = {
        each.name: _convert(hints[each.name], _lookup(value, each.metadata.get("path", each.name)))
        for each in dataclasses.fields(kind)
    }
    return kind(**values)  # type: ignore[operator]


def _lookup(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = value[name]
    return value


class Answer:
    """The base of all answers."""

    _json: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Returns the whole answer as JSON has it: more than the fields of this class."""
        return copy.deepcopy(self._json)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>\n{self}"


def _frame(rows: list[dict[str, Any]], kind: type, drop: str = "") -> pandas.DataFrame:
    """Makes a table whose columns are the device and the fields of a class, without one."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("to_pandas() needs pandas: pip install pandas") from error
    fields = [each.name for each in dataclasses.fields(kind) if each.name not in ("device", drop)]
    return pandas.DataFrame(rows, columns=["device", *fields])


def _row(device: int | str | None, value: Any) -> dict[str, Any]:
    return {"device": device} | {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}


@dataclass(frozen=True)
class Verdict:
    """Three sentences."""

    finding: str
    """What happened, or what is lost."""
    remedy: str
    """The setting to use, with its gain and its price; or why there is none."""
    next: str
    """What to do next."""

    def __str__(self) -> str:
        return f"{self.finding}\n{self.remedy}\n{self.next}"

    def _repr_html_(self) -> str:
        return "".join(f"<p>{html.escape(line)}</p>" for line in str(self).splitlines())


class JudgedAnswer(Answer):
    """An answer with verdicts, of which the first is the most urgent."""

    def verdicts(self) -> tuple[Verdict, ...]:
        """Returns all verdicts."""
        raise NotImplementedError

    @property
    def verdict(self) -> Verdict:
        """The first verdict."""
        return self.verdicts()[0]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.verdicts()))

    def _repr_html_(self) -> str:
        return "<hr>".join(verdict._repr_html_() for verdict in self.verdicts())


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
                row = _row(device.device, setting)
                row["out_of_memory"] = setting.out_of_memory is not None
                row["smallest"] = setting.smallest and setting.smallest.runs
                rows.append(row)
        return _frame(rows, Setting)


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
        rows = [_row(device.device, site) for device in self.devices for site in device.sites]
        return _frame(rows, Site)


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
        rows = [_row(message.device, message) for message in self.messages]
        return _frame(rows, OomMessage, drop="verdict")


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

    devices: tuple[DeviceDiff, ...]

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a table of the growth at each call site."""
        rows = []
        for device in self.devices:
            for site in device.sites:
                row = _row(device.device, site)
                rows.append(row | {name: row[name].growth for name in ("peak", "end", "allocations")})
        return _frame(rows, SiteDiff)

    def __str__(self) -> str:
        return "\n".join(map(str, self.devices))


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

    passed: bool
    tolerance: str
    checks: tuple[GateCheck, ...]

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a table of the checks."""
        rows = [_row(check.device, check) for check in self.checks]
        return _frame(rows, GateCheck, drop="sites")

    def __str__(self) -> str:
        return "\n".join(map(str, self.checks))
