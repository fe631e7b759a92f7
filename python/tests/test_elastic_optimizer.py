"""DistributedOptimizer among ranks that come and go."""

import datetime
import re
import signal

import numpy
import pytest

torch = pytest.importorskip("torch")

import hubs
import tersewire.torch
from members import (FRAME, LIMIT, Job, check_done, check_one_died,  # noqa: F401
                     check_residuals, job, kill_and_begin_again)
from support import raises
from tersewire import ErrorCode
from tersewire.torch import DistributedOptimizer, HubGroup
from tersewire.torch._trees import tree_bytes, tree_of

# A rank that says what each step ends with: model and optimizer's state as a hash of the bits, and one
# value of the model.
SCRIPT = FRAME + """
skips, fails, fixed, tells, direct, settles, half = options(
    skips=-1, fails=-1, fixed=False, tells=False, direct=False, settles="", half=False)
model, optimizer = make(8)
if half:  # NAdam keeps a product in float32
    optimizer = torch.optim.NAdam(model.bfloat16().parameters(), lr=0.01)
if fixed:
    group = tersewire.torch.HubGroup(address, ranks=3, rank="abc".index(name), timeout=limit)
    tersewire.torch.broadcast_parameters(model.state_dict(), group=group)
else:
    # One port in all generations; nothing else is at this address.
    own = f"127.0.0.4:{20000 + os.getpid() % 10000}" if direct else None
    group = tersewire.torch.HubGroup(address, elastic=True, name=name, timeout=limit, direct=own)
# Servers are to keep a residual too, which they have not for Adam unless asked.
optimizer = tersewire.torch.DistributedOptimizer(
    optimizer, model, group=group, **{"codec": "3lc:ef=on", "exchange": "gradient-server", **more})
averager = what = optimizer.averager
if not fixed:
    signal.signal(signal.SIGTERM, lambda *_: averager.leave())

def digest():
    state = optimizer.state_dict()["state"]
    values = [*model.parameters(), *(state[i][key] for i in sorted(state)
                                     for key in sorted(state[i]) if state[i][key] is not None)]
    return hashlib.sha256(b"".join(value.detach().float().numpy().tobytes() for value in values)).hexdigest()

def fail(*_):
    hang()
    del averager.hold
    raise tersewire.Error(tersewire.ErrorCode.kUnavailable, "a rank was not reached")

def hold_and_tell(*arguments):
    found = type(averager).hold(averager, *arguments)
    say("residuals", averager.steps, *averager.state_dict()["pushed"]["weight"].tolist())
    return found

if tells:
    averager.hold = hold_and_tell
if settles == "never":  # and is in the next step when the others hear that ranks come or go
    averager._members.settle_changes = lambda: None
    averager._members.follow = lambda: True
if settles == "late":
    settle = averager._members.settle_changes
    averager._members.settle_changes = lambda: time.sleep(0.01) or settle()
if saves:
    go_on_from_disk()
now = 0  # the step where ranks stay
say("joined", 0 if fixed else averager.steps)
while (now if fixed else averager.steps) < rounds and (fixed or not averager.left):
    if not fixed:
        now = averager.steps
        wait_to_begin()
    if now == dies and at == "begin":
        die()
    if now == dies:  # within the exchange, or behind it
        setattr(averager, at, die)
    if now == fails:
        averager.hold, fails = fail, -1
    if now == hangs:
        hang()
    optimizer.zero_grad()
    if change is None:
        go_back(1000 * now)
    else:
        model.weight.grad = change * torch.tensor([[1, 0.9, 0.77, 0.5, 0.31, 0.2, 0.11, 0.03]])
    if now == skips:
        optimizer.synchronize()
        now += fixed
        continue
    optimizer.step()
    if saves:
        save()
    now += fixed
    if fixed or averager.steps > now:
        say("round", now if fixed else averager.steps, digest(),
            next(model.parameters()).flatten()[0].item())
    elif not averager.left:
        say("back", averager.steps)
averager.close()
averager.state_dict()  # as a last save has it
if fixed:
    group.close()
    say("done", now)
else:
    say("left" if averager.left else "done", averager.steps)
"""


