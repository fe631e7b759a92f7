#!/usr/bin/python3
"""Jobs over the transport grpc as users start them: a hub, nodes, certificates, and what goes wrong.

    grpc_command_test.py PATH_TO_TERSEWIRE

HELD_AT_STEP_LIBRARY names the library of held_at_step.cpp, by which a run stands still.
"""

import contextlib
import json
import os
import re
import resource
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest

PROGRAM = None

# Without defaults and proxies of whoever runs the tests.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith("TERSEWIRE_") and not name.lower().endswith("_proxy")}  # fmt: skip
ENVIRONMENT["TERSEWIRE_CONFIG"] = ""
# Nothing waits so long unless it hangs, however busy the machine.
BOUND_SECONDS = 600
# Above what a busy machine takes to start a process; a dead node is found after it.
# Of a hub that is killed and comes back: connections leave from 127.0.0.1, and none takes its port.
RETURNING_HUB = "127.0.0.2:0"
DEADLINE = "60"


def run(*arguments, stdin=b"", **variables):
    return subprocess.run([PROGRAM, *map(str, arguments)], input=stdin, capture_output=True,
                          timeout=BOUND_SECONDS, env={**ENVIRONMENT, **variables},
                          check=False)  # fmt: skip


def held_at(step, until):
    """Variables with which rank 0 stands still after a step until there is a file `until`."""
    return {"LD_PRELOAD": os.environ["HELD_AT_STEP_LIBRARY"], "HELD_AT_STEP": str(step),
            "HELD_UNTIL": until}  # fmt: skip


class Process:
    """One that is read as it goes, so that it never waits for its reader."""

    def __init__(self, *arguments, **variables):
        self.process = subprocess.Popen(
            [PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env={**ENVIRONMENT, **variables})  # fmt: skip
        self.output = b""
        self.lines = []
        self.readers = [threading.Thread(target=self.read_output),
                        threading.Thread(target=self.read_errors)]  # fmt: skip
        for reader in self.readers:
            reader.start()

    def read_output(self):
        self.output = self.process.stdout.read()

    def read_errors(self):
        for line in self.process.stderr:
            self.lines.append(line.decode().rstrip("\n"))

    def wait_for(self, pattern):
        """The first line on stderr like this, once it is there."""
        end = time.monotonic() + BOUND_SECONDS
        while time.monotonic() < end:
            for line in list(self.lines):
                if found := re.search(pattern, line):
                    return found
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"no '{pattern}' in {self.lines}")

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        """(exit code, what it said it failed of)."""
        code = self.process.wait(timeout=BOUND_SECONDS)
        for reader in self.readers:
            reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return code, [line for line in self.lines if line.startswith("tersewire: ")]


class ConnectProxy:
    """An HTTP proxy on loopback that only makes tunnels."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.tunnels = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with client:
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(1)
            method, target, _ = head.split(b"\r\n")[0].decode().split()
            host, port = target.rsplit(":", 1)
            self.tunnels.append((method, target))
            with socket.create_connection((host, int(port))) as far:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=self.pipe, args=(far, client), daemon=True)
                back.start()
                self.pipe(client, far)
                back.join()

    @staticmethod
    def pipe(source, sink):
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self.listener.close()


def own_address():
    """One of this machine that is not loopback's; nothing where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            return None
        return probe.getsockname()[0]


