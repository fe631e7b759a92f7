#!/usr/bin/env python3
"""Tests of netlab: what it builds, how fast its links are, and that it leaves nothing behind.

Most need root, namespaces and mpirun, and are skipped, by name, without them. Clusters are named
after the test's process, so that one that is up is left alone.
"""

import argparse
import errno
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.dont_write_bytecode = True

NETLAB = pathlib.Path(__file__).with_name("netlab")
NAME = f"test{os.getpid()}"
FOLDER = pathlib.Path("/run", f"tersewire-{NAME}")
SLEEP = f"sleep 1000.{os.getpid():07}"  # a command line that nobody else has
ALL_SKIPPED = 77
# The share of a link that TCP's payload gets: Ethernet, IP and TCP headers with timestamps are 66
# bytes of a packet's 1514.
HEADER_BYTES = 66
PAYLOAD_BYTES = 1448
GOODPUT = PAYLOAD_BYTES / (PAYLOAD_BYTES + HEADER_BYTES)


# ---- What the ranks of the tests run: this file, with `--transfer`.

def transfer(direction, size):
    """`gather`: every other rank sends `size` bytes to rank 0; `scatter`: the other way. Rank 0
    prints bits per second, all ranks together."""
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    ranks = int(os.environ["OMPI_COMM_WORLD_SIZE"])

    def send(connection):
        connection.sendall(bytes(size))
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1):  # until the other side has everything and closes
            pass

    def receive(connection):
        with connection:
            while connection.recv(1 << 18):
                pass

    if rank > 0:
        connection = connect("10.77.0.1")
        connection.recv(1)  # rank 0 has all connections
        (send if direction == "gather" else receive)(connection)
        return
    with socket.create_server(("", 5000)) as server:
        connections = [server.accept()[0] for _ in range(ranks - 1)]
    threads = [threading.Thread(target=receive if direction == "gather" else send, args=(each,))
               for each in connections]
    start = time.monotonic()
    for each in connections:
        each.sendall(b"!")
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(8 * size * (ranks - 1) / (time.monotonic() - start))


def watch(host):
    """Ends when `host` could be reached, then could not, and then could again."""
    for wanted in (True, False, True):
        while is_there(host) is not wanted:
            time.sleep(0.02)


def is_there(host, within=0.3):
    """Whether it answers, if only that nobody listens."""
    with socket.socket() as end:
        end.settimeout(within)
        return end.connect_ex((host, 5001)) == errno.ECONNREFUSED


def round_trip(host):
    """The shortest of ten, in seconds."""
    assert is_there(host, within=20)  # its address is known
    took = []
    for _ in range(10):
        start = time.monotonic()
        is_there(host, within=20)
        took.append(time.monotonic() - start)
    return min(took)


def connect(host):
    for _ in range(1000):
        try:
            return socket.create_connection((host, 5000), timeout=60)
        except ConnectionRefusedError:  # it is not there yet
            time.sleep(0.01)
    raise TimeoutError(host)


# ---- What stands in the way here, if anything.

def obstacle(*tools):
    """Why a test cannot run here; None if it can."""
    if os.geteuid() != 0:
        return "not root"
    for tool in ("ip", "tc", "unshare", "setpriv", *tools):
        if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            return f"no {tool} here"
    probe = ("ip link add name veth0 type veth peer name veth1 && "
             "ip link add name br0 type bridge && "
             "tc qdisc add dev veth0 root tbf rate 1mbit burst 3200 limit 10000")
    done = subprocess.run(
        ["unshare", "--net", "--uts", "--pid", "--fork", "--mount-proc", "sh", "-c", probe],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        check=False)
    if done.returncode != 0:
        return f"namespaces or tc are not permitted: {done.stderr.strip()}"
    return None


WITHOUT_CLUSTER = obstacle()
WITHOUT_MPI = obstacle("mpirun")
WITHOUT_NFT = WITHOUT_MPI or obstacle("nft")
needs_cluster = unittest.skipIf(WITHOUT_CLUSTER, WITHOUT_CLUSTER)
needs_mpi = unittest.skipIf(WITHOUT_MPI, WITHOUT_MPI)
needs_nft = unittest.skipIf(WITHOUT_NFT, WITHOUT_NFT)


