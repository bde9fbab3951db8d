"""The memory that onnxruntime's sessions of this process compute in: it grows by what is asked for, and shrinks again."""

from typing import Any

from forwardpass.core.clock import Clock
from forwardpass.engines.protocol import Arrays

MUCH_LARGER = 4
SHRINK_EVERY_S = 10.0


class Arena:
    """One arena per process; making it known again changes nothing.

    By itself it doubles, and one large refused request would leave it holding the worker's whole address space. And it
    keeps what its largest batch took: once in a while a much smaller one gives that back.
    """

    def __init__(self, onnxruntime: Any, clock: Clock) -> None:
        place = onnxruntime.OrtMemoryInfo(
            "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
        )
        onnxruntime.create_and_register_allocator(place, onnxruntime.OrtArenaCfg({"arena_extend_strategy": 1}))
        self._shrinking = onnxruntime.RunOptions()
        self._shrinking.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._clock = clock
        self._shrunk_s = clock()
        self._largest_bytes = 0  # of the batches since then

    def options(self, batch: Arrays) -> Any:
        """What this batch is to be run with."""
        size = sum([array.nbytes for array in batch.values()])
        if size * MUCH_LARGER >= self._largest_bytes:
            self._largest_bytes = max(self._largest_bytes, size)
            return None
        now = self._clock()
        if now - self._shrunk_s < SHRINK_EVERY_S:
            return None
        self._shrunk_s, self._largest_bytes = now, size
        return self._shrinking
