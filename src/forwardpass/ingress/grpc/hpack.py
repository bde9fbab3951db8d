"""HPACK (RFC 7541): a client's header blocks decoded within bounds, ours written without a table."""

from collections import deque
from functools import cache

Fields = list[tuple[bytes, bytes]]

TABLE_BYTES = 4096
"""What a client's entries may take, as the settings we send leave it; an entry counts 32 more than its text."""

_ENTRY_BYTES = 32
_KNOWN_MAX = 16  # blocks remembered while the table does not change: a client sends the same few over and over

_TEXT = (
    ":authority :method=GET :method=POST :path=/ :path=/index.html :scheme=http :scheme=https :status=200 "
    ":status=204 :status=206 :status=304 :status=400 :status=404 :status=500 accept-charset "
    "accept-encoding=gzip,|deflate accept-language accept-ranges accept access-control-allow-origin age allow "
    "authorization cache-control content-disposition content-encoding content-language content-length "
    "content-location content-range content-type cookie date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified link location max-forwards "
    "proxy-authenticate proxy-authorization range referer refresh retry-after server set-cookie "
    "strict-transport-security transfer-encoding user-agent vary via www-authenticate"
)
_STATIC: tuple[tuple[bytes, bytes], ...] = tuple(
    (name.encode(), value.replace("|", " ").encode())
    for name, _, value in (entry.partition("=") for entry in _TEXT.split(" "))
)
"""RFC 7541, Appendix A; | stands for a space."""


class BadBlock(ValueError):
    """The block cannot be decoded; the connection's table is lost with it."""


class Decoder:
    """One connection's header blocks, in their order: each may add to the table that the next ones refer to."""

    def __init__(self) -> None:
        self._entries: deque[tuple[bytes, bytes]] = deque()  # the newest first
        self._size = 0
        self._size_max = TABLE_BYTES
        self._known: dict[bytes, Fields] = {}

    def decode(self, block: bytes, bytes_max: int) -> Fields | None:
        """The fields; None when they are more than ``bytes_max`` allows. Raises BadBlock."""
        known = self._known.get(block)
        if known is not None:
            return known
        fields: Fields = []
        position, end, total, reads_only, may_resize = 0, len(block), 0, True, True
        while position < end:
            first = block[position]
            if first & 0x80:
                index, position = _integer(block, position, 7)
                field = self._entry(index)
            elif first & 0xE0 == 0x20:
                size, position = _integer(block, position, 5)
                if size > TABLE_BYTES or not may_resize:
                    raise BadBlock("a table size that was not allowed")
                self._resize(size)
                reads_only = False
                continue
            else:
                adds = bool(first & 0x40)
                index, position = _integer(block, position, 6 if adds else 4)
                if index:
                    name = self._entry(index)[0]
                else:
                    name, position = _text(block, position)
                value, position = _text(block, position)
                field = (name, value)
                if adds:
                    self._add(field)
                    reads_only = False
            may_resize = False
            total += len(field[0]) + len(field[1]) + _ENTRY_BYTES
            if total <= bytes_max:
                fields.append(field)
        if total > bytes_max:
            return None
        if reads_only and len(self._known) < _KNOWN_MAX:
            self._known[block] = fields
        return fields

    def _entry(self, index: int) -> tuple[bytes, bytes]:
        if 0 < index <= len(_STATIC):
            return _STATIC[index - 1]
        place = index - len(_STATIC) - 1
        if not 0 <= place < len(self._entries):
            raise BadBlock("an index of no entry")
        return self._entries[place]

    def _add(self, field: tuple[bytes, bytes]) -> None:
        self._known.clear()
        self._entries.appendleft(field)
        self._size += len(field[0]) + len(field[1]) + _ENTRY_BYTES
        self._evict()

    def _resize(self, size: int) -> None:
        self._known.clear()
        self._size_max = size
        self._evict()

    def _evict(self) -> None:
        while self._size > self._size_max:
            name, value = self._entries.pop()
            self._size -= len(name) + len(value) + _ENTRY_BYTES


def literal(name: bytes, value: bytes) -> bytes:
    """One field of a block of ours, which no table remembers."""
    return b"\0" + _length(len(name)) + name + _length(len(value)) + value


