"""A small tokenizer.json, written with the tokenizers library itself, which is also the reference of what it makes."""

from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "a", "man", "eats", "bread"]
SPECIAL = [("[CLS]", 1), ("[SEP]", 2)]
SURROUNDED = processors.TemplateProcessing(
    single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=SPECIAL
)


def write(folder: Path, processor: processors.PostProcessor = SURROUNDED, *, cuts: str = "right") -> Tokenizer:
    """``tokenizer.json`` in the folder, and the library's tokenizer as a reference: nothing padded, nothing cut."""
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(["[PAD]", "[CLS]", "[SEP]"])
    tokenizer.post_processor = processor
    tokenizer.enable_truncation(6, direction=cuts)
    tokenizer.save(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    return tokenizer
