"""Whose gradients are averaged: the ranks of a PyTorch process group, or of a hub's job."""

import collections
import contextlib
import datetime
import fcntl
import functools
import hashlib
import ipaddress
import os
import secrets
import socket
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

import tersewire
from tersewire import Error, ErrorCode, _core

from ._private import default_store, devices_of, timeout_of
from ._tensors import at_end, refuse, refuse_sharded, refuse_unfilled, say_once

_SIOCGIFADDR = 0x8915  # Linux: an interface's address
Joining = _core._MeanWorker | _core._Prober  # takes part in a network of its own
# For ranks that are alive and compute: the program's progress limit.
_BUSY = datetime.timedelta(hours=1)
# How many this process has made, by the group's name.
_hooks_of: collections.Counter[str] = collections.Counter()
# The library's: WaitLimits::kLongest.
_LONGEST = datetime.timedelta(days=30)
# For a rank that gives no sign of life, and for one that does.
_Limits = tuple[datetime.timedelta, datetime.timedelta]


class HubGroup:
    """The ranks of a hub's job, for untrusted networks: the group= of what trains here.

        group = tersewire.torch.HubGroup("hub.example:7100", ranks=4, certs="node3")
        optimizer = tersewire.torch.DistributedOptimizer(optimizer, group=group)

    Every rank dials out to `tersewire hub --workers RANKS --servers 0`, which relays their messages
    to each other, under mutual TLS if there are certificates (docs/python.md). A PyTorch process
    group is not needed, except by DistributedDataParallel itself.

    address   "HOST:PORT" of the hub
    ranks     of the job; by default the environment's WORLD_SIZE. With elastic the number to begin
              with, as the hub has it: only checked if given
    rank      of this process; by default that of the certificate, or the environment's RANK
    certs     a directory of `tersewire certs join`, with this rank's key and certificate
    insecure  plaintext beyond this machine: anyone on the path can read and change what is sent
    timeout   how long it waits for the hub and all ranks, and later for a rank or a hub that gives
              no sign of life. A live one may send nothing for an hour, unless timeout= of what
              trains says otherwise
    elastic   ranks come and go while the group's one LocalUpdates or DistributedOptimizer runs;
              `rank` and `ranks` change with them. The hub is `tersewire hub --workers RANKS
              --min-workers N`
    name      of this process, if ranks come and go; by default that of the certificate
    direct    "HOST:PORT" of this machine, port 0 for any: it listens there, and ranks that reach it
              use a direct connection, bypassing the hub

    Waits until all ranks have joined; with elastic, what trains waits. A process joins a hub once,
    and uses the group for all that it trains; make the same calls in the same order on every rank.
    A failure or Ctrl-C on one rank ends the job on all, unless they come and go. Raises Error:
    kInvalidArgument for invalid arguments, kUnavailable if the hub cannot be reached,
    kDeadlineExceeded if ranks are missing, kFailedPrecondition if the hub refuses this one,
    kUnimplemented if tersewire was built without gRPC.
    """

    def __init__(self, address: str, ranks: int | None = None, rank: int | None = None,
                 certs: str | os.PathLike[str] | None = None, insecure: bool = False,
                 timeout: datetime.timedelta = datetime.timedelta(minutes=2), *,
                 elastic: bool = False, name: str | None = None,
                 direct: str | None = None) -> None:
        for what, given in (("address", address), ("direct", direct or "")):
            if not isinstance(given, str):
                refuse(f"{what}={given!r} is not valid; pass 'HOST:PORT'")
        if not isinstance(timeout, datetime.timedelta) or timeout <= datetime.timedelta(0):
            refuse(f"timeout={timeout!r} is not valid; pass a datetime.timedelta above 0")
        self.elastic, self.timeout = elastic, _bounded(timeout)
        if elastic:
            self._prepare(address, ranks, rank, certs, insecure, name, direct)
            return
        if name is not None:
            refuse(f"name={name!r} is for a rank that comes and goes; pass elastic=True, or rank=")
        ranks = _number("ranks", ranks, "WORLD_SIZE")
        if rank is not None or certs is None:
            rank = _number("rank", rank, "RANK")
        if ranks < 1:
            refuse(f"ranks={ranks} is not valid; pass a whole number, 1 or more")
        if rank is not None and not 0 <= rank < ranks:
            refuse(f"there is no rank {rank} of {ranks}; pass ranks=N, and rank= from 0 to N - 1")
        self._end = _core._HubEnd(address, rank, ranks, os.fspath(certs or ""), insecure, self.timeout,
                                  direct or "")
        self.rank, self.ranks = self._end.rank, ranks
        # At exit Python calls it after those of averagers, which are younger.
        self._finish = at_end(self, _core._HubEnd.close, self._end)

    def close(self) -> None:
        """Leaves the hub, as Python's exit or this object's end does; after averagers' close()."""
        self._finish()

    def _gather(self, own: str) -> list[str]:
        return [told.decode(errors="replace") for told in self._end.gather(own.encode())]

    def _join(self, worker: Joining, one_machine: bool) -> None:
        worker.join_hub(self._end)

    def _limits(self, timeout: datetime.timedelta | None) -> _Limits:
        silent, busy = self._member_limits(timeout)
        # The hub evicts a rank that hangs; ranks that wait for it must still be there then.
        return silent, 2 * busy if self.elastic else busy

    def _member_limits(self, timeout: datetime.timedelta | None) -> _Limits:
        busy = _bounded(timeout or _BUSY)
        return min(self.timeout, busy), busy

    def _prepare(self, address: str, ranks: int | None, rank: int | None,
                 certs: str | os.PathLike[str] | None, insecure: bool,
                 name: str | None, direct: str | None) -> None:
        if rank is not None:
            refuse(f"rank={rank!r} is not valid where ranks come and go; pass name=")
        if name is None and certs is None:
            refuse("ranks that come and go have names; pass name=, or certs= of "
                   "'tersewire certs sign --name'")
        self._first = ranks
        self._make_member = functools.partial(
            _core._HubMember, hub=address, name=name, certs=os.fspath(certs or ""),
            insecure=insecure, direct=direct or "")
        self._joined: dict[str, Any] = {}  # "member" and "end"
        self.rank, self.ranks = 0, 1  # until it has met the others
        self._finish = at_end(self, _leave, self._joined)

    @property
    def _member(self) -> _core._HubMember:
        if not self._finish.alive:
            raise Error(ErrorCode.kFailedPrecondition,
                        "this rank's group is closed; close it after the last step")
        member: _core._HubMember = self._joined["member"]
        return member

    def _enter(self, alike: str, longest: int, timeout: datetime.timedelta | None) -> None:
        """Joins the job of all with the same `alike`; `longest` bytes are handed over."""
        if self._joined or not self._finish.alive:
            refuse("a group whose ranks come and go is for one LocalUpdates or "
                   "DistributedOptimizer; start a process and a hub for each")
        digest = hashlib.sha256(f"{tersewire.__version__} {alike}".encode()).digest()
        silent, busy = self._member_limits(timeout)
        self._joined["member"] = self._make_member(
            fingerprint=int.from_bytes(digest[:8], "little"), timeout=silent, busy=busy,
            longest=longest)

    def _next(self) -> bool:
        """Continues with the next generation of ranks; False if the job is over for this one."""
        if "end" in self._joined:
            self._joined.pop("end").close()
        end = self._member.join()
        if end is None:
            return False
        self._end = self._joined["end"] = end
        self.rank, self.ranks = end.rank, end.ranks
        if self._first not in (None, self.ranks) and self._member.generation == 1:
            sentence = (f"the hub begins with ranks={self.ranks}, and ranks={self._first} was "
                        f"passed; start it with --workers {self._first}")
            self._member.goes_on_after(int(ErrorCode.kInvalidArgument), sentence)
            refuse(sentence)
        return True

    @torch.no_grad()
    def _broadcast(self, state: Mapping[str, torch.Tensor], root: int) -> None:
        values = _values_alike(self, state, root)
        data = packed(values)
        self._end.broadcast(root, data.numpy())
        if self.rank != root:
            unpack(data, values)


