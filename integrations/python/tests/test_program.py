"""The program as it is installed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest
from conftest import COMPLETE, FAILED, TESTDATA

PROGRAM = Path(sysconfig.get_path("scripts")) / "orlop"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *map(str, arguments)], check=False, capture_output=True, text=True)


def test_it_answers() -> None:
    done = run("what-if", "--quick", FAILED)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("device 0 ran out of memory")


def test_exit_codes_are_those_of_the_program() -> None:
    assert run("--version").returncode == 0
    assert run("what-if", "missing.pickle").returncode == 1
    assert run("what-if").returncode == 2
    assert run("gate", FAILED).returncode == 2


def test_it_starts_itself_for_each_run() -> None:
    trace = TESTDATA / "vit_b16_infer_b4.csv.gz"
    done = run("replay", trace, "--allocator", "caching,bfc", "--repeat", 1)
    assert done.returncode == 0, done.stderr
    assert "caching" in done.stdout and "bfc" in done.stdout


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_ends_it() -> None:
    with subprocess.Popen([PROGRAM, "why-oom", "-"], stdin=subprocess.PIPE) as process:
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == -signal.SIGINT


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_ends_a_call() -> None:
    # The input never ends, so only the signal ends the call.
    script = (
        "import orlop, os, signal, threading\n"
        "reader, writer = os.pipe()\n"
        "threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()\n"
        "try:\n"
        "    orlop.describe(f'/dev/fd/{reader}')\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
        "    os._exit(0)\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.returncode) == ("interrupted\n", 0), done.stderr


def test_a_child_of_a_fork_answers_too() -> None:
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    script = (
        "import orlop, os, sys\n"
        "orlop.what_if(sys.argv[1], quick=True)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    orlop.what_if(sys.argv[1], quick=True)\n"
        "    os._exit(7)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, COMPLETE], check=False, timeout=60)
    assert done.returncode == 7


def test_the_module_is_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    script = "import orlop\nreveal_type(orlop.what_if('x').devices[0].advice)\n"
    command = [sys.executable, "-m", "mypy", "--strict", "-c", script]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "orlop._results.Advice | None" in done.stdout
