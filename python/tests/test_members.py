"""Ranks that come and go: what those who are there come to, and what they are told."""

import concurrent.futures
import datetime
import re
import signal
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import hubs
import tersewire
import tersewire.torch
from members import (FRAME, GIVEN_UP, LIMIT, check_done, check_one_died,  # noqa: F401
                     check_residuals, job, kill_and_begin_again)
from support import ROOT, raises
from tersewire import ErrorCode, _core
from tersewire.torch import HubGroup, LocalUpdates, broadcast_parameters

# A rank that says what each round ends with: its model as the sum of the bits, and one of its values.
SCRIPT = FRAME + """
hastens, interrupted, takes = options(hastens=False, interrupted=-1, takes=None)
if takes:  # no more than so many bytes of names and buffers
    tersewire.torch._local_updates._VALUES_HANDED_OVER = 0
    tersewire.torch._members._SLACK_BYTES = takes
group = tersewire.torch.HubGroup(address, elastic=True, name=name, timeout=limit)
model, optimizer = make(1)
if at == "go_on":  # before it has joined
    tersewire.torch._members.Replica.go_on = die
local = what = tersewire.torch.LocalUpdates(model, optimizer, group=group,
                                            **{"every": 4, "codec": "3lc", **more})
signal.signal(signal.SIGTERM, lambda *_: local.leave())

def flat():
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

def learn():
    optimizer.zero_grad()
    if change is None:
        go_back(1000 * local.rounds + 100 * local._steps)
    else:
        model.weight.grad = torch.full((1, 1), float(change))
    optimizer.step()

if saves:
    go_on_from_disk()
if hastens:  # into the next exchange, although the others have ended the job
    local._members.follow = lambda: True
say("joined", local.rounds)
while local.rounds < rounds and not local.left:
    wait_to_begin()
    begun = local.rounds
    if begun == dies:  # before it has pushed, or behind it
        setattr(local._fragments[0], at, die)
    if begun == interrupted and at != "script":
        local._fragments[0]._end_average = interrupt
    if begun == hangs:
        hang()
    try:
        learn()
        if begun == interrupted and at == "script":
            interrupt()
    except tersewire.Error:
        say("step", local.state_dict()["fragments"][0]["averager"]["step"])
        raise
    except KeyboardInterrupt:
        local.close()  # as a script's finally has it
        say("step", local.state_dict()["fragments"][0]["averager"]["step"])
        sys.exit()
    if local.rounds > begun and saves:
        save()
    if local.rounds > begun:
        say("round", local.rounds, hashlib.sha256(flat().numpy().tobytes()).hexdigest(),
            float(flat()[0]))
local.close()
local.state_dict()  # as a last save has it
say("left" if local.left else "done", local.rounds)
"""


def test_one_dies_in_a_round(job):
    a, b = job.start("ab", 6)
    c, = job.start("c", 6, dies=2, at="end")
    job.end_round(2, a, b, c)
    job.go_on_until(6)
    check_one_died(job, (a, b), c, "round")


def test_the_mean_is_that_of_those_who_are_there(job):
    """Ranks whose changes are 1, 2 and 6 go 3 a round, and without the last 1.5."""
    settings = {"every": 1, "codec": "fp32", "outer": "sgd:lr=1"}
    a, = job.start("a", 4, change=1, **settings)
    b, = job.start("b", 4, change=2, **settings)
    c, = job.start("c", 4, change=6, dies=2, **settings)
    job.end_round(2, a, b, c)
    job.go_on_until(4)
    c.end()
    check_done(job, a, b)
    values = [value for _, (_, value) in sorted(a.rounds().items())]
    assert [before - after for before, after in zip(values, values[1:])] == [3, 1.5, 1.5]


