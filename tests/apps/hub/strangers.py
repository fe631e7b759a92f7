#!/usr/bin/env python3
"""Strangers at a hub's port, at full size: run by hand (evidence/grpc, "Strangers at the hub").

    strangers.py PATH_TO_TERSEWIRE [--connections 10000] [--garbage-seconds 600]

A job of four nodes under certificates trains on; beside it many connections stay half-open, then
garbage comes for long. Prints the hub's memory and descriptors, its lines about strangers, how far
the job came, and how long 'tersewire status', which is a newcomer's handshake, took. Exits with 1
where the job was disturbed.
"""

import argparse
import json
import os
import random
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time


def run(program, *arguments, stdin=b""):
    return subprocess.run([program, *map(str, arguments)], input=stdin, capture_output=True,
                          check=True).stdout  # fmt: skip


def certify(program, root, name, *whose):
    asked = run(program, "certs", "join", f"{root}/{name}")
    answer = run(program, "certs", "sign", f"{root}/job", *whose, stdin=asked)
    run(program, "certs", "join", f"{root}/{name}", "--signed", "-", stdin=answer)
    return f"{root}/{name}"


class Watch:
    """The largest that the hub was, and the longest that a newcomer took."""

    def __init__(self, program, process, address, certs):
        self.program, self.process, self.address, self.certs = program, process, address, certs
        self.memory = self.descriptors = 0
        self.longest = self.refused = self.looks = 0
        self.stop = False
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    def watch(self):
        while not self.stop:
            with open(f"/proc/{self.process.pid}/status", encoding="ascii") as lines:
                rss = next(line for line in lines if line.startswith("VmRSS"))
            self.memory = max(self.memory, int(rss.split()[1]))
            self.descriptors = max(self.descriptors, len(os.listdir(f"/proc/{self.process.pid}/fd")))
            begin = time.monotonic()
            result = subprocess.run([self.program, "status", self.address, "--certs", self.certs, "--json"],
                                    capture_output=True, check=False)  # fmt: skip
            self.looks += 1
            self.refused += result.returncode != 0
            self.longest = max(self.longest, time.monotonic() - begin)
            time.sleep(0.5)

    def end(self, what, **more):
        self.stop = True
        self.thread.join()
        print(json.dumps({"what": what, "hub_mib": round(self.memory / 1024, 1), "descriptors": self.descriptors,
                          "newcomers": self.looks, "refused": self.refused,
                          "longest_newcomer_seconds": round(self.longest, 2), **more}), flush=True)  # fmt: skip
        return self.refused == 0


def connect(address, come_from):
    host, port = address.split(":")
    client = socket.socket()
    client.bind((come_from, 0))
    client.settimeout(5)
    client.connect((host, int(port)))
    return client


def half_open(address, connections, come_from, seconds):
    """So many at a time, each made again when it is closed."""
    begin = time.monotonic()
    made = 0
    clients = []
    while time.monotonic() - begin < seconds:
        while len(clients) < connections and time.monotonic() - begin < seconds:
            try:
                clients.append(connect(address, come_from))
                made += 1
            except OSError:
                time.sleep(0.01)
        time.sleep(1)
    for client in clients:
        client.close()
    return {"from": come_from, "made": made, "seconds": round(time.monotonic() - begin)}


def garbage(address, seconds, come_from):
    begin = time.monotonic()
    made = sent = 0
    while time.monotonic() - begin < seconds:
        beginning = random.choice([b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01",
                                   b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"])
        text = beginning + random.randbytes(random.randrange(100000))
        made += 1
        try:
            with connect(address, come_from) as client:
                client.sendall(text)
                sent += len(text)
        except OSError:
            pass
    return {"from": come_from, "made": made, "mb_sent": round(sent / 1e6), "seconds": round(seconds)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--connections", type=int, default=10000)
    parser.add_argument("--half-open-seconds", type=float, default=60)
    parser.add_argument("--garbage-seconds", type=float, default=600)
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    program = os.path.abspath(arguments.program)
    with tempfile.TemporaryDirectory() as root:
        run(program, "certs", "init", "job", "--to", f"{root}/job")
        certs = [certify(program, root, f"node{rank}", "--rank", rank) for rank in range(4)]
        with open(f"{root}/hub.log", "wb") as log:
            hub = subprocess.Popen([program, "hub", "--workers", "4", "--servers", "0", "--listen", "127.0.0.1:0",
                                    "--certs", certify(program, root, "hub", "--hub")], stderr=log)  # fmt: skip

        def log():
            with open(f"{root}/hub.log", encoding="utf-8") as lines:
                return lines.readlines()

        while not (said := [line for line in log() if "listens at " in line]):
            time.sleep(0.1)
        address = said[0].split("listens at ")[1].split()[0]
        nodes = [subprocess.Popen([program, "train", "--model", "mlp", "--workers", "4", "--exchange", "all-gather",
                                   "--codec", "3lc", "--steps", "100000000", "--threads", "1", "--out", f"{root}/run",
                                   "--transport", f"grpc:hub={address},certs={one}"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for one in certs]  # fmt: skip

        def steps():
            try:
                with open(f"{root}/run/metrics.jsonl", "rb") as lines:
                    return sum(1 for _ in lines)
            except OSError:
                return 0

        while steps() < 10:
            time.sleep(0.1)
        fine = True
        quiet = Watch(program, hub, address, certs[3])
        time.sleep(10)
        fine &= quiet.end("nobody")
        for what, disturb in [
            ("half-open", lambda: half_open(address, arguments.connections, "127.0.0.2", arguments.half_open_seconds)),
            ("half-open, from the members' address",
             lambda: half_open(address, arguments.connections, "127.0.0.1", arguments.half_open_seconds)),
            ("garbage", lambda: garbage(address, arguments.garbage_seconds, "127.0.0.2")),
        ]:  # fmt: skip
            before, lines = steps(), len(log())
            watch = Watch(program, hub, address, certs[3])
            told = disturb()
            said = log()[lines:]
            lost = [line for line in said if "is lost" in line]
            fine &= watch.end(what, **told, steps=steps() - before, hub_lines=len(said),
                              members_lost=len(lost))  # fmt: skip
            fine &= not lost and steps() > before
            fine &= all(node.poll() is None for node in [*nodes, hub])
        nodes[0].terminate()
        for process in [*nodes, hub]:
            process.wait()
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