class GrpcCommandTest(unittest.TestCase):
    JOB = "--model mlp --workers 2 --batch 8 --codec 3lc:s=1.5".split()
    NODES = 3

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        self.processes = []
        self.addCleanup(self.kill_all)

    def kill_all(self):
        for started in self.processes:
            if started.process.poll() is None:
                started.process.kill()
            started.end()

    def path(self, name):
        return os.path.join(self.directory, name)

    def start(self, *arguments, **variables):
        self.processes.append(Process(*arguments, **variables))
        return self.processes[-1]

    def start_hub(self, *arguments, listen="127.0.0.1:0", workers=2):
        """(the hub, its address)."""
        hub = self.start("hub", "--workers", workers, "--listen", listen, *arguments)
        return hub, hub.wait_for(r"listens at (\S+)")[1]

    def start_node(self, hub, rank, *arguments, certs="", deadline=DEADLINE, direct="", **variables):
        # Whose certificate says its rank need not say it.
        place = "" if certs and rank == 2 else f",rank={rank}"
        place += f",direct={direct}" if direct else ""
        transport = f"grpc:hub={hub}{place}" + (f",certs={certs}" if certs else "")
        return self.start("train", *self.JOB, "--transport", transport, "--deadline", deadline,
                          "--out", self.path("run"), "--json", *arguments, **variables)  # fmt: skip

    def start_nodes(self, hub, *arguments, certs=None, deadline=DEADLINE, **variables):
        """Of all ranks; the variables are rank 0's."""
        return [self.start_node(hub, rank, *arguments, certs=certs[rank] if certs else "", deadline=deadline,
                                **(variables if rank == 0 else {}))
                for rank in range(self.NODES)]  # fmt: skip

    def certify(self, authority, directory, *whose):
        """As three commands in a pipe."""
        asked = run("certs", "join", self.path(directory))
        self.assertEqual(asked.returncode, 0, asked)
        answer = run("certs", "sign", self.path(authority), *whose, stdin=asked.stdout)
        self.assertEqual(answer.returncode, 0, answer)
        taken = run("certs", "join", self.path(directory), "--signed", "-", stdin=answer.stdout)
        self.assertEqual(taken.returncode, 0, taken)
        return self.path(directory)

    def certificates(self, job="clinic"):
        """(the hub's, those of the ranks)."""
        made = run("certs", "init", job, "--to", self.path(job))
        self.assertEqual(made.returncode, 0, made)
        hub = self.certify(job, f"{job}-hub", "--hub")
        return hub, [self.certify(job, f"{job}-{rank}", "--rank", rank)
                     for rank in range(self.NODES)]  # fmt: skip

    def wait_for_step(self, step):
        path = self.path("run/metrics.jsonl")
        end = time.monotonic() + BOUND_SECONDS
        while time.monotonic() < end:
            if os.path.exists(path) and len(self.read(path).splitlines()) >= step:
                return
            time.sleep(0.02)
        self.fail(f"no step {step} in {BOUND_SECONDS} s")

    def wait_for_connections(self, node, number):
        """Until it has so many of TCP that are open."""
        descriptors = f"/proc/{node.process.pid}/fd"
        end = time.monotonic() + BOUND_SECONDS
        while time.monotonic() < end:
            established = set()
            for table in ["/proc/net/tcp", "/proc/net/tcp6"]:
                with open(table, encoding="ascii") as lines:
                    rows = [line.split() for line in lines]
                established |= {f"socket:[{row[9]}]" for row in rows if row[3] == "01"}
            own = set()
            for name in os.listdir(descriptors):
                with contextlib.suppress(OSError):  # closed meanwhile
                    own.add(os.readlink(f"{descriptors}/{name}"))
            if len(own & established) >= number:
                return
            time.sleep(0.02)
        self.fail(f"no {number} connections in {BOUND_SECONDS} s")

    def read(self, path):
        with open(path, "rb") as file:
            return file.read()

    def touch(self, name):
        with open(self.path(name), "wb"):
            pass

    def assert_failed(self, result, code, *words):
        """One sentence with all of these."""
        ended, sentences = result
        self.assertEqual(ended, code, sentences)
        self.assertEqual(len(sentences), 1, sentences)
        for word in words:
            self.assertIn(word, sentences[0])

    def assert_refused(self, result, code, *words):
        self.assert_failed((result.returncode, result.stderr.decode().splitlines()), code, *words)
        self.assertFalse(result.stdout)

    def assert_same_as_threads(self, node, *arguments):
        """What rank 0 came to is, to the bit, what threads of one process come to."""
        threads = run("train", *self.JOB, *arguments, "--json", "--out", self.path("threads"))
        self.assertEqual(threads.returncode, 0, threads)
        expected = json.loads(threads.stdout)
        summary = json.loads(node.output)
        for key in ["parameters_checksum", "final_loss", "test_accuracy", "push_bytes"]:
            self.assertEqual(summary[key], expected[key], key)


