"""OpenVINO IR: an XML text, read without entities, document types or anything that leads outside, and its weights (D19)."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from forwardpass.pipeline.inspection.reading import File, Report, listed

BYTES_MAX = 64 * 1024**2
ELEMENTS_MAX = 1_000_000
DEPTH_MAX = 64
TAG_BYTES_MAX = 256 * 1024
_ATTRIBUTE = rb'\s+([A-Za-z_][\w:.-]*)\s*=\s*(?:"([^"<]*)"|\'([^\'<]*)\')'
_ATTRIBUTES = re.compile(_ATTRIBUTE)
_NAME = re.compile(rb"[A-Za-z_][\w:.-]*")
_ENTITIES = re.compile(rb"&(?!(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#x[0-9a-fA-F]{1,6});)")
_HEADING = re.compile(rb"\s*<\?xml[^?<>]{0,200}\?>")

Tag = tuple[str, dict[str, str], bool, bool]
"""Name, attributes, whether it ends an element, whether it is empty."""


def looks_like(start: bytes) -> bool:
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    return text.startswith(b"<?xml") or text.startswith(b"<net ")


def report(file: File) -> Report:
    """Raises Misconfigured for what is damaged, and for any XML that is no plain tree of elements."""
    if file.size > BYTES_MAX:
        raise file.bad(f"{file.size} bytes of XML; at most {BYTES_MAX}")
    data = file.at(0, file.size)
    if _ENTITIES.search(data):
        raise file.bad("an entity of its own: none is ever put in")
    path: list[str] = []
    kinds: Counter[str] = Counter()
    versions: set[str] = set()
    inputs: list[str] = []
    needed = 0
    heading: dict[str, str] | None = None
    layer: dict[str, str] = {}
    for name, attributes, ends, empty in _tags(file, data):
        if ends:
            if not path or path.pop() != name:
                raise file.bad(f"damaged: </{name[:64]}> ends nothing")
            continue
        if not path and heading is not None:
            raise file.bad("damaged: two elements at the top")
        heading = attributes if heading is None else heading
        if not path and name != "net":
            raise file.bad(f"an XML file that begins with <{name[:64]}>: no OpenVINO model")
        if path[-1:] == ["layers"] and name == "layer":
            layer = attributes
            kinds[layer.get("type", "")] += 1
            versions.add(layer.get("version", ""))
            if layer.get("type") == "Parameter":
                inputs.append(layer.get("name", ""))
        if name == "data" and path[-1:] == ["layer"] and "offset" in attributes:
            needed = max(needed, _end(file, attributes))
        if not empty:
            path.append(name)
            if len(path) > DEPTH_MAX:
                raise file.bad(f"nested more than {DEPTH_MAX} levels deep")
    if path or heading is None:
        raise file.bad("cut short: an element has no end")
    facts = {
        "name": heading.get("name", ""),
        "version": heading.get("version", ""),
        "operators": dict(kinds.most_common(100)),
        "operator_sets": sorted(versions)[:100],
        "inputs": listed(inputs),
        "weights_bytes": needed,
    }
    return Report("OpenVINO IR", facts, problem=_weights_problem(file, needed))


def _weights_problem(file: File, needed: int) -> str:
    weights = file.name.rpartition(".")[0] + ".bin"
    there = file.beside(weights)
    if needed == 0:
        return ""
    if there is None:
        return f"{needed} bytes of weights are missing: there is no regular file {weights} beside it"
    return "" if there >= needed else f"{weights} has {there} bytes; {needed} are needed"


def _end(file: File, attributes: dict[str, Any]) -> int:
    numbers = [attributes.get(key, "") for key in ("offset", "size")]
    if not all(number.isascii() and number.isdigit() and len(number) < 20 for number in numbers):
        raise file.bad("a layer whose weights have no offset and size in bytes")
    return sum(map(int, numbers))


def _tags(file: File, data: bytes) -> Iterator[Tag]:
    """Every tag; text between them is passed over. Comments, CDATA, document types and instructions are refused."""
    start = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    heading = _HEADING.match(data, start)
    at = heading.end() if heading else start
    for _ in range(ELEMENTS_MAX):
        begin = data.find(b"<", at)
        if begin < 0:
            return
        end = data.find(b">", begin, begin + TAG_BYTES_MAX)
        if end < 0:
            raise file.bad("cut short: a tag has no end")
        at = end + 1
        yield _tag(file, data[begin + 1 : end])
    raise file.bad(f"more than {ELEMENTS_MAX} tags")


def _tag(file: File, text: bytes) -> Tag:
    if text[:1] in (b"!", b"?"):
        raise file.bad("a document type, a comment or an instruction: only elements are read")
    ends, empty = text.startswith(b"/"), text.endswith(b"/")
    name = _NAME.match(text, 1 if ends else 0)
    if name is None:
        raise file.bad("damaged: a tag without a name")
    attributes: dict[str, str] = {}
    at, end = name.end(), len(text) - (1 if empty else 0)
    while found := _ATTRIBUTES.match(text, at, end):
        key = found[1].decode("utf-8", "replace")
        if key in attributes:
            raise file.bad("damaged: an attribute is there twice")
        attributes[key] = (found[2] if found[2] is not None else found[3]).decode("utf-8", "replace")
        at = found.end()
    if text[at:end].strip():
        raise file.bad("damaged: a tag that holds something else than attributes")
    return name[0].decode("utf-8", "replace"), attributes, ends, empty
