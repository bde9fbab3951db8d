"""A pipeline written in Python keeps answers in its own process, too, and says so in its folder."""

from pathlib import Path

from forwardpass import Cache, Golden, Pipeline, step

CALLS: list[str] = []


@step
def shout(text: str) -> str:
    CALLS.append(text)
    return text.upper()


def test_a_record_that_is_known_is_not_run_again() -> None:
    golden = [Golden({"text": "a"}, {"shout": "A"}), Golden({"text": "b"}, {"shout": "B"})]
    with Pipeline([shout], inputs={"text": "text"}, cache=Cache(), golden=golden) as pipeline:
        pipeline.check()
        CALLS.clear()
        assert [pipeline.predict({"text": text}).outputs["shout"] for text in ("x", "y", "x")] == ["X", "Y", "X"]
        assert CALLS == ["x", "y"]


def test_the_section_is_written_with_the_rest(tmp_path: Path) -> None:
    with Pipeline([shout], inputs={"text": "text"}, cache=Cache(ttl_s=60.0)) as pipeline:
        pipeline.save(tmp_path / "1")
    assert "cache = { ttl_s = 60.0 }" in (tmp_path / "1" / "pipeline.toml").read_text()
