import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forwardpass.core.errors import Code, Misconfigured, Problem
from forwardpass.core.pipeline import (
    Batch,
    Checks,
    Golden,
    Input,
    Padding,
    Pipeline,
    Queue,
    Rule,
    Step,
    Workers,
)
from forwardpass.pipeline import definition
from forwardpass.steps.protocol import StepKind

Kinds = Mapping[str, StepKind]

MODEL = """
[[steps]]
use = "model"
engine = "onnxruntime"
file = "model.onnx"
"""
MODEL_STEP = Step("model", {"engine": "onnxruntime", "file": "model.onnx"})
TENSOR = '[[inputs]]\nname = "x"\ntype = "tensor"\ndatatype = "FP32"\nshape = [2]\n'
GROWING = '[[inputs]]\nname = "ids"\ntype = "tensor"\ndatatype = "INT64"\nshape = [-1]\n'


def parse(text: str, folder: Path, kinds: Kinds) -> Pipeline:
    return definition.parse(text, file="pipeline.toml", folder=folder, kinds=kinds)


def problems(text: str, folder: Path, kinds: Kinds, code: Code = Code.DEFINITION_INVALID) -> tuple[Problem, ...]:
    with pytest.raises(Misconfigured) as caught:
        parse(text, folder, kinds)
    assert caught.value.code == code
    return caught.value.problems


def places(text: str, folder: Path, kinds: Kinds) -> list[tuple[str, int | None]]:
    return [(problem.key, problem.line) for problem in problems(text, folder, kinds)]


