"""One function on many shares: answers in order, typed errors, retries, progress, cancellation."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from omnigraph import Cancel
from omnigraph.errors import (
    Cancelled,
    InternalError,
    QueryTimeout,
    SchemaError,
    SparkError,
    StorageFull,
    StorageUnavailable,
    UniqueViolation,
)
from omnigraph.read.limits import Limits, ResourceGuard
from omnigraph.spark import SparkEngine
from omnigraph.spark.session.failures import Remote, carrying
from omnigraph.spark.session.tasks import task_frame
from tests.spark import work
from tests.spark.processes import alive, wait_until


def test_answers_come_in_the_order_of_the_shares(engine: SparkEngine):
    assert engine.tasks(work.double, range(23), "doubling") == [2 * n for n in range(23)]


def test_no_share_is_no_job(engine: SparkEngine):
    assert engine.tasks(work.double, [], "doubling") == []


def test_a_function_without_a_module_is_sent_with_its_code(engine: SparkEngine):
    factor = 7
    assert engine.tasks(lambda number: factor * number, [1, 2], "multiplying") == [7, 14]


def test_work_is_done_in_other_processes(spark: SparkEngine):
    processes = spark.tasks(work.process_of, range(4), "looking")
    assert os.getpid() not in processes


def test_tasks_run_two_at_a_time(engine: SparkEngine):
    assert engine.slots == 2


# -- errors ---------------------------------------------------------------------------------------


def test_a_typed_error_arrives_with_its_fields(engine: SparkEngine):
    with pytest.raises(UniqueViolation) as caught:
        engine.tasks(work.refuse_odd, [0, 2, 5, 7], "checking")
    assert caught.value.to_json() == {
        "code": "unique_violation",
        "message": "5 is there twice",
        "hint": "give another",
        "retryable": False,
        "details": {"number": 5},
    }


def test_findings_in_a_text_arrive_with_their_places(spark: SparkEngine):
    with pytest.raises(SchemaError) as caught:
        spark.tasks(work.compile_wrong, ["node Person { name: Strin }"], "compiling")
    assert caught.value.diagnostics[0].span is not None
    assert "wrong.pg:1" in caught.value.render()


def test_an_error_that_is_not_typed_becomes_typed(spark: SparkEngine):
    with pytest.raises(InternalError, match="dividing: a worker failed unexpectedly") as caught:
        spark.tasks(work.divide_by_zero, [1], "dividing")
    assert "ZeroDivisionError" in str(caught.value.__cause__)
    assert caught.value.hint is None


def test_an_error_tells_debuggers_what_was_said_where_it_happened(engine: SparkEngine):
    with pytest.raises(UniqueViolation) as caught:
        engine.tasks(work.refuse_odd, [1], "checking")
    assert isinstance(caught.value.__cause__, Remote)
    assert "in refuse_odd" in caught.value.__cause__.text
    assert "\tat " not in caught.value.__cause__.text


def test_what_may_pass_is_tried_again(spark: SparkEngine, tmp_path: Path):
    trials = [work.Trial(tmp_path, 0, 0), work.Trial(tmp_path, 1, 2)]
    assert spark.tasks(work.be_away_at_first, trials, "asking") == [0, 1]
    assert [trial.attempts() for trial in trials] == [1, 3]


def test_what_does_not_pass_is_the_typed_error_in_the_end(spark: SparkEngine, tmp_path: Path):
    trial = work.Trial(tmp_path, 0, 9)
    with pytest.raises(StorageUnavailable, match="the store does not answer") as caught:
        spark.tasks(work.be_away_at_first, [trial], "asking")
    assert caught.value.hint == "repeat later"
    assert trial.attempts() == 4


def test_what_cannot_pass_is_not_tried_again(spark: SparkEngine, tmp_path: Path):
    trial = work.Trial(tmp_path, 0, 9)
    with pytest.raises(StorageFull):
        spark.tasks(work.be_full, [trial], "writing")
    assert trial.attempts() == 1


def test_a_worker_that_dies_is_replaced(spark: SparkEngine, tmp_path: Path):
    trials = [work.Trial(tmp_path, 0, 0), work.Trial(tmp_path, 1, 1)]
    assert spark.tasks(work.die_at_first, trials, "dying") == [0, 1]
    assert trials[1].attempts() == 2


def test_workers_that_die_again_and_again_are_an_error(spark: SparkEngine, tmp_path: Path):
    with pytest.raises(SparkError, match="dying: a worker process died repeatedly"):
        spark.tasks(work.die_at_first, [work.Trial(tmp_path, 0, 9)], "dying")


def test_a_typed_error_of_a_function_on_a_frame_arrives_with_its_fields(engine: SparkEngine):
    checked = carrying(work.raise_in_rows, "checking")
    frame = engine.session.range(3, 4, 1, 1).mapInArrow(checked, "id long")
    with pytest.raises(UniqueViolation, match="3 is there twice") as caught:
        engine.run(frame.collect, "checking")
    assert caught.value.details == {"number": 3}


def test_a_typed_error_that_nobody_carried_keeps_its_class_and_words(engine: SparkEngine):
    frame = engine.session.range(3, 4, 1, 1).mapInArrow(work.raise_in_rows, "id long")
    with pytest.raises(UniqueViolation) as caught:
        engine.run(frame.collect, "checking")
    assert caught.value.message == "3 is there twice"


# -- progress and the end -------------------------------------------------------------------------


def test_progress_is_told_in_the_thread_of_the_caller(engine: SparkEngine, tmp_path: Path):
    reported: list[tuple[int, int]] = []
    marks = [tmp_path / name for name in "abcd"]
    threads = set()

    def report(done: int, total: int) -> None:
        reported.append((done, total))
        threads.add(threading.get_ident())
        # Each report lets one more task end.
        marks[min(len(reported), len(marks)) - 1].touch()

    assert engine.tasks(work.wait_for, marks, "waiting", report=report) == list("abcd")
    assert reported[-1] == (4, 4)
    assert reported == sorted(set(reported))
    assert {total for _, total in reported} == {4}
    assert threads == {threading.get_ident()}


def test_a_job_is_cancelled_from_another_thread(engine: SparkEngine, tmp_path: Path):
    cancel = Cancel()

    def cancel_when_running() -> None:
        wait_until(lambda: any(tmp_path.iterdir()))
        cancel.set()

    other = threading.Thread(target=cancel_when_running)
    other.start()
    with pytest.raises(Cancelled, match="waiting was cancelled"):
        engine.tasks(work.wait_for_ever, [tmp_path] * 3, "waiting", cancel=cancel)
    other.join()
    workers = [int(path.name) for path in tmp_path.iterdir()]
    wait_until(lambda: not any(map(alive, workers)))
    assert engine.tasks(work.double, [1], "doubling") == [2]


def test_a_limit_ends_a_job_with_its_own_error(engine: SparkEngine, tmp_path: Path):
    guard = ResourceGuard(Limits(timeout=1.0))
    with pytest.raises(QueryTimeout):
        engine.tasks(work.wait_for_ever, [tmp_path], "waiting", check=guard.check)
    assert engine.tasks(work.double, [1], "doubling") == [2]


def test_an_interruption_of_the_caller_ends_the_job(spark: SparkEngine, tmp_path: Path):
    def interrupt() -> None:
        if any(tmp_path.iterdir()):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        spark.tasks(work.wait_for_ever, [tmp_path], "waiting", check=interrupt)
    (worker,) = (int(path.name) for path in tmp_path.iterdir())
    wait_until(lambda: not alive(worker))


def test_jobs_of_several_threads_do_not_disturb_each_other(engine: SparkEngine, tmp_path: Path):
    cancel, actual = Cancel(), []
    mark = tmp_path / "go"
    waiting = tmp_path / "waiting"
    waiting.mkdir()

    def work_on() -> None:
        actual.extend(engine.tasks(work.wait_for, [mark], "working"))

    other = threading.Thread(target=work_on)
    other.start()

    def check() -> None:
        if any(waiting.iterdir()):
            cancel.set()

    with pytest.raises(Cancelled):
        engine.tasks(work.wait_for_ever, [waiting], "waiting", cancel=cancel, check=check)
    mark.touch()
    other.join()
    assert actual == ["go"]


# -- secrets --------------------------------------------------------------------------------------


def test_no_plan_and_no_log_shows_what_a_share_holds(
    engine: SparkEngine, spark: SparkEngine, capfd
):
    secret = "very-secret-8d1f"
    splits = [work.Access("s3://bucket/g", {"aws_secret_access_key": secret})] * 3
    assert engine.tasks(work.use_secret, splits, "using") == [len(secret)] * 3
    task_frame(engine.session, work.use_secret, splits, "using").explain(extended=True)
    shown = capfd.readouterr()
    assert "MapInArrow" in shown.out
    assert spark.jvm is not None
    assert spark.jvm.scratch is not None
    log = (spark.jvm.scratch / "spark.log").read_text("utf-8")
    assert secret not in shown.out + shown.err + log
