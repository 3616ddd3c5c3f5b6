"""Makes the test files of this folder. See README.md."""

import zipfile

import numpy as np
from numpy.lib import format

NAMES = [
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
    "float16", "float32", "float64", "complex64", "complex128",
]


def numbers(name):
    """0 to 5 in two rows; of complex dtypes, with imaginary parts from 0 to -5."""
    numbers = np.arange(6).reshape(2, 3)
    return (numbers * (1 - 1j) if name.startswith("complex") else numbers).astype(name)


arrays = {name: numbers(name) for name in NAMES}
np.savez(open("dtypes.npz", "wb"), **arrays)
np.savez_compressed(open("compressed.npz", "wb"), **arrays, zeros=np.zeros((64, 64), "float64"))
np.savez(open("big-endian.npz", "wb"), **{name: a.astype(a.dtype.newbyteorder(">")) for name, a in arrays.items()})

np.save("row-major.npy", arrays["float32"])
np.save("column-major.npy", np.asfortranarray(arrays["complex64"]))
np.save("line.npy", np.arange(1000, dtype="int16")[::100])
np.save("scalar.npy", np.float64(1.5))
np.save("empty.npy", np.zeros((3, 0, 2), "int64"))
np.save("bool.npy", np.array([True, False, True]))
for version in [2, 3]:
    with open(f"version-{version}.npy", "wb") as file:
        format.write_array(file, arrays["uint16"], version=(version, 0))
with open("several.npy", "wb") as file:
    np.save(file, arrays["int32"])
    np.save(file, arrays["float64"])

np.savez(
    open("refused.npz", "wb"),
    object=np.array([{}, None]),
    text=np.array(["a", "bc"]),
    bytes=np.array([b"a", b"bc"]),
    date=np.array(["2001-02-03"], "datetime64[D]"),
    duration=np.array([5], "timedelta64[ns]"),
    longdouble=np.array([1.5], "longdouble"),
    void=np.zeros(2, "V2"),
    structure=np.zeros(2, [("a", "f4"), ("b", "i4")]),
)
with zipfile.ZipFile("mixed.npz", "w") as file:
    with file.open("array.npy", "w") as entry:
        np.save(entry, arrays["uint8"])
    file.writestr("notes.txt", "no array")
