"""States that other libraries keep: loaded in place, or into what has not begun, or refused."""

import copy
import tempfile

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict

import tersewire
from ranks import network, run_on_ranks, train
from tersewire.torch import DistributedOptimizer, LocalUpdates, register


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def folder():
    made = [tempfile.mkdtemp()]
    dist.broadcast_object_list(made)
    return made[0]


def key():
    return f"tersewire {dist.get_rank()}"


def check_resumes(begin, steps=4):
    """As well from a state of torch's distributed checkpoint, loaded into that of a new run."""
    model, optimizer, kept = begin()
    train(model, optimizer, range(steps))
    path = folder()
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    dcp.save({key(): kept.state_dict()}, checkpoint_id=path)
    expected = train(model, optimizer, range(steps, steps + 4))
    model, optimizer, kept = begin()
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    state = {key(): kept.state_dict()}
    dcp.load(state, checkpoint_id=path)
    kept.load_state_dict(state[key()])
    assert torch.equal(train(model, optimizer, range(steps, steps + 4)), expected)


def hooked(make=adamw, first_the_optimizer=False, **settings):
    def begin():
        model = DistributedDataParallel(network())
        early = make(model) if first_the_optimizer else None
        hook = register(model, "3lc", **settings)
        return model, early or make(model), hook

    return begin


def case_a_hook_resumes_from_a_distributed_checkpoint():
    check_resumes(hooked())


def case_a_hook_of_all_gather_resumes_with_its_norms():
    check_resumes(hooked(exchange="all-gather"))


def case_a_hook_whose_means_keep_no_residual_resumes():
    check_resumes(hooked(exchange="gradient-server"))


def case_a_hook_made_after_its_optimizer_resumes():
    check_resumes(hooked(first_the_optimizer=True))


def case_a_hook_under_sgd_resumes_with_residuals_of_means():
    check_resumes(hooked(sgd, exchange="gradient-server"))


def case_a_distributed_optimizer_resumes_from_a_distributed_checkpoint():
    def begin():
        model = network()
        optimizer = DistributedOptimizer(adamw(model), model, "3lc")
        return model, optimizer, optimizer.averager

    check_resumes(begin)


def case_local_updates_resume_from_a_distributed_checkpoint():
    for settings in ({"every": 2}, {"every": 3, "delay": 2}, {"every": 4, "fragments": 2}):
        def begin(settings=settings):
            model = network()
            optimizer = adamw(model)
            local = LocalUpdates(model, optimizer, codec="3lc",
                                 outer="nesterov:lr=1,momentum=0.5", **settings)
            return model, optimizer, local

        check_resumes(begin)


def names_in(state, before=""):
    """Of tensors and numbers, and the tensors' shapes."""
    if isinstance(state, list):
        state = dict(enumerate(state))
    if not isinstance(state, dict):
        return {before: tuple(state.shape) if torch.is_tensor(state) else None}
    return {name: what for key, value in state.items()
            for name, what in names_in(value, f"{before}.{key}").items()}


def case_a_state_holds_the_same_before_the_first_step():
    for begin in (hooked(), hooked(sgd), hooked(exchange="gradient-server"),
                  hooked(first_the_optimizer=True)):
        model, optimizer, hook = begin()
        before = names_in(hook.state_dict())
        train(model, optimizer, range(1))
        assert names_in(hook.state_dict()) == before


def case_exchange_and_means_are_known_when_a_hook_is_made():
    made = hooked(first_the_optimizer=True)()
    assert made[2].state_dict()["exchange"] == made[2]._exchange == "gradient-server"
    assert not made[2]._worker.state()[2].get("0.weight")


def case_an_optimizer_that_takes_anothers_place_is_known_in_the_first_step():
    model = DistributedDataParallel(network())
    optimizer = adamw(model)
    hook = register(model, "3lc", exchange="gradient-server")
    del optimizer
    optimizer = sgd(model)
    train(model, optimizer, range(2))
    assert hook.state_dict()["pulled"] and not hook.state_dict()["adaptive"]


def save_custom_state(kept):
    """As Accelerate's, in a module of its name."""
    names = {"__name__": "accelerate.checkpointing"}
    exec("def save_custom_state(kept): return kept.state_dict()", names)
    return names["save_custom_state"](kept)


def case_a_state_of_rank_0_alone_is_refused_when_it_is_saved():
    model = network()
    for kept in (hooked()()[2], LocalUpdates(model, adamw(model))):
        with pytest.raises(tersewire.Error, match="Accelerate keeps the state .* of rank 0 alone"):
            save_custom_state(kept)


def case_shares_are_refused_where_whole_parameters_are_saved():
    model = network()
    optimizer = DistributedOptimizer(adamw(model), model, "3lc", exchange="parameter-server")
    train(model, optimizer, range(2))
    with pytest.raises(tersewire.Error, match="save optimizer.state_dict\\(\\) on every rank"):
        get_state_dict(model, optimizer)


def case_get_state_dict_takes_a_distributed_optimizer():
    model = network()
    optimizer = DistributedOptimizer(adamw(model), model, "3lc")
    train(model, optimizer, range(2))
    assert set(get_state_dict(model, optimizer)[1]["state"]) == set(dict(model.named_parameters()))


CASES = [case for name, case in sorted(globals().items()) if name.startswith("case_")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.removeprefix("case_"))
def test_on_ranks(case, tmp_path):
    run_on_ranks([case], 2, tmp_path)
