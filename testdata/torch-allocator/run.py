"""Runs models, or checks of behaviour, on a GPU under an allocator.

    run.py CONFIG PART [NAMES]

CONFIG is native or expandable (PyTorch's allocator), or pool or all (orlop.torch by that door, with the policy
that the variable POLICY names). PART is models or checks, and NAMES are some of them, with commas between. One
line of JSON for each: losses, times of steps and what PyTorch's statistics say, or what a check found.
"""

import ctypes
import gc
import json
import os
import random
import statistics
import sys
import threading
import time
import traceback

config, part = sys.argv[1], sys.argv[2]
names = sys.argv[3].split(",") if len(sys.argv) > 3 else None
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
if config == "expandable":
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
began = time.perf_counter()
import torch

orlop = None
if config in ("pool", "all"):
    import orlop.torch

    orlop = orlop.torch
    orlop.install(config, patch=config == "all", policy=os.environ.get("POLICY", "orlop"))
torch.backends.cudnn.benchmark = False
torch.backends.cudnn.deterministic = True
torch.use_deterministic_algorithms(True, warn_only=True)
device = torch.device("cuda:0")
DRY = os.environ.get("ORLOP_DRY_RUN") == "1"


def emit(name, **facts):
    print(
        json.dumps(
            {"config": config, "part": part, "policy": os.environ.get("POLICY"), "name": name, **facts}
        ),
        flush=True,
    )


def stats():
    return torch.cuda.memory_stats(device)


def gpt2_train():
    from transformers import GPT2Config, GPT2LMHeadModel

    conf = GPT2Config(
        n_layer=6, n_embd=768, n_head=12, vocab_size=32000, use_cache=False, attn_implementation="eager"
    )
    model = GPT2LMHeadModel(conf).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    lengths = random.Random(7)
    for _ in range(20):
        tokens = torch.randint(0, 32000, (8, lengths.randrange(100, 1000)), device=device)
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.detach()


def resnet_train():
    import torchvision

    model = torchvision.models.resnet50().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    sizes = random.Random(11)
    for _ in range(16):
        side = sizes.choice([160, 192, 224, 256, 288])
        images = torch.randn(sizes.choice([16, 24, 32]), 3, side, side, device=device)
        loss = model(images).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.detach()
    with torch.no_grad():
        yield model.eval()(torch.randn(64, 3, 224, 224, device=device)).double().sum()


def llama_decode():
    from transformers import LlamaConfig, LlamaForCausalLM

    conf = LlamaConfig(
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=6,
        num_attention_heads=16,
        num_key_value_heads=8,
        vocab_size=32000,
    )
    model = LlamaForCausalLM(conf).to(device, torch.bfloat16).eval()
    lengths = random.Random(13)
    for _ in range(4):
        tokens = torch.randint(0, 32000, (16, lengths.randrange(200, 1500)), device=device)
        total = torch.zeros((), dtype=torch.float64, device=device)
        with torch.no_grad():
            cache = None
            for _ in range(lengths.randrange(20, 40)):
                out = model(input_ids=tokens, past_key_values=cache, use_cache=True)
                cache = out.past_key_values
                tokens = out.logits[:, -1:].argmax(-1)
                total += tokens.double().sum()
        del out, cache
        yield total


def streams():
    model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(8))).to(device)
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    sizes = random.Random(17)
    host = torch.randn(8192, 4096).pin_memory()
    for _ in range(40):
        rows = sizes.randrange(256, 8192)
        with torch.cuda.stream(side):
            batch = host[:rows].to(device, non_blocking=True)
            batch = (batch * 2).relu()
        main.wait_stream(side)
        batch.record_stream(main)
        loss = model(batch).sum()
        loss.backward()
        model.zero_grad(set_to_none=True)
        yield loss.detach()


