"""dry_run(), on one process, and what `tersewire predict` makes of what it saves."""

import json
import os
import subprocess

import pytest

torch = pytest.importorskip("torch")

import tersewire
from support import raises
from tersewire import ErrorCode
from tersewire.torch import dry_run

CODECS = ["3lc", "adacomp:bin=500", "int8"]


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(64, 80), torch.nn.Tanh(), torch.nn.Linear(80, 10))


def train(model, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    for step in range(steps):
        optimizer.zero_grad()
        batch = torch.randn(8, 64, generator=torch.Generator().manual_seed(step))
        (model(batch) - 1).square().mean().backward()
        optimizer.step()
    return torch.cat([value.detach().flatten() for value in model.parameters()])


def test_a_training_is_the_same_to_the_bit():
    plain = train(network(), 12)
    model = network()
    found = dry_run(model, CODECS)
    assert torch.equal(train(model, 12), plain)
    # Once each parameter has had its turn, time decides; there are four.
    assert all(row["looks"] >= 1 for row in found.parameters())


def test_says_what_codecs_do_with_these_gradients():
    model = network()
    found = dry_run(model, CODECS, policy="")
    train(model, 8)
    assert [row["codec"] for row in found.codecs()] == CODECS
    assert [row["used"] for row in found.parameters()] == 4 * CODECS
    names = [name for name, _ in model.named_parameters()]
    assert [row["tensor"] for row in found.parameters()] == [n for n in names for _ in CODECS]
    # The first look at the largest, encoded by hand from the same gradient: no residual is left yet.
    fresh = network()
    gradients = []
    looked = fresh[0].weight.register_hook(lambda gradient: gradients.append(gradient.clone()))
    first = dry_run(fresh, ["int8"], policy="")
    train(fresh, 4)  # the turn of its fourth from behind
    looked.remove()
    (row,) = [row for row in first.parameters() if row["tensor"] == "0.weight"]
    encoder = tersewire.Codec("int8").encoder(list(gradients[0].shape))
    payload = encoder.encode(gradients[3].numpy(), step=4)
    assert row["looks"] == 1
    assert row["bits_per_value"] == pytest.approx(8 * len(bytes(payload)) / gradients[3].numel())
    assert 0 < row["error"] < 0.1


def test_names_what_the_policy_has_for_a_small_parameter():
    found = dry_run(network(), ["adacomp"])
    used = {row["tensor"]: (row["codec"], row["used"]) for row in found.parameters()}
    assert used["0.bias"] == ("adacomp", "fp32:non-finite=send")
    assert used["0.weight"] == ("adacomp", "adacomp")


def test_goes_on_past_a_parameter_that_is_not_used():
    model = network()
    model.unused = torch.nn.Parameter(torch.zeros(300))
    found = dry_run(model, ["int8"])
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    for _ in range(12):
        optimizer.zero_grad()
        torch.nn.Sequential.forward(model, torch.ones(8, 64)).sum().backward()
    looks = {row["tensor"]: row["looks"] for row in found.parameters()}
    assert looks["unused"] >= 1 and looks["2.weight"] >= 1 and looks["0.bias"] >= 1


def test_ends_with_close():
    model = network()
    found = dry_run(model, ["int8"])
    train(model, 5)
    before = found.parameters()
    found.close()
    train(model, 5)
    assert found.parameters() == before
    lines = found.table().splitlines()
    (row,) = found.codecs()
    assert lines[0].startswith("Dry run, ")
    assert lines[2].split()[:2] == ["int8", f"{row['bits_per_value']:.3g}"]
    parameters = [line.split()[:2] for line in lines[-4:]]
    assert parameters == [["0.weight", "5120"], ["0.bias", "80"], ["2.weight", "800"],
                          ["2.bias", "10"]]


def test_predict_takes_what_it_saves(tmp_path):
    program = os.environ.get("TERSEWIRE_PROGRAM")
    if program is None:
        pytest.skip("no TERSEWIRE_PROGRAM in the environment")
    model = network()
    found = dry_run(model, CODECS)
    train(model, 6)
    found.save(tmp_path / "dry", rate_bits_per_second=1e7, latency_seconds=0.02)
    assert sorted(path.name for path in (tmp_path / "dry").iterdir()) == ["dry.json", "model.json"]
    ran = subprocess.run(
        [program, "predict", "--model", tmp_path / "dry" / "model.json", "--probe",
         tmp_path / "dry" / "dry.json", "--workers", "4", "--compute-ms", "50", "--json"],
        capture_output=True, text=True, check=True)
    assert {design["codec"] for design in json.loads(ran.stdout)} >= {"int8"}
    policy = subprocess.run([program, "predict", "--from", tmp_path / "dry" / "dry.json"],
                            capture_output=True, text=True, check=True).stdout
    shapes = json.loads((tmp_path / "dry" / "model.json").read_text())
    chosen = tersewire.choose_codecs(policy.strip(), "fp32", [
        tersewire.TensorInfo(one["name"], one["shape"], one["kind"]) for one in shapes])
    assert {codec.name for codec in chosen} <= {"3lc", "adacomp", "int8"}


def test_refuses_what_makes_no_sense():
    raises(ErrorCode.kInvalidArgument, lambda: dry_run(network(), "3lc"))
    raises(ErrorCode.kInvalidArgument, lambda: dry_run(network(), ["3lk"]))
    raises(ErrorCode.kInvalidArgument, lambda: dry_run(network(), []))
