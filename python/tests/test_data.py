"""The embedded images and text: those of the C++ trainer."""

import hashlib

import numpy

import tersewire.data
from support import raises
from tersewire import ErrorCode


def fnv1a(*arrays):
    """As tests/trainer/trainer_data_test.cpp has it, whose numbers are below."""
    value = 0xCBF29CE484222325
    for array in arrays:
        for byte in array.flatten().tolist():
            value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def test_the_images_are_those_of_the_trainer():
    images, labels = tersewire.data.digits()
    assert images.shape == (20000, 28, 28) and images.dtype == numpy.uint8
    assert labels.shape == (20000,) and labels.dtype == numpy.int64
    assert labels[:16].tolist() == [7, 9, 6, 8, 3, 0, 2, 4, 1, 5, 3, 9, 8, 0, 7, 5]
    assert fnv1a(images[:16], labels[:16]) == 0xDE562B3021D86129


def test_the_test_has_the_images_after_those():
    train, _ = tersewire.data.digits()
    test, labels = tersewire.data.digits(train=False)
    assert len(test) == len(labels) == 4000
    # Of images for which the FNV-1a of both sets is that of the C++ test "WholeSetIsKnown".
    digest = hashlib.sha256(train.tobytes() + test.tobytes()).hexdigest()
    assert digest == "0298457e605c01295ea3ac2f2611139151f4c5c34d2c86d8da39fd800e2a682f"


def test_another_seed_gives_others():
    assert not numpy.array_equal(tersewire.data.digits(False, 2)[0],
                                 tersewire.data.digits(False, 3)[0])
    assert tersewire.data.text(seed=2) != tersewire.data.text(seed=3)


def test_the_arrays_are_the_caller_s():
    images, labels = tersewire.data.digits(train=False)
    images[0] = 0
    labels[0] = 0
    assert tersewire.data.digits(train=False)[0][0].any()


def test_the_text_is_that_of_the_trainer():
    text = tersewire.data.text()
    assert len(text) == 200000
    assert text.startswith("SAILOR:\nThose kettles of those little lamps come home.\n")
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert digest == "e54666a64456b177cc983f1b067dfff19c9da02273f614d682403ded2262277f"


def test_wrong_arguments_are_refused():
    for call in (tersewire.data.digits, tersewire.data.text):
        for seed in (-1, 2**64):
            assert "use one from 0" in raises(ErrorCode.kInvalidArgument, call, seed=seed)
