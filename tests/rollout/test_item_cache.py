"""The cache before the queue: what is known is not run, equal rows run once, and nobody fails because somebody else did."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.rollout.cache_bench import CacheBench, Together, cache_bench, turns

from forwardpass.cache.kept import Kept
from forwardpass.core.errors import Code, Failed, Refused
from forwardpass.core.pipeline import Queue as Limits
from forwardpass.core.tensor import Tensor


def on(test: Callable[[CacheBench], Awaitable[None]], **settings: object) -> None:
    async def run() -> None:
        async with cache_bench(**settings) as made:  # type: ignore[arg-type]
            await test(made)

    asyncio.run(run())


def test_a_request_of_which_most_is_known_runs_the_rest() -> None:
    async def run(made: CacheBench) -> None:
        known = [b"%d" % number for number in range(30)]
        await (await made.ask(*known)).answer()
        asked = await made.ask(*known, b"new", b"newer")
        assert await asked.answer() == [*known, b"new", b"newer"]
        assert (asked.found, made.batcher.reports[-1].rows) == ((30, 0, 2), 2)

    on(run)


def test_equal_rows_of_one_request_run_once() -> None:
    async def run(made: CacheBench) -> None:
        asked = await made.ask(b"x", b"y", b"x")
        assert await asked.answer() == [b"x", b"y", b"x"]
        assert (asked.found, made.ran) == ((0, 1, 2), [b"x", b"y"])

    on(run)


def test_equal_rows_that_come_while_one_runs_have_its_answer() -> None:
    async def run(made: CacheBench) -> None:
        first = await made.ask(b"x")
        others = [await made.ask(b"x") for _ in range(5)]
        await made.release()
        assert [await each.answer() for each in (first, *others)] == [[b"x"]] * 6
        assert made.ran == [b"x"] and {each.found for each in others} == {(0, 1, 0)}

    on(run, hold=True)


def test_a_leader_that_is_cancelled_before_it_runs_is_succeeded_by_the_first_that_still_waits() -> None:
    async def run(made: CacheBench) -> None:
        before = await made.ask(b"before")
        leader, gone, follower = [await made.ask(b"x") for _ in range(3)]
        await made.leave(gone)
        await made.leave(leader)
        await made.release()
        await made.release()
        assert (await before.answer(), await follower.answer()) == ([b"before"], [b"x"])
        assert made.ran == [b"before", b"x"]

    on(run, hold=True)


def test_a_leader_that_is_cancelled_while_it_runs_leaves_its_answer_to_nobody_but_the_followers_have_theirs() -> None:
    async def run(made: CacheBench) -> None:
        leader, follower = await made.ask(b"x"), await made.ask(b"x")
        await made.leave(leader)
        await made.release()
        await made.release()
        assert await follower.answer() == [b"x"]

    on(run, hold=True)


def test_a_leader_that_is_too_late_does_not_take_its_followers_with_it() -> None:
    async def run(made: CacheBench) -> None:
        await made.ask(b"before")
        leader = await made.ask(b"x", deadline=made.clock() + 5.0)
        follower = await made.ask(b"x", deadline=made.clock() + 60.0)
        made.clock.advance(6.0)
        await made.release()
        assert await leader.answer() is Code.DEADLINE_EXCEEDED
        await made.leave(leader)
        await made.release()
        assert await follower.answer() == [b"x"]

    on(run, hold=True)


def test_what_failed_by_our_fault_is_run_again_for_those_who_follow_and_is_not_kept() -> None:
    async def run(made: CacheBench) -> None:
        made.executor.failures[b"x"] = [Failed(Code.STEP_FAILED, "once")]
        leader, *followers = [await made.ask(b"x") for _ in range(3)]
        await made.release()
        await made.release()
        assert await leader.answer() is Code.STEP_FAILED
        assert [await each.answer() for each in followers] == [[b"x"]] * 2
        assert made.ran == [b"x", b"x"] and len(made.shelf) == 1

    on(run, hold=True)


def test_what_fails_whoever_runs_it_is_not_run_for_each_of_a_thousand() -> None:
    async def run(made: CacheBench) -> None:
        made.executor.failures[b"x"] = [Failed(Code.STEP_FAILED, "always")] * 9
        asked = [await made.ask(b"x") for _ in range(9)]
        await made.release()
        await made.release()
        assert [await each.answer() for each in asked] == [Code.STEP_FAILED] * 9
        assert len(made.ran) == 2 and not len(made.shelf)

    on(run, hold=True)


def test_what_fails_as_a_whole_whoever_runs_it_is_not_run_for_each_of_a_thousand() -> None:
    async def run(made: CacheBench) -> None:
        made.executor.whole[b"x"] = [Failed(Code.STEP_FAILED, "always")] * 9
        first, second, *others = [await made.ask(b"x") for _ in range(9)]
        several = await made.ask(b"x", b"y")
        await made.release()
        await made.leave(first)
        await made.release()  # of "y"
        await made.release()
        await made.leave(second)
        assert [await each.answer() for each in (first, second, *others)] == [Code.STEP_FAILED] * 9
        failed, answered = several.ticket.parts()
        assert (failed.failures[0].code, answered.rows) == (Code.STEP_FAILED, 1)
        assert made.ran.count(b"x") == 2 and len(made.shelf) == 1

    on(run, hold=True)


def test_what_is_refused_as_a_whole_is_refused_to_all_who_follow() -> None:
    async def run(made: CacheBench) -> None:
        made.executor.whole[b"x"] = [Refused(Code.RULE_REFUSED, "no")]
        leader, follower = await made.ask(b"x"), await made.ask(b"x")
        await made.release()
        await made.leave(leader)
        assert await follower.answer() is Code.RULE_REFUSED and len(made.ran) == 1

    on(run, hold=True)


def test_leaders_that_a_worker_finds_too_late_are_not_the_failure_of_who_follows() -> None:
    async def run(made: CacheBench) -> None:
        made.executor.failures[b"x"] = [Failed(Code.DEADLINE_EXCEEDED, "late")] * 3
        asked = [await made.ask(b"x") for _ in range(4)]
        for _ in range(4):
            await made.release()
        assert [await each.answer() for each in asked] == [Code.DEADLINE_EXCEEDED] * 3 + [[b"x"]]

    on(run, hold=True)


def test_a_leader_that_is_cancelled_is_not_counted_as_one_that_failed() -> None:
    async def run(made: CacheBench) -> None:
        await made.ask(b"before")
        leader, follower, other = [await made.ask(b"x") for _ in range(3)]
        made.executor.failures[b"x"] = [Failed(Code.STEP_FAILED, "once")]
        await made.leave(leader)
        for _ in range(3):
            await made.release()
        assert (await follower.answer(), await other.answer()) == (Code.STEP_FAILED, [b"x"])

    on(run, hold=True)


def test_one_who_leaves_as_it_is_told_takes_nobody_with_it() -> None:
    async def run(made: CacheBench) -> None:
        _, leaving, *others = [await made.ask(b"x") for _ in range(4)]
        leaving.ticket.then = lambda ticket: leaving.leave()
        await made.release()
        assert [await each.answer() for each in others] == [[b"x"]] * 2

    on(run, hold=True)


def test_a_refusal_is_the_answer_of_all_equal_rows_and_is_not_kept() -> None:
    async def run(made: CacheBench) -> None:
        made.executor.failures[b"x"] = [Refused(Code.RULE_REFUSED, "no")]
        asked = [await made.ask(b"x") for _ in range(3)]
        await made.release()
        assert [await each.answer() for each in asked] == [Code.RULE_REFUSED] * 3
        assert len(made.ran) == 1 and not len(made.shelf)

    on(run, hold=True)


def test_a_follower_that_finds_no_room_in_the_queue_ends_by_itself() -> None:
    async def run(made: CacheBench) -> None:
        await made.ask(b"before")
        leader, follower = await made.ask(b"x"), await made.ask(b"x")
        leader.ticket.finish(Failed(Code.SHED, "made room"))
        made.queue.discard(leader.running)
        await made.ask(b"other")  # and now it is full
        await made.leave(leader)
        assert await follower.answer() is Code.QUEUE_FULL

    on(run, hold=True, limits=Limits(rows_max=1))


def test_followers_of_a_version_that_is_unloaded_are_told_so() -> None:
    async def run(made: CacheBench) -> None:
        leader, follower = await made.ask(b"x"), await made.ask(b"x")
        made.ended = True
        await made.leave(leader)
        assert await follower.answer() is Code.SHUTTING_DOWN

    on(run, hold=True)


def test_one_who_would_be_served_before_the_one_that_waits_does_not_wait_for_it() -> None:
    async def run(made: CacheBench) -> None:
        await made.ask(b"before")
        later, urgent = await made.ask(b"x", priority=9), await made.ask(b"x", priority=1)
        sooner = await made.ask(b"x", priority=1, deadline=made.clock() + 5.0)
        assert [each.found for each in (later, urgent, sooner)] == [(0, 0, 1)] * 3
        assert (await made.ask(b"x")).found == (0, 1, 0)

    on(run, hold=True)


def test_tenants_are_not_given_each_others_answers_nor_wait_for_each_other() -> None:
    async def run(made: CacheBench) -> None:
        one, other = await made.ask(b"x", tenant="a"), await made.ask(b"x", tenant="b")
        assert one.found == other.found == (0, 0, 1)
        await made.release()
        await made.release()
        assert (await made.ask(b"x", tenant="b")).found == (1, 0, 0)
        assert (await made.ask(b"x", tenant="c")).found == (0, 0, 1)

    on(run, hold=True)


def test_tenants_that_share_are() -> None:
    async def run(made: CacheBench) -> None:
        await (await made.ask(b"x", tenant="a")).answer()
        assert (await made.ask(b"x", tenant="b")).found == (1, 0, 0)

    on(run, together=True)


def test_an_answer_is_given_again_until_its_time_is_over() -> None:
    async def run(made: CacheBench) -> None:
        await (await made.ask(b"x")).answer()
        made.clock.advance(59.0)
        again = await made.ask(b"x")
        assert (again.found, again.use.age_s_max) == ((1, 0, 0), 59.0)
        made.clock.advance(1.0)
        assert (await made.ask(b"x")).found == (0, 0, 1)

    on(run, ttl_s=60.0)


def test_who_wants_a_new_answer_has_one_and_the_next_is_given_that() -> None:
    async def run(made: CacheBench) -> None:
        await (await made.ask(b"x")).answer()
        made.clock.advance(10.0)
        renewed = await made.ask(b"x", age_s_max=-1.0)
        assert (renewed.found, await renewed.answer()) == ((0, 0, 1), [b"x"])
        assert (await made.ask(b"x")).use.age_s_max == 0.0

    on(run)


def test_of_who_leaves_the_cache_alone_nothing_is_kept_and_nobody_waits_for_it() -> None:
    async def run(made: CacheBench) -> None:
        await made.ask(b"x", age_s_max=-1.0, stores=False)
        assert (await made.ask(b"x")).found == (0, 0, 1)
        await made.release()
        assert not len(made.shelf)

    on(run, hold=True)


def test_what_runs_while_all_is_purged_is_not_kept() -> None:
    async def run(made: CacheBench) -> None:
        asked = await made.ask(b"x")
        assert made.cache.purge() == 0
        await made.release()
        assert await asked.answer() == [b"x"] and not len(made.shelf)
        await made.ask(b"x")
        await made.release()
        assert made.cache.purge() == 1
        assert (await made.ask(b"x")).found == (0, 0, 1)

    on(run, hold=True)


def test_what_is_kept_is_a_copy_that_nobody_can_change() -> None:
    async def run(made: CacheBench) -> None:
        (first,) = (await made.ask(b"x")).ticket.parts()
        assert isinstance(first.outputs[0].data, memoryview)
        first.outputs[0].data[0:1] = b"!"
        again = await made.ask(b"x")
        assert await again.answer() == [b"x"]
        assert isinstance(again.ticket.parts()[0].outputs[0].data, bytes)

    on(run)


def test_what_another_server_knows_is_not_run_here() -> None:
    async def run() -> None:
        tier = Together()
        async with cache_bench(tier=tier) as one, cache_bench(tier=tier) as two:
            await (await one.ask(b"x")).answer()
            asked = await two.ask(b"x", b"y")
            assert (await asked.answer(), asked.found) == ([b"x", b"y"], (1, 0, 1))
            tier.asked.clear()
            assert (await two.ask(b"x", b"y")).found == (2, 0, 0) and not tier.asked

    asyncio.run(run())


def test_what_another_kind_of_server_wrote_is_not_an_answer() -> None:
    async def run() -> None:
        tier = Together()
        async with cache_bench(tier=tier) as made:
            await (await made.ask(b"x")).answer()
            (key,) = tier.kept
            made.cache.purge()
            for other in (
                Kept(1, [Tensor("FP32", (1, 1), bytes(4))], [], 0, made.clock()),
                Kept(2, [Tensor("BYTES", (2,), bytes(8))], [], 0, made.clock()),
                Kept(1, [Tensor("BYTES", (1,), bytes(4))], [], 0, made.clock() - 60.0),
            ):
                tier.kept[key] = other
                made.cache.purge()
                asked = await made.ask(b"x")
                assert (await asked.answer(), asked.found) == ([b"x"], (0, 0, 1))

    asyncio.run(run())


def test_what_was_on_its_way_from_another_server_when_all_was_purged_is_not_kept() -> None:
    async def run() -> None:
        tier = Together()
        async with cache_bench(tier=tier) as one, cache_bench(tier=tier) as two:
            await (await one.ask(b"x")).answer()
            asking = asyncio.create_task(two.ask(b"x"))
            await asyncio.sleep(0)
            two.cache.purge()
            assert (await asking).found == (0, 0, 1)

    asyncio.run(run())


def test_nothing_is_left_behind_by_those_who_went() -> None:
    async def run(made: CacheBench) -> None:
        asked = [await made.ask(b"x", b"%d" % number) for number in range(20)]
        for each in asked:
            await made.leave(each)
        while made.executor.held:
            await made.release()
        await turns()
        assert not made.queue.items
        assert (await made.ask(b"x", b"0")).use.joined == 0

    on(run, hold=True)