# Of a sparse tensor, by its layout.
_PARTS: dict[torch.layout, tuple[str, ...]] = {
    torch.sparse_coo: ("_indices", "_values"),
    **dict.fromkeys((torch.sparse_csr, torch.sparse_bsr), ("crow_indices", "col_indices", "values")),
    **dict.fromkeys((torch.sparse_csc, torch.sparse_bsc), ("ccol_indices", "row_indices", "values"))}


def _parts(value: torch.Tensor) -> list[torch.Tensor]:
    """Dense tensors that share its memory, of which no two elements are the same."""
    if value.layout in _PARTS:
        return [getattr(value.detach(), part)() for part in _PARTS[value.layout]]
    part = value.detach()
    for dimension in reversed(range(part.dim())):
        if part.size(dimension) > 1 and part.stride(dimension) == 0:  # expand() has made it
            part = part.select(dimension, 0)
    return [part]


def _bytes_of(part: torch.Tensor) -> torch.Tensor:
    return part.resolve_conj().resolve_neg().contiguous().flatten().view(torch.uint8)


def packed(values: Sequence[torch.Tensor]) -> torch.Tensor:
    """Their bytes, concatenated."""
    return torch.cat([torch.empty(0, dtype=torch.uint8, device="cpu"),
                      *(_bytes_of(part.to("cpu")) for value in values for part in _parts(value)
                        if part.numel())])


