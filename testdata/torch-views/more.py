#!/usr/bin/env python3
"""Makes more programs of views, with what the PyTorch that is installed answers.

    more.py SEED COUNT FOLDER/torch-views/views.jsonl.gz
    cargo xtask golden --data FOLDER

Wider than the shipped ones: up to seven dimensions, dimensions without elements, and every twelfth argument or so beyond what
is allowed. Which piece of `split` and `chunk` is asked for exists, and no view has a negative size (PyTorch makes some).
"""
import gzip
import json
import math
import random
import sys

import torch

FORMATS = {
    "contiguous": torch.contiguous_format,
    "channels_last": torch.channels_last,
    "channels_last_3d": torch.channels_last_3d,
}
DTYPES = ["int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64", "bfloat16"]
REFUSALS = (RuntimeError, IndexError, ValueError, TypeError)


class Arguments:
    """What to ask of a tensor next."""

    def __init__(self, random, tensor):
        self.random, self.tensor = random, tensor
        self.rank, self.shape = tensor.dim(), list(tensor.shape)
        self.dim = self.any_dim()
        there = self.rank and -self.rank <= self.dim < self.rank
        self.size = self.shape[self.dim] if there else 1

    def rarely(self, share=0.08):
        return self.random.random() < share

    def any_dim(self):
        if self.rarely():
            return self.random.randint(-self.rank - 1, self.rank)
        return self.random.randint(-self.rank, self.rank - 1) if self.rank else self.random.choice([0, -1, 1])

    def factors(self, number, most):
        """Numbers whose product this is."""
        found = []
        while number > 1 and len(found) < most:
            divisors = [each for each in range(1, number + 1) if number % each == 0]
            found.append(self.random.choice(divisors[:8] + divisors[-2:]))
            number //= found[-1]
        return found + [number] * (number != 1)

    def with_one_to_infer(self, sizes, share=0.25):
        if sizes and self.rarely(share):
            sizes[self.random.randrange(len(sizes))] = -1
        if self.rarely():
            sizes.append(self.random.choice([2, -1, 0, -2]))
        return sizes

    def larger(self, keep):
        """A shape to expand to."""
        choice = self.random.choice
        sizes = [choice([1, 2, 3, 5, 0]) if size == 1 else choice([size, size, size, keep]) for size in self.shape]
        sizes = [choice([1, 2, 3]) for _ in range(choice([0, 0, 0, 1, 2]))] + sizes
        if sizes and self.rarely():
            sizes[self.random.randrange(len(sizes))] = choice([4, -1, 0, -2])
        return [sizes[1:] if self.rarely(0.05) else sizes]

    def squeeze(self):
        return self.random.choice([[], [self.dim]])

    def permute(self):
        order = list(range(self.rank))
        self.random.shuffle(order)
        order = [dim - self.rank if self.rarely(0.3) else dim for dim in order]
        if order and self.rarely():
            order[self.random.randrange(len(order))] = self.random.choice([0, self.rank, -1])
        return [order[1:] if self.rarely(0.05) else order]

    def reshape(self):
        sizes = self.factors(self.tensor.numel(), 6)
        self.random.shuffle(sizes)
        return [self.with_one_to_infer(sizes)]

    view = reshape

    def transpose(self):
        return [self.dim, self.any_dim()]

    flatten = movedim = transpose

    def contiguous(self):
        with_channels = {4: [["channels_last"]], 5: [["channels_last_3d"]]}
        return self.random.choice([[], ["contiguous"]] + with_channels.get(self.rank, []))

    def slice(self):
        near = lambda: self.random.randint(-self.size - 2, self.size + 2)
        step = self.random.choice([1, 1, 2, 3] + [0, -1, 5] * self.rarely(0.3))
        return [self.dim, near(), self.random.choice([near(), self.size, 10**9]), step]

    def expand(self):
        return self.larger(keep=-1)

    def broadcast_to(self):
        return self.larger(keep=1) if self.rarely() else self.larger(keep=-1)

    def as_strided(self):
        rank = self.random.randint(0, 4)
        sizes = [self.random.randint(0, 4) for _ in range(rank)]
        strides = [-1 if self.rarely(0.03) else self.random.randint(0, 5) for _ in range(rank)]
        return [sizes, strides, self.random.randint(0, 8)]

    def unsqueeze(self):
        return [self.random.randint(-self.rank - 2, self.rank + 1)]

    def t(self):
        return []

    def view_dtype(self):
        return [self.random.choice(DTYPES)]

    def chunk(self):
        pieces = 0 if self.rarely(0.03) else self.random.randint(1, 4)
        return [pieces, self.dim, self.random.randint(0, max(pieces - 1, 0))]

    def split(self):
        return [self.random.randint(0, self.size + 1), self.dim, self.random.randint(0, 2)]

    def select(self):
        return [self.dim, self.random.randint(-self.size - 1, self.size)]

    def narrow(self):
        return [self.dim, self.random.randint(-self.size, self.size), self.random.randint(0, self.size + 1)]

    def unflatten(self):
        return [self.dim, self.with_one_to_infer(self.factors(self.size, 3) or [1], 0.3)]

    def unfold(self):
        length = -1 if self.rarely() else self.random.randint(0, self.size + 1)
        return [self.dim, length, self.random.randint(0 if self.rarely() else 1, 3)]

    def diagonal(self):
        return [self.random.randint(-4, 4), self.dim, self.any_dim()]


