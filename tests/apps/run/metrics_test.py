#!/usr/bin/env python3
"""What `tersewire train --metrics` serves, to clients that behave and others.

usage: metrics_test.py PATH_TO_TERSEWIRE PATH_TO_TELEMETRY_DRIVER
"""

import json
import math
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

import program
from program import ProgramTest, run

DRIVER = None

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf'({NAME})(?:\{{([a-z_]+)="([^"\\\n]*)"\}})? (\S+)')
NUMBER = re.compile(r"NaN|[+-]Inf|-?\d+(\.\d+)?(e[+-]?\d+)?")


def parse(text):
    """{name: (type, {label's value or None: number})}, by the rules of the format and of names."""
    assert text.endswith("\n") or not text, "the last line has no end"
    metrics = {}
    lines = iter(text.splitlines())
    name = kind = None
    for line in lines:
        if line.startswith("# HELP "):
            name, told = line[7:].split(" ", 1)
            assert re.fullmatch(NAME, name) and name not in metrics and told, line
            kind = re.fullmatch(rf"# TYPE {name} (counter|gauge)", next(lines)).group(1)
            assert name.endswith("_total") == (kind == "counter"), line
            metrics[name] = (kind, {})
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample and sample.group(1) == name, line
        assert NUMBER.fullmatch(sample.group(4)), line
        assert sample.group(3) not in metrics[name][1], line
        metrics[name][1][sample.group(3)] = float(sample.group(4))
    assert all(samples for _, samples in metrics.values())
    return metrics