def test_without_changes_the_bits_are_those_of_a_fixed_group(job):
    ranks = job.start("abc", 6, skips=3)
    job.go_on_until(6)
    check_done(job, *ranks)
    with hubs.hub(3) as hub:
        others = Job(hub, job.folder, SCRIPT).start("abc", 6, skips=3, fixed=True)
        assert [other.end() for other in others] == [0, 0, 0], others[0].errors
    for rank, other in zip(ranks, others):
        assert rank.rounds() == other.rounds()
        assert set(rank.rounds()) == {1, 2, 3, 5, 6}


@pytest.mark.parametrize("at", ["begin", "_end_average", "_after_update"])
def test_one_dies_in_a_step(job, at):
    a, b = job.start("ab", 6)
    c, = job.start("c", 6, dies=2, at=at)
    job.end_round(2, a, b, c)
    job.go_on_until(6)
    check_one_died(job, (a, b), c, "step")


def test_the_mean_is_that_of_those_who_are_there(job):
    """Ranks whose gradients are 1, 2 and 6 go 3 a step, and without the last 1.5."""
    a, = job.start("a", 4, change=1, codec="fp32")
    b, = job.start("b", 4, change=2, codec="fp32")
    c, = job.start("c", 4, change=6, dies=2, codec="fp32")
    job.end_round(2, a, b, c)
    job.go_on_until(4)
    c.end()
    check_done(job, a, b)
    values = [value for _, (_, value) in sorted(a.rounds().items())]
    assert [before - after for before, after in zip([0, *values], values)] == [3, 3, 1.5, 1.5]


@pytest.mark.parametrize("how", [{"codec": "3lc", "direct": True}, {"codec": "3lc", "exchange": "all-gather"},
                                 {"codec": "int8:ef=on", "exchange": "ring", "half": True}])
def test_one_joins_and_one_leaves(job, how):
    a, b, c = job.start("abc", 8, skips=1, **how)
    job.end_round(3, a, b, c)
    d, = job.start("d", 8, **how)
    job.wait_until_here("d")
    job.go_on_until(4)
    begun, = map(int, d.wait_for("joined"))
    assert begun in (3, 4)  # the hub hears of a step with the next sign of life
    c.signal(signal.SIGTERM)
    job.wait_until(lambda status: any(member["name"] == "c" and member["leaving"]
                                      for member in status["members"]))
    job.go_on_until(5)
    assert c.end() == 0, c.errors
    ended = int(re.fullmatch("left ([45])\n", c.lines[-1])[1])
    job.go_on_until(8)
    check_done(job, a, b, d)
    assert set(d.rounds()) == set(range(begun + 1, 9))
    assert c.rounds() == {number: a.rounds()[number] for number in (1, *range(3, ended + 1))}
    assert f"after step {begun}: 'a', 'b', 'c', 'd'; joined: 'd'" in a.errors
    assert f"after step {ended}: 'a', 'b', 'd'; left: 'c'" in a.errors
    assert "lost" not in "".join(job.hub.lines)


def test_who_leaves_hands_over_what_it_had_to_deliver(job):
    a, b, c = ranks = [job.start(name, 4, change=change, tells=True)[0]
                       for name, change in zip("abc", (1, -2, 5))]
    job.end_round(1, *ranks)
    c.signal(signal.SIGTERM)
    job.wait_until(lambda status: any(member["leaving"] for member in status["members"]))
    job.go_on_until(2)
    assert c.end() == 0, c.errors
    job.go_on_until(4)
    check_done(job, a, b)
    # Of each: what it had after the last step of all, and what it began the next with.
    step = c.lines[-1].split()[1]
    (a_had, a_has), (b_had, b_has), (c_had,) = [
        [torch.tensor([float(word) for word in line.split()[2:]]) for line in rank.lines
         if line.startswith(f"residuals {step} ")] for rank in ranks]
    assert a_had.any() and c_had.any()
    assert torch.equal(a_has, a_had + c_had) and torch.equal(b_has, b_had)


def test_who_leaves_within_a_step_has_the_state_before_it(job):
    a, b = job.start("ab", 200, settles="late")
    c, = job.start("c", 200, settles="never")
    job.end_round(2, a, b, c)
    c.signal(signal.SIGTERM)
    job.wait_until(lambda status: any(member["leaving"] for member in status["members"]))
    job.go_on_until(200)
    assert c.end() == 0, c.errors
    assert c.lines[-1] == f"left {max(c.rounds())}\n"
    check_done(job, a, b)


