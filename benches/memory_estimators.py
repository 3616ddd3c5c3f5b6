#!/usr/bin/env python3
"""What estimators of GPU memory say of the programs of testdata/torch-runs, beside what an H100 measured.

    memory_estimators.py [--orlop target/debug/orlop] [MODEL...]

Needs PyTorch, torchvision, transformers and accelerate, and no GPU. `MemTracker` of torch.distributed._tools runs the
program's own steps with fake tensors; a backward pass of theirs needs CUDA, which is that of a dry run here. `accelerate
estimate-memory` reads a model of the hub: its two functions get the program's model, on the device "meta". Neither
models PyTorch's allocator. A program runs out of memory, by an estimate, if that is above the limit.
"""
import argparse
import ast
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUNS = ROOT / "testdata/torch-runs"
MODELS = ["gpt2-train", "llama-decode", "resnet-train"]


def steps_of(model, torch, device):
    """Returns the generator of a program's steps, without the rest of run.py."""
    name = model.replace("-", "_")
    nodes = ast.parse((RUNS / "run.py").read_text()).body
    found = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == name]
    scope = {"torch": torch, "random": random, "device": torch.device(device)}
    exec(compile(ast.Module(found, []), "run.py", "exec"), scope)
    return scope[name]()


def convert(module, *arguments):
    """Does what `Module.to` does, which refuses modules of fake tensors."""
    import torch

    device, dtype, *_ = torch._C._nn._parse_to(*arguments)
    converted = {}
    for part in module.modules():
        for name, parameter in list(part._parameters.items()):
            if parameter is not None:
                if id(parameter) not in converted:
                    # With the old one, so that its id stays its own.
                    converted[id(parameter)] = parameter, torch.nn.Parameter(parameter.detach().to(device, dtype))
                part._parameters[name] = converted[id(parameter)][1]
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = buffer.to(device, dtype if buffer.is_floating_point() else None)
    return module


def by_mem_tracker(model):
    """Returns the peak that MemTracker counts in this process. What exists before the first step is given to it, as
    its documentation says."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    torch.nn.Module.to = convert
    tracker = MemTracker()
    with FakeTensorMode():
        steps = steps_of(model, torch, "cuda:0")
        next(steps)
        state = steps.gi_frame.f_locals
        kinds = torch.nn.Module, torch.optim.Optimizer, torch.Tensor
        tracker.track_external(*(each for each in state.values() if isinstance(each, kinds)))
        if "optimizer" not in state:
            # It refuses a module that is called again, unless it forgets what it counted for each module.
            state["model"].register_forward_hook(lambda *_: tracker.reset_mod_stats())
        with tracker:
            for _ in steps:
                tracker.reset_mod_stats()
    peaks = tracker.get_tracker_snapshot("peak")
    return sum(sizes["Total"] for device, sizes in peaks.items() if device.type == "cuda")


def by_accelerate(model):
    """Returns what `accelerate estimate-memory` prints: of a program that trains, "Training using Adam", of one that
    does not, "Total Size" in the type of its weights."""
    import torch
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes

    steps = steps_of(model, torch, "meta")
    next(steps)
    size, _ = calculate_maximum_sizes(steps.gi_frame.f_locals["model"])
    return max(estimate_training_usage(size, "float32").values()) if model.endswith("-train") else size


def dry_run(orlop, *program):
    """Returns the JSON object that a Python program prints in a dry run, and the seconds."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        command = [orlop, "dry-run", "--device", "h100", "--quick", "--output", f"{folder}/run", "--"]
        done = subprocess.run([*command, sys.executable, *program], cwd=ROOT, text=True, capture_output=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"')]
    if not lines:
        sys.exit(done.stderr)
    return json.loads(lines[0]), time.monotonic() - start


def dry_run_of(orlop, run):
    limit = ["--limit", str(run["limit"])] if run["limit"] else []
    return dry_run(orlop, RUNS / "run.py", run["model"], "--conf", run["conf"], *limit)


def runs_out(run):
    return bool(run["out_of_memory"])


def rows(model, runs, orlop):
    """Yields an estimator, what it says of the peaks of allocated and of reserved bytes, how many outcomes of the runs
    with a limit are right, and the seconds of one estimate."""
    limited = [run for (name, _, limit), run in runs.items() if name == model and limit]
    tracked, seconds = dry_run(orlop, __file__, "--track", model)
    estimates = [("MemTracker", tracked["peak"], seconds)]
    start = time.monotonic()
    estimates.append(("accelerate", by_accelerate(model), time.monotonic() - start))
    for name, estimate, seconds in estimates:
        right = sum((estimate > run["limit"]) == runs_out(run) for run in limited)
        yield name, estimate, estimate, right, len(limited), seconds
    counted, seconds = dry_run_of(orlop, runs[model, "", None])
    right = sum(runs_out(dry_run_of(orlop, run)[0]) == runs_out(run) for run in limited)
    yield "orlop dry-run", counted["allocated_peak"], counted["reserved_peak"], right, len(limited), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--orlop", default=ROOT / "target/debug/orlop", help="the orlop program")
    parser.add_argument("--track", metavar="MODEL", help="print the peak that MemTracker counts, in a dry run")
    options = parser.parse_args()
    if options.track:
        print(json.dumps({"peak": by_mem_tracker(options.track)}))
        return
    lines = (RUNS / "measured.jsonl").read_text().splitlines()
    runs = {}
    for run in map(json.loads, lines):
        runs.setdefault((run["model"], run["conf"], run["limit"]), run)
    print("| program | by | allocated, GB | reserved, GB | outcomes right | seconds |")
    print("|---|---|---|---|---|---|")
    for model in options.models:
        measured = runs[model, "", None]
        allocated, reserved = measured["allocated_peak"], measured["reserved_peak"]
        print(f"| {model} | H100 | {allocated / 1e9:.3f} | {reserved / 1e9:.3f} | | |", flush=True)
        for name, *peaks, right, count, seconds in rows(model, runs, options.orlop):
            pairs = zip(peaks, (allocated, reserved))
            cells = " | ".join(f"{peak / 1e9:.3f} ({(peak / truth - 1) * 100:+.1f} %)" for peak, truth in pairs)
            print(f"| | {name} | {cells} | {right} of {count} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
