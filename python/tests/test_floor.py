"""A Python or a torch that is too old, or no torch, is refused in one sentence when it is imported."""

import os
import pathlib
import subprocess
import sys

import pytest

import tersewire

PACKAGE = str(pathlib.Path(tersewire.__file__).parents[1])


def last_line(script, *paths):
    """What Python ends with."""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                         env={**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, paths), PACKAGE])})
    assert run.returncode == 1
    return run.stderr.splitlines()[-1]


def test_an_old_python_is_refused():
    assert last_line("import sys; sys.version_info = 3, 9, 18; import tersewire") == (
        "ImportError: tersewire needs Python 3.10 or later, and this is 3.9; run it with a newer one")


def test_a_missing_torch_is_named():
    assert last_line("import sys; sys.modules['torch'] = None; import tersewire.torch") == (
        "ImportError: tersewire.torch needs PyTorch 2.6 or later, and this Python has none; install it: "
        "pip install torch")


@pytest.mark.parametrize("version", ["1.13.1", "2.5.1+cpu"])
def test_an_old_torch_is_refused(version, tmp_path):
    (tmp_path / "torch.py").write_text(f"__version__ = '{version}'")
    assert last_line("import tersewire.torch", tmp_path) == (
        f"ImportError: tersewire.torch needs PyTorch 2.6 or later, and this is {version}; update it: "
        "pip install --upgrade torch")


@pytest.mark.parametrize("version", ["2.6.0a0+git", "2.10.0", "3.0"])
def test_a_later_torch_is_taken(version, tmp_path):
    """It is looked at no further: the stand-in has nothing else."""
    (tmp_path / "torch.py").write_text(f"__version__ = '{version}'")
    assert "ImportError: tersewire" not in last_line("import tersewire.torch", tmp_path)