def test_one_step_ahead_goes_back(job):
    """Two ranks have the state after step 3, and the third, which failed there, has not."""
    a, b = job.start("ab", 5)
    c, = job.start("c", 5, fails=2)
    job.end_round(3, a, b)
    (job.folder / "wake").touch()
    c.wait_for("back 2")
    job.go_on_until(5)
    check_done(job, a, b, c)
    assert "back 2\n" in a.lines and "back 2\n" in b.lines
    assert "a rank was not reached" in "".join(job.hub.lines)
    assert "lost" not in "".join(job.hub.lines)


@pytest.mark.parametrize("names", ["abc", "xy", "wxyz"])
def test_a_job_goes_on_from_disk(job, names):
    killed, ranks = kill_and_begin_again(job, names)
    check_residuals(job.folder, len(names), lambda state: state.get("what", state))
    if names == "abc":
        for rank, before in zip(ranks, killed):
            assert rank.rounds()[4] == before.rounds()[4]


@pytest.mark.parametrize("job", [{"workers": 2}], indirect=True)
def test_who_cannot_load_ends_the_job(job):
    """The others would go on without what it had to deliver."""
    model = torch.nn.Sequential(torch.nn.Linear(16, 40), torch.nn.BatchNorm1d(40),
                                torch.nn.Linear(40, 4))
    torch.save({"model": model.state_dict(), "what": {},
                "optimizer": torch.optim.AdamW(model.parameters()).state_dict()},
               job.folder / "3 0 1.pt")
    a, = job.start("a", 4)
    b, = job.start("b", 4, saves=True)
    assert b.end() == 1 and "a state is not of exchange gradient-server" in b.errors
    assert a.end() == 1 and "'b' has failed: rank 1 could not load what was saved" in a.errors
    assert job.hub.end() == 1


def test_one_whose_script_hangs_is_left_behind_and_joins_again(job):
    limit = {"timeout": datetime.timedelta(seconds=20)}
    job.go_on_until(3)
    a, b = job.start("ab", 6, **limit)
    c, = job.start("c", 6, hangs=2, **limit)
    a.wait_for("round 3")
    (job.folder / "wake").touch()
    job.wait_until_here("c")
    job.go_on_until(4)
    c.wait_for("round 4")
    job.go_on_until(6)
    check_done(job, a, b, c)
    assert "'c' has made no progress in the job for 2" in "".join(job.hub.lines)
    assert "the others continued without this rank" in c.errors
    assert "the others continued" not in a.errors + b.errors


@pytest.mark.parametrize("job", [{"workers": 1}], indirect=True)
def test_a_group_may_be_closed_first(job):
    model = torch.nn.Linear(3, 2)
    group = HubGroup(job.hub.address, elastic=True, name="a", timeout=LIMIT)
    optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, group=group)
    averager = optimizer.averager
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    group.close()
    assert "this rank's group is closed" in raises(ErrorCode.kFailedPrecondition, optimizer.step)
    averager.close()
    assert "this rank's group is closed" in raises(ErrorCode.kFailedPrecondition, optimizer.step)


@pytest.mark.parametrize("job", [{"workers": 1}], indirect=True)
def test_a_script_that_runs_in_a_handler_ends_its_job(job):
    """Its close() is not that of a failure, which would leave the job to others."""
    try:
        raise ImportError("there is no apex")
    except ImportError:
        model = torch.nn.Linear(3, 2)
        group = HubGroup(job.hub.address, elastic=True, name="a", timeout=LIMIT)
        optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model,
                                         group=group)
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        optimizer.averager.close()
    assert job.hub.end() == 0