def run_models():
    for name, model in {
        "gpt2-train": gpt2_train,
        "resnet-train": resnet_train,
        "llama-decode": llama_decode,
        "streams": streams,
    }.items():
        if names and name not in names:
            continue
        torch.manual_seed(0)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        before = dict(stats(), **(orlop.stats() if orlop else {}))
        facts, losses, times = {}, [], []
        try:
            start = time.perf_counter()
            for loss in model():
                torch.cuda.synchronize()
                times.append(time.perf_counter() - start)
                losses.append(loss.item() if not DRY else 0.0)
                start = time.perf_counter()
            del loss
        except Exception as error:
            facts["error"] = f"{type(error).__name__}: {error}"[:600]
            traceback.print_exc()
        after = stats()
        free, total = torch.cuda.mem_get_info(device)
        emit(
            name,
            losses=[value.hex() for value in losses],
            step_ms=round(1000 * statistics.median(times[2:]), 3) if len(times) > 2 else None,
            steps=len(times),
            total_s=round(sum(times), 2),
            allocated_peak=after.get("allocated_bytes.all.peak"),
            requested_peak=after.get("requested_bytes.all.peak"),
            reserved_peak=after.get("reserved_bytes.all.peak"),
            reserved_begin=before.get("reserved_bytes.all.current"),
            retries=after.get("num_alloc_retries"),
            device_allocs=after.get("num_device_alloc", 0) - before.get("num_device_alloc", 0),
            device_frees=after.get("num_device_free", 0) - before.get("num_device_free", 0),
            used=total - free,
            times_ms=[round(1000 * t, 2) for t in times],
            extra={
                k: v - before.get(k, 0) for k, v in orlop.stats().items() if k.startswith(("orlop.", "num_"))
            }
            if orlop
            else None,
            **facts,
        )
        gc.collect()


