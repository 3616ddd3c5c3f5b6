#!/usr/bin/env python3
"""Writes the table of crates/orlop-dryrun-cuda/src/cudnn/measured_workspaces.txt, and says how well it predicts.

    learn.py convolutions-measured.jsonl.xz TABLE [--tune] [--without TABLE]

The weights of the features are those of the table that is there; with --tune, multiples of them are tried on a sample
of the convolutions, one feature after the other, and the report is about the others. With a table like
convolutions-h100.txt, convolutions with the same weights as one of it are left out. Needs numpy.
"""
import argparse
import json
import lzma
import math
import os
from math import log2, prod

import numpy as np

MAX_WEIGHTS, MAX_WEIGHT_BYTES, MAX_OTHER_BYTES = 128, 48 << 20, 4 << 20
COPIES = ("0", "X", "Y", "XY")
MULTIPLES = np.array([*range(33), *range(34, 65, 2), *range(68, 129, 4), *range(136, 257, 8)])
DIRECTIONS = ("fwd", "dgrad", "wgrad")
LAYOUTS = ("contiguous", "channels last")
TYPES = {"float32": 0, "float16": 2, "bfloat16": 9}
FEATURES = ("batch channels filters input output kernel stride groups depthwise single bfloat16 input8 channels8 "
            "filters8 output8 positions weights deterministic volume few-channels few-filters group-channels height "
            "pointwise").split()
NEAREST = 9
SOFTNESS = 0.3
SAMPLE = 2500
ROUNDS = 3
FACTORS = (0, 0.5, 0.7, 1.4, 2, 4)
HEAD = """\
# The workspaces of cuDNN's convolutions, as measured with PyTorch 2.11 and cuDNN 9.19 on an H100.
#
# First a line for each direction and layout (1: channels last): how much features count in the distance of two
# convolutions. Then a line for each convolution: sizes of input, output and weights, the data type, the layout, whether
# only deterministic algorithms were allowed, and for each direction what its workspace is made of: copies of the input
# (X) and the output (Y), and a number of copies of the weights, each with padded channels.
"""


def read(path):
    rows = []
    for line in lzma.open(path, "rt"):
        kind, x, y, w, _, _, _, _, dtype, last, deterministic, measured = json.loads(line)
        forward, data, weights = (measured[name][0] for name in DIRECTIONS)
        if kind == "t":
            # cuDNN computes a transposed convolution as the gradient of the input of one.
            x, y, forward, data = y, x, data, forward
        element = 4 if dtype == "float32" else 2
        rows.append(dict(x=x, y=y, w=w, type=TYPES[dtype], last=last, deterministic=deterministic, e=element,
                         fwd=forward, dgrad=data, wgrad=weights))
    return rows


