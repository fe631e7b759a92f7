"""Scripts that know nothing of tersewire, run by python -m tersewire.torch."""

import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from ranks import run_program

SCRIPT = """
import sys
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

class Scaler(torch.cuda.amp.GradScaler):
    def get_scale(self):
        print("asked", flush=True)
        return 4.0

dist.init_process_group("gloo")
torch.manual_seed(1)
class Mixed(DistributedDataParallel):
    mixed_precision = "half"  # as torch 2 has it

kind = Mixed if "mixed" in sys.argv else DistributedDataParallel
model = kind(torch.nn.Linear(20, 300))
if "hook" in sys.argv:
    model.register_comm_hook(None, fp16_compress_hook)
if "scaler" in sys.argv:
    scaler = Scaler(enabled=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for step in range(5):
    optimizer.zero_grad()
    model(torch.randn(8, 20)).square().mean().backward()
    optimizer.step()
print(__name__, sys.argv[1:], model.module.weight.double().sum().item(), flush=True)
dist.barrier()
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def lines(printed, what):
    return re.findall(rf"^\[default\d\]:({what}.*)$", printed, re.M)


def sent(printed):
    (report,) = lines(printed, "tersewire: 5 steps: ")
    return [int(number) for number in re.findall(r"(\d+) bytes", report)]


def test_a_script_trains_as_without_it(script):
    plain = lines(run_program(script, "--lr", "1"), "__main__")
    printed = run_program("-m", "tersewire.torch", "--codec", "fp32", script, "--lr", "1")
    assert lines(printed, "__main__") == plain and "['--lr', '1']" in plain[0]
    assert sent(printed)[0] > sent(printed)[1] == 5 * 4 * 6300


def test_its_gradients_are_compressed(script):
    printed = run_program("-m", "tersewire.torch", "--codec", "3lc", "-m", "train", cwd=script.parent)
    assert len(set(lines(printed, "__main__"))) == 1  # both ranks have one model
    assert 20 * sent(printed)[0] < sent(printed)[1]


def test_its_own_hook_is_not_used_and_its_scaler_is(script):
    printed = run_program("-m", "tersewire.torch", script, "hook", "scaler")
    assert lines(printed, "tersewire: the script") == [
        "tersewire: the script's own hook fp16_compress_hook is not used"]
    assert lines(printed, "asked") == 2 * 5 * ["asked"]
    assert 20 * sent(printed)[0] < sent(printed)[1]


def test_a_model_that_needs_its_own_hook_keeps_it(script):
    printed = run_program("-m", "tersewire.torch", script, "mixed", "hook")
    assert len(set(lines(printed, "__main__"))) == 1
    left, end = lines(printed, "tersewire: ")
    assert "a model's gradients stay as they are: DistributedDataParallel has a hook of its own" in left
    assert "nothing was compressed" in end


@pytest.mark.parametrize("arguments, sentence", [
    (["--codec", "4lc", "train.py"], "unknown codec '4lc'"),
    (["--threads", "0", "train.py"], "threads=0 is not valid"),
    (["--spike-limit", "0", "train.py"], "spike_limit=0.0 is not valid"),
    (["no.py"], "there is no script no.py"),
    (["alone.py"], "nothing was compressed"),
])
def test_what_cannot_be_is_said(script, arguments, sentence):
    (script.parent / "alone.py").write_text("")
    run = subprocess.run([sys.executable, "-m", "tersewire.torch", *arguments], cwd=script.parent,
                         stderr=subprocess.PIPE, text=True)
    assert run.returncode == (0 if arguments == ["alone.py"] else 2)
    assert sentence in run.stderr
