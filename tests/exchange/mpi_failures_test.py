#!/usr/bin/env python3
"""What becomes of a job over mpi in which one rank fails.

usage: mpi_failures_test.py PATH_OF_MPI_FAILING_JOB

Every rank has to end in bounded time, with a sentence where it still can, and leave no process.
"""

import concurrent.futures
import os
import re
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import mpi_launcher

JOB = None

ABORTED = 10
DEADLINE_EXCEEDED = 4
DATA_LOSS = 15
RESOURCE_EXHAUSTED = 8
# Starting and ending take a second or two; the job's deadline is two seconds, its progress limit
# where that is what ends it four, and leaving after a failure takes at most two more. What hangs
# takes longer than this, and a busy machine does not.
BOUND_SECONDS = 120
# Jobs spend their time waiting for deadlines and launchers, so that two of them fit.
JOBS_AT_ONCE = 2

# Of each exchange: workers, and nodes in all; those from the number of workers on are servers.
NODES = {
    "parameter-server": (2, 3),
    "aggregator-tree:fan-in=2": (3, 6),  # two aggregators below the root
    "all-gather": (3, 3),
    "ring": (3, 3),
    "hierarchical-ring:group=2": (4, 4),
    "hierarchical-ring:group=2,top=tree": (4, 5),
    "weight-average": (3, 3),
}


def runs(process):
    """False for one that has ended, even where its parent does not care."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def running(processes):
    """Those that are still there after a moment: ending takes one."""
    for _ in range(300):
        processes = [process for process in processes if runs(process)]
        if not processes:
            break
        time.sleep(0.1)
    return processes


class Failures(unittest.TestCase):
    def start(self, how, rank, exchange="parameter-server", well=False):
        """What each rank ended with: {rank: (code, sentence)}; where it ended well, (0, "")."""
        workers, nodes = NODES[exchange]
        command = mpi_launcher.command(nodes, JOB, how, rank, exchange, workers)
        with mpi_launcher.environment() as variables:
            with subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True) as launcher:
                try:
                    output, errors = launcher.communicate(timeout=BOUND_SECONDS)
                except subprocess.TimeoutExpired:
                    launcher.kill()
                    output, errors = launcher.communicate()
                    self.fail(f"{how} of rank {rank}, {exchange}, hangs: {output}{errors}")
        self.assertEqual(launcher.returncode == 0, well, output + errors)
        processes = [int(found) for found in re.findall(r"^\d pid (\d+)$", output, re.MULTILINE)]
        self.assertEqual(len(processes), nodes, output + errors)
        self.assertEqual(running(processes), [], output)
        found = re.findall(r"^(\d) code (\d+): (.*)$", output, re.MULTILINE)
        ended = {int(rank): (int(code), sentence) for rank, code, sentence in found}
        for rank in re.findall(r"^(\d) ended well$", output, re.MULTILINE):
            ended[int(rank)] = (0, "")
        return ended

    def start_all(self, how, cases, **options):
        """Each of `cases`, (exchange, rank), with a function that waits for its start()."""
        with concurrent.futures.ThreadPoolExecutor(JOBS_AT_ONCE) as pool:
            jobs = [pool.submit(self.start, how, rank, exchange, **options) for exchange, rank in cases]
            for (exchange, rank), job in zip(cases, jobs):
                yield exchange, rank, job.result

    def test_a_rank_that_is_killed(self):
        # The launcher ends the others, with or without their last words, whatever the exchange.
        cases = [("parameter-server", 0), ("parameter-server", 2)]
        for exchange, rank, outcome in self.start_all("die", cases):
            with self.subTest(exchange=exchange, rank=rank):
                self.assertNotIn(rank, outcome())

    def test_a_rank_that_is_stopped(self):
        cases = [
            ("parameter-server", 1),
            ("parameter-server", 2),
            ("aggregator-tree:fan-in=2", 2),
            ("aggregator-tree:fan-in=2", 4),
            ("all-gather", 0),
            ("ring", 1),
            ("hierarchical-ring:group=2", 0),
            ("hierarchical-ring:group=2,top=tree", 2),
            ("hierarchical-ring:group=2,top=tree", 4),
            ("weight-average", 2),
        ]
        for exchange, rank, outcome in self.start_all("stall", cases):
            with self.subTest(exchange=exchange, rank=rank):
                ended = outcome()
                self.assertEqual(set(ended), set(range(NODES[exchange][1])) - {rank})
                self.assertIn(DEADLINE_EXCEEDED, [code for code, _ in ended.values()])
                for code, sentence in ended.values():
                    self.assertIn(code, [DEADLINE_EXCEEDED, ABORTED])
                    self.assertRegex(sentence, f"rank \\d has heard nothing from rank {rank} for \\S+ s ")

    def test_a_rank_that_is_busy_for_ten_times_the_deadline(self):
        cases = [("parameter-server", 0), ("ring", 1), ("weight-average", 2)]
        for exchange, rank, outcome in self.start_all("busy", cases, well=True):
            with self.subTest(exchange=exchange, rank=rank):
                ranks = range(NODES[exchange][1])
                self.assertEqual(outcome(), {rank: (0, "") for rank in ranks})

    def test_a_rank_that_is_busy_for_longer_than_the_progress_limit(self):
        ended = self.start("hang", 1)
        for rank in (0, 2):
            self.assertIn(ended[rank][0], [DEADLINE_EXCEEDED, ABORTED])
            self.assertRegex(ended[rank][1], r"nothing has arrived at rank \d for 4 s ")
            self.assertIn("progress limit", ended[rank][1])
        self.assertNotIn(1, ended)

    def test_a_rank_that_announces_more_than_the_job_has(self):
        ended = self.start("long", 1)
        self.assertEqual(ended[2][0], DATA_LOSS)
        for code, sentence in ended.values():
            self.assertIn(code, [DATA_LOSS, ABORTED])
            self.assertIn(f"rank 1 sent the announcement of {17 << 20} bytes", sentence)

    def test_a_rank_that_aborts_while_another_is_busy(self):
        ended = self.start("abort", 1)
        self.assertEqual(ended[1], (RESOURCE_EXHAUSTED, "the disk is full"))
        self.assertEqual(ended[2], (ABORTED, "the disk is full"))
        self.assertNotIn(0, ended)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__.strip())
    JOB = os.path.abspath(sys.argv.pop(1))
    unittest.main()