def unpack(data: torch.Tensor, targets: Sequence[torch.Tensor]) -> None:
    """The inverse; `data` has as many bytes as targets need."""
    begin = 0
    for target in (part for value in targets for part in _parts(value)):
        end = begin + target.numel() * target.element_size()
        came = data[begin:end].clone()  # aligned for its type
        begin = end
        # A bool with a byte other than 0 and 1 is undefined.
        came = came.bool() if target.dtype is torch.bool else came.view(target.dtype)
        with torch.inference_mode(target.is_inference()):  # where alone such a tensor may change
            target.copy_(came.view(target.shape))


def _leave(joined: dict[str, Any]) -> None:
    for end in ("end", "member"):
        if end in joined:
            joined.pop(end).close()


class ProcessGroup:
    """The same for a PyTorch process group; exchanges use their own connections, not encrypted."""

    elastic = False

    def __init__(self, group: dist.ProcessGroup | None, near: Iterable[torch.Tensor] = ()) -> None:
        if isinstance(group, DeviceMesh):
            refuse("a DeviceMesh has a group for each of its dimensions; pass the one that exchanges, "
                   "mesh.get_group(), or mesh.get_group(\"NAME\") where it has several")
        if not isinstance(group, (dist.ProcessGroup, type(None))) and (
                group is not dist.GroupMember.NON_GROUP_MEMBER):
            refuse(f"group={group!r} is not a group; pass what torch.distributed.new_group() "
                   "returned, or a HubGroup")
        self._group: Any = group or dist.group.WORLD
        self.rank = dist.get_rank(self._group)
        if self.rank < 0:
            refuse("this process is not in the group; make this call on the group's ranks alone")
        self.ranks = dist.get_world_size(self._group)
        if self.ranks == 1:
            say_once("the process group has one rank, which trains alone: nothing is exchanged; "
                     "start the script on several, as torchrun does, or pass a group of all ranks")
        self._device = getattr(self._group, "bound_device_id", None) or next(
            (value.device for value in near if not value.is_cpu), None)

    def _gather(self, own: str) -> list[str]:
        told: list[Any] = [None] * self.ranks
        with self._on_device():
            dist.all_gather_object(told, own, group=self._group)
        return told

    def _join(self, worker: Joining, one_machine: bool) -> None:
        meeting = _core._TcpMeeting("127.0.0.1" if one_machine else _own_host())
        # Each makes a token, and all use rank 0's.
        found = [told.split("\n")
                 for told in self._gather(f"{meeting.address}\n{secrets.token_hex(32)}")]
        worker.join(meeting, self.rank, [address for address, _ in found],
                    bytes.fromhex(found[0][1]))

    def _limits(self, timeout: datetime.timedelta | None) -> _Limits:
        limit = _bounded(timeout or self._timeout())
        return limit, limit

    def _await_hooks(self, timeout: datetime.timedelta) -> None:
        """Refuses a hook that not all ranks make: the others are in collectives of their own."""
        default = default_store()
        if default is None:  # MPI has none
            return
        name = self._group.group_name
        _hooks_of[name] += 1
        store = dist.distributed_c10d.PrefixStore(f"tersewire/{name}/{_hooks_of[name]}", default)
        ranks = [str(rank) for rank in range(self.ranks)]
        store.set(ranks[self.rank], "")
        limit = min(timeout, datetime.timedelta(days=1))  # the store's own is in milliseconds
        try:
            store.wait(ranks, limit)
        except RuntimeError:
            missing = [rank for rank in ranks if not store.check([rank])]
            if missing:
                refuse(f"rank {self.rank} has made a hook, and within {limit.total_seconds():g} "
                       f"seconds these ranks have not: {', '.join(missing)}; call register() on every "
                       "rank, or start every rank with -m tersewire.torch; pass timeout= if one needs "
                       "longer")

    def _timeout(self) -> datetime.timedelta:
        """As passed to init_process_group() or new_group()."""
        limit = timeout_of(self._group)
        if limit is None:
            limit = dist.distributed_c10d.default_pg_timeout
            say_once("the process group does not say its time limit, so a rank waits for a silent "
                     f"one for {limit}; pass timeout= for another limit")
        return limit

    @torch.no_grad()
    def _broadcast(self, state: Mapping[str, torch.Tensor], root: int) -> None:
        for value in _values_alike(self, state, root):
            for part in _parts(value):
                # As bytes: Gloo lacks some types.
                sent = _bytes_of(part)
                sent = sent.to(self._device_to_send_from(sent.device))
                dist.broadcast(sent, self._rank_of_all(root), group=self._group)
                unpack(sent, [part])

    def _sends_from_cpu(self) -> bool:
        """NCCL and its like do not, nor a group written in Python that has their name in its own."""
        kinds = devices_of(self._group)
        return "cpu" in kinds if kinds else "ccl" not in dist.get_backend(self._group)

    def _device_to_send_from(self, device: torch.device | str) -> torch.device:
        """Where a tensor on that device must be."""
        device = torch.device(device)
        if device.type != "cpu" or self._sends_from_cpu():
            return device
        found: torch.device | None = self._device or torch.accelerator.current_accelerator()
        return device if found is None else found

    def _on_device(self) -> contextlib.AbstractContextManager[Any]:
        """Where torch sends objects from a device: from the model's, not from the current one, which
        is every rank's first unless the script has called set_device()."""
        if self._device is None or self._sends_from_cpu():
            return contextlib.nullcontext()
        current: contextlib.AbstractContextManager[Any] = torch.get_device_module(self._device).device(self._device)
        return current

    def _broadcast_objects(self, objects: list[Any], root: int) -> None:
        with self._on_device():
            dist.broadcast_object_list(objects, self._rank_of_all(root), self._group)

    def _rank_of_all(self, rank: int) -> int:
        """What torch.distributed calls that rank of this group."""
        return dist.get_global_rank(self._group, rank)


