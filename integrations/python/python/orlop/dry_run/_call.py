"""Runs the call that :func:`orlop.dry_run.dry_run` wrote, as the program of a dry run."""

import pickle
import sys
from multiprocessing import spawn

if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        # First the paths of modules and the module __main__, with which pickle finds the function.
        spawn.prepare(pickle.load(file))
        function, arguments = pickle.load(file)
    function(*arguments)
