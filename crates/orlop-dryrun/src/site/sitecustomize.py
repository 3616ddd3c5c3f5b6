"""Runs at the start of each Python process of a dry run.

Records what PyTorch allocates from the import of torch on, and writes at the end of the process: the snapshot,
what PyTorch counted, and what the dry run answered. A module of the same name that it hides is run too.
"""
import atexit
import ctypes
import importlib.machinery
import importlib.util
import os
import sys

import orlop_dry_run_hooks as hooks
import orlop_dry_run_lines as lines
import orlop_dry_run_values as values

HERE = os.path.dirname(os.path.abspath(__file__))
OUTPUT = os.environ["ORLOP_DRY_RUN_OUTPUT"]
KEPT = []


def run_hidden_module():
    """Runs the sitecustomize that would have run without this one."""
    others = [path for path in sys.path if os.path.abspath(path or ".") != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def file_name(name):
    """Returns a path in the output folder. Processes but the first have their number in it."""
    owner = os.environ.setdefault("ORLOP_DRY_RUN_PROCESS", str(os.getpid()))
    here = str(os.getpid())
    stem, extension = os.path.splitext(name)
    return os.path.join(OUTPUT, name if owner == here else f"{stem}.{here}{extension}")


def write_results(process):
    """Writes the snapshot and the counters, if this process used a device."""
    import json

    import torch

    lines.stop()
    if os.getpid() != process or not torch.cuda.is_initialized():
        return
    devices = range(torch.cuda.device_count())
    free = [torch.cuda.mem_get_info(device) for device in devices]
    counters = [dict(torch.cuda.memory_stats(device)) for device in devices]
    # A worker that compiles kernels or loads data can initialize CUDA without a request.
    if not any(each.get("allocation.all.allocated") or each.get("num_ooms") for each in counters):
        return
    with open(file_name("counters.json"), "w") as file:
        json.dump({"torch": torch.__version__, "free_and_total": free, "counters": counters}, file)
    torch.cuda.memory._dump_snapshot(file_name("snapshot.pickle"))
    report = ctypes.CDLL(lines.LIBRARY).orlop_dry_run_report
    report(file_name("answers.json").encode())


def start_recording(torch):
    # No stacks of frees: PyTorch 2.11 loses a pending Python exception when it records one, such as the exception
    # that ends the recomputation of checkpoint().
    # PyTorch counts the devices for it. That is not a use of CUDA by the program, whose children may be forked.
    library = ctypes.CDLL(lines.LIBRARY)
    is_used = library.orlop_dry_run_swap_use(0)
    torch.cuda.memory._record_memory_history(context="alloc", stacks="python")
    library.orlop_dry_run_swap_use(is_used)
    lines.start()
    atexit.register(write_results, os.getpid())
    os.register_at_fork(after_in_child=write_results_of_child)


def write_results_of_child():
    """Writes the results of a process that multiprocessing forked, which does not run what is registered with
    atexit."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        # Finalizers of the parent are cleared after the fork; this runs after that.
        register = lambda _: util.Finalize(None, write_results, (os.getpid(),), exitpriority=0)
        util.register_after_fork(write_results, register)


def before_torch():
    import importlib.metadata

    try:
        requirements = importlib.metadata.requires("torch")
    except importlib.metadata.PackageNotFoundError:
        # Not installed as a package.
        return
    hooks.match_cudnn(requirements, ctypes.CDLL(lines.LIBRARY).orlop_dry_run_set_cudnn_version)


def after_torch(torch):
    start_recording(torch)
    hooks.skip_checkpoints(torch)
    hooks.print_without_doubts(torch, ctypes.CDLL(lines.LIBRARY).orlop_dry_run_swap_silence)
    # Operations have their replacements for as long as PyTorch's library object exists.
    KEPT.append(values.compute_on_host(torch, lines.LIBRARY))


class HookFinder:
    """Finds modules as the finders after it do, and runs a hook when one of them was imported."""

    hooks = {"torch": after_torch, **hooks.AFTER_IMPORT}
    searched = set()

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in cls.hooks or name in cls.searched:
            return None
        cls.searched.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            cls.searched.discard(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_hook(module):
            if name == "torch":
                before_torch()
            run(module)
            # A program may search for a module without importing it.
            hook = cls.hooks.pop(name, None)
            if hook is not None:
                hook(module)

        spec.loader.exec_module = run_and_hook
        return spec


file_name("")
hooks.choose_without_times(os.environ)
sys.meta_path.insert(0, HookFinder)
run_hidden_module()
