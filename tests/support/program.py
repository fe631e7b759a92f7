"""The program `tersewire` as its tests start it.

A file of tests ends with program.main(__doc__); the program's path is its first argument.
"""

import atexit
import ctypes
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor

PATH = None
# Without defaults and proxies of whoever runs the tests.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith("TERSEWIRE_") and not name.lower().endswith("_proxy")}  # fmt: skip
ENVIRONMENT["TERSEWIRE_CONFIG"] = ""
PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
LOADER = {"LD_PRELOAD", "LD_DEBUG"}  # variables of which a process that is forked takes no notice


class _Forks:
    """The program, once it has loaded libtorch, forks a process for each that trains: 0.2 s of processor less for each.

    FORKING_PROGRAM names the library of forking_program.cpp.
    """

    def __init__(self):
        self.lock = threading.Lock()
        self.socket = None

    def begin(self):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        preload = {"LD_PRELOAD": os.environ["FORKING_PROGRAM"]}
        with theirs:
            process = subprocess.Popen([PATH], stdin=theirs, env={**ENVIRONMENT, **preload})
        atexit.register(process.wait)
        atexit.register(self.socket.close)  # which comes first, and ends it

    def start(self, arguments, directory, variables, descriptors):
        """The number of a process with these standard ones, a child of this one."""
        texts = [os.path.abspath(directory or "."), str(len(arguments)), *arguments, *map("=".join, variables.items())]
        adopt = ctypes.CDLL(None).prctl
        with self.lock:
            if self.socket is None:
                self.begin()
            adopt(PR_SET_CHILD_SUBREAPER, 1)
            socket.send_fds(self.socket, [b"".join(os.fsencode(text) + b"\0" for text in texts)], descriptors)
            number = int.from_bytes(self.socket.recv(4), sys.byteorder, signed=True)
            adopt(PR_SET_CHILD_SUBREAPER, 0)
        assert number > 0, "the program that forks could not, or has ended"
        return number


class _Process(subprocess.Popen):
    """A process as any, but one that trains is forked."""

    forks = _Forks()

    def _execute_child(self, arguments, executable, preexec_fn, close_fds, pass_fds, directory, variables, *rest):
        variables = os.environ if variables is None else variables
        trains = not isinstance(arguments, str) and list(arguments[:2]) == [PATH, "train"]
        if not trains or preexec_fn or pass_fds or not variables.keys().isdisjoint(LOADER):
            super()._execute_child(arguments, executable, preexec_fn, close_fds, pass_fds, directory, variables, *rest)
            return
        pipes = rest[3:9]  # for input, output and errors: what is read, what is written; -1 where there is none
        own = [number if given == -1 else given for number, given in enumerate((pipes[0], pipes[3], pipes[5]))]
        try:
            self.pid = self.forks.start(arguments, directory, variables, own)
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)


def run(*arguments, program=None, stdin=None, stdout=subprocess.PIPE, text=False, timeout=120,
        cwd=None, preexec_fn=None, **variables):  # fmt: skip
    """The program, or another one, with these arguments and variables; it may fail."""
    return subprocess.run(
        [program or PATH, *map(str, arguments)], input=stdin or ("" if text else b""),
        stdout=stdout, stderr=subprocess.PIPE, text=text, timeout=timeout, cwd=cwd,
        preexec_fn=preexec_fn, env={**ENVIRONMENT, **variables}, check=False,
    )  # fmt: skip


def run_all(commands):
    with ThreadPoolExecutor(max_workers=2) as pool:
        return list(pool.map(lambda command: run(*command), commands))


def held_at(step, until=None):
    """Variables with which a run stands still after a step, until there is a file `until` or for
    good. HELD_AT_STEP_LIBRARY names the library of held_at_step.cpp."""
    variables = {"LD_PRELOAD": os.environ["HELD_AT_STEP_LIBRARY"], "HELD_AT_STEP": str(step)}
    return variables | ({"HELD_UNTIL": str(until)} if until else {})


class ProgramTest(unittest.TestCase):
    """Each test has a directory of its own."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def path(self, name):
        return os.path.join(self.directory, name)

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)
        return self.path(name)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def assert_done(self, result):
        self.assertEqual((result.returncode, result.stderr), (0, b""), result)

    def assert_refused(self, result, code, *words):
        """One sentence on stderr that holds all words, and nothing on stdout."""
        said = result.stderr.decode()
        self.assertEqual(result.returncode, code, result)
        self.assertEqual(len(said.splitlines()), 1, result)
        self.assertTrue(said.startswith("tersewire: "), result)
        self.assertFalse(result.stdout, result)
        for word in words:
            self.assertIn(word, said)

    def assert_files(self, *names):
        """Nothing else was left behind, temporary files in particular."""
        self.assertEqual(sorted(os.listdir(self.directory)), sorted(names))


def main(text, **options):
    """Runs the tests of the file that calls this; without a path, says `text`."""
    global PATH
    if len(sys.argv) < 2:
        sys.exit(text.strip())
    PATH = os.path.abspath(sys.argv.pop(1))
    if "FORKING_PROGRAM" in os.environ:
        subprocess.Popen = _Process
    # What nohup or a script's background has ignored, programs that it starts would ignore too.
    for number in (signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    unittest.main(**options)
