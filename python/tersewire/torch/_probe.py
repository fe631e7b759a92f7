"""What the network between ranks and this machine can do."""

import json
from typing import Any

from tersewire import Error, ErrorCode, _core

from ._groups import Group, group_of, meet_ranks


def probe(group: Group | None = None) -> dict[str, Any]:
    """Measures the network that exchanges would use, and the codecs: on every rank, between steps.

        found = tersewire.torch.probe()
        json.dump(found, open("probe.json", "w"))     # tersewire predict --probe probe.json ...

    group  a process group, or a HubGroup; all ranks without it

    Rank 0 and each other rank in turn send to each other; then rank 0 times the codecs on one
    core. It takes a few seconds; nothing else should use network and machine. Returns the same on
    every rank, as `tersewire probe --json` prints it: rate_bits_per_second (the lowest of all),
    latency_seconds (the highest), cores, peers and codecs, the last three as rank 0 has them.
    Raises Error (kFailedPrecondition) if there is no other rank.
    """
    among = group_of(group)
    if among.ranks < 2:
        raise Error(ErrorCode.kFailedPrecondition, "a probe found no other rank; start the script "
                    "on at least two, as torchrun --nproc_per_node 2 does")
    _, join = meet_ranks(among, "probe", None)
    prober = _core._Prober(*among._limits(None))
    join(prober)
    found: dict[str, Any] = json.loads(among._gather(prober.run())[0])
    return found