def test_every_section_is_read(model_folder: Path, step_kinds: Kinds) -> None:
    text = f"""
description = "adds"
outputs = ["label", "score"]
{TENSOR}{MODEL}
[[steps]]
use = "softmax"
[[steps]]
use = "labels"
file = "labels.txt"
[checks]
range = {{ score = [0, 1.0] }}
[[rules]]
name = "unsure"
when = "score < 0.6"
set = {{ label = "unsure", score = {{ cel = "score * 0.5" }} }}
flag = "look at it"
[batch]
rows_max = 64
wait_ms = 2
[queue]
wait_max_s = 5
[workers]
count = 2
[[golden]]
request = {{ x = [1.0, 2.0] }}
expect = {{ label = "yes" }}
tolerance = 0.01
"""
    assert parse(text, model_folder, step_kinds) == Pipeline(
        description="adds",
        outputs=("label", "score"),
        inputs=(Input("x", "tensor", datatype="FP32", shape=(2,)),),
        steps=(MODEL_STEP, Step("softmax"), Step("labels", {"file": "labels.txt"})),
        rules=(
            Rule("unsure", "score < 0.6", set={"label": "unsure", "score": {"cel": "score * 0.5"}}, flag="look at it"),
        ),
        checks=Checks(range={"score": (0.0, 1.0)}),
        batch=Batch(rows_max=64, wait_ms=2.0),
        queue=Queue(wait_max_s=5.0),
        workers=Workers(count=2),
        golden=(Golden({"x": [1.0, 2.0]}, {"label": "yes"}, 0.01),),
    )


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("descripton = 'x'" + MODEL, "descripton", 1),
        ("[[rule]]\nname = 'unsure'\n" + MODEL, "rule", 1),
        ("[[rules]]\nname = 'unsure'\n" + MODEL, "rules[0].when", 1),
        (MODEL + "[[rules]]\nname = 'r'\nwhen = 'true'", "rules[0]", 6),
        (MODEL + "[[rules]]\nname = 'r'\nwhen = 'a <'\nflag = 'x'", "rules[0].when", 8),
        (MODEL + "[[rules]]\nname = 'r'\nwhen = 'true'\nflag = ''", "rules[0].flag", 9),
        (MODEL + "[[rules]]\nname = 'r'\nwhen = 'true'\ndrop = false", "rules[0].drop", 9),
        (MODEL + "[[rules]]\nname = 'r'\nwhen = 'true'\nset = { y = { cel = '(' } }", "rules[0].set.y.cel", 9),
        ("outputs = ['y']" + MODEL + "[[rules]]\nname = 'r'\nwhen = 'true'\ndrop = ['z']", "rules[0].drop[0]", 9),
        ("outputs = ['y']" + MODEL + "[[rules]]\nname = 'r'\nwhen = 'true'\nset = { z = 1 }", "rules[0].set.z", 9),
        (
            "outputs = ['y']" + MODEL + "[[rules]]\nname = 'r'\nwhen = 'true'\neach = 'z'\ndrop = true",
            "rules[0].each",
            9,
        ),
        ("[slo]\np99_ms = 50\n" + MODEL, "slo", 1),
        ("description = 3" + MODEL, "description", 1),
        (MODEL + "[batch]\nrows_max = 0", "batch.rows_max", 7),
        (MODEL + "[batch]\nrows_max = 65_537", "batch.rows_max", 7),
        (MODEL + "[batch]\nrows_max = true", "batch.rows_max", 7),
        (MODEL + "[batch]\nwait_ms = -1", "batch.wait_ms", 7),
        (MODEL + "[batch]\nwait_ms = 1001", "batch.wait_ms", 7),
        (MODEL + "[batch]\nwait_ms = nan", "batch.wait_ms", 7),
        (MODEL + "[batch]\nrows = 1", "batch.rows", 7),
        (MODEL + "[batch]\nenabled = false\ntolerance = 0", "batch.tolerance", 8),
        (MODEL + "[batch]\ncost_max = 10", "batch.cost_max", 7),
        (MODEL + "[batch]\ncost = 'bytes'", "batch.cost", 7),
        (MODEL + "[batch]\ncost = 'byte'\ncost_max = 4", "batch.cost", 7),
        (MODEL + "[batch]\nbuckets_bytes = [10, 20]", "batch.buckets_bytes", 7),
        (MODEL + "[batch]\nrows_max = 64\n[queue]\nrows_max = 32", "batch.rows_max", 7),
        (MODEL + "[batch.padding]\nbuckets = [8, 16]", "batch.padding.fields", 6),
        (MODEL + "[batch.padding]\nfields = {}", "batch.padding.fields", 7),
        (GROWING + MODEL + "[batch.padding]\nfields = { ids = 0 }\nbuckets = [16, 8]", "batch.padding.buckets", 13),
        (TENSOR + MODEL + "[batch.padding]\nfields = { x = 0 }", "batch.padding.fields.x", 12),
        (MODEL + "[queue]\nwait_max_s = 0", "queue.wait_max_s", 7),
        (MODEL + "[workers]\ncount = -1", "workers.count", 7),
        (MODEL + "[checks]\nrange = { score = [1.0, 0.0] }", "checks.range.score", 7),
        ("outputs = ['y']" + MODEL + "[checks]\n\nrange = { z = [0, 1] }", "checks.range.z", 8),
        ("outputs = ['y', 'y']" + MODEL, "outputs[1]", 1),
        (TENSOR + "[[inputs]]\nname = 'x'\ntype = 'text'" + MODEL, "inputs[1].name", 7),
        ("[[inputs]]\nname = 'x'\ntype = 'txt'" + MODEL, "inputs[0].type", 3),
        ("[[inputs]]\ntype = 'text'" + MODEL, "inputs[0].name", 1),
        ("[[inputs]]\nname = 'x'\ntype = 'text'\nmin = 1" + MODEL, "inputs[0].min", 4),
        ("[[inputs]]\nname = 'x'\ntype = 'text'\ncolumns = { a = 'number' }" + MODEL, "inputs[0].columns", 4),
        ("[[inputs]]\nname = 'x'\ntype = 'record'" + MODEL, "inputs[0].columns", 1),
        ("[[inputs]]\nname = 'x'\ntype = 'tensor'" + MODEL, "inputs[0].datatype", 1),
        (TENSOR + "missing = true" + MODEL, "inputs[0].missing", 6),
        ("[[inputs]]\nname = 'x'\ntype = 'number'\nmin = 2\nmax = 1" + MODEL, "inputs[0].min", 4),
        ("[[inputs]]\nname = 'x'\ntype = 'text'\nbytes_min = 2\nbytes_max = 1" + MODEL, "inputs[0].bytes_min", 4),
        ("[[inputs]]\nname = 'x'\ntype = 'text'\nbytes_min = 1048577" + MODEL, "inputs[0].bytes_min", 4),
        ("[[inputs]]\nname = 'x'\ntype = 'tensor'\ndatatype = 'FP31'" + MODEL, "inputs[0].datatype", 4),
        ("description = 'x'", "steps", None),
        ("steps = [3]", "steps[0].use", 1),
        ("[[steps]]\nuse = 3", "steps[0].use", 2),
        ("batch = 3" + MODEL, "batch", 1),
        ("outputs = 'y'" + MODEL, "outputs", 1),
        ("checks = { finite = 1 }" + MODEL, "checks.finite", 1),
        ("checks = { range = 1 }" + MODEL, "checks.range", 1),
        (MODEL + "[checks.range]\n'' = [0, 1]", 'checks.range.""', 7),
        (MODEL + "[checks.range]\ny = [0]", "checks.range.y", 7),
        (MODEL + "[checks.range]\ny = [0, 'z']", "checks.range.y[1]", 7),
        (
            "[[inputs]]\nname = 'x'\ntype = 'text'\n" + MODEL + "[batch]\nbuckets_bytes = [9, 9]",
            "batch.buckets_bytes",
            10,
        ),
        ("outputs = ['y']" + MODEL + "[[golden]]\nrequest = { x = 1 }\nexpect = { z = 1 }", "golden[0].expect.z", 8),
        (MODEL + "[[golden]]\nrequest = 1\nexpect = { z = 1 }", "golden[0].request", 7),
        (TENSOR.replace("[2]", str([1] * 16)) + MODEL, "inputs[0].shape", 5),
        (MODEL + "[files]\n" + "\n".join(f"f{n} = ''" for n in range(10_001)), "files", 6),
        (MODEL + "[[steps]]\nuse = 'softmaxx'", "steps[1].use", 7),
        (MODEL + "[[steps]]\nuse = 'steps:f'\noutput = 'z'\ndatatype = 'FP32'", "steps[1].use", 7),
        (MODEL + "[[steps]]\nuse = 'steps:_f'", "steps[1].use", 7),
        (MODEL + "[[steps]]\nuse = 'labels'\nfile = 'none.txt'", "steps[1].file", 8),
        (MODEL + "[[steps]]\nuse = 'labels'\nfile = '../labels.txt'", "steps[1].file", 8),
        (MODEL + "[[steps]]\nuse = 'labels'\nfile = '/etc/passwd'", "steps[1].file", 8),
        (MODEL + "[[steps]]\nuse = 'nearest'\nvectors = 'v.npy'\nitems = 'labels.txt'", "steps[1].vectors", 8),
        (MODEL + "[[steps]]\nuse = 'labels'\nfile = 'labels.txt'\ntop = 0", "steps[1].top", 9),
        (MODEL + "[[steps]]\nuse = 'labels'\nfile = 'labels.txt'\ntopp = 1", "steps[1].topp", 9),
        (MODEL + "[[steps]]\nuse = 'softmax'\ninput = 1979-05-27", "steps[1].input", 8),
        (MODEL.replace("model.onnx", "labels.txt"), "steps[0].file", 5),
        (TENSOR + MODEL + "[[golden]]\nrequest = { z = 1 }\nexpect = { y = 1 }", "golden[0].request.z", 12),
        (MODEL + "[[golden]]\nrequest = { x = 1 }", "golden[0].expect", 6),
        (MODEL + "[[golden]]\nrequest = { x = nan }\nexpect = { y = 1 }", "golden[0].request.x", 7),
        (MODEL + "[files]\n'model.onnx' = 'md5:0'", 'files."model.onnx"', 7),
        (MODEL + "[files]\n'none.bin' = 'sha256:" + "0" * 64 + "'", 'files."none.bin"', 7),
    ],
)
def test_a_mistake_is_named_with_its_key_and_line(
    text: str, key: str, line: int | None, model_folder: Path, step_kinds: Kinds
) -> None:
    assert places(text, model_folder, step_kinds) == [(key, line)]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = 1\nb = = 2\n", 2),
        ("description = 'x'\ndescription = 'y'\n", 2),
        ("[batch]\nrows_max = 1\n\n[batch]\n", 4),
        ("a = [1,\n2\n", 2),
        ("a = " + "9" * 5000, None),
        ("a = " + "[" * 10_000, None),
        ("a = '" + "x" * definition.DEFINITION_BYTES_MAX + "'", None),
    ],
)
def test_what_is_no_toml_is_named_with_its_line(
    text: str, line: int | None, model_folder: Path, step_kinds: Kinds
) -> None:
    (problem,) = problems(text, model_folder, step_kinds)
    assert problem.found.startswith("not valid TOML") and problem.line == line


