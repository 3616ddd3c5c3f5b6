"""The answer of a dry run. Sizes are in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orlop._answer import JudgedAnswer, Verdict, at, frame, row

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class DryRunDevice:
    """The memory of a device of a process."""

    snapshot: str
    """The file of the snapshot, a recording for all other functions."""
    device: int
    verdict: Verdict
    peak_reserved: int
    spare: int
    """Memory of the GPU beyond the peak and the overhead."""
    failed_requests: int
    lacking: int | None
    """The least memory of a GPU that the failed request needs."""


@dataclass(frozen=True, repr=False)
class DryRun(JudgedAnswer):
    """Whether a program fits a GPU."""

    outcome: str
    """``"fits"``, ``"does_not_fit"``, or ``"undecided"`` if the program failed, but not for lack of memory."""
    headline: str
    """The outcome with its figures, a line."""
    gpu: str
    memory: int
    """The total memory of the GPU."""
    overhead: int
    """What the driver and the context of a process take."""
    confidence: str
    """``"high"``, ``"medium"`` if something was estimated, or ``"low"`` if sizes follow from noise."""
    doubts: tuple[str, ...]
    """What was estimated or assumed."""
    devices: tuple[DryRunDevice, ...] = at("runs")
    """That with the least to spare first."""

    @property
    def fits(self) -> bool:
        """Whether the program succeeded in the memory of the GPU."""
        return self.outcome == "fits"

    @property
    def peak_reserved(self) -> int:
        """The peak of the device with the least to spare."""
        return self.devices[0].peak_reserved

    @property
    def snapshot(self) -> str:
        """The snapshot of the device with the least to spare."""
        return self.devices[0].snapshot

    def verdicts(self) -> tuple[Verdict, ...]:
        """Returns the verdicts on the devices."""
        return tuple(device.verdict for device in self.devices)

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a table with a row for each device."""
        rows = [row(device.device, device) for device in self.devices]
        return frame(rows, DryRunDevice, drop="verdict")

    def __str__(self) -> str:
        return f"{self.headline}\n{super().__str__()}"
