"""What an answer is kept under: a digest over all that decides it, each piece with its length before it."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from struct import Struct

import msgspec

from forwardpass.core.pipeline import Signature, Version
from forwardpass.core.tensor import Buffer

FORMAT = "1"
"""Of keys and of what is kept under them: servers of another format have answers of their own."""
TENANTS_MAX = 1024
JOINED_BYTES_MAX = 4096
"""A column of so few bytes is hashed with what stands before it: another call takes longer than to copy it."""
_LENGTH = Struct("<Q")

Shape = tuple[int, ...]


def framed(pieces: Iterable[bytes]) -> bytes:
    """End to end so that no two lists give the same bytes."""
    return b"".join([part for piece in pieces for part in (_LENGTH.pack(len(piece)), piece)])


class Keys:
    """Of one loaded version; ``settings`` are those that its engines run with. With ``together`` tenants share answers.
    ``machine`` is what its answers depend on besides, where servers share them.

    Equal keys mean an equal answer: of the same version by the same engines, to the same tenant, to the same bytes.
    """

    def __init__(
        self,
        of: Version,
        signature: Signature,
        settings: Sequence[object],
        *,
        together: bool,
        machine: Sequence[str] = (),
    ) -> None:
        columns = signature.columns
        self._together = together
        self._shaped = any(-1 in column.shape for column in columns)
        self._sizes = Struct(f"<{1 + len(columns)}Q")
        fields = [repr((each.name, each.datatype, each.shape, each.kind)) for each in (*columns, *signature.outputs)]
        texts = (FORMAT, str(len(machine)), *machine, of.pipeline, of.digest, of.policy, str(len(columns)), *fields)
        self._version = framed([*map(str.encode, texts), msgspec.json.encode(settings, order="deterministic")])
        self._by_tenant: OrderedDict[str, hashlib._Hash] = OrderedDict()

    def of(self, tenant: str, columns: Sequence[Buffer], shapes: Sequence[Shape], rows: int) -> bytes:
        """Of an item: the bytes of each column, their row shapes and how many rows they are."""
        begun = self._by_tenant.get(tenant) or self._begin(tenant)
        hashed = begun.copy()
        ahead = self._sizes.pack(rows, *map(len, columns))
        if self._shaped:
            ahead += framed([repr(tuple(shapes)).encode()])
        for column in columns:
            if len(column) <= JOINED_BYTES_MAX:
                ahead += column
            else:
                hashed.update(ahead)
                hashed.update(column)
                ahead = b""
        hashed.update(ahead)
        return hashed.digest()

    def _begin(self, tenant: str) -> "hashlib._Hash":
        salt = b"" if self._together else b"tenant " + tenant.encode()
        begun = hashlib.sha256(self._version + framed([salt]))
        self._by_tenant[tenant] = begun
        if len(self._by_tenant) > TENANTS_MAX:
            self._by_tenant.popitem(last=False)
        return begun