@pytest.mark.parametrize("codec", ["3lc", "int8"])
def test_one_joins_and_one_leaves(job, codec):
    a, b, c = job.start("abc", 8, codec=codec)
    job.end_round(2, a, b, c)
    d, = job.start("d", 8, codec=codec)
    job.wait_until_waits("d")
    job.go_on_until(3)
    assert d.wait_for("joined") == ["3"]
    c.signal(signal.SIGTERM)
    job.wait_until(lambda status: any(member["name"] == "c" and member["leaving"]
                                      for member in status["members"]))
    job.go_on_until(8)
    assert c.end() == 0 and c.lines[-1] == "left 4\n", (c.lines, c.errors)
    check_done(job, a, b, d)
    assert set(d.rounds()) == set(range(4, 9))
    assert c.rounds() == {number: a.rounds()[number] for number in range(1, 5)}
    assert "after round 3: 'a', 'b', 'c', 'd'; joined: 'd'" in a.errors
    assert "after round 4: 'a', 'b', 'd'; left: 'c'" in a.errors
    assert "lost" not in "".join(job.hub.lines)


def test_one_that_hangs_joins_again(job):
    a, b, c = job.start("abc", 6)
    job.go_on_until(2)
    c.wait_for("round 2")
    c.signal(signal.SIGSTOP)
    job.go_on_until(3)
    a.wait_for("round 3")
    c.signal(signal.SIGCONT)
    job.wait_until_waits("c")
    job.go_on_until(6)
    check_done(job, a, b, c)
    assert "gone, with what they had still to deliver: 'c'" in a.errors
    assert "joined: 'c'" in a.errors
    assert 3 not in c.rounds() and 5 in c.rounds()


@pytest.mark.parametrize("at", ["exchange", "script"])
def test_one_that_is_interrupted_does_not_end_the_job_for_others(job, at):
    a, = job.start("a", 6, interrupted=2, at=at)
    b, c = job.start("bc", 6)
    job.end_round(2, a, b, c)
    job.go_on_until(6)
    assert a.end() == 0 and a.lines[-1] == "step 2\n", (a.lines, a.errors)
    check_done(job, b, c)
    assert max(b.rounds()) == 6
    assert re.search("2 ranks go on after round [23]: 'b', 'c'; gone", b.errors)


@pytest.mark.parametrize("job", [{"workers": 2}], indirect=True)
def test_one_that_cannot_take_what_is_handed_over_is_turned_away(job):
    a, b = job.start("ab", 6, width=20000)
    job.end_round(2, a, b)
    c, = job.start("c", 6, width=20000, takes=64)
    job.wait_until_waits("c")
    job.go_on_until(6)
    assert c.end() == 1 and re.search("turned away after 5 attempts: .* announces", c.errors), (
        c.lines, c.errors)
    check_done(job, a, b)


def test_one_leaves_while_another_dies_as_it_joins(job):
    a, b, c = job.start("abc", 4)
    job.end_round(2, a, b, c)
    d, = job.start("d", 4, at="go_on")
    job.wait_until_waits("d")
    job.go_on_until(3)
    assert d.end() == -signal.SIGKILL
    c.signal(signal.SIGTERM)
    assert c.end() == 0 and c.lines[-1] == "left 3\n", (c.lines, c.errors)
    job.go_on_until(4)
    check_done(job, a, b)


@pytest.mark.parametrize("job", [{"journal": True}], indirect=True)
def test_a_hub_that_comes_back_lets_them_go_on(job):
    a, b, c = job.start("abc", 4)
    job.end_round(2, a, b, c)
    job.hub.process.kill()
    job.hub.end()
    job.hub = hubs.Hub(3, "--min-workers", "1", "--deadline", GIVEN_UP, "--journal",
                       str(job.folder / "journal"), address=job.hub.address)
    job.go_on_until(4)
    check_done(job, a, b, c)
    assert "gone" not in a.errors


def test_one_whose_script_hangs_is_left_behind_and_joins_again(job):
    limit = {"timeout": datetime.timedelta(seconds=20)}
    job.go_on_until(3)
    a, b = job.start("ab", 6, **limit)
    c, = job.start("c", 6, hangs=2, **limit)
    a.wait_for("round 3")
    told = "'c' has made no progress in the job for 2[0-9.]* s, though its process is alive"
    (job.folder / "wake").touch()
    job.wait_until_waits("c")
    job.go_on_until(6)
    check_done(job, a, b, c)
    assert set(c.rounds()) >= {1, 2, 4, 5, 6} and 3 not in c.rounds()
    assert len(re.findall(told, "".join(job.hub.lines))) == 1
    assert "'c' is lost after step 2" in "".join(job.hub.lines)
    assert "the others continued without this rank" in c.errors
    assert "the others continued" not in a.errors + b.errors