class OneCommand(GrpcCommandTest):
    def test_it_comes_to_the_same_as_threads(self):
        ring = "--model mlp --workers 3 --batch 8 --codec int8 --exchange ring".split()
        for i, job in enumerate([self.JOB, ring]):
            with self.subTest(job=job):
                results = [
                    run("train", *job, "--steps", "12", "--json", "--transport", transport,
                        "--out", self.path(f"{transport}{i}"))
                    for transport in ["in-process", "grpc"]
                ]  # fmt: skip
                threads, grpc = (json.loads(result.stdout) for result in results)
                for key in ["parameters_checksum", "final_loss", "test_accuracy", "push_bytes"]:
                    self.assertEqual(grpc[key], threads[key], key)

    def test_bench_exchange_takes_it(self):
        rows = run("bench", "exchange", "--model", "lenet", "--scale", "0.01", "--steps", "2",
                   "--warm-up", "0", "--transport", "grpc", "--json")  # fmt: skip
        self.assertEqual(rows.returncode, 0, rows)
        self.assertEqual(json.loads(rows.stdout)[0]["transport"], "grpc")


class Nodes(GrpcCommandTest):
    def test_with_certificates_they_come_to_the_same_as_threads(self):
        hubs, certs = self.certificates()
        hub, address = self.start_hub("--certs", hubs)
        nodes = self.start_nodes(address, "--steps", "12", certs=certs)
        for node in nodes:
            self.assertEqual(node.end(), (0, []), node.lines)
        self.assertEqual(hub.end(), (0, []), hub.lines)
        self.assertEqual([node.output for node in nodes[1:]], [b"", b""])
        self.assert_same_as_threads(nodes[0], "--steps", "12")
        log = "\n".join(hub.lines)
        for event in ["rank 0 is here, from ipv4:127.0.0.1:", "all 3 nodes are here",
                      "rank 2 has left", "every node has left"]:  # fmt: skip
            self.assertIn(event, log)

    def test_past_the_hub_they_come_to_the_same_as_threads(self):
        hubs, certs = self.certificates()
        hub, address = self.start_hub("--certs", hubs, listen=RETURNING_HUB)
        # Rank 2 only dials. When the hub, which would relay, is gone, the job goes on.
        steps = 200
        nodes = [self.start_node(address, rank, "--steps", steps, certs=certs[rank],
                                 direct="127.0.0.1:0" if rank < 2 else "",
                                 **(held_at(steps - 1, self.path("go")) if rank == 0 else {}))
                 for rank in range(self.NODES)]  # fmt: skip
        self.wait_for_connections(nodes[0], 3)  # to the hub, and from both others
        hub.signal(signal.SIGKILL)
        hub.end()
        self.wait_for_step(steps - 1)
        hub, _ = self.start_hub("--certs", hubs, listen=address)
        hub.wait_for("all 3 nodes are here")
        self.touch("go")
        for node in nodes:
            self.assertEqual(node.end(), (0, []), node.lines)
        self.assertEqual(hub.end(), (0, []), hub.lines)
        self.assert_same_as_threads(nodes[0], "--steps", steps)

    def test_through_an_http_proxy(self):
        host = own_address()
        if host is None:
            self.skipTest("this machine has no address but loopback's")
        hubs, certs = self.certificates()
        hub, address = self.start_hub("--certs", hubs, listen=f"{host}:0")
        proxy = ConnectProxy()
        self.addCleanup(proxy.close)
        nodes = [self.start_node(address, rank, "--steps", "4", certs=certs[rank],
                                 https_proxy=f"http://{proxy.address}")
                 for rank in range(self.NODES)]  # fmt: skip
        for node in nodes:
            self.assertEqual(node.end(), (0, []), node.lines)
        self.assertEqual(hub.end(), (0, []), hub.lines)
        self.assertEqual(set(proxy.tunnels), {("CONNECT", address)})
        self.assert_same_as_threads(nodes[0], "--steps", "4")

    def test_a_finished_job_started_again_ends(self):
        hubs, certs = self.certificates()
        for certificates in [None, certs]:
            for again in [False, True]:
                hub, address = self.start_hub(*(("--certs", hubs) if certificates else ()))
                nodes = self.start_nodes(address, "--steps", "3", "--resume-or-start", certs=certificates)
                for node in nodes:
                    self.assertEqual(node.end(), (0, []), node.lines)
                    self.assertEqual("has taken all of its 3 steps" in "\n".join(node.lines),
                                     again or certificates is not None)  # fmt: skip
                self.assertEqual(hub.end(), (0, []), hub.lines)
        self.assertIn("rank 2 finds that the job is done already", "\n".join(hub.lines))

    def test_a_certificate_is_renewed_while_the_job_runs(self):
        hubs, certs = self.certificates()
        hub, address = self.start_hub("--certs", hubs, listen=RETURNING_HUB)
        nodes = self.start_nodes(address, "--steps", "6", certs=certs,
                                 **held_at(2, self.path("go")))  # fmt: skip
        self.wait_for_step(2)
        for rank, name in enumerate(certs):
            before = self.read(f"{name}/certificate.pem")
            key = self.read(f"{name}/key.pem")
            self.certify("clinic", name, "--rank", rank)
            self.assertNotEqual(self.read(f"{name}/certificate.pem"), before)
            self.assertEqual(self.read(f"{name}/key.pem"), key)
        hub.signal(signal.SIGKILL)
        hub.end()
        hub, _ = self.start_hub("--certs", hubs, listen=address)
        hub.wait_for("all 3 nodes are here")
        self.touch("go")
        for node in nodes:
            self.assertEqual(node.end(), (0, []), node.lines)
        self.assertEqual(hub.end(), (0, []), hub.lines)
        self.assert_same_as_threads(nodes[0], "--steps", "6")

    def test_a_notice_of_one_node_ends_all(self):
        hub, address = self.start_hub()
        job = ["--steps", "40", "--checkpoint-steps", "10"]
        # The others have none, and end all the same.
        nodes = [self.start_node(address, rank, *job, *(["--notice", "600s"] if rank == 1 else []),
                                 **(held_at(3, self.path("go")) if rank == 0 else {}))
                 for rank in range(self.NODES)]  # fmt: skip
        self.wait_for_step(3)
        nodes[1].signal(signal.SIGTERM)
        nodes[1].wait_for("a notice of 600s has come")
        self.touch("go")
        for node in nodes:
            self.assertEqual(node.end(), (0, []), node.lines)
        self.assertEqual(hub.end(), (0, []), hub.lines)
        last = json.loads(nodes[0].output)["steps"]
        self.assertIn(f"the notice of rank 1 ended the run after step {last} of 40; ",
                      "\n".join(nodes[0].lines))  # fmt: skip
        resumed, whole = (
            json.loads(run("train", *arguments, "--json").stdout)
            for arguments in (["--resume", self.path("run"), "--transport", "in-process"],
                              [*self.JOB, *job, "--out", self.path("whole")])
        )  # fmt: skip
        self.assertEqual((resumed["resumed_after"], resumed["steps"]), (last, 40))
        self.assertEqual(resumed["parameters_checksum"], whole["parameters_checksum"])


