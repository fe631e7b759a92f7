"""The package as it is installed, what it is built from, and the wheels' configuration."""

import importlib.metadata
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

import pytest

import tersewire
from support import ROOT
from tersewire import _core

PROJECT = (ROOT / "CMakeLists.txt").read_text()


def test_the_tested_package_is_the_installed_wheel():
    installed = importlib.metadata.distribution("tersewire")
    module = pathlib.Path(_core.__file__)
    assert module.is_relative_to(sys.prefix)
    assert module in [pathlib.Path(file.locate()) for file in installed.files]


def test_the_version_is_the_project_s():
    version = re.search(r"project\(tersewire VERSION (\S+)", PROJECT).group(1)
    assert tersewire.__version__ == version == importlib.metadata.version("tersewire")


def test_every_file_that_names_a_release_names_this_one():
    named = {(path.name, version) for folder in (".", "docs", "examples/kubernetes")
             for path in (ROOT / folder).iterdir() if path.suffix in (".md", ".yaml")
             for version in re.findall(r"tersewire[:-]([0-9]+\.[0-9.]+[0-9])", path.read_text())}
    assert {name for name, _ in named} >= {"README.md", "python.md", "job.yaml"}
    assert {version for _, version in named} == {tersewire.__version__}


def test_the_module_exports_nothing_but_its_entry():
    if not shutil.which("nm"):
        pytest.skip("there is no nm here (binutils)")
    lines = subprocess.run(["nm", "-D", "--defined-only", _core.__file__], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    assert [line.split()[-1] for line in lines] == ["PyInit__core"]


def test_missing_libraries_are_named_in_one_sentence(tmp_path):
    if not shutil.which("cmake"):
        pytest.skip("there is no cmake here")
    made = subprocess.run(
        ["cmake", "-S", ROOT, "-B", tmp_path, "-DTERSEWIRE_PYTHON=ON", "-DTERSEWIRE_GRPC=ON",
         *(f"-DTERSEWIRE_{part}=OFF" for part in ("APPS", "MPI", "NIC", "TESTS", "TRAINER")),
         "-DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_hwy=ON",
         "-DGRPC_LIBRARY=GRPC_LIBRARY-NOTFOUND", "-DGRPC_INCLUDE_DIR=no", "-DDLPACK_INCLUDE_DIR=no"],
        capture_output=True, text=True)
    assert made.returncode
    said = " ".join(made.stderr.split())
    assert ("Building tersewire needs Highway, fmt, DLPack's header, gRPC: install what is missing with "
            "'apt-get install libhwy-dev libfmt-dev libdlpack-dev libgrpc++-dev' or 'dnf install "
            "highway-devel fmt-devel dlpack-devel grpc-devel'.") in said
    assert said.count("CMake Error") == 1


def test_the_source_distribution_holds_what_the_package_is_built_from(tmp_path, monkeypatch):
    backend = pytest.importorskip("scikit_build_core.build")
    monkeypatch.chdir(ROOT)
    with tarfile.open(tmp_path / backend.build_sdist(str(tmp_path))) as archive:
        held = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    tops = {name.split("/")[0] for name in held}
    assert tops == {"CMakeLists.txt", "LICENSE", "PKG-INFO", "README.md", "include", "pyproject.toml",
                    "python", "src", "trainer"}
    for folder in ("include", "src", "python/tersewire"):
        files = {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*")
                 if path.is_file() and path.suffix not in (".pyc", ".so")}
        assert files and files <= held
    assert not any(name.startswith("python/tests") or name.endswith((".so", ".pyc")) for name in held)


def test_wheels_are_configured_for_four_pythons():
    pytest.importorskip("cibuildwheel")
    printed = subprocess.run(
        [sys.executable, "-m", "cibuildwheel", "--platform", "linux", "--archs", "x86_64 aarch64",
         "--print-build-identifiers", ROOT], check=True, capture_output=True, text=True).stdout
    assert printed.split() == [f"cp3{minor}-manylinux_{machine}" for machine in ("x86_64", "aarch64")
                               for minor in (10, 11, 12, 13)]


def test_the_workflow_of_the_wheels_calls_what_is_configured():
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "wheels.yml").read_text())
    steps = workflow["jobs"]["wheels"]["steps"]
    requirements = (ROOT / "python/tests/requirements-frameworks.txt").read_text()
    pinned = re.search(r"^cibuildwheel==(\S+);", requirements, re.M).group(1)
    assert [step["run"] for step in steps if "run" in step] == [
        f"python -m pip install cibuildwheel=={pinned}", "python -m cibuildwheel --output-dir dist"]