def padded(row):
    """The bytes of the input, the output and the weights, with channels padded to 16 bytes; few are padded to 4, if
    they are of half precision."""
    unit = 16 // row["e"]
    up = lambda count: -(-count // unit) * unit
    few = lambda count: (4 if row["e"] == 2 else count) if count < 4 else up(count)
    (n, c, *image), k, w = row["x"], row["y"][1], row["w"]
    x = n * few(c) * prod(image) * row["e"]
    y = n * few(k) * prod(row["y"][2:]) * row["e"]
    filters = w[0] * w[1] if c // w[1] > 1 else up(w[0]) * few(w[1])
    return x, y, filters * prod(w[2:]) * row["e"]


def label_of(padded, measured):
    """What a workspace is made of: copies, and a multiple of the weights."""
    x, y, w = padded
    found = []
    for copies in COPIES:
        rest = measured - x * ("X" in copies) - y * ("Y" in copies)
        near = MULTIPLES[np.abs(MULTIPLES - rest / w) <= max(1.5, 0.1 * rest / w)]
        for multiple in {0, int(MULTIPLES[-1] if rest / w > MULTIPLES[-1] else 0), *map(int, near)}:
            error = abs(multiple * w - rest) / max(measured, 1 << 16)
            is_simple = (copies, multiple) in (("0", 0), ("XY", 0), ("XY", 1))
            found.append((error + (0 if is_simple else 0.004) + multiple * 1e-5, copies, multiple))
    return min(found)[1:]


def value(padded, label):
    copies, multiple = label
    return padded[0] * ("X" in copies) + padded[1] * ("Y" in copies) + multiple * padded[2]


def upper_bound(padded):
    """Bytes that few workspaces exceed, as `upper_bound` of `learned.rs` has them."""
    x, y, w = padded
    return 2 * (x + y) + max(min(MAX_WEIGHTS * w, MAX_WEIGHT_BYTES), 4 * w) + MAX_OTHER_BYTES


def features(row):
    (n, c, *image), k, w = row["x"], row["y"][1], row["w"]
    size, output, groups = prod(image), prod(row["y"][2:]), c // w[1]
    stride = (2 * row["x"][2] + row["y"][2]) // (2 * row["y"][2])
    depthwise = groups == c and groups > 1
    sizes = (n, c, k, size, output, prod(w[2:]), stride, 1 if depthwise else groups)
    flags = (depthwise, row["e"] == 4, row["type"] == 9)
    eighths = (math.gcd(count, 8) for count in (size, c, k, output))
    more = (row["deterministic"], len(image) == 3, c < 4, k < 8)
    return [*map(log2, sizes), *map(float, flags), *map(log2, eighths), log2(n * output), log2(prod(w)),
            *map(float, more), log2(w[1]), log2(image[0]), float(prod(w[2:]) == 1)]


class Direction:
    """The convolutions of one layout in one direction."""

    def __init__(self, name, rows, labels):
        self.name, self.labels = name, labels
        self.measured = np.array([row[name] for row in rows], float)
        self.padded = [padded(row) for row in rows]
        self.features = np.array([features(row) for row in rows], np.float32)
        self.names = np.unique([str(row["w"]) for row in rows], return_inverse=True)[1]

    def differences(self, which):
        return np.stack([abs(column[which][:, None] - column[None, :]) for column in self.features.T])

    def predicted(self, which, differences, weights):
        """Predicts convolutions by those with other weights: the nearest vote, and what is nearer counts for more. A
        vote counts for what is within 5 %, too."""
        distances = np.tensordot(np.array(weights, np.float32), differences, 1)
        distances[self.names[which][:, None] == self.names[None, :]] = 1e9
        nearest = np.argpartition(distances, NEAREST, axis=1)[:, :NEAREST]
        result = []
        for row, line, found in zip(which, distances, nearest):
            found = found[np.argsort(line[found], kind="stable")]
            bytes = np.array([value(self.padded[row], self.labels[index]) for index in found], float)
            votes = is_near(bytes[None, :], bytes[:, None]) @ (1 / (line[found] + SOFTNESS) ** 2)
            result.append(min(bytes[votes.argmax()], upper_bound(self.padded[row])))
        return np.array(result)

    def score(self, which, differences, weights):
        bytes, measured, most = self.predicted(which, differences, weights), self.measured[which], 1 << 30
        larger = np.maximum(bytes, measured)
        errors = np.minimum(abs(bytes - measured) / np.maximum(larger, 1 << 20), 1) * np.minimum(larger, most)
        return is_near(bytes, measured).mean() - 0.3 * errors.sum() / np.clip(measured, 1 << 16, most).sum()

    def tuned(self, which, weights):
        differences = self.differences(which)
        best, order = self.score(which, differences, weights), np.random.default_rng(7)
        for _ in range(ROUNDS):
            before = best
            for index in order.permutation(len(weights)):
                for factor in FACTORS:
                    other = [*weights]
                    other[index] = round(other[index] * factor if other[index] else 0.5 * factor, 3)
                    if other != weights and other[index] <= 40:
                        if (score := self.score(which, differences, other)) > best + 1e-4:
                            best, weights = score, other
            if best < before + 1e-3:
                break
        return weights

    def report(self, layout, which, weights):
        parts = np.array_split(which, max(1, len(which) // 500))
        bytes = np.concatenate([self.predicted(part, self.differences(part), weights) for part in parts])
        measured = self.measured[which]
        print(f"{self.name} {layout}: {len(which)}, within 5 % or 64 KiB {is_near(bytes, measured).mean():.0%}, "
              f"sum {bytes.sum() / measured.sum() - 1:+.1%}, errors {abs(bytes - measured).sum() / measured.sum():.0%}",
              flush=True)


def is_near(bytes, measured):
    return abs(bytes - measured) < np.maximum(0.05 * measured, 1 << 16)


def weights_of(path):
    start = dict.fromkeys(FEATURES, 0.5) | dict(kernel=3.0, stride=3.0, depthwise=6.0, single=6.0, deterministic=1.0)
    found = {(name, layout): [start[feature] for feature in FEATURES] for name in DIRECTIONS for layout in (0, 1)}
    for line in open(path) if os.path.exists(path) else ():
        if (words := line.split())[0] in DIRECTIONS:
            given = dict(word.split("=") for word in words[2:])
            found[words[0], int(words[1])] = [float(given.get(feature, 0)) for feature in FEATURES]
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("measured")
    parser.add_argument("table")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--without")
    arguments = parser.parse_args()
    rows, weights = read(arguments.measured), weights_of(arguments.table)
    if arguments.without:
        lines = [line for line in open(arguments.without) if not line.startswith("#")]
        shapes = {tuple(map(int, line.split()[0].split(":")[-1].split("x"))) for line in lines}
        rows = [row for row in rows if tuple(row["w"]) not in shapes]
    for row in rows:
        row["labels"] = [label_of(padded(row), row[name]) for name in DIRECTIONS]
    for layout, name in enumerate(LAYOUTS):
        own = [row for row in rows if row["last"] == layout]
        for index, direction in enumerate(DIRECTIONS):
            found = Direction(direction, own, [row["labels"][index] for row in own])
            order = np.random.default_rng(5).permutation(len(own))
            sample, others = order[:SAMPLE], order[SAMPLE:]
            if arguments.tune:
                weights[direction, layout] = found.tuned(sample, weights[direction, layout])
            found.report(name, others, weights[direction, layout])
    with open(arguments.table, "w") as file:
        file.write(HEAD)
        for (direction, layout), values in weights.items():
            counted = (f"{feature}={weight:g}" for feature, weight in zip(FEATURES, values) if weight)
            file.write(f"{direction} {layout} {' '.join(counted)}\n")
        for row in rows:
            sizes = ("x".join(map(str, row[name])) for name in "xyw")
            labels = (f"{copies}+{multiple}" for copies, multiple in row["labels"])
            file.write(f"{' '.join(sizes)} {row['type']} {row['last']} {row['deterministic']} {' '.join(labels)}\n")


main()
