"""Rules: expressions over the fields, what they do to a row, and what is found wrong with them at load."""

import json
import math
from typing import Any

import numpy as np
import pytest

from forwardpass.core.errors import Code, Failed, Misconfigured, Refused
from forwardpass.core.pipeline import Batch as Batching
from forwardpass.core.pipeline import Field, Padding, Pipeline, Rule
from forwardpass.steps.protocol import Batch, Column, object_column
from forwardpass.steps.rules.ready import mistakes
from forwardpass.steps.rules.verdicts import prepare, withhold

KNOWN = {
    field.name: field
    for field in (
        Field("text", "BYTES", (), "text"),
        Field("tags", "BYTES", (), "texts"),
        Field("age", "FP64", (), "number"),
        Field("count", "INT64"),
        Field("sure", "BOOL"),
        Field("probabilities", "FP32", (3,)),
        Field("boxes", "FP32", (-1, 4), "ragged"),
        Field("odd-name", "FP32"),
        Field("photo", "UINT8", (-1, -1, 3), "ragged"),
        Field("sound", "BYTES", (), "audio"),
        Field("score", "FP32"),
        Field("label", "BYTES", (), "text"),
        Field("found", "BYTES", (), "json"),
    )
}
OUTPUTS = [KNOWN[name] for name in ("score", "label", "found", "count", "sure", "tags")]


def row(**given: Any) -> dict[str, Any]:
    return {
        "text": "hello", "tags": ["a", "b"], "age": 30.0, "count": 2, "sure": True, "probabilities": [0.2, 0.3, 0.5],
        "boxes": np.zeros((2, 4), np.float32), "odd-name": 4.0, "score": 0.5, "label": "cat",
        "found": [{"label": "dog", "score": 0.9}, {"label": "cat", "score": 0.1}], **given,
    }  # fmt: skip


def column(field: Field, values: list[Any]) -> Column:
    if field.datatype == "BYTES" or field.kind == "ragged":
        return object_column(values)
    return np.array(values, dtype={"FP32": "f4", "FP64": "f8", "INT64": "i8", "BOOL": "?"}[field.datatype])


def apply(rules: list[Rule], *rows: dict[str, Any], padded: bool = False) -> Batch:
    """A batch of these rows after the rules and the checks, of which there are none."""
    padding = Padding({"x": 0}) if padded else None
    run = prepare(Pipeline((), rules=tuple(rules), batch=Batching(padding=padding)), KNOWN, OUTPUTS)
    rows = rows or (row(),)
    columns = {name: column(KNOWN[name], [each[name] for each in rows]) for name in rows[0]}
    batch = Batch(columns, len(rows), list(range(len(rows))))
    run(batch)
    batch.settle()
    withhold(batch)
    return batch


def fires(when: str, **given: Any) -> bool:
    return bool(apply([Rule("r", when, flag="fired")], row(**given)).notes)


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("score < 1", True),
        ("score == 0.5 && label == 'cat'", True),
        ("count * 2 > 3", True),
        ("count / 4 == 0", True),
        ("sure", True),
        ("!sure || age < 18", False),
        ("text.startsWith('he') && text.size() == 5", True),
        ("text.matches('^h[a-l]+o$')", True),
        ("label in ['cat', 'dog']", True),
        ("'b' in tags && size(tags) == 2", True),
        ("probabilities[2] > 0.4", True),
        ("probabilities.all(p, p >= 0.2)", True),
        ("boxes.size() == 2 && boxes[0].size() == 4", True),
        ("found.exists(each, each.label == 'dog' && each.score > 0.8)", True),
        ("found.map(each, each.label) == ['dog', 'cat']", True),
        ("has(found[0].label) && !has(found[0].box)", True),
        ("fields['odd-name'] > 3 && fields.age == 30", True),
        ("timestamp('2024-02-29T00:00:00Z') < timestamp('2024-03-01T00:00:00Z')", True),
        ("type(score) == double && type(count) == int", True),
        ("true // 'fields' is no field here", True),
    ],
)
def test_an_expression_is_what_cel_says(when: str, expected: bool) -> None:
    assert fires(when) is expected


def test_a_float_is_compared_as_json_shows_it() -> None:
    assert float(np.float32(0.7)) < 0.7
    assert fires("score == 0.7 && score >= 0.7 && !(score < 0.7)", score=0.7)
    assert fires("probabilities[0] == 0.1", probabilities=[0.1, 0.2, 0.7])
    assert fires("probabilities[1] == 0.1 && probabilities[2] > 1e300", probabilities=[math.nan, 0.1, math.inf])


