"""similarity, rank, nearest and item_vectors."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from forwardpass.core.errors import Code, Misconfigured, Refused
from forwardpass.core.pipeline import Field
from forwardpass.steps.protocol import object_column

if TYPE_CHECKING:
    from tests.steps.conftest import Run

QUERY = Field("query", "FP32", (2,))
VECTORS = Field("vectors", "FP32", (-1, 2), "ragged")
SCORES = Field("scores", "FP32", (-1,), "ragged")
TITLES = Field("titles", "BYTES", (), "texts")
SIMILAR = {"input": "query", "others": "vectors"}


def fp32(*rows: object) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    return np.array(rows, dtype=np.float32)


@pytest.mark.parametrize(
    ("metric", "scores"),
    [("cosine", [1, 0.6, 0, 0]), ("dot", [6, 6, 0, 0]), ("euclidean", [-1, -math.sqrt(17), -math.sqrt(8), -2])],
)
def test_a_vector_is_compared_with_each_of_a_list(run: "Run", metric: str, scores: list[float]) -> None:
    vectors = object_column([fp32([3, 0], [3, 4], [0, 2], [0, 0]), np.empty((0, 2), np.float32)])
    columns = run("similarity", {**SIMILAR, "metric": metric}, {QUERY: fp32([2, 0], [1, 1]), VECTORS: vectors}).columns
    assert columns["scores"][0].tolist() == pytest.approx(scores, rel=1e-6)
    assert columns["scores"][1].tolist() == []
    assert columns["scores"][0].dtype == np.float32


def test_a_tensor_of_vectors_is_such_a_list(run: "Run") -> None:
    columns = run(
        "similarity", SIMILAR, {QUERY: fp32([1, 0]), Field("vectors", "FP32", (2, 2)): fp32([[1, 0], [0, 1]])}
    )
    assert columns.columns["scores"][0].tolist() == [1, 0]


def test_vectors_of_another_size_are_found_at_load_or_fail_their_row(run: "Run") -> None:
    three = fp32([[1, 2, 3]])
    with pytest.raises(Misconfigured, match="vectors of size 2"):
        run("similarity", SIMILAR, {QUERY: fp32([1, 0]), Field("vectors", "FP32", (1, 3)): three})
    free = Field("vectors", "FP32", (-1, -1), "ragged")
    batch = run("similarity", SIMILAR, {QUERY: fp32([1, 0], [1, 0]), free: object_column([three[0], fp32([2, 0])])})
    assert batch.failures[0].text == "vectors: holds vectors of size 3; query has 2 numbers"
    assert batch.columns["scores"][0].tolist() == [1]


def test_the_best_come_first_with_their_fields_and_ties_by_the_lower_index(run: "Run") -> None:
    columns = {SCORES: object_column([fp32(0.1, 0.9, 0.5, 0.9)]), TITLES: object_column([["a", "b", "c", "d"]])}
    assert run("rank", {"fields": ["titles"], "top": 3}, columns).columns["ranking"][0] == [
        {"index": 1, "score": 0.9, "titles": "b"},
        {"index": 3, "score": 0.9, "titles": "d"},
        {"index": 2, "score": 0.5, "titles": "c"},
    ]


def test_what_is_below_the_least_score_does_not_come_back(run: "Run") -> None:
    batch = run("rank", {"score_min": 0.7}, {SCORES: object_column([fp32(0.7, 0.69), fp32(0.1)])})
    assert batch.columns["ranking"].tolist() == [[{"index": 0, "score": 0.7}], []]


def test_scores_are_compared_and_shown_in_their_own_precision(run: "Run") -> None:
    exact = Field("scores", "FP64", (2,))
    batch = run("rank", {"score_min": 0.7}, {exact: np.array([[0.69999999, 0.7000000001]])})
    assert batch.columns["ranking"][0] == [{"index": 1, "score": 0.7000000001}]


def test_boxes_and_json_come_along_as_plain_values(run: "Run") -> None:
    columns = {
        SCORES: object_column([fp32(0.5)]),
        Field("boxes", "FP32", (-1, 4), "ragged"): object_column([fp32([0.1, 2, 3, 4])]),
        Field("details", "BYTES", (), "json"): object_column([[{"a": 1}]]),
        Field("counts", "INT64", (1,)): np.array([[7]]),
    }
    batch = run("rank", {"fields": ["boxes", "details", "counts"]}, columns)
    ranking = batch.columns["ranking"][0]
    assert ranking == [{"index": 0, "score": 0.5, "boxes": [0.1, 2, 3, 4], "details": {"a": 1}, "counts": 7}]
    assert json.loads(json.dumps(ranking)) == ranking


@pytest.mark.parametrize("seed", range(5))
def test_the_top_few_are_the_head_of_all_in_order(run: "Run", seed: int) -> None:
    scores = np.random.default_rng(seed).integers(0, 4, 30).astype(np.float32)
    expected = sorted(range(30), key=lambda place: (-scores[place], place))
    for top in (1, 7, 29, 30, 31):
        ranking = run("rank", {"top": top}, {SCORES: object_column([scores])}).columns["ranking"][0]
        assert [each["index"] for each in ranking] == expected[:top]


def test_rows_whose_lists_do_not_fit_fail_alone(run: "Run") -> None:
    scores = object_column([fp32(1, 2), fp32(math.nan), fp32(1)])
    batch = run("rank", {"fields": ["titles"]}, {SCORES: scores, TITLES: object_column([["a"], ["a"], ["a"]])})
    assert batch.failures[0].text == "titles: has 1 elements; scores has 2"
    assert batch.failures[0].code is Code.BAD_OUTPUT_SHAPE
    assert batch.failures[1].code is Code.NON_FINITE_OUTPUT
    assert len(batch.columns["ranking"]) == 1


def test_of_what_does_not_fit_the_callers_own_is_refused(run: "Run") -> None:
    sent = replace(QUERY, shape=(-1,), given=True)
    batch = run("similarity", SIMILAR, {sent: fp32([1, 0, 0]), VECTORS: object_column([fp32([1, 0])])})
    assert isinstance(batch.failures[0], Refused)
    assert (batch.failures[0].code, batch.failures[0].field) == (Code.SHAPE_MISMATCH, "query")
    assert batch.failures[0].text == "query: has 3 numbers; vectors holds vectors of size 2"
    texts = replace(TITLES, given=True)
    batch = run("rank", {"fields": ["titles"]}, {SCORES: object_column([fp32(1, 2)]), texts: object_column([["a"]])})
    assert (batch.failures[0].code, batch.failures[0].field) == (Code.SHAPE_MISMATCH, "titles")


def test_a_field_cannot_have_a_name_that_every_object_has(run: "Run") -> None:
    with pytest.raises(Misconfigured, match="another name than index and score"):
        run("rank", {"fields": ["score"]}, {SCORES: object_column([fp32(1)])})


CATALOGUE = {"vectors": "vectors.npy", "items": "items.jsonl"}
ITEMS = [{"id": "a", "price": 1}, {"id": "b", "price": 2}, {"id": "c", "price": 3}, {"id": "d", "price": 4}]
LIKED = Field("liked", "BYTES", (), "texts")


def write_catalogue(folder: Path, vectors: Any = ((2, 0), (0, 5), (4, 0), (0, 0)), items: Any = ITEMS) -> Path:
    np.save(folder / "vectors.npy", np.array(vectors, dtype=np.float32))
    (folder / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    return folder


def test_the_nearest_items_come_back_with_their_scores(run: "Run", tmp_path: Path) -> None:
    batch = run("nearest", {**CATALOGUE, "top": 3}, {QUERY: fp32([3, 4], [1, 0])}, write_catalogue(tmp_path))
    assert batch.columns["nearest"].tolist() == [
        [{**ITEMS[1], "score": 0.8}, {**ITEMS[0], "score": 0.6}, {**ITEMS[2], "score": 0.6}],
        [{**ITEMS[0], "score": 1}, {**ITEMS[2], "score": 1}, {**ITEMS[1], "score": 0}],
    ]


def test_items_can_be_compared_by_product_and_cut_by_score(run: "Run", tmp_path: Path) -> None:
    options = {**CATALOGUE, "metric": "dot", "score_min": 6, "score": "match"}
    batch = run("nearest", options, {QUERY: fp32([3, 4])}, write_catalogue(tmp_path))
    assert [(item["id"], item["match"]) for item in batch.columns["nearest"][0]] == [("b", 20), ("c", 12), ("a", 6)]


def test_excluded_items_do_not_come_back(run: "Run", tmp_path: Path) -> None:
    columns = {QUERY: fp32([1, 0], [1, 0]), LIKED: object_column([["a", "unknown", "d"], []])}
    batch = run("nearest", {**CATALOGUE, "exclude": "liked"}, columns, write_catalogue(tmp_path))
    assert [[item["id"] for item in items] for items in batch.columns["nearest"]] == [["c", "b"], ["a", "c", "b", "d"]]


def test_the_key_of_ids_has_any_name_and_a_category_may_be_missing(run: "Run", tmp_path: Path) -> None:
    write_catalogue(tmp_path, items=[{"sku": name} for name in "abcd"])
    columns = {QUERY: fp32([1, 0], [1, 0]), Field("seen", "BYTES", (), "category"): object_column(["a", None])}
    batch = run("nearest", {**CATALOGUE, "exclude": "seen", "id": "sku", "top": 1}, columns, tmp_path)
    assert [items[0]["sku"] for items in batch.columns["nearest"]] == ["c", "a"]


def test_an_answer_is_the_same_to_the_bit_whoever_else_asks(run: "Run", tmp_path: Path) -> None:
    chance = np.random.default_rng(3)
    write_catalogue(tmp_path, chance.standard_normal((300, 37)), [{"id": str(place)} for place in range(300)])
    field, queries = Field("query", "FP32", (37,)), chance.standard_normal((9, 37)).astype(np.float32)
    together = run("nearest", CATALOGUE, {field: queries}, tmp_path).columns["nearest"]
    alone = [run("nearest", CATALOGUE, {field: queries[[row]]}, tmp_path).columns["nearest"][0] for row in range(9)]
    assert together.tolist() == alone


def test_a_query_that_is_no_vector_fails_alone(run: "Run", tmp_path: Path) -> None:
    queries = fp32([math.nan, 1], [1, 0], [math.inf, 1])
    batch = run("nearest", CATALOGUE, {QUERY: queries}, write_catalogue(tmp_path))
    assert batch.failures[0].code is Code.NON_FINITE_OUTPUT
    assert sorted(batch.failures) == [0, 2]
    assert len(batch.columns["nearest"]) == 1


def test_vectors_of_any_length_have_a_cosine(run: "Run", tmp_path: Path) -> None:
    write_catalogue(tmp_path, [(1e-40, 0), (1e38, 1e38), (0, 0)], ITEMS[:3])
    batch = run("nearest", CATALOGUE, {QUERY: fp32([3e38, 0])}, tmp_path)
    scores = [item["score"] for item in batch.columns["nearest"][0]]
    assert scores == pytest.approx([1, math.sqrt(0.5), 0], rel=1e-3)


@pytest.mark.parametrize(
    ("vectors", "items", "match"),
    [
        (((1, 2, 3),), [{"id": "a"}], "vectors of size 3; 2, the size of query"),
        (((1, 2),), ITEMS, r"items\.jsonl: 4 items; 1, the number of vectors"),
        (((1, math.inf),), [{"id": "a"}], "not finite"),
        ((1, 2), [{"id": "a"}, {"id": "b"}], "row-major"),
        (((1, 2),), [3], r"items\.jsonl: line 1: 3; one JSON object a line"),
        (((1, 2),), [{"id": "a", "score": 1}], "has a key score"),
        (((1, 2),), [{"id": 3}], "line 1: id is 3, no text"),
        (((1, 2), (1, 2)), [{"id": "a"}, {"id": "a"}], "line 2: id is a, which another item has"),
    ],
)
def test_a_catalogue_that_does_not_fit_is_found_at_load(
    run: "Run", tmp_path: Path, vectors: Any, items: Any, match: str
) -> None:
    write_catalogue(tmp_path, vectors, items)
    columns = {QUERY: fp32([1, 0]), LIKED: object_column([["a"]])}
    with pytest.raises(Misconfigured, match=match):
        run("nearest", {**CATALOGUE, "exclude": "liked"}, columns, tmp_path)


@pytest.mark.parametrize("data", [b"", b"\x93NUMPY", b"no array", b"\x93NUMPY\x01\x00\x02\x00[]"])
def test_a_file_that_is_no_array_is_the_operators_fault(run: "Run", tmp_path: Path, data: bytes) -> None:
    (write_catalogue(tmp_path) / "vectors.npy").write_bytes(data)
    with pytest.raises(Misconfigured, match=r"vectors\.npy: not a \.npy file that can be read"):
        run("nearest", CATALOGUE, {QUERY: fp32([1, 0])}, tmp_path)


def test_an_array_of_objects_or_cut_short_is_not_read(run: "Run", tmp_path: Path) -> None:
    write_catalogue(tmp_path)
    whole = (tmp_path / "vectors.npy").read_bytes()
    np.save(tmp_path / "objects.npy", object_column([1, "a"]), allow_pickle=True)
    for data in ((tmp_path / "objects.npy").read_bytes(), whole[:-1]):
        (tmp_path / "vectors.npy").write_bytes(data)
        with pytest.raises(Misconfigured, match=r"not a \.npy file that can be read"):
            run("nearest", CATALOGUE, {QUERY: fp32([1, 0])}, tmp_path)


def test_what_somebody_likes_becomes_the_mean_of_its_vectors(run: "Run", tmp_path: Path) -> None:
    liked = object_column([["a", "b"], ["c"], ["a", "a", "d"]])
    columns = run("item_vectors", CATALOGUE, {LIKED: liked}, write_catalogue(tmp_path)).columns
    assert columns["embedding"].tolist() == [[1, 2.5], [4, 0], [pytest.approx(4 / 3), 0]]
    assert columns["embedding"].dtype == np.float32


def test_an_id_the_catalogue_lacks_is_refused_by_name(run: "Run", tmp_path: Path) -> None:
    liked = object_column([["a", "zz"], [], ["a"]])
    batch = run("item_vectors", CATALOGUE, {LIKED: liked}, write_catalogue(tmp_path))
    assert batch.failures[0].text == "liked: there is no item zz"
    assert batch.failures[1].text == "liked: names no item"
    assert batch.columns["embedding"].tolist() == [[2, 0]]


def test_a_missing_id_is_asked_for(run: "Run", tmp_path: Path) -> None:
    field = Field("item", "BYTES", (), "category")
    batch = run("item_vectors", CATALOGUE, {field: object_column([None])}, write_catalogue(tmp_path))
    assert batch.failures[0].code is Code.MISSING_FIELD
