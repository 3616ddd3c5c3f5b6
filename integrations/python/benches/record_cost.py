"""What `orlop.record()` costs a program while it is on: time for each allocation, and host memory.

Needs PyTorch with a CUDA device. The kernels are irrelevant: only the host's time is measured.
"""

from __future__ import annotations

import resource
import statistics
import time
from typing import Any

import orlop
import torch

PAIRS = 20_000
ROUNDS = 7


def pair_us() -> float:
    """Returns the microseconds of an allocation from the cache with its free."""
    start = time.perf_counter()
    for _ in range(PAIRS):
        torch.empty(1 << 20, device="cuda")
    return (time.perf_counter() - start) / PAIRS * 1e6


def step_ms(model: Any, optimizer: Any) -> float:
    """Returns the milliseconds of a training step."""
    start = time.perf_counter()
    for _ in range(100):
        model(torch.empty(32, 256, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / 100 * 1e3


def compare(name: str, unit: str, measure: Any) -> None:
    """Prints the medians without and with the recording, taken in turns."""
    measure()
    off, on = [], []
    for _ in range(ROUNDS):
        off.append(measure())
        with orlop.record():
            on.append(measure())
    print(f"{name}: {statistics.median(off):.2f} {unit} off, {statistics.median(on):.2f} {unit} on")


def depth(levels: int) -> None:
    """Fills the history with events below this many calls."""
    if levels:
        depth(levels - 1)
    else:
        pair_us()


def main() -> None:
    """Measures all."""
    compare("allocation and free", "us", pair_us)
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(12)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    compare("training step of 12 layers", "ms", lambda: step_ms(model, optimizer))
    with orlop.record(max_entries=100_000):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(5):
            depth(30)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"host memory of 100,000 events, 30 calls deep: {grown / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
