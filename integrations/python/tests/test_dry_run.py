"""Dry runs from Python."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import pickle
import platform
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import orlop
import pytest
from orlop.dry_run import _process, answer_of, write_call

# A training step of a GPT-2 of 124 million parameters, with PyTorch alone.
GPT2 = """
import sys
import torch

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(768), torch.nn.LayerNorm(768)
        self.qkv, self.out = torch.nn.Linear(768, 3 * 768), torch.nn.Linear(768, 768)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(768, 3072), torch.nn.GELU(), torch.nn.Linear(3072, 768))

    def forward(self, x):
        heads = self.qkv(self.norm1(x)).unflatten(-1, (3, 12, 64)).permute(2, 0, 3, 1, 4)
        y = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))

def step(batch):
    model = torch.nn.Sequential(
        torch.nn.Embedding(50257, 768), *(Block() for _ in range(12)), torch.nn.Linear(768, 50257, bias=False)
    ).cuda()
    model[-1].weight = model[0].weight
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, 50257, (batch, 1024), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = model(tokens)
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
    optimizer.step()

if __name__ == "__main__":
    step(int(sys.argv[1]))
    print("stepped")
"""

PYTORCH = importlib.util.find_spec("torch")
CUDA = Path(PYTORCH.origin).with_name("lib") / "libtorch_cuda.so" if PYTORCH and PYTORCH.origin else None
needs_torch = pytest.mark.skipif(not (CUDA and CUDA.exists()), reason="PyTorch for CUDA is not installed")
pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="dry runs need Linux on x86-64"
)


@pytest.fixture
def gpt2(tmp_path: Path) -> Path:
    path = tmp_path / "gpt2.py"
    path.write_text(GPT2)
    return path


def test_the_library_is_beside_the_module() -> None:
    assert orlop.__file__ is not None
    assert Path(orlop.__file__).with_name("liborlop_dryrun_cuda.so").is_file()


def test_what_cannot_be_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="unknown GPU"):
        orlop.dry_run("train.py", device="h101", output=tmp_path)
    with pytest.raises(TypeError, match="another process cannot make this call"):
        orlop.dry_run(lambda: None, output=tmp_path)
    for option in ("--sweep", "--find=batch=1..8", "--help", "-h", "--"):
        with pytest.raises(ValueError, match="not an option of one dry run"):
            orlop.dry_run("train.py", options=["--late", option], output=tmp_path)
    monkeypatch.setenv("ORLOP_DRY_RUN", "1")
    with pytest.raises(orlop.OrlopError, match="a dry run itself"):
        orlop.dry_run("train.py", output=tmp_path)


def test_the_start_method_stays_open(tmp_path: Path) -> None:
    before = multiprocessing.get_start_method(allow_none=True)
    try:
        for method in (None, "spawn"):
            multiprocessing.set_start_method(method, force=True)
            write_call(tmp_path / "call", json.loads, ("1",))
            assert multiprocessing.get_start_method(allow_none=True) == method
            # The program can choose its own.
            assert "start_method" not in pickle.loads((tmp_path / "call").read_bytes())
    finally:
        multiprocessing.set_start_method(before, force=True)


def test_a_function_without_a_file_is_refused(tmp_path: Path) -> None:
    program = "def step(): pass\nimport sys, pathlib\nfrom orlop.dry_run import write_call\n"
    program += "write_call(pathlib.Path(sys.argv[1]), step, ())"
    command = [sys.executable, "-c", program, str(tmp_path / "call")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert "TypeError: another process cannot make this call: its __main__ is not a file" in done.stderr
    assert not (tmp_path / "call").exists()


def interrupt(*_: Any) -> None:
    raise InterruptedError


def test_an_interrupt_ends_the_whole_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_process, "END", 0.2)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    # The program and its child, which ignores the request to end, write more if they are not ended.
    child = '(trap "" TERM; sleep 30; echo child >&9)'
    command = ["sh", "-c", f'exec 9>"$0"; echo started >&9; {child} & sleep 30; echo program >&9', str(fifo)]
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(1)
    try:
        with pytest.raises(InterruptedError):
            answer_of(command, dict(os.environ))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    os.set_blocking(reader, True)
    with open(reader, "rb") as lines:
        assert lines.read() == b"started\n"


def test_a_process_that_is_left_behind_is_not_waited_for(capfd: pytest.CaptureFixture[str]) -> None:
    program = "echo said >&2; (sleep 30; echo late >&2) & echo '{\"group\": '$$'}'"
    answer = answer_of(["sh", "-c", program], dict(os.environ))
    os.killpg(answer["group"], signal.SIGKILL)
    assert capfd.readouterr().err == "said\n"


@pytest.mark.skipif(PYTORCH is not None, reason="PyTorch is installed")
def test_a_python_without_pytorch_is_named(tmp_path: Path) -> None:
    with pytest.raises(orlop.OrlopError, match="has no PyTorch"):
        orlop.dry_run("train.py", output=tmp_path)


@needs_torch
def test_one_command_answers_for_a_training_step(gpt2: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "orlop.dry_run", "--device", "h100", str(gpt2), "4"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("stepped\nfits NVIDIA H100 80GB HBM3"), done.stdout
    assert (tmp_path / "orlop-dry-run/snapshot.pickle").is_file()


@needs_torch
def test_a_script_fits_or_not(gpt2: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = orlop.dry_run(gpt2, 4, output=tmp_path / "run")
    assert run.fits and run.confidence == "high" and run.doubts == ()
    # Weights, gradients and the two states of AdamW of 124 million parameters, and activations.
    assert 2_000_000_000 < run.peak_reserved < run.memory
    assert "stepped" in capfd.readouterr().err
    assert orlop.describe(run.snapshot).devices[0].peak_reserved == run.peak_reserved
    failed = orlop.dry_run(gpt2, 4, memory=4 << 30, output=tmp_path / "failed")
    assert failed.outcome == "does_not_fit"
    assert failed.devices[0].lacking is not None and failed.devices[0].lacking > failed.memory
    assert str(failed).startswith("does not fit NVIDIA H100 80GB HBM3 (4.00 GiB)")


FUNCTION = """
import sys

