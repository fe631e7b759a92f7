"""The programs in examples/, with few steps on two processes."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest

import tersewire.data
from support import ROOT, write_idx

torch = pytest.importorskip("torch")
if not torch.distributed.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

from ranks import run_program


def rows(name, *arguments):
    """{codec: (quality, bytes sent a step, ratio, seconds a step)} of the table that it prints."""
    printed = run_program(ROOT / "examples" / name, *arguments)
    lines = re.findall(r"^\S*:(\S+) +([\d.]+)%? +([\d,]+) +([\d.]+)x +([\d.]+)$", printed,
                       re.MULTILINE)
    return {codec: tuple(float(number.replace(",", "")) for number in numbers)
            for codec, *numbers in lines}


def check_bytes(table):
    assert list(table) == ["fp32", "3lc"]
    assert table["fp32"][2] == 1 and table["3lc"][2] > 20
    assert table["3lc"][1] < table["fp32"][1] / 20


def test_the_digits_are_learned():
    table = rows("mnist_ddp.py", "--codec", "fp32", "--codec", "3lc", "--steps", 60)
    check_bytes(table)
    assert all(accuracy > 30 for accuracy, *_ in table.values())


def test_the_text_is_learned():
    table = rows("char_lstm_ddp.py", "--codec", "fp32", "--codec", "3lc", "--steps", 60)
    check_bytes(table)
    # One that draws characters by how often they occur needs more than 4 bits.
    assert all(bits < 3.5 for bits, *_ in table.values())


@pytest.mark.parametrize("exchange", (("--every", 10, "--fragments", 2, "--delay", 2),
                                      ("--every", 0, "--codec", "3lc"),
                                      ("--every", 0, "--codec", "3lc", "--shares")))
def test_the_gpt_learns(exchange):
    printed = run_program(ROOT / "examples" / "char_gpt.py", "--steps", 40, "--warm-up", 10,
                          "--layers", 1, "--width", 32, "--context", 32, "--lr", 0.01, *exchange)
    loss, less = re.search(r"test loss ([\d.]+), .*\(([\d,]+)x less", printed).groups()
    # One that knows how often each character occurs has a loss of 2.9.
    assert float(loss) < 2.9
    assert int(less.replace(",", "")) > 15


@pytest.mark.parametrize("name", ["char_gpt.py", "char_lstm_ddp.py", "mnist_ddp.py"])
def test_one_process_is_refused(name):
    ended = subprocess.run([sys.executable, ROOT / "examples" / name], capture_output=True,
                           text=True, env={**os.environ, "WORLD_SIZE": "1"})
    assert ended.returncode == 1 and ended.stderr.startswith("one process has nobody to send to")


def test_a_batch_that_no_process_has_is_refused():
    with pytest.raises(subprocess.CalledProcessError) as ended:
        run_program(ROOT / "examples" / "mnist_ddp.py", "--batch", 100000)
    assert "--batch 100000 exceeds the" in ended.value.stderr + ended.value.stdout


def test_idx_files_are_read(tmp_path):
    images, labels = tersewire.data.digits(train=False)
    write_idx(tmp_path / "train-images-idx3-ubyte.gz", images[:50])
    write_idx(tmp_path / "train-labels-idx1-ubyte", labels[:50])
    spec = importlib.util.spec_from_file_location("example", ROOT / "examples" / "mnist_ddp.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    read, expected = example.load(tmp_path, True), example.load(None, False)
    assert len(read) == 50
    assert all(torch.equal(mine, theirs[:50])
               for mine, theirs in zip(read.tensors, expected.tensors))
