"""LocalUpdates, on 1, 2 and 3 processes with Gloo."""

import copy
import json
import os
import subprocess

import numpy
import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

import tersewire
from ranks import check_replicas, flat, run_on_ranks
from tersewire.torch import LocalUpdates
from tersewire.torch._tensors import tensor_infos


def network(seed=1, dtype=torch.float32):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(64, 80), torch.nn.Tanh(),
                               torch.nn.Linear(80, 10)).to(dtype)


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=0.003)


def loss(model, step, rank):
    numbers = torch.Generator().manual_seed(1000 * step + rank)
    batch = torch.randn(8, 64, generator=numbers).to(model[0].weight.dtype)
    return (model(batch) - 1).square().mean().float()


def train(model, optimizer, steps, rank=None):
    rank = dist.get_rank() if rank is None else rank
    for step in steps:
        optimizer.zero_grad()
        loss(model, step, rank).backward()
        optimizer.step()
    return flat(model)


def fill(model, values):
    torch.nn.utils.vector_to_parameters(values.clone(), model.parameters())


def reference(rounds, lr, momentum):
    """One process that trains every rank's model, and moves the shared one as DiLoCo does."""
    ranks = range(dist.get_world_size())
    models = [network() for _ in ranks]
    optimizers = [adamw(model) for model in models]
    shared = flat(models[0])
    velocity = torch.zeros_like(shared)
    for steps in rounds:
        ends = [train(model, optimizer, steps, rank)
                for rank, model, optimizer in zip(ranks, models, optimizers)]
        change = shared - sum(ends) / len(ends)
        velocity = momentum * velocity + change
        shared = shared - lr * (change + momentum * velocity if momentum else change)
        for model in models:
            fill(model, shared)
    return shared


