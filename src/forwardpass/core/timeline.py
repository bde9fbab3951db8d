"""What the stages leave behind for ``observe`` to read: one request's stamps, one batch's report."""

import msgspec


class Timeline(msgspec.Struct):
    """Monotonic seconds; 0.0 means the stage was not reached. Worker stages are durations, measured there."""

    received: float = 0.0  # the last byte of the request is here
    decoded: float = 0.0  # the dialect has made a Request of it
    admitted: float = 0.0  # allowed in
    queued: float = 0.0  # handed to the queue
    released: float = 0.0  # taken out as part of a batch
    returned: float = 0.0  # the worker's answer is here
    responded: float = 0.0  # the answer is encoded
    preprocess_s: float = 0.0
    execute_s: float = 0.0
    postprocess_s: float = 0.0

    def stages_us(self) -> dict[str, int]:
        """Microseconds per stage, in the order in which they happen; stages not reached are left out."""
        inside = self.preprocess_s + self.execute_s + self.postprocess_s
        spans = (
            ("decode", self.decoded - self.received, self.decoded),
            ("admit", self.admitted - self.decoded, self.admitted),
            ("queue", self.released - self.queued, self.released),
            ("preprocess", self.preprocess_s, self.returned),
            ("execute", self.execute_s, self.returned),
            ("postprocess", self.postprocess_s, self.returned),
            ("wire", self.returned - self.released - inside, self.returned),
            ("respond", self.responded - (self.returned or self.admitted), self.responded),
            ("total", self.responded - self.received, self.responded),
        )
        return {name: round(seconds * 1e6) for name, seconds, reached in spans if reached}


class BatchReport(msgspec.Struct):
    """Why a batch was released and what became of it; the last N are kept and served."""

    id: int
    released_s: float
    rows: int
    items: int
    reason: str
    worker: int
    waited_s: float  # of the oldest item
    waiting_rows: int  # left in the queue
    preprocess_s: float = 0.0
    execute_s: float = 0.0
    postprocess_s: float = 0.0
    outcome: str = "ok"
    limit: int = 0  # of rows, when it was released
    why: str = ""  # that limit
    predicted_s: float = 0.0
    took_s: float = 0.0  # the worker was at it and at nothing else
    elements: int = 0  # of rows of different length that were made equal,
    padding: int = 0  # and what they were filled up with