def test_what_is_missing_is_null() -> None:
    assert fires("age == null", age=math.nan)
    assert fires("label == null", label=None)
    assert fires("probabilities[1] == null", probabilities=[0.1, math.nan, 0.2])
    assert not fires("age != null && age < 18", age=math.nan)


def test_a_value_is_set_to_a_constant_or_an_expression() -> None:
    made = {"label": "unsure", "score": {"cel": "score * 0.5"}, "count": {"cel": "count + 1"}, "sure": False}
    made |= {"tags": ["x"], "found": {"why": [1, 2.5, "text"]}}
    batch = apply([Rule("r", "score < 0.6", set=made)], row(), row(score=0.7))
    outputs = {name: batch.columns[name].tolist() for name in made}
    assert [outputs[name][0] for name in made] == ["unsure", 0.25, 3, False, ["x"], {"why": [1, 2.5, "text"]}]
    assert [outputs[name][1] for name in made] == ["cat", np.float32(0.7), 2, True, ["a", "b"], row()["found"]]
    assert batch.columns["score"].dtype == np.float32
    assert batch.notes == [(0, "rule", {"rule": "r", "did": "set", "names": list(made)})]


def test_a_later_rule_sees_what_an_earlier_one_set_and_dropped() -> None:
    rules = [
        Rule("one", "score < 0.6", set={"label": "unsure", "count": 7}),
        Rule("two", "label == 'unsure' && count == 7", drop=("score", "found")),
        Rule("three", "score == null && found == null", flag="both are gone"),
        Rule("four", "score == null", set={"score": 1}),
        Rule("five", "score == 1", flag="and back"),
    ]
    batch = apply(rules)
    assert batch.columns["score"].tolist() == [1]
    assert [value["rule"] for _, _, value in batch.notes] == ["one", "two", "three", "four", "five"]


def test_what_a_rule_sets_it_does_not_see_itself() -> None:
    swap = {"label": {"cel": "text"}, "found": {"cel": "label"}}
    batch = apply([Rule("r", "true", set=swap)])
    assert [batch.columns["label"][0], batch.columns["found"][0]] == ["hello", "cat"]


def test_what_is_dropped_is_null_in_its_own_row_only() -> None:
    batch = apply([Rule("r", "score < 0.6", drop=("score", "label", "found", "tags"))], row(), row(score=0.75))
    assert [batch.columns[name][0] for name in ("label", "found", "tags")] == [None] * 3
    assert [batch.columns[name][1] for name in ("label", "found", "tags")] == ["cat", row()["found"], ["a", "b"]]
    assert math.isnan(batch.columns["score"][0])
    assert batch.columns["score"][1] == 0.75
    assert batch.notes == [(0, "rule", {"rule": "r", "did": "drop", "names": ["score", "label", "found", "tags"]})]


def test_a_flag_only_tells() -> None:
    before = row()
    batch = apply([Rule("r", "true", flag="look at this")], before)
    assert batch.notes == [(0, "rule", {"rule": "r", "did": "flag", "text": "look at this"})]
    assert [batch.columns["label"][0], batch.columns["found"][0]] == ["cat", before["found"]]


def test_a_refused_row_leaves_alone_and_meets_no_later_rule() -> None:
    rules = [Rule("children", "age < 18", refuse="not for children"), Rule("r", "true", flag="seen")]
    batch = apply(rules, row(age=7.0), row())
    assert isinstance(batch.failures[0], Refused)
    assert batch.failures[0].code is Code.RULE_REFUSED
    assert batch.failures[0].text == "children: not for children"
    assert [(place, value["did"]) for place, _, value in batch.notes] == [(1, "flag")]


@pytest.mark.parametrize(
    ("when", "given", "right", "why"),
    [
        ("age < 18", {"age": math.nan}, None, "null or of another type"),
        ("10 / (count - 2) > 1", {}, None, "division by zero"),
        ("count + 1 > 0", {"count": 2**63 - 1}, None, "too large"),
        ("found[5] == 'x'", {}, ["x"] * 6, "not there"),
        ("found.label == 'x'", {"found": {"secret": 1}}, {"label": "x"}, "not there"),
        ("found", {}, True, "neither true nor false"),
        ("int(text) > 1", {"text": "secret"}, None, "cannot be evaluated"),
    ],
)
def test_an_expression_without_a_value_fails_its_row_alone(
    when: str, given: dict[str, Any], right: Any, why: str
) -> None:
    other = row(count=5, age=5.0, text="12", found=right)
    batch = apply([Rule("r", when, flag="fired")], row(**given), other)
    failure = batch.failures[0]
    assert isinstance(failure, Failed)
    assert failure.code is Code.STEP_FAILED
    assert failure.text.startswith('the rule "r": ')
    assert why in failure.text
    assert "secret" not in failure.text
    assert [place for place, _, _ in batch.notes] == [1]