@pytest.mark.parametrize("names", ["abc", "xy", "wxyz"])
def test_a_job_goes_on_from_disk(job, names):
    killed, ranks = kill_and_begin_again(job, names)
    check_residuals(job.folder, len(names), lambda state: state["what"]["fragments"][0]["averager"]
                    if "what" in state else state["fragments"][0]["averager"])
    if names == "abc":
        for rank, before in zip(ranks, killed):
            assert rank.rounds()[4] == before.rounds()[4]


@pytest.mark.parametrize("job", [{"workers": 2, "least": 2}], indirect=True)
def test_below_the_least_number_the_job_ends(job):
    a, = job.start("a", 4)
    b, = job.start("b", 4, dies=2)
    job.end_round(2, a, b)
    job.go_on_until(4)
    b.end()
    assert a.end() == 1
    assert "1 worker is left, and the job needs 2" in a.errors
    assert "this rank has the model after round 2: save it" in a.errors
    assert job.hub.end() == 1


def test_the_state_is_that_of_the_last_round_if_the_job_ends_within_one(job):
    a, b = job.start("ab", 3)
    c, = job.start("c", 5, hastens=True)
    job.go_on_until(5)
    assert c.end() == 1 and c.lines[-1] == "step 3\n", (c.lines, c.errors)
    check_done(job, a, b)


def test_one_that_waits_is_told_that_the_job_is_over(job):
    """Of five ranks four have a place; the fifth is told that the job is over."""
    a, b, c = job.start("abc", 4)
    job.go_on_until(1)
    a.wait_for("round 1")
    d, = job.start("d", 4)
    job.wait_until_here("d")
    job.go_on_until(2)
    d.wait_for("joined")
    e, = job.start("e", 4)
    job.wait_until_waits("e")
    job.go_on_until(4)
    assert e.end() == 1
    assert "the job is over for this rank: another rank has closed it" in e.errors, e.errors
    check_done(job, a, b, c, d)


def test_one_with_more_to_do_is_told_that_the_job_is_over(job):
    """Its script is longer than that of the others, of which rank 0 is one."""
    a, b = job.start("ab", 3)
    c, = job.start("c", 5)
    job.go_on_until(5)
    assert c.end() == 1
    assert "the job is over for this rank: another rank has closed it" in c.errors, c.errors
    check_done(job, a, b)


def test_one_with_another_model_is_refused(job):
    a, b, c = job.start("abc", 3)
    job.go_on_until(1)
    a.wait_for("round 1")
    other, = job.start("d", 3, width=41)
    assert other.end() == 1
    assert "refuses 'd': 'd' was started with other arguments, other data" in other.errors
    job.go_on_until(3)
    check_done(job, a, b, c)


@pytest.mark.parametrize("job", [{"workers": 1}], indirect=True)
def test_a_state_of_another_length_is_refused(job):
    """Of one that says it has the same model, and has not."""
    def member(name, elems):
        made = _core._HubMember(job.hub.address, name, 7, "", False, LIMIT, LIMIT, 1 << 20, "")
        return made, _core._MeanWorker(
            [tersewire.TensorInfo("w", (elems,), "dense")], "gradient-server", 1, "3lc", None, "auto", 0,
            0, LIMIT, LIMIT, 1, None, None, False, False, None)

    one, worker = member("a", 8)
    worker.go_on(one.join(), one)
    worker.hold(one, {"parameters": torch.zeros(8)})
    other, others_worker = member("b", 12)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        job.wait_until(lambda status: bool(status["waiting"]))
        worker.begin_step(0.0)
        values = torch.ones(8)
        worker.push(values, [(0, 0)])
        worker.mean(values, [(0, 0)])
        worker.hold(one, {"parameters": torch.zeros(8)})
        one.settle()
        worker.close()
        first = threads.submit(one.join)
        end = other.join()
        first_end = first.result()
        assert first_end is not None and other.begun_with == 1 and not other.had_it
    code = ErrorCode.kDataLoss
    assert "8 values of the shared parameters were handed over, and this model has 12" in raises(
        code, other.begin_with, "parameters", torch.zeros(12))
    assert "0 values of the shared momentum" in raises(
        code, other.begin_with, "momentum", torch.zeros(12))
    assert "has 8 values, and this model has 12" in raises(code, others_worker.go_on, end, other)
    for opened in (first_end, end, one, other):  # while there is a hub
        opened.close()
    one.leave()  # of a thread that comes late


