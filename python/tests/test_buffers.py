"""What ranks are given of a model's values: buffers and parameters of every kind, and extra states."""

import json
import os
import subprocess

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

import tersewire
from ranks import check_replicas, run_on_ranks
from tersewire.torch import (DistributedOptimizer, LocalUpdates, broadcast_parameters, dry_run,
                             register)


def sgd(model):
    return torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.1)


def layer(buffer=None, persistent=True):
    """A model with a buffer, whose values another one's may be."""
    torch.manual_seed(dist.get_rank())
    model = torch.nn.Linear(4, 4)
    if buffer is not None:
        model.register_buffer("own", buffer, persistent)
    return model


def ramp():
    """Other values on each rank."""
    return torch.arange(4.0) + 10 * dist.get_rank()


def refused(match, call, *arguments, **options):
    with pytest.raises(tersewire.Error, match=match) as raised:
        call(*arguments, **options)
    assert raised.value.code == tersewire.ErrorCode.kInvalidArgument


def check_shared(make, expected):
    """A buffer has rank 0's values after broadcast_parameters(), and in LocalUpdates."""
    model = layer(make())
    broadcast_parameters(model.state_dict())
    assert torch.equal(expected(model.own), expected(make_of_first(make)))
    model = layer(make())
    LocalUpdates(model, sgd(model), every=1, codec="fp32").close()
    assert torch.equal(expected(model.own), expected(make_of_first(make)))


def make_of_first(make):
    """What rank 0 makes."""
    rank = dist.get_rank
    dist.get_rank = lambda *_: 0
    try:
        return make()
    finally:
        dist.get_rank = rank


def case_a_sparse_buffer_is_rank_0s():
    check_shared(lambda: torch.diag(ramp() + 1).to_sparse(), torch.Tensor.to_dense)


def case_a_compressed_sparse_buffer_is_rank_0s():
    for layout in (torch.sparse_csr, torch.sparse_csc):
        check_shared(lambda layout=layout: torch.diag(ramp() + 1).to_sparse(layout=layout),
                     torch.Tensor.to_dense)


def case_a_conjugate_buffer_is_rank_0s():
    def make():
        value = torch.complex(torch.ones(4), ramp())
        return value.conj() if dist.get_rank() == 0 else value

    check_shared(make, torch.Tensor.resolve_conj)


def case_a_negative_view_is_rank_0s():
    check_shared(lambda: torch.complex(ramp(), ramp() + 1).conj().imag, torch.Tensor.resolve_neg)


def case_an_expanded_buffer_is_rank_0s():
    check_shared(lambda: ramp()[1].expand(3, 4), torch.Tensor.contiguous)


def case_a_buffer_of_an_inference_mode_is_rank_0s():
    def make():
        with torch.inference_mode():
            return ramp() + 0

    check_shared(make, torch.Tensor.clone)


def case_sparse_buffers_with_other_numbers_of_values_are_refused():
    model = layer(torch.diag((ramp() > 0).float()).to_sparse())
    refused("rank 1 has another model", broadcast_parameters, model.state_dict())


def case_a_quantized_buffer_is_refused_by_its_name():
    model = layer(torch.quantize_per_tensor(ramp(), 0.1, 0, torch.qint8))
    refused("'own' is quantized", broadcast_parameters, model.state_dict())
    refused("'own' is quantized", LocalUpdates, model, sgd(model), every=1, codec="fp32")


def case_a_buffer_that_no_state_has_is_rank_0s():
    model = layer(ramp(), persistent=False)
    LocalUpdates(model, sgd(model), every=1, codec="fp32").close()
    assert torch.equal(model.own, torch.arange(4.0))


