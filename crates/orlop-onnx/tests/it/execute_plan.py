"""Executes models at the offsets of their plans, and compares all outputs with those of ONNX Runtime.

    pip install onnx onnxruntime
    python execute_plan.py ORLOP MODEL [NAME=SIZE...]

The code that executes a plan is that of `docs/plan-files.md`. Names are those of sizes (`batch=1`) and of
dimensions of inputs (`x:0=1`); other open sizes are 1. Inputs of floating-point numbers are random, others 1.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

PAGE = Path(__file__).parents[4] / "docs" / "plan-files.md"


def documented_function():
    """Returns the function of the page that executes a plan."""
    names = {}
    exec(re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL).group(1), names)
    return names["execute"]


def random_feeds(model, sizes):
    """Returns an array for each input of a model."""
    random = np.random.default_rng(1)
    weights = {weight.name for weight in model.graph.initializer}
    feeds = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        tensor = value.type.tensor_type
        shape = []
        for position, dimension in enumerate(tensor.shape.dim):
            by_name = sizes.get(dimension.dim_param, 1)
            open_size = sizes.get(f"{value.name}:{position}", by_name)
            shape.append(dimension.dim_value if dimension.dim_value > 0 else open_size)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        is_real = np.issubdtype(dtype, np.floating)
        feeds[value.name] = random.random(shape).astype(dtype) if is_real else np.ones(shape, dtype)
    return feeds


def main(orlop, model_file, *given):
    sizes = {name: int(size) for name, _, size in (text.rpartition("=") for text in given)}
    feeds = random_feeds(onnx.load(model_file), sizes)
    options = [f"--input={name}={'x'.join(map(str, feed.shape))}" for name, feed in feeds.items()]
    onnxruntime.set_default_logger_severity(4)
    with tempfile.TemporaryDirectory() as folder:
        plan = f"{folder}/plan.json"
        subprocess.run([orlop, "plan", model_file, *options, "-o", plan], check=True, capture_output=True)
        results = documented_function()(plan, model_file, feeds)
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model_file, plain)
    names = [output.name for output in session.get_outputs()]
    for name, expected in zip(names, session.run(names, feeds)):
        np.testing.assert_allclose(results[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)
    print(f"{model_file}: {len(names)} outputs are equal")


if __name__ == "__main__":
    main(*sys.argv[1:])
