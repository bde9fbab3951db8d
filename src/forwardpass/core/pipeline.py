"""The frozen object that a pipeline folder, a bare model file and ``forwardpass.Pipeline(...)`` all become.

It is data only, and crosses to the worker as msgpack. Parsing and
checking it is ``pipeline/definition.py``'s work; what a step's options mean is the step's own (``steps/``).
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

InputType = Literal["text", "texts", "image", "audio", "bytes", "number", "category", "record", "tensor"]
"""``texts`` is a list of text; ``image`` and ``audio`` are encoded files, which the steps decode in the worker."""

TaskKind = Literal["embed", "rank", "classify"]
TaskScale = Literal["as_is", "cosine", "logit"]

FieldKind = Literal["tensor", "text", "texts", "json", "image", "audio", "bytes", "number", "category", "ragged"]

ROWS_AT_FIRST = 32
"""What "auto" begins with."""

GuardMode = Literal["block", "mask", "flag", "shadow"]
Pii = Literal["email", "phone", "iban", "card", "ip", "key"]

ENCODED = frozenset({"image", "audio", "bytes"})
"""Kinds whose values are bytes: base64 in JSON."""

TEXT_BYTES_MAX = 1024 * 1024
"""Of one text, category or element of texts where the pipeline says nothing else: a longer one costs steps seconds."""

Options = dict[str, Any]
"""A step's options as written, checked by the step's kind."""


@dataclass(frozen=True, slots=True)
class Input:
    """One thing a caller sends. Unset bounds do not apply, but that of texts. ``shape`` is per row; -1 is any."""

    name: str
    type: InputType
    bytes_max: int | None = None  # of one value, UTF-8 or raw; unset, 1 MiB for text, category and each of texts
    bytes_min: int | None = None
    count_max: int | None = None  # texts: how many one value may hold; it holds one at least
    min: float | None = None  # number
    max: float | None = None
    missing: bool = False  # number, category: may be null or left out
    columns: dict[str, Literal["number", "category"]] = field(default_factory=dict)  # record
    datatype: str = ""  # tensor: a V2 name
    shape: tuple[int, ...] = ()  # tensor

    @property
    def longest(self) -> int | None:
        """The most bytes of one value, of a record each of its texts; None is any number."""
        if self.bytes_max is None and self.type in ("text", "texts", "category", "record"):
            return TEXT_BYTES_MAX
        return self.bytes_max


@dataclass(frozen=True, slots=True)
class Step:
    """``use`` names a kind of step (``tokenize``, ``model`` …) or an own function as ``steps:NAME``."""

    use: str
    options: Options = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rule:
    """A business rule: what is done with a row's outputs when a CEL expression is true of it. One action at least."""

    name: str  # of this rule alone; notes and refusals carry it
    when: str  # a CEL expression over the fields, true or false
    each: str = ""  # a JSON output that is a list: the rule looks at each of its elements
    set: dict[str, Any] = field(default_factory=dict)  # output (with each: key) = a value, or { cel = "an expression" }
    drop: tuple[str, ...] | bool = ()  # outputs that become null; with each: true, the element is removed
    flag: str = ""  # a text that is noted and changes nothing
    refuse: str = ""  # a text with which the row is refused


