#!/usr/bin/env python3
"""Learns the trees of crates/orlop-dryrun-cuda/src/cudnn/learned_workspaces.txt, and says how well they predict.

    learn.py convolutions-measured.jsonl.gz OUTPUT [--without TABLE]

With a table, like convolutions-h100.txt, convolutions with the same weights as one of it are left out. Needs numpy
and scikit-learn.
"""
import argparse
import gzip
import json
import math
from math import prod

import numpy as np
from sklearn.model_selection import GroupKFold
from sklearn.tree import DecisionTreeClassifier

COPIES = ("0", "X", "Y", "XY")
MULTIPLES = (0, 1, 2, 3, 4, 5, 6, 8, 9, 12, 15, 16, 32, 64, 128)
FEATURES = ("batch channels filters input output kernel stride groups weights positions depthwise single last input8 "
            "channels8 filters8 output8").split()
HEAD = """\
# The workspaces of cuDNN's convolutions: a decision tree for each direction, in preorder.
#
# An inner node is a feature and the value up to which the left subtree, which follows, is taken. A leaf is what a
# workspace is made of: copies of the input (X) and the output (Y), and a number of copies of the weights, each with
# channels padded to 16 bytes.
# Learned from 2,961 convolutions measured with PyTorch 2.11 and cuDNN 9.19 on an H100.
"""


def read(path):
    rows = []
    for line in gzip.open(path, "rt"):
        kind, x, y, w, stride, _, _, _, dtype, last, _, measured = json.loads(line)
        forward, data, weights = (measured[name][0] for name in ("fwd", "dgrad", "wgrad"))
        if kind == "t":
            # cuDNN computes a transposed convolution as the gradient of the input of one.
            x, y, forward, data = y, x, data, forward
        element = 4 if dtype == "float32" else 2
        rows.append(dict(x=x, y=y, w=w, last=last, e=element, fwd=forward, dgrad=data, wgrad=weights))
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
    (n, c, *image), k, w = row["x"], row["y"][1], row["w"]
    size, output, groups = prod(image), prod(row["y"][2:]), c // w[1]
    stride = (2 * row["x"][2] + row["y"][2]) // (2 * row["y"][2])
    return [n, c, k, size, output, prod(w[2:]), stride, groups, prod(w), n * output, int(groups == c and groups > 1),
            int(row["e"] == 4), row["last"], *(math.gcd(count, 8) for count in (size, c, k, output))]


def preorder(tree, classes, node=0):
    if tree.children_left[node] == -1:
        return [classes[tree.value[node][0].argmax()]]
    left = preorder(tree, classes, tree.children_left[node])
    right = preorder(tree, classes, tree.children_right[node])
    if left == right and len(left) == 1:
        return left
    return [f"{FEATURES[tree.feature[node]]}<={math.floor(tree.threshold[node])}", *left, *right]


def wrapped(tokens, width=108):
    lines = [""]
    for token in tokens:
        if len(lines[-1]) + len(token) + 1 > width:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + token
    return "\n".join(lines)


def new_tree():
    return DecisionTreeClassifier(max_leaf_nodes=100, min_samples_leaf=2, random_state=0)


def learn(direction, rows):
    measured = np.array([row[direction] for row in rows], float)
    labels = np.array([label_of(row, bytes) for row, bytes in zip(rows, measured)])
    inputs = np.array([features(row) for row in rows])
    weights = (measured + 1e6) ** 0.3
    predicted = np.zeros(len(rows))
    for train, test in GroupKFold(10).split(inputs, labels, [str(row["w"]) for row in rows]):
        tree = new_tree().fit(inputs[train], labels[train], sample_weight=weights[train])
        for index, label in zip(test, tree.predict(inputs[test])):
            predicted[index] = value(rows[index], label)
    is_last = np.array([bool(row["last"]) for row in rows])
    for name, which in (("contiguous", ~is_last), ("channels last", is_last)):
        p, m = predicted[which], measured[which]
        near = (abs(p - m) < np.maximum(0.05 * m, 1 << 16)).mean()
        print(f"{direction} {name}: {which.sum()}, within 5 % or 64 KiB {near:.0%}, sum {p.sum() / m.sum() - 1:+.1%}")
    tree = new_tree().fit(inputs, labels, sample_weight=weights)
    return f"{direction}\n{wrapped(preorder(tree.tree_, tree.classes_))}\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("measured")
    parser.add_argument("output")
    parser.add_argument("--without")
    arguments = parser.parse_args()
    rows = read(arguments.measured)
    if arguments.without:
        lines = [line for line in open(arguments.without) if not line.startswith("#")]
        shapes = {tuple(map(int, line.split()[0].split(":")[-1].split("x"))) for line in lines}
        rows = [row for row in rows if tuple(row["w"]) not in shapes]
    trees = [learn(direction, rows) for direction in ("fwd", "dgrad", "wgrad")]
    with open(arguments.output, "w") as file:
        file.write(HEAD + "".join(trees))


main()