def test_what_does_not_fit_the_output_fails_the_row() -> None:
    batch = apply([Rule("r", "true", set={"label": {"cel": "found.x"}})], row(found={"x": 1}), row(found={"x": "y"}))
    assert batch.failures[0].text == 'the rule "r": what it sets is no text, where a text belongs'
    assert batch.columns["label"].tolist() == ["y"]


def test_a_rule_for_each_element_changes_or_removes_it() -> None:
    rules = [
        Rule("few", "score < 0.5", each="found", drop=True),
        Rule("rename", "label == 'dog' && age > 18 && text == 'hello'", each="found",
             set={"label": {"cel": "label + '!'"}, "why": "old enough"}),
    ]  # fmt: skip
    batch = apply(rules, row(), row(found=[]), row(found=None))
    assert batch.columns["found"].tolist() == [[{"label": "dog!", "score": 0.9, "why": "old enough"}], [], None]
    where = {"each": "found", "elements": 1}
    assert batch.notes == [
        (0, "rule", {"rule": "few", "did": "drop", **where}),
        (0, "rule", {"rule": "rename", "did": "set", "names": ["label", "why"], **where}),
    ]


def test_an_element_hides_the_field_of_its_name_and_lends_the_rest() -> None:
    found = [{"score": 0.1, "type": "x"}, {"type": "y"}, "bare"]
    rule = Rule("r", "score == 0.5 && element != 'bare' && type == 'y'", each="found", set={"seen": True})
    batch = apply([rule], row(found=found))
    assert batch.columns["found"][0] == [{"score": 0.1, "type": "x"}, {"type": "y", "seen": True}, "bare"]
    assert found[1] == {"type": "y"}, "what came in is not written to"


def test_a_key_that_an_element_has_not_is_null() -> None:
    batch = apply([Rule("r", "box == null && fields['odd-name'] == 4", each="found", flag="x")])
    assert batch.notes[0][2]["elements"] == 2


def test_one_element_refuses_the_whole_row() -> None:
    batch = apply([Rule("dogs", "label == 'dog'", each="found", refuse="no dogs")], row(), row(found=[]))
    assert list(batch.failures) == [0]
    assert batch.failures[0].text == "dogs: no dogs"


@pytest.mark.parametrize(("found", "why"), [({"a": 1}, "found is no list"), (["bare"], "has no keys to set")])
def test_what_is_no_list_of_objects_fails_its_row(found: Any, why: str) -> None:
    batch = apply([Rule("r", "true", each="found", set={"a": 1})], row(found=found))
    assert why in batch.failures[0].text


def test_a_list_with_too_many_elements_fails_its_row_alone() -> None:
    large = row(boxes=np.zeros((1025, 4), np.float32))
    batch = apply([Rule("r", "boxes.size() == 2", flag="x")], large, row())
    assert batch.failures[0].text == 'the rule "r": boxes has more than 4096 elements'
    assert [place for place, _, _ in batch.notes] == [1]


