"""conv_sweep.py SHARD SHARDS SECONDS: the bytes that PyTorch allocates for convolutions beyond their results."""
import json
import lzma
import os
import random
import sys
import time

import torch

shard, shards, limit = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
start = time.time()
torch.manual_seed(0)
here = os.path.dirname(os.path.abspath(__file__))
lines = [json.loads(line) for line in lzma.open(os.path.join(here, "convolutions-measured.jsonl.xz"), "rt")]
# Kind, input, weights, stride, padding, dilation, groups.
configurations = sorted({json.dumps(line[:2] + line[3:8]) for line in lines})
# Types, layouts, and whether only deterministic algorithms are taken.
variants = [("float32", 0, 0), ("float32", 0, 1), ("bfloat16", 0, 0), ("bfloat16", 1, 0), ("float16", 0, 0),
            ("float16", 0, 1), ("float32", 1, 0)]
work = [(json.loads(c), v) for c in configurations for v in variants][shard::shards]
random.Random(1).shuffle(work)
out = open(os.path.join(os.environ.get("RECORD_OUT", "."), f"conv_sweep.{shard}.jsonl"), "w")


def counts():
    stats = torch._C._cuda_memoryStats(0)
    return (stats["requested_bytes"]["all"]["allocated"], stats["allocation"]["all"]["allocated"],
            stats["requested_bytes"]["all"]["current"])


def measured(run):
    """The bytes and the number of blocks that are allocated and freed while it runs."""
    before = counts()
    result = run()
    after = counts()
    kept = after[2] - before[2]
    del result
    return [after[0] - before[0] - kept, after[1] - before[1]]


done = 0
for (kind, x, w, stride, padding, dilation, groups), (dtype, last, deterministic) in work:
    if time.time() - start > limit:
        break
    torch.backends.cudnn.deterministic = bool(deterministic)
    layout = torch.channels_last if last and len(x) == 4 else torch.contiguous_format
    try:
        data = torch.zeros(x, device="cuda", dtype=getattr(torch, dtype)).to(memory_format=layout)
        weight = torch.zeros(w, device="cuda", dtype=getattr(torch, dtype)).to(memory_format=layout)
        transposed = kind == "t"
        arguments = (stride, padding, dilation, transposed, [0] * len(stride), groups)
        results = {}
        y = torch.ops.aten.convolution(data, weight, None, *arguments)
        results["fwd"] = measured(lambda: torch.ops.aten.convolution(data, weight, None, *arguments))
        gradient = torch.zeros_like(y)
        shape = list(y.shape)
        del y
        for name, mask in (("dgrad", [True, False, False]), ("wgrad", [False, True, False])):
            results[name] = measured(
                lambda: torch.ops.aten.convolution_backward(gradient, data, weight, None, *arguments, mask))
    except Exception as error:
        results = {"error": str(error)[:100]}
        shape = None
    out.write(json.dumps([kind, x, shape, w, stride, padding, dilation, groups, dtype, last, deterministic, results],
                         separators=(",", ":")) + "\n")
    done += 1
print(f"conv_sweep {shard}: {done} of {len(work)} in {time.time() - start:.1f} s")