# ---- Helpers.

def words(subcommand, *arguments):
    return [sys.executable, str(NETLAB), subcommand, "--name", NAME, *map(str, arguments)]


def netlab(subcommand, *arguments, stdin=""):
    return subprocess.run(words(subcommand, *arguments), input=stdin, capture_output=True,
                          text=True, timeout=100, check=False)




def namespaces():
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return [line.split()[0] for line in listed.stdout.splitlines()
            if line.startswith(f"tersewire-{NAME}-")]


def processes(text):
    """Ids of the processes, but for this one, whose command line has `text` in it."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue  # it has ended
        if text in line and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip()
    except OSError:
        return ""  # it has ended


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.005)


class NetlabTest(unittest.TestCase):
    def setUp(self):
        if WITHOUT_CLUSTER is None:
            self.addCleanup(netlab, "down")

    def start(self, *arguments, **variables):
        process = subprocess.Popen(words(*arguments), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, **variables})
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.communicate(timeout=60)

    def assert_done(self, done, status=0):
        self.assertEqual(done.returncode, status, done.stderr)

    def assert_refused(self, done, sentence):
        self.assert_done(done, 125)
        self.assertIn(sentence, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertEqual(done.stdout, "")

    def assert_nothing_left(self):
        self.assertEqual(namespaces(), [])
        self.assertFalse(FOLDER.exists())
        self.assertEqual(processes(NAME) + processes(SLEEP), [])

    def transfer(self, direction, nodes, rate, size):
        """(bits per second, counters)"""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "counters.json")
            done = netlab("run", "--nodes", nodes, "--rate", rate, "--counters", file, "--",
                          sys.executable, __file__, "--transfer", direction, size)
            self.assert_done(done)
            print(f"{direction}, {nodes} nodes, {rate}: {float(done.stdout) / 1e6:.2f} Mbit/s",
                  file=sys.stderr)
            return float(done.stdout), json.loads(file.read_text())


def survivors(seed):
    """What a wire lets pass of 1,000 numbered frames."""
    loader = importlib.machinery.SourceFileLoader("wire", str(NETLAB.with_name("wire")))
    wire = importlib.util.module_from_spec(importlib.util.spec_from_loader("wire", loader))
    loader.exec_module(wire)
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here, there:
        there.setblocking(False)
        way = wire.Direction(there, None, random.Random(seed),
                             argparse.Namespace(delay=0.0, jitter=0.0, loss=0.1))
        for number in range(1000):
            here.send(number.to_bytes(4, "little"))
            way.take()
        return [int.from_bytes(frame, "little") for _, frame in way.under_way]


class Wire(unittest.TestCase):
    def test_the_same_frames_are_lost_with_the_same_seed(self):
        passed = survivors("7 w0 p0")
        self.assertEqual(survivors("7 w0 p0"), passed)
        self.assertNotEqual(survivors("8 w0 p0"), passed)
        self.assertEqual(passed, sorted(passed))
        self.assertTrue(860 <= len(passed) <= 940, len(passed))


class Usage(NetlabTest):
    def test_wrong_usage(self):
        for arguments in (["up"], ["up", "--nodes", 0, "--rate", "none"],
                          ["up", "--nodes", 2, "--rate", "fast"],
                          ["up", "--nodes", 2, "--rate", "none", "--", "true"],
                          ["up", "--nodes", 2, "--rate", "0mbit"], ["run", "--nodes", 2],
                          ["up", "--nodes", 2, "--rate", "none", "--tos", "256"],
                          ["up", "--nodes", 2, "--rate", "none", "--tos", "-1"],
                          ["run", "--nodes", 2, "--rate", "none", "--tos", "low", "--", "true"],
                          ["run", "--nodes", 2, "--rate", "none", "--tos", "0x10", "--nic",
                           "inceptionn:bound=2^-10", "--", "true"],
                          ["up", "--nodes", 2, "--rate", "none", "--delay", "20"],
                          ["up", "--nodes", 2, "--rate", "none", "--loss", "0.1"],
                          ["up", "--nodes", 2, "--rate", "none", "--loss", "100%"],
                          ["up", "--nodes", 2, "--rate", "none", "--between", "far"],
                          ["rate", "up"],
                          ["exec", "0"], ["exec", "--", "true"], ["sideways"]):
            with self.subTest(arguments):
                self.assert_done(netlab(*arguments), 2)

    def test_needs_root(self):
        # The system's Python, and netlab from stdin: nobody may not see into root's folders.
        python = shutil.which("python3", path="/usr/bin:/bin")
        if python is None:
            self.skipTest("no python3 in /usr/bin")
        nobody = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        with open(NETLAB, encoding="utf-8") as program:
            done = subprocess.run([python, "-", "up", "--nodes", "2", "--rate", "none"],
                                  stdin=program, capture_output=True, text=True, cwd="/",
                                  check=False, **nobody)
        self.assert_refused(done, "need root")

    @needs_cluster
    def test_names_the_package_of_a_missing_tool(self):
        with tempfile.TemporaryDirectory() as empty:
            done = subprocess.run(
                [sys.executable, "-c",
                 "import runpy, shutil, sys; sys.argv = sys.argv[1:];"
                 "which = shutil.which;"
                 "shutil.which = lambda tool: None if tool == 'tc' else which(tool);"
                 "runpy.run_path(sys.argv[0], run_name='__main__')",
                 *words("up", "--nodes", 2, "--rate", "none")[1:]],
                capture_output=True, text=True, cwd=empty, check=False)
        self.assert_refused(done, "tc is not installed; Debian's package is iproute2")
        self.assert_nothing_left()


@needs_cluster
class UpAndDown(NetlabTest):
    def test_leaves_nothing(self):
        for rate in ("10mbit", "none"):
            self.assert_done(netlab("up", "--nodes", 3, "--rate", rate))
            self.assertEqual(len(namespaces()), 4)
            self.assertIn(f"3 nodes at {rate}", netlab("status").stderr)
            self.assert_done(netlab("down"))
            self.assert_nothing_left()
        self.assert_done(netlab("down"))
        self.assert_nothing_left()

    def test_second_up_is_refused(self):
        self.assert_done(netlab("up", "--nodes", 2, "--rate", "none"))
        self.assert_refused(netlab("up", "--nodes", 2, "--rate", "none"),
                            "a cluster of 2 nodes at none is up; `netlab down` ends it")
        self.assertEqual(len(namespaces()), 3)

    def test_nothing_is_up(self):
        for arguments in (["status"], ["rate", "1gbit"], ["exec", 0, "--", "true"],
                          ["run", "--", "true"]):
            with self.subTest(arguments):
                if arguments[0] != "run" or WITHOUT_MPI is None:
                    self.assert_refused(netlab(*arguments), "no cluster is up")
        self.assert_nothing_left()

    def test_failure_while_building_leaves_nothing(self):
        # No token bucket is that fast: the last step fails.
        self.assert_refused(netlab("up", "--nodes", 2, "--rate", "99999999tbit"), "failed:")
        self.assert_nothing_left()

    def start_building(self, after):
        """A cluster that is being built, which stands still with so many namespaces; and a function
        that lets it go on."""
        folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        tool = folder / "ip"
        tool.write_text(f"""#!/bin/sh
{shutil.which("ip")} "$@" || exit
[ "$1 $2" = "netns add" ] || exit 0
echo >> {folder}/made
while [ $(wc -l < {folder}/made) -ge {after} ] && [ ! -e {folder}/go ]; do sleep 0.01; done
""", encoding="utf-8")
        tool.chmod(0o755)
        process = self.start("up", "--nodes", "12", "--rate", "1gbit",
                             PATH=f"{folder}:{os.environ['PATH']}")
        wait_until(lambda: len(namespaces()) >= after)
        return process, (folder / "go").touch

    def test_signal_while_building_leaves_nothing(self):
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            for after in (1, 4):  # namespaces
                with self.subTest(signum=signum, after=after):
                    process, go_on = self.start_building(after)
                    process.send_signal(signum)
                    go_on()
                    _, stderr = process.communicate(timeout=60)
                    self.assertEqual(process.returncode, 128 + signum, stderr)
                    self.assert_nothing_left()

    def test_what_a_killed_one_left_is_recognised(self):
        process, go_on = self.start_building(4)
        process.kill()
        go_on()
        process.communicate(timeout=60)
        for arguments in (["up", "--nodes", 2, "--rate", "none"], ["status"]):
            self.assert_refused(netlab(*arguments), "`netlab down` removes them")
        self.assert_done(netlab("down"))
        self.assert_nothing_left()

    def test_rate_is_changed(self):
        self.assert_done(netlab("up", "--nodes", 2, "--rate", "10mbit"))
        for rate, shown in (("1gbit", "tbf rate 1Gbit"), ("none", "tbf rate 1Tbit"),
                            ("100mbit", "tbf rate 100Mbit")):
            self.assert_done(netlab("rate", rate))
            self.assertIn(f"at {rate}", netlab("status").stderr)
            for where, link in (("n0", "eth0"), ("n1", "eth0"), ("switch", "p0"), ("switch", "p1")):
                queue = subprocess.run(
                    ["tc", "-n", f"tersewire-{NAME}-{where}", "qdisc", "show", "dev", link],
                    capture_output=True, text=True, check=True).stdout
                for word in shown.split():
                    self.assertIn(word, queue)


@needs_cluster
class Exec(NetlabTest):
    def setUp(self):
        super().setUp()
        self.assert_done(netlab("up", "--nodes", 2, "--rate", "none"))

    def test_runs_in_its_node(self):
        script = "hostname; ip -br address show dev eth0; cat; echo told >&2; exit 7"
        done = netlab("exec", 1, "--", "sh", "-c", script, stdin="from outside\n")
        self.assert_done(done, 7)
        self.assertRegex(done.stdout, r"\An1\neth0@\S+ +UP +10\.77\.0\.2/24 *\nfrom outside\n\Z")
        self.assertEqual(done.stderr, "told\n")

    def test_refuses_what_is_not_there(self):
        for node in (2, -1):
            self.assert_refused(netlab("exec", node, "--", "true"),
                                f"there is no node {node}; the last is 1")
        self.assert_done(netlab("exec", 0, "--", "no-such-command"), 127)

    def test_ends_what_the_command_started(self):
        self.assert_done(netlab("exec", 0, "--", "sh", "-c",
                                f"setsid sh -c 'trap \"\" TERM; {SLEEP}; true' & sleep 0.1"))
        self.assertEqual(processes(SLEEP), [])

    def test_a_signal_leaves_time_to_finish(self):
        script = ("trap 'sleep 0.2; echo finished; exit' INT TERM HUP; echo ready; "
                  "while :; do sleep 0.01; done")
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signum):
                process = self.start("exec", "0", "--", "sh", "-c", script)
                self.assertEqual(process.stdout.readline(), "ready\n")
                process.send_signal(signum)
                stdout, stderr = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 128 + signum, stderr)
                self.assertEqual(stdout, "finished\n")

    def test_down_is_refused_meanwhile(self):
        process = self.start("exec", "0", "--", "sh", "-c", f"echo ready; {SLEEP}; true")
        self.assertEqual(process.stdout.readline(), "ready\n")
        self.assert_refused(netlab("down"), "in use")
        process.terminate()
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        self.assert_done(netlab("down"))
        self.assert_nothing_left()


@needs_mpi
class Run(NetlabTest):
    def test_one_rank_a_node_and_rank_0_is_heard(self):
        script = 'echo $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(hostname)'
        done = netlab("run", "--nodes", 11, "--rate", "1gbit", "--", "sh", "-c", script)
        self.assert_done(done)
        self.assertEqual(done.stdout, "0 of 11 on n0\n")
        for rank in range(1, 11):
            self.assertIn(f"{rank} of 11 on n{rank}\n", done.stderr)
        self.assert_nothing_left()

    def test_exit_status_is_the_commands(self):
        for rank in (0, 1):
            script = f'[ $OMPI_COMM_WORLD_RANK = {rank} ] && exit 42; {SLEEP}'
            done = netlab("run", "--nodes", 2, "--rate", "none", "--", "sh", "-c", script)
            self.assert_done(done, 42)
            self.assert_nothing_left()
        self.assert_done(netlab("run", "--nodes", 2, "--rate", "none", "--", "no-such-command"),
                         127)
        self.assert_nothing_left()

    def test_uses_the_cluster_that_is_up(self):
        self.assert_done(netlab("up", "--nodes", 2, "--rate", "1gbit"))
        for options in ([], ["--nodes", 2], ["--rate", "1gbit"]):
            done = netlab("run", *options, "--", "cat", stdin="from outside\n")
            self.assert_done(done)
            self.assertEqual(done.stdout, "from outside\n")
        self.assertEqual([entry.name for entry in FOLDER.iterdir()], ["cluster.json"])
        for options in (["--nodes", 3], ["--rate", "none"]):
            self.assert_refused(netlab("run", *options, "--", "true"),
                                "a cluster of 2 nodes at 1gbit is up")

    def test_death_of_a_part_leaves_nothing(self):
        # Since Open MPI 5 mpirun becomes prterun, and orted is prted.
        for part in (("mpirun", "prterun"), ("orted", "prted"), ("sleep",)):
            with self.subTest(part):
                process = self.start_sleepers()
                victim = next(pid for pid in processes(NAME) + processes(SLEEP)
                              if name_of(pid) in part)
                os.kill(victim, signal.SIGKILL)
                _, stderr = process.communicate(timeout=60)
                self.assertNotIn(process.returncode, (0, 125), stderr)
                self.assert_nothing_left()

    def test_signal_leaves_nothing(self):
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signum):
                process = self.start_sleepers()
                process.send_signal(signum)
                _, stderr = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 128 + signum, stderr)
                self.assert_nothing_left()

    def test_killed_netlab_leaves_no_process(self):
        process = self.start_sleepers()
        process.kill()
        process.communicate(timeout=60)
        wait_until(lambda: not processes(NAME) + processes(SLEEP))
        self.assert_refused(netlab("run", "--nodes", 2, "--rate", "none", "--", "true"),
                            "`netlab down` removes them")
        self.assert_done(netlab("down"))
        self.assert_nothing_left()

    def start_sleepers(self):
        """A run of two ranks that sleep, once rank 0 does."""
        process = self.start("run", "--nodes", "2", "--rate", "none", "--", "sh", "-c",
                        f"echo ready; exec {SLEEP}")
        self.assertEqual(process.stdout.readline(), "ready\n")
        wait_until(lambda: [name_of(pid) for pid in processes(SLEEP)].count("sleep") == 2)
        return process


@needs_nft
class Marks(NetlabTest):
    """--tos: what a node's packets carry when they reach another."""

    COUNT = """
add table ip count
add chain ip count in { type filter hook input priority 0; }
add rule ip count in iifname "eth0" ip protocol tcp @nh,8,8 0x2a counter
add rule ip count in iifname "eth0" ip protocol tcp counter
"""

    def packets_received(self, node, *options):
        """How many of 0x2a and how many in all a run of two nodes brings to one of them."""
        self.assert_done(netlab("up", "--nodes", 2, "--rate", "none", *options))
        namespace = ["ip", "netns", "exec", f"tersewire-{NAME}-n{node}"]
        subprocess.run([*namespace, "nft", "-f", "-"], input=self.COUNT, text=True, check=True)
        self.assert_done(netlab("run", *options, "--", sys.executable, __file__,
                                "--transfer", "gather", 100_000))
        listed = subprocess.run([*namespace, "nft", "-j", "list", "table", "ip", "count"],
                                capture_output=True, text=True, check=True).stdout
        counts = [each["counter"]["packets"] for item in json.loads(listed)["nftables"]
                  if "rule" in item for each in item["rule"]["expr"] if "counter" in each]
        self.assert_done(netlab("down"))
        self.assert_nothing_left()
        return counts

    def test_every_packet_of_both_sides_is_marked(self):
        for node in (0, 1):
            marked, total = self.packets_received(node, "--tos", "0x2a")
            self.assertGreater(total, 2)
            self.assertEqual(marked, total)

    def test_nothing_is_marked_unless_asked(self):
        marked, total = self.packets_received(0)
        self.assertEqual(marked, 0)
        self.assertGreater(total, 2)

    def test_a_run_marks_its_own_cluster(self):
        done = netlab("run", "--nodes", 2, "--rate", "none", "--tos", "0x28", "--",
                      "nft", "list", "table", "ip", "tersewire")
        self.assert_done(done)
        self.assertIn("ip dscp set af11", done.stdout)
        self.assert_nothing_left()

    def test_another_mark_than_the_clusters_is_refused(self):
        self.assert_done(netlab("up", "--nodes", 2, "--rate", "none", "--tos", "0x28"))
        self.assertIn("marked 0x28", netlab("status").stderr)
        self.assert_refused(netlab("run", "--tos", "0", "--", "true"), "leave out --nodes, --rate")

    def test_a_card_that_ends_early_is_reported(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "apps", "tersewire")
            library = pathlib.Path(folder, "nic", "libtersewire-nic.so")  # is not one: ignored
            for file in (program, library):
                file.parent.mkdir()
                file.touch(mode=0o755)
            for end, reason, command, status in (
                    ("echo worn out >&2; exit 1", "worn out", "true", 125),
                    ("kill -9 $$", "status -9", "false", 1)):
                program.write_text("#!/bin/sh\necho tersewire nic: ready >&2\n"
                                   f"ip address show | grep -q 10.77.0.1/ || {{ {end}; }}\n"
                                   "exec sleep 60\n")
                with self.subTest(reason):
                    process = self.start("run", "--nodes", "2", "--rate", "none", "--nic", "fp32",
                                         "--", command, TERSEWIRE=str(program))
                    _, stderr = process.communicate(timeout=60)
                    self.assertEqual(process.returncode, status, stderr)
                    self.assertIn(f"netlab: the card of node 1 ended early: {reason}\n", stderr)
                    self.assertNotIn("the card of node 0", stderr)
        self.assert_nothing_left()


