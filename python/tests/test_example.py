"""The example of docs/python.md, and that of the package's own docstring, as they stand."""

import re

import numpy

import tersewire
from support import ROOT


def test_the_example_of_the_documentation_runs(capsys):
    text = (ROOT / "docs" / "python.md").read_text()
    example, *_ = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    exec(compile(example, "docs/python.md", "exec"), {})
    printed = capsys.readouterr().out
    assert printed.count("bits per value") == 3 and "'s': 1.75" in printed


def test_the_example_of_the_readme_runs():
    example, *_ = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(),
                             re.MULTILINE | re.DOTALL)
    names = {}
    exec(compile(example, "README.md", "exec"), names)
    assert numpy.allclose(names["total"] + names["encoder"].residual, names["gradient"], atol=1e-5)


def test_the_example_of_the_package_runs():
    names = {"tersewire": tersewire, "gradient": numpy.ones(10, "f4"), "step": 0,
             "total": numpy.zeros(10, "f4")}
    example = [line[4:] for line in tersewire.__doc__.splitlines() if line.startswith("    ")]
    assert example
    exec("\n".join(example), names)
    assert (names["total"] + names["encoder"].residual == 1).all()