def _length(size: int) -> bytes:
    if size < 127:
        return bytes((size,))
    size -= 127
    rest = bytearray((127,))
    while size >= 128:
        rest.append(size & 127 | 128)
        size >>= 7
    rest.append(size)
    return bytes(rest)


def _integer(block: bytes, position: int, bits: int) -> tuple[int, int]:
    most = (1 << bits) - 1
    value = block[position] & most
    position += 1
    if value < most:
        return value, position
    for shift in (0, 7, 14, 21):
        if position >= len(block):
            break
        byte = block[position]
        position += 1
        value += (byte & 127) << shift
        if byte < 128:
            return value, position
    raise BadBlock("an integer that is cut off or too large")


def _text(block: bytes, position: int) -> tuple[bytes, int]:
    if position >= len(block):
        raise BadBlock("a text that is cut off")
    packed = block[position] & 0x80
    length, position = _integer(block, position, 7)
    if length > len(block) - position:
        raise BadBlock("a text that is cut off")
    text = block[position : position + length]
    return (_unpack(text) if packed else text), position + length


_LENGTHS = (
    "ISXXXXXXXTZXXZXXXXXXXXZXXXXXXXXXBFFHIBDGFFDGDBBBAAABBBBBBBCDKBHFIBCCCCCCCCCCCCCCCCCCCCCCDCDIOIJBKABABABBBACCBBBABCBA"
    "ABCCCCCKGJIXPRPPRRRSRSSSSSTSTTRSTSSSSQRSRSSTRQPRRSSQSRRTQRSSQQRQSRSSPRRRSRRSVVPORSRUVVVWWVTUOQVWWVWTQQVVXWWWPTPQRQQS"
    "RRUUTTVSVWVVWWWWWXWWWWWVZ"
)
"""Bits of the Huffman code of each byte and of the end mark: A is 5, Z is 30. The code is canonical, so these say it all."""

_Node = list["_Node | int | None"]


@cache
def _tree() -> _Node:
    root: _Node = [None, None]
    code, before = 0, 0
    for symbol in sorted(range(len(_LENGTHS)), key=lambda symbol: (_LENGTHS[symbol], symbol)):
        bits = ord(_LENGTHS[symbol]) - ord("A") + 5
        code <<= bits - before if before else 0
        node = root
        for bit in range(bits - 1, 0, -1):
            turn = code >> bit & 1
            if node[turn] is None:
                node[turn] = [None, None]
            following = node[turn]
            assert isinstance(following, list)
            node = following
        node[code & 1] = symbol
        code, before = code + 1, bits
    return root


class _Unpacker:
    """The Huffman tree walked a byte at a time: each step is worked out once."""

    def __init__(self) -> None:
        self._nodes: list[_Node] = [_tree()]
        self._places: dict[int, int] = {id(self._nodes[0]): 0}
        self._steps: dict[int, tuple[int, bytes]] = {}
        self._ends = {0}  # where a text may end: at most 7 bits of ones into a code
        node = self._nodes[0]
        for _ in range(7):
            following = node[1]
            assert isinstance(following, list)
            node = following
            self._ends.add(self._place(node))

    def unpack(self, text: bytes) -> bytes:
        place, parts, steps = 0, [], self._steps
        for byte in text:
            step = steps.get(place << 8 | byte)
            if step is None:
                step = steps[place << 8 | byte] = self._step(place, byte)
            place, found = step
            parts.append(found)
        if place not in self._ends:
            raise BadBlock("a text that ends inside a code")
        return b"".join(parts)

    def _place(self, node: _Node) -> int:
        place = self._places.setdefault(id(node), len(self._nodes))
        if place == len(self._nodes):
            self._nodes.append(node)
        return place

    def _step(self, place: int, byte: int) -> tuple[int, bytes]:
        node, found = self._nodes[place], bytearray()
        for bit in range(7, -1, -1):
            following = node[byte >> bit & 1]
            if isinstance(following, list):
                node = following
                continue
            if following is None or following > 255:
                raise BadBlock("a code of no byte")
            found.append(following)
            node = self._nodes[0]
        return self._place(node), bytes(found)


@cache
def _unpacker() -> _Unpacker:
    return _Unpacker()


def _unpack(text: bytes) -> bytes:
    return _unpacker().unpack(text)
