#!/usr/bin/env python3
"""Tests of `tersewire bench exchange` from outside, and of its bytes against those that network
interfaces counted.

    bench_exchange_test.py PATH_TO_TERSEWIRE

The latter needs root, namespaces and mpirun, and is skipped, by name, without them.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/support"))

import mpi_launcher
import program
from arrays import npy

FIELDS = {
    "model", "exchange", "local_steps", "staleness", "slowest", "raw_from_all",
    "part_values", "servers", "backup_workers", "bucket_bytes", "codec", "pull_codec", "transport",
    "bits_per_second", "workers", "warm_up_steps", "steps", "step_seconds_median", "push_bytes", "pull_bytes",
    "codec_seconds", "compute_seconds",
    "busiest_bytes", "wire_seconds", "exchange_seconds",
    "hidden", "speedup", "ceiling", "total_sent_bytes", "peak_memory_bytes",
}
LENET_BYTES = 4 * 431080
# Ethernet, IP and TCP headers of a packet (lab/README.md, "Counters").
HEADER_BYTES = 66


def words(*arguments):
    return [program.PATH, "bench", "exchange", *map(str, arguments)]


def run(command, **options):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=200, check=False, **options)


def mpi_obstacle():
    """Why no job of several processes can run here; None if it can."""
    if not mpi_launcher.launcher():
        return "no mpirun here"
    alone = run(words("--transport", "mpi")).stderr
    return "this build has no MPI" if "unknown transport 'mpi'" in alone else None


def netlab_obstacle():
    """Why none can run under netlab here; None if it can."""
    sys.path.insert(0, str(ROOT / "lab"))
    import netlab_test
    return netlab_test.WITHOUT_MPI


class BenchExchangeTest(unittest.TestCase):
    def rows(self, *arguments):
        done = run(words("--json", *arguments))
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def assert_refused(self, sentence, *arguments, status=2):
        done = run(words(*arguments))
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(sentence, done.stderr)

    def test_json_lists_designs_after_their_baseline(self):
        rows = self.rows("--model", "lenet", "--workers", 2, "--steps", 3, "--compute-ms", 5,
                         "--codec", "3lc:s=1.5", "--codec", "int8", "--policy", "*:fp16")
        self.assertEqual([row["codec"] for row in rows], ["fp32", "3lc:s=1.5", "int8"])
        for row in rows:
            self.assertEqual(set(row), FIELDS)
            self.assertEqual((row["model"], row["exchange"], row["transport"], row["workers"],
                              row["warm_up_steps"], row["steps"], row["compute_seconds"]),
                             ("lenet", "parameter-server", "in-process", 2, 2, 3, 0.005))
            self.assertIsNone(row["bits_per_second"])
            # The policy has the last word.
            self.assertAlmostEqual(row["push_bytes"] / (LENET_BYTES / 2), 1, delta=0.001)
            # A checksum of the first parameters may come late, in the steps that count.
            self.assertLess(abs(row["push_bytes"] - row["pull_bytes"]), 40)
        self.assertEqual(rows[0]["speedup"], 1)

    def test_a_run_without_a_baseline_has_nothing_to_compare_with(self):
        (row,) = self.rows("--model", "hdc", "--scale", 0.1, "--workers", 2, "--steps", 1,
                           "--warm-up", 0, "--baseline", "none", "--exchange", "all-gather",
                           "--rate", "2.5gbit")
        self.assertEqual((row["codec"], row["speedup"], row["ceiling"]), ("3lc", None, None))
        self.assertEqual(row["bits_per_second"], 2.5e9)

    def test_links_may_be_late(self):
        (row,) = self.rows("--model", "hdc", "--scale", 0.01, "--workers", 2, "--steps", 1,
                           "--warm-up", 0, "--baseline", "none", "--rate", "1gbit",
                           "--transport", "in-process:delay=10ms,jitter=1ms,loss=0.1%,seed=1")
        self.assertEqual((row["transport"], row["bits_per_second"]), ("in-process", 1e9))
        # A push and a pull over two links each, of 9 ms at the least.
        self.assertGreaterEqual(row["exchange_seconds"] or row["step_seconds_median"], 0.036)

    def test_the_table_says_the_same(self):
        done = run(words("--model", "lenet", "--workers", 1, "--steps", 1))
        self.assertEqual(done.returncode, 0, done.stderr)
        title, heads, *rows = done.stdout.splitlines()
        self.assertIn("lenet, 431080 values; parameter-server, 1 worker, transport in-process; 1 step after", title)
        self.assertEqual(heads.split()[:3], ["codec", "step", "ms"])
        self.assertEqual([row.split()[0] for row in rows], ["fp32", "3lc"])

    def test_gradients_are_replayed(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "gradient.npy")
            file.write_bytes(npy([1.0, 1.0], (2,)))
            (row,) = self.rows("--model", "lenet", "--workers", 1, "--steps", 1, "--baseline",
                               "none", "--gradients", file, "--codec", "3lc:mode=paper")
            # Five values to a byte, none of them small enough to leave out.
            self.assertAlmostEqual(row["push_bytes"] / (LENET_BYTES / 20), 1, delta=0.02)
            file.write_bytes(npy([float("nan"), 1.0], (2,)))
            self.assert_refused("holds a NaN", "--gradients", file, status=1)
        self.assert_refused("cannot be read", "--gradients", file, status=1)

    def test_one_codec_a_direction(self):
        """INCEPTIONN's WA+C: gradients compressed on their way to the aggregator alone."""
        base, design = self.rows("--model", "lenet", "--workers", 2, "--servers", 1, "--steps", 2,
                                 "--policy", "", "--codec", "int8", "--pull-codec", "fp32",
                                 "--rate", "1gbit")
        self.assertEqual((base["codec"], base["pull_codec"]), ("fp32", "fp32"))
        self.assertEqual((design["codec"], design["pull_codec"]), ("int8", "fp32"))
        self.assertAlmostEqual(design["push_bytes"] / base["push_bytes"], 1 / 4, delta=0.01)
        self.assertEqual(design["pull_bytes"], base["pull_bytes"])
        # The aggregator sends as much as without the codec, and receives a quarter.
        for row in (base, design):
            self.assertAlmostEqual(row["busiest_bytes"] / (2 * row["pull_bytes"]), 1, delta=0.01)
            self.assertAlmostEqual(row["wire_seconds"], row["busiest_bytes"] * 8e-9)
        self.assert_refused("unknown codec 'tnt'", "--pull-codec", "tnt")
        # Pushed like the baseline, it is a design all the same.
        rows = self.rows("--model", "lenet", "--workers", 2, "--servers", 1, "--steps", 1,
                         "--warm-up", 0, "--codec", "fp32", "--pull-codec", "int8")  # fmt: skip
        self.assertEqual([(row["codec"], row["pull_codec"]) for row in rows],
                         [("fp32", "fp32"), ("fp32", "int8")])  # fmt: skip

    def test_wrong_usage(self):
        for sentence, arguments in [
                ("unknown model 'vgg19'; use resnet110", ["--model", "vgg19"]),
                ("a scale of 2 is not above 0", ["--scale", 2]),
                ("unknown codec 'zip'", ["--codec", "3lc", "--codec", "zip"]),
                ("unknown codec 'zip'", ["--baseline", "zip"]),
                ("unknown exchange 'star'", ["--exchange", "star"]),
                ("does not fit exchange ring", ["--exchange", "ring"]),
                ("unknown transport 'udp'; use in-process, mpi or grpc", ["--transport", "udp"]),
                ("cannot share 8 ", ["--model", "lenet", "--servers", 9, "--part-values", "whole"]),
                ("or omit staleness", ["--staleness", 2, "--exchange", "all-gather"]),
                ("give --compute-ms", ["--slowest", 3]),
                ("cannot be backups", ["--workers", 2, "--backup-workers", 2]),
                ("policy rule 'x' has no codec", ["--policy", "x"]),
                ("'10' is not a rate; write 10mbit", ["--rate", "10"]),
                ("links of 1 bit/s cannot be modelled", ["--rate", "1bit"]),
                ("'-1mbit' is not a rate", ["--rate=-1mbit"]),
                ("delay must be a time, such as 20ms, 300us or 0.5s, not '40'",
                 ["--transport", "in-process:delay=40"]),
                ("loss must be a share of frames", ["--transport", "in-process:loss=some"]),
                ("a jitter of 61 s cannot be modelled", ["--transport", "in-process:jitter=61s"]),
                ("limit that with lab/netlab", ["--rate", "10mbit", "--transport", "mpi"]),
                ("--steps: Value 0 not in range", ["--steps", 0]),
                ("--compute-ms: Value -1 not in range", ["--compute-ms=-1"])]:
            with self.subTest(arguments):
                self.assert_refused(sentence, *arguments)


