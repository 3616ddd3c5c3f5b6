"""record.py PROGRAM: runs a program and prints what PyTorch counted as a line of JSON, like those of measured.jsonl."""
import json
import os
import runpy
import sys

import torch

torch.backends.cudnn.benchmark = False
torch.backends.cudnn.deterministic = True
torch.manual_seed(0)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
torch.cuda.synchronize()
free, total = torch.cuda.mem_get_info()
stats = torch.cuda.memory_stats()
print(json.dumps({
    "program": os.path.splitext(os.path.basename(sys.argv[0]))[0],
    "active_peak": stats["active_bytes.all.peak"],
    "allocated_peak": stats["allocated_bytes.all.peak"],
    "requested_peak": stats["requested_bytes.all.peak"],
    "reserved_peak": stats["reserved_bytes.all.peak"],
    "retries": stats["num_alloc_retries"],
    "device_mallocs": stats["num_device_alloc"],
    "device_frees": stats["num_device_free"],
    "allocations": stats["allocation.all.allocated"],
    "total": total,
    "outside": total - free - stats["reserved_bytes.all.current"],
}))
