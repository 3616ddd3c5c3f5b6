"""What vLLM's block pool costs, for the table of docs/benchmarks.md.

    python benches/vllm_block_pool.py FOLDER

FOLDER has the `vllm` folder of an unpacked wheel. `vllm/v1/core/block_pool.py`, `kv_cache_utils.py` and
`utils/hashing.py` run as they are; everything else that they import is a stub, so neither torch nor a GPU is
needed.
"""

import importlib.abc
import importlib.machinery
import statistics
import sys
import time
import tracemalloc
import types

REAL = {
    "vllm.v1.core.block_pool",
    "vllm.v1.core.kv_cache_utils",
    "vllm.utils.hashing",
    "vllm.utils.math_utils",
}
STUBBED = ("vllm", "torch", "cbor2", "msgspec", "numpy", "xxhash", "zmq")
BLOCK = 16


class Stub:
    """Stands for any class, function or value."""

    def __init__(self, *args, **kwargs):
        pass

    def __init_subclass__(cls, **kwargs):
        pass

    def __class_getitem__(cls, item):
        return cls

    def __call__(self, *args, **kwargs):
        return args[0] if args else self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub()


class StubModule(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "init_logger":
            return lambda _: Stub()
        return type(name, (Stub,), {})


class StubFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name in REAL:
            folder = f"{sys.argv[1]}/{name.replace('.', '/')}.py"
            return importlib.util.spec_from_file_location(name, folder)
        if name.split(".")[0] in STUBBED:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return StubModule(spec.name)

    def exec_module(self, module):
        pass


class Request:
    """What the pool reads of a request."""

    def __init__(self, utils, hash_fn, tokens):
        self.request_id = "r"
        self.all_token_ids = tokens
        self.block_hashes = []
        for start in range(0, len(tokens) - BLOCK + 1, BLOCK):
            parent = self.block_hashes[-1] if self.block_hashes else None
            block = utils.hash_block_tokens(hash_fn, parent, tokens[start : start + BLOCK])
            self.block_hashes.append(block)


def median_ns(rounds, run):
    times = []
    for at in range(rounds):
        start = time.perf_counter_ns()
        run(at)
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times)


def filled(pools, utils, hash_fn, blocks, per_request):
    """Returns a pool of `blocks` blocks, all of them cached and free, and the requests that left them."""
    pool = pools.BlockPool(blocks + 1, True, BLOCK)
    requests = []
    for family in range(blocks // per_request):
        first = family * 1_000_003
        request = Request(utils, hash_fn, list(range(first, first + per_request * BLOCK)))
        held = pool.get_new_blocks(per_request)
        pool.cache_full_blocks(request, held, 0, per_request, BLOCK, 0)
        pool.free_blocks(reversed(held))
        request.all_token_ids = []
        requests.append(request)
    return pool, requests


def main():
    sys.meta_path.insert(0, StubFinder())
    pools = importlib.import_module("vllm.v1.core.block_pool")
    utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
    hash_fn = importlib.import_module("vllm.utils.hashing").sha256
    utils.init_none_hash(hash_fn)

    tokens = list(range(16_000))
    hashing = median_ns(21, lambda _: Request(utils, hash_fn, tokens))
    print(f"hash: {hashing / 16_000:.0f} ns per token")

    pool = pools.BlockPool(10_001, True, BLOCK)
    taken = median_ns(2001, lambda _: pool.free_blocks(pool.get_new_blocks(1)))
    print(f"a new block, with its free: {taken:.0f} ns")

    for blocks in (10_000, 1_000_000):
        tracemalloc.start()
        pool, requests = filled(pools, utils, hash_fn, blocks, 1000)
        held = [block_hash for request in requests for block_hash in request.block_hashes]
        metadata, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        hashes = sum(map(sys.getsizeof, held))
        print(f"{blocks} cached blocks: {(metadata - hashes) / blocks:.0f} B of metadata each, hashes aside")

        def find(request):
            found = []
            for block_hash in request.block_hashes:
                block = pool.get_cached_block(block_hash, [0])
                if block is None:
                    break
                found.append(block[0])
            pool.touch(found)
            return found

        in_use = {}

        def cached(at):
            in_use[at] = find(requests[at % len(requests)])

        rounds = min(9, len(requests))
        print(f"  find and pin 1,000 blocks, cached: {median_ns(rounds, cached) / 1000:.0f} us")
        again = median_ns(rounds, lambda at: find(requests[at % len(requests)]))
        print(f"  find and pin 1,000 blocks, in use: {again / 1000:.0f} us")
        times = []
        for _ in range(1000 if blocks > 10_000 else 500):
            start = time.perf_counter_ns()
            pool.get_new_blocks(1)
            times.append(time.perf_counter_ns() - start)
        times.sort()
        print(f"  eviction: median {times[len(times) // 2]} ns, p99 {times[len(times) * 99 // 100]} ns")


main()
