"""File types: Magika as a pipeline from raw bytes to a label such as "python" or "png"."""

import json
import shutil
from pathlib import Path

from examples.packages import fetch, notice

PACKAGE = "magika==1.0.3"
MODEL = "magika/models/standard_v3_3/model.onnx"
CONFIG = "magika/models/standard_v3_3/config.min.json"
KINDS = "magika/config/content_types_kb.min.json"
FILES = {
    MODEL: "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
    CONFIG: "ae24c742205358f6ff6dfd5facb6743fb69743dbba8373e73da58ff0cbd695db",
    KINDS: "75208adba69bc0556403b62b32ef3ccf8b5ce494411780845852e52e6583a10d",
}
LICENCE = "Apache-2.0, https://github.com/google/magika"
NEVER = 2.0  # a score no answer reaches: such a label is always replaced


def build(folder: Path, downloads: Path) -> str:
    files = fetch(PACKAGE, FILES, downloads)
    config = json.loads(files[CONFIG].read_text())
    kinds = json.loads(files[KINDS].read_text())
    labels: list[str] = config["target_labels_space"]
    replaced: dict[str, str] = config["overwrite_map"]

    least = {label: config["thresholds"].get(label, config["medium_confidence_threshold"]) for label in labels}
    least |= dict.fromkeys(replaced, NEVER)
    otherwise = {label: "txt" if kinds[label]["is_text"] else "unknown" for label in labels} | replaced

    shutil.copy(files[MODEL], folder / "model.onnx")
    shutil.copy(Path(__file__).parent / "pipeline.toml", folder)
    (folder / "labels.txt").write_text("\n".join(labels) + "\n")
    (folder / "score_min.json").write_text(json.dumps(least, indent=0))
    (folder / "otherwise.json").write_text(json.dumps(otherwise, indent=0))
    (folder / "NOTICE.txt").write_text(notice(PACKAGE, LICENCE, FILES))
    return f"{len(labels)} file types"