@needs_cluster
class Wires(NetlabTest):
    def round_trip(self, here, there):
        done = netlab("exec", here, "--", sys.executable, __file__, "--round-trip",
                      f"10.77.0.{there + 1}")
        self.assert_done(done)
        return float(done.stdout)

    def test_two_sites_are_apart(self):
        self.assert_done(netlab("up", "--two-sites", "--nodes", 4))
        self.assertIn("4 nodes at 1gbit, 20mbit between two sites, 40 ms", netlab("status").stderr)
        # A machine with other work may be slower once in a while.
        self.assertTrue(any(self.round_trip(0, 1) < 0.08 for _ in range(10)))
        self.assertTrue(any(self.round_trip(3, 2) < 0.08 for _ in range(10)))
        self.assertGreaterEqual(self.round_trip(0, 2), 0.08)
        self.assertGreaterEqual(self.round_trip(3, 1), 0.08)
        self.assertIn("rate 20Mbit", self.queue("switch", "x0"))
        self.assert_done(netlab("rate", "10mbit", "2mbit"))
        self.assertIn("10mbit between two sites and 2mbit back", netlab("status").stderr)
        self.assertIn("rate 10Mbit", self.queue("switch", "x0"))
        self.assertIn("rate 2Mbit", self.queue("switch", "x1"))
        self.assert_refused(netlab("rate", "down", "2mbit"), "a link is cut both ways")
        self.assert_done(netlab("down"))
        self.assert_nothing_left()

    def test_every_link_has_its_delay(self):
        self.assert_done(netlab("up", "--nodes", 3, "--rate", "1gbit", "--uplink", "100mbit",
                                "--delay", "20ms", "--jitter", "1ms"))
        for here, there in ((0, 1), (2, 0)):
            self.assertGreaterEqual(self.round_trip(here, there), 4 * 0.019)
        self.assertIn("rate 100Mbit", self.queue("n1", "eth0"))
        self.assertIn("rate 1Gbit", self.queue("switch", "p1"))

    def test_a_wires_queue_is_as_long_as_the_links(self):
        self.assert_done(netlab("up", "--nodes", 2, "--rate", "1mbit", "--uplink", "100mbit",
                                "--delay", "1ms"))
        flood = ("import socket\nend = socket.socket(type=socket.SOCK_DGRAM)\n"
                 "for _ in range(1500): end.sendto(bytes(1400), ('10.77.0.1', 5002))")
        self.round_trip(1, 0)  # its address is known: what waits for that is dropped elsewhere
        self.assert_done(netlab("exec", 1, "--", sys.executable, "-c", flood))

        def queue():
            return json.loads(self.queue("switch", "p0", "-s", "-j"))[0]

        wait_until(lambda: queue()["drops"] > 0)
        self.assertGreater(queue()["backlog"], 500_000)
        self.assert_done(netlab("rate", "1gbit"))  # what waits would take 8 s
        self.assertGreaterEqual(self.round_trip(1, 0), 0.004)

    def queue(self, where, link, *options):
        return subprocess.run(
            ["tc", "-n", f"tersewire-{NAME}-{where}", *options, "qdisc", "show", "dev", link],
            capture_output=True, text=True, check=True).stdout

    @needs_mpi
    def test_what_is_lost_is_sent_again(self):
        self.assert_done(netlab("up", "--nodes", 2, "--rate", "none", "--loss", "5%"))
        size = 1_000_000
        done = netlab("run", "--", sys.executable, __file__, "--transfer", "gather", size)
        self.assert_done(done)
        listed = netlab("exec", 1, "--", "cat", "/proc/net/snmp").stdout.splitlines()
        names, numbers = (line.split() for line in listed if line.startswith("Tcp:"))
        again = int(numbers[names.index("RetransSegs")])
        # Some 690 packets cross two links, each of which loses 5 %.
        self.assertGreater(again, 20)
        self.assertLess(again, 400)

    @needs_mpi
    def test_a_trace_cuts_the_links_and_joins_them_again(self):
        for more, line in ((["--between", "none", "--delay", "1ms"], "none between two sites"),
                           ([], "2 nodes at none.")):
            self.assert_done(netlab("up", "--nodes", 2, "--rate", "none", *more))
            with tempfile.TemporaryDirectory() as folder:
                trace = pathlib.Path(folder, "trace")
                # More than once: who knows when the command looks for the first time.
                trace.write_text("# both\n\n" + "".join(
                    f"{at}s down\n{at + 1}s 10mbit 5mbit\n" for at in range(2, 80, 2)))
                done = netlab("run", "--trace", trace, "--", sys.executable, __file__, "--watch")
            self.assert_done(done)
            self.assertRegex(done.stderr, r"netlab: 2\.\d s: down\.(.|\n)*netlab: 3\.\d s: 10mbit and back 5mbit\.")
            self.assertIn(line, netlab("status").stderr)
            self.assertIn("rate 1Tbit", self.queue("switch", "p0"))  # as it was before
            self.assert_done(netlab("down"))

    def is_cut(self):
        return " master br0 " not in subprocess.run(
            ["ip", "-n", f"tersewire-{NAME}-switch", "-o", "link", "show", "p0"],
            capture_output=True, text=True, check=True).stdout

    @needs_mpi
    def test_a_trace_leaves_what_is_to_be(self):
        self.assert_done(netlab("up", "--nodes", 2, "--rate", "none"))
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder, "trace")
            trace.write_text("0s down\n")
            for ends in (subprocess.Popen.terminate, subprocess.Popen.kill):
                process = self.start("run", "--trace", str(trace), "--", "sleep", "100")
                self.assertIn("down", process.stderr.readline())
                self.assert_done(netlab("status"))
                self.assertTrue(self.is_cut())
                self.assert_refused(netlab("run", "--trace", trace, "--", "true"), "another run")
                if ends is subprocess.Popen.terminate:
                    self.assert_done(netlab("rate", "10mbit"))
                ends(process)
                process.communicate(timeout=60)
                self.assertEqual(self.is_cut(), ends is subprocess.Popen.kill)
                self.assertIn("2 nodes at 10mbit.", netlab("status").stderr)
                self.assertFalse(self.is_cut())
                self.assertIn("rate 10Mbit", self.queue("switch", "p0"))

    @needs_mpi
    def test_counters_outlast_a_change_of_rates(self):
        self.assert_done(netlab("up", "--nodes", 2, "--rate", "none"))
        size = 1_000_000
        with tempfile.TemporaryDirectory() as folder:
            trace, file = pathlib.Path(folder, "trace"), pathlib.Path(folder, "counters.json")
            trace.write_text("0s 20mbit\n")
            moves = shlex.join([sys.executable, __file__, "--transfer", "gather", str(size)])
            ends = shlex.join(words("rate", "none"))
            script = f"{moves}; [ $OMPI_COMM_WORLD_RANK = 1 ] || {ends}"
            self.assert_done(netlab("run", "--trace", trace, "--counters", file, "--",
                                    "sh", "-c", script))
            counters = json.loads(file.read_text())
        self.assertEqual(counters["rate"], "none")
        for way, node in (("tx", 1), ("rx", 0)):
            self.assertGreater(counters["links"][node][f"{way}_wire_bytes"], size)

    @needs_mpi
    def test_a_step_that_tc_refuses_is_reported(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder, "trace")
            trace.write_text("0s 99999999tbit\n")
            done = netlab("run", "--nodes", 2, "--rate", "none", "--trace", trace, "--", "sleep", 1)
        self.assert_done(done, 125)
        self.assertIn("netlab: the trace ended at 0 s, 99999999tbit: ", done.stderr)
        self.assert_nothing_left()

    @needs_mpi
    def test_a_wrong_trace_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder, "trace")
            for text, sentence in ((b"1s 5mbit\n2 down\n", "line 2 of"),
                                   (b"# \xfcber\n1s fast\n", "line 2 of"),
                                   (b"2s down\n1s none\n", "do not increase")):
                trace.write_bytes(text)
                self.assert_refused(netlab("run", "--nodes", 2, "--rate", "none", "--trace", trace,
                                           "--", "true"), sentence)
            self.assert_refused(netlab("run", "--trace", trace.with_name("none"), "--", "true"),
                                "No such file")
        self.assert_nothing_left()


