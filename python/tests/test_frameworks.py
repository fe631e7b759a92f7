"""Accelerate, Lightning and the Hugging Face Trainer: their examples, and what the launcher runs."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest

from support import ROOT

torch = pytest.importorskip("torch")
if not torch.distributed.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

from ranks import run_program

# Runs an example, and shows each rank's model.
SHOWN = """
import runpy
import sys
import tersewire.torch

register, made = tersewire.torch.register, []

def keep(model, *settings):
    made.append((model, register(model, *settings)))
    return made[-1][1]

tersewire.torch.register = keep
runpy.run_path(sys.argv[1], run_name="__main__")
(model, hook), = made
total = sum(parameter.double().sum().item() for parameter in model.parameters())
print(f"\\n{hook.counters.steps} steps to {total}", flush=True)
"""

LIGHTNING = """
import lightning
import torch

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(20, 300)

    def training_step(self, batch, _):
        return self.layer(batch).square().mean()

    def on_train_end(self):
        total = self.layer.weight.double().sum().item()
        print(f"model {total} of rank {self.trainer.global_rank}", flush=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

if __name__ == "__main__":
    lightning.seed_everything(1)
    trainer = lightning.Trainer(accelerator="cpu", strategy="ddp", devices=2, max_steps=5,
                                logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(80, 20), batch_size=8))
"""

NOTEBOOK = """
import accelerate
import torch

def train():
    accelerator = accelerate.Accelerator(cpu=True)
    torch.manual_seed(1)
    layer = torch.nn.Linear(20, 300)
    model, optimizer = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), lr=0.1))
    torch.manual_seed(accelerator.process_index)
    for step in range(5):
        optimizer.zero_grad()
        accelerator.backward(model(torch.randn(8, 20)).square().mean())
        optimizer.step()
    total = layer.weight.double().sum().item()
    print(f"model {total} of rank {accelerator.process_index}", flush=True)
    accelerator.end_training()

accelerate.debug_launcher(train, num_processes=2)
"""


def needs(framework):
    return pytest.mark.skipif(importlib.util.find_spec(framework) is None,
                              reason=f"{framework} is not installed")


@pytest.mark.parametrize("example, steps", [
    pytest.param("plain_ddp", 157, id="plain_ddp"),
    pytest.param("accelerate_train", 157, id="accelerate", marks=needs("accelerate")),
    pytest.param("lightning_train", 157, id="lightning", marks=needs("lightning")),
    pytest.param("hf_trainer", 60, id="transformers",
                 marks=[needs("transformers"), needs("accelerate")]),
])
def test_an_example_trains_one_model_with_a_20th_of_the_bytes(example, steps, tmp_path):
    (tmp_path / "shown.py").write_text(SHOWN)
    path = ROOT / "examples" / f"{example}.py"
    printed = run_program(tmp_path / "shown.py", path, cwd=tmp_path)
    losses, saved = zip(*re.findall(
        r"^\[default0\]:step \d+: loss ([\d.]+), ([\d.]+)x fewer bytes sent$", printed, re.M))
    assert float(losses[-1]) < 0.7 * float(losses[0])
    assert 20 < float(saved[-1]) < 40
    models = re.findall(r"^\[default\d\]:(\d+) steps to (.*)$", printed, re.M)
    assert models == 2 * [(str(steps), models[0][1])]
    assert len(path.read_text().splitlines()) < 40


@pytest.mark.parametrize("example", ["accelerate_train", "lightning_train", "hf_trainer"])
def test_a_snippet_of_the_documentation_is_in_its_example(example):
    docs = (ROOT / "docs" / "python.md").read_text()
    (snippet,) = re.findall(rf"\({re.escape(f'../examples/{example}.py')}\)\):\n\n```diff\n(.*?)^```", docs,
                            re.M | re.S)
    lines = [line[1:].strip() for line in snippet.splitlines()]
    shown = (ROOT / "examples" / f"{example}.py").read_text()
    assert len(lines) > 1 and all(line in shown for line in lines)


@pytest.mark.parametrize("script", [
    pytest.param(LIGHTNING, id="lightning", marks=needs("lightning")),
    pytest.param(NOTEBOOK, id="accelerate", marks=needs("accelerate")),
])
def test_ranks_that_a_framework_starts_are_hooked(script, tmp_path):
    (tmp_path / "train.py").write_text(script)
    run = subprocess.run([sys.executable, "-m", "tersewire.torch", "--codec", "3lc", "train.py"],
                         cwd=tmp_path, capture_output=True, text=True, check=True,
                         env={**os.environ, "ACCELERATE_USE_CPU": "true"})
    models = re.findall(r"model (\S+) of rank", run.stdout)
    assert models == 2 * [models[0]]
    steps, sent, whole = re.search(
        r"tersewire: (\d+) steps: (\d+) bytes sent .* for (\d+) bytes of", run.stderr).groups()
    assert steps == "5" and int(whole) == 5 * 4 * 6300 and 20 * int(sent) < int(whole)