Group = dist.ProcessGroup | HubGroup  # what users pass
AnyGroup = HubGroup | ProcessGroup

_of_environment: HubGroup | None = None  # a process joins a hub once


def group_of(group: Group | ProcessGroup | None, elastic: bool = False,
             near: Iterable[torch.Tensor] = ()) -> AnyGroup:
    """Without `group`, that of all ranks: PyTorch's, or else that of the hub in TERSEWIRE_HUB.

    elastic  whether its ranks may come and go
    near     values that are on the device whose collectives it is to use, if on one
    """
    global _of_environment
    if isinstance(group, ProcessGroup):
        return group
    if isinstance(group, HubGroup):
        if group.elastic and not elastic:
            refuse("where ranks come and go only LocalUpdates and DistributedOptimizer train, and "
                   "they share the model themselves; pass a HubGroup without elastic=True")
        return group
    if dist.is_available() and dist.is_initialized():
        return ProcessGroup(group, near)
    if group is not None or "TERSEWIRE_HUB" not in os.environ:
        raise Error(ErrorCode.kFailedPrecondition, "there is no process group; call "
                    "torch.distributed.init_process_group() first, or name a hub: "
                    "group=tersewire.torch.HubGroup(...), or TERSEWIRE_HUB in the environment")
    if _of_environment is None:
        _of_environment = HubGroup(os.environ["TERSEWIRE_HUB"],
                                   certs=os.environ.get("TERSEWIRE_CERTS"),
                                   direct=os.environ.get("TERSEWIRE_DIRECT"))
    return _of_environment