def streaming_reference(every, chosen, delay, steps):
    """The same with fragments, each the parameters of these numbers, and plain averaging."""
    ranks = range(dist.get_world_size())
    models = [network() for _ in ranks]
    optimizers = [adamw(model) for model in models]
    shared = [parameter.detach().clone() for parameter in models[0].parameters()]
    turn, pending = every // len(chosen), None
    for step in range(steps):
        for rank, model, optimizer in zip(ranks, models, optimizers):
            train(model, optimizer, [step], rank)
        done = step + 1
        with torch.no_grad():
            own = [list(model.parameters()) for model in models]
            if done % turn == 0:
                pending = done + delay, chosen[(done // turn - 1) % len(chosen)]
                begun_with = [[value.clone() for value in values] for values in own]
                for i in pending[1]:
                    shared[i] = sum(values[i] for values in own) / len(own)
            if pending and pending[0] == done:
                for values, then in zip(own, begun_with):
                    for i in pending[1]:
                        values[i].copy_(shared[i] + values[i] - then[i])
    return [flat(model) for model in models]


def case_fragments_take_turns():
    # By size: the first weight, and all others.
    for fragments, delay in ((2, 0), (2, 2), (1, 3)):
        model = network()
        optimizer = adamw(model)
        local = LocalUpdates(model, optimizer, 6, "sgd:lr=1", "fp32", fragments=fragments,
                             delay=delay)
        values = train(model, optimizer, range(20))
        chosen = [[0], [1, 2, 3]] if fragments == 2 else [[0, 1, 2, 3]]
        expected = streaming_reference(6, chosen, delay, 20)[dist.get_rank()]
        torch.testing.assert_close(values, expected, rtol=0, atol=1e-4)
        local.synchronize()
        check_replicas(flat(model))
        local.close()


def case_a_policy_is_of_the_whole_model():
    model = network()
    optimizer = adamw(model)
    local = LocalUpdates(model, optimizer, 3, codec="int8", policy="last:fp32; name=0.weight:fp16",
                         fragments=3)
    train(model, optimizer, range(6))
    table = local.summary()
    for parameter, codec in (("0.weight", "fp16"), ("0.bias", "int8"), ("2.weight", "fp32"),
                             ("2.bias", "fp32")):
        assert any(line.split()[:1] + line.split()[2:3] == [parameter, codec]
                   for line in table.splitlines()), table
    local.change(codec="bf16", policy="")
    train(model, optimizer, range(6, 9))
    assert "bf16" in local.summary() and "int8" not in local.summary()
    assert local.counters.codec.count("bf16") == 1
    local.close()


def case_a_refused_change_changes_no_fragment():
    model = network()
    optimizer = adamw(model)
    local = LocalUpdates(model, optimizer, 4, codec="3lc", policy="name=0.weight:int8", fragments=2)
    train(model, optimizer, range(4))
    dist.barrier()  # until then this rank's server sends the others their means
    table = local.summary()
    assert "int8" in table and "3lc" in table
    with pytest.raises(tersewire.Error, match="its new codec fp32 keeps none"):
        local.change(codec="fp32", policy="")  # the first fragment has no residual
    assert local.summary() == table
    local.change(threads=1)
    train(model, optimizer, range(4, 8))
    assert local.counters.steps == 4
    local.synchronize()
    check_replicas(flat(model))
    local.close()


def case_ranks_train_alone_and_meet():
    rounds = range(0, 3), range(3, 6), range(6, 8)
    for outer, lr, momentum in (("sgd:lr=1", 1, 0), ("nesterov:lr=0.7,momentum=0.9", 0.7, 0.9)):
        model = network(seed=1 if dist.get_rank() == 0 else 2)  # all begin as rank 0's
        optimizer = adamw(model)
        local = LocalUpdates(model, optimizer, 3, outer, "fp32")
        after_four = train(model, optimizer, range(0, 4))
        if dist.get_world_size() > 1:
            gathered = [torch.empty_like(after_four) for _ in range(dist.get_world_size())]
            dist.all_gather(gathered, after_four)
            assert not torch.equal(gathered[0], gathered[1])  # within a round they part
        train(model, optimizer, range(4, 8))
        assert local.counters.steps == 2
        local.synchronize()
        check_replicas(flat(model))
        torch.testing.assert_close(flat(model), reference(rounds, lr, momentum), rtol=0, atol=1e-4)
        local.close()


def case_what_scripts_do_beside():
    """Clipping, a scheduler that was there before, several backward passes, and bfloat16."""
    for dtype, streaming in ((torch.float32, {}), (torch.bfloat16, {}),
                             (torch.bfloat16, {"fragments": 2, "delay": 1})):
        model = network(dtype=dtype)
        optimizer = adamw(model)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
        local = LocalUpdates(model, optimizer, every=4, codec="3lc", **streaming)
        later = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1)
        first = loss(model, 0, 0).item()
        for step in range(8):
            for part in (0, 1):
                loss(model, 2 * step + part, dist.get_rank()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            later.step()
            optimizer.zero_grad()
        assert local.counters.steps == (3 if streaming else 2)  # the fourth is under way
        local.synchronize()
        check_replicas(flat(model).float())
        assert loss(model, 0, 0).item() < first
        if dist.get_world_size() > 1:
            assert 8 * local.counters.sent_bytes < 2 * local.counters.gradient_bytes
        local.close()


def case_models_are_tested_in_inference_mode():
    model = network()
    optimizer = adamw(model)
    local = LocalUpdates(model, optimizer, every=3)
    for steps in (range(4), range(4, 8)):
        train(model, optimizer, steps)
        with torch.inference_mode():
            local.synchronize()
            local.state_dict()
        check_replicas(flat(model))
    local.close()


def case_the_shared_model_is_float32_whatever_is_usual():
    torch.set_default_dtype(torch.bfloat16)
    try:
        model = network(dtype=torch.bfloat16)
        local = LocalUpdates(model, adamw(model), every=2, outer="sgd:lr=0.1")
        saved = local.state_dict()["fragments"][0]["shared"]
        assert next(model.parameters()).dtype is torch.bfloat16 and saved.dtype is torch.float32
        local.close()
    finally:
        torch.set_default_dtype(torch.float32)


def case_rounds_may_become_shorter_within_a_delay():
    model = network()
    optimizer = adamw(model)
    local = LocalUpdates(model, optimizer, 40, fragments=2, delay=3, codec="int8")
    train(model, optimizer, range(15))
    local.change(every=8)
    train(model, optimizer, range(15, 40))
    local.synchronize()
    check_replicas(flat(model))
    local.close()


def case_a_resumed_run_is_the_uninterrupted_one():
    streaming = {"fragments": 2, "delay": 1, "codec": "int8"}
    # At a round's end and within one, while an exchange is under way and after it.
    for cut, every, options in ((6, 3, {}), (7, 3, {}), (6, 4, streaming), (7, 4, streaming)):
        model = network()
        optimizer = adamw(model)
        local = LocalUpdates(model, optimizer, every, **options)
        train(model, optimizer, range(cut))
        saved = copy.deepcopy([model.state_dict(), optimizer.state_dict(), local.state_dict()])
        train(model, optimizer, range(cut, 11))
        local.synchronize()
        again = network(seed=2)
        resumed = adamw(again)
        other = LocalUpdates(again, resumed, every, **options)
        for target, state in zip((again, resumed, other), saved):
            target.load_state_dict(state)
        train(again, resumed, range(cut, 11))
        other.synchronize()
        assert torch.equal(flat(again), flat(model))
        local.close()
        other.close()


def refused(match, *arguments, **options):
    with pytest.raises(tersewire.Error, match=match) as raised:
        LocalUpdates(*arguments, **options)
    assert raised.value.code == tersewire.ErrorCode.kInvalidArgument


def case_codecs_have_no_lead_unless_their_texts_say_one_or_rounds_have_one_step():
    for every, default in ((1, "3lc:lead=2"), (2, "3lc:lead=1")):
        found = {}
        for codec in ("3lc", "3lc:lead=1", "3lc:lead=2"):
            model = network()
            optimizer = adamw(model)
            local = LocalUpdates(model, optimizer, every, "sgd:lr=1", codec)
            found[codec] = train(model, optimizer, range(8))
            local.close()
        assert torch.equal(found["3lc"], found[default])
        assert not torch.equal(found["3lc:lead=1"], found["3lc:lead=2"])


def case_what_makes_no_sense_is_refused():
    model = network()
    optimizer = adamw(model)
    refused("every=0", model, optimizer, 0)
    refused("fragments=0", model, optimizer, fragments=0)
    refused("cannot be divided among 3", model, optimizer, 100, fragments=3)
    refused("fragments=5 is too many, .*; pass 4 or fewer", model, optimizer, fragments=5)
    refused("delay=-1", model, optimizer, delay=-1)
    refused("not below the 25 steps", model, optimizer, fragments=4, delay=25)
    refused("unknown outer optimizer 'adam'", model, optimizer, outer="adam")
    refused("unknown parameter 'rate'", model, optimizer, outer="sgd:rate=1")
    refused("lr must be a number from", model, optimizer, outer="sgd:lr=0")
    refused("momentum must be above 0", model, optimizer, outer="nesterov:momentum=0")
    refused("pass an outer optimizer's text", model, optimizer, outer=1)
    refused("omit ef=off", model, optimizer, codec="inceptionn:ef=off", policy="")
    if dist.get_world_size() > 1:
        refused("rank 1 has another", model, optimizer, 5 + dist.get_rank())
    refused("pass the model within it", DistributedDataParallel(model), optimizer)


def case_a_state_stays_as_it_was():
    model = network()
    optimizer = adamw(model)
    local = LocalUpdates(model, optimizer, 2, "nesterov:lr=0.7,momentum=0.9", "int8")
    train(model, optimizer, range(2))
    state = local.state_dict()
    saved = copy.deepcopy(state)
    train(model, optimizer, range(2, 6))
    now, then = (kept["fragments"][0]["outer"]["state"][0]["momentum_buffer"]
                 for kept in (state, saved))
    assert torch.equal(now, then)
    local.close()


def case_states_that_do_not_fit_are_refused():
    model = network()
    optimizer = adamw(model)
    local = LocalUpdates(model, optimizer, 3)
    train(model, optimizer, range(3))
    for state in ({}, {**local.state_dict(), "more": 1}):
        with pytest.raises(tersewire.Error, match="not of LocalUpdates"):
            local.load_state_dict(state)
    fragment = local.state_dict()["fragments"][0]
    with pytest.raises(tersewire.Error, match="another model"):
        local.load_state_dict({**local.state_dict(),
                               "fragments": [{**fragment, "shared": torch.zeros(3)}]})
    with pytest.raises(tersewire.Error, match="a state is of fragments=2, and this is of fragments=1"):
        local.load_state_dict({**local.state_dict(), "fragments": [fragment, fragment]})
    local.close()


def case_ranks_that_took_other_numbers_of_steps_are_named():
    """A rank has a step more: after the last exchange, or in one for which it waits."""
    if dist.get_world_size() == 1:
        return
    for steps in (3, 4):
        for delay in (0, 1):
            model = network()
            optimizer = adamw(model)
            local = LocalUpdates(model, optimizer, 2, delay=delay)
            train(model, optimizer, range(steps if dist.get_rank() == 0 else steps - 1))
            with pytest.raises(tersewire.Error, match="rank 1 has taken another number of steps"):
                local.synchronize()
            local.close()


def case_parameters_may_go_and_come_back_on_one_rank():
    for dtype in (torch.float32, torch.bfloat16):
        model = network(dtype=dtype)
        optimizer = adamw(model)
        local = LocalUpdates(model, optimizer, 2)
        expected = train(model, optimizer, range(2))
        if dist.get_rank() == 0:
            fill(model, expected / 2)
            fill(model, expected)
        local.synchronize()
        assert torch.equal(flat(model), expected) and local.rounds == 1
        if dist.get_world_size() > 1:
            if dist.get_rank() == 1:
                fill(model, expected / 2)
            with pytest.raises(tersewire.Error, match="rank 1 has other parameters than the shared"):
                local.synchronize()
        local.close()


def case_a_state_of_another_run_is_named():
    if dist.get_world_size() == 1:
        return
    states = []
    for run in (0, 1):
        model = network()
        optimizer = adamw(model)
        local = LocalUpdates(model, optimizer, 3)
        train(model, optimizer, range(100 * run, 100 * run + 3))
        states.append(copy.deepcopy((model.state_dict(), local.state_dict())))
        local.close()
    for trains in (True, False):
        model = network()
        optimizer = adamw(model)
        local = LocalUpdates(model, optimizer, 3)
        train(model, optimizer, range(3))
        for target, state in zip((model, local), states[dist.get_rank() == 1]):
            target.load_state_dict(state)
        with pytest.raises(tersewire.Error,
                           match="rank 1 begins with other values of the shared model than rank 0"):
            if trains:
                train(model, optimizer, range(3))
            local.synchronize()
        local.close()


def interrupt(*_):
    raise KeyboardInterrupt


def case_there_is_no_state_of_an_exchange_that_was_interrupted():
    model = network()
    optimizer = adamw(model)
    local = LocalUpdates(model, optimizer, 2)
    train(model, optimizer, range(2))
    local._fragments[0]._end_average = interrupt
    with pytest.raises(KeyboardInterrupt):
        train(model, optimizer, range(2, 4))
    for _ in range(2):
        with pytest.raises(tersewire.Error, match="no state to save, .* of step 2 has begun"):
            local.state_dict()
    dist.barrier()  # others' steps must not end by close()
    local.close()


def case_unknown_settings_do_not_change():
    model = network()
    local = LocalUpdates(model, adamw(model), 2)
    with pytest.raises(tersewire.Error, match="there is no setting 'foo' to change"):
        local.change(foo=1)
    local.close()


def case_another_optimizer_of_the_model_counts():
    """What it changes after an exchange is in the next."""
    model = network()
    optimizers = [torch.optim.SGD(model[number].parameters(), lr=0.05) for number in (0, 2)]
    local = LocalUpdates(model, optimizers[0], 1, codec="fp32")
    for step in range(2):
        numbers = torch.Generator().manual_seed(10 * step + dist.get_rank())
        model(torch.randn(8, 64, generator=numbers)).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
    local.synchronize()
    check_replicas(flat(model))
    assert local.rounds == 3
    local.synchronize()
    assert local.rounds == 3
    local.close()


def case_parameters_that_are_trained_later_are_refused():
    model = network()
    model[0].weight.requires_grad_(False)
    optimizer = adamw(model)
    local = LocalUpdates(model, optimizer, 2)
    train(model, optimizer, range(2))
    model[0].weight.requires_grad_(True)
    with pytest.raises(tersewire.Error, match="other parameters of the model are trained"):
        train(model, optimizer, range(2))
    local.close()


def case_names_may_have_what_separates_rules():
    model = torch.nn.ModuleDict({"user:item;b": network(), "user?item": torch.nn.Linear(3, 3)})
    optimizer = adamw(model)
    local = LocalUpdates(model, optimizer, 1, policy="kind=bias:fp32; *:3lc")
    assert "user:item;b.0.weight" in local.summary()
    local.close()


def case_one_per_optimizer_that_trains_the_model():
    model = network()
    optimizer = adamw(model)
    local = LocalUpdates(model, optimizer, 2)
    for wrong, sentence in ((optimizer, "has LocalUpdates already"),
                            (adamw(network()), "trains none of the model's parameters"),
                            (model, "a Sequential is not an optimizer")):
        with pytest.raises(tersewire.Error, match=sentence):
            LocalUpdates(model, wrong, 2)
    local.close()


CASES = [value for name, value in sorted(globals().items()) if name.startswith("case_")]


@pytest.mark.parametrize("ranks", (1, 2, 3))
def test_on_ranks(ranks, tmp_path):
    run_on_ranks(CASES, ranks, tmp_path)


def test_other_ranks_go_on_from_the_shared_model(tmp_path):
    run_on_ranks([_Save(tmp_path)], 3, tmp_path)
    (tmp_path / "meeting").unlink(missing_ok=True)
    run_on_ranks([_GoOn(tmp_path)], 2, tmp_path)


class _Save:
    def __init__(self, folder):
        self.folder = folder

    def __call__(self):
        model = network()
        optimizer = adamw(model)
        local = LocalUpdates(model, optimizer, 3, exchange="gradient-server")
        train(model, optimizer, range(6))
        torch.save((local.state_dict(), flat(model)), self.folder / f"rank{dist.get_rank()}")
        train(model, optimizer, range(6, 7))
        torch.save(local.state_dict(), self.folder / f"within{dist.get_rank()}")
        local.close()


class _GoOn(_Save):
    def __call__(self):
        states, models = zip(*(torch.load(self.folder / f"rank{rank}") for rank in range(3)))
        model = network(seed=2)
        optimizer = adamw(model)
        local = LocalUpdates(model, optimizer, 3, exchange="gradient-server")
        with pytest.raises(tersewire.Error, match="within a round"):
            local.load_state_dict([torch.load(self.folder / f"within{rank}") for rank in range(3)])
        local.load_state_dict(states)
        assert torch.equal(flat(model), models[0])
        train(model, optimizer, range(6, 9))
        check_replicas(flat(model))
        local.close()


class Given(torch.optim.Optimizer):
    """Adds what it is given, a row of all values a step."""

    def __init__(self, model, changes):
        super().__init__(model.parameters(), {})
        self.changes = iter(changes)

    @torch.no_grad()
    def step(self):
        change = next(self.changes)
        for parameter in self.param_groups[0]["params"]:
            own, change = change[:parameter.numel()], change[parameter.numel():]
            parameter += own.view(parameter.shape)


def coarse(values):
    """Multiples of 2^-16: whatever is added to them, halved or averaged over four is exact."""
    return (numpy.round(values * 65536) / 65536).astype("float32")


class _SameJob:
    """Saves a rank's model after the last step, and once all have exchanged what was left."""

    def __init__(self, folder, job, options, first, changes):
        self.folder, self.job, self.options = folder, job, options
        self.first, self.changes = first, changes

    def __call__(self):
        rank, job = dist.get_rank(), self.job
        model = model_of(job)
        fill(model, torch.from_numpy(self.first))
        optimizer = Given(model, torch.from_numpy(self.changes[:, rank]))
        local = LocalUpdates(model, optimizer, job["local_updates"], job["outer"], job["codec"],
                             policy=job["policy"], exchange=job["exchange"], **self.options)
        for _ in range(job["steps"]):
            optimizer.step()
        within = flat(model)
        local.synchronize()
        local.close()
        numpy.save(self.folder / f"{rank}.npy", torch.stack([within, flat(model)]).numpy())


def model_of(job):
    """With fragments none is long enough for C++ to cut it, which Python never does."""
    inner = 80 if job["fragments"] == 1 else 6
    return torch.nn.Sequential(torch.nn.Linear(64, inner), torch.nn.Linear(inner, 10))


JOB = os.environ.get("LOCAL_UPDATES_JOB")


@pytest.mark.skipif(not JOB, reason="LOCAL_UPDATES_JOB names no program of C++'s local updates")
@pytest.mark.parametrize("exchange, codec, outer, options", (
    ("gradient-server", "3lc:s=1", "nesterov:lr=1,momentum=0.5", {}),
    ("gradient-server", "topk:fraction=0.25", "sgd:lr=0.5", {"delay": 2}),
    ("all-gather", "3lc:s=1", "sgd:lr=0.5,momentum=0.5", {"delay": 2}),
    ("all-gather", "topk:fraction=0.25", "sgd:lr=0.5", {"fragments": 2, "delay": 1}),
    ("all-gather", "fp32", "nesterov:lr=1,momentum=0.5", {"fragments": 3, "delay": 1}),
    ("ring", "fp32", "nesterov:lr=1,momentum=0.5", {"delay": 5}),
    ("ring", "fp32", "sgd:lr=1", {"fragments": 3})))
def test_models_are_those_of_the_local_updates_of_cpp(exchange, codec, outer, options, tmp_path):
    """To the bit, of the same changes: within a round, and when all have exchanged what was left."""
    ranks, steps = 4, 20
    job = {"workers": ranks, "exchange": exchange, "codec": codec, "policy": "", "outer": outer,
           "steps": steps, "local_updates": 6, "fragments": 1, "delay": 0, **options}
    model = model_of(job)
    numbers = numpy.random.default_rng(5)
    first = coarse(flat(model).numpy())
    changes = coarse(0.01 * numbers.standard_normal((steps, ranks, len(first))))
    job["tensors"] = [{"name": info.name, "shape": info.shape, "kind": info.kind}
                      for info in tensor_infos(model)]
    (tmp_path / "job.json").write_text(json.dumps(job))
    (tmp_path / "changes").write_bytes(first.tobytes() + changes.tobytes())
    subprocess.run([JOB, *(tmp_path / name for name in ("job.json", "changes", "models"))],
                   check=True)
    expected = numpy.fromfile(tmp_path / "models", "float32").reshape(ranks, 2, -1)
    run_on_ranks([_SameJob(tmp_path, job, options, first, changes)], ranks, tmp_path)
    for rank in range(ranks):
        within, after = numpy.load(tmp_path / f"{rank}.npy")
        numpy.testing.assert_array_equal(within, expected[rank, 0])
        if job["fragments"] == 1:
            numpy.testing.assert_array_equal(after, expected[rank, 1])
