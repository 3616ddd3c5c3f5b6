"""Computes small tensors on the host: those that follow from values which the host knows.

Kernels do nothing in a dry run. But masks of padding, lengths, positions and labels follow from tensors that the
program copied to the device or filled, and they decide sizes and branches. An operation of `OPERATIONS` runs as it
does without this module, so that it allocates the same; if all of its operands are known, then it is repeated on
the host, and its results are known too. They are kept by storage, for as long as the storage exists.
"""
import ctypes
import functools
import threading
import warnings

MAX_BYTES = 64 << 10
MAX_STORAGES = 4096

# Operations whose results are known if their operands are. In-place forms have an underscore more.
OPERATIONS = set(
    "abs add all amax amin any argmax argmin bitwise_and bitwise_left_shift bitwise_not bitwise_or"
    " bitwise_right_shift bitwise_xor bucketize cat ceil clamp clamp_max clamp_min copy count_nonzero cumprod cumsum"
    " div equal eq exp fill flip floor floor_divide fmod gather ge gt index index_add index_copy index_fill"
    " index_put _index_put_impl index_select isin isnan le log logical_and logical_not logical_or logical_xor lt"
    " masked_fill masked_scatter max maximum mean min minimum mul ne neg nonzero pow reciprocal remainder"
    " repeat_interleave roll round rsqrt scatter scatter_add searchsorted sign sort sqrt sub sum topk tril triu trunc"
    " unique_consecutive unique_dim _unique2 where zero bincount histc _local_scalar_dense".split()
)
# Factories that write to an argument.
FACTORIES = {"aten::arange.start_out", "aten::linspace.out", "aten::eye.m_out", "aten::eye.out"}
# What writes random values, or values that no operand tells.
RANDOM = set("bernoulli_ cauchy_ exponential_ geometric_ log_normal_ normal_ random_ uniform_".split())
# What changes a scale in training only if a gradient is not finite.
SCALES = {"_amp_foreach_non_finite_check_and_unscale_", "_amp_update_scale_"}
# Operations whose kernels write to a result that they have filled with zeros.
ZEROED = {"unfold_backward", "col2im"}
# In-place operations whose result does not depend on what was there.
OVERWRITING = {"fill_", "zero_", "copy_"}
# Operations whose results have as many rows as their values tell.
SIZED = {"nonzero", "_unique2", "unique_consecutive", "unique_dim"}
# Replaced in a backward pass too: that of `x[mask]` searches the elements of the mask again.
IN_BACKWARD = {"aten::nonzero"}

REPEATS, BINS = 0, 1
NUMBERS = (bool, int, float, complex)


class Unknown(Exception):
    """An operand is not known."""


class ThreadState(threading.local):
    """What a thread does."""

    # Whether an operand of the operation follows from bins that are assumed to be even.
    is_assumed = False
    # Whether `bincount` runs and was told how many bins there are.
    has_bins = False
    # What `all` of what is not known is, except in `equal` with a known flag.
    all_is = True
    # Whether it computes a part of the forward pass again, in a backward pass.
    computes_again = False
    # The number of its first operation; 0 before that.
    first_operation = 0


class Threads:
    """The threads of the program that run models at once."""

    def __init__(self, torch):
        self.state = ThreadState()
        # The number of the operation that ran last, in all threads and in each.
        self.operations, self.last_operations = 0, {}
        self.is_in_backward = lambda: torch._C._current_graph_task_id() != -1

    def note(self):
        """Notes an operation of this thread, unless it is one that PyTorch has for backward passes."""
        if self.is_in_backward():
            return
        self.operations += 1
        self.last_operations[threading.get_ident()] = self.operations
        self.state.first_operation = self.state.first_operation or self.operations

    def is_alone(self):
        """Returns whether no other thread that lives ran an operation since the first one of this thread."""
        own, first = threading.get_ident(), self.state.first_operation
        alive = {thread.ident for thread in threading.enumerate()} - {own}
        return not any(self.last_operations.get(other, 0) > first for other in alive)