class MpiTest(unittest.TestCase):
    def setUp(self):
        obstacle = mpi_obstacle()
        if obstacle:
            self.skipTest(obstacle)

    def run_ranks(self, ranks, *arguments):
        with mpi_launcher.environment() as variables:
            return run(mpi_launcher.command(ranks, *words("--transport", "mpi", *arguments)),
                       env=variables)

    def test_rank_0_alone_prints(self):
        done = self.run_ranks(3, "--model", "lenet", "--workers", 2, "--steps", 2, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)
        self.assertEqual([row["transport"] for row in rows], ["mpi", "mpi"])
        self.assertAlmostEqual(rows[0]["pull_bytes"] / LENET_BYTES, 1, delta=0.001)

    def test_the_number_of_ranks_must_fit(self):
        done = self.run_ranks(2, "--model", "lenet", "--workers", 2)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr.count("tersewire: "), 1, done.stderr)
        self.assertIn("a job of 2 workers and 1 server with exchange parameter-server takes 3 processes, not 2; use "
                      "'mpirun -n 3'", done.stderr)


class CountersTest(unittest.TestCase):
    """What the bench says was sent is what the links carried."""

    WORKERS = 2
    STEPS = 8
    WARM_UP = 2
    # MPI's headers, acknowledgements and what ranks say to each other at the start and the end.
    TOLERANCE = 0.01

    def run_on_links(self, folder, codec):
        """(the only row, counters by node)"""
        file = pathlib.Path(folder, "counters.json")
        # MPI libraries keep memory that they never free.
        variables = {**os.environ, "ASAN_OPTIONS": mpi_launcher.VARIABLES["ASAN_OPTIONS"]}
        done = run([sys.executable, str(ROOT / "lab/netlab"), "run", "--name",
                    f"bench{os.getpid()}", "--nodes", str(self.WORKERS + 1), "--rate", "100mbit",
                    "--counters", str(file), "--",
                    *words("--transport", "mpi", "--model", "lenet", "--workers", self.WORKERS,
                           "--steps", self.STEPS, "--warm-up", self.WARM_UP, "--codec", codec,
                           "--baseline", "none", "--json")], env=variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        (row,) = json.loads(done.stdout)
        return row, json.loads(file.read_text())["links"]

    def assert_close(self, told, counted):
        print(f"{told:.0f} told, {counted:.0f} counted", file=sys.stderr)
        self.assertAlmostEqual(counted / told, 1, delta=self.TOLERANCE)

    def test_bytes_are_those_of_the_interfaces(self):
        obstacle = mpi_obstacle() or netlab_obstacle()
        if obstacle:
            self.skipTest(obstacle)

        # Where packets arrive: what a queue refused has been sent, and is sent again.
        def arrived(links):
            return sum(link["rx_wire_bytes"] - HEADER_BYTES * link["rx_wire_packets"]
                       for link in links)

        with tempfile.TemporaryDirectory() as folder:
            for codec in ("fp32", "int8"):
                with self.subTest(codec):
                    row, links = self.run_on_links(folder, codec)
                    worker_steps = self.WORKERS * (self.STEPS + self.WARM_UP)
                    workers, servers = links[:self.WORKERS], links[self.WORKERS:]
                    self.assert_close(worker_steps * row["push_bytes"], arrived(servers))
                    self.assert_close(worker_steps * row["pull_bytes"], arrived(workers))
                    self.assert_close(row["total_sent_bytes"], arrived(links))


if __name__ == "__main__":
    program.main(__doc__, verbosity=2)
