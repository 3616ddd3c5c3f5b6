"""rnn_sweep.py SECONDS: the bytes that PyTorch allocates for cuDNN's recurrent layers."""
import itertools
import json
import os
import random
import sys
import time

import torch

limit, start = float(sys.argv[1]), time.time()
torch.manual_seed(0)
space = list(itertools.product(["LSTM", "GRU", "RNN"], [64, 200, 512], [64, 256, 512], [1, 2, 3], [1, 7, 20, 64],
                               [1, 10, 35, 100], [False, True], ["float32", "float16", "bfloat16"], [0.0, 0.2]))
random.Random(0).shuffle(space)
out = open(os.path.join(os.environ.get("RECORD_OUT", "."), "rnn_sweep.jsonl"), "w")


def counts():
    stats = torch._C._cuda_memoryStats(0)
    return (stats["requested_bytes"]["all"]["allocated"], stats["allocation"]["all"]["allocated"],
            stats["requested_bytes"]["all"]["current"])


def measured(run):
    before = counts()
    result = run()
    after = counts()
    return result, [after[0] - before[0], after[1] - before[1], after[2] - before[2]]


done = 0
for kind, width, hidden, layers, batch, length, both, dtype, dropout in space:
    if time.time() - start > limit:
        break
    try:
        model = getattr(torch.nn, kind)(width, hidden, layers, bidirectional=both, dropout=dropout).to("cuda", getattr(torch, dtype))
        x = torch.zeros(length, batch, width, device="cuda", dtype=getattr(torch, dtype))
        model(x)
        result, training = measured(lambda: model(x))
        saved = {}
        node, reserve = result[0].grad_fn, None
        gradient = torch.zeros_like(result[0])
        for name in ("_saved_result3", "_saved_result4", "_saved_reserve"):
            tensor = getattr(node, name, None)
            if isinstance(tensor, torch.Tensor):
                saved[name] = tensor.numel() * tensor.element_size()
        _, backward = measured(lambda: result[0].backward(gradient))
        model.eval()
        with torch.no_grad():
            _, inference = measured(lambda: model(x))
        line = {"training": training, "saved": saved, "backward": backward, "inference": inference}
    except Exception as error:
        line = {"error": str(error)[:100]}
    out.write(json.dumps([kind, width, hidden, layers, batch, length, both, dtype, dropout, line], separators=(",", ":")) + "\n")
    done += 1
print(f"rnn_sweep: {done} of {len(space)} in {time.time() - start:.1f} s")
