#!/usr/bin/env python3
"""examples/slurm/ under Slurm itself, its daemons on this machine alone, with ports and a key of
their own: a job of one allocation, and workers that the scheduler sends away.

usage: slurm_test.py TERSEWIRE SOURCE_DIR    exits with 77 where Slurm's programs are not
"""

import functools
import getpass
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

TERSEWIRE, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
# Debian keeps daemons where only root's PATH leads.
find = functools.partial(shutil.which, path=os.environ["PATH"] + ":/usr/sbin:/sbin")

# Four processors, whatever the machine has. A job of the partition `urgent` sends others away, which have 30 seconds.
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
CredType=cred/munge
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=normal Nodes={host} Default=YES PriorityTier=1 GraceTime=30
PartitionName=urgent Nodes={host} PriorityTier=2
"""

# The examples' own commands, with a short training.
SHORT = """#!/bin/sh
if [ "$1" = train ]; then
  shift
  set -- train --threads 1 --batch 8 --steps {steps} --compute-ms 50 "$@"
fi
exec {tersewire} "$@"
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


@unittest.skipUnless(all(map(find, PROGRAMS)), "no Slurm (Debian's slurmd, slurmctld, slurm-client and munge)")
class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        for name in ("state", "spool", "bin"):
            (cls.place / name).mkdir()
        key = cls.place / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        (cls.place / "slurm.conf").write_text(CONFIGURATION.format(
            host=socket.gethostname().split(".")[0], place=cls.place, user=getpass.getuser(), controller=free_port(),
            daemon=free_port()), encoding="utf-8")
        cls.environment = {**os.environ, "SLURM_CONF": str(cls.place / "slurm.conf"),
                           "PATH": f"{cls.place}/bin:{os.environ['PATH']}"}
        cls.start("munged", "--force", "--foreground", f"--socket={cls.place}/munge.socket", f"--key-file={key}",
                  f"--pid-file={cls.place}/munge.pid", f"--seed-file={cls.place}/munge.seed",
                  f"--log-file={cls.place}/munge.log")
        cls.wait_until("munged listens", (cls.place / "munge.socket").exists)
        cls.start("slurmctld", "-D")
        cls.start("slurmd", "-D")
        cls.wait_until("Slurm has an idle node", lambda: "idle" in cls.slurm("sinfo", "-h", "-o", "%T"))

    @classmethod
    def start(cls, program, *arguments):
        log = cls.enterClassContext((cls.place / f"{program}.out").open("w"))
        process = subprocess.Popen([find(program), *arguments], env=cls.environment, stdout=log, stderr=log)
        cls.addClassCleanup(process.wait)
        cls.addClassCleanup(process.terminate)

    @classmethod
    def slurm(cls, *command):
        return subprocess.run(command, env=cls.environment, capture_output=True, text=True, check=False).stdout

    @classmethod
    def wait_until(cls, what, done, seconds=240):
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                logs = "\n".join(f"{log.name}:\n{log.read_text(encoding='utf-8', errors='replace')[-3000:]}"
                                 for log in sorted(cls.place.glob("**/*.out")))
                raise AssertionError(f"in {seconds} s it did not come to that {what}\n{logs}")
            time.sleep(0.2)

    def setUp(self):
        self.work = self.place / self.id().rpartition(".")[2]
        self.work.mkdir()

    def shorten(self, steps):
        program = self.place / "bin/tersewire"
        program.write_text(SHORT.format(tersewire=TERSEWIRE, steps=steps), encoding="utf-8")
        program.chmod(0o755)

    def submit(self, *arguments):
        said = subprocess.run(["sbatch", "--parsable", f"--chdir={self.work}", f"--output={self.work}/%A_%a.out",
                               *arguments], env=self.environment, capture_output=True, text=True, check=False)
        self.assertEqual(said.returncode, 0, said.stderr)
        return said.stdout.strip()

    def states(self, job):
        return re.findall(r"JobState=(\w+) ", self.slurm("scontrol", "show", "job", job))

    def assert_completes(self, job):
        self.wait_until("the job is over",
                        lambda: not {"PENDING", "RUNNING", "COMPLETING"} & set(self.states(job)))
        told = self.slurm("scontrol", "show", "job", job)
        logs = "\n".join(log.read_text(encoding="utf-8") for log in sorted(self.work.glob("*.out")))
        self.assertEqual(set(self.states(job)), {"COMPLETED"}, f"{told}\n{logs}")

    def test_a_job_of_one_allocation(self):
        self.shorten(steps=120)
        self.assert_completes(self.submit(str(SOURCE / "examples/slurm/job.sh")))
        summary = (self.work / "run/summary.json").read_text(encoding="utf-8")
        self.assertRegex(summary, r'"steps": 120\b')
        self.assertRegex(summary, r'"workers": 4\b')
        self.assertTrue(list((self.work / "run/checkpoints").iterdir()))

    def test_srun_of_train_without_its_transport_is_refused(self):
        said = subprocess.run(["srun", "-n", "4", TERSEWIRE, "train", "--steps", "2", "--out", "alone"], cwd=self.work,
                              env=self.environment, capture_output=True, text=True, timeout=240, check=False)
        self.assertEqual(said.returncode, 2, said)
        self.assertEqual(said.stderr.count("4 processes were started"), 1, said)
        self.assertEqual(list(self.work.iterdir()), [])

    def test_workers_that_are_sent_away(self):
        self.shorten(steps=300)
        port = free_port()
        with (self.work / "hub.out").open("w+") as log:
            hub = subprocess.Popen(
                [TERSEWIRE, "hub", "--workers", "4", "--min-workers", "1", "--max-workers", "8",
                 "--listen", f"127.0.0.1:{port}", "--journal", self.work / "hub.journal"], stdout=log, stderr=log)
            self.addCleanup(hub.wait)
            self.addCleanup(hub.terminate)
            job = self.submit("--array=1-4", f"--export=ALL,HUB=127.0.0.1:{port}",
                              str(SOURCE / "examples/slurm/worker.sh"))

            def said(pattern):
                log.flush()
                return len(re.findall(pattern, pathlib.Path(log.name).read_text(encoding="utf-8")))

            self.wait_until("four workers train", lambda: said("with 4 workers") and said("has begun"))
            self.slurm("scancel", "--signal=TERM", f"{job}_1")  # what --signal=TERM@60 sends
            self.wait_until("one leaves", lambda: said("is over: 'worker-1' leaves"))
            self.submit("--partition=urgent", "--ntasks=2", "--wrap", "sleep 2")  # has room after one more has gone
            self.wait_until("another is sent away", lambda: said("is to leave") == 2)
            self.assert_completes(job)
            self.assertEqual(hub.wait(60), 0)
            self.assertEqual(said("has died|is lost|has ended the job"), 1)


if __name__ == "__main__":
    if not all(map(find, PROGRAMS)):
        print("skipped: no Slurm (Debian's slurmd, slurmctld, slurm-client and munge)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
