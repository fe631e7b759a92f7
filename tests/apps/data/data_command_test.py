#!/usr/bin/env python3
"""Tests of `tersewire data get` against a server of our own on this machine.

    data_command_test.py PATH_TO_TERSEWIRE PATH_TO_DATA_GET_DRIVER

Most run data_get_driver, which fetches made-up data sets by the same function as the program. What
needs real data takes it from the directory $TERSEWIRE_DATA (unless said, ../shared/data beside the
project) and is skipped without it.
"""

import fcntl
import functools
import hashlib
import http.server
import io
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/support"))

import program

DRIVER = None
DATA = pathlib.Path(os.environ.get("TERSEWIRE_DATA", ROOT.parent / "shared" / "data"))
BOUND_SECONDS = 60
STALL_SECONDS = 1
run = functools.partial(program.run, text=True, timeout=BOUND_SECONDS)

CONTENT = random.Random(7).randbytes(300_000)
HALF = len(CONTENT) // 2


def sha256(content):
    return hashlib.sha256(content).hexdigest()


class Page:
    """What the server does at one address."""

    def __init__(self, content=b"", ranges=True, cut=None, stall=None, length=True, status=None,
                 location=None):
        self.content = content
        self.ranges = ranges  # whether it answers requests for a part
        self.cut = cut  # bytes after which it closes the connection
        self.stall = stall  # bytes after which it says no more until the test ends
        self.length = length  # whether it says how long the answer is
        self.status = status  # answers this and nothing else
        self.location = location  # redirects there


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        wanted = self.headers.get("Range")
        page = self.server.pages.get(self.path, Page(status=404))
        self.server.log.append((self.path, wanted))
        if page.status:
            self.send_error(page.status)
        elif page.location:
            self.send_response(302)
            self.send_header("Location", page.location)
            self.end_headers()
        else:
            self.send_page(page, wanted)

    def send_page(self, page, wanted):
        body = page.content
        if wanted and page.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(page.content):
                self.send_error(416)
                return
            body = page.content[start:]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{start + len(body) - 1}/*")
        else:
            self.send_response(200)
        if page.length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        end = min(len(body), *(limit for limit in (page.cut, page.stall) if limit is not None),
                  len(body))
        self.server.sent += end
        try:
            self.wfile.write(body[:end])
        except ConnectionError:
            return
        if page.stall is not None:
            self.server.ended.wait(BOUND_SECONDS)

    def log_message(self, *arguments):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages = {}
        self.log = []  # (path, Range header)
        self.sent = 0  # bytes of bodies
        self.ended = threading.Event()

    def handle_error(self, request, client_address):
        """A client that closes the connection is no error here."""


class DataTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.outside = pathlib.Path(directory.name)
        self.directory = self.outside / "data"
        self.server = Server()
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.addCleanup(self.server.ended.set)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def serve(self, name, *arguments, **options):
        self.server.pages[f"/{name}"] = Page(*arguments, **options)

    def put(self, name, content):
        self.directory.mkdir(exist_ok=True)
        (self.directory / name).write_bytes(content)

    def read(self, name):
        return (self.directory / name).read_bytes()

    def arguments(self, files, members=(), url=None, stall=STALL_SECONDS):
        """The driver's, for files {name: content} and members [(path, name, bytes)]."""
        named = [f"{name}:{len(content)}:{sha256(content)}" for name, content in files.items()]
        taken = [":".join(map(str, member)) for member in members]
        return [self.directory, url or self.url, str(stall), *named,
                *(["--", *taken] if taken else [])]

    def get(self, files=None, preexec_fn=None, **options):
        return run(*self.arguments(files or {"a": CONTENT}, **options), program=DRIVER,
                   preexec_fn=preexec_fn)

    def assert_done(self, result):
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)

    def assert_refused(self, result, *words):
        lines = result.stderr.splitlines()
        self.assertEqual((result.returncode, len(lines)), (1, 1), result)
        for word in words:
            self.assertIn(str(word), lines[0])

    def assert_files(self, *names):
        """In the directory, and nothing beside it."""
        self.assertEqual(sorted(path.name for path in self.directory.glob("*")), sorted(names))
        self.assertEqual(set(os.listdir(self.outside)) - {"data"}, set())


class Download(DataTest):
    def test_fetches_every_file(self):
        self.serve("a", CONTENT)
        self.serve("b", b"short")
        result = self.get({"a": CONTENT, "b": b"short"})
        self.assert_done(result)
        self.assertEqual((self.read("a"), self.read("b")), (CONTENT, b"short"))
        self.assert_files("a", "b")
        self.assertEqual(self.server.log, [("/a", None), ("/b", None)])
        # Progress counts the bytes of all files.
        lines = result.stdout.splitlines()
        self.assertEqual(lines[-1], f"progress {len(CONTENT) + 5}")
        self.assertIn(f"progress {len(CONTENT)}", lines)

    def test_a_file_of_unknown_length(self):
        self.serve("a", CONTENT, length=False)
        self.assert_done(self.get())
        self.assertEqual(self.read("a"), CONTENT)

    def test_goes_on_where_it_stopped(self):
        self.put("a.part", CONTENT[:HALF])
        self.serve("a", CONTENT)
        self.assert_done(self.get())
        self.assertEqual(self.read("a"), CONTENT)
        self.assert_files("a")
        self.assertEqual(self.server.log, [("/a", f"bytes={HALF}-")])
        self.assertEqual(self.server.sent, len(CONTENT) - HALF)

    def test_a_complete_part_needs_no_network(self):
        self.put("a.part", CONTENT)
        self.assert_done(self.get())
        self.assertEqual(self.read("a"), CONTENT)
        self.assertEqual(self.server.log, [])

    def test_starts_over_where_the_server_cannot_resume(self):
        self.put("a.part", CONTENT[:HALF])
        self.serve("a", CONTENT, ranges=False)
        self.assert_done(self.get())
        self.assertEqual(self.read("a"), CONTENT)
        self.assertEqual([wanted for _, wanted in self.server.log], [f"bytes={HALF}-", None])

    def test_starts_over_where_the_part_is_another_file_s(self):
        other = bytes(HALF)
        for part in (other, bytes(len(CONTENT)), bytes(len(CONTENT) + 1)):
            with self.subTest(bytes=len(part)):
                self.put("a.part", part)
                self.serve("a", CONTENT)
                self.assert_done(self.get())
                self.assertEqual(self.read("a"), CONTENT)
                self.assertEqual(self.server.log[-1], ("/a", None))
                (self.directory / "a").unlink()

    def test_the_server_s_file_is_shorter_than_the_part(self):
        self.put("a.part", CONTENT[:HALF])
        self.serve("a", CONTENT[:100])
        self.assert_refused(self.get(), f"{self.url}/a", self.directory / "a.part", "was removed")
        self.assert_files()

    def test_a_wrong_file(self):
        wrong = [bytes(len(CONTENT)), CONTENT[:-1], CONTENT + b"x", b"<html>log in</html>", b""]
        for content in wrong:
            for length in (True, False):
                with self.subTest(bytes=len(content), length=length):
                    self.serve("a", content, length=length)
                    self.assert_refused(self.get(), f"{self.url}/a", sha256(CONTENT),
                                        self.directory / "a.part", "was removed", "--url")
                    self.assert_files()

    def test_no_more_is_written_than_expected(self):
        self.serve("a", CONTENT * 20, length=False)
        limit = len(CONTENT)
        result = self.get(
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.assert_refused(result, "not the expected file")

    def test_a_transfer_that_breaks_off_is_resumed(self):
        self.serve("a", CONTENT, cut=HALF)
        self.assert_refused(self.get(), f"{self.url}/a", "run the same command again")
        self.assertEqual(self.read("a.part"), CONTENT[:HALF])
        self.assert_files("a.part")
        self.serve("a", CONTENT)
        self.assert_done(self.get())
        self.assertEqual(self.read("a"), CONTENT)
        self.assertEqual(self.server.log[-1], ("/a", f"bytes={HALF}-"))

    def test_a_server_that_stalls(self):
        # Few bytes: libcurl takes the mean over five seconds, in which many would count as fast.
        self.serve("a", CONTENT, stall=500)
        self.assert_refused(self.get(), f"{self.url}/a", "run the same command again")
        self.assertEqual(self.read("a.part"), CONTENT[:500])

    def test_what_an_interrupted_process_leaves_is_resumed(self):
        for ending in (signal.SIGINT, signal.SIGKILL):
            with self.subTest(signal=ending):
                self.serve("a", CONTENT, stall=HALF)
                arguments = self.arguments({"a": CONTENT}, stall=BOUND_SECONDS)
                process = subprocess.Popen([DRIVER, *arguments])
                part = self.directory / "a.part"
                until = time.monotonic() + BOUND_SECONDS
                while not part.exists() or part.stat().st_size < HALF:
                    self.assertLess(time.monotonic(), until)
                    time.sleep(0.01)
                process.send_signal(ending)
                self.assertEqual(process.wait(BOUND_SECONDS), -ending)
                self.serve("a", CONTENT)
                self.assert_done(self.get())
                self.assertEqual(self.read("a"), CONTENT)
                self.assertEqual(self.server.log[-1], ("/a", f"bytes={HALF}-"))
                (self.directory / "a").unlink()

    def test_redirects(self):
        self.serve("a", location="/b")
        self.serve("b", CONTENT)
        self.put("a.part", CONTENT[:HALF])
        self.assert_done(self.get())
        self.assertEqual(self.read("a"), CONTENT)
        self.assertEqual(self.server.log[-1], ("/b", f"bytes={HALF}-"))

    def test_redirects_to_what_is_not_http(self):
        self.put("secret", CONTENT)
        for location in (f"file://{self.directory}/secret", "ftp://127.0.0.1/a", "/a"):
            with self.subTest(location=location):
                self.serve("a", location=location)
                self.assert_refused(self.get(), f"{self.url}/a cannot be fetched")
                self.assertNotIn("a", os.listdir(self.directory))

    def test_refusals_of_the_server(self):
        for status in (404, 403, 500):
            with self.subTest(status=status):
                self.serve("a", status=status)
                self.put("a.part", CONTENT[:HALF])
                self.assert_refused(self.get(), f"{self.url}/a", status, "--url")
                self.assertEqual(self.read("a.part"), CONTENT[:HALF])

    def test_no_server(self):
        self.server.shutdown()
        self.server.server_close()
        self.assert_refused(self.get(), f"{self.url}/a cannot be fetched", "check the network")
        self.assert_files()

    def test_a_server_without_tls(self):
        self.serve("a", CONTENT)
        url = self.url.replace("http", "https")
        self.assert_refused(self.get(url=url), f"{url}/a cannot be fetched", "certificates")

    def test_what_is_no_address(self):
        for url in ("file:///etc", "nonsense://a", "http://[", "http://"):
            with self.subTest(url=url):
                self.assert_refused(self.get(url=url), url)


class Place(DataTest):
    def setUp(self):
        super().setUp()
        self.serve("a", CONTENT)

    def test_what_is_complete_is_kept(self):
        self.put("a", CONTENT)
        result = self.get()
        self.assert_done(result)
        self.assertEqual(result.stdout, f"kept {self.directory / 'a'}\n")
        self.assertEqual(self.server.log, [])

    def test_a_link_to_what_is_complete_is_kept(self):
        self.put("elsewhere", CONTENT)
        (self.directory / "a").symlink_to("elsewhere")
        self.assert_done(self.get())
        self.assertEqual(self.server.log, [])

    def test_other_files_are_not_replaced(self):
        for content in (b"mine", bytes(len(CONTENT))):
            self.put("a", content)
            self.assert_refused(self.get(), self.directory / "a", "move it away", "--to")
            self.assertEqual(self.read("a"), content)
        (self.directory / "a").unlink()
        (self.directory / "a").mkdir()
        self.assert_refused(self.get(), self.directory / "a", "move it away")
        (self.directory / "a").rmdir()
        (self.directory / "a").symlink_to("nowhere")
        self.assert_refused(self.get(), self.directory / "a", "move it away")
        self.assertEqual(self.server.log, [])

    def test_a_part_that_is_no_file(self):
        self.put("victim", b"mine")
        part = self.directory / "a.part"
        part.symlink_to("victim")
        self.assert_refused(self.get(), part)
        self.assertEqual(self.read("victim"), b"mine")
        part.unlink()
        os.mkfifo(part)
        self.assert_refused(self.get(), part)
        part.unlink()
        part.mkdir()
        self.assert_refused(self.get(), part)

    def test_two_processes(self):
        self.put("a.part", CONTENT[:HALF])
        with open(self.directory / "a.part", "rb") as part:
            fcntl.flock(part, fcntl.LOCK_EX)
            self.assert_refused(self.get(), self.directory / "a.part", "another process")
        self.assertEqual(self.read("a.part"), CONTENT[:HALF])

    def test_the_directory_is_a_file(self):
        self.directory.write_bytes(b"mine")
        self.assert_refused(self.get(), self.directory)
        self.assertEqual(self.directory.read_bytes(), b"mine")

    @unittest.skipIf(os.geteuid() == 0, "root may write everywhere")
    def test_no_permission(self):
        self.directory.mkdir(mode=0o555)
        self.assert_refused(self.get(), self.directory / "a.part", "check its permissions")

    def test_a_full_disk(self):
        limit = 100_000
        result = self.get(
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.assert_refused(result, self.directory / "a.part", "make room")
        self.assertEqual(self.read("a.part"), CONTENT[:limit])
        self.assert_done(self.get())
        self.assertEqual(self.read("a"), CONTENT)


ONE = b"1" * 1000
TWO = b"2" * 70_000
MEMBERS = [("in/one.bin", "one.bin", len(ONE)), ("in/two.bin", "two.bin", len(TWO))]


def entry(path, content=b"", kind=tarfile.REGTYPE, link="", **pax):
    info = tarfile.TarInfo(path)
    info.type, info.linkname, info.size = kind, link, len(content)
    info.pax_headers = {key.replace("_", "."): value for key, value in pax.items()}
    return info, content


def sparse(path, real_bytes):
    """Four bytes, and a hole up to `real_bytes`."""
    content = b"1\n0\n4\n".ljust(512, b"\0") + b"data"
    return entry(path, content, GNU_sparse_major="1", GNU_sparse_minor="0", GNU_sparse_name=path,
                 GNU_sparse_realsize=str(real_bytes))


def tar_gz(*entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


class Archive(DataTest):
    GOOD = [entry("in", kind=tarfile.DIRTYPE), entry("in/readme.html", b"hello"),
            entry("in/two.bin", TWO), entry("in/one.bin", ONE)]

    def unpack(self, archive):
        self.serve("a.tar.gz", archive)
        return self.get({"a.tar.gz": archive}, members=MEMBERS)

    def assert_unpacked(self, archive):
        self.assert_done(self.unpack(archive))
        self.assertEqual((self.read("one.bin"), self.read("two.bin")), (ONE, TWO))
        self.assert_files("one.bin", "two.bin")

    def test_the_members_and_nothing_else(self):
        self.assert_unpacked(tar_gz(*self.GOOD))

    def test_members_that_are_there_are_kept(self):
        self.assert_unpacked(tar_gz(*self.GOOD))
        requests = len(self.server.log)
        result = self.unpack(tar_gz(*self.GOOD))
        self.assert_done(result)
        self.assertEqual(result.stdout.count("kept "), 2)
        self.assertEqual(len(self.server.log), requests)

    def test_some_members_or_others_are_not_replaced(self):
        for there in ({"one.bin": ONE}, {"two.bin": b""}, {"one.bin": ONE, "two.bin": b"mine"}):
            with self.subTest(there):
                for name, content in there.items():
                    self.put(name, content)
                self.assert_refused(self.unpack(tar_gz(*self.GOOD)), self.directory, "move them")
                self.assert_files(*there)
                self.assertEqual(self.server.log, [])
                for name, content in there.items():
                    self.assertEqual(self.read(name), content)
                    (self.directory / name).unlink()

    def test_an_archive_that_is_there_is_not_fetched(self):
        archive = tar_gz(*self.GOOD)
        self.put("a.tar.gz", archive)
        self.put("one.bin.part", b"of an earlier attempt")
        self.assert_unpacked(archive)
        self.assertEqual(self.server.log, [])

    def test_paths_that_lead_elsewhere_are_not_followed(self):
        self.assert_unpacked(tar_gz(
            entry("../one.bin", b"x"), entry(f"{self.outside}/two.bin", b"x"),
            entry("in/../../three.bin", b"x"), entry("one.bin", b"x"), entry("./in/two.bin", b"x"),
            entry("two.bin", kind=tarfile.SYMTYPE, link=str(self.outside / "four.bin")),
            entry("in", kind=tarfile.SYMTYPE, link=str(self.outside)),
            entry("in/pipe", kind=tarfile.FIFOTYPE), entry("n\u00e4me", b"x"), *self.GOOD))

    def test_a_member_may_have_holes(self):
        members = [("in/one.bin", "one.bin", 5000)]
        archive = tar_gz(sparse("in/one.bin", 5000))
        self.serve("a.tar.gz", archive)
        self.assert_done(self.get({"a.tar.gz": archive}, members=members))
        self.assertEqual(self.read("one.bin"), b"data" + bytes(4996))

    def test_archives_that_do_not_hold_the_members(self):
        one, two = entry("in/one.bin", ONE), entry("in/two.bin", TWO)
        good = tar_gz(one, two)
        cases = {
            "a member is missing": tar_gz(two),
            "none": tar_gz(),
            "too short": tar_gz(one, entry("in/two.bin", TWO[:-1])),
            "too long": tar_gz(entry("in/one.bin", ONE + b"1"), two),
            "twice": tar_gz(one, two, one),
            "a symbolic link": tar_gz(
                one, entry("in/two.bin", kind=tarfile.SYMTYPE, link="/etc/passwd")),
            "a hard link": tar_gz(
                one, entry("in/two.bin", kind=tarfile.LNKTYPE, link="in/one.bin")),
            "a directory": tar_gz(one, entry("in/two.bin", kind=tarfile.DIRTYPE)),
            "a device": tar_gz(one, entry("in/two.bin", kind=tarfile.CHRTYPE)),
            "a member of a terabyte of holes": tar_gz(one, sparse("in/two.bin", 1 << 40)),
            "another file of a terabyte of holes": tar_gz(sparse("x", 1 << 40), one, two),
            "another file larger than any member": tar_gz(
                entry("x", bytes(len(TWO) + 1)), one, two),
            "very many files": tar_gz(*(entry(f"x{i}") for i in range(2000)), one, two),
            "cut off": good[:len(good) // 2],
            "damaged": good[:60] + bytes([good[60] ^ 0x55]) + good[61:],
            "no archive": CONTENT,
        }
        for what, archive in cases.items():
            with self.subTest(what):
                result = self.unpack(archive)
                self.assert_refused(result, self.directory / "a.tar.gz", "remove it")
                self.assert_files("a.tar.gz")
                (self.directory / "a.tar.gz").unlink()

    def test_a_full_disk_while_unpacking(self):
        archive = tar_gz(*self.GOOD)
        self.put("a.tar.gz", archive)
        limit = len(TWO) // 2
        result = self.get(
            {"a.tar.gz": archive}, members=MEMBERS,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.assert_refused(result, self.directory / "two.bin.part", "make room")
        self.assert_files("a.tar.gz")


class Program(DataTest):
    SHAKESPEARE = DATA / "tinyshakespeare.txt"

    def data_get(self, *arguments, **options):
        return run("data", "get", *arguments, **options)

    def shakespeare(self):
        if not self.SHAKESPEARE.is_file():
            self.skipTest(f"there is no {self.SHAKESPEARE}")
        return self.SHAKESPEARE.read_bytes()

    def test_fetches_what_it_knows(self):
        content = self.shakespeare()
        self.serve("mirror/input.txt", content)
        # A slash at the end of the address makes no difference.
        arguments = ("tinyshakespeare", "--to", self.directory, "--url", self.url + "/mirror/")
        result = self.data_get(*arguments)
        self.assertEqual(result.returncode, 0, result)
        self.assertEqual(self.read("input.txt"), content)
        self.assertIn(f"; next: tersewire train --recipe gpt --data {self.directory}\n", result.stdout)
        self.assertIn("1.1 of 1.1 MB", result.stderr.splitlines()[-1])
        self.assertLessEqual(len(result.stderr.splitlines()), 11)
        again = self.data_get(*arguments)
        self.assert_done(again)
        self.assertIn(f"{self.directory / 'input.txt'} is here already", again.stdout)
        self.assertEqual(len(self.server.log), 1)

    def test_the_directory_is_named_after_the_set(self):
        self.outside.joinpath("tinyshakespeare").mkdir()
        self.outside.joinpath("tinyshakespeare/input.txt").write_bytes(self.shakespeare())
        result = self.data_get("tinyshakespeare", cwd=self.outside)
        self.assert_done(result)
        self.assertIn("tinyshakespeare/input.txt is here already", result.stdout)

    def test_a_mirror_with_another_file(self):
        names = {"mnist": "train-images-idx3-ubyte.gz", "cifar10": "cifar-10-binary.tar.gz",
                 "tinyshakespeare": "input.txt"}
        for data_set, name in names.items():
            with self.subTest(data_set):
                self.serve(name, b"something else")
                result = self.data_get(data_set, "--to", self.directory, "--url", self.url)
                self.assertEqual(result.returncode, 1, result)
                self.assertIn(f"tersewire: what {self.url}/{name} sends is not the expected file",
                              result.stderr.splitlines()[-1])
                self.assertEqual(result.stdout, "")
                self.assert_files()

    def test_no_server(self):
        self.server.shutdown()
        self.server.server_close()
        result = self.data_get("mnist", "--to", self.directory, "--url", self.url)
        self.assert_refused(result, "tersewire: ", f"{self.url}/train-images-idx3-ubyte.gz")
        self.assertFalse(self.directory.exists())

    def test_wrong_usage(self):
        for arguments in ((), ("imagenet",), ("mnist", "--url", "file:///tmp")):
            with self.subTest(arguments):
                result = self.data_get(*arguments)
                self.assertEqual(result.returncode, 2, result)
                self.assertEqual(len(result.stderr.splitlines()), 1, result)


if __name__ == "__main__":
    DRIVER = sys.argv.pop(2)
    program.main(__doc__)
