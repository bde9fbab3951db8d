"""One request's way through the front, the same for every protocol: who answers, decode, answer, encode; all counted."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from forwardpass.admit.quotas import Admission
from forwardpass.core.caller import ANONYMOUS, Caller
from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failed, Failure, Refused
from forwardpass.core.off_loop import off_loop
from forwardpass.core.pipeline import TaskKind
from forwardpass.core.request import Answer, Request
from forwardpass.ingress.dialect import Target
from forwardpass.ingress.edge import allow
from forwardpass.pipeline.books import ended_by
from forwardpass.pipeline.charge import most
from forwardpass.pipeline.handle import Handle
from forwardpass.rollout.variant import Variant

ROW_BYTES = 1024  # what a row counts as, be it a single number: printing one takes up to 20 us
Encoded = TypeVar("Encoded")
Stage = TypeVar("Stage")


class Inference:
    """``outside`` counts the ends of requests that reached no pipeline: "ok" or an error code.

    ``starting``: not all that is to be served is known yet. ``refuse_work`` raises while no request is taken in.
    """

    def __init__(
        self,
        handle: Handle,
        clock: Clock,
        pipeline_default: str = "",
        starting: Callable[[], bool] = lambda: False,
        refuse_work: Callable[[], None] = lambda: None,
    ) -> None:
        self.handle = handle
        self.outside: Counter[str] = Counter()
        self._clock = clock
        self._pipeline_default = pipeline_default
        self._starting = starting
        self.refuse_work = refuse_work

    async def run(
        self,
        target: Target,
        work: int,
        decode: Callable[[Variant], Request],
        encode: Callable[[Answer, Request], Encoded],
        caller: Caller = ANONYMOUS,
        admission: Admission | None = None,
    ) -> Encoded:
        """The encoded answer of a request; ``work`` is how many bytes there are to decode, or count as. Raises the Failure that ended it."""
        try:
            self.refuse_work()
            variant = self.route(target, caller, "infer")
            variant.enter()  # from here to the answer: an unload waits also for a body that is being decoded
        except Failure as failure:
            self.count(failure)
            raise

        async def tell(answer: Answer, request: Request) -> Encoded:
            try:
                return await off_loop(work_of(answer), encode, answer, request)
            except BaseException:
                if not answer.failures:
                    variant.sequences.untold(request)
                raise

        try:
            if admission is not None:
                await self._counted(admission.enter(variant.version.pipeline))
            request = await self._counted(off_loop(work, decode, variant))
            request.timeline.decoded = self._clock()
            if admission is not None and admission.charges:
                await self._counted(self.charge(admission, variant, request))
            return await self.handle.told(variant, request, tell, admission)
        finally:
            variant.exit()

    def route(self, target: Target, caller: Caller = ANONYMOUS, scope: str = "read") -> Variant:
        """The version that is meant, for a caller that has the scope for it.

        Raises Refused forbidden, pipeline_not_found, version_not_found; Failed not_ready, also for what may still come.
        """
        try:
            pipeline = target.pipeline or self._only(target.tasks, caller, scope)
            allow(caller, scope, pipeline)
            return self.handle.route(pipeline, target.number)
        except Refused:
            if self._starting():
                raise Failed(Code.NOT_READY, "pipelines are being loaded", retry_after_s=1.0) from None
            raise

    def visible(self, caller: Caller, scope: str = "read") -> list[Variant]:
        """The versions that are loaded, and that the caller may know of."""
        return [each for each in self.handle.routes.variants() if caller.may(scope, each.version.pipeline)]

    def count(self, error: BaseException) -> None:
        """A request ended before any pipeline knew of it."""
        self.outside[ended_by(error)] += 1

    async def _counted(self, stage: Awaitable[Stage]) -> Stage:
        try:
            return await stage
        except BaseException as error:
            self.count(error)
            raise

    async def charge(self, admission: Admission, variant: Variant, request: Request) -> None:
        """Reserve of the caller's quotas the most that the request can come to. Raises as Admission does."""
        definition, charges = variant.version.definition, admission.charges
        tokens = "tokens" in charges or ("cost" in charges and definition.price.token > 0)
        size = sum([column.bytes_total for column in request.columns]) if tokens else 0
        await admission.charge(
            await off_loop(size, partial(most, tokens=tokens), definition, variant.signature, request)
        )

    def _only(self, tasks: Sequence[TaskKind], caller: Caller, scope: str) -> str:
        """The pipeline for requests that name none: the one of the settings, or the only one that the caller may ask.

        With ``tasks`` only those count that have one of them, and the first task that any has decides. What a pipeline
        does is said by the version that answers; one without such a version, as while it loads, may do anything.
        """
        routes, default = self.handle.routes, self._pipeline_default
        default = default if default and caller.may(scope, default) else ""
        kinds = {
            variant.version.pipeline: variant.signature.task.kind if variant.signature.task is not None else None
            for variant in routes.current()
            if caller.may(scope, variant.version.pipeline)
        }
        away = {each.version.pipeline for each in self.visible(caller, scope)} - kinds.keys()
        if default and (not tasks or default not in kinds or kinds[default] in tasks):
            return default  # where it is not served now, who is asked for it says why
        if self._starting():  # who is the only one, or the first with a task, is not known yet
            raise Failed(Code.NOT_READY, "pipelines are being loaded", retry_after_s=1.0)
        names = [*kinds, *away]
        if tasks:
            fitting = ([name for name, kind in kinds.items() if kind == task] for task in tasks)
            names = next(filter(None, fitting), [])
        if len(names) == 1:
            return names[0]
        wanted = " or ".join(tasks)
        if tasks and not names:
            if away:
                text = f"no pipeline with a task of kind {wanted} is ready; not all are"
                raise Failed(Code.NOT_READY, text, retry_after_s=1.0)
            text = f"no pipeline that this caller may ask has a task of kind {wanted} ([task] in pipeline.toml)"
        elif not names:
            text = "no pipeline is served that this caller may ask"
        else:
            fit = f" of this kind ({wanted})" if tasks else ""
            many = f"{len(names)} pipelines{fit} are served to this caller"
            text = f"{many}, so the request must name one, or the setting data.pipeline"
        raise Refused(Code.PIPELINE_NOT_FOUND, text)


def work_of(answer: Answer) -> int:
    """How much there is to encode, in bytes of tensors."""
    return max(sum([tensor.bytes_total for tensor in answer.outputs.values()]), answer.rows * ROW_BYTES)
