"""What clients name, and which variant answers: the newest ready version, or the one they pinned."""

from forwardpass.core.errors import Code, Failed, Refused, show
from forwardpass.rollout.lifecycle import Stage
from forwardpass.rollout.variant import Variant


class Routes:
    """Variants by pipeline and version number. Looking up never waits and never fails half-way."""

    def __init__(self) -> None:
        self._variants: dict[str, dict[int, Variant]] = {}
        self._current: dict[str, Variant] = {}

    def add(self, variant: Variant) -> None:
        """Known from now on; it answers unpinned requests once ``refresh`` finds it ready and newest."""
        self._variants.setdefault(variant.version.pipeline, {})[variant.version.number] = variant

    def remove(self, variant: Variant) -> None:
        """Not known any more; nothing happens when it is not."""
        numbers = self._variants.get(variant.version.pipeline, {})
        if numbers.get(variant.version.number) is variant:
            del numbers[variant.version.number]
            if not numbers:
                del self._variants[variant.version.pipeline]
        self.refresh(variant.version.pipeline)

    def refresh(self, pipeline: str) -> None:
        """Decide again who answers unpinned requests; call after a variant became ready or stopped being it."""
        numbers = self._variants.get(pipeline, {})
        ready = [number for number, variant in numbers.items() if variant.stage is Stage.READY]
        if ready:
            self._current[pipeline] = numbers[max(ready)]
        else:
            self._current.pop(pipeline, None)

    def serves(self, pipeline: str) -> bool:
        """Whether any version of it is known."""
        return pipeline in self._variants

    def find(self, pipeline: str, number: int | None) -> Variant:
        """Raises Refused pipeline_not_found, version_not_found; Failed not_ready while it loads or drains."""
        if number is None:
            variant = self._current.get(pipeline)
            if variant is not None and variant.stage is not Stage.READY:  # it ended before anybody said so
                self.refresh(pipeline)
                variant = self._current.get(pipeline)
            if variant is not None:
                return variant
        numbers = self._variants.get(pipeline)
        if numbers is None:
            raise Refused(Code.PIPELINE_NOT_FOUND, f'pipeline "{show(pipeline)}" is not served here')
        if number is not None and number not in numbers:
            raise Refused(Code.VERSION_NOT_FOUND, f'pipeline "{pipeline}" has no version {number} here')
        chosen = numbers[max(numbers) if number is None else number]
        if chosen.stage is not Stage.READY:
            text = f'pipeline "{pipeline}" version {chosen.version.number} is {chosen.stage}'
            raise Failed(Code.NOT_READY, text, retry_after_s=1.0)
        return chosen

    def ready(self, pipeline: str, number: int | None) -> Variant | None:
        """What ``find`` gives; None where it would have to look further, or raise."""
        variant = self._current.get(pipeline) if number is None else self._variants.get(pipeline, {}).get(number)
        return variant if variant is not None and variant.stage is Stage.READY else None

    def current(self) -> list[Variant]:
        """Those that answer unpinned requests, by pipeline."""
        for pipeline, variant in list(self._current.items()):
            if variant.stage is not Stage.READY:  # as in ``find``
                self.refresh(pipeline)
        return [variant for _, variant in sorted(self._current.items())]

    def variants(self) -> list[Variant]:
        """All of them, by pipeline, then number."""
        return [numbers[number] for _, numbers in sorted(self._variants.items()) for number in sorted(numbers)]

    def numbers(self, pipeline: str) -> list[int]:
        return sorted(self._variants.get(pipeline, {}))
