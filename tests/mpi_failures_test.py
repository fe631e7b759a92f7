#!/usr/bin/env python3
"""What becomes of a job over mpi in which one rank fails.

usage: mpi_failures_test.py PATH_OF_MPI_FAILING_JOB

Every rank has to end in bounded time, with a sentence where it still can, and leave no process.
"""

import os
import re
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True

import mpi_launcher

JOB = None

ABORTED = 10
DEADLINE_EXCEEDED = 4
RESOURCE_EXHAUSTED = 8
# Starting and ending take a second or two; the job's deadline is two seconds, and leaving after a
# failure takes at most two more. What hangs takes for ever.
BOUND_SECONDS = 30


def runs(process):
    """False for one that has ended, even where its parent does not care."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def running(processes):
    """Those that are still there after a moment: ending takes one."""
    for _ in range(50):
        processes = [process for process in processes if runs(process)]
        if not processes:
            break
        time.sleep(0.1)
    return processes


class Failures(unittest.TestCase):
    def start(self, how, rank, exchange="parameter-server"):
        """What each rank ended with: {rank: (code, sentence)}."""
        start = time.monotonic()
        with mpi_launcher.environment() as variables:
            with subprocess.Popen(mpi_launcher.command(3, JOB, how, rank, exchange), env=variables,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True) as launcher:
                try:
                    output, errors = launcher.communicate(timeout=2 * BOUND_SECONDS)
                except subprocess.TimeoutExpired:
                    launcher.kill()
                    output, errors = launcher.communicate()
                    self.fail(f"{how} of rank {rank}, {exchange}, hangs: {output}{errors}")
        self.assertNotEqual(launcher.returncode, 0, output)
        self.assertLess(time.monotonic() - start, BOUND_SECONDS, output)
        processes = [int(found) for found in re.findall(r"^\d pid (\d+)$", output, re.MULTILINE)]
        self.assertEqual(len(processes), 3, output + errors)
        self.assertEqual(running(processes), [], output)
        found = re.findall(r"^(\d) code (\d+): (.*)$", output, re.MULTILINE)
        return {int(rank): (int(code), sentence) for rank, code, sentence in found}

    def test_a_rank_that_is_killed(self):
        for rank, exchange in [(0, "parameter-server"), (2, "parameter-server"), (1, "all-gather"),
                               (2, "ring")]:
            with self.subTest(rank=rank, exchange=exchange):
                # The launcher ends the others, with or without their last words.
                self.assertNotIn(rank, self.start("die", rank, exchange))

    def test_a_rank_that_is_stopped(self):
        for rank, exchange in [(1, "parameter-server"), (2, "parameter-server"), (0, "all-gather"),
                               (1, "ring")]:
            with self.subTest(rank=rank, exchange=exchange):
                ended = self.start("stall", rank, exchange)
                self.assertEqual(set(ended), {0, 1, 2} - {rank})
                self.assertIn(DEADLINE_EXCEEDED, [code for code, _ in ended.values()])
                for code, sentence in ended.values():
                    self.assertIn(code, [DEADLINE_EXCEEDED, ABORTED])
                    self.assertIn("nothing arrived for 2000 ms", sentence)

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
