"""An answer that is a file: what kind of file it is, by its first bytes, and whether that was asked for."""

from typing import NamedTuple

from forwardpass.core.request import Answer
from forwardpass.core.tensor import unpack_bytes

_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
)
_MP3_FRAME = 0xFFE0
"""Eleven bits, with which a frame begins."""


class File(NamedTuple):
    content: bytes
    media: bytes


def accepted_file(answer: Answer, accept: str) -> File | None:
    """The only image or sound among the outputs of a single row, if it is of the media type ``accept``.

    ``image/*`` is any image, ``audio/*`` any sound.
    """
    kinds = {field.name: field.kind for field in answer.signature.outputs}
    names = [name for name in answer.outputs if kinds[name] in ("image", "audio")]
    if len(names) != 1:
        return None
    (content,) = unpack_bytes(answer.outputs[names[0]].data, 1)
    media = "" if content is None else _media_type(content)
    if content is None or not media or accept not in (media, f"{media.partition('/')[0]}/*"):
        return None
    return File(content, media.encode())


def _media_type(content: bytes) -> str:
    """Empty where it is none of those known here."""
    if content[:4] == b"RIFF" and content[8:12] == b"WAVE":
        return "audio/wav"
    for beginning, media in _BEGINNINGS:
        if content.startswith(beginning):
            return media
    return "audio/mpeg" if int.from_bytes(content[:2], "big") & _MP3_FRAME == _MP3_FRAME else ""