import orlop

def step(bytes):
    import torch

    torch.empty(bytes, dtype=torch.uint8, device="cuda")

if __name__ == "__main__":
    run = orlop.dry_run(step, 64 << 20, output=sys.argv[1])
    print(run.outcome, run.peak_reserved)
"""


@needs_torch
def test_a_function_is_run_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(FUNCTION)
    # A function of the program itself, and one of a module.
    (tmp_path / "other.py").write_text(
        FUNCTION.replace("(step,", "(steps.step,").replace("orlop", "orlop, steps", 1)
    )
    for program in ("steps.py", "other.py"):
        command = [sys.executable, program, str(tmp_path / "run")]
        done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
        assert done.stdout == f"fits {64 << 20}\n", done.stderr


# What follows from values of the host, and what is taken to be as in healthy training. Each line is an assertion.
VALUES = """
import torch
import torch.nn.functional as F

if not hasattr(torch.library, "get_kernel"):
    raise SystemExit("not this PyTorch")

ids = torch.tensor([[5, 6, 2, 0], [5, 2, 0, 0]], device="cuda")
mask = ids != 0
lengths = mask.long().sum(1)
x = torch.randn(8, 3, device="cuda")
noise = torch.randint(4, (8,), device="cuda")

assert lengths.tolist() == [3, 2]
assert [part.shape[0] for part in x[:5].split(lengths.tolist())] == [3, 2]
assert x.view(2, 4, 3)[mask].shape == (5, 3)
assert mask.nonzero().tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1]]
assert (int(lengths.max()), lengths.cumsum(0)[-1].item(), int(lengths[1])) == (3, 5, 2)
assert (mask.cumsum(-1) - 1).clamp(min=0)[0].tolist() == [0, 1, 2, 2]
assert F.one_hot(ids.clamp(max=3)).shape == (2, 4, 4)
assert ids.unique().tolist() == [0, 2, 5, 6]
assert x[:2].repeat_interleave(lengths, 0).shape == (5, 3)
assert torch.arange(10, device="cuda")[2:5].tolist() == [2, 3, 4]
assert not torch.equal(ids, ids + 1) and torch.equal(x, x * 2)
assert not torch.equal(x.min() < 0, torch.ones((), dtype=torch.bool, device="cuda"))

