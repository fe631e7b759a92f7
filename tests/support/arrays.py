"""Arrays of tests. Their .npy files are written by hand, so that nothing but Python is needed."""

import random
import struct

from program import ProgramTest, run

SEED = 20191
DESCRS = {"f": "<f4", "d": "<f8"}


def npy(values, shape, code="f", descr=None, order="False", version=1):
    """An .npy file; code is struct's letter for the values."""
    descr = descr or DESCRS[code]
    dims = "".join(f"{dim}," for dim in shape)
    header = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({dims}), }}".encode()
    head = 10 if version == 1 else 12
    header += b" " * (-(head + len(header) + 1) % 64) + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    data = values if isinstance(values, bytes) else struct.pack(f"<{len(values)}{code}", *values)
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + data


def read_npy(data):
    """(descr, shape, raw values) of a file of version 1.0."""
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    (length,) = struct.unpack_from("<H", data, 8)
    assert (10 + length) % 64 == 0 and data[9 + length : 10 + length] == b"\n"
    header = eval(data[10 : 10 + length], {"__builtins__": {}})
    assert header["fortran_order"] is False
    return header["descr"], header["shape"], data[10 + length :]


def heavy_tailed(random_numbers, n):
    return [random_numbers.gauss(0, 1) ** 3 * 1e-3 for _ in range(n)]


def floats(raw):
    return struct.unpack(f"<{len(raw) // 4}f", raw)


class ArrayTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)

    def encoded(self, values, shape, code="f", codec="3lc", name="m.tw"):
        self.write("in.npy", npy(values, shape, code))
        encode = ("encode", "--force", "--codec", codec)
        self.assert_done(run(*encode, self.path("in.npy"), self.path(name)))
        return self.read(name)