class Values:
    """The storages of devices whose bytes are known. The library keeps the bytes by address, also after the memory
    is another tensor's; this says for which storages they are kept."""

    def __init__(self, torch, library):
        from torch.multiprocessing.reductions import StorageWeakRef

        self.torch, self.library, self.reference = torch, library, StorageWeakRef
        # A reference, the number of bytes, the version of tensors at which they are known, and whether they follow
        # from bins that are assumed to be even, by the address of the storage's object. PyTorch counts what is written
        # in place. All threads have the same storages.
        self.storages = {}
        self.expired_at = MAX_STORAGES
        self.threads = Threads(torch)
        self.thread = self.threads.state

    def view(self, tensor, data):
        """Returns the tensor of the host that is in `data` what a tensor is in its storage."""
        view = self.torch.empty(0, dtype=tensor.dtype, device="cpu")
        return view.set_(data.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())

    def storage_of(self, tensor):
        """Returns the bytes of the storage of a tensor; raises `Unknown`."""
        storage = tensor.untyped_storage()
        _, size, known_at, is_assumed = self.storages.get(storage._cdata, (None, 0, None, False))
        if size and size == storage.nbytes() and version(tensor) == known_at:
            data = self.torch.empty(size, dtype=self.torch.uint8, device="cpu")
            if self.library.orlop_dry_run_read(storage.data_ptr(), size, data.data_ptr()) == 0:
                self.thread.is_assumed |= is_assumed
                return data
        self.forget(tensor)
        raise Unknown

    def of(self, tensor):
        """Returns the values of a tensor; raises `Unknown`."""
        # As many bytes as the results of element-wise operations, for an expanded tensor too.
        if tensor.numel() * tensor.element_size() > MAX_BYTES:
            raise Unknown
        if tensor.device.type == "cpu":
            return tensor
        # The bits of a conjugate or negative view are not those of its values.
        if tensor.device.type != "cuda" or tensor.is_conj() or tensor.is_neg():
            raise Unknown
        return self.view(tensor, self.storage_of(tensor))

    def keep(self, tensor, values, known_at, before=None):
        """Keeps the values of a tensor in a small storage, which was known `before` or has nothing else in it."""
        storage = tensor.untyped_storage()
        size = storage.nbytes()
        if not 0 < size <= MAX_BYTES or tensor.device.type != "cuda" or values.size() != tensor.size():
            return
        # Nothing counts what is written to a tensor of inference mode.
        if tensor.is_inference() or tensor.is_conj() or tensor.is_neg():
            return self.forget(tensor)
        if before is None:
            before = self.torch.zeros(size, dtype=self.torch.uint8, device="cpu")
        self.view(tensor, before).copy_(values)
        if len(self.storages) >= self.expired_at:
            # Another thread can add one.
            for key in [key for key, known in list(self.storages.items()) if known[0].expired()]:
                self.storages.pop(key, None)
            self.expired_at = max(MAX_STORAGES, 2 * len(self.storages))
        self.storages[storage._cdata] = self.reference(storage), size, known_at, self.thread.is_assumed
        self.library.orlop_dry_run_write(storage.data_ptr(), size, before.data_ptr())

    def forget(self, tensor):
        self.storages.pop(tensor.untyped_storage()._cdata, None)

    def operands(self, values):
        """Returns arguments with the values of the host in place of tensors; raises `Unknown`."""
        if isinstance(values, self.torch.Tensor):
            return self.of(values)
        if isinstance(values, (list, tuple)):
            return type(values)(self.operands(value) for value in values)
        return values

    def expect(self, tensor, values):
        """Tells the library what the next read of a tensor returns."""
        values, size = values.contiguous(), tensor.numel() * tensor.element_size()
        if tensor.is_contiguous() and size:
            self.library.orlop_dry_run_expect(tensor.data_ptr(), size, values.data_ptr())

    def tensors(self, values):
        """Returns the tensors of devices among arguments or results."""
        if isinstance(values, self.torch.Tensor):
            return [values] if values.device.type == "cuda" else []
        if isinstance(values, (list, tuple)):
            return [tensor for value in values for tensor in self.tensors(value)]
        return []


