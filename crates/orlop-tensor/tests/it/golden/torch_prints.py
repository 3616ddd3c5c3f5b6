"""What PyTorch prints, for display.rs: python3 torch_prints.py > torch_prints.txt

One case is a line `dtype; sizes; options; values` and the print-out, each line behind a `|`. The values are
repeated until the tensor is full; complex ones are `re,im`.
"""

import itertools
import random

import torch

# orlop's names of dtypes come without `torch.`, before lines are counted.
add_suffixes = torch._tensor_str._add_suffixes
torch._tensor_str._add_suffixes = lambda text, suffixes, indent, force_newline: add_suffixes(
    text, [suffix.replace("torch.", "") for suffix in suffixes], indent, force_newline
)

DEFAULTS = dict(precision=4, threshold=1000, edgeitems=3, linewidth=80)


def text(value):
    if isinstance(value, complex):
        return f"{value.real!r},{value.imag!r}"
    return repr(int(value)) if isinstance(value, bool) else repr(value)


def case(dtype, sizes, values, **options):
    count = 1
    for size in sizes:
        count *= size
    data = list(itertools.islice(itertools.cycle(values), count)) if values else []
    tensor = torch.tensor(data, dtype=getattr(torch, dtype)).reshape(sizes)
    torch.set_printoptions(**{**DEFAULTS, **options})
    named = " ".join(f"{name}={value}" for name, value in options.items())
    print(f"{dtype}; {' '.join(map(str, sizes))}; {named}; {' '.join(map(text, values))}")
    for line in str(tensor).split("\n"):
        print(f"|{line}")


FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTS = ["uint8", "int8", "int16", "int32", "int64"]
inf, nan = float("inf"), float("nan")

# Scalars and short rows of each kind.
for dtype in FLOATS:
    for values in (
        [0.0], [-0.0], [3.5], [-3.5], [1.0], [100.0], [1e-5], [nan], [inf], [-inf], [0.1], [65504.0], [0.03125],
    ):
        case(dtype, [], values)
        case(dtype, [3], values)
    case(dtype, [5], [1.0, 2.0, nan, inf, -inf])
    case(dtype, [5], [1.5, -20.25, nan, inf, -inf])
    case(dtype, [4], [0.001, 1.0, 2000.0, 0.0])
    case(dtype, [4], [1.0, 10.0, 1000.0, 0.0])
    case(dtype, [4], [1.0, 10.0, 1001.0, -0.0])
    case(dtype, [2, 2], [1.0, 2.0, 3.0, 4.0])
    case(dtype, [2, 2], [1.0, 2.5, -3.0, 40.0])
for values in ([1e9], [1.5e8, 1e8], [1e8], [99999999.0], [1e-4, 0.05], [0.00009], [1e30, -1e-30], [5e-324], [1e300, 1e-300]):
    case("float32", [2, 2], values)
    case("float64", [2, 2], values)
for dtype in INTS:
    case(dtype, [], [7])
    case(dtype, [2, 3], [1, 20, 100, 4, 0, 5])
case("int64", [3], [-(2**63), 2**63 - 1, 0])
case("int32", [2, 2, 2], [-5, 3])
for values in ([True], [False], [True, False], [True, True, False]):
    case("bool", [], values[:1])
    case("bool", [4], values)
    case("bool", [2, 40], values)

# Complex numbers.
for dtype in ("complex64", "complex128"):
    case(dtype, [], [complex(1.5, -2)])
    case(dtype, [], [complex(1, 2)])
    case(dtype, [3], [complex(1, 2), complex(-3, -4), complex(0, 0)])
    case(dtype, [3], [complex(1.5, 2), complex(-3, -40.25), complex(nan, inf)])
    case(dtype, [2, 9], [complex(1e-6, 2), complex(-3, -40.25)])
    case(dtype, [30, 40], [complex(1.5, 2), complex(-3, -40.25), complex(100, 0)])

# No elements.
for dtype in ("float32", "float16", "int64", "bool", "complex64"):
    for sizes in ([0], [0, 3], [2, 0, 3]):
        case(dtype, sizes, [])

# Lines, dimensions and edges.
for dtype, values in (
    ("float32", [0.0]),
    ("float32", [1.0, -22.0]),
    ("float32", [0.25, -1.5, 3.125]),
    ("float64", [1e-6, 12.0]),
    ("int64", [1, -100, 20000]),
    ("uint8", [255, 3]),
    ("float16", [0.5]),
):
    for sizes in ([1], [7], [30], [100], [2, 13], [3, 30], [2, 2, 3], [2, 1, 2, 2], [1, 1, 1, 1]):
        case(dtype, sizes, values)
    for sizes in ([1001], [2, 501], [501, 2], [6, 200], [7, 200], [8, 8, 20], [3, 7, 6, 9]):
        case(dtype, sizes, values)
case("float32", [40, 60], [0.001 * i for i in range(61)])
case("int32", [1000], [1, 22])
case("int16", [7, 8], [1, 22], threshold=10)
case("float32", [5, 5], [1, 0.5], threshold=10, edgeitems=1)
case("float32", [5, 5], [1, 0.5], threshold=10, edgeitems=2)
case("float32", [5, 5], [1, 0.5], precision=1)
case("float32", [5, 5], [1, 0.5], precision=0)
case("float32", [5, 5], [1e-9, 0.5], precision=8)
case("float32", [3, 30], [1, 0.5], linewidth=40)
case("float32", [3, 30], [1, 0.5], linewidth=3)
case("float64", [3, 30], [1, 0.5], linewidth=200)
# What follows the brackets, where the last line is nearly full.
for count in range(5, 12):
    case("float64", [count], [1.5])
    case("float16", [count, 0, 2], [])
for width in range(20, 50):
    case("int32", [3], [1, 2, 3], linewidth=width)

# And whatever.
random.seed(1)
for _ in range(60):
    dtype = random.choice(FLOATS[2:])
    scale = 10.0 ** random.randint(-6, 9)
    spread = random.choice([0, 0, 2, 6])
    values = [
        random.choice([-1, 1]) * round(random.random(), random.randint(0, 6)) * scale * 10.0 ** random.randint(0, spread)
        for _ in range(random.randint(1, 12))
    ]
    values = [random.choice([inf, nan, 0.0]) if random.random() < 0.05 else value for value in values]
    sizes = [random.randint(1, 9) for _ in range(random.randint(0, 3))]
    case(dtype, sizes, values)