def pairs():
    """Nanoseconds for a tensor that is made and dropped, of one size and of random ones."""
    out = {}
    for label, sizes in {
        "one": [1 << 20],
        "mixed": [random.Random(3).randrange(1, 1 << 22) for _ in range(64)],
    }.items():
        for size in sizes:
            torch.empty(size, dtype=torch.uint8, device=device)
        best = []
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(4000 // len(sizes)):
                for size in sizes:
                    torch.empty(size, dtype=torch.uint8, device=device)
            best.append((time.perf_counter() - start) / (4000 // len(sizes) * len(sizes)))
        out[label] = round(min(best) * 1e9)
    return out


def held():
    """Nanoseconds for replacing a tensor among 2000 live ones of random sizes."""
    rng = random.Random(5)
    live = [torch.empty(rng.randrange(1, 1 << 20), dtype=torch.uint8, device=device) for _ in range(2000)]
    plan = [(rng.randrange(2000), rng.randrange(1, 1 << 20)) for _ in range(20000)]
    start = time.perf_counter()
    for place, size in plan:
        live[place] = None
        live[place] = torch.empty(size, dtype=torch.uint8, device=device)
    return {"replace_ns": round((time.perf_counter() - start) / len(plan) * 1e9)}


def out_of_memory():
    facts = {}
    try:
        torch.empty(200 << 30, dtype=torch.uint8, device=device)
        return {"ok": False, "why": "200 GiB were allocated"}
    except torch.OutOfMemoryError as error:
        facts["message"] = str(error)[:1500]
    x = torch.ones(1000, device=device)
    facts["works_after"] = x.sum().item() == 1000
    blocks = []
    try:
        while True:
            blocks.append(torch.empty(1 << 30, dtype=torch.uint8, device=device))
    except torch.OutOfMemoryError as error:
        facts["full_message"] = str(error)[:2500]
    facts["gib_until_full"] = len(blocks)
    blocks = blocks[::2]
    try:
        blocks.append(torch.empty(5 << 30, dtype=torch.uint8, device=device))
        facts["five_gib_of_every_other_gib"] = True
    except torch.OutOfMemoryError:
        facts["five_gib_of_every_other_gib"] = False
    del blocks
    torch.cuda.empty_cache()
    facts["ok"] = facts["works_after"] and facts["gib_until_full"] > 0
    return facts


def record_stream():
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    wrong = 0
    weight = torch.eye(2048, device=device)
    for step in range(60):
        with torch.cuda.stream(side):
            data = torch.full((2048, 2048), float(step), device=device)
        main.wait_stream(side)
        out = data
        for _ in range(20):
            out = out @ weight
        total = (out + data).sum()
        data.record_stream(main)
        del data
        with torch.cuda.stream(side):
            other = [torch.full((2048, 2048), -1.0, device=device) for _ in range(4)]
        del other
        wrong += int(total.item() != 2.0 * step * 2048 * 2048)
        del out, total
    return {"ok": wrong == 0, "wrong": wrong}


def graph():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).to(
        device
    )
    given = torch.zeros(64, 512, device=device)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(3):
            model(given)
    torch.cuda.current_stream().wait_stream(side)
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made), torch.no_grad():
        helper = [torch.empty(1 << 20, device=device) for _ in range(3)]
        result = model(given) + helper[0].zero_()[0]
        del helper
    wrong = 0
    for step in range(20):
        rubbish = [torch.full((1 << 20,), float("nan"), device=device) for _ in range(8)]
        del rubbish
        given.copy_(torch.randn(64, 512, device=device))
        made.replay()
        with torch.no_grad():
            expected = model(given)
        wrong += int(not torch.allclose(result, expected, atol=1e-5))
    before = stats()["reserved_bytes.all.current"]
    del made, result
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return {
        "ok": wrong == 0,
        "wrong": wrong,
        "reserved_with_graph": before,
        "reserved_after": stats()["reserved_bytes.all.current"],
    }


def threads():
    wrong = []

    def work(seed):
        rng, stream = random.Random(seed), torch.cuda.Stream()
        with torch.cuda.stream(stream):
            live = []
            for step in range(300):
                value = float(seed * 1000 + step)
                live.append((value, torch.full((rng.randrange(1, 1 << 20),), value, device=device)))
                if len(live) > 20:
                    value, block = live.pop(rng.randrange(len(live)))
                    if not bool((block == value).all()):
                        wrong.append(value)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return {"ok": not wrong, "wrong": len(wrong)}


def zero_and_trim():
    empty = torch.empty(0, device=device)
    other = torch.empty(0, device=device)
    del empty, other
    big = torch.empty(1 << 30, dtype=torch.uint8, device=device)
    del big
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info(device)[0]
    trimmed = orlop.trim() if orlop else (torch.cuda.empty_cache(), 0)[1]
    after = torch.cuda.mem_get_info(device)[0]
    return {"ok": True, "trimmed": trimmed, "freed_on_device": after - before}


def limit():
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(device).total_memory
    used = torch.cuda.memory_reserved(device)
    torch.cuda.set_per_process_memory_fraction((used + (1 << 30)) / total, device)
    try:
        torch.empty(3 << 29, dtype=torch.uint8, device=device)
        ok = False
    except torch.OutOfMemoryError as error:
        ok, message = True, str(error)[:800]
    torch.cuda.set_per_process_memory_fraction(1.0, device)
    return {"ok": ok, "message": message if ok else None}


def forked():
    if orlop is None:
        return {"ok": True}
    child = os.fork()
    if child == 0:
        library = orlop._library()
        library.orlop_torch_segment_malloc.restype = ctypes.c_void_p
        refused = library.orlop_torch_segment_malloc(1024, 0, None) is None and "forked" in orlop.last_error()
        os._exit(0 if refused else 3)
    return {"ok": os.waitpid(child, 0)[1] == 0}


def run_checks():
    for check in [pairs, held, record_stream, graph, threads, zero_and_trim, limit, out_of_memory, forked]:
        if names and check.__name__ not in names:
            continue
        start = time.perf_counter()
        try:
            facts = check()
        except Exception as error:
            traceback.print_exc()
            facts = {"ok": False, "error": f"{type(error).__name__}: {error}"[:1500]}
        emit(check.__name__, seconds=round(time.perf_counter() - start, 2), **facts)
    if orlop is not None:
        emit("report", report=orlop.report(), stats=orlop.stats(), last_error=orlop.last_error())


KEPT = torch.ones(1000, device=device)  # Freed as the interpreter ends.
emit(
    "start",
    seconds=round(time.perf_counter() - began, 2),
    torch=torch.__version__,
    device=torch.cuda.get_device_name(0),
)
run_models() if part == "models" else run_checks()
emit("end", seconds=round(time.perf_counter() - began, 2))
