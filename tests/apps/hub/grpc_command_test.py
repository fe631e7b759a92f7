#!/usr/bin/python3
"""Jobs over the transport grpc as users start them, and what goes wrong.

    grpc_command_test.py PATH_TO_TERSEWIRE
"""

import json
import os
import pathlib
import resource
import signal
import socket
import stat
import sys
import threading
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

import program
from grpc_nodes import DEADLINE, RETURNING_HUB, ConnectProxy, GrpcTest, run
from program import held_at


def own_address():
    """One of this machine that is not loopback's; nothing where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            return None
        return probe.getsockname()[0]


class OneCommand(GrpcTest):
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


class Nodes(GrpcTest):
    def test_with_certificates_they_come_to_the_same_as_threads(self):
        hubs, certs = self.certificates()
        hub, address = self.start_hub("--certs", hubs)
        nodes = self.start_nodes(address, "--steps", "12", certs=certs)
        self.assert_ended_well(*nodes, hub)
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
        self.write("go", b"")
        self.assert_ended_well(*nodes, hub)
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
        self.assert_ended_well(*nodes, hub)
        self.assertEqual(set(proxy.tunnels), {("CONNECT", address)})
        self.assert_same_as_threads(nodes[0], "--steps", "4")

    def test_a_finished_job_started_again_ends(self):
        hubs, certs = self.certificates()
        for certificates in [None, certs]:
            for again in [False, True]:
                hub, address = self.start_hub(*(("--certs", hubs) if certificates else ()))
                nodes = self.start_nodes(address, "--steps", "3", "--resume-or-start", certs=certificates)
                for node in nodes:
                    self.assert_ended_well(node)
                    self.assertEqual("has taken all of its 3 steps" in "\n".join(node.lines),
                                     again or certificates is not None)  # fmt: skip
                self.assert_ended_well(hub)
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
        self.write("go", b"")
        self.assert_ended_well(*nodes, hub)
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
        self.write("go", b"")
        self.assert_ended_well(*nodes, hub)
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


class Endings(GrpcTest):
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


class Strangers(GrpcTest):
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
        for node, advice in zip(refused, ["give this node its own", "not of the authority in"], strict=True):
            self.assert_failed(node.end(), 1, "cannot reach the hub")
            self.assertIn(advice, node.lines[-1])
        time.sleep(1.1)  # the hub has one sentence a second for strangers
        node = self.start_node(address, 0, certs=certs[1])
        self.assert_failed(node.end(), 1, "certificate is that of rank 1, not of rank 0")
        nodes = self.start_nodes(address, "--steps", "12", certs=certs)
        self.assert_ended_well(*nodes, hub)
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
        first = self.start_node(f"127.0.0.1:{listener.getsockname()[1]}", 0, "--steps", "12",
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
        self.write("go", b"")
        for node in [first, *others]:
            self.assert_ended_well(node)
        self.assert_ended_well(hub)
        self.assert_same_as_threads(first, "--steps", "12")
        self.assertNotIn("is here again", "\n".join(hub.lines))

    def test_an_ipv6_address_without_brackets_is_shown_with_them_at_once(self):
        for command in (("train", "--transport", "grpc:hub=::1:7171,rank=0"), ("status", "::1:7171"),
                        ("hub", "--workers", "1", "--listen", "::1:7171"),
                        ("train", "--exchange", "all-gather", "--elastic", "--out", self.path("run"),
                         "--transport", "grpc:hub=::1:7171,name=a")):  # fmt: skip
            with self.subTest(command[0]):
                self.assert_refused(run(*command, timeout=30), 2, "write [::1]:7171")

    def test_a_hub_says_the_number_at_which_it_listens(self):
        hub = self.start("hub", "--workers", "1", "--listen", "localhost:0")
        hub.wait_for(r"listens at (127\.0\.0\.1|\[::1\]):\d+")

    @unittest.skipUnless(socket.has_dualstack_ipv6(), "no IPv6 here")
    def test_metrics_at_all_addresses_answer_ipv4_as_well(self):
        hub = self.start("hub", "--workers", "1", "--listen", "127.0.0.1:0", "--metrics", "[::]:0")
        port = int(hub.wait_for(r"metrics are at http://\[::\]:(\d+)/").group(1))
        for host in ("127.0.0.1", "::1"):
            with socket.create_connection((host, port), timeout=30) as client:
                client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                self.assertIn(b" 200 OK", client.recv(100))

    def test_plaintext_is_for_this_machine(self):
        wide = ("hub", "--workers", "1", "--listen", "0.0.0.0:0")
        self.assert_refused(run(*wide), 2, "certificates", "--insecure")
        far = "grpc:hub=192.0.2.1:7100,rank=0"
        self.assert_refused(run("train", "--transport", far), 2, "certificates", "insecure=on")
        hub = self.start(*wide, "--insecure")
        hub.wait_for("anyone who can reach the port can join")


class Certificates(GrpcTest):
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
        self.assert_ended_well(*nodes, hub)
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
        self.assert_ended_well(*nodes, hub)

        unsigned = run("certs", "join", self.path("another"))
        self.assert_refused(run("certs", "sign", self.path("clinic"), stdin=unsigned.stdout), 2,
                            "tersewire certs token")
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
        for whose, sentence in [(["--rank", 2], "signed with a token"), (["--rank", 1], "omit --rank"),
                                (["--rank", 1, "--hub"], "exclude each other")]:  # fmt: skip
            self.assert_refused(run("certs", "sign", self.path("clinic"), *whose, stdin=asked.stdout), 2, sentence)
        unsigned = asked.stdout[: asked.stdout.index(b"\ntoken ") + 1]
        answer = run("certs", "sign", self.path("other"), "--rank", 1, stdin=unsigned)
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
    program.main(__doc__)
