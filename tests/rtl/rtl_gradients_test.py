#!/usr/bin/env python3
"""Runs real gradients through the engines of rtl/ (RtlEngine.RealGradients).

usage: rtl_gradients_test.py RTL_ENGINE_TEST

Skipped (77) where $TERSEWIRE_DATA/gradients (../shared/data beside the project unless said) has
no .npz file.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from gradient_arrays import read_npz

VALUES_PER_FILE = 100_000


def main():
    data = pathlib.Path(os.environ.get("TERSEWIRE_DATA", ROOT.parent / "shared" / "data"))
    paths = sorted((data / "gradients").glob("*.npz"))
    if not paths:
        print(f"skipped: {data / 'gradients'} holds no .npz file")
        return 77
    with tempfile.NamedTemporaryFile() as file:
        for path in paths:
            values = b"".join(array[2] for array in read_npz(path))
            file.write(values[:4 * VALUES_PER_FILE])
        file.flush()
        return subprocess.run(
            [sys.argv[1], "--gtest_filter=RtlEngine.RealGradients"],
            env=os.environ | {"TERSEWIRE_RTL_VALUES": file.name}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
