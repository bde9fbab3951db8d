"""Models and descriptions written as text: JSON of XGBoost, tokenizers and transformers, LightGBM's own form."""

from typing import Any

from forwardpass.pipeline.inspection.reading import JSON_BYTES_MAX, File, Report, listed, parsed

_LIGHTGBM_HEAD_BYTES = 256 * 1024
_NO_ENGINE = "no engine here reads this format: convert it with forwardpass.from_{library}"


def looks_like_json(start: bytes) -> bool:
    return start.lstrip()[:1] in (b"{", b"[")


def json_report(file: File) -> Report:
    """Raises Misconfigured for what is no JSON, or too much of it."""
    if file.size > JSON_BYTES_MAX:
        raise file.bad(f"{file.size} bytes of JSON; at most {JSON_BYTES_MAX}")
    plain = parsed(file, file.at(0, file.size))
    match plain:
        case {"learner": dict(learner), "version": version}:
            return Report("XGBoost JSON", _xgboost(learner, version), unfit=_NO_ENGINE.format(library="xgboost"))
        case {"model": dict(model), "version": str(version)} if "added_tokens" in plain:
            return Report(
                "tokenizer", _tokenizer(plain, model, version), unfit="a tokenizer is no model: it is named by a step"
            )
        case {"architectures": list(names)}:
            code = sorted(plain.get("auto_map") or {}) if isinstance(plain.get("auto_map"), dict) else []
            facts = {"architectures": [str(name)[:100] for name in names[:10]], "asks_for_code": code[:10]}
            return Report(
                "transformers configuration", facts, unfit="a configuration is no model; its code is never run"
            )
        case dict():
            return Report("JSON", {"keys": listed(plain)}, unfit="no model")
        case list():
            return Report("JSON", {"values": len(plain)}, unfit="no model")
    return Report("JSON", unfit="no model")


def looks_like_lightgbm(start: bytes) -> bool:
    return start.startswith((b"tree\nversion=", b"tree\r\nversion="))


def lightgbm_report(file: File) -> Report:
    """By its head and its end. Raises Misconfigured for one that was cut."""
    head = file.start(_LIGHTGBM_HEAD_BYTES).split(b"\n\n", 1)[0].split(b"\nTree=", 1)[0]
    values = dict(line.split("=", 1) for line in head.decode("utf-8", "replace").splitlines() if "=" in line)
    tail = file.at(max(0, file.size - JSON_BYTES_MAX), min(file.size, JSON_BYTES_MAX))
    if b"\nend of trees" not in tail:
        raise file.bad('cut short: the line "end of trees" is missing')
    facts = {
        "version": values.get("version", ""),
        "objective": values.get("objective", ""),
        "classes": values.get("num_class", ""),
        "trees": len(values.get("tree_sizes", "").split()),
        "features": len(values.get("feature_names", "").split()),
    }
    return Report("LightGBM text", facts, unfit=_NO_ENGINE.format(library="lightgbm"))


def _xgboost(learner: dict[str, Any], version: Any) -> dict[str, Any]:
    booster = _inner(learner, "gradient_booster")
    trees = _inner(_inner(booster, "model"), "gbtree_model_param").get("num_trees", "")
    parameters = _inner(learner, "learner_model_param")
    return {
        "version": [each for each in version[:10] if type(each) is int] if isinstance(version, list) else [],
        "booster": str(booster.get("name", ""))[:100],
        "objective": str(_inner(learner, "objective").get("name", ""))[:100],
        "trees": str(trees)[:20],
        "features": str(parameters.get("num_feature", ""))[:20],
    }


def _tokenizer(plain: dict[str, Any], model: dict[str, Any], version: str) -> dict[str, Any]:
    vocabulary = model.get("vocab")
    parts = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
    return {
        "version": version[:20],
        "model": str(model.get("type", ""))[:100],
        "tokens": len(vocabulary) if isinstance(vocabulary, (dict, list)) else 0,
        **{part: str(_inner(plain, part).get("type", ""))[:100] for part in parts},
    }


def _inner(table: dict[str, Any], key: str) -> dict[str, Any]:
    inner = table.get(key)
    return inner if isinstance(inner, dict) else {}