def test_a_row_is_judged_the_same_alone_and_among_others() -> None:
    rules = [Rule("r", "score * 3.0 > 0.3", set={"score": {"cel": "score / 3.0"}})]
    rows = [row(score=score) for score in (0.1, 0.2, math.inf, 0.7)]
    together = apply(rules, *rows).columns["score"]
    alone = [apply(rules, each).columns["score"] for each in rows if each["score"] != math.inf]
    assert b"".join(each.tobytes() for each in alone) == together.tobytes()


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (Rule("r", "scor < 1", flag="x"), "rules[0].when: no field that a rule can read is named 'scor'"),
        (Rule("r", "photo == null", flag="x"), "named 'photo'"),
        (Rule("r", "sound == null", flag="x"), "named 'sound'"),
        (Rule("r", "fields['nothing'] == 1", flag="x"), "named 'nothing'"),
        (Rule("r", "fields[label] == 1", flag="x"), "with the name written out"),
        (Rule("r", "score", flag="x"), "rules[0].when: it is neither true nor false"),
        (Rule("r", "score * 2 > 1", flag="x"), "rules[0].when: Unsupported operation: float * int"),
        (Rule("r", "score < 'a'", flag="x"), "rules[0].when: No such overload"),
        (Rule("r", "text.matches('(')", flag="x"), "invalid regular expression"),
        (Rule("r", "true", set={"nothing": 1}), "rules[0].set.nothing: no output is named 'nothing'"),
        (Rule("r", "true", set={"label": 1}), "rules[0].set.label: no text; a text"),
        (Rule("r", "true", set={"label": {"cel": "score"}}), "rules[0].set.label.cel: no text; a text"),
        (Rule("r", "true", set={"score": {"cel": "text"}}), "rules[0].set.score.cel: no such number"),
        (Rule("r", "true", set={"count": 1.5}), "rules[0].set.count: no such integer"),
        (Rule("r", "true", set={"count": 2**63}), "rules[0].set.count: no such integer"),
        (Rule("r", "true", set={"score": 1e300}), "rules[0].set.score: no such number"),
        (Rule("r", "true", set={"sure": 1}), "rules[0].set.sure: neither true nor false"),
        (Rule("r", "true", set={"tags": "a"}), "rules[0].set.tags: no list of texts"),
        (Rule("r", "true", drop=("label", "count")), "rules[0].drop[1]: count (INT64)"),
        (Rule("r", "true", drop=("nothing",)), "rules[0].drop[0]: no output is named 'nothing'"),
        (Rule("r", "true", each="label", drop=True), "rules[0].each: no JSON output is named 'label'"),
    ],
)
def test_what_cannot_work_is_found_at_load(rule: Rule, problem: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        apply([rule])
    assert problem in caught.value.text


def test_all_rules_that_are_wrong_are_told_at_once() -> None:
    with pytest.raises(Misconfigured) as caught:
        apply([Rule("a", "x"), Rule("b", "true", flag="x"), Rule("c", "y")])
    assert [problem.key for problem in caught.value.problems] == ["rules[0].when", "rules[2].when"]


def test_a_padded_field_is_no_ones_to_judge() -> None:
    known = {"x": Field("x", "FP32", (-1,))}
    definition = Pipeline((), rules=(Rule("r", "x[0] > 0.5", flag="x"),), batch=Batching(padding=Padding({"x": 0})))
    with pytest.raises(Misconfigured, match="named 'x'"):
        prepare(definition, known, list(known.values()))


def test_a_large_tensor_is_no_variable() -> None:
    known = {"x": Field("x", "FP32", (64, 65))}
    with pytest.raises(Misconfigured, match="named 'x'"):
        prepare(Pipeline((), rules=(Rule("r", "x == []", flag="x"),)), known, list(known.values()))


@pytest.mark.parametrize(
    ("rule", "key", "found"),
    [
        (Rule("r", "score <\n  1 +", flag="x"), "when", "at 2:6: mismatched input"),
        (Rule("r", "", flag="x"), "when", "0 characters"),
        (Rule("r", "1 == 1" + " " * 4096, flag="x"), "when", "4102 characters"),
        (Rule("r", "now() > 1", flag="x"), "when", "no function is named now"),
        (Rule("r", "true", set={"a": {"cel": "1 +"}}), "set.a.cel", "at 1:4"),
        (Rule("r", "true"), "", "it does nothing"),
        (Rule("r", "true", flag="x", refuse="y"), "refuse", "has other actions beside it"),
        (Rule("r", "true", each="a", drop=("b",)), "drop", "a list in a rule with each"),
        (Rule("r", "true", drop=True), "drop", "true in a rule without each"),
        (Rule("r", "true", each="a", drop=True, set={"b": 1}), "set", "has no effect"),
        (Rule("r", "true", set={"a": 1}, drop=("a",)), "drop[0]", "is set or dropped already"),
        (Rule("r", "true", drop=("a", "a")), "drop[1]", "is set or dropped already"),
    ],
)
def test_a_rules_own_mistakes_are_found_without_its_fields(rule: Rule, key: str, found: str) -> None:
    assert [(each[0], each[1][: len(found)]) for each in mistakes(rule)] == [(key, found)]


def test_without_the_library_loading_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cel", None)
    assert list(mistakes(Rule("r", "score < 1", flag="x"))) == []
    with pytest.raises(Misconfigured, match=r"pip install 'forwardpass\[rules\]'") as caught:
        apply([Rule("r", "score < 1", flag="x")])
    assert caught.value.code is Code.RUNTIME_MISSING


@pytest.mark.parametrize(
    "text", ["[" * 2048 + "]" * 2048, "(" * 2048 + ")" * 2048, "-" * 4095 + "1", "text" + ".a" * 2046, "true?" * 819]
)
def test_a_deeply_nested_expression_is_refused(text: str) -> None:
    with pytest.raises(Misconfigured):
        apply([Rule("r", text, flag="x")])


def test_notes_are_plain_values() -> None:
    batch = apply([Rule("r", "true", set={"label": "x"}, drop=("found",), flag="y")])
    assert json.loads(json.dumps(batch.notes))
