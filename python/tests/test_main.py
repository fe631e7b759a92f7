"""Scripts that know nothing of tersewire, run by python -m tersewire.torch."""

import os
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

class Scaler(torch.amp.GradScaler):
    def get_scale(self):
        print("asked", flush=True)
        return 4.0

class Own(DistributedDataParallel):
    def __init__(self, module, **settings):
        super().__init__(module, **settings)
        self.register_comm_hook(None, fp16_compress_hook)

class OfTwoTypes(torch.nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.factor = torch.nn.Parameter(torch.ones((), dtype=torch.float64))

    def forward(self, x):
        return super().forward(x) * self.factor.float()

dist.init_process_group("gloo")
torch.manual_seed(1)
settings = {}
if "skip" in sys.argv:
    settings["skip_all_reduce_unused_params"] = True
if "static" in sys.argv:
    settings["static_graph"] = True
if "alone" in sys.argv:
    settings["process_group"] = [dist.new_group([0]), dist.new_group([1])][dist.get_rank()]
kind = Own if "own" in sys.argv else DistributedDataParallel
model = kind((OfTwoTypes if "static" in sys.argv else torch.nn.Linear)(20, 300), **settings)
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


STARTER = """
import os
import sys
import tempfile
from dataclasses import dataclass
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

@dataclass
class Settings:  # found by its name in the ranks
    rate: float = 0.1

def train(rank, meeting, settings):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(20, 300))
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.rate)
    torch.manual_seed(rank)
    for step in range(5):
        optimizer.zero_grad()
        model(torch.randn(8, 20)).square().mean().backward()
        optimizer.step()
    os.write(1, f"{sys.argv} {model.module.weight.double().sum().item()}\\n".encode())
    dist.barrier()

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(train, (f"{folder}/meeting", Settings()), 2, start_method=sys.argv[1])
"""

# One rank has the hook.
MIXED = """
import datetime
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import tersewire.torch

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(20, 300))
if dist.get_rank() == 1:
    tersewire.torch.register(model, timeout=datetime.timedelta(seconds=2))
model(torch.randn(8, 20)).square().mean().backward()
"""


def run_alone(*arguments, cwd, **environment):
    """The launcher in one process, with no launcher before it."""
    return subprocess.run([sys.executable, "-m", "tersewire.torch", *arguments], cwd=cwd,
                          capture_output=True, text=True, env={**os.environ, **environment})


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


@pytest.mark.parametrize("arguments, reason", [
    (["skip", "hook"], "with skip_all_reduce_unused_params=True"),
    (["static", "hook"], "with static_graph=True and parameters of 2 types"),
    (["own"], "Own registers a hook of its own"),
    (["alone"], "its process group has one rank"),
])
def test_a_model_that_cannot_have_the_hook_is_left_with_one_sentence(script, arguments, reason):
    printed = run_program("-m", "tersewire.torch", script, *arguments)
    assert len(set(lines(printed, "__main__"))) == (2 if arguments == ["alone"] else 1)
    left, end = lines(printed, "tersewire: ")
    assert left.startswith(f"tersewire: a model's gradients stay as they are: {reason}")
    assert "nothing was compressed" in end


@pytest.mark.parametrize("method, named", [
    pytest.param("spawn", ["-m", "train"], id="spawn"),
    pytest.param("fork", ["train.py"], id="fork")])
def test_ranks_that_the_script_starts_are_hooked(method, named, tmp_path):
    (tmp_path / "train.py").write_text(STARTER)
    printed = run_alone("--codec", "3lc", *named, method, "--", "--lr", cwd=tmp_path)
    models = re.findall(r"^\['(.*)', '(\w+)', '--', '--lr'\] (\S+)$", printed.stdout, re.M)
    assert models == 2 * [models[0]] and models[0][0].endswith("train.py")
    steps, sent, whole = re.search(
        r"^tersewire: (\d+) steps: (\d+) bytes sent .* for (\d+) bytes of", printed.stderr,
        re.M).groups()
    assert steps == "5" and 20 * int(sent) < int(whole)


def test_hooks_of_some_ranks_are_refused_by_these_with_what_to_type(tmp_path):
    (tmp_path / "train.py").write_text(MIXED)
    with pytest.raises(subprocess.CalledProcessError) as ended:
        run_program("train.py", cwd=tmp_path)
    assert re.search(
        r"^tersewire\S*Error: rank 1 has made a hook, and within 2 seconds these ranks have not: 0; "
        r"call register\(\) on every rank, or start every rank with -m tersewire\.torch",
        ended.value.stderr, re.M)


def test_words_after_the_script_and_a_local_rank_before_it_reach_the_script(tmp_path):
    (tmp_path / "show.py").write_text("import sys\nprint(sys.argv[1:])")
    for words, expected in ((["show.py", "--", "-x", "--codec"], ["--", "-x", "--codec"]),
                            (["--local-rank=3", "--seed", "1", "-m", "show"], ["--local-rank=3"])):
        assert run_alone(*words, cwd=tmp_path).stdout == f"{expected}\n"


def test_a_script_finds_what_is_beside_it_unless_the_path_is_safe(tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "beside.py").write_text("")
    (tmp_path / "scripts" / "show.py").write_text(
        "import importlib.util, sys\nprint(importlib.util.find_spec('beside') is not None)\n"
        "import tersewire")
    assert run_alone("scripts/show.py", cwd=tmp_path).stdout == "True\n"
    if sys.version_info >= (3, 11):
        assert run_alone("scripts/show.py", cwd=tmp_path, PYTHONSAFEPATH="1").stdout == "False\n"


def test_a_module_of_a_package_imports_relatively(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "part.py").write_text("name = 'part'")
    (tmp_path / "package" / "__main__.py").write_text(
        "import sys\nfrom . import part\nprint(part.name, __name__, sys.argv[0] == __file__)")
    printed = run_alone("-m", "package", cwd=tmp_path)
    assert printed.stdout == "part __main__ True\n" and "Warning" not in printed.stderr


@pytest.mark.parametrize("arguments, sentence", [
    (["--codec", "4lc", "train.py"], "unknown codec '4lc'"),
    (["--threads", "0", "train.py"], "threads=0 is not valid"),
    (["--spike-limit", "0", "train.py"], "spike_limit=0.0 is not valid"),
    (["no.py"], "there is no script no.py"),
    (["-m", "no"], "there is no module no"),
    (["-m", "torch.distributed.run", "train.py"], "put it first: torchrun --nproc_per_node N -m"),
    (["alone.py"], "nothing was compressed"),
])
def test_what_cannot_be_is_said(script, arguments, sentence):
    (script.parent / "alone.py").write_text("")
    run = run_alone(*arguments, cwd=script.parent)
    assert run.returncode == (0 if arguments == ["alone.py"] else 2)
    assert sentence in run.stderr