# Written in place, in part and with noise.
ids[0, 3] = 9
assert ids[0].tolist() == [5, 6, 2, 9]
done = torch.zeros(8, dtype=torch.bool, device="cuda")
assert not done.all()
done |= noise > 1
assert done.all() and not done.any()

# Written by what is not repeated on the host: not known any more.
cu_seqlens = torch.zeros(3, dtype=torch.long, device="cuda")
torch.cumsum(lengths, 0, out=cu_seqlens[1:])
assert cu_seqlens.tolist() == [0, 0, 0]
count = torch.ones(1, device="cuda")
torch.add(count, 3, out=count)
assert count.item() != 1
with torch.inference_mode():
    count = torch.ones(1, device="cuda")
    torch.add(count, 3, out=count)
    assert count.item() != 1
weight = torch.nn.Parameter(torch.ones(3, device="cuda"))
weight.grad = torch.ones(3, device="cuda")
(weight * 2).sum().backward()
assert weight.grad[0].item() != 1
count, graph = torch.full((1,), 7, device="cuda"), torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    count.add_(1)
count.zero_()
graph.replay()
assert count.item() not in (7, 8)
window = torch.hann_window(64, device="cuda")
for samples in (512, 40_000):
    spectrum = torch.stft(torch.randn(samples, device="cuda"), 64, window=window, return_complex=True)
    assert torch.istft(spectrum, 64, window=window, length=samples).shape == (samples,)
assert torch._neg_view(torch.full((2,), 2.0, device="cuda")).sum().item() != 4
many = [torch.zeros(4, device="cuda") for _ in range(9000)]
assert many[-1].tolist() == [0, 0, 0, 0]

# An unknown size after one that was known, and for which there was no memory.
mask = torch.ones(8192, dtype=torch.bool, device="cuda")
torch.cuda.set_per_process_memory_fraction(1e-9)
try:
    torch.cuda.empty_cache()
    kept = [mask.nonzero() for _ in range(100)]
    raise SystemExit("there was memory")
except torch.cuda.OutOfMemoryError:
    torch.cuda.set_per_process_memory_fraction(1.0)
assert noise.nonzero().shape[0] <= 8

# Healthy training.
loss = (x.requires_grad_() ** 2).mean()
assert loss == loss and not loss != loss and not loss.isnan() and loss.isfinite()
loss.backward()
torch.distributions.MultivariateNormal(x[0], torch.eye(3, device="cuda") * loss.detach())

# A backward pass finds the elements that the forward pass found. The replay left nothing known.
ids = torch.tensor([[5, 6, 2, 9], [5, 2, 0, 0]], device="cuda")
states = torch.randn(2, 4, 3, device="cuda", requires_grad=True)
states[ids != 0].sum().backward()
states[:, :3][(ids != 0)[:, :3]].sum().backward()

# So does the part of the forward pass that a backward pass computes again.
def selected(states):
    kept = states[ids != 0].square()
    assert kept.shape == (6, 3)
    return kept.sum() * states[:, : int((ids != 0).sum(1).max())].sum()
for is_reentrant in (False, True):
    torch.utils.checkpoint.checkpoint(selected, states, use_reentrant=is_reentrant).backward()

# The mean of nothing is not a number; healthy training has none.
assert not x[:0].mean().isnan()

# What is printed decides nothing.
print(x, loss, noise)

# Noise: each is repeated once, and bins are even.
assert x.repeat_interleave(noise, 0).shape == (8, 3)
offsets = noise.bincount(minlength=4).cumsum(0)
noise.bincount(minlength=4) + noise.float().histc(4, 0, 3)
assert [part.shape[0] for part in x.tensor_split(offsets[:-1].tolist())] == [2, 2, 2, 2]
print("as expected")
"""


# One thread's backward pass, in the middle of which another one's masks follow from values of the host.
THREADS = """
import threading
import torch

if not hasattr(torch.library, "get_kernel"):
    raise SystemExit("not this PyTorch")

