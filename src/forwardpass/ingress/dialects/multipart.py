"""multipart/form-data (RFC 7578), strictly and in one pass: everything counted, nothing guessed."""

import re
from dataclasses import dataclass

from forwardpass.core.errors import Code, Refused, show

PARTS_MAX = 32
PART_HEADER_BYTES_MAX = 1024
BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")

_DISPOSITION = re.compile(
    r'form-data; ?name=(?:"(?P<quoted>[^"\\\r\n]{1,64})"|(?P<token>[\w.-]{1,64}))'
    r'(?:; ?filename="(?:[^"\\\r\n]|\\.)*")?(?:; ?filename\*=[^\s;]+)?',
    re.IGNORECASE,
)
_ENCODINGS = ("binary", "8bit", "7bit")


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    content: memoryview


def parse(body: bytes, boundary: str) -> list[Part]:
    """The parts of a body, in order, with distinct names. Raises Refused (bad_request)."""
    if not BOUNDARY.fullmatch(boundary):
        raise _malformed("the boundary must be 1 to 70 of the characters RFC 2046 allows")
    opening = b"--" + boundary.encode("ascii")
    delimiter = b"\r\n" + opening
    if not body.startswith(opening):
        raise _malformed("the body does not begin with the boundary")
    view = memoryview(body)
    parts: list[Part] = []
    position = len(opening)
    while body[position : position + 2] == b"\r\n":
        if len(parts) == PARTS_MAX:
            raise _malformed(f"at most {PARTS_MAX} parts are allowed")
        # The header's own first line may be missing, so the blank line may begin with this line's end.
        blank = body.find(b"\r\n\r\n", position, position + PART_HEADER_BYTES_MAX + 4)
        if blank < 0:
            raise _malformed(f"a part's header does not end within {PART_HEADER_BYTES_MAX} bytes")
        end = body.find(delimiter, blank + 2)
        if end < 0:
            raise _malformed("the last part has no end")
        name = _name(body[position + 2 : blank])
        if any(part.name == name for part in parts):
            raise Refused(
                Code.INVALID_INPUT, f"multipart/form-data: '{show(name)}' is given twice", field=f"/{show(name)}"
            )
        parts.append(Part(name, view[blank + 4 : end]))
        position = end + len(delimiter)
    if body[position : position + 2] != b"--" or body[position + 2 :] not in (b"", b"\r\n"):
        raise _malformed("a boundary is neither followed by a line end nor the last one")
    return parts


def _name(header: bytes) -> str:
    name: str | None = None
    for line in header.split(b"\r\n"):
        key, colon, raw = line.partition(b":")
        try:
            value = raw.decode().strip()
        except UnicodeDecodeError:
            raise _malformed("a part's header is not UTF-8") from None
        match key.lower():
            case b"content-disposition" if colon and name is None:
                found = _DISPOSITION.fullmatch(value)
                if found is None:
                    raise _malformed('a part needs: Content-Disposition: form-data; name="INPUT"')
                name = found["quoted"] or found["token"]
            case b"content-type" if not value.lower().startswith("multipart/"):
                pass  # what an input holds is the pipeline's to say
            case b"content-transfer-encoding" if value.lower() in _ENCODINGS:
                pass
            case _:
                raise _malformed(f"a part's header line '{show(line.decode('latin-1'))}' is not allowed")
    if name is None:
        raise _malformed('a part needs: Content-Disposition: form-data; name="INPUT"')
    return name


def _malformed(text: str) -> Refused:
    return Refused(Code.BAD_REQUEST, f"multipart/form-data: {text}")
