"""The commands of docs/python.md that install the package and run a script, as they stand."""

import re
import subprocess
import sys

import pytest

from support import ROOT

torch = pytest.importorskip("torch")
if not (ROOT / "build" / "CMakeCache.txt").is_file():
    pytest.skip("without build/ compiling takes minutes", allow_module_level=True)

TEXT = (ROOT / "docs" / "python.md").read_text()


def shell(command, cwd, environment):
    return subprocess.run(["sh", "-ec", command], cwd=cwd, env=environment, check=True, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout


def test_what_is_installed_is_what_ranks_import(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    make_venv, install = re.findall(r"^(?:python3 -m venv|venv/bin/pip) .*?(?=  #|$)", TEXT, re.M)
    (launch,) = re.findall(r"`(venv/bin/python -m torch\.distributed\.run .*?)`", TEXT)
    make_venv = make_venv.replace("python3", sys.executable).replace(" venv", f" {tmp_path}/venv", 2)
    make_venv = make_venv.replace(f"-m {tmp_path}/venv", "-m venv", 1)
    shell(make_venv, tmp_path, None)
    said = shell(install.replace("venv/", f"{tmp_path}/venv/"), ROOT, None)
    assert "tersewire: compiling what is missing in " in said
    example = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)[1]
    (tmp_path / "example.py").write_text(
        example + "\nprint('imported', tersewire.__file__, dist.get_world_size())\n")
    printed = shell(launch.replace("--nproc_per_node 4", "--nproc_per_node 2"), tmp_path, None)
    assert f"imported {tmp_path}/venv/" in printed and "20 steps" in printed