def is_not_a_number(value):
    """Returns whether a result is one number, and that is none: the mean of nothing, such as a loss over what an
    assumed mask selects. Healthy training has no such result."""
    return value.dim() == 0 and value.is_floating_point() and bool(value.isnan())


def version(tensor):
    return None if tensor.is_inference() else tensor._version


def version_written(tensor, was_known):
    """Returns the version of a tensor after an operation that writes it in place: PyTorch counts that when the
    operation has returned, but not if a factory called it."""
    now = version(tensor)
    return now if now is None or (now == 0 and not was_known) else now + 1


class Operation:
    """An operation for CUDA that is repeated on the host."""

    def __init__(self, values, name):
        torch = values.torch
        self.values, self.original = values, torch.library.get_kernel(name, "CUDA")
        base, _, overload = name.removeprefix("aten::").partition(".")
        self.base, self.host = base, getattr(getattr(torch.ops.aten, base), overload or "default")
        self.is_in_place = base.endswith("_")
        self.is_factory = name in FACTORIES
        schema = self.host._schema.arguments
        self.of_tensors = [index for index, argument in enumerate(schema) if str(argument.type) == "Tensor"]

    def __call__(self, keys, *arguments, **named):
        self.values.threads.note()
        try:
            with self.values.torch._C.DisableTorchFunction():
                return self.run(keys, arguments, named)
        except BaseException:
            # The exception keeps this frame: it must not keep tensors.
            del arguments, named
            raise

    def run(self, keys, arguments, named):
        values = self.values
        if values.torch.cuda.is_current_stream_capturing():
            return self.captured(keys, arguments, named)
        values.thread.is_assumed = False
        before = self.storage_before(arguments)
        operands = self.operands_of(arguments, named)
        is_assumed = values.thread.is_assumed
        arguments = self.without_numbers(arguments)
        read = self.read_by_host(arguments)
        if operands is None:
            return self.run_unknown(keys, arguments, named, read)
        if is_assumed and (read is not None or self.base in SIZED):
            values.library.orlop_dry_run_assume(BINS)
        if read is not None:
            values.expect(read, operands[0][0 if self.base == "_local_scalar_dense" else 1])
        computed = self.compute(*operands) if self.base in SIZED else None
        if self.base in SIZED:
            self.expect_size(arguments, named, computed)
        try:
            result = self.original.call_boxed(keys, *arguments, **named)
        finally:
            if self.base in SIZED:
                values.library.orlop_dry_run_expect_size(-1)
        if self.base not in SIZED and self.is_small(result):
            computed = self.compute(*operands)
        values.thread.is_assumed = is_assumed
        return result if self.base == "copy_" and read is not None else self.keep(result, computed, before)

    def run_unknown(self, keys, arguments, named, read):
        """Runs an operation of which an operand is not known."""
        values = self.values
        if read is not None and values.thread.has_bins:
            # Minima and maxima of `bincount`: no index is outside of the bins that it was told.
            values.expect(read, values.torch.zeros(read.size(), dtype=read.dtype, device="cpu"))
        elif read is not None:
            values.library.orlop_dry_run_distrust(read.data_ptr(), read.numel() * read.element_size())
        changed, named = self.assumed(arguments, named)
        thread = values.thread
        has_bins, all_is = thread.has_bins, thread.all_is
        thread.has_bins = self.base == "bincount" and bool((*arguments, None, 0)[2])
        if self.base == "equal":
            thread.all_is = self.is_equal(arguments)
        try:
            result = self.original.call_boxed(keys, *arguments, **named)
        finally:
            thread.has_bins, thread.all_is = has_bins, all_is
        if not changed:
            values.thread.is_assumed = False
            self.unknown(arguments, result)
        return result

    def is_equal(self, arguments):
        """Returns whether tensors that are not known are taken to be equal: all but a flag that is false, as it reads,
        and one that is known."""
        if any(tensor.numel() != 1 or tensor.dtype != self.values.torch.bool for tensor in arguments):
            return True
        for tensor in arguments:
            try:
                return not self.values.of(tensor).item()
            except Unknown:
                pass
        return True

    def captured(self, keys, arguments, named):
        """Runs an operation that is captured: what it writes and returns depends on the replays."""
        arguments = self.without_numbers(arguments)
        result = self.original.call_boxed(keys, *arguments, **named)
        for tensor in self.values.tensors((arguments[:1], named.get("out"), result)):
            self.values.forget(tensor)
        return result

    def is_small(self, result):
        """Returns whether a result is of a size that the host computes."""
        tensors = self.values.tensors(result)
        return all(tensor.untyped_storage().nbytes() <= MAX_BYTES for tensor in tensors)

    def read_by_host(self, arguments):
        """Returns the tensor of a device that the host reads."""
        if self.base == "_local_scalar_dense":
            return arguments[0]
        if self.base == "copy_" and arguments[0].device.type == "cpu" and arguments[1].device.type == "cuda":
            return arguments[1]
        return None

    def storage_before(self, arguments):
        """Returns the bytes of the storage that an operation writes in place; `None` if they are not known."""
        if not self.is_in_place or arguments[0].device.type != "cuda":
            return None
        try:
            return self.values.storage_of(arguments[0])
        except Unknown:
            return None

    def without_numbers(self, arguments):
        """Returns arguments with tensors of the host in place of numbers: PyTorch gives a tensor that stands for a
        number as the number, and does not take it back. The type of the result does not change."""
        given = (index for index in self.of_tensors if index < len(arguments))
        numbers = [index for index in given if isinstance(arguments[index], NUMBERS)]
        if not numbers:
            return arguments
        torch, changed = self.values.torch, list(arguments)
        # The last one: the first of `where` is its condition.
        other = next(value for value in reversed(arguments) if isinstance(value, torch.Tensor))
        for index in numbers:
            dtype = torch.result_type(other, changed[index])
            changed[index] = torch.scalar_tensor(changed[index], dtype=dtype, device="cpu")
        return tuple(changed)

    def operands_of(self, arguments, named):
        """Returns the operands on the host; `None` if they are not all known."""
        values = self.values
        first = arguments[0] if arguments else None
        if isinstance(first, values.torch.Tensor) and first.numel() * first.element_size() > MAX_BYTES:
            return None
        try:
            if self.is_factory:
                out = named["out"]
                out = values.torch.empty(0, dtype=out.dtype, device="cpu")
                return values.operands(arguments), {**named, "out": out}
            if self.base in OVERWRITING:
                return (self.overwritten(first), *values.operands(arguments[1:])), named
            named = {name: values.operands(value) for name, value in named.items()}
            return values.operands(arguments), named
        except Unknown:
            return None

    def overwritten(self, tensor):
        """Returns a tensor of the host that an operation overwrites."""
        try:
            return self.values.of(tensor)
        except Unknown:
            if tensor.numel() * tensor.element_size() != tensor.untyped_storage().nbytes():
                raise
            return self.values.torch.empty(tensor.size(), dtype=tensor.dtype, device="cpu")

    def compute(self, arguments, named):
        """Returns the result on the host; `None` if the host cannot compute it."""
        try:
            return self.host(*arguments, **named)
        except Exception:
            return None

    def keep(self, result, computed, before):
        values, torch = self.values, self.values.torch
        if computed is None:
            for tensor in values.tensors(result):
                values.forget(tensor)
            return result
        if not isinstance(result, (torch.Tensor, list, tuple)):
            return computed
        pairs = [(result, computed)] if isinstance(result, torch.Tensor) else zip(result, computed)
        for tensor, value in pairs:
            if self.base != "copy_" and is_not_a_number(value):
                values.forget(tensor)
                continue
            known_at = version_written(tensor, before is not None) if self.is_in_place else version(tensor)
            values.keep(tensor, value, known_at, before)
        return result

    def expect_size(self, arguments, named, computed):
        """Tells the library how many rows the result has."""
        if computed is not None:
            rows = computed if self.base == "nonzero" else computed[0]
            dim = (named.get("dim", (*arguments, 0)[1])) if self.base == "unique_dim" else 0
            self.values.library.orlop_dry_run_expect_size(rows.size(dim))

    def assumed(self, arguments, named):
        """Returns whether the result is assumed, and the named arguments with which it is."""
        if self.base == "repeat_interleave" and (*arguments, named)[0].dim() == 1:
            if named.get("output_size") is None and len(arguments) == 1:
                self.values.library.orlop_dry_run_assume(REPEATS)
                return True, {**named, "output_size": arguments[0].numel()}
        return False, named

    def unknown(self, arguments, result):
        """Notes a result that is not known, or is what it is in healthy training."""
        values, torch = self.values, self.values.torch
        if self.is_in_place:
            values.forget(arguments[0]) if arguments[0].device.type == "cuda" else None
        elif not isinstance(result, torch.Tensor) or result.device.type != "cuda":
            pass
        elif self.base == "all" and result.numel() == 1:
            found = torch.full(result.size(), values.thread.all_is, dtype=result.dtype, device="cpu")
            values.keep(result, found, version(result))
        elif self.base in ("eq", "ne") and arguments[0] is arguments[1]:
            equal = torch.full(result.size(), self.base == "eq", dtype=result.dtype, device="cpu")
            values.keep(result, equal, version(result))
        elif self.base == "histc" or (self.base == "bincount" and arguments[1:2] in ((), (None,))):
            self.share(result, arguments[0].numel())

    def share(self, result, elements):
        """Takes elements to be spread evenly over bins."""
        values, torch = self.values, self.values.torch
        bins = torch.arange(result.numel(), device="cpu")
        counts = (elements + result.numel() - 1 - bins).div(result.numel(), rounding_mode="floor")
        values.thread.is_assumed = True
        values.keep(result, counts.to(result.dtype), version(result))


