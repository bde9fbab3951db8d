"""The messages of one gRPC call out of the data of its stream."""

from typing import NamedTuple

from forwardpass.core.errors import Code, Failure, Refused

PREFIX_BYTES = 5  # of a message: whether it is compressed, and its length


class Message(NamedTuple):
    """As it came; ``packed`` means compressed. ``size`` is what is held of it. With a ``refusal`` it is no more."""

    body: bytes | bytearray
    packed: bool
    refusal: Failure | None = None

    @property
    def size(self) -> int:
        return PREFIX_BYTES + len(self.body)


class Splitter:
    """Holds what came of the message that is not whole: its bytes and no more, in however many pieces they come."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._prefix = b""
        self._body = bytearray()
        self._needed = -1  # bytes of the body; -1 while the prefix is not whole
        self._refusal: Failure | None = None  # of the message that is coming in, whose bytes are not kept
        self._dropped = 0  # of its bytes

    @property
    def partial_bytes(self) -> int:
        """What is here of a message that is not whole."""
        return len(self._prefix) + len(self._body) + self._dropped

    @property
    def kept_bytes(self) -> int:
        """What is held of it."""
        return len(self._prefix) + len(self._body)

    @property
    def announced_bytes(self) -> int:
        """What is still to come of it and to be kept, as far as that is known."""
        return 0 if self._refusal is not None else max(0, self._needed - len(self._body))

    def refuse(self, refusal: Failure) -> int:
        """Keep nothing of the message whose beginning is here, nor of its rest; returns how many bytes that lets go."""
        self._refusal, self._dropped, self._body = refusal, len(self._body), bytearray()
        return self._dropped

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are whole now. Raises Refused as soon as one says that it is too large."""
        whole: list[Message] = []
        position = 0
        while position < len(data):
            if self._needed < 0:
                position = self._read_prefix(data, position)
            have = len(self._body) + self._dropped
            if 0 <= self._needed <= have + len(data) - position:
                end = position + self._needed - have
                whole.append(self._message(data[position:end]))
                position = end
            elif self._needed > 0:
                if self._refusal is None:
                    self._body += memoryview(data)[position:]
                else:
                    self._dropped += len(data) - position
                return whole
        return whole

    def _read_prefix(self, data: bytes, position: int) -> int:
        end = position + PREFIX_BYTES - len(self._prefix)
        self._prefix += data[position:end]
        if len(self._prefix) < PREFIX_BYTES:
            return len(data)
        if self._prefix[0] > 1:
            text = f"a message begins with whether it is compressed, 0 or 1; got {self._prefix[0]}"
            raise Refused(Code.BAD_ENCODING, text)
        self._needed = int.from_bytes(self._prefix[1:])
        if self._needed > self._bytes_max:
            text = f"the message has {self._needed} bytes; at most {self._bytes_max} are allowed"
            raise Refused(Code.BODY_TOO_LARGE, text)
        return end

    def _message(self, rest: bytes) -> Message:
        """The message that ``rest`` completes; one that came in one piece is not copied twice."""
        body: bytes | bytearray = rest if self._refusal is None else b""
        if self._body:
            self._body += rest
            body, self._body = self._body, bytearray()
        packed = self._prefix[0] == 1
        refusal, self._refusal, self._dropped = self._refusal, None, 0
        self._prefix, self._needed = b"", -1
        return Message(body, packed, refusal)
