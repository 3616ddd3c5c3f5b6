#!/usr/bin/env python3
"""Writes crates/orlop-dryrun-cuda/src/solver_workspaces.txt from what cuSOLVER said on an H100.

    solver.py solver-measured.jsonl.xz TABLE

The sizes of the functions are those of matrices of f32; what follows from them for other types, and between the sizes,
is in `solver.rs`.
"""
import json
import lzma
import sys

HEAD = """\
# What cuSOLVER 12 (CUDA 13.0) asks for on an H100, in elements, for matrices of f32.
#
# Of functions of one size a line of sizes and one of elements; of two sizes a line of columns, and then a line for each
# number of rows.
"""
LINES = {"potrf": "potrf", "sytrf": "sytrf", "syevd": "syevd", "syevj": "syevj", "Xgeev": "geev"}
GRIDS = ("getrf", "orgqr", "ormqr-left", "ormqr-right", "gesvd", "gesvdj", "gesvdj-thin", "gesvda")


def main():
    found = {}
    for line in lzma.open(sys.argv[1], "rt"):
        name, *key, value = json.loads(line)
        found.setdefault(name, {})[tuple(key)] = value
    with open(sys.argv[2], "w") as file:
        file.write(HEAD)
        for name, written in LINES.items():
            values = {key[-1]: value for key, value in found[name].items() if key[0] == "S"}
            if name == "Xgeev":
                values = {size: device // 4 for size, (device, _) in values.items()}
            file.write(f"{written} {' '.join(map(str, values))}\n{written} {' '.join(map(str, values.values()))}\n")
        sizes = sorted({key[1] for key in found["geqrf"]})
        for name in GRIDS:
            file.write(f"{name} - {' '.join(map(str, sizes))}\n")
            for rows in sizes:
                values = [of_grid(found, name, rows, columns) for columns in sizes]
                file.write(f"{name} {rows} {' '.join(map(str, values))}\n")


def of_grid(found, name, m, n):
    if name == "orgqr":
        return found["orgqr"]["S", max(m, n), n, n]
    if name.startswith("ormqr"):
        side = int(name == "ormqr-right")
        return found["ormqr"]["S", side, m, n, min(n if side else m, 256)]
    if name.startswith("gesvdj"):
        return found["gesvdj"]["S", 1, int(name == "gesvdj-thin"), m, n]
    if name == "gesvda":
        value = found["gesvda"]["S", 1, max(m, n), n, 1]
        return 0 if isinstance(value, list) else value
    return found[name]["S", m, n]


main()