def exchange(port, request):
    """What the server says to these bytes until it hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(request)
        answer = b""
        try:
            while part := client.recv(65536):
                answer += part
        except ConnectionResetError:
            pass
        return answer


def fetch(port, path="/metrics", method="GET"):
    """(status, headers, body)"""
    request = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    head, _, body = exchange(port, request.encode()).partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return int(first.split()[1]), headers, body.decode()


class Server:
    """A program that says on stderr where its metrics are."""

    def __init__(self, *command):
        self.process = subprocess.Popen(
            [*map(str, command)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        told = self.process.stderr.readline().decode()
        found = re.fullmatch(r"metrics are at http://127\.0\.0\.1:(\d+)/metrics\n", told)
        assert found, told
        self.port = int(found.group(1))

    def end(self):
        """(exit code, stdout)"""
        out, _ = self.process.communicate(timeout=120)
        return self.process.returncode, out

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class Served(unittest.TestCase):
    """By a driver that has told of two steps."""

    def setUp(self):
        self.server = Server(DRIVER, "metrics", "0")
        self.addCleanup(self.server.__exit__)
        # It serves before it has told everything.
        while "tersewire_step 2\n" not in self.body():
            pass

    def body(self):
        status, headers, body = fetch(self.server.port)
        self.assertEqual(status, 200)
        self.assertEqual(headers["content-type"], "text/plain; version=0.0.4; charset=utf-8")
        self.assertEqual(int(headers["content-length"]), len(body))
        return body

    def test_values(self):
        metrics = parse(self.body())
        loss = metrics.pop("tersewire_loss")[1][None]
        self.assertTrue(math.isnan(loss))
        self.assertEqual(
            {name: samples for name, (_, samples) in metrics.items()},
            {
                "tersewire_step": {None: 2},
                "tersewire_batch_accuracy_ratio": {None: 0.25},
                "tersewire_step_seconds": {None: 0.75},
                "tersewire_training_seconds_total": {None: 1.5},
                "tersewire_wait_seconds_total": {None: 0.125},
                "tersewire_codec_seconds_total": {None: 0.75},
                "tersewire_traffic_bytes_total": {"push": 2000, "pull": 3000},
                "tersewire_values_total": {"push": 8000, "pull": 4000},
                "tersewire_bits_per_value": {"push": 2, "pull": 6},
                "tersewire_compression_ratio": {None: 9.6},
                "tersewire_not_finite_tensors_total": {None: 1},
                "tersewire_unused_pushes_total": {None: 0},
                "tersewire_test_accuracy_ratio": {None: 0.625},
                "tersewire_residual_norm": {"conv": 12**0.5, "bias": 0},
                "tersewire_relative_error_ratio": {"conv": 0.3125, "bias": 0},
                "tersewire_observed_bits_per_value": {"conv": 2, "bias": 32},
            },
        )

    def test_what_else_is_asked(self):
        self.assertEqual(fetch(self.server.port, "/")[0], 404)
        self.assertEqual(fetch(self.server.port, "/../etc/passwd")[0], 404)
        self.assertEqual(fetch(self.server.port, method="POST")[0], 405)
        status, headers, body = fetch(self.server.port, method="HEAD")
        self.assertEqual((status, body), (200, ""))
        self.assertEqual(int(headers["content-length"]), len(self.body()))

    def test_garbage_and_clients_that_never_ask(self):
        silent = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(4)]
        silent[0].sendall(b"GET /met")
        for garbage in (
            b"\x00\xff" * 50000,
            b"GET /metrics\r\n\r\n",
            b"GET " + b"/" * 100000 + b" HTTP/1.1\r\n\r\n",
            b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 50000 + b"\r\n",
            b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\nab",
        ):
            try:
                answer = exchange(self.server.port, garbage)
            except BrokenPipeError:
                answer = b""
            self.assertNotIn(b" 200 ", answer[:20])
        self.assertEqual(parse(self.body())["tersewire_step"][1], {None: 2})
        # It ends with its run all the same.
        self.assertEqual(self.server.end()[0], 0)
        for client in silent:
            client.close()

    def test_two_clients_at_once(self):
        bodies = []
        threads = [threading.Thread(target=lambda: bodies.append(self.body())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(bodies, [self.body()] * 8)

    def test_on_this_machine_alone(self):
        with open("/proc/net/tcp", encoding="ascii") as file:
            listening = [line.split()[1] for line in file if line.split()[3] == "0A"]
        port = f":{self.server.port:04X}"
        self.assertEqual([at for at in listening if at.endswith(port)], ["0100007F" + port])


class Runs(ProgramTest):
    JOB = ["train", "--model", "small-mlp", "--workers", "2", "--batch", "4", "--json"]

    def setUp(self):
        super().setUp()
        self.out = self.path("run")

    def test_while_a_run_lasts(self):
        with Server(program.PATH, *self.JOB, "--steps", 10**9, "--out", self.out, "--metrics",
                    "127.0.0.1:0") as server:  # fmt: skip
            # What is not read would stop the run.
            reader = threading.Thread(target=server.process.stderr.read)
            reader.start()
            seen = []
            while not seen or seen[-1].get("tersewire_step", (0, {None: 0}))[1][None] < 5:
                seen.append(parse(fetch(server.port)[2]))
            server.process.send_signal(signal.SIGINT)
            server.process.wait(timeout=120)
            reader.join()
            summary = json.loads(server.process.stdout.read())
            self.assertEqual(server.process.returncode, 130)
            with self.assertRaises(ConnectionRefusedError):
                fetch(server.port)
        self.assertTrue(summary["interrupted"])
        with open(os.path.join(self.out, "metrics.jsonl"), encoding="utf-8") as file:
            lines = {line["step"]: line for line in map(json.loads, file)}
        compared = 0
        for metrics in filter(None, seen):
            values = {name: samples for name, (_, samples) in metrics.items()}
            line = lines[int(values["tersewire_step"][None])]
            traffic = values["tersewire_traffic_bytes_total"]
            self.assertEqual(traffic, {"push": line["push_bytes"], "pull": line["pull_bytes"]})
            bits = values["tersewire_bits_per_value"]
            self.assertEqual(
                (bits["push"], bits["pull"]),
                (line["push_bits_per_value"], line["pull_bits_per_value"]),
            )
            for name, key in (
                ("loss", "loss"),
                ("batch_accuracy_ratio", "accuracy"),
                ("training_seconds_total", "seconds"),
                ("codec_seconds_total", "codec_seconds"),
                ("wait_seconds_total", "wait_seconds"),
                ("not_finite_tensors_total", "not_finite_tensors"),
            ):
                self.assertEqual(values[f"tersewire_{name}"][None], line[key], name)
            before = lines.get(line["step"] - 1, {"seconds": 0})["seconds"]
            self.assertEqual(values["tersewire_step_seconds"][None], line["seconds"] - before)
            compared += 1
        self.assertGreater(compared, 0)

    def test_a_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as holder:
            port = holder.getsockname()[1]
            refused = run(*self.JOB, "--steps", 2, "--out", self.out, "--metrics", port)
        self.assertEqual((refused.returncode, refused.stdout), (1, b""))
        self.assertEqual(refused.stderr.count(b"\n"), 1)
        self.assertIn(f"127.0.0.1:{port}".encode(), refused.stderr)
        self.assertIn(b"--metrics", refused.stderr)
        self.assertFalse(os.path.exists(self.out))

    def test_what_is_no_port(self):
        for text in ("", "x", ":1", "1:2:3", "65536", "-1", "9100 ", "localhost:1", "127.0.0.1:",
                     "[::1:2", "127.0.0.1:80,0.0.0.0:81"):  # fmt: skip
            refused = run(*self.JOB, "--steps", 2, "--out", self.out, f"--metrics={text}")
            self.assertEqual(refused.returncode, 2, text)
            self.assertEqual(refused.stderr.count(b"\n"), 1)

    def test_a_run_that_goes_on(self):
        first = run(*self.JOB, "--steps", 5, "--checkpoint-steps", 2, "--out", self.out,
                    "--metrics", 0)  # fmt: skip
        self.assertEqual(first.returncode, 0, first.stderr)
        inspected = run("inspect", "--json", os.path.join(self.out, "checkpoints/step-4"))
        self.assertNotIn("metrics", json.loads(inspected.stdout)["settings"])
        os.remove(os.path.join(self.out, "summary.json"))  # as if it had been cut off in step 5
        resumed = run("train", "--resume", self.out, "--metrics", 0)
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertIn(b"metrics are at", resumed.stderr)


if __name__ == "__main__":
    DRIVER = sys.argv.pop(2)
    program.main(__doc__)
