#!/usr/bin/env python3
"""Tests of `tersewire nic` on real connections between network namespaces.

usage: nic_test.py PROGRAM LIBRARY JOB NETLAB

PROGRAM is tersewire, LIBRARY libtersewire-nic.so, JOB nic_job. Needs root, namespaces, nft,
iptables and NFQUEUE, and is skipped, by name, without them.
"""

import array
import ctypes
import fcntl
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True

NAME = f"nic{os.getpid()}"
BOUND = 2.0 ** -10
ALL_SKIPPED = 77
HEADER = bytes(range(64)) + struct.pack("<IIII", 1, 2, 3, 40000)
VALUES = 200_000


def values():
    """As gradients are: most small, few large."""
    made = array.array("f")
    for i in range(VALUES):
        u = (i * 2654435761 % 2**32) / 2**32 - 0.5
        made.append(0.5 * u * u * u)
    return made


# ---- What runs in the namespaces: this file, with `--send` or `--receive`.

def send_header(connection, way):
    """By a way that the library does not count, except for "send"."""
    own = connection.fileno()
    if way == "send":
        connection.sendall(HEADER)
    elif way == "fcntl":
        os.write(fcntl.fcntl(own, fcntl.F_DUPFD_CLOEXEC, 100), HEADER)
    elif way == "dup":
        os.write(os.dup(own), HEADER)
    elif way == "dup3":
        os.write(os.dup2(own, 100, inheritable=False), HEADER)
    elif way == "sendfile":
        with tempfile.TemporaryFile() as file:
            file.write(HEADER)
            file.flush()
            os.sendfile(own, file.fileno(), 0, len(HEADER))
    elif way == "splice":
        end, start = os.pipe()
        os.write(start, HEADER)
        os.splice(end, own, len(HEADER))


def send(messages, pause, way):
    """Sends `messages` times a header and the values, which it tells the card of."""
    floats = values()
    memory = (ctypes.c_char * (4 * len(floats))).from_buffer(floats)
    library = ctypes.CDLL(None)
    library.tersewire_nic_floats(ctypes.c_void_p(ctypes.addressof(memory)),
                                 ctypes.c_size_t(len(memory)))
    with socket.create_connection(("10.77.0.2", 5000), timeout=90) as connection:
        connection.settimeout(90)
        for i in range(messages):
            if i:
                time.sleep(pause)
            send_header(connection, way)
            connection.sendall(memory)
            # As programs do that keep none but their own.
            os.closerange(connection.fileno() + 1, 256)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)


def receive(messages):
    """Prints, for each message, whether the header is right, and the largest error of a value."""
    with socket.create_server(("", 5000)) as server:
        print("listening", flush=True)
        server.settimeout(90)
        connection, _ = server.accept()
        connection.settimeout(90)
        expected = values()
        for _ in range(messages):
            got = bytearray()
            while len(got) < len(HEADER) + 4 * VALUES:
                piece = connection.recv(len(HEADER) + 4 * VALUES - len(got))
                if not piece:
                    raise EOFError("the stream ended early")
                got += piece
            floats = array.array("f", bytes(got[len(HEADER):]))
            error = max(abs(a - b) for a, b in zip(floats, expected))
            print(json.dumps({"header": got[:len(HEADER)] == HEADER, "error": error}), flush=True)
        connection.close()