def test_all_mistakes_are_told_at_once_in_the_order_of_their_lines(model_folder: Path, step_kinds: Kinds) -> None:
    text = (
        "[batch]\nrows_max = 0\nbogus = 1\n[[inputs]]\nname = 'x'\ntype = 'text'\nmax = 1\n[[steps]]\nuse = 'nothing'\n"
    )
    assert places(text, model_folder, step_kinds) == [
        ("batch.rows_max", 2),
        ("batch.bogus", 3),
        ("inputs[0].max", 7),
        ("steps[0].use", 9),
    ]


def test_an_unknown_key_is_told_the_likely_one_and_all_that_are_allowed(model_folder: Path, step_kinds: Kinds) -> None:
    (problem,) = problems(MODEL + "[queue]\nrow_max = 3", model_folder, step_kinds)
    assert str(problem) == (
        'pipeline.toml:7: queue.row_max: unknown key; did you mean "rows_max"? allowed: rows_max, bytes_max, wait_max_s'
    )


def test_endless_mistakes_are_cut(model_folder: Path, step_kinds: Kinds) -> None:
    text = "\n".join(f"key{number} = 1" for number in range(300)) + MODEL
    found = problems(text, model_folder, step_kinds)
    assert len(found) == definition.PROBLEMS_MAX + 1 and found[-1].found == "200 more problems"


