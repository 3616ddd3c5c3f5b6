#!/usr/bin/env python3
"""Writes the table of crates/orlop-dryrun-cuda/src/cudnn/measured_workspaces.txt, and says how well it predicts.

    learn.py convolutions-measured.jsonl.gz TABLE [--tune] [--without TABLE]

The weights of the features are those of the table that is there; with --tune, multiples of them are tried, one
feature after the other. With a table like convolutions-h100.txt, convolutions with the same weights as one of it are
left out. Needs numpy.
"""
import argparse
import gzip
import json
import math
import os
from math import log2, prod

import numpy as np

COPIES = ("0", "X", "Y", "XY")
MULTIPLES = (0, 1, 2, 3, 4, 5, 6, 8, 9, 12, 15, 16, 32, 64, 128)
DIRECTIONS = ("fwd", "dgrad", "wgrad")
TYPES = {"float32": 0, "float16": 2, "bfloat16": 9}
FEATURES = ("batch channels filters input output kernel stride groups depthwise single last bfloat16 input8 channels8 "
            "filters8 output8 positions weights").split()
NEAREST = 9
SOFTNESS = 0.3
HEAD = """\
# The workspaces of cuDNN's convolutions, as measured with PyTorch 2.11 and cuDNN 9.19 on an H100.
#
# First a line for each direction: how much features count in the distance of two convolutions. Then a line for each
# convolution: sizes of input, output and weights, the data type and whether channels are last, and for each direction
# what its workspace is made of: copies of the input (X) and the output (Y), and a number of copies of the weights, each
# with channels padded to 16 bytes.
"""


def read(path):
    rows = []
    for line in gzip.open(path, "rt"):
        kind, x, y, w, _, _, _, _, dtype, last, _, measured = json.loads(line)
        forward, data, weights = (measured[name][0] for name in DIRECTIONS)
        if kind == "t":
            # cuDNN computes a transposed convolution as the gradient of the input of one.
            x, y, forward, data = y, x, data, forward
        element = 4 if dtype == "float32" else 2
        rows.append(dict(x=x, y=y, w=w, type=TYPES[dtype], last=last, e=element, fwd=forward, dgrad=data, wgrad=weights))
    return rows


