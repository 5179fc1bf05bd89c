"""Order of sentences, and release of places in the queue."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from jointnmt.errors import DataError
from jointnmt.serving.queue import ANSWER_SECONDS, QueueFullError, Ticket, WorkQueue
from jointnmt.serving.work import Sentence
from jointnmt.serving.worker import outcomes


@dataclass(frozen=True)
class Upper:
    """Work that writes capitals, ten sentences at once; `bad` ones spoil their batch."""

    name: str = ""

    def plan(self, sentences: Sequence[Sentence]) -> list[int]:
        return list(range(min(10, len(sentences))))

    def compute(self, sentences: Sequence[Sentence]) -> Sequence[str]:
        if any(each.source == "bad" for each in sentences):
            raise DataError("bad text")
        return [each.source.upper() for each in sentences]


def ticket(count: int, work: Any = Upper(), name: str = "a") -> Ticket:
    return Ticket(work, deque(Sentence(number, f"{name}{number}") for number in range(count)), lambda *_: None)


def sources(queue: WorkQueue) -> list[str]:
    chosen = queue.take()
    assert chosen is not None
    return [each.source for each in chosen.sentences]


def test_a_small_request_does_not_wait_for_a_large_one() -> None:
    queue = WorkQueue(5000)
    queue.put(ticket(1000, name="large"))
    assert sources(queue) == [f"large{n}" for n in range(10)]
    queue.put(ticket(1, name="small"))
    assert "small0" in sources(queue) + sources(queue)


def test_requests_of_different_work_take_turns() -> None:
    queue = WorkQueue(5000)
    for name in "xyz":
        queue.put(ticket(25, Upper(name), name))
    first_letters = [sources(queue)[0][0] for _ in range(7)]
    assert first_letters == ["x", "y", "z", "x", "y", "z", "x"]


def test_equal_work_of_several_requests_is_done_together() -> None:
    queue = WorkQueue(100)
    for name in "abc":
        queue.put(ticket(2, Upper(), name))
    queue.put(ticket(2, Upper("other"), "d"))
    assert sorted(sources(queue)) == ["a0", "a1", "b0", "b1", "c0", "c1"]
    assert sources(queue) == ["d0", "d1"]


def test_every_sentence_is_given_out_once() -> None:
    queue = WorkQueue(5000)
    for number, count in enumerate((700, 1, 33)):
        queue.put(ticket(count, Upper(), f"{number}."))
    queue.close()
    found = []
    while (chosen := queue.take()) is not None:
        found += [each.source for each in chosen.sentences]
    assert sorted(found) == sorted(f"{a}.{b}" for a, count in enumerate((700, 1, 33)) for b in range(count))


def test_a_full_queue_refuses_a_request_as_a_whole() -> None:
    queue = WorkQueue(10)
    queue.put(ticket(9))
    with pytest.raises(QueueFullError):
        queue.put(ticket(2))
    queue.put(ticket(1))
    assert queue.held == 10
    with pytest.raises(QueueFullError):
        queue.put(ticket(1))
    queue.put(ticket(1), even_if_full=True)


def test_documents_leave_room_for_sentences() -> None:
    queue = WorkQueue(16)
    for count in (8, 4, 2):
        queue.put(ticket(count))
    with pytest.raises(QueueFullError):
        queue.put(ticket(2))
    queue.put(ticket(1))
    queue.put(ticket(1))
    assert queue.held == 16


def test_a_document_may_have_an_empty_queue_for_itself() -> None:
    queue = WorkQueue(10)
    queue.put(ticket(10))
    assert queue.held == 10


def test_places_are_free_again_when_work_is_done_or_given_up() -> None:
    queue = WorkQueue(20)
    given_up = ticket(15)
    queue.put(given_up)
    chosen = queue.take()
    assert chosen is not None
    queue.cancel(given_up)
    assert queue.held == 10, "those that are being computed still count"
    queue.done(chosen)
    assert queue.held == 0
    queue.cancel(given_up)
    assert queue.held == 0, "giving up twice frees nothing more"


def test_a_closed_queue_gives_out_what_it_has_and_takes_no_more() -> None:
    queue = WorkQueue(20)
    queue.put(ticket(1))
    queue.close()
    assert sources(queue) == ["a0"]
    assert queue.take() is None
    with pytest.raises(QueueFullError):
        queue.put(ticket(1))


def test_who_waits_for_work_is_woken() -> None:
    queue, found = WorkQueue(20), []
    thread = threading.Thread(target=lambda: found.append(queue.take()))
    thread.start()
    queue.put(ticket(1))
    thread.join(timeout=10)
    assert found[0] is not None


def test_one_bad_sentence_does_not_spoil_the_others() -> None:
    sentences = [Sentence(0, "a"), Sentence(1, "bad"), Sentence(2, "c")]
    first, second, third = outcomes(Upper(), sentences)
    assert (first, third) == ("A", "C")
    assert isinstance(second, DataError)


def test_a_plan_that_fails_does_not_stop_the_queue() -> None:
    class Unplanned(Upper):
        def plan(self, sentences: Sequence[Sentence]) -> list[int]:
            raise ArithmeticError

    queue = WorkQueue(20)
    queue.put(ticket(2, Unplanned()))
    assert [sources(queue), sources(queue)] == [["a0"], ["a1"]]


def answered(count: int) -> WorkQueue:
    """A queue whose last batch has answered so many requests."""
    queue = WorkQueue(100)
    for number in range(count):
        queue.put(ticket(1, name=f"a{number}-"))
    chosen = queue.take()
    assert chosen is not None
    queue.done(chosen)
    return queue


def put_slowly(queue: WorkQueue, count: int, seconds: float) -> threading.Thread:
    """A thread that has begun to put requests into the queue."""

    def clients() -> None:
        for number in range(count):
            queue.put(ticket(1, name=f"b{number}-"))
            time.sleep(seconds)

    thread = threading.Thread(target=clients)
    thread.start()
    return thread


def test_after_a_batch_the_clients_it_answers_are_waited_for() -> None:
    queue = answered(9)
    queue.put(ticket(1, name="first"))
    thread = put_slowly(queue, 8, 0.0005)
    assert len(sources(queue)) == 9, "they are in one batch with the one that was there at once"
    thread.join()


def test_when_all_have_come_back_nothing_more_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANSWER_SECONDS", "PAUSE_SECONDS"):
        monkeypatch.setattr(f"jointnmt.serving.queue.{name}", 30)
    monkeypatch.setattr("jointnmt.serving.queue.LONGEST_WAIT_SECONDS", 3600)
    queue, began = answered(5), time.monotonic()
    thread = put_slowly(queue, 5, 0.02)
    assert len(sources(queue)) == 5
    assert time.monotonic() - began < 20
    thread.join()


def test_clients_that_do_not_come_back_are_not_waited_for_long() -> None:
    queue, began = answered(9), time.monotonic()
    queue.put(ticket(1, name="only"))
    assert sources(queue) == ["only0"]
    assert time.monotonic() - began < 5


def test_many_clients_are_waited_for_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many that answering all of them takes longer than any wait."""
    monkeypatch.setattr("jointnmt.serving.queue.LONGEST_WAIT_SECONDS", 10 * ANSWER_SECONDS)
    queue = answered(15)
    thread = put_slowly(queue, 15, 0.0001)
    assert len(sources(queue)) > 1
    thread.join()


@pytest.mark.parametrize("sentences", [1, 25])
def test_after_a_single_request_and_amid_a_long_one_nothing_is_waited_for(
    sentences: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading.Condition, "wait", lambda *_: pytest.fail("it waits"))
    queue = WorkQueue(100)
    for number in range(3):
        queue.put(ticket(sentences, Upper(str(number))))
        assert sum(len(sources(queue)) for _ in range(-(-sentences // 10))) == sentences