def test_columns_of_a_record_count_as_names_of_inputs(model_folder: Path, step_kinds: Kinds) -> None:
    record = "[[inputs]]\nname = '{}'\ntype = 'record'\ncolumns = {{ age = 'number' }}\n"
    text = record.format("age") + record.format("other") + MODEL
    assert places(text, model_folder, step_kinds) == [
        ("inputs[0].columns", 4),
        ("inputs[1].type", 7),
        ("inputs[1].columns", 8),
    ]


def test_a_number_input_can_be_the_cost(model_folder: Path, step_kinds: Kinds) -> None:
    text = "[[inputs]]\nname = 'price'\ntype = 'number'\n" + MODEL + "[batch]\ncost = 'price'\ncost_max = 5"
    assert parse(text, model_folder, step_kinds).batch.cost == "price"


def test_a_linked_file_is_refused(model_folder: Path, step_kinds: Kinds) -> None:
    (model_folder / "linked.txt").symlink_to("labels.txt")
    text = MODEL + "[[steps]]\nuse = 'labels'\nfile = 'linked.txt'"
    (problem,) = problems(text, model_folder, step_kinds)
    assert problem.line == 8 and "symbolic link" in problem.found


def test_an_own_step_is_accepted_beside_its_file(model_folder: Path, step_kinds: Kinds) -> None:
    (model_folder / "steps.py").write_text("def shout(y: float) -> float:\n    return y\n")
    text = MODEL + "[[steps]]\nuse = 'steps:shout'\noutput = 'loud'\ndatatype = 'FP64'\n"
    assert parse(text, model_folder, step_kinds).steps[1].use == "steps:shout"