def agree(group: AnyGroup, call: str, alike: Any, beside: str = "") -> list[str]:
    """Checks that every rank makes the same call with the same `alike`; all `beside`, by rank."""
    own = call, tersewire.__version__, hashlib.sha256(repr(alike).encode()).hexdigest(), beside
    told = [(text + "\n\n\n").split("\n", 3) for text in group._gather("\n".join(own))]
    for rank, other in enumerate(told):
        for what, theirs, first in zip(("call of tersewire.torch", "version of tersewire",
                                        "model or other settings"), other, told[0]):
            if theirs != first:
                refuse(f"rank {rank} has another {what} than rank 0; give every rank the same")
    return [other[3] for other in told]


def compare_values(group: AnyGroup, named: Mapping[str, Sequence[torch.Tensor]],
                   advice: str) -> None:
    """Refuses to train replicas that differ from the start. Members that come get the others'."""
    if group.elastic:
        return
    told = [text.split() for text in group._gather(" ".join(
        digest_of(packed([value]) for value in values) for values in named.values()))]
    for rank, other in enumerate(told):
        for what, theirs, first in zip(named, other, told[0]):
            if theirs != first:
                refuse(f"rank {rank} begins with other {what} than rank 0, and the replicas would "
                       f"never be alike; {advice}")