class Endings(GrpcCommandTest):
    def running(self, deadline=DEADLINE):
        """A job that runs without end: (hub, nodes)."""
        hub, address = self.start_hub()
        nodes = self.start_nodes(address, "--steps", "1000000", deadline=deadline)
        self.wait_for_step(1)
        return hub, nodes

    def test_an_interrupt_of_a_node_ends_all(self):
        hub, nodes = self.running()
        nodes[1].signal(signal.SIGINT)
        self.assert_failed(nodes[1].end(), 130, "the run was interrupted")
        for process in [nodes[0], nodes[2], hub]:
            self.assert_failed(process.end(), 1, "the run was interrupted")

    def test_a_full_disk_ends_all_and_is_not_called_an_interrupt(self):
        _, address = self.start_hub()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_FSIZE, limits)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))  # dozens of steps
        nodes = self.start_nodes(address, "--steps", 100_000)
        self.assert_failed(nodes[0].end(), 1, "metrics.jsonl")
        for node in nodes[1:]:
            self.assertEqual(node.end()[0], 1)

    def test_an_interrupt_of_the_hub_ends_all(self):
        hub, nodes = self.running()
        hub.signal(signal.SIGTERM)
        self.assert_failed(hub.end(), 143, "SIGTERM ended the hub")
        for node in nodes:
            self.assert_failed(node.end(), 1, "SIGTERM ended the hub")

    def test_a_killed_node_ends_all(self):
        hub, nodes = self.running(deadline="20")
        nodes[1].signal(signal.SIGKILL)
        for process in [nodes[0], nodes[2], hub]:
            self.assert_failed(process.end(), 1, "has heard nothing from rank 1 for ")

    def test_a_killed_hub_ends_all(self):
        hub, nodes = self.running(deadline="20")
        hub.signal(signal.SIGKILL)
        for node in nodes:
            self.assert_failed(node.end(), 1, "lost the hub at 127.0.0.1:")

    def test_those_that_were_started_differently_are_refused(self):
        hub, address = self.start_hub()
        nodes = [self.start_node(address, rank, "--seed", 2 if rank == 2 else 1)
                 for rank in range(self.NODES)]  # fmt: skip
        for process in [*nodes, hub]:
            self.assert_failed(process.end(), 1, "rank 2 was started with other arguments")

    def test_another_number_of_nodes_is_refused(self):
        _, address = self.start_hub("--servers", 0)
        node = self.start_node(address, 0)
        self.assert_failed(node.end(), 1, "rank 0 of 3 asks for a place", "ranks 0 to 1")


