"""Hubs that tests start, and certificates."""

import contextlib
import os
import re
import subprocess

import pytest

PROGRAM = os.environ.get("TERSEWIRE_PROGRAM")


def run(*command, text=""):
    return subprocess.run([PROGRAM, *map(str, command)], input=text, check=True, text=True,
                          capture_output=True).stdout


def certificate(authority, folder, *whose):
    asked = run("certs", "join", folder)
    run("certs", "join", folder, "--signed", "-",
        text=run("certs", "sign", authority, *whose, text=asked))
    return str(folder)


def certificates(folder, ranks, name="rank"):
    """(the hub's, those of the ranks), in directories of that name and a number."""
    run("certs", "init", "clinic", "--to", folder / "clinic")
    return (certificate(folder / "clinic", folder / "hub", "--hub"),
            [certificate(folder / "clinic", folder / f"{name}{rank}", "--rank", rank)
             for rank in range(ranks)])


class Hub:
    """At an address of its own, unless it is to have another's."""

    def __init__(self, ranks, *options, address="127.0.0.1:0"):
        if not PROGRAM:
            pytest.skip("TERSEWIRE_PROGRAM names no program that could be the hub")
        self.process = subprocess.Popen(
            [PROGRAM, "hub", "--workers", str(ranks), "--servers", "0", "--listen", address, *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.lines = []
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.search(r"listens at (\S+)", line)
            if found:
                self.address = found[1]
                return
        raise AssertionError(self.lines)

    def end(self):
        """Its exit code."""
        self.lines += self.process.stderr.readlines()
        self.process.stderr.close()
        return self.process.wait()


@contextlib.contextmanager
def hub(ranks, *options, code=0, **named):
    """It must have ended with this exit code when its ranks have."""
    started = Hub(ranks, *options, **named)
    try:
        yield started
        assert started.end() == code, started.lines
    finally:
        if started.process.poll() is None:
            started.process.kill()
            started.end()
