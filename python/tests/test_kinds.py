"""Kinds of parameters, which policies name: the same from a model and from its names."""

import pytest

torch = pytest.importorskip("torch")
from tersewire.torch._tensors import norms_in, own_name, tensor_infos


class RMSNorm(torch.nn.Module):
    """Anyone's."""

    def __init__(self, channels):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(channels))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class Scaled(torch.nn.Module):
    """A layer with scales of its own beside its weight."""

    def __init__(self):
        super().__init__()
        self.gamma = torch.nn.Parameter(torch.ones(8))
        self.weight = torch.nn.Parameter(torch.ones(8, 8))
        self.bias = torch.nn.Parameter(torch.ones(8))
        self.temperature = torch.nn.Parameter(torch.ones(()))


def by_class(model):
    return {info.name: info.kind for info in tensor_infos(model)}


def check_norms(model, expected):
    """Those of the model, and those of its names alone."""
    assert {name for name, kind in by_class(model).items() if kind == "norm"} == expected
    assert {own_name(name) for name in norms_in(model.named_parameters())} == expected


def test_a_norm_of_anyones_is_a_norm():
    check_norms(torch.nn.Sequential(torch.nn.Linear(8, 8), RMSNorm(8)), {"1.weight"})


def test_a_scripted_batch_norm_is_a_norm():
    model = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)))
    check_norms(model, {"1.weight", "1.bias"})


@pytest.mark.parametrize("norm", [torch.nn.LayerNorm(8), torch.nn.GroupNorm(2, 8),
                                  torch.nn.InstanceNorm1d(8, affine=True), torch.nn.RMSNorm(8)],
                         ids=lambda norm: type(norm).__name__)
def test_a_norm_of_torchs_is_a_norm(norm):
    names = {f"1.{name}" for name, _ in norm.named_parameters()}
    check_norms(torch.nn.Sequential(torch.nn.Linear(8, 8), norm), names)


def test_a_compiled_norm_is_a_norm():
    compiled = torch.compile(RMSNorm(8), backend="eager")
    check_norms(torch.nn.Sequential(torch.nn.Linear(8, 8), compiled), {"1.weight"})


def test_a_scale_beside_other_parameters_is_a_norm_and_their_bias_none():
    check_norms(Scaled(), {"gamma"})
    assert by_class(Scaled())["bias"] == "bias"


def test_layers_without_norms_have_none():
    model = torch.nn.Sequential(torch.nn.Conv1d(8, 8, 3), torch.nn.LSTM(8, 8), torch.nn.Embedding(8, 8))
    check_norms(model, set())
