"""Groups that send from accelerators, by stand-ins: whose device is used where no rank has set its own."""

import contextlib
import types

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist

if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

from tersewire.torch import _optimizer, broadcast_optimizer_state
from tersewire.torch._groups import ProcessGroup

SECOND = torch.device("cuda", 1)
ON_SECOND = types.SimpleNamespace(device=SECOND, is_cpu=False)
ON_CPU = types.SimpleNamespace(device=torch.device("cpu"), is_cpu=True)


@pytest.fixture
def alone(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def devices(alone, monkeypatch):
    """Of a group that sends none from the CPU: the devices that are current in its object collectives."""
    current, seen = [None], []

    @contextlib.contextmanager
    def device(given):
        before, current[0] = current[0], given
        yield
        current[0] = before

    monkeypatch.setattr(ProcessGroup, "_sends_from_cpu", lambda _: False)
    monkeypatch.setattr(torch.cuda, "device", device)
    for name in ("all_gather_object", "broadcast_object_list"):
        monkeypatch.setattr(dist, name, lambda *_, **__: seen.append(current[0]))
    return seen


def test_object_collectives_use_the_models_device(devices):
    group = ProcessGroup(None, [ON_CPU, ON_SECOND])
    group._gather("")
    group._broadcast_objects([None], 0)
    assert devices == [SECOND, SECOND]


def test_object_collectives_of_a_model_on_the_cpu_use_the_current_device(devices):
    ProcessGroup(None, [ON_CPU])._gather("")
    assert devices == [None]


def test_values_on_the_cpu_are_sent_from_the_models_device(devices):
    group = ProcessGroup(None, [ON_SECOND])
    assert group._device_to_send_from(torch.device("cpu")) == SECOND
    assert group._device_to_send_from(torch.device("cuda", 0)) == torch.device("cuda", 0)


def test_a_group_that_sends_from_the_cpu_does_so(alone):
    assert ProcessGroup(None, [ON_SECOND])._device_to_send_from(torch.device("cpu")) == torch.device("cpu")


class OnDevice(torch.Tensor):
    """As if it were on an accelerator."""

    def cpu(self):
        return torch.ones(3)


def test_an_optimizers_state_travels_through_host_memory(alone, monkeypatch):
    sent = []
    monkeypatch.setattr(ProcessGroup, "_broadcast_objects", lambda _, objects, root: sent.extend(objects))
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
    optimizer.state[parameter] = {"momentum_buffer": torch.zeros(3).as_subclass(OnDevice), "nested": [
        (torch.zeros(3).as_subclass(OnDevice), 5)]}
    broadcast_optimizer_state(optimizer)
    state = sent[0]["state"][0]
    assert type(state["momentum_buffer"]) is type(state["nested"][0][0]) is torch.Tensor
    assert state["momentum_buffer"].all() and state["nested"][0][1] == 5


def test_broadcasts_of_an_optimizers_state_use_its_parameters_device(alone, monkeypatch):
    found = []
    monkeypatch.setattr(_optimizer, "group_of", lambda group, near: found.extend(near) or ProcessGroup(None))
    parameter = torch.nn.Parameter(torch.zeros(3))
    broadcast_optimizer_state(torch.optim.SGD([parameter], lr=0.1))
    assert found == [parameter]
