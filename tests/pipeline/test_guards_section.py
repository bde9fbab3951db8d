"""The section [[guards]] and the operator's file of guards: what they may hold, and around what these go."""

from pathlib import Path

import pytest

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.core.pipeline import Field, Guard, Pipeline, Version
from forwardpass.execution.kinds import kinds
from forwardpass.pipeline.definition import parse, to_toml
from forwardpass.pipeline.guard_policy import read_policy
from forwardpass.steps.guard.placing import input_guards

PIPELINE = """
outputs = ["text"]
[[inputs]]
name = "text"
type = "text"
[[steps]]
use = "normalize_text"
form = "NFC"
[[guards]]
name = "g"
on = "input"
"""


def parsed(folder: Path, section: str) -> Pipeline:
    return parse(PIPELINE + section, file="pipeline.toml", folder=folder, kinds=kinds())


@pytest.mark.parametrize(
    ("section", "guard"),
    [
        ('deny = ["a+"]\nfields = ["text"]', Guard("g", "input", fields=("text",), deny=("a+",))),
        ('mode = "mask"\npii = ["card", "key"]', Guard("g", "input", "mask", pii=("card", "key"))),
        ("length_min = 1\nlength_max = 5", Guard("g", "input", length_min=1, length_max=5)),
        ('schema = \'{"type": "object"}\'', Guard("g", "input", schema='{"type": "object"}')),
        (
            'judge = "j"\nwhen = "score > 0.5"\non_failure = "pass"',
            Guard("g", "input", judge="j", when="score > 0.5", on_failure="pass"),
        ),
    ],
)
def test_a_guard_is_read_and_written(tmp_path: Path, section: str, guard: Guard) -> None:
    pipeline = parsed(tmp_path, section)
    assert pipeline.guards == (guard,)
    assert parse(to_toml(pipeline), file="x", folder=tmp_path, kinds=kinds()) == pipeline


