"""What Python libraries do otherwise in a dry run, because values are noise.

Each function takes an imported module. One that finds a module of another form leaves it as it is.
"""
import functools
import os
import pickle
import re
import stat
import sys
import threading

ALLOW_CHECKPOINTS = "ORLOP_DRY_RUN_ALLOW_CHECKPOINTS"


def say_once(text, said=set()):
    if text not in said:
        said.add(text)
        print(f"orlop dry-run: {text}", file=sys.stderr)


def choose_without_times(environment):
    """`torch.compile(mode="max-autotune")` compares times, which are all equal, and takes the first of the fastest
    kernels: that of the library. The others need not be compiled, which takes minutes."""
    for operation in ("GEMM", "CONV"):
        environment.setdefault(f"TORCHINDUCTOR_MAX_AUTOTUNE_{operation}_BACKENDS", "ATEN")


def is_file(target):
    """Returns whether a target is a path, or an object that writes to a regular file."""
    if isinstance(target, (str, os.PathLike)):
        return True
    try:
        return target.writable() and stat.S_ISREG(os.fstat(target.fileno()).st_mode)
    except (AttributeError, OSError, TypeError, ValueError):
        # No file object, one in memory, or a closed one.
        return False


def skipping(save, what, target_of):
    """Returns a function that writes nothing where `save` would write a file."""

    @functools.wraps(save)
    def skip(*arguments, **named):
        if not is_file(target_of(arguments, named)):
            return save(*arguments, **named)
        say_once(f"{what} wrote nothing, as its values are noise; --allow-checkpoints writes them")

    return skip


def match_cudnn(requirements, set_version):
    """Sets the version of cuDNN to that which PyTorch requires, before it reads that."""
    found = re.search(r"nvidia-cudnn-cu\d+ ?\(?==(\d+)\.(\d+)\.(\d+)", "\n".join(requirements or ()))
    if found:
        major, minor, patch = map(int, found.groups())
        set_version(major * (10_000 if major >= 9 else 1_000) + minor * 100 + patch)


def skip_checkpoints(torch):
    """Checkpoints are not written to files: `torch.save`."""
    if not os.environ.get(ALLOW_CHECKPOINTS) and hasattr(torch, "save"):
        target_of = lambda arguments, named: named["f"] if "f" in named else (*arguments, None, None)[1]
        torch.save = skipping(torch.save, "torch.save", target_of)


def print_without_doubts(torch, swap_silence):
    """To print a tensor, PyTorch selects its elements that are not zero: for their format alone."""
    text_of = getattr(getattr(torch, "_tensor_str", None), "_str", None)
    if text_of is None:
        return

    @functools.wraps(text_of)
    def text_without_doubts(*arguments, **named):
        was_silent = swap_silence(1)
        try:
            return text_of(*arguments, **named)
        finally:
            swap_silence(was_silent)

    torch._tensor_str._str = text_without_doubts


def skip_safetensors(module):
    """Checkpoints are not written to files: `safetensors.torch.save_file`."""
    if not os.environ.get(ALLOW_CHECKPOINTS) and hasattr(module, "save_file"):
        target_of = lambda arguments, named: named["filename"] if "filename" in named else (*arguments, None, None)[1]
        module.save_file = skipping(module.save_file, "safetensors.torch.save_file", target_of)


def generate_to_the_limit(utils):
    """No sequence that `generate` makes ends before the limit of its length.

    That decides it from tokens on the device. The limit is known on the host, and is the longest that a
    sequence gets.
    """
    mixin = getattr(utils, "GenerationMixin", None)
    criteria = getattr(utils, "MaxLengthCriteria", None)
    if not hasattr(mixin, "_has_unfinished_sequences") or criteria is None:
        return
    has_unfinished, is_at_limit = mixin._has_unfinished_sequences, criteria.__call__
    # Whether the check before told that the limit is reached, by thread; without an entry before the first check.
    is_reached_in = {}

    @functools.wraps(is_at_limit)
    def check(self, input_ids, *arguments, **named):
        is_reached_in[threading.get_ident()] = input_ids.shape[1] >= self.max_length
        return is_at_limit(self, input_ids, *arguments, **named)

    @functools.wraps(has_unfinished)
    def has_unfinished_by_length(self, this_peer_finished, *arguments, **named):
        is_reached = is_reached_in.pop(threading.get_ident(), None)
        if is_reached is None:
            return has_unfinished(self, this_peer_finished, *arguments, **named)
        say_once("sequences of generate() go on to the limit of their length")
        return not is_reached

    criteria.__call__ = check
    mixin._has_unfinished_sequences = has_unfinished_by_length


def broadcast_through_store(c10d):
    """Ranks get the objects of `broadcast_object_list` through the store by which they met.

    Collectives carry no values from one process to another.
    """
    needed = "broadcast_object_list", "get_process_group_ranks", "get_rank", "_get_default_store", "GroupMember"
    if not all(hasattr(c10d, name) for name in needed):
        return
    broadcast = c10d.broadcast_object_list
    # How many lists the ranks of each group have had.
    counts = {}

    @functools.wraps(broadcast)
    def through_store(object_list, src=None, group=None, device=None, group_src=None):
        if group == c10d.GroupMember.NON_GROUP_MEMBER:
            # What `new_group` returned to a rank outside of it: PyTorch warns, and does nothing else.
            return broadcast(object_list, src or 0, group)
        ranks = tuple(c10d.get_process_group_ranks(group or c10d.GroupMember.WORLD))
        if c10d.get_rank() not in ranks:
            return
        root = (src or 0) if group_src is None else ranks[group_src]
        counts[ranks] = counts.get(ranks, 0) + 1
        key = f"orlop_dry_run/broadcast/{ranks}/{root}/{counts[ranks]}"
        store = c10d._get_default_store()
        if c10d.get_rank() == root:
            store.set(key, pickle.dumps(list(object_list)))
        else:
            object_list[:] = pickle.loads(store.get(key))

    c10d.broadcast_object_list = through_store


AFTER_IMPORT = {
    "torch.distributed.distributed_c10d": broadcast_through_store,
    "safetensors.torch": skip_safetensors,
    "transformers.generation.utils": generate_to_the_limit,
}
