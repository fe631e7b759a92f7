"""What tersewire.torch uses of torch's private names is there, and does what it says."""

import datetime
import types

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

from ranks import network
from tersewire.torch import _private
from tersewire.torch._groups import ProcessGroup

LIMIT = datetime.timedelta(seconds=77)


@pytest.fixture
def group(request, tmp_path, monkeypatch):
    """Of this process alone."""
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", getattr(request, "param", "OFF"))
    dist.set_debug_level_from_env()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1,
                            timeout=LIMIT)
    yield dist.group.WORLD
    dist.destroy_process_group()
    monkeypatch.undo()
    dist.set_debug_level_from_env()


@pytest.mark.parametrize("group", ["OFF", "DETAIL"], indirect=True)  # with a backend around Gloo's
def test_a_group_has_devices_and_a_time_limit(group):
    assert "cpu" in _private.devices_of(group)
    assert _private.timeout_of(group) == LIMIT


def test_ranks_meet_in_a_store(group):
    _private.default_store().set("here", "yes")
    assert _private.default_store().get("here") == b"yes"


def test_a_group_written_in_python_has_neither():
    class InPython(dist.ProcessGroup):
        pass

    assert _private.devices_of(InPython(0, 1)) == []
    assert _private.timeout_of(InPython(0, 1)) is None


def test_a_public_get_backend_is_preferred():
    options = types.SimpleNamespace(_timeout=LIMIT)
    group = types.SimpleNamespace(
        _device_types=[torch.device("cpu")], _get_backend=None,
        get_backend=lambda device: types.SimpleNamespace(options=options))
    assert _private.timeout_of(group) == LIMIT


@pytest.mark.parametrize("limit, taken", [
    (LIMIT, LIMIT), (datetime.timedelta.max, datetime.timedelta(days=30)),
    (datetime.timedelta(days=365), datetime.timedelta(days=30)),
    (datetime.timedelta(0), datetime.timedelta(days=30))])
def test_a_time_limit_is_at_most_the_librarys(limit, taken, monkeypatch):
    group = ProcessGroup.__new__(ProcessGroup)
    monkeypatch.setattr(group, "_timeout", lambda: limit)
    assert group._limits(None) == (taken, taken)


@pytest.mark.parametrize("devices, name, sends", [
    (["cpu"], "gloo", True), (["cuda", "cpu"], "cpu:gloo,cuda:nccl", True), (["cuda"], "nccl", False),
    ([], "in-python", True), ([], "torchft-nccl", False), ([], "nccl2", False), ([], "xccl", False)])
def test_what_a_group_sends_is_where_its_backend_takes_it(devices, name, sends, monkeypatch):
    group = ProcessGroup.__new__(ProcessGroup)
    group._group = types.SimpleNamespace(_device_types=list(map(torch.device, devices)))
    monkeypatch.setattr(dist, "get_backend", lambda group: name)
    assert group._sends_from_cpu() == sends


def test_a_backward_pass_calls_what_is_queued():
    called = []
    value = torch.ones(1, requires_grad=True)
    value.register_hook(lambda _: called.append(_private.queue_callback(lambda: called.append("end"))))
    value.sum().backward()
    assert called == [True, "end"]
    assert not _private.queue_callback(lambda: None)


def test_a_model_says_what_its_ranks_used(group):
    model = DistributedDataParallel(torch.nn.ModuleList([network(1), network(2)]),
                                    find_unused_parameters=True)
    model.module.forward = lambda x: model.module[0](x)
    model(torch.ones(1, 64)).sum().backward()
    assert _private.uses_of(model) == [1] * 4 + [0] * 4


def test_a_model_names_its_hook(group):
    def own(state, bucket):
        raise NotImplementedError

    model = DistributedDataParallel(network())
    assert _private.has_own_hook(model) is None
    model.register_comm_hook(None, own)
    assert _private.has_own_hook(model) == "own"
    assert not _private.reduces_in_python(model) and not _private.exchanges_nothing(model)


def test_step_hooks_are_ordered():
    optimizer = torch.optim.SGD(network().parameters(), lr=0)
    assert _private.has_step_hooks(optimizer)
    called = []
    ours = (optimizer.register_step_pre_hook(lambda *_: called.append("before")),
            optimizer.register_step_post_hook(lambda *_: called.append("after")))
    optimizer.register_step_pre_hook(lambda *_: called.append("first"))
    optimizer.register_step_post_hook(lambda *_: called.append("last"))
    _private.make_innermost(optimizer, *ours)
    optimizer.step()
    assert called == ["first", "before", "after", "last"]


def test_steps_within_steps_are_counted():
    class Inner(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    class Outer(Inner):
        def step(self, closure=None):
            return super().step(closure)

    Inner(network().parameters(), lr=0)  # since when its step() has hooks
    torch.optim.SGD(network().parameters(), lr=0)
    counted = []
    optimizer = Outer(network().parameters(), lr=0)
    optimizer.register_step_post_hook(lambda one, *_: counted.append(_private.steps_under_way(one)))
    optimizer.step()
    assert counted == [3, 2, 1]