def digest_of(values: Iterable[torch.Tensor]) -> str:
    """Of tensors' bytes; they are on the CPU."""
    digest = hashlib.sha256()
    for value in values:
        digest.update(value.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _bounded(limit: datetime.timedelta) -> datetime.timedelta:
    """What the library takes; without a limit, its longest."""
    return min(limit, _LONGEST) if limit > datetime.timedelta(0) else _LONGEST


def check_root(group: AnyGroup, root: Any) -> None:
    if not isinstance(root, int) or not 0 <= root < group.ranks:
        refuse(f"root_rank={root!r} is not valid; pass a rank of the group, from 0 to "
               f"{group.ranks - 1}")


def _values_alike(group: AnyGroup, state: Mapping[str, torch.Tensor],
                  root: int) -> list[torch.Tensor]:
    """The tensors of a state, which every rank must have, for a broadcast from the same one."""
    named = sorted((name, value) for name, value in state.items() if torch.is_tensor(value))
    for name, value in named:
        refuse_sharded(name, value)
    agree(group, "broadcast", (root, [(name, form_of(name, value)) for name, value in named]))
    return [value for _, value in named]


def form_of(name: str, value: torch.Tensor) -> Any:
    """What ranks have alike of a value that one gives to others; refuses what cannot be given."""
    refuse_unfilled(name, value)
    if value.is_quantized or value.layout not in (torch.strided, *_PARTS):
        kind = "quantized" if value.is_quantized else f"of layout {value.layout}"
        refuse(f"'{name}' is {kind}, which ranks cannot be given; keep it dense, as its values, in the "
               "model that is trained")
    return (tuple(value.shape), str(value.dtype), str(value.layout),
            value.layout is torch.sparse_coo and value.is_coalesced(),
            [tuple(part.shape) for part in _parts(value)])


def values_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Its parameters and buffers, whatever it keeps in a state."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def share_model(group: AnyGroup, model: torch.nn.Module) -> None:
    """Makes all ranks' parameters, buffers and extra states that are tensors those of rank 0."""
    extra = {name: module for name, module in model.named_modules()
             if type(module).get_extra_state is not torch.nn.Module.get_extra_state}
    states = {f"{name}._extra_state": module.get_extra_state() for name, module in extra.items()}
    group._broadcast({**values_of(model), **states}, 0)
    for module, state in zip(extra.values(), states.values()):
        module.set_extra_state(state)


def meet_ranks(group: AnyGroup, call: str, alike: Any) -> tuple[int, Callable[..., None]]:
    """agree(); returns the number of ranks on this machine, and what joins a worker to all."""
    if group.elastic:
        # The hub compares what they say, and each generation of them joins by itself. Only torchrun
        # knows how many are on this machine.
        return int(os.environ.get("LOCAL_WORLD_SIZE", 1)), lambda worker: None
    # Namespaces of one machine count as separate machines.
    machine = f"{socket.gethostname()} {os.stat('/proc/self/ns/net').st_ino}"
    machines = agree(group, call, alike, machine)
    return (machines.count(machines[group.rank]),
            functools.partial(group._join, one_machine=len(set(machines)) == 1))


def _number(name: str, value: int | None, variable: str) -> int:
    """The value passed, or else the environment's."""
    if value is None and os.environ.get(variable, "").isdigit():
        return int(os.environ[variable])
    if value is None:
        refuse(f"neither {name}= nor {variable} in the environment is a number; pass {name}=")
    if not isinstance(value, int) or isinstance(value, bool):
        refuse(f"{name}={value!r} is not valid; pass a whole number")
    return value


def _own_host() -> str:
    """An address at which other machines reach this one: GLOO_SOCKET_IFNAME's, or that of the route
    to the master. Its own machine may call the master 127.0.1.1; any other route out is as good."""
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    if interface:
        found = _addresses_of(interface)
        if not found:
            refuse(f"GLOO_SOCKET_IFNAME is '{interface}', which has no address; name an interface "
                   "that has one")
        return found[0]
    # Nobody has the last two.
    outside = (os.environ.get("MASTER_ADDR", ""), "192.0.2.1", "2001:db8::1")
    for host in (*map(_route_to, outside),
                 *(host for _, name in socket.if_nameindex() for host in _addresses_of(name))):
        if host and not ipaddress.ip_address(host).is_loopback:
            return host
    return "127.0.0.1"  # what seems to be other machines are processes of this one


def _route_to(host: str) -> str:
    """This machine's address on the way there, "" without a way; nothing is sent."""
    try:
        for family, kind, _, _, address in socket.getaddrinfo(host, 1, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind) as unconnected:
                unconnected.connect(address)
                return str(unconnected.getsockname()[0])
    except OSError:
        pass
    return ""


def _addresses_of(interface: str) -> list[str]:
    """Its IPv4 address, and those of IPv6 that are not of its link alone."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unconnected:
        try:
            request = struct.pack("256s", interface.encode()[:15])
            answer = fcntl.ioctl(unconnected.fileno(), _SIOCGIFADDR, request)
            found.append(socket.inet_ntoa(answer[20:24]))
        except OSError:
            pass
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as table:
            for number, _, _, scope, _, name in map(str.split, table):
                if name == interface and scope != "20":
                    found.append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(number)))
    except OSError:  # a kernel without IPv6
        pass
    return found
