"""Jobs over the transport grpc as users start them: a hub, nodes, certificates."""

import contextlib
import functools
import json
import os
import re
import socket
import subprocess
import threading
import time

import program

# Nothing waits so long unless it hangs, however busy the machine.
BOUND_SECONDS = 600
# Of a hub that is killed and comes back: connections leave from 127.0.0.1, and none takes its port.
RETURNING_HUB = "127.0.0.2:0"
# Above what a busy machine takes to start a process; a dead node is found after it.
DEADLINE = "60"
run = functools.partial(program.run, timeout=BOUND_SECONDS)


class Process:
    """One that is read as it goes, so that it never waits for its reader."""

    def __init__(self, *arguments, **variables):
        self.process = subprocess.Popen(
            [program.PATH, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env={**program.ENVIRONMENT, **variables})  # fmt: skip
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
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
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


class GrpcTest(program.ProgramTest):
    JOB = "--model mlp --workers 2 --batch 8 --codec 3lc:s=1.5".split()
    NODES = 3

    def setUp(self):
        super().setUp()
        self.processes = []
        self.addCleanup(self.kill_all)

    def kill_all(self):
        for started in self.processes:
            if started.process.poll() is None:
                started.process.kill()
            started.end()

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

    def assert_ended_well(self, *processes):
        for process in processes:
            self.assertEqual(process.end(), (0, []), process.lines)

    def assert_failed(self, result, code, *words):
        """One sentence with all of these."""
        ended, sentences = result
        self.assertEqual(ended, code, sentences)
        self.assertEqual(len(sentences), 1, sentences)
        for word in words:
            self.assertIn(word, sentences[0])

    def assert_same_as_threads(self, node, *arguments):
        """What rank 0 came to is, to the bit, what threads of one process come to."""
        threads = run("train", *self.JOB, *arguments, "--json", "--out", self.path("threads"))
        self.assertEqual(threads.returncode, 0, threads)
        expected = json.loads(threads.stdout)
        summary = json.loads(node.output)
        for key in ["parameters_checksum", "final_loss", "test_accuracy", "push_bytes"]:
            self.assertEqual(summary[key], expected[key], key)
