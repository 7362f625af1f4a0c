"""The script for a GPU, tried without one: what it runs, what it says, and that a part which fails fails it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("typer")

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks/perf/gpu_check.sh"
PARTS = ["tests", "decode", "step", "self-play"]


def check(*arguments, python=sys.executable):
    environment = {**os.environ, "PYTHON": str(python), "OMP_NUM_THREADS": "1"}
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, env=environment, cwd=ROOT.parent)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_at_once():
    done = check()
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "torch sees no CUDA device; --device cpu --steps 1 tries the script without one" in done.stderr
    assert "==" not in done.stdout


@pytest.mark.parametrize("arguments", [("--device", "tpu"), ("--step", "1"), ("--steps",)])
def test_arguments_that_are_wrong_are_refused(arguments):
    done = check(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("gpu_check: ")


def test_all_parts_run_within_eight_minutes_and_one_that_fails_fails_the_check(tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$@" >>"$0.log"\ncase "$*" in *perf.generation*) exit 3 ;; esac\n')
    python.chmod(0o755)
    done = check("--device", "cuda", python=python)
    assert done.returncode == 1
    said = [line for line in done.stdout.splitlines() if line.startswith("==")]
    budgets = [line for line in said if "at most" in line]
    assert [line.split()[1] for line in budgets] == PARTS
    assert sum(int(line.split()[-2]) for line in budgets) < 8 * 60
    passed = [line.split()[1].rstrip(":") for line in said if ": passed in" in line]
    assert passed == ["tests", "step", "self-play"]
    assert any(line.startswith("== decode: FAILED with exit code 3") for line in said)
    ran = (tmp_path / "python.log").read_text()
    assert "steps=100" in ran
    assert "policy=smollm2" in ran


def test_the_small_form_passes_on_a_processor(chat_model_folder):
    done = check("--device", "cpu", "--steps", "1", "--policy", str(chat_model_folder))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": passed in") == len(PARTS)
