"""The stubs, and what else is said twice, against the module itself."""

import ast
import inspect
import pathlib
import pickle
import re

import pytest

import tersewire
from support import ROOT
from tersewire import ErrorCode, _core

STUB = ast.parse(pathlib.Path(tersewire.__file__).with_name("_core.pyi").read_text())


def public(names):
    return {name for name in names if not name.startswith("_")}


def stub_arguments(function):
    """[(name, has a default, by name only)]"""
    spec = function.args
    positional = [a for a in spec.args if a.arg != "self"]
    required = len(positional) - len(spec.defaults)
    found = [(a.arg, place >= required, False) for place, a in enumerate(positional)]
    return found + [(a.arg, default is not None, True)
                    for a, default in zip(spec.kwonlyargs, spec.kw_defaults)]


def module_arguments(function):
    """The same from the signature that pybind11 puts on the first line of a docstring."""
    text = re.match(r"\w+\((.*)\) -> ", function.__doc__.splitlines()[0]).group(1)
    found, by_name = [], False
    for argument in re.split(r", (?=\w+:|\*)", text):
        if argument == "*":
            by_name = True
        elif argument and not argument.startswith("self:"):
            found.append((argument.split(":")[0], " = " in argument, by_name))
    return found


def check_function(stub, function):
    assert stub_arguments(stub) == module_arguments(function), stub.name
    if stub.name != "__init__":
        assert len(function.__doc__.splitlines()) > 1, f"{stub.name} has no docstring"


def check_class(stub, found):
    members = {node.name: node for node in stub.body}
    assert public(members) == public(dir(found)), stub.name
    for name, node in members.items():
        if node.decorator_list:
            assert isinstance(inspect.getattr_static(found, name), property), name
        elif name not in ("__buffer__", "__bytes__", "__len__"):
            check_function(node, getattr(found, name))
    assert found.__doc__


def test_the_stub_says_what_the_module_has():
    stubs = {node.name: node for node in STUB.body
             if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    assert public(stubs) == public(dir(_core))
    for name, node in stubs.items():
        check = check_class if isinstance(node, ast.ClassDef) else check_function
        check(node, getattr(_core, name))


def literals():
    """{name: what the stub's Literal of it lists}"""
    return {node.targets[0].id: ast.literal_eval(node.value.slice) for node in STUB.body
            if isinstance(node, ast.Assign) and getattr(node.value, "value", None)
            and getattr(node.value.value, "id", None) == "Literal"}


def listed(call):
    """The words of the sentence that refuses one."""
    with pytest.raises(tersewire.Error) as raised:
        call()
    return re.findall(r"[a-z]+", str(raised.value).split(";")[1])


def test_its_literals_are_what_there_is():
    found = literals()
    assert set(found) == {"_CodecName", "_TensorKind", "_MessageKind", "_DType"}
    names = {codec.name for codec in tersewire.codecs()}
    assert set(found["_CodecName"]) == names | {"levels", "contributors"}
    kinds = listed(lambda: tersewire.TensorInfo("t", (1,), "dence"))
    assert set(found["_TensorKind"]) == set(kinds) - {"use", "or"}
    messages = listed(lambda: tersewire.pack("puhs", []))
    assert set(found["_MessageKind"]) == set(messages) - {"use", "one", "of"}
    for dtype in found["_DType"]:
        payload = tersewire.Payload("fp32", bytes(4))
        assert tersewire.Frame(0, payload, shape=(1,), dtype=dtype).dtype == dtype


def test_the_package_names_all_of_it():
    ours = {"Error", "ErrorCode", "__version__"}
    assert set(tersewire.__all__) == public(dir(_core)) | ours
    assert all(hasattr(tersewire, name) for name in tersewire.__all__)
    assert pathlib.Path(tersewire.__file__).with_name("py.typed").is_file()


def test_the_error_codes_are_those_of_cpp():
    header = (ROOT / "include" / "tersewire" / "error.h").read_text()
    codes = {name: int(number) for name, number in re.findall(r"(k\w+) = (\d+),", header)}
    assert {code.name: code.value for code in ErrorCode} == codes


def test_errors_can_be_sent_to_other_processes():
    error = pickle.loads(pickle.dumps(tersewire.Error(15, "it is damaged")))
    assert error.code is ErrorCode.kDataLoss and str(error) == "it is damaged"