class Written:
    """An operation after which what it wrote is not known; after one of `SCALES`, it is what it was."""

    def __init__(self, values, name):
        self.values, self.original = values, values.torch.library.get_kernel(name, "CUDA")
        base = name.removeprefix("aten::").partition(".")[0]
        self.is_scale, self.is_zeroed = base in SCALES, base in ZEROED

    def __call__(self, keys, *arguments, **named):
        self.values.threads.note()
        result = self.original.call_boxed(keys, *arguments, **named)
        written = arguments if self.is_scale else result if self.is_zeroed else arguments[0]
        for tensor in self.values.tensors(written):
            known = self.values.storages.pop(tensor.untyped_storage()._cdata, None)
            if known is not None and self.is_scale:
                known = (*known[:2], version_written(tensor, True), known[3])
                self.values.storages[tensor.untyped_storage()._cdata] = known
        return result


def compute_on_host(torch, library):
    """Replaces the operations of a PyTorch that lets their kernels be called from Python."""
    if not hasattr(getattr(torch, "library", None), "get_kernel"):
        return None
    if not hasattr(torch._C, "_dispatch_get_all_op_names"):
        return None
    library = ctypes.CDLL(library)
    for name in ("read", "write", "expect"):
        getattr(library, f"orlop_dry_run_{name}").argtypes = [ctypes.c_size_t] * 3
    library.orlop_dry_run_distrust.argtypes = [ctypes.c_size_t] * 2
    library.orlop_dry_run_expect_size.argtypes = [ctypes.c_int64]
    values = Values(torch, library)
    names = torch._C._dispatch_get_all_op_names()
    found = {name: replacement(torch, values, name) for name in names}
    replaced = Replaced(torch, values.threads, {name: each for name, each in found.items() if each is not None})
    graph = torch.autograd.graph
    if hasattr(graph, "_engine_run_backward"):
        replaced.leave_out(graph, "_engine_run_backward", (torch.autograd, graph))
        replaced.compute_again(torch.enable_grad)
    replay = torch.cuda.CUDAGraph.replay

    @functools.wraps(replay)
    def replay_and_forget(graph, *arguments, **named):
        # Any tensor may be written.
        values.storages.clear()
        return replay(graph, *arguments, **named)

    torch.cuda.CUDAGraph.replay = replay_and_forget
    return replaced