@needs_mpi
class Rates(NetlabTest):
    """Real links against their rates: the one place where time decides, with 5 % to spare."""

    def assert_rate(self, direction, nodes, rate, bits, size):
        # A machine with other work may be slower once in a while; a link is never faster.
        for _ in range(3):
            got, counters = self.transfer(direction, nodes, rate, size)
            self.assertLess(got, 1.05 * GOODPUT * bits)
            if got > 0.95 * GOODPUT * bits:
                return counters["links"]
        self.fail(f"{got:.0f} bit/s at {rate}, three times")

    def test_10mbit_and_its_counters(self):
        size = 3_000_000
        links = self.assert_rate("gather", 2, "10mbit", 10e6, size)
        for here, there in ((0, 1), (1, 0)):
            self.assertEqual(links[here]["node"], here)
            self.assertEqual(links[here]["tx_wire_bytes"], links[there]["rx_wire_bytes"])
            self.assertEqual(links[here]["tx_bytes"], links[there]["rx_bytes"])
            self.assertGreater(links[here]["tx_wire_bytes"], 0)
        sent = links[1]["tx_wire_bytes"] - HEADER_BYTES * links[1]["tx_wire_packets"]
        self.assertGreater(sent, size - 200)  # ARP's packets are smaller than 66 bytes
        self.assertLess(sent, 1.01 * size)

    def test_100mbit_into_a_node(self):
        self.assert_rate("gather", 3, "100mbit", 100e6, 12_000_000)

    def test_100mbit_out_of_a_node(self):
        self.assert_rate("scatter", 3, "100mbit", 100e6, 12_000_000)


def main():
    if sys.argv[1:2] == ["--transfer"]:
        transfer(sys.argv[2], int(sys.argv[3]))
        return 0
    if sys.argv[1:2] == ["--watch"]:
        if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
            watch("10.77.0.1")
        return 0
    if sys.argv[1:2] == ["--round-trip"]:
        print(round_trip(sys.argv[2]))
        return 0
    if sys.argv[1:] == ["--but-rates"]:
        cases = [name for name, it in globals().items()
                 if isinstance(it, type) and issubclass(it, unittest.TestCase) and it is not Rates]
        sys.argv[1:] = cases
    result = unittest.main(exit=False, verbosity=2).result
    if not result.wasSuccessful():
        return 1
    # Without a cluster hardly anything was tested; ctest then calls it skipped.
    return ALL_SKIPPED if WITHOUT_MPI else 0


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has children ignore it
    sys.exit(main())
