"""Rate limits, counted on a clock that only the test moves."""

from __future__ import annotations

import pytest

from omnigraph.embed.job.rate_limit import RateLimit, RateLimiter, estimate_tokens
from omnigraph.errors import Cancelled, InputError


class Clock:
    """A clock that moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def pace(clock, check=lambda: None, **limit):
    return RateLimiter(RateLimit(**limit), check, clock=clock, sleep=clock.sleep)


def most_in_a_minute(moments, weights=None):
    weights = weights or [1] * len(moments)
    return max(
        sum(w for m, w in zip(moments, weights, strict=True) if start <= m < start + 60)
        for start in moments
    )


@pytest.mark.parametrize("allowed", [1, 7, 60, 3000])
def test_no_minute_has_more_requests_than_allowed_and_what_one_second_brings(allowed):
    clock, moments = Clock(), []
    rounds = pace(clock, requests_per_minute=allowed)
    for _ in range(3 * allowed + 5):
        rounds.acquire(10)
        moments.append(clock.now)
    assert most_in_a_minute(moments) <= allowed + max(1, allowed / 60)
    assert moments[-1] - moments[0] == pytest.approx(60 * 3, rel=0.1, abs=60 * 5 / allowed)


def test_no_minute_has_more_tokens_than_allowed_and_what_one_second_brings():
    clock, moments, weights = Clock(), [], []
    rounds = pace(clock, tokens_per_minute=6000)
    for number in range(300):
        cost = 1 + number % 97
        rounds.acquire(cost)
        moments.append(clock.now)
        weights.append(cost)
    assert most_in_a_minute(moments, weights) <= 6000 + 100
    assert moments[-1] - moments[0] > 60 * (sum(weights) - 200) / 6000


def test_a_request_that_is_larger_than_a_minute_waits_and_makes_the_next_wait():
    clock = Clock()
    rounds = pace(clock, tokens_per_minute=600)
    rounds.acquire(1200)
    assert clock.now == pytest.approx(1000 + (1200 - 10) / 10)
    rounds.acquire(10)
    assert clock.now == pytest.approx(1000 + 1200 / 10)


def test_what_was_guessed_wrong_is_made_good():
    clock = Clock()
    rounds = pace(clock, tokens_per_minute=600)
    rounds.acquire(10)
    rounds.correct(90)
    rounds.acquire(10)
    assert clock.now == pytest.approx(1000 + 10)


def test_without_limits_nobody_waits():
    clock = Clock()
    rounds = pace(clock)
    for _ in range(1000):
        rounds.acquire(10**6)
    assert clock.now == 1000


@pytest.mark.parametrize(("everyone", "requested_at"), [(True, 1009), (False, 1000.1)])
def test_a_pause_that_the_provider_asked_for_keeps_all_from_asking(everyone, requested_at):
    clock, requested = Clock(), []

    def sleep(seconds):
        clock.sleep(seconds)
        if not requested:
            requested.append(None)
            # Somebody else asks while the first one sleeps.
            rounds.acquire(1)
            requested.append(clock.now)

    rounds = RateLimiter(RateLimit(), clock=clock, sleep=sleep)
    rounds.pause(9, everyone=everyone)
    assert requested[1] == pytest.approx(requested_at)
    assert clock.now == pytest.approx(1009)


def test_somebody_who_waits_can_be_cancelled():
    clock = Clock()

    def check():
        if clock.now > 1003:
            raise Cancelled("enough")

    rounds = pace(clock, check, requests_per_minute=1)
    rounds.acquire(1)
    with pytest.raises(Cancelled):
        rounds.acquire(1)
    assert clock.now < 1004


def test_a_limit_is_shared_evenly():
    assert RateLimit(100, 900).split(3) == RateLimit(100 / 3, 300)
    assert RateLimit().split(3) == RateLimit()


@pytest.mark.parametrize("wrong", [{"requests_per_minute": 0}, {"tokens_per_minute": -1.0}])
def test_a_limit_of_nothing_is_refused(wrong):
    with pytest.raises(InputError, match="must be above 0"):
        RateLimit(**wrong)


def test_tokens_are_guessed_from_letters():
    assert estimate_tokens(0) == 1
    assert estimate_tokens(4000) == 1001