class Strangers(GrpcCommandTest):
    def test_nobody_gets_in_and_nothing_is_lost(self):
        hubs, certs = self.certificates()
        _, others = self.certificates("another")
        hub, address = self.start_hub("--certs", hubs)
        host, port = address.split(":")
        for garbage in [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + b"x" * 5000]:
            with socket.create_connection((host, int(port))) as stranger:
                stranger.sendall(garbage)
        # Who is turned away in the handshake tries until its deadline.
        refused = [self.start_node(address, 0, deadline="5"),
                   self.start_node(address, 0, deadline="5", certs=others[0])]  # fmt: skip
        for node in refused:
            self.assert_failed(node.end(), 1, "cannot reach the hub")
        node = self.start_node(address, 0, certs=certs[1])
        self.assert_failed(node.end(), 1, "certificate is that of rank 1, not of rank 0")
        nodes = self.start_nodes(address, "--steps", "12", certs=certs)
        for node in nodes:
            self.assertEqual(node.end(), (0, []), node.lines)
        self.assertEqual(hub.end(), (0, []), hub.lines)
        self.assert_same_as_threads(nodes[0], "--steps", "12")
        log = "\n".join(hub.lines)
        self.assertIn("turned away in its TLS handshake", log)
        self.assertIn("turned away: its certificate is that of rank 1", log)

    def test_a_replayed_stream_is_none(self):
        hubs, certs = self.certificates()
        hub, address = self.start_hub("--certs", hubs)
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        heard = bytearray()

        def overhear():
            client, _ = listener.accept()
            host, port = address.split(":")
            with client, socket.create_connection((host, int(port))) as far:
                back = threading.Thread(target=ConnectProxy.pipe, args=(far, client), daemon=True)
                back.start()
                try:
                    while data := client.recv(1 << 16):
                        heard.extend(data)
                        far.sendall(data)
                    far.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
                back.join()

        between = threading.Thread(target=overhear, daemon=True)
        between.start()
        first = self.start_node("127.0.0.1:%d" % listener.getsockname()[1], 0, "--steps", "12",
                                certs=certs[0], **held_at(2, self.path("go")))  # fmt: skip
        others = [self.start_node(address, rank, "--steps", "12", certs=certs[rank]) for rank in [1, 2]]
        self.wait_for_step(2)
        self.assertGreater(len(heard), 1000)
        host, port = address.split(":")
        for _ in range(3):
            with socket.create_connection((host, int(port))) as stranger:
                try:
                    stranger.sendall(bytes(heard))
                    while stranger.recv(1 << 16):
                        pass
                except OSError:
                    pass
        hub.wait_for("turned away in its TLS handshake")
        self.touch("go")
        for node in [first, *others]:
            self.assertEqual(node.end(), (0, []), node.lines)
        self.assertEqual(hub.end(), (0, []), hub.lines)
        self.assert_same_as_threads(first, "--steps", "12")
        self.assertNotIn("is here again", "\n".join(hub.lines))

    def test_plaintext_is_for_this_machine(self):
        wide = ("hub", "--workers", "1", "--listen", "0.0.0.0:0")
        self.assert_refused(run(*wide), 2, "certificates", "--insecure")
        far = "grpc:hub=192.0.2.1:7100,rank=0"
        self.assert_refused(run("train", "--transport", far), 2, "certificates", "insecure=on")
        hub = self.start(*wide, "--insecure")
        hub.wait_for("anyone who can reach the port can join")


