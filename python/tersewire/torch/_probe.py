"""What the network between ranks and this machine can do."""

import json
from typing import Any, Dict, Optional

from tersewire import Error, ErrorCode, _core

from ._groups import Group, group_of, meet_ranks


def probe(group: Optional[Group] = None) -> Dict[str, Any]:
    """Measures the network that exchanges would use, and the codecs: on every rank, between steps.

        found = tersewire.torch.probe()
        json.dump(found, open("probe.json", "w"))     # tersewire predict --probe probe.json ...

    group  a process group, or a HubGroup; all ranks without it

    Rank 0 sends to each of the others in turn, and they to it; then it times the codecs on one
    core. It takes some seconds and should have network and machine to itself. Returns the same on
    every rank: what `tersewire probe --json` says, rate_bits_per_second (the least of all),
    latency_seconds (the most), cores, peers and codecs, the last three as rank 0 has them. Raises
    Error (kFailedPrecondition) where there is no other rank.
    """
    among = group_of(group)
    if among.ranks < 2:
        raise Error(ErrorCode.kFailedPrecondition, "a probe found no other rank; start the script "
                    "on at least two, as torchrun --nproc_per_node 2 does")
    _, join = meet_ranks(among, "probe", None)
    prober = _core._Prober(*among._limits(None))
    join(prober)
    found = prober.run()
    told: Dict[str, Any] = json.loads(among._gather(found)[0])
    return told