def padded(row):
    unit = 16 // row["e"]
    up = lambda count: -(-count // unit) * unit
    few = lambda count: 4 if count < 4 and row["e"] == 2 else up(count)
    (n, c, *image), k, w = row["x"], row["y"][1], row["w"]
    x = n * few(c) * prod(image) * row["e"]
    y = n * up(k) * prod(row["y"][2:]) * row["e"]
    filters = w[0] * w[1] if c // w[1] > 1 else up(w[0]) * few(w[1])
    return x, y, filters * prod(w[2:]) * row["e"]


def value(row, label):
    x, y, w = padded(row)
    copies, multiple = label.split("+")
    return x * ("X" in copies) + y * ("Y" in copies) + int(multiple) * w


def label_of(row, measured):
    def penalty(copies, multiple):
        error = abs(value(row, f"{copies}+{multiple}") - measured) / max(measured, 1 << 16)
        is_simple = (copies, multiple) in (("0", 0), ("XY", 0), ("XY", 1))
        return error + (0 if is_simple else 0.004) + multiple * 1e-5

    return min((penalty(copies, multiple), f"{copies}+{multiple}") for copies in COPIES for multiple in MULTIPLES)[1]


def features(row):
    (n, c, *image), k = row["x"], row["y"][1]
    size, output, groups = prod(image), prod(row["y"][2:]), c // row["w"][1]
    stride = (2 * row["x"][2] + row["y"][2]) // (2 * row["y"][2])
    depthwise = groups == c and groups > 1
    sizes = (n, c, k, size, output, prod(row["w"][2:]), stride, 1 if depthwise else groups)
    flags = (depthwise, row["e"] == 4, row["last"], row["type"] == 9)
    eighths = (math.gcd(count, 8) for count in (size, c, k, output))
    return [*map(log2, sizes), *map(float, flags), *map(log2, eighths), log2(n * output), log2(prod(row["w"]))]


def predicted(rows, labels, distances):
    """The bytes by a vote of the nearest: what is nearer counts for more."""
    result = []
    for row, line in zip(rows, distances):
        votes = {}
        for index in np.argsort(line, kind="stable")[:NEAREST]:
            votes[labels[index]] = votes.get(labels[index], 0) + 1 / (line[index] + SOFTNESS) ** 2
        result.append(value(row, max(votes, key=votes.get)))
    return np.array(result, float)


class Direction:
    def __init__(self, name, rows, differences, same):
        self.name, self.rows, self.differences, self.same = name, rows, differences, same
        self.measured = np.array([row[name] for row in rows], float)
        self.labels = [label_of(row, bytes) for row, bytes in zip(rows, self.measured)]
        self.is_last = np.array([bool(row["last"]) for row in rows])

    def without_its_weights(self, weights):
        """Predicts each convolution by those with other weights."""
        distances = np.tensordot(np.array(weights, np.float32), self.differences, 1)
        distances[self.same] = 1e9
        return predicted(self.rows, self.labels, distances)

    def is_near(self, bytes):
        return abs(bytes - self.measured) < np.maximum(0.05 * self.measured, 1 << 16)

    def score(self, weights):
        bytes, measured, most = self.without_its_weights(weights), self.measured, 64 << 20
        larger = np.maximum(bytes, measured)
        errors = np.minimum(abs(bytes - measured) / np.maximum(larger, 1 << 20), 1) * np.minimum(larger, most)
        return self.is_near(bytes).mean() - 0.3 * errors.sum() / np.clip(measured, 1 << 16, most).sum()

    def tuned(self, weights):
        best = self.score(weights)
        for _ in range(2):
            for index, factor in ((index, factor) for index in range(len(weights)) for factor in (0, 0.5, 2)):
                other = [*weights]
                other[index] *= factor
                if other != weights and (score := self.score(other)) > best + 1e-4:
                    best, weights = score, other
        return weights

    def report(self, weights):
        bytes = self.without_its_weights(weights)
        for name, which in (("contiguous", ~self.is_last), ("channels last", self.is_last)):
            p, m = bytes[which], self.measured[which]
            print(f"{self.name} {name}: {which.sum()}, within 5 % or 64 KiB {self.is_near(bytes)[which].mean():.0%}, "
                  f"sum {p.sum() / m.sum() - 1:+.1%}, errors {abs(p - m).sum() / m.sum():.0%}")


def weights_of(path):
    start = dict.fromkeys(FEATURES, 1.0) | dict(kernel=3.0, stride=3.0, groups=2.0, depthwise=6.0, single=6.0, last=6.0)
    found = {name: [start[feature] for feature in FEATURES] for name in DIRECTIONS}
    for line in open(path) if os.path.exists(path) else ():
        if (words := line.split())[0] in DIRECTIONS:
            given = dict(word.split("=") for word in words[1:])
            found[words[0]] = [float(given.get(feature, 0)) for feature in FEATURES]
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
    all_features = np.array([features(row) for row in rows], np.float32).T
    differences = np.stack([abs(one[:, None] - one[None, :]) for one in all_features])
    names = np.unique([str(row["w"]) for row in rows], return_inverse=True)[1]
    directions = [Direction(name, rows, differences, names[:, None] == names[None, :]) for name in DIRECTIONS]
    for direction in directions:
        if arguments.tune:
            weights[direction.name] = direction.tuned(weights[direction.name])
        direction.report(weights[direction.name])
    with open(arguments.table, "w") as file:
        file.write(HEAD)
        for name in DIRECTIONS:
            counted = (f"{feature}={weight:g}" for feature, weight in zip(FEATURES, weights[name]) if weight)
            file.write(f"{name} {' '.join(counted)}\n")
        for row, *labels in zip(rows, *(direction.labels for direction in directions)):
            sizes = ("x".join(map(str, row[name])) for name in "xyw")
            file.write(f"{' '.join(sizes)} {row['type']} {row['last']} {' '.join(labels)}\n")


main()