def reduce_by_gloo():
    """All ranks add up the values by PyTorch's Gloo; rank 0 prints the largest error."""
    import torch
    import torch.distributed

    rank, ranks = (int(os.environ[f"OMPI_COMM_WORLD_{what}"]) for what in ("RANK", "SIZE"))
    torch.distributed.init_process_group("gloo", init_method="tcp://10.77.0.1:29500", rank=rank,
                                         world_size=ranks)
    own = torch.tensor(values())
    total = own * (rank + 1)
    torch.distributed.all_reduce(total)
    error = (total - own * (ranks * (ranks + 1) // 2)).abs().max().item()
    if rank == 0:
        print(json.dumps({"error": error}))
    torch.distributed.barrier()


def listen_for_datagrams():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("", 6000))
        print("listening", flush=True)
        while True:
            data = one.recv(65536)
            print(len(data), data == bytes(len(data)), flush=True)


def send_datagrams():
    """One of many fragments; one that claims to be compressed; a last one. All are marked, so that
    each card takes them in this order."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x28)
        one.sendto(bytes(20000), ("10.77.0.2", 6000))
        one.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x2C)
        one.sendto(bytes(999), ("10.77.0.2", 6000))
        one.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x28)
        one.sendto(bytes(3), ("10.77.0.2", 6000))


# ---- What stands in the way here, if anything.

def obstacle(program):
    if os.geteuid() != 0:
        return "not root"
    for tool in ("ip", "tc", "nft", "iptables-restore", "unshare", "setpriv"):
        if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            return f"no {tool} here"
    card = subprocess.Popen(["unshare", "--net", program, "nic", "--interface", "lo"],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)
    line = card.stderr.readline()
    card.terminate()
    card.communicate()
    if line.startswith("tersewire nic:"):
        return None
    return f"no card can be started here: {line.strip()}"


class NicTest(unittest.TestCase):
    def setUp(self):
        self.started = []
        self.netlab("up", "--nodes", 2, "--rate", "100mbit", "--tos", "0x28")
        self.addCleanup(self.stop)

    def stop(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        self.netlab("down")

    def netlab(self, *words):
        done = subprocess.run([sys.executable, NETLAB, words[0], "--name", NAME,
                               *map(str, words[1:])], capture_output=True, text=True, timeout=300,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def start(self, node, *command, loaded=False):
        process = subprocess.Popen(
            ["ip", "netns", "exec", f"tersewire-{NAME}-n{node}",
             *(["env", f"LD_PRELOAD={LIBRARY}"] if loaded else []), *map(str, command)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.started.append(process)
        return process

    def card(self, node, codec="inceptionn:bound=2^-10"):
        process = self.start(node, PROGRAM, "nic", "--interface", "eth0", "--codec", codec)
        self.assertIn("tersewire nic: inceptionn", process.stderr.readline())
        return process

    def counted(self, card):
        card.terminate()
        output, errors = card.communicate(timeout=90)
        self.assertEqual(card.returncode, 0, errors)
        return json.loads(output)

    def sender_and_receiver(self, messages, pause=0.0, way="send"):
        receiver = self.start(1, sys.executable, __file__, "--receive", messages)
        self.assertEqual(receiver.stdout.readline(), "listening\n")
        sender = self.start(0, sys.executable, __file__, "--send", messages, pause, way,
                            loaded=True)
        return sender, receiver

    def message(self, receiver):
        line = receiver.stdout.readline()
        self.assertTrue(line, "the receiver has ended" if receiver.poll() is None else
                        receiver.communicate()[1])
        return json.loads(line)

    def assert_done(self, sender):
        _, errors = sender.communicate(timeout=90)
        self.assertEqual(sender.returncode, 0, errors)

    def test_floats_arrive_within_the_bound_and_all_else_as_it_was(self):
        cards = [self.card(0), self.card(1)]
        sender, receiver = self.sender_and_receiver(3)
        got = [self.message(receiver) for _ in range(3)]
        self.assert_done(sender)
        for message in got:
            self.assertTrue(message["header"])
            self.assertLessEqual(message["error"], BOUND)
            self.assertGreater(message["error"], 0)
        first, second = map(self.counted, cards)
        self.assertGreater(first["compressed"], 1000)
        self.assertEqual(first["compressed"], second["restored"])
        self.assertEqual(second["dropped"], 0)
        self.assertLess(first["bytes_after"], first["bytes_before"] / 2)

    def test_a_peer_without_a_card_gets_what_was_sent(self):
        card = self.card(0)
        sender, receiver = self.sender_and_receiver(1)
        self.assertEqual(self.message(receiver), {"header": True, "error": 0})
        self.assert_done(sender)
        counted = self.counted(card)
        self.assertEqual(counted["compressed"], 0)
        self.assertGreater(counted["kept"], 500)

    def kill_one(self, node):
        cards = [self.card(0), self.card(1)]
        sender, receiver = self.sender_and_receiver(12, 0.3)
        first = self.message(receiver)
        self.assertGreater(first["error"], 0)
        cards[node].kill()
        errors = [self.message(receiver) for _ in range(11)]
        self.assert_done(sender)
        for message in errors:
            self.assertTrue(message["header"])
            self.assertLessEqual(message["error"], BOUND)
        self.assertEqual(errors[-1]["error"], 0)  # uncompressed by then
        return cards

    def test_traffic_flows_on_where_the_sending_card_is_killed(self):
        self.kill_one(0)

    def test_traffic_flows_on_where_the_receiving_card_is_killed(self):
        cards = self.kill_one(1)
        self.assertGreater(self.counted(cards[0])["kept"], 500)
        # Its rules are still there, and its successor takes them over.
        self.counted(self.card(1))

    def test_a_program_that_says_nothing_is_left_alone(self):
        cards = [self.card(0), self.card(1)]
        receiver = self.start(1, sys.executable, __file__, "--receive", 1)
        self.assertEqual(receiver.stdout.readline(), "listening\n")
        script = ("import runpy,sys,ctypes; sys.argv=['x','--help'];"
                  f"m=runpy.run_path({__file__!r}); import socket;"
                  "c=socket.create_connection(('10.77.0.2',5000));"
                  "c.sendall(m['HEADER']); c.sendall(m['values']()); c.shutdown(1); c.recv(1)")
        self.start(0, sys.executable, "-c", script)
        self.assertEqual(self.message(receiver), {"header": True, "error": 0})
        self.assertEqual(self.counted(cards[0])["compressed"], 0)
        self.counted(cards[1])

    def test_a_connection_whose_bytes_are_not_counted_is_left_alone(self):
        cards = [self.card(0), self.card(1)]
        for way in ("fcntl", "dup", "dup3", "sendfile", "splice"):
            with self.subTest(way):
                sender, receiver = self.sender_and_receiver(1, way=way)
                self.assertEqual(self.message(receiver), {"header": True, "error": 0})
                self.assert_done(sender)
        self.assertEqual(self.counted(cards[0])["compressed"], 0)
        self.counted(cards[1])

    def test_datagrams_fragments_and_claims(self):
        cards = [self.card(0), self.card(1)]
        receiver = self.start(1, sys.executable, __file__, "--listen-for-datagrams")
        self.assertEqual(receiver.stdout.readline(), "listening\n")
        self.assert_done(self.start(0, sys.executable, __file__, "--send-datagrams"))
        self.assertEqual(receiver.stdout.readline(), "20000 True\n")
        self.assertEqual(receiver.stdout.readline(), "3 True\n")  # not the claim
        self.assertEqual(self.counted(cards[1])["dropped"], 1)
        self.counted(cards[0])

    def test_a_second_card_is_refused(self):
        self.card(0)
        second = self.start(0, PROGRAM, "nic", "--interface", "eth0")
        _, errors = second.communicate(timeout=90)
        self.assertEqual(second.returncode, 1)
        self.assertIn("no other card", errors)

    def test_wrong_usage(self):
        for words, sentence in ((["--interface", "eth7"], "there is no interface 'eth7'"),
                                (["--interface", "eth0", "--codec", "3lc"], "inceptionn without"),
                                ([], "--interface")):
            done = self.start(0, PROGRAM, "nic", *words)
            _, errors = done.communicate(timeout=90)
            self.assertEqual(done.returncode, 2, errors)
            self.assertIn(sentence, errors)


class NetlabTest(unittest.TestCase):
    RANKS = 3

    def run_job(self, environment, *job):
        """What rank 0 printed, once every card has compressed."""
        if not shutil.which("mpirun"):
            self.skipTest("no mpirun here")
        with tempfile.NamedTemporaryFile() as counters:
            done = subprocess.run(
                [sys.executable, NETLAB, "run", "--name", NAME, "--nodes", str(self.RANKS),
                 "--rate", "100mbit", "--nic", "inceptionn:bound=2^-10", "--counters",
                 counters.name, "--", *job],
                capture_output=True, text=True, timeout=300, check=False,
                env={**os.environ, **environment, "TERSEWIRE": PROGRAM})
            self.assertEqual(done.returncode, 0, done.stderr)
            counted = json.load(counters)
        for card in counted["cards"]:
            self.assertGreater(card["compressed"], 300)
            self.assertEqual(card["dropped"], 0)
        result = json.loads(done.stdout)
        self.assertGreater(result["error"], 0)
        self.assertLessEqual(result["error"], 2 * (self.RANKS - 1) * BOUND)
        return result

    def test_an_mpi_job_as_it_is(self):
        result = self.run_job({"OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
                               "OMPI_MCA_coll_tuned_allreduce_algorithm": "4"}, JOB, "300000", "2")
        self.assertEqual(result["wrong"], 0)  # integers, maxima, and a broadcast of floats

    def test_a_gloo_job_as_it_is(self):
        python = next((p for p in (sys.executable, "/usr/bin/python3") if subprocess.run(
            [p, "-c", "import torch.distributed"], capture_output=True, check=False).returncode == 0),
            None)
        if python is None:
            self.skipTest("no PyTorch here")
        # Debian's own torch has no libuv.
        self.run_job({"TERSEWIRE_NIC_GLOO": "fp32", "GLOO_SOCKET_IFNAME": "eth0", "USE_LIBUV": "0"},
                     python, __file__, "--reduce-by-gloo")


if __name__ == "__main__":
    if sys.argv[1] == "--send":
        send(int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
        sys.exit()
    if sys.argv[1] == "--receive":
        receive(int(sys.argv[2]))
        sys.exit()
    if sys.argv[1] == "--reduce-by-gloo":
        reduce_by_gloo()
        sys.exit()
    if sys.argv[1] == "--listen-for-datagrams":
        listen_for_datagrams()
    if sys.argv[1] == "--send-datagrams":
        send_datagrams()
        sys.exit()
    PROGRAM, LIBRARY, JOB, NETLAB = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:5])
    MISSING = obstacle(PROGRAM)
    if MISSING:
        print(f"skipped: NicTest, NetlabTest: {MISSING}")
        sys.exit(ALL_SKIPPED)
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