class Certificates(GrpcCommandTest):
    def test_keys_are_their_users_alone(self):
        self.certificates()
        for key in ["clinic/authority-key.pem", "clinic-hub/key.pem", "clinic-2/key.pem"]:
            self.assertEqual(stat.S_IMODE(os.stat(self.path(key)).st_mode), 0o600, key)
        self.assertEqual(stat.S_IMODE(os.stat(self.path("clinic-2")).st_mode), 0o700)
        self.assertEqual(sorted(os.listdir(self.path("clinic-2"))),
                         ["authority.pem", "certificate.pem", "key.pem"])  # fmt: skip

    def test_who_is_revoked_comes_in_with_a_new_certificate_alone(self):
        hubs, certs = self.certificates()
        listed = run("certs", "revoke", self.path("clinic"), "--rank", 1)
        self.assertEqual(listed.returncode, 0, listed)
        taken = run("certs", "join", hubs, "--signed", "-", stdin=listed.stdout)
        self.assertEqual(taken.returncode, 0, taken)
        hub, address = self.start_hub("--certs", hubs)
        self.assert_failed(self.start_node(address, 1, certs=certs[1]).end(), 1, "is revoked")
        time.sleep(1.1)  # certificates count their seconds
        self.certify("clinic", certs[1], "--rank", 1)
        nodes = self.start_nodes(address, "--steps", "3", certs=certs)
        for node in nodes:
            self.assertEqual(node.end(), (0, []), node.lines)
        self.assertEqual(hub.end(), (0, []), hub.lines)
        nobody = run("certs", "revoke", self.path("clinic"))
        self.assert_refused(nobody, 2, "--rank R, or --name NAME")
        spoilt = listed.stdout.replace(b"clinic/1", b"clinic/2")
        result = run("certs", "join", hubs, "--signed", "-", stdin=spoilt)
        self.assert_refused(result, 1, "not a list of revoked certificates")

    def test_a_token_says_whose_request_it_is(self):
        """And nobody at the authority: anyone may run `certs sign` without an option."""
        made = run("certs", "init", "clinic", "--to", self.path("clinic"))
        self.assertEqual(made.returncode, 0, made)

        def join(directory, *whose):
            token = run("certs", "token", self.path("clinic"), *whose)
            self.assertEqual(token.returncode, 0, token)
            asked = run("certs", "join", directory, "--token", "-", stdin=token.stdout)
            self.assertEqual(asked.returncode, 0, asked)
            self.take_answer(directory, asked)
            return token.stdout

        for name, *whose in [["hub", "--hub"], ["0", "--rank", 0], ["2", "--rank", 2]]:
            join(self.path(f"clinic-{name}"), *whose)
        node = self.path("clinic-1")
        token = join(node, "--rank", 1)
        # It stays, and signs the next request.
        before = self.read(f"{node}/certificate.pem")
        self.take_answer(node, run("certs", "join", node))
        self.assertNotEqual(self.read(f"{node}/certificate.pem"), before)
        self.assertEqual(os.stat(f"{node}/token").st_mode & 0o077, 0)

        hub, address = self.start_hub("--certs", self.path("clinic-hub"))
        nodes = self.start_nodes(address, "--steps", "3", certs=[self.path(f"clinic-{i}") for i in range(3)])
        for each in [*nodes, hub]:
            self.assertEqual(each.end(), (0, []), each.lines)

        unsigned = run("certs", "join", self.path("another"))
        self.assert_refused(run("certs", "sign", self.path("clinic"), stdin=unsigned.stdout), 2, "tersewire certs token")
        self.assert_refused(run("certs", "join", self.path("another"), "--token", "-", stdin=token[:99]), 1,
                            "standard input: this is not a token")
        self.assert_refused(run("certs", "sign", self.path("clinic"), stdin=bytes(2 << 20)), 1, "longer than 1 MiB")
        changed = run("certs", "join", node).stdout.replace(b"token clinic/1", b"token clinic/0")
        self.assert_refused(run("certs", "sign", self.path("clinic"), stdin=changed), 1,
                            "none of this authority's tokens signed the request")
        # An answer from elsewhere is not taken, even at first.
        other = run("certs", "init", "clinic", "--to", self.path("other"))
        self.assertEqual(other.returncode, 0, other)
        asked = run("certs", "join", self.path("another"), "--token", "-", stdin=token)
        answer = run("certs", "sign", self.path("other"), "--rank", 1, stdin=asked.stdout)
        self.assert_refused(run("certs", "join", self.path("another"), "--signed", "-", stdin=answer.stdout), 1,
                            "another authority than the one that made this node's token")
        self.assertEqual(run("certs", "revoke", self.path("clinic"), "--rank", 1).returncode, 0)
        self.assert_refused(run("certs", "sign", self.path("clinic"), stdin=asked.stdout), 1,
                            "made before its certificates were revoked")

    def take_answer(self, directory, asked):
        answer = run("certs", "sign", self.path("clinic"), stdin=asked.stdout)
        self.assertEqual(answer.returncode, 0, answer)
        taken = run("certs", "join", directory, "--signed", "-", stdin=answer.stdout)
        self.assertEqual(taken.returncode, 0, taken)

    def test_an_older_list_does_not_replace_a_newer_one(self):
        hubs, _ = self.certificates()
        lists = [run("certs", "revoke", self.path("clinic"), "--rank", rank).stdout for rank in (1, 2)]
        for revoked in (lists[1], lists[1]):
            self.assertEqual(run("certs", "join", hubs, "--signed", "-", stdin=revoked).returncode, 0)
        result = run("certs", "join", hubs, "--signed", "-", stdin=lists[0])
        self.assert_refused(result, 1, f"lacks some revocations of {hubs}/revoked")
        self.assertEqual(self.read(f"{hubs}/revoked"), lists[1])

    def test_a_damaged_key_is_named(self):
        self.certificates()
        asked = run("certs", "join", self.path("clinic-1")).stdout
        answer = run("certs", "sign", self.path("clinic"), "--rank", 1, stdin=asked).stdout
        for key in ["clinic-1/key.pem", "clinic/authority-key.pem"]:
            with open(self.path(key), "wb") as file:
                file.write(b"-----BEGIN PRIVATE KEY-----\n")
        authority, node = self.path("clinic"), self.path("clinic-1")
        for key, result in [
            ("clinic-1/key.pem", run("certs", "join", node)),
            ("clinic-1/key.pem", run("certs", "join", node, "--signed", "-", stdin=answer)),
            ("clinic/authority-key.pem", run("certs", "sign", authority, "--rank", 1, stdin=asked)),
            ("clinic/authority-key.pem", run("certs", "revoke", authority, "--rank", 1)),
        ]:
            self.assert_refused(result, 1, f"{self.path(key)}: there is no private key")

    def test_refused(self):
        self.certificates()
        self.certificates("another")
        again = run("certs", "init", "clinic", "--to", self.path("clinic"))
        self.assert_refused(again, 1, "holds an authority already")
        self.assert_refused(run("certs", "init", "A B", "--to", self.path("x")), 2, "not a valid job name")
        short = run("certs", "init", "short", "--to", self.path("short"), "--hours", 5)
        self.assertIn(b", for 5 h;", short.stdout)
        asked = run("certs", "join", self.path("clinic-1")).stdout
        for result in [run("certs", "revoke", self.path("clinic"), "--name", "HUB"),
                       run("certs", "sign", self.path("clinic"), "--name", "HUB", stdin=asked)]:  # fmt: skip
            self.assert_refused(result, 2, "'HUB'")
        with open(self.path("clinic/revoked"), "wb") as file:
            file.write(b"rubbish")
        damaged = run("certs", "revoke", self.path("clinic"), "--rank", 1)
        self.assert_refused(damaged, 1, "clinic/revoked: it is not a list")
        nobody = run("certs", "sign", self.path("clinic"), stdin=asked)
        self.assert_refused(nobody, 2, "--rank R, --name NAME, or --hub")
        # Nobody is asked for a passphrase.
        head, rest = asked.split(b"\n", 1)
        locked = head + b"\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC," + b"0" * 32 + b"\n\n" + rest
        for rubbish in [b"", b"rubbish", asked[:-100], locked]:
            result = run("certs", "sign", self.path("clinic"), "--rank", 1, stdin=rubbish)
            self.assert_refused(result, 1, "is not a certificate request")
        node = run("certs", "sign", self.path("clinic-1"), "--rank", 1, stdin=asked)
        self.assert_refused(node, 1, "authority-key.pem cannot be read")
        answer = run("certs", "sign", self.path("clinic"), "--rank", 1, stdin=asked).stdout

        def take(directory, text):
            return run("certs", "join", self.path(directory), "--signed", "-", stdin=text)

        self.assert_refused(take("clinic-2", answer), 1, "not for this node's key")
        self.assert_refused(take("clinic-1", asked), 1, "not what 'tersewire certs sign' prints")
        theirs = run("certs", "sign", self.path("another"), "--rank", 1, stdin=asked).stdout
        self.assert_refused(take("clinic-1", theirs), 1, "is of another authority")
        mixed = answer[: answer.rindex(b"-----BEGIN")] + theirs[theirs.rindex(b"-----BEGIN") :]
        self.assert_refused(take("clinic-1", mixed), 1, "not signed by the authority beside it")
        self.assert_refused(run("hub", "--workers", 1, "--certs", self.path("clinic-1")), 2,
                            "a hub needs its own")  # fmt: skip


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__.strip())
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