class Replaced:
    """The operations that are replaced for as long as they are registered."""

    def __init__(self, torch, threads, operations):
        in_backward = {name: each for name, each in operations.items() if name in IN_BACKWARD}
        self.torch, self.threads, self.registered = torch, threads, None
        self.operations = {name: each for name, each in operations.items() if name not in IN_BACKWARD}
        self.always = self.registration(in_backward)
        # Whether the thread of each backward pass is the only one that runs models, by thread, and how many threads
        # compute a part of the forward pass again. What is registered is so for all threads: if several run models,
        # then none of them takes back what another one needs.
        self.lock, self.backward_passes, self.threads_again = threading.RLock(), {}, 0
        self.change()

    def registration(self, operations):
        registered = self.torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            # PyTorch says that a kernel is replaced.
            warnings.simplefilter("ignore")
            for name, operation in operations.items():
                registered.impl(name, operation, "CUDA", with_keyset=True)
        return registered

    def change(self, threads_again=0):
        """Registers the operations or takes them back."""
        with self.lock:
            self.threads_again += threads_again
            if len(self.backward_passes) > 1:
                self.backward_passes = dict.fromkeys(self.backward_passes, False)
            is_needed = self.threads_again > 0 or not any(self.backward_passes.values())
            if is_needed and self.registered is None:
                self.registered = self.registration(self.operations)
            elif not is_needed and self.registered is not None:
                self.registered, registered = None, self.registered
                registered._destroy()

    def leave_out(self, module, name, importers):
        """Replaces nothing but `IN_BACKWARD` in a backward pass. Autograd adds gradients in place if nothing else has
        a reference to them; a tensor that Python saw has one."""
        run = getattr(module, name)

        @functools.wraps(run)
        def run_without(*arguments, **named):
            threads, state, thread = self.threads, self.threads.state, threading.get_ident()
            again, state.computes_again = state.computes_again, False
            is_outermost = not threads.is_in_backward()
            threads.note()
            with self.lock:
                if is_outermost:
                    self.backward_passes[thread] = threads.is_alone()
                self.change(-again)
            try:
                return run(*arguments, **named)
            finally:
                state.computes_again = again
                with self.lock:
                    if is_outermost:
                        self.backward_passes.pop(thread, None)
                    self.change(again)

        for importer in importers:
            if getattr(importer, name, None) is run:
                setattr(importer, name, run_without)

    def compute_again(self, enable_grad):
        """Replaces the operations where a backward pass computes a part of the forward pass again, as `checkpoint`
        does: with gradients enabled."""
        enter, leave, threads = enable_grad.__enter__, enable_grad.__exit__, self.threads

        @functools.wraps(enter)
        def enter_and_register(guard):
            enter(guard)
            if threads.is_in_backward() and not threads.state.computes_again:
                guard.is_computed_again = threads.state.computes_again = True
                self.change(1)

        @functools.wraps(leave)
        def suspend_and_leave(guard, *exception):
            if guard.__dict__.pop("is_computed_again", False):
                threads.state.computes_again = False
                self.change(-1)
            return leave(guard, *exception)

        enable_grad.__enter__, enable_grad.__exit__ = enter_and_register, suspend_and_leave


def replacement(torch, values, name):
    """Returns what replaces an operation for CUDA; `None` for the others."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    if not name.startswith("aten::") or not any(has_kernel(name, key) for key in ("CUDA", "CompositeExplicitAutograd")):
        return None
    base, _, overload = name.removeprefix("aten::").partition(".")
    if base in RANDOM | SCALES | ZEROED:
        return Written(values, name)
    stem = base.removesuffix("_")
    is_out = overload == "out" or overload.endswith("_out")
    if name in FACTORIES or (stem in OPERATIONS and not is_out and not overload.startswith("names_")):
        return Operation(values, name)
    return None
