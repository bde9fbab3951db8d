"""The rows that judges let through, taken out of tensors of every form."""

import numpy as np
import pytest

from forwardpass.core.tensor import Tensor, pack_bytes, unpack_bytes
from forwardpass.pipeline.guarding import picked_rows


@pytest.mark.parametrize("rows", [[0, 2], [1], [], [0, 1, 2]])
def test_rows_of_numbers_are_picked_as_numpy_picks_them(rows: list[int]) -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    found = picked_rows(Tensor("FP32", (3, 2, 2), values.tobytes()), rows)
    assert found.shape == (len(rows), 2, 2)
    assert bytes(found.data) == values[rows].tobytes()


def test_rows_of_texts_are_picked_with_those_that_are_missing() -> None:
    tensor = Tensor("BYTES", (3, 2), pack_bytes([b"a", b"bc", None, b"", b"d", b"efg"]))
    found = picked_rows(tensor, [1, 2])
    assert (found.shape, unpack_bytes(found.data, 4)) == ((2, 2), [None, b"", b"d", b"efg"])


def test_rows_of_unlike_shape_keep_their_shapes() -> None:
    tensor = Tensor("UINT8", (3, -1), bytes(range(6)), [(1,), (3,), (2,)])
    found = picked_rows(tensor, [0, 2])
    assert (found.shape, bytes(found.data), list(found.shapes)) == ((2, -1), bytes([0, 4, 5]), [(1,), (2,)])


def test_of_no_rows_there_are_none() -> None:
    assert picked_rows(Tensor("FP32", (0, 3), b""), []).shape == (0, 3)