@pytest.mark.parametrize(
    ("section", "key", "found"),
    [
        ("", "guards[0]", "checks nothing"),
        ('deny = ["("]', "guards[0].deny[0]", "("),
        ('denny = ["a"]', "guards[0].denny", "unknown key"),
        ('deny = ["a"]\nfields = ["txt"]', "guards[0].fields[0]", "no such input"),
        ('words_file = "away.txt"', "guards[0].words_file", "no such file"),
        ('schema = "../s.json"', "guards[0].schema", "leaves the folder"),
        ('judge = "j"\nwhen = "score >"', "guards[0].when", "1:"),
        ('judge = "j"\nwhen = "1"', "guards[0].when", "does not look"),
        ('judge = "j"\nwhen = "true"', "guards[0].when", "does not look"),
        ('judge = "j"\nwhen = "score + 1.0"', "guards[0].when", "neither true nor false"),
        ('words = ["badger", "c++"]', "guards[0].words[1]", "c++"),
        ('deny = ["a"]\nmode = "warn"', "guards[0].mode", "warn"),
        ('deny = ["a"]\n[[guards]]\nname = "g"\non = "output"\ndeny = ["b"]', "guards[1].name", "twice"),
        ('deny = ["a"]\n[[guards]]\nname = "operator.x"\non = "output"\ndeny = ["b"]', "guards[1].name", "operator.x"),
        ('deny = ["a"]\n[[guards]]\nname = "two words"\non = "output"\ndeny = ["b"]', "guards[1].name", "two words"),
    ],
)
def test_what_is_wrong_with_a_guard_is_named_with_its_line(tmp_path: Path, section: str, key: str, found: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        parsed(tmp_path, section)
    (problem,) = [each for each in refused.value.problems if each.key == key]
    assert found in problem.found
    assert problem.line is not None


POLICY = """
[[guards]]
name = "all"
on = "input"
words_file = "words.txt"
[[guards]]
name = "one"
on = "output"
pii = ["email"]
pipelines = ["chat"]
[[guards]]
name = "judged"
on = "input"
judge = "judge"
when = "score > 0.5"
"""


def version(pipeline: str) -> Version:
    own = Guard("own", "input", deny=("x",))
    return Version(pipeline, 1, "0" * 64, "/nowhere", Pipeline((), guards=(own,)))


@pytest.mark.parametrize(
    ("pipeline", "names"),
    [
        ("chat", ["operator.all", "operator.one", "operator.judged", "own"]),
        ("other", ["operator.all", "operator.judged", "own"]),
        ("judge", ["operator.all", "own"]),
    ],
)
def test_the_operators_guards_go_around_what_they_are_for(tmp_path: Path, pipeline: str, names: list[str]) -> None:
    (tmp_path / "words.txt").write_text("badger\n")
    (tmp_path / "guards.toml").write_text(POLICY)
    policy = read_policy(str(tmp_path / "guards.toml"))
    around = policy.around(version(pipeline))
    assert [guard.name for guard in around.definition.guards] == names
    assert around.definition.guards[0].words == ("badger",)
    assert around.policy == policy.digest


def test_the_files_of_a_policy_may_be_links_as_those_of_a_config_map_are(tmp_path: Path) -> None:
    (tmp_path / "..data").mkdir()
    for name, text in (("guards.toml", POLICY), ("words.txt", "badger\n")):
        (tmp_path / "..data" / name).write_text(text)
        (tmp_path / name).symlink_to(f"..data/{name}")
    policy = read_policy(str(tmp_path / "guards.toml"))
    assert policy.around(version("other")).definition.guards[0].words == ("badger",)
    assert policy.names() == {"chat", "judge"}


@pytest.mark.parametrize(
    "when", ["flagged", "score > 0.5", 'label == "bad"', 'labels.exists(x, x == "bad")', 'fields["a b"] > 1.0']
)
def test_when_may_be_any_question_to_the_judges_outputs(tmp_path: Path, when: str) -> None:
    assert parsed(tmp_path, f"judge = 'j'\nwhen = '{when}'").guards[0].when == when


def test_the_digest_changes_with_a_word_in_a_file_of_the_policy(tmp_path: Path) -> None:
    (tmp_path / "guards.toml").write_text(POLICY)
    digests = set()
    for word in ("badger", "otter"):
        (tmp_path / "words.txt").write_text(f"{word}\n")
        digests.add(read_policy(str(tmp_path / "guards.toml")).digest)
    assert len(digests) == 2


def test_without_a_policy_a_version_stays_as_it_is() -> None:
    assert read_policy("").around(version("chat")) == version("chat")


@pytest.mark.parametrize(
    ("policy", "key"),
    [
        ("[[guard]]", "guard"),
        ('[[guards]]\nname = "a"\non = "input"\ndeny = ["("]', "guards[0].deny[0]"),
        ('[[guards]]\nname = "a"\non = "input"\ndeny = ["b"]\npipeline = "x"', "guards[0].pipeline"),
        ("[[guards", ""),
        ('[[guards]]\nname = "a"\non = "input"\ndeny = ["b"]\npipelines = []', "guards[0].pipelines"),
    ],
)
def test_a_policy_with_a_mistake_stops_the_server_and_names_it(tmp_path: Path, policy: str, key: str) -> None:
    (tmp_path / "guards.toml").write_text(policy)
    with pytest.raises(Misconfigured) as refused:
        read_policy(str(tmp_path / "guards.toml"))
    assert refused.value.code is Code.SETTINGS_INVALID
    assert refused.value.problems[0].key == key


TEXT = {"text": Field("text", "BYTES", (), "text")}
NUMBER = {"x": Field("x", "FP32", (), "tensor")}


@pytest.mark.parametrize(
    ("name", "known", "count"), [("operator.g", TEXT, 1), ("operator.g", NUMBER, 0), ("g", TEXT, 1)]
)
def test_the_operators_guards_pass_pipelines_without_text(name: str, known: dict[str, Field], count: int) -> None:
    definition = Pipeline((), guards=(Guard(name, "input", deny=("a",)),))
    assert len(input_guards(definition, known, Path("/nowhere"))) == count


@pytest.mark.parametrize(
    ("guard", "known", "key"),
    [
        (Guard("operator.g", "input", fields=("txt",), deny=("a",)), TEXT, 'guard "operator.g".fields[0]'),
        (Guard("g", "input", fields=("x",), deny=("a",)), NUMBER, "guards[0].fields[0]"),
        (Guard("g", "input", deny=("a",)), NUMBER, "guards[0].fields"),
    ],
)
def test_a_field_that_a_guard_cannot_look_at_stops_the_load(guard: Guard, known: dict[str, Field], key: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        input_guards(Pipeline((), guards=(guard,)), known, Path("/nowhere"))
    assert refused.value.problems[0].key == key