OPS = [name for name in vars(Arguments) if name not in
       {"rarely", "any_dim", "factors", "with_one_to_infer", "larger"} and not name.startswith("__")]


def apply(tensor, op, arguments):
    """What PyTorch makes of it; `None` for a piece that is not there."""
    if op == "slice":
        return torch.ops.aten.slice.Tensor(tensor, *arguments)
    if op == "contiguous":
        return tensor.contiguous(**({"memory_format": FORMATS[arguments[0]]} if arguments else {}))
    if op == "view_dtype":
        return tensor.view(getattr(torch, arguments[0]))
    if op in ("chunk", "split"):
        pieces = getattr(tensor, op)(*arguments[:2])
        return pieces[arguments[2]] if arguments[2] < len(pieces) else None
    return getattr(tensor, op)(*arguments)


def told(tensor, base):
    """All that is compared."""
    rank, storage = tensor.dim(), tensor.untyped_storage().data_ptr()
    lies = lambda name: tensor.is_contiguous(memory_format=FORMATS[name])
    out = {
        "sizes": list(tensor.shape),
        "strides": list(tensor.stride()),
        "offset": tensor.storage_offset(),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "contiguous": tensor.is_contiguous(),
        "shares": storage != 0 and storage == base.untyped_storage().data_ptr(),
        "dense": bool(torch.ops.aten.is_non_overlapping_and_dense(tensor)),
        "channels_last": rank == 4 and lies("channels_last"),
        "channels_last_3d": rank == 5 and lies("channels_last_3d"),
    }
    if not tensor.is_floating_point():
        out["head"] = tensor.flatten()[:24].tolist()
        if tensor.dtype != torch.int64:
            out["sum"] = float(tensor.long().sum())
    return out


def program(random):
    sizes = [1, 2, 3, 4, 5, 6, *([0, 1] if random.random() < 0.15 else [])]
    shape = [random.choice(sizes) for _ in range(random.choice(range(8)))]
    base = torch.arange(math.prod(shape), dtype=torch.int32).reshape(shape)
    tensor, steps = base, []
    for _ in range(random.randint(1, 6)):
        op = random.choice(OPS)
        arguments = getattr(Arguments(random, tensor), op)()
        try:
            found = apply(tensor, op, arguments)
        except REFUSALS:
            steps.append({"op": op, "args": arguments, "error": True})
            continue
        too_much = found is None or found.numel() > 20_000 or found.dim() > 10
        if too_much or any(size < 0 for size in found.shape):
            continue
        tensor = found
        steps.append({"op": op, "args": arguments, "out": told(tensor, base)})
    return {"shape": shape, "ops": steps}


if __name__ == "__main__":
    seed, count, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    source = random.Random(seed)
    with gzip.open(path, "wt") as out:
        for _ in range(count):
            out.write(json.dumps(program(source)) + "\n")