@pytest.mark.parametrize("number, ends", [(0, "round 4"), (1, "step 40")])
def test_the_examples_of_the_documentation_run(tmp_path, number, ends):
    section = (ROOT / "docs" / "python.md").read_text().split("## Ranks that come and go\n")[1]
    example = re.findall(r"^```python\n(.*?)^```", section.split("\n## ")[0], re.M | re.S)[number]
    hub_certificate, _ = hubs.certificates(tmp_path, 0)
    names = [hubs.certificate(tmp_path / "clinic", tmp_path / name, "--name", name)
             for name in ("node0", "node1")]
    with hubs.hub(2, "--min-workers", "1", "--certs", hub_certificate) as hub:
        script = example.replace("hub.example:7100", hub.address)
        assert script != example
        ranks = [subprocess.Popen([sys.executable, "-c", script, name], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) for name in names]
        for rank in ranks:
            output, errors = rank.communicate()
            assert (rank.returncode, output) == (0, f"done after {ends}\n"), errors


@pytest.mark.parametrize("job", [{"workers": 1}], indirect=True)
def test_a_group_may_be_closed_first(job):
    model = torch.nn.Linear(3, 2)
    group = HubGroup(job.hub.address, elastic=True, name="a", timeout=LIMIT)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    local = LocalUpdates(model, optimizer, every=2, group=group)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    group.close()
    assert "this rank's group is closed" in raises(ErrorCode.kFailedPrecondition, optimizer.step)
    local.close()
    assert "this rank's group is closed" in raises(ErrorCode.kFailedPrecondition, optimizer.step)


@pytest.mark.parametrize("job", [{"workers": 1}], indirect=True)
def test_what_cannot_be_is_said_at_once(job, monkeypatch):
    code = ErrorCode.kInvalidArgument
    address = job.hub.address
    assert "pass name=" in raises(code, HubGroup, address, elastic=True)
    assert "rank=0 is not valid" in raises(code, HubGroup, address, rank=0, elastic=True, name="a")
    assert "pass elastic=True" in raises(code, HubGroup, address, 1, 0, name="a")
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    group = HubGroup(address, elastic=True, name="a", ranks=1,
                     timeout=datetime.timedelta(minutes=5))
    for settings in ({"fragments": 2}, {"every": 4, "delay": 1}):
        assert "omit fragments and delay" in raises(
            code, LocalUpdates, model, optimizer, group=group, **settings)
    assert "only LocalUpdates and DistributedOptimizer train" in raises(
        code, broadcast_parameters, model.state_dict(), group=group)
    local = LocalUpdates(model, optimizer, every=2, group=group)
    another = torch.optim.SGD(model.parameters(), lr=0.1)
    assert "is for one LocalUpdates" in raises(code, LocalUpdates, model, another, group=group)
    for _ in range(4):
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    assert (local.rounds, local.rank, group.ranks) == (2, 0, 1)
    assert "this rank is in a running job after round 2" in raises(
        code, local.load_state_dict, local.state_dict())
    local.close()
    local.close()
    local.leave()  # of a notice that comes late
    assert "for this rank: it has been closed; close it after the last round" in raises(
        ErrorCode.kFailedPrecondition, optimizer.step)
    assert job.hub.end() == 0
