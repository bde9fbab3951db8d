"""The network of the speech example, which the engine ``python`` runs: a log-mel spectrogram of 30 s to its text."""

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

PROMPT = [["<|startoftranscript|>", "<|notimestamps|>"]]
BEAMS = 5
TOKENS_MAX = 224  # Whisper's own limit
SILENT_FROM = 0.6  # Whisper's own bound on the probability that nobody speaks; beyond it what it reads is made up

Batch = dict[str, NDArray[np.generic]]


class Model:
    def load(self, folder: str, threads: int) -> None:
        import ctranslate2

        self.as_input = ctranslate2.StorageView.from_array
        self.tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
        self.network = ctranslate2.models.Whisper(folder, compute_type="float32", intra_threads=threads)

    def predict(self, batch: Batch) -> Batch:
        """Of one window: many at once gain nothing on a CPU, and could change the last bits of each other's numbers."""
        (read,) = self.network.generate(
            self.as_input(batch["log_mel"]),
            PROMPT,
            beam_size=BEAMS,
            max_length=TOKENS_MAX,
            return_scores=True,
            return_no_speech_prob=True,
        )
        text = self.tokenizer.decode(read.sequences_ids[0]).strip() if read.no_speech_prob < SILENT_FROM else ""
        return {
            "text": np.array([text], dtype=object),
            "score": np.array([read.scores[0]], dtype=np.float32),
            "silence": np.array([read.no_speech_prob], dtype=np.float32),
        }

    def close(self) -> None:
        self.network.unload_model()
