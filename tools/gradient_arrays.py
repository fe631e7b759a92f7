#!/usr/bin/env python3
"""Reads the float32 arrays of .npz files, without numpy.

usage: gradient_arrays.py OUT_DIR FILE.npz...

For each FILE.npz writes OUT_DIR/FILE.npy: all its arrays, one after the other, as one array that
tersewire bench codecs --input takes.
"""

import ast
import math
import pathlib
import struct
import sys
import zipfile


def read_npy(data):
    """The shape and the raw little-endian values of a float32 .npy file's bytes."""
    if data[:6] != b"\x93NUMPY" or data[6] not in (1, 2):
        raise ValueError("it is not an .npy file of version 1 or 2")
    at, form = (10, "<H") if data[6] == 1 else (12, "<I")
    (length,) = struct.unpack(form, data[8:at])
    header = ast.literal_eval(data[at:at + length].decode())
    if header["descr"] != "<f4" or header["fortran_order"]:
        raise ValueError("it holds no float32 values in C order")
    values = data[at + length:]
    if len(values) != 4 * math.prod(header["shape"]):
        raise ValueError("its length does not match its shape")
    return header["shape"], values


def read_npz(path):
    """[(name, shape, values)] of a .npz file, in its order."""
    with zipfile.ZipFile(path) as archive:
        return [(pathlib.PurePath(name).stem, *read_npy(archive.read(name)))
                for name in archive.namelist()]


def npy_bytes(values):
    """A one-dimensional float32 .npy file of these raw values."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({len(values) // 4},), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + values


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    for name in sys.argv[2:]:
        path = pathlib.Path(name)
        try:
            values = b"".join(array[2] for array in read_npz(path))
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            sys.exit(f"{path}: {error}; name what numpy.savez() made of float32 arrays")
        (pathlib.Path(sys.argv[1]) / (path.stem + ".npy")).write_bytes(npy_bytes(values))


if __name__ == "__main__":
    main()
