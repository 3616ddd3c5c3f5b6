#!/usr/bin/env python3
"""Runs a model on a GPU under settings of PyTorch's allocator, and says what it took.

    run.py MODEL [--conf SETTINGS] [--limit BYTES] [--dump FILE] [--stacks] [--profile FILE]

One line of JSON: the peaks that PyTorch counted, how often it retried, and whether it ran out of memory. The models are built
with random weights, and ask for the same blocks in the same order each time (`streams` aside, where the order of what comes
back depends on the clock).
"""
import argparse
import json
import os

parser = argparse.ArgumentParser()
parser.add_argument("model", choices=["gpt2-train", "resnet-train", "llama-decode", "streams"])
parser.add_argument("--conf", default="")
parser.add_argument("--limit", type=int, help="the process may hold so many bytes of the device")
parser.add_argument("--dump", help="write a memory snapshot with its history here")
parser.add_argument("--stacks", action="store_true", help="with the call sites")
parser.add_argument("--profile", help="write the last step's trace by torch.profiler here")
arguments = parser.parse_args()
if arguments.conf:
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = arguments.conf

import contextlib
import random

import torch

torch.backends.cudnn.benchmark = False
torch.backends.cudnn.deterministic = True
torch.manual_seed(0)
device = torch.device("cuda:0")


def gpt2_train():
    """Steps of training over sentences of different lengths."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=6, n_embd=768, n_head=12, vocab_size=32000, use_cache=False, attn_implementation="eager")
    model = GPT2LMHeadModel(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    lengths = random.Random(7)
    for _ in range(10):
        tokens = torch.randint(0, 32000, (8, lengths.randrange(100, 1000)), device=device)
        yield
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def resnet_train():
    """Steps of training on images of different sizes, and one of inference."""
    import torchvision

    model = torchvision.models.resnet50().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    sizes = random.Random(11)
    for _ in range(6):
        side = sizes.choice([160, 192, 224, 256, 288])
        images = torch.randn(sizes.choice([16, 24, 32]), 3, side, side, device=device)
        yield
        model(images).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    yield
    with torch.no_grad():
        model.eval()(torch.randn(64, 3, 224, 224, device=device))


def llama_decode():
    """Requests of different lengths, each with a cache that grows token by token."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=1024, intermediate_size=2816, num_hidden_layers=6, num_attention_heads=16, num_key_value_heads=8,
        vocab_size=32000,
    )
    model = LlamaForCausalLM(config).to(device, torch.bfloat16).eval()
    lengths = random.Random(13)
    for _ in range(4):
        tokens = torch.randint(0, 32000, (16, lengths.randrange(200, 1500)), device=device)
        yield
        with torch.no_grad():
            cache = None
            for _ in range(lengths.randrange(20, 40)):
                out = model(input_ids=tokens, past_key_values=cache, use_cache=True)
                cache = out.past_key_values
                tokens = out.logits[:, -1:].argmax(-1)
        del out, cache


def streams():
    """Batches that are copied and made ready on a stream of their own while the one before is worked on."""
    model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(8))).to(device)
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    sizes = random.Random(17)
    for step in range(40):
        rows = sizes.randrange(256, 8192)
        host = torch.empty(rows, 4096, pin_memory=True)
        if step % 10 == 0:
            yield
        with torch.cuda.stream(side):
            batch = host.to(device, non_blocking=True)
            batch = (batch * 2).relu()
        main.wait_stream(side)
        batch.record_stream(main)
        model(batch).sum().backward()
        model.zero_grad(set_to_none=True)


steps = {"gpt2-train": gpt2_train, "resnet-train": resnet_train, "llama-decode": llama_decode, "streams": streams}
if arguments.limit:
    total = torch.cuda.get_device_properties(device).total_memory
    # What PyTorch makes of it is rounded down.
    torch.cuda.set_per_process_memory_fraction((arguments.limit + 0.5) / total, device)
if arguments.dump:
    torch.cuda.memory._record_memory_history(
        context="all" if arguments.stacks else None, stacks="python", max_entries=10_000_000
    )
failed, profiler = None, contextlib.nullcontext()
try:
    for step, _ in enumerate(steps[arguments.model]()):
        if arguments.profile and step == 1:
            profiler = torch.profiler.profile(profile_memory=True, record_shapes=True)
            profiler.__enter__()
        elif arguments.profile and step == 2:
            profiler.__exit__(None, None, None)
            profiler.export_chrome_trace(arguments.profile)
    torch.cuda.synchronize()
except torch.OutOfMemoryError as error:
    failed = str(error).split(". ")[0]
if arguments.dump:
    torch.cuda.memory._dump_snapshot(arguments.dump)
stats = torch.cuda.memory_stats(device)
print(json.dumps({
    "model": arguments.model,
    "conf": arguments.conf,
    "limit": arguments.limit,
    "out_of_memory": failed,
    "active_peak": stats["active_bytes.all.peak"],
    "allocated_peak": stats["allocated_bytes.all.peak"],
    "requested_peak": stats["requested_bytes.all.peak"],
    "reserved_peak": stats["reserved_bytes.all.peak"],
    "retries": stats["num_alloc_retries"],
    "device_mallocs": stats["num_device_alloc"],
    "device_frees": stats["num_device_free"],
    "allocations": stats["allocation.all.allocated"],
}))
