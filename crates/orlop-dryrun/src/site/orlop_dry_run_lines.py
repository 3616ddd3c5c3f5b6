"""Names the lines of the program at which values are decided by noise, for the library of the dry run."""
import ctypes
import os
import sys

LIBRARY = "liborlop_dryrun_cuda.so"

HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep

# Folders of code that is not the program's: Python's own, packages, and this one.
PACKAGES = f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}"
OTHERS = (os.path.dirname(os.__file__) + os.sep, HERE, *PACKAGES)

# PyTorch's function in which a thread waits for a backward pass, which other threads run.
BACKWARD = "_engine_run_backward"


def chain_of(frame):
    """Returns a frame and its callers, innermost first, without this folder's."""
    chain = []
    while frame is not None:
        if not frame.f_code.co_filename.startswith(HERE):
            chain.append(frame)
        frame = frame.f_back
    return chain


def backward_pass():
    """Returns the frames of a thread that waits for a backward pass."""
    chains = map(chain_of, sys._current_frames().values())
    return next((chain for chain in chains if any(each.f_code.co_name == BACKWARD for each in chain)), [])


def line_of(frame):
    """Returns the innermost line of the program, or else the innermost line, like `train.py:17 forward`; for a thread
    that runs no Python but this folder's, that of the backward pass."""
    chain = chain_of(frame) or backward_pass()
    own = (each for each in chain if not any(folder in each.f_code.co_filename for folder in OTHERS))
    found = next(own, chain[0] if chain else None)
    if found is None:
        return ""
    return f"{os.path.basename(found.f_code.co_filename)}:{found.f_lineno} {found.f_code.co_name}"


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t)
def write_line(buffer, size):
    name = line_of(sys._getframe()).encode(errors="replace")[: size - 1]
    ctypes.memmove(buffer, name + b"\0", len(name) + 1)


def start():
    """Gives the function to the library."""
    ctypes.CDLL(LIBRARY).orlop_dry_run_name_callers(write_line)


def stop():
    """Takes it back: at its end, Python runs no more functions."""
    ctypes.CDLL(LIBRARY).orlop_dry_run_name_callers(None)
