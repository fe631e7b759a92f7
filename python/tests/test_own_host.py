"""The address at which a rank's machine is reached, in network namespaces of their own."""

import os
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("torch")

LOOK = """
import sys
from tersewire import _core
from tersewire.torch import _groups
host = _groups._own_host()
print(host, _core._TcpMeeting(host).address.rpartition(" ")[0])
"""
NAMESPACE = ["unshare", "--net", "sh", "-ec"]


def can_make_namespaces():
    made = shutil.which("unshare") and subprocess.run(
        [*NAMESPACE, "ip link add eth9 type veth peer name eth8"], capture_output=True, check=False)
    return made and made.returncode == 0


pytestmark = pytest.mark.skipif(not can_make_namespaces(), reason="no network namespaces here (root)")


def own_host(*addresses, **variables):
    """What a process finds whose interface eth9 alone, beside loopback, has addresses: these."""
    commands = ["ip link set lo up", "ip link add eth9 type veth peer name eth8",
                "ip link set eth9 up", "ip link set eth8 up",
                *(f"ip address add {address} dev eth9 nodad" for address in addresses),
                'exec "$@"']
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("GLOO_SOCKET_IFNAME", "MASTER_ADDR")}
    found = subprocess.run([*NAMESPACE, "\n".join(commands), "sh", sys.executable, "-c", LOOK],
                           env={**environment, **variables}, capture_output=True, text=True,
                           timeout=120, check=False)
    assert found.returncode == 0, found.stderr
    host, listens_at = found.stdout.split()
    assert listens_at == host
    return host


def test_an_interface_with_ipv6_alone_has_that_address():
    assert own_host("fd00:9::1/64", GLOO_SOCKET_IFNAME="eth9") == "fd00:9::1"


def test_a_master_that_is_127_0_1_1_on_its_own_machine_has_the_machines_address():
    assert own_host("10.9.0.2/24", MASTER_ADDR="127.0.1.1") == "10.9.0.2"


def test_a_machine_with_ipv6_alone_is_reached_by_it():
    assert own_host("fd00:9::1/64", MASTER_ADDR="localhost") == "fd00:9::1"


def test_the_route_to_the_master_counts_most():
    assert own_host("10.9.0.2/24", "fd00:9::1/64", MASTER_ADDR="fd00:9::7") == "fd00:9::1"