@dataclass(frozen=True, slots=True)
class Checks:
    """What every answer must satisfy before it leaves; a row that does not fails alone."""

    finite: bool = True
    range: dict[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Padding:
    """Rows of different length made equal along row axis 0: ``fields`` maps an input to its padding value."""

    fields: dict[str, float]  # input = what its rows are filled up with
    buckets: tuple[int, ...] = ()  # lengths a batch is padded up to; () = the longest in the batch


@dataclass(frozen=True, slots=True)
class Batch:
    """How strangers' rows share an execution. The defaults need no tuning."""

    enabled: bool = True  # false: every request runs as it was sent
    rows_max: int | Literal["auto"] = "auto"  # rows of one execution; "auto" learns where larger batches stop paying
    wait_ms: float = 0.0  # 0 = take what waits when a worker is free
    cost: str = "rows"  # rows | bytes | tokens | the name of a number input
    cost_max: float | None = None  # a batch's budget; an item dearer than all of it runs alone
    buckets_bytes: tuple[int, ...] = ()  # for text: upper byte lengths of the groups that batch together
    padding: Padding | None = None  # rows of different length share a batch, filled up
    tolerance: float = 1e-4  # of the load-time self-test that rows are independent; 0 = bit for bit

    @property
    def rows_cut(self) -> int:
        """Larger requests are cut into parts of so many rows and joined again."""
        return ROWS_AT_FIRST if self.rows_max == "auto" else self.rows_max


@dataclass(frozen=True, slots=True)
class Queue:
    """Bounds on what waits; past one the request is refused at once with the bound's name."""

    rows_max: int = 4096  # rows that wait
    bytes_max: int = 256 * 1024 * 1024  # bytes that wait
    wait_max_s: float = 30.0  # refuse when the predicted wait is longer than this or than the deadline


@dataclass(frozen=True, slots=True)
class Sequences:
    """Requests of one sequence id are steps of one run: what steps and models keep is carried from each to the next."""

    idle_s: float = 60.0  # a sequence without a request for so long is forgotten
    sequences_max: int = 1024  # kept at the same time


@dataclass(frozen=True, slots=True)
class Cache:
    """Answers that are kept, row by row: a row that is known is not run again. What is repeated exactly is all it is for."""

    enabled: bool = True  # false: the section is as if it were not there
    bytes_max: int = 64 * 1024 * 1024  # of this version's kept answers, their bookkeeping included
    ttl_s: float = 3600.0  # an answer that is so old is computed again
    shared: bool = False  # true: tenants are given each other's answers; false: each only what it asked itself
    approximate: bool = False  # true: answers are kept, too, where batching changes their last bits


@dataclass(frozen=True, slots=True)
class Workers:
    """The processes that run this version."""

    count: int = 1  # processes; the version's threads are shared among them; 0 = as many as are quickest, found at load
    memory_max_mb: int = 8192  # address space; an allocation past it fails inside the worker
    batch_limit_s: float = 60.0  # a batch that runs longer loses its worker
    load_limit_s: float = 120.0  # a load that takes longer fails


@dataclass(frozen=True, slots=True)
class Task:
    """What the pipeline is to clients that know tasks: it embeds texts, ranks documents for a query, or classifies.

    Where the section is missing, or a name in it, it is found from the steps, if there is no doubt.
    """

    kind: TaskKind  # embed | rank | classify
    input: str = ""  # the text (classify: or image) that clients send; of rank the query
    documents: str = ""  # rank: the documents (an input of type texts), or the one document (of type text)
    output: str = ""  # embed: the vector; rank: the score, scores or ranking; classify: the score or scores
    label: str = ""  # classify: the output with the label of each score; without one they are labels' in their order
    labels: tuple[str, ...] = ()  # classify: the label of each score
    labels_file: str = ""  # the same, one a line of a UTF-8 file of the folder
    harmless: tuple[str, ...] = ()  # classify: labels that flag nothing in a moderation, however high their score
    threshold: float = 0.5  # classify: the least score that flags
    scale: TaskScale = (
        "as_is"  # rank: what scores are: cosine (below 0 is told as 0), logit (told as its sigmoid), as_is
    )
    dimensions: tuple[int, ...] = ()  # embed: lengths a vector may be cut to, and is then made length 1 again


@dataclass(frozen=True, slots=True)
class Golden:
    """A request and what must come back, replayed at load, by ``check`` and at rollout."""

    request: dict[str, Any]  # input = its value; of bytes { file = "name" }, or base64
    expect: dict[str, Any]  # output = its value; of JSON the keys to look at; { missing = true } is null
    tolerance: float = 1e-4  # of numbers: absolute, or relative where that allows more


@dataclass(frozen=True, slots=True)
class Guard:
    """A rule on the texts that come in or go out, with one check. Its verdicts never hold what it saw."""

    name: str  # letters, digits, ".", "_" and "-"; verdicts, refusals and metrics carry it
    on: Literal["input", "output", "step"]  # input or output; the step guard is one, too
    mode: GuardMode = (
        "block"  # block: the row fails; mask: what was found is replaced; flag: told; shadow: only in the receipt
    )
    fields: tuple[str, ...] = ()  # which inputs or outputs; () = every one that holds text
    deny: tuple[str, ...] = ()  # regular expressions (RE2) that must match nothing
    allow: tuple[str, ...] = ()  # regular expressions of which one must match the whole text
    words: tuple[str, ...] = ()  # words and phrases, however they are written
    words_file: str = ""  # the same, one a line of a UTF-8 file of the folder
    words_are: Literal["denied", "allowed"] = "denied"  # allowed: every other word is found
    length_max: int | None = None  # characters of a text
    length_min: int | None = None
    pii: tuple[Pii, ...] = ()  # personal data and secrets: email, phone, iban, card, ip, key
    schema: str = ""  # a JSON schema that JSON, or a text of it, must fit: a file of the folder, or the schema as text
    judge: str = ""  # another pipeline that is served here and takes one text
    when: str = ""  # of the judge's outputs: a CEL expression that is true of what is found
    on_failure: Literal["block", "pass"] = "block"  # where the judge gives no answer


@dataclass(frozen=True, slots=True)
class Price:
    """What a request costs, in units that quotas count (``cost_per_day``) and receipts show."""

    request: float = 0.0  # for each that is answered
    row: float = 1.0  # for each of its rows that does not fail by the server's fault
    token: float = 0.0  # for each that tokenizers make of its rows


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Inputs, steps, outputs and the bounds around them. Frozen: changing a pipeline makes another one."""

    steps: tuple[Step, ...]
    inputs: tuple[Input, ...] = ()  # () = the model's own inputs, read from the graph at load
    outputs: tuple[str, ...] = ()  # () = what the last step wrote
    description: str = ""
    rules: tuple[Rule, ...] = ()  # applied in this order after the last step
    guards: tuple[Guard, ...] = ()  # those on inputs before the first step, those on outputs after the rules
    checks: Checks = field(default_factory=Checks)
    batch: Batch = field(default_factory=Batch)
    queue: Queue = field(default_factory=Queue)
    workers: Workers = field(default_factory=Workers)
    sequence: Sequences | None = None  # None = every request stands alone
    cache: Cache | None = None  # None = every row is run
    task: Task | None = None  # None = what the steps say, if they leave no doubt
    price: Price = field(default_factory=Price)
    golden: tuple[Golden, ...] = ()
    files: dict[str, str] = field(default_factory=dict)  # file name -> "sha256:…", where the author pinned it


@dataclass(frozen=True, slots=True)
class Field:
    """A named column on its way through the steps. ``shape`` is per row; -1 is any length.

    What a column holds depends on ``kind``. A tensor or number: one numpy array of all rows. Ragged: an object array
    with a numpy array of ``datatype`` for each row, whose shapes may differ where ``shape`` says -1 (decoded images,
    UINT8 [height, width, 3]; samples of sound, FP32 [-1]). The others are BYTES, in an object array: str (text,
    category; None = missing), list of str (texts), bytes (bytes, image, audio), plain JSON values (json).

    ``given``: the caller sent these very values, so one that a step cannot use is refused, and is no failure of ours.
    ``ids``: a text's rows may hold ``TokenIds`` too.
    """

    name: str
    datatype: str
    shape: tuple[int, ...] = ()
    kind: FieldKind = "tensor"
    given: bool = field(default=False, compare=False)
    ids: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Signature:
    """What the front needs to know of a loaded version to decode requests and encode answers."""

    inputs: tuple[Input, ...]
    outputs: tuple[Field, ...]
    batched: bool = True  # False: the model does not take any number of rows; requests run as they were sent
    fixed_rows: int | None = None  # what it takes instead, if it says
    token_inputs: frozenset[str] = frozenset()  # texts that may come as ids of the tokenizer's own tokens
    task: Task | None = None  # with every name in it; None: it has none

    @property
    def leading(self) -> tuple[int, ...]:
        """What stands before a row's shape in a request's tensors: any number of rows, a fixed one, or nothing."""
        if self.batched:
            return (-1,)
        return () if self.fixed_rows is None else (self.fixed_rows,)

    @cached_property
    def bounds(self) -> tuple[tuple[Field, Input], ...]:
        """The columns, each with the input whose bounds its values must keep."""
        owners = [given for given in self.inputs for _ in (given.columns if given.type == "record" else (None,))]
        return tuple(zip(self.columns, owners, strict=True))

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each column stands, by name."""
        return {column.name: place for place, column in enumerate(self.columns)}

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        return tuple(output.name for output in self.outputs)

    @cached_property
    def columns(self) -> tuple[Field, ...]:
        """The inputs as they cross to the worker: a record becomes one column each of its columns."""
        columns: list[Field] = []
        for given in self.inputs:
            match given.type:
                case "text":
                    ids = given.name in self.token_inputs
                    columns.append(Field(given.name, "BYTES", (), "text", given=True, ids=ids))
                case "texts" | "bytes" | "image" | "audio":
                    columns.append(Field(given.name, "BYTES", (), given.type, given=True))
                case "number":
                    columns.append(Field(given.name, "FP64", (), "number", given=True))
                case "category":
                    columns.append(Field(given.name, "BYTES", (), "category", given=True))
                case "record":
                    for name, kind in given.columns.items():
                        columns.append(Field(name, "FP64" if kind == "number" else "BYTES", (), kind, given=True))
                case "tensor":
                    columns.append(Field(given.name, given.datatype, given.shape, "tensor", given=True))
        return tuple(columns)


@dataclass(frozen=True, slots=True)
class Version:
    """One immutable pipeline folder, taken in: ``folder`` is our private copy of it."""

    pipeline: str
    number: int
    digest: str  # sha256 over the manifest of all its files, hex
    folder: str
    definition: Pipeline
    trusted: bool = False  # own code in it may run
    policy: str = ""  # sha256 of the operator's guards that are around it, hex
    signers: tuple[str, ...] = ()  # ids of the keys that signed it, of those the operator named
