"""What `pip install .` does: CMake builds the extension and installs the package into the wheel.

In build/, where there is one for this Python that is optimized and not sanitized: only what is
missing or out of date is compiled then.
"""

import os
import pathlib
import re
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parent
BUILT = ROOT / "build"
# In the build tree that the README makes, and in one of our own.
SITE_PACKAGES = "lib/python{}.{}/site-packages".format(*sys.version_info)
OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "Python_EXECUTABLE": sys.executable,
    "TERSEWIRE_PYTHON": "ON",
    "TERSEWIRE_PYTHON_DIR": SITE_PACKAGES,
    "TERSEWIRE_TRAINER": "OFF",
    "TERSEWIRE_APPS": "OFF",
    "TERSEWIRE_MPI": "OFF",
    "TERSEWIRE_NIC": "OFF",
    "TERSEWIRE_TESTS": "OFF",
}


def version():
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    return re.search(r"project\(tersewire VERSION (\S+)", text).group(1)


def is_for_this_python(build):
    cache = build / "CMakeCache.txt"
    if not cache.is_file():
        return False
    found = dict(re.findall(r"^([^:#/\n]+):\w+=(.*)$", cache.read_text(encoding="utf-8"), re.M))
    expected = {"CMAKE_HOME_DIRECTORY": str(ROOT), "CMAKE_BUILD_TYPE": "Release",
                "TERSEWIRE_PYTHON": "ON", "TERSEWIRE_PYTHON_DIR": SITE_PACKAGES,
                "TERSEWIRE_SANITIZE": ""}
    return expected.items() <= found.items()


class BuildWithCMake(build_ext):
    def run(self):
        build = BUILT
        if is_for_this_python(build):
            self.say(f"compiling what is missing in {build}")
        else:
            build = ROOT / self.build_temp
            self.say(f"compiling the library and the extension in {build}, which takes minutes")
            self.cmake("-S", ROOT, "-B", build,
                       *[f"-D{name}={value}" for name, value in OPTIONS.items()])
        self.cmake("--build", build, "--target", "tersewire_python", "--parallel",
                   os.cpu_count() or 1)
        prefix = ROOT / self.build_temp / "prefix"
        self.cmake("--install", build, "--component", "python", "--prefix", prefix)
        self.copy_tree(str(prefix / SITE_PACKAGES), self.build_lib)

    def say(self, what):
        print(f"tersewire: {what}", flush=True)

    def cmake(self, *arguments):
        subprocess.run(["cmake", *map(str, arguments)], check=True)


setup(
    version=version(),
    # As text: pyproject.toml's form changed with setuptools 77.
    license="Apache-2.0",
    # CMake installs the Python files too.
    packages=[],
    ext_modules=[Extension("tersewire._core", sources=[])],
    cmdclass={"build_ext": BuildWithCMake},
    # Not build/, where the README has CMake build.
    options={"build": {"build_base": "build-python"}},
)
