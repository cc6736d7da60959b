"""The OpenMetrics text, beside the one of the client library."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from sentinel.sinks import openmetrics
from tests.support.properties import unhurried

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.one_of(st.floats(), st.integers(-(2**60), 2**60).map(float))


class Fixed(Collector):
    def __init__(self, *families):
        self.families = families

    def collect(self):
        return self.families


def library(*families):
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Fixed(*families))
    return generate_latest(registry)


@unhurried
@given(st.lists(st.tuples(TEXTS, TEXTS, VALUES), max_size=5), TEXTS)
def test_it_is_the_librarys_text_for_any_labels_and_values(samples, documentation):
    gauge = GaugeMetricFamily("g", documentation, labels=("b", "a"))
    counter = CounterMetricFamily("c", documentation, labels=("x",))
    for one, other, value in samples:
        gauge.add_metric([one, other], value)
        counter.add_metric([one], abs(value), exemplar=Exemplar({"incident": other}, 1.0))

    assert openmetrics.text_of((gauge, counter)) == library(gauge, counter)


def test_histograms_too():
    family = HistogramMetricFamily("h", "of seconds")
    family.add_metric([], [("0.1", 3.0), ("+Inf", 5.0)], sum_value=1.5)

    assert openmetrics.text_of((family,)) == library(family)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_spelt_as_prometheus_reads_them(value):
    gauge = GaugeMetricFamily("g", "x", value=value)

    assert openmetrics.text_of((gauge,)) == library(gauge)