steps, sizes, met = 3, [], [threading.Barrier(2, timeout=60) for _ in range(2)]

def wait(gradient):
    for barrier in met:
        barrier.wait()

def train():
    weight = torch.ones(4, device="cuda", requires_grad=True)
    for barrier in met:
        barrier.wait()
    for _ in range(steps):
        y = weight * 2
        y.register_hook(wait)
        y.sum().backward()

def select():
    for step in range(steps + 1):
        met[0].wait()
        mask = torch.tensor([1] * step + [0] * (8 - step)).cuda() != 0
        lengths = torch.tensor([step, 5]).cuda()
        sizes.append((torch.empty(8, device="cuda")[mask].numel(), lengths.sum().item(), lengths.unique().numel()))
        met[1].wait()

threads = [threading.Thread(target=target) for target in (train, select)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sizes)
assert sizes == [(step, step + 5, 2) for step in range(steps + 1)], sizes
"""


FORKED = """
import multiprocessing
import torch

def work(mebibytes):
    torch.zeros(mebibytes << 20, dtype=torch.uint8, device="cuda")

if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=work, args=(size,)) for size in (32, 64)]
    for child in children:
        child.start()
    for child in children:
        child.join()
"""


@needs_torch
def test_forked_children_use_the_device_and_have_results(tmp_path: Path) -> None:
    (tmp_path / "forked.py").write_text(FORKED)
    run = orlop.dry_run(str(tmp_path / "forked.py"), device="h100", output=tmp_path / "out")
    assert run.fits and run.peak_reserved == 64 << 20
    assert len(list((tmp_path / "out").glob("snapshot.*.pickle"))) == 2


@needs_torch
def test_what_follows_from_values_of_the_host_is_known(tmp_path: Path) -> None:
    (tmp_path / "values.py").write_text(VALUES)
    command = [sys.executable, "-m", "orlop.dry_run", "--quick", "--json", "--device", "h100", "values.py"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=300)
    if "not this PyTorch" in done.stderr:
        pytest.skip("this PyTorch does not give its kernels to Python")
    assert "as expected" in done.stderr, done.stderr
    doubts = [doubt.split(",")[0] for doubt in json.loads(done.stdout)["doubts"]]
    assert "1 tensors were assumed to repeat each element once" in doubts
    assert "1 tensors were assumed to fill their bins evenly" in doubts
    assert not [doubt for doubt in doubts if "distinct" in doubt or "maxima" in doubt]
    assert "1 masks were assumed to be true in 0 of their elements" in doubts


@needs_torch
def test_threads_do_not_take_what_others_know(tmp_path: Path) -> None:
    (tmp_path / "threads.py").write_text(THREADS)
    command = [sys.executable, "-m", "orlop.dry_run", "--quick", "--json", "--device", "h100", "threads.py"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=300)
    if "not this PyTorch" in done.stderr:
        pytest.skip("this PyTorch does not give its kernels to Python")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["confidence"] == "high"


# Each rank of a data-parallel training, with whole or with sharded states.
RANKS = """
import os
import sys

import torch
import torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(4))).cuda()
if sys.argv[1] == "sharded":
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(model)
else:
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters())
model(torch.randn(8, 1024, device="cuda")).sum().backward()
optimizer.step()
gathered = [None] * dist.get_world_size()
dist.all_gather_object(gathered, {"rank": rank})
assert len(gathered) == 2
dist.destroy_process_group()
"""


@needs_torch
def test_ranks_are_processes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RANKS)
    command = [sys.executable, "-m", "orlop.dry_run", "--quick", "--json", "--devices", "h100x2", "--"]
    command += [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    peaks = []
    for states in ("whole", "sharded"):
        call = [*command, "train.py", states]
        done = subprocess.run(call, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        run = json.loads(done.stdout)
        assert sorted(rank["device"] for rank in run["runs"]) == [0, 1]
        first, second = (rank["peak_reserved"] for rank in run["runs"])
        assert first == second
        peaks.append(first)
    # The optimizer's states of four layers of 4 MiB: whole, or halves.
    assert peaks[0] > peaks[1]
