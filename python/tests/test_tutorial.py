"""docs/tutorial.md runs, and prints what it shows, except for the numbers."""

import re

import pytest

from support import ROOT, torchrun

torch = pytest.importorskip("torch")
if not torch.distributed.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

TEXT = (ROOT / "docs" / "tutorial.md").read_text()


def blocks(pattern):
    return re.findall(pattern, TEXT, re.MULTILINE | re.DOTALL)


def without_numbers(lines):
    return [re.sub(r"-?\d[\d.,e+x]*", "#", " ".join(line.split())) for line in lines]


def test_its_blocks_print_what_it_says(tmp_path):
    (tmp_path / "tutorial.py").write_text("\n".join(blocks(r"^```python\n(.*?)^```")))
    expected = "".join(blocks(r"^```python\n(?:(?!^```).)*^```\n\n```text\n(.*?)^```"))
    printed = torchrun("tutorial.py", cwd=tmp_path)
    lines = [line.split(":", 1)[1] for line in printed.splitlines() if line.startswith("[default")]
    assert len(lines) > 15
    assert without_numbers(lines) == without_numbers(expected.splitlines())


def test_its_pictures_are_there():
    pictures = re.findall(r"\]\((pictures/.*?)\)", TEXT)
    assert pictures and all((ROOT / "docs" / picture).is_file() for picture in pictures)
