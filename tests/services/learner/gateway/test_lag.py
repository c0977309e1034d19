"""Policy lag at insertion."""

import pytest

from vedette_services.learner.gateway.lag import LagMeter
from vedette_services.status.status import Lag


def test_lag_is_weighted_by_transitions() -> None:
    meter = LagMeter()
    meter.on_published((1, 0), now=0.0)
    meter.on_published((1, 10), now=1.0)
    meter.on_inserted((1, 10), version_now=10, rows=3, now=2.0)
    meter.on_inserted((1, 2), version_now=10, rows=1, now=2.0)
    figures = meter.summarize()
    assert figures["mean"] == pytest.approx(2.0)
    assert figures["max"] == 8


def test_seconds_are_the_age_of_the_model_that_acted() -> None:
    meter = LagMeter()
    meter.on_published((1, 0), now=0.0)
    meter.on_published((1, 5), now=4.0)
    meter.on_inserted((1, 0), version_now=5, rows=1, now=10.0)
    meter.on_inserted((1, 5), version_now=5, rows=1, now=10.0)
    assert meter.summarize()["seconds_mean"] == pytest.approx(8.0)


def test_nothing_inserted_has_no_lag() -> None:
    meter = LagMeter()
    meter.on_inserted((1, 7), version_now=0, rows=1, now=0.0)  # no model is known
    assert meter.summarize() == Lag()


def test_models_of_the_steps_that_a_kill_has_cost_are_far_away_and_as_old_as_they_are() -> None:
    meter = LagMeter()
    meter.on_published((1, 500_000), now=0.0)
    meter.on_published((1, 999_900), now=10.0)
    meter.on_published((2, 990_000), now=13.0)
    meter.on_inserted((1, 999_900), version_now=990_001, rows=256, now=14.0)
    figures = meter.summarize()
    assert figures["max"] == figures["mean"] == 1 + 9_900
    assert figures["seconds_mean"] == pytest.approx(4.0)
    meter.on_inserted((3, 5), version_now=990_001, rows=9000, now=14.0)
    assert meter.summarize() == figures, "of an epoch that this learner has not come to"


def test_an_age_before_the_first_model_that_is_known_counts_for_no_mean() -> None:
    meter = LagMeter()
    meter.on_published((2, 100), now=50.0)
    meter.on_inserted((2, 90), version_now=100, rows=1, now=52.0)
    assert (meter.summarize().mean, meter.summarize().seconds_mean) == (10.0, None)
    meter.on_inserted((2, 100), version_now=100, rows=1, now=52.0)
    assert (meter.summarize().mean, meter.summarize().seconds_mean) == (5.0, 2.0)


@pytest.mark.parametrize("age", [0.5, 4.0, 30.0, 99.0, 99.999])
def test_models_are_as_old_as_they_are_however_many_came_since(age: float) -> None:
    meter = LagMeter()
    for version in range(100_000):
        meter.on_published((1, version), now=version / 1000)
    newest = 99_999
    meter.on_inserted((1, newest - round(1000 * age)), newest, rows=1, now=newest / 1000)
    assert meter.summarize().seconds_mean == pytest.approx(age, rel=2e-3)