@pytest.mark.parametrize("job", [{"workers": 1}], indirect=True)
def test_what_cannot_be_is_said_at_once(job):
    code = ErrorCode.kInvalidArgument
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    group = HubGroup(job.hub.address, elastic=True, name="a", timeout=LIMIT)
    assert "pass the model in place of its named_parameters()" in raises(
        code, DistributedOptimizer, optimizer, model.named_parameters(), group=group)
    assert "codec auto measures ranks that stay" in raises(
        code, DistributedOptimizer, optimizer, model, "auto", group=group)
    assert "only LocalUpdates and DistributedOptimizer train" in raises(
        code, tersewire.torch.broadcast_parameters, model.state_dict(), group=group)
    optimizer = DistributedOptimizer(optimizer, model, group=group)
    averager = optimizer.averager
    assert "for ranks that stay" in raises(code, averager.change, codec="int8")
    for _ in range(2):
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    assert (averager.steps, averager.rank, averager.left, group.ranks) == (2, 0, False, 1)
    averager.close()
    averager.close()
    averager.leave()  # of a notice that comes late
    model(torch.ones(1, 3)).sum().backward()
    assert "for this rank: it has been closed; close it after the last step" in raises(
        ErrorCode.kFailedPrecondition, optimizer.step)
    assert job.hub.end() == 0


@pytest.mark.parametrize("job", [{"workers": 1}], indirect=True)
def test_a_very_small_model(job):
    """Names and shapes of its optimizer's state take more than its values."""
    model = torch.nn.Linear(1, 1)
    group = HubGroup(job.hub.address, elastic=True, name="a", timeout=LIMIT)
    optimizer = DistributedOptimizer(torch.optim.NAdam(model.parameters()), model, group=group)
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    assert optimizer.averager.steps == 1
    optimizer.averager.close()


def test_register_is_for_ranks_that_stay(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0,
                                         world_size=1)
    try:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
        group = HubGroup("127.0.0.1:1", elastic=True, name="a")
        assert "own process group cannot come and go; use DistributedOptimizer" in raises(
            ErrorCode.kInvalidArgument, tersewire.torch.register, model, group=group)
    finally:
        torch.distributed.destroy_process_group()


def test_trees_come_back_as_they_were():
    tree = {0: {"step": torch.tensor(3.0), "exp_avg": torch.randn(2, 3), "none": None},
            1: {"flags": torch.tensor([True, False]), "half": torch.randn(3).bfloat16()},
            "betas": (0.9, [1, "text", 1e-300]), "empty": torch.empty(0, 4),
            "lr": numpy.float64(0.1)}
    data = tree_bytes(tree, "it")
    found = tree_of(torch.cat([data, torch.zeros(3, dtype=torch.uint8)]))
    assert list(found) == list(tree) and found["betas"] == tree["betas"]
    assert found["lr"] == 0.1
    assert found["empty"].shape == (0, 4)
    for key in (0, 1):
        for name, value in tree[key].items():
            assert value is found[key][name] is None or (
                torch.equal(value, found[key][name]) and value.dtype == found[key][name].dtype)
    assert "the state holds a set as '1', which" in raises(
        ErrorCode.kInvalidArgument, tree_bytes, {1: {2}}, "the state")
    assert "holds a float32 as 'lr', which a rank that joins cannot be given; convert it to float" in (
        raises(ErrorCode.kInvalidArgument, tree_bytes, [{"lr": numpy.float32(0.1)}], "a group"))


def test_damaged_trees_are_refused():
    data = tree_bytes({0: {"a": torch.randn(40), "b": torch.zeros(2, 2).bool()}}, "it")
    generator = torch.Generator().manual_seed(1)
    for _ in range(2000):
        damaged = data.clone()
        for _ in range(int(torch.randint(1, 4, (), generator=generator))):
            place = int(torch.randint(0, min(160, len(data)), (), generator=generator))
            damaged[place] = int(torch.randint(0, 256, (), generator=generator))
        damaged = damaged[:int(torch.randint(0, len(data) + 1, (), generator=generator))]
        try:
            tree_of(damaged)
        except tersewire.Error as error:
            assert error.code == ErrorCode.kDataLoss
    for head in (b'{"tensor": "float32", "shape": [1000000000000]}', b"[" * 5000, b"[1]",
                 b'{"tensor": "float32", "shape": [-1]}', b'{"set": []}', b"\xff",
                 b'{"dict": [[{"list": []}, 1]]}', b'{"tensor": "float32", "shape": [0, 1e9]}'):
        raw = bytearray(len(head).to_bytes(4, "little") + head)
        assert "is malformed" in raises(ErrorCode.kDataLoss, tree_of,
                                        torch.frombuffer(raw, dtype=torch.uint8))
