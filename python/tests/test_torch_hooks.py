"""bench/torch_hooks.py on two processes and a few made-up images, and the table of its lines."""

import importlib
import json
import re
import subprocess
import sys

import numpy
import pytest

torch = pytest.importorskip("torch")

if not torch.distributed.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

from ranks import run_program
from support import ROOT, write_idx

BENCH = ROOT / "bench"
PARAMETERS = {"lenet": 431080, "resnet20": 269722, "gpt": 619969}
IMAGES = 64


def write_mnist(folder):
    numbers = numpy.random.default_rng(1)
    for prefix in ("train", "t10k"):
        write_idx(folder / f"{prefix}-images-idx3-ubyte",
                  numbers.integers(256, size=(IMAGES, 28, 28), dtype="u1"))
        write_idx(folder / f"{prefix}-labels-idx1-ubyte",
                  numbers.integers(10, size=IMAGES, dtype="u1"))


def write_cifar10(folder):
    numbers = numpy.random.default_rng(1)
    for name in ("data_batch_1", "data_batch_2", "test_batch"):
        records = numbers.integers(256, size=(IMAGES, 3073), dtype="u1")
        records[:, 0] %= 10
        records.tofile(folder / f"{name}.bin")


def measured(folder, model, designs, *options):
    printed = run_program(BENCH / "torch_hooks.py", model, "--data", folder, "--json", *options,
                          *[f"--design={design}" for design in designs])
    # The rank is before every line; a site of one rank is warned that it trains alone.
    return [json.loads(line[line.index("{"):]) for line in printed.splitlines()
            if "trains alone" not in line]


@pytest.mark.parametrize("model, write, designs", [
    ("lenet", write_mnist, ["ddp", "fp16", "powersgd-1:2", "3lc:s=1.75", "all-gather/adacomp",
                          "sites-1/int8/3lc"]),
    ("resnet20", write_cifar10, ["ddp", "3lc:s=1.75"])])
def test_both_kinds_of_measurement(model, write, designs, tmp_path):
    write(tmp_path)
    lines = measured(tmp_path, model, designs, "--time=2", "--warm-up=2", "--accuracy=3",
                     "--every=2", "--link=loopback")
    assert [(line["design"], line["kind"]) for line in lines] == [
        (design, kind) for design in designs for kind in ("time", "accuracy")]
    for line in lines:
        assert (line["model"], line["link"], line["ranks"]) == (model, "loopback", 2)
        if "/" in line["design"] or ":s=" in line["design"]:
            # Plain DistributedDataParallel on two ranks sends as much as the gradients take.
            assert 0 < line["hook_bytes_a_step"] < 4 * PARAMETERS[model]
        if line["kind"] == "time":
            assert len(line["seconds"]) == 4 and line["warm_up"] == 2
            assert min(line["seconds"]) <= line["seconds_a_step"] <= max(line["seconds"])
            assert line["cpu_seconds_a_step"] > 0
        else:
            assert [step for step, _ in line["curve"]] == [2, 3]
            assert line["accuracy"] == line["curve"][-1][1] and 0 <= line["accuracy"] <= 1


def test_a_plateau_is_left_or_not():
    """At a rate of almost none it is not."""
    printed = run_program(BENCH / "plateau.py", "--design=ddp", "--design=all-gather/3lc",
                          "--steps=20", "--lr=1e-9", "--spike-limit=inf")
    assert [line.split(":", 1)[1] for line in printed.splitlines()] == [
        "ddp                      seed 1: did not leave it in 20 steps",
        "all-gather/3lc           seed 1: did not leave it in 20 steps"]


def test_models_have_the_parameters_of_the_trainers(monkeypatch):
    monkeypatch.syspath_prepend(BENCH)
    tasks = importlib.import_module("torch_models").TASKS
    assert {name: sum(p.numel() for p in task.network().parameters())
            for name, task in tasks.items()} == PARAMETERS


def test_a_gpt_learns_from_a_text(tmp_path):
    text = tmp_path / "text"
    text.write_text("To be, or not to be: that is the question. " * 60)
    line, = measured(text, "gpt", ["3lc"], "--accuracy=30", "--every=10", "--seed=2")
    assert (line["model"], line["seed"], line["lr"]) == ("gpt", 2, 0.003)
    assert [step for step, _ in line["losses"]] == [10, 20, 30]
    # One of 17 characters each time would be a loss of 2.9.
    assert line["loss"] == line["losses"][-1][1] < min(2.2, line["losses"][0][1])


def test_images_are_cropped_and_mirrored(monkeypatch):
    monkeypatch.syspath_prepend(BENCH)
    crop_flip = importlib.import_module("torch_models").crop_flip
    images = torch.arange(1.0, 1 + 50 * 9).view(50, 1, 3, 3)
    shown = crop_flip(images, numpy.random.default_rng(1))
    assert torch.equal(shown, crop_flip(images, numpy.random.default_rng(1)))
    found = set()
    for image, crop in zip(images, shown):
        kept = crop[crop > 0]
        assert set(kept.tolist()) <= set(image.flatten().tolist())
        rows = [row[row > 0] for row in crop[0]]
        found |= {torch.sign(row[1] - row[0]).item() for row in rows if len(row) > 1}
    assert found == {1.0, -1.0} and not torch.equal(shown, images)


def test_the_table_has_losses_where_lines_have(tmp_path):
    line = {"kind": "accuracy", "model": "gpt", "design": "3lc", "accuracy": 0.25,
            "curve": [[10, 0.25]], "loss": 2.5}
    (tmp_path / "lines").write_text(json.dumps(line) + "\n")
    table = subprocess.run([sys.executable, BENCH / "torch_hooks_table.py", tmp_path / "lines"],
                           check=True, capture_output=True, text=True).stdout
    assert [row.split("|")[1:-1] for row in table.splitlines() if row[:1] == "|"] == [
        [" design ", " bytes sent a step ", " accuracy after 10 steps ", " test loss "],
        [" --- "] * 4, [" `3lc` ", "  ", " 25.00 % ", " 2.5000 "]]


def test_the_table(tmp_path):
    lines = [{"kind": "time", "model": "lenet", "design": design, "link": link,
              "tx_bytes_a_step": 1234.4, "warm_up": 2, "seconds": [1.0, 1.0, *[seconds] * 3],
              "seconds_a_step": seconds}
             for design in ("ddp", "3lc") for link, seconds in (("10mbit", 12.0), ("1gbit", 0.02))]
    lines += [{"kind": "accuracy", "model": "lenet", "design": design, "accuracy": last,
               "curve": [[10, 0.25], [20, last]]} for design, last in (("ddp", 0.75), ("3lc", 0.4))]
    (tmp_path / "lines").write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = subprocess.run(
        [sys.executable, BENCH / "torch_hooks_table.py", "--target", "lenet=50",
         tmp_path / "lines"], check=True, capture_output=True, text=True).stdout
    cells = [re.findall(r" (.+?) (?=\|)", row) for row in table.splitlines() if row[:1] == "|"]
    # Half of the way from 10 to 20: two steps of a second, then 13 at the median.
    assert cells == [
        ["design", "10mbit", "1gbit", "bytes sent a step", "accuracy after 20 steps",
         "50 % at 10mbit", "50 % at 1gbit"],
        ["---"] * 7,
        ["`ddp`", "12.0 s", "20 ms", "1,234", "75.00 %", "158.0 s", "2.26 s"],
        ["`3lc`", "12.0 s", "20 ms", "1,234", "40.00 %", "not reached", "not reached"]]
