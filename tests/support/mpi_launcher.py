#!/usr/bin/env python3
"""Starts a command as several ranks of an MPI job, on any machine and as any user.

usage: mpi_launcher.py RANKS COMMAND [ARGUMENT...]

The launcher is $MPIEXEC, or the mpirun of the path. What it needs to start more ranks than there
are processors, to run as root, and to leave nothing behind is said by environment variables, which
launchers that do not know them ignore.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile

VARIABLES = {
    # Open MPI 4, then 5.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    # MPI libraries keep memory that they never free, and take their locks in several orders.
    "ASAN_OPTIONS": "detect_leaks=0",
    "TSAN_OPTIONS": "detect_deadlocks=0",
    # Between the processes of one machine nothing but its own memory and network is needed.
    "OMPI_MCA_btl": "self,vader,tcp",
    "OMPI_MCA_btl_tcp_if_include": "lo",
}


def launcher():
    """The launcher's path, or None."""
    return os.environ.get("MPIEXEC") or shutil.which("mpirun")


@contextlib.contextmanager
def environment():
    """What to start the launcher with; its temporary files are gone afterwards."""
    # Short: a socket's path has to fit into it.
    with tempfile.TemporaryDirectory(prefix="tw", ignore_cleanup_errors=True) as directory:
        yield {**os.environ, **VARIABLES, "TMPDIR": directory}


def command(ranks, *arguments):
    return [launcher(), "-n", str(ranks), *map(str, arguments)]


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip())
    with environment() as variables:
        started = subprocess.run(command(*sys.argv[1:]), env=variables, check=False)
    return started.returncode


if __name__ == "__main__":
    sys.exit(main())
