"""What `pip install .` does: CMake builds the extension and installs the package into the wheel."""

import os
import pathlib
import re
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parent
OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "Python_EXECUTABLE": sys.executable,
    "TERSEWIRE_PYTHON": "ON",
    "TERSEWIRE_PYTHON_DIR": ".",
    "TERSEWIRE_TRAINER": "OFF",
    "TERSEWIRE_APPS": "OFF",
    "TERSEWIRE_MPI": "OFF",
    "TERSEWIRE_TESTS": "OFF",
}


def version():
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    return re.search(r"project\(tersewire VERSION (\S+)", text).group(1)


class BuildWithCMake(build_ext):
    def run(self):
        build = ROOT / self.build_temp
        options = [f"-D{name}={value}" for name, value in OPTIONS.items()]
        self.cmake("-S", ROOT, "-B", build, *options)
        self.cmake("--build", build, "--target", "tersewire_python", "--parallel",
                   str(os.cpu_count() or 1))
        self.cmake("--install", build, "--component", "python", "--prefix", self.build_lib)

    def cmake(self, *arguments):
        subprocess.run(["cmake", *map(str, arguments)], check=True)


setup(
    version=version(),
    # CMake installs the Python files too.
    packages=[],
    ext_modules=[Extension("tersewire._core", sources=[])],
    cmdclass={"build_ext": BuildWithCMake},
    # Not build/, where the README has CMake build.
    options={"build": {"build_base": "build-python"}},
)
