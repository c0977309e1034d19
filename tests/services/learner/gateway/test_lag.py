"""Policy lag at insertion."""

import pytest

from vedette_services.learner.gateway.lag import LagMeter
from vedette_services.status.status import Lag


def test_lag_is_weighted_by_transitions() -> None:
    meter = LagMeter()
    meter.on_published(10, now=1.0)
    meter.on_inserted(version=10, version_now=10, rows=3, now=2.0)
    meter.on_inserted(version=2, version_now=10, rows=1, now=2.0)
    figures = meter.summarize()
    assert figures["mean"] == pytest.approx(2.0)
    assert figures["max"] == 8


def test_seconds_are_the_age_of_the_model_that_acted() -> None:
    meter = LagMeter()
    meter.on_published(0, now=0.0)
    meter.on_published(5, now=4.0)
    meter.on_inserted(version=0, version_now=5, rows=1, now=10.0)
    meter.on_inserted(version=5, version_now=5, rows=1, now=10.0)
    assert meter.summarize()["seconds_mean"] == pytest.approx(8.0)


def test_nothing_inserted_has_no_lag() -> None:
    assert LagMeter().summarize() == Lag(mean=0.0, p95=0.0, max=0.0, seconds_mean=0.0)


def test_a_resumed_run_forgets_the_versions_that_were_lost() -> None:
    meter = LagMeter()
    meter.on_published(5, now=1.0)
    meter.on_published(9, now=2.0)
    meter.on_published(5, now=7.0)
    meter.on_inserted(version=9, version_now=5, rows=1, now=8.0)
    figures = meter.summarize()
    assert figures["max"] == 0
    assert figures["seconds_mean"] == pytest.approx(1.0)