def test_a_pinned_file_that_differs_is_a_digest_mismatch(model_folder: Path, step_kinds: Kinds) -> None:
    text = MODEL + '[files]\n"labels.txt" = "sha256:' + "0" * 64 + '"'
    (problem,) = problems(text, model_folder, step_kinds, Code.DIGEST_MISMATCH)
    assert problem.line == 7 and problem.key == 'files."labels.txt"'
    digest = problem.found.rpartition(":")[2]
    assert parse(text.replace("0" * 64, digest), model_folder, step_kinds).files == {"labels.txt": f"sha256:{digest}"}


def test_a_pipeline_built_in_python_is_refused_for_the_same_reasons(model_folder: Path, step_kinds: Kinds) -> None:
    pipeline = Pipeline(
        steps=(MODEL_STEP, Step("labels", {"file": "none.txt"})),
        inputs=(Input("x", "text", min=1.0),),
        batch=Batch(enabled=False, tolerance=0.5),
        queue=Queue(rows_max=0),
    )
    found = definition.check(pipeline, file="", folder=model_folder, kinds=step_kinds)
    keys = ["queue.rows_max", "inputs[0].min", "steps[1].file", "batch.tolerance"]
    assert [problem.key for problem in found] == keys


def test_text_that_no_toml_can_hold_is_refused(model_folder: Path, step_kinds: Kinds) -> None:
    pipeline = Pipeline(steps=(MODEL_STEP, Step("softmax", {"output": "\ud800"})), description="\ud800")
    found = definition.check(pipeline, file="", folder=model_folder, kinds=step_kinds)
    assert [problem.key for problem in found] == ["steps[1].output", "description"]


def test_data_nested_too_deeply_is_refused(model_folder: Path, step_kinds: Kinds) -> None:
    text = MODEL + "[[golden]]\nrequest = { x = " + "[" * 20 + "]" * 20 + " }\nexpect = { y = 1 }"
    (problem,) = problems(text, model_folder, step_kinds)
    assert problem.found == "nested too deeply" and problem.line == 7


def test_an_option_named_use_is_refused(model_folder: Path, step_kinds: Kinds) -> None:
    pipeline = Pipeline(steps=(MODEL_STEP, Step("softmax", {"use": "sigmoid"})))
    found = definition.check(pipeline, file="", folder=model_folder, kinds=step_kinds)
    assert [problem.key for problem in found] == ["steps[1].use"]


def test_a_bare_onnx_file_is_one_model_step() -> None:
    assert definition.bare("adder.onnx") == Pipeline(
        steps=(Step("model", {"engine": "onnxruntime", "file": "adder.onnx"}),)
    )


def test_a_bare_file_no_engine_reads_is_refused_with_what_is_supported() -> None:
    with pytest.raises(Misconfigured) as caught:
        definition.bare("model.pkl")
    assert caught.value.code == Code.MODEL_INVALID and ".onnx" in str(caught.value)


def test_an_exported_folder_is_read_back_as_the_same_pipeline(model_folder: Path, step_kinds: Kinds) -> None:
    pipeline = Pipeline(steps=(MODEL_STEP,), description='a "b"\nc')
    target = model_folder.parent / "exported"
    definition.export(pipeline, target, {"model.onnx": model_folder / "model.onnx"}, kinds=step_kinds)
    assert parse((target / "pipeline.toml").read_text(), target, step_kinds) == pipeline
    with pytest.raises(Misconfigured, match="is there already"):
        definition.export(pipeline, target, {}, kinds=step_kinds)


def test_a_failed_export_leaves_nothing_behind(model_folder: Path, step_kinds: Kinds) -> None:
    target = model_folder.parent / "exported"
    with pytest.raises(Misconfigured, match="no such file"):
        definition.export(Pipeline(steps=(MODEL_STEP,)), target, {}, kinds=step_kinds)
    with pytest.raises(Misconfigured, match="leaves the folder"):
        definition.export(
            Pipeline(steps=(MODEL_STEP,)), target, {"../x": model_folder / "labels.txt"}, kinds=step_kinds
        )
    assert [entry.name for entry in model_folder.parent.iterdir()] == [model_folder.name]


NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=8)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
FINITE = st.floats(-1e300, 1e300, allow_nan=False)
PLAIN = st.recursive(
    st.one_of(st.booleans(), st.integers(-(2**63) + 1, 2**63 - 1), FINITE, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
RECORDS = st.dictionaries(NAMES, PLAIN, min_size=1, max_size=3)
INPUTS = st.one_of(
    st.builds(
        Input, NAMES, st.just("text"), bytes_max=st.none() | st.integers(5, 99), bytes_min=st.none() | st.just(5)
    ),
    st.builds(Input, NAMES, st.just("number"), min=st.none() | FINITE, missing=st.booleans()),
    st.builds(
        Input,
        NAMES,
        st.just("tensor"),
        datatype=st.just("INT64"),
        shape=st.lists(st.integers(-1, 9), max_size=3).map(tuple),
    ),
)
RULES = st.lists(
    st.one_of(
        st.builds(Rule, NAMES, st.just("a < 1"), set=RECORDS, flag=NAMES),
        st.builds(Rule, NAMES, st.just("true"), drop=st.lists(NAMES, min_size=1, unique=True).map(tuple)),
        st.builds(Rule, NAMES, st.just("false"), each=NAMES, drop=st.just(True)),
        st.builds(Rule, NAMES, st.just("!b"), refuse=NAMES),
    ),
    max_size=3,
    unique_by=lambda rule: rule.name,
).map(tuple)
PIPELINES = st.builds(
    Pipeline,
    steps=st.just((MODEL_STEP,)) | st.just((MODEL_STEP, Step("softmax", {"output": "p"}))),
    inputs=st.lists(INPUTS, max_size=3, unique_by=lambda given: given.name).map(tuple),
    description=TEXTS,
    rules=RULES,
    checks=st.builds(Checks, st.booleans(), st.dictionaries(NAMES, st.tuples(st.just(-float("inf")), FINITE))),
    batch=st.one_of(
        st.builds(
            Batch, rows_max=st.integers(2, 99), wait_ms=st.floats(0, 1000), cost=st.just("bytes"), cost_max=st.just(9.0)
        ),
        st.builds(Batch, enabled=st.just(False)),
    ),
    queue=st.builds(Queue, st.integers(100, 9999), st.integers(1, 9999), st.floats(0.001, 3600)),
    workers=st.builds(Workers, st.integers(1, 9), st.integers(64, 999), st.floats(0.1, 99.0), st.floats(0.1, 99.0)),
)


@given(pipeline=PIPELINES, request=RECORDS, expect=RECORDS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_as_toml_is_read_back_equal(
    pipeline: Pipeline, request: dict[str, object], expect: dict[str, object], model_folder: Path, step_kinds: Kinds
) -> None:
    golden = () if pipeline.inputs else (Golden(request, expect),)
    whole = Pipeline(**{name: getattr(pipeline, name) for name in Pipeline.__slots__} | {"golden": golden})
    read = parse(definition.to_toml(whole), model_folder, step_kinds)
    assert read == whole
    assert read == whole


def test_padding_survives_the_way_through_toml(model_folder: Path, step_kinds: Kinds) -> None:
    batch = Batch(cost="bytes", cost_max=9.0, padding=Padding({"ids": 0.0}, (8, 16)))
    inputs = (Input("ids", "tensor", datatype="INT64", shape=(-1,)),)
    pipeline = Pipeline(steps=(MODEL_STEP,), inputs=inputs, batch=batch)
    assert parse(definition.to_toml(pipeline), model_folder, step_kinds) == pipeline


def test_every_option_that_names_a_file_is_held_to_one_rule(model_folder: Path, step_kinds: Kinds) -> None:
    os.link(model_folder / "labels.txt", model_folder / "again.npy")
    text = MODEL + "[[steps]]\nuse = 'nearest'\nvectors = 'again.npy'\nitems = '../x'"
    assert [(each.key, each.found) for each in problems(text, model_folder, step_kinds)] == [
        ("steps[1].vectors", "again.npy: a file with hard links"),
        ("steps[1].items", "../x: a path that leaves the folder"),
    ]