class Frozen(torch.nn.Module):
    """Its states lack what is frozen."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(dist.get_rank())
        self.trained, self.frozen = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4).requires_grad_(False)

    def forward(self, x):
        return self.trained(self.frozen(x))

    def state_dict(self, *arguments, **options):
        state = super().state_dict(*arguments, **options)
        return {name: value for name, value in state.items() if not name.startswith("frozen")}


def case_frozen_weights_that_no_state_has_are_rank_0s():
    model = Frozen()
    LocalUpdates(model, sgd(model), every=1, codec="fp32").close()
    check_replicas(model.trained.weight)
    check_replicas(model.frozen.weight)


class Noted(torch.nn.Linear):
    """Has an extra state, which is a tensor."""

    def get_extra_state(self):
        return self.note

    def set_extra_state(self, state):
        self.note = state


def case_an_extra_state_is_rank_0s():
    model = torch.nn.Sequential(Noted(4, 4))
    model[0].note = ramp()
    LocalUpdates(model, sgd(model), every=1, codec="fp32").close()
    assert torch.equal(model[0].note, torch.arange(4.0))


def case_a_conjugate_frozen_parameter_is_compared():
    model = layer()
    broadcast_parameters(model.state_dict())
    model.extra = torch.nn.Parameter(torch.complex(ramp(), ramp()).conj(), requires_grad=False)
    optimizer = DistributedOptimizer(sgd(model), model, "fp32")
    model(torch.ones(2, 4)).sum().backward()
    refused("other parameters than rank 0", optimizer.step)


def case_a_sparse_parameter_is_refused_by_its_name():
    model = layer()
    model.extra = torch.nn.Parameter(torch.eye(4).to_sparse())
    for call in (DistributedOptimizer, lambda optimizer, model: LocalUpdates(model, optimizer)):
        refused("'extra' is sparse", call, sgd(model), model)


def case_a_lazy_parameter_is_refused_by_its_name():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LazyLinear(4))
    for call in (lambda: DistributedOptimizer(sgd(model), model),
                 lambda: LocalUpdates(model, sgd(model)), lambda: dry_run(model, ["3lc"]),
                 lambda: broadcast_parameters(dict(model.named_parameters()))):
        refused("'1.(weight|bias)' is lazy", call)


def case_a_parameter_on_the_device_meta_is_refused_by_its_name():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4, device="meta"))
    for call in (lambda: DistributedOptimizer(sgd(model), model),
                 lambda: LocalUpdates(model, sgd(model)), lambda: dry_run(model, ["3lc"]),
                 lambda: broadcast_parameters(model.state_dict())):
        refused("'1.(weight|bias)' is on the device meta", call)


def with_empty():
    model = layer()
    model.none = torch.nn.Parameter(torch.zeros(0, 4))
    model.forward = lambda x: torch.nn.functional.linear(x, model.weight, model.bias) + model.none.sum()
    return model


def case_a_parameter_without_elements_is_trained():
    for train in ("ddp", "optimizer", "local"):
        model = run = with_empty()
        optimizer = sgd(model)
        if train == "ddp":
            run = DistributedDataParallel(model)
            register(run, "3lc")
        elif train == "optimizer":
            broadcast_parameters(model.state_dict())
            DistributedOptimizer(optimizer, model, "3lc")
        else:
            LocalUpdates(model, optimizer, every=1, codec="3lc")
        for _ in range(2):
            optimizer.zero_grad()
            run(torch.ones(2, 4) * (1 + dist.get_rank())).square().sum().backward()
            optimizer.step()
        check_replicas(model.weight)


def test_a_parameter_without_elements_is_not_in_the_shapes_that_predict_takes(tmp_path):
    model = torch.nn.Linear(40, 40)
    model.none = torch.nn.Parameter(torch.zeros(0, 4))
    found = dry_run(model, ["3lc"])
    for _ in range(4):
        (model(torch.randn(3, 40)).square().sum() + model.none.sum()).backward()
    found.save(tmp_path)
    shapes = json.loads((tmp_path / "model.json").read_text())
    assert [shape["name"] for shape in shapes] == ["weight", "bias"]
    program = os.environ.get("TERSEWIRE_PROGRAM")
    if program is not None:
        subprocess.run([program, "predict", "--model", tmp_path / "model.json", "--probe",
                        tmp_path / "dry.json", "--workers", "2", "--compute-ms", "5"], check=True)


CASES = [case for name, case in sorted(globals().items()) if name.startswith("case_")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.removeprefix("case_"))
def test_on_ranks(case, tmp_path):
    run_on_ranks([case], 2, tmp_path)
