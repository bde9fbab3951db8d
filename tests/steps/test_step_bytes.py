"""byte_windows makes the features that the file-type model was trained on."""

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import pytest

from forwardpass.core.errors import Code
from forwardpass.core.pipeline import Field

if TYPE_CHECKING:
    from tests.steps.conftest import Run

CONTENT = Field("content", "BYTES", (), "bytes")

# value -> (how many places are no padding, sha256 of the little-endian INT32 vector): made with magika 1.0.3
MAGIKA = {
    b"  \r\n#!/bin/sh\necho hi\n\x0b\x0c \t": (43, "ce15aa0027457115"),
    b"a b\n" * 300: (2048, "3497f5bc8c009ecc"),
    bytes(range(256)) * 40: (2048, "901da7bde2e794ff"),
    b" " * 100 + b"x" * 5000 + b"\n" * 200 + b"y" * 3000 + b" \n" * 50: (2048, "3c184f0851c0c0e7"),
    b"\x85\xa0\x1c\x1f12345678\x00 \x00": (30, "fefae221c5bf70ee"),
    b"\n" + bytes(i % 251 for i in range(4094)) + b" ": (2048, "9681ab09314c6e2b"),
    b"head of it" + b" " * 5000: (1024, "6e00bc959a219c7f"),
    b"12345678": (16, "bfb16ef82c2ed863"),
}


def test_windows_equal_magikas_own(run: "Run") -> None:
    windows = run("byte_windows", {}, {CONTENT: list(MAGIKA)}).columns["bytes"]
    assert windows.dtype == np.int32
    for window, (filled, digest) in zip(windows, MAGIKA.values(), strict=True):
        assert (window != 256).sum() == filled
        assert hashlib.sha256(window.astype("<i4").tobytes()).hexdigest()[:16] == digest


def test_short_values_are_padded_behind_and_in_front(run: "Run") -> None:
    options = {"first": 4, "last": 5, "pad": -1, "bytes_min": 2}
    assert run("byte_windows", options, {CONTENT: [b" ab "]}).columns["bytes"].tolist() == [
        [97, 98, 32, -1, -1, -1, 32, 97, 98]
    ]


def test_without_strip_white_space_counts(run: "Run") -> None:
    options = {"first": 2, "last": 2, "strip": False, "bytes_min": 0}
    assert run("byte_windows", options, {CONTENT: [b" a ", b""]}).columns["bytes"].tolist() == [
        [32, 97, 97, 32],
        [256, 256, 256, 256],
    ]


@pytest.mark.parametrize("options", [{"first": 0, "last": 3}, {"first": 3, "last": 0}])
def test_one_window_can_be_left_out(run: "Run", options: dict[str, int]) -> None:
    assert run("byte_windows", {**options, "bytes_min": 1}, {CONTENT: [b"abc"]}).columns["bytes"].tolist() == [
        [97, 98, 99]
    ]


def test_a_value_too_short_or_missing_fails_alone(run: "Run") -> None:
    batch = run("byte_windows", {}, {CONTENT: [b"12345678", b"   1234567", None, b" " * 5000]})
    assert {row: failure.code for row, failure in batch.failures.items()} == {
        1: Code.INVALID_INPUT,
        2: Code.MISSING_FIELD,
        3: Code.INVALID_INPUT,
    }
    assert batch.columns["bytes"][0, :8].tolist() == list(b"12345678")
    assert batch.failures[3].text == "content: has 0 bytes without white space; at least 8 are needed"
