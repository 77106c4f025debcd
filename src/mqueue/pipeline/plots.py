"""Plots of a topic's hours as SVG, to be put into a page. Text and axes take the colour of the page around them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from mqueue.model.times import to_datetime
from mqueue.pipeline.hours import PERCENTILES, Hour

_INK = "#010203"
"""Stands for the colour of the text around: no page has quite this one."""
_BLUE, _ORANGE, _GREEN, _RED, _GREY = "#4c8dd6", "#e08a2e", "#3fa36b", "#d65252", "#8a8f98"
_HOUR_DAYS = 1 / 24


def plot(hours: Sequence[Hour], title: str) -> str:
    """Three plots below each other: how many, how long, and what went wrong."""
    import matplotlib
    from matplotlib.figure import Figure

    style: Any = {
        "svg.fonttype": "none", "svg.hashsalt": title, "font.family": "sans-serif", "font.size": 9,
        "text.color": _INK, "axes.edgecolor": _INK, "axes.labelcolor": _INK, "axes.titlecolor": _INK,
        "xtick.color": _INK, "ytick.color": _INK, "axes.spines.top": False, "axes.spines.right": False,
        "grid.color": _GREY, "grid.alpha": 0.3, "legend.frameon": False,
    }  # fmt: skip
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(9, 6.6), layout="constrained")
        figure.patch.set_alpha(0)
        rates, times, faults = figure.subplots(3, 1, sharex=True)
        for axes in (rates, times, faults):
            axes.patch.set_alpha(0)
            axes.grid(axis="y")
            axes.set_axisbelow(True)
        _rates(rates, hours)
        _latencies(times, hours)
        _faults(faults, hours)
        _dates(faults, hours)
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    svg = written.getvalue()
    return svg[svg.index("<svg") :].replace(_INK, "currentColor")


def _rates(axes: Any, hours: Sequence[Hour]) -> None:
    width = _HOUR_DAYS * 0.4
    axes.bar(_times(hours), _counts(hours, "published"), -width, align="edge", color=_BLUE, label="published")
    axes.bar(_times(hours), _counts(hours, "acked"), width, align="edge", color=_GREEN, label="acked")
    axes.set_ylabel("messages an hour")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.legend(ncols=2, loc="upper right", bbox_to_anchor=(1, 1.2))


def _latencies(axes: Any, hours: Sequence[Hour]) -> None:
    known = [hour for hour in hours if hour.latency is not None]
    colours = (_GREEN, _ORANGE, _RED)
    for place, (share, colour) in enumerate(zip(PERCENTILES, colours, strict=True)):
        seconds = [hour.latency.seconds[place] for hour in known if hour.latency is not None]
        axes.plot(_times(known), seconds, marker="o", markersize=3, color=colour, label=f"p{share * 100:g}")
    axes.set_ylabel("publish to ack, seconds")
    lowest = [hour.latency.seconds[0] for hour in known if hour.latency is not None]
    if lowest and min(lowest) > 0:
        axes.set_yscale("log")
        for formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            formatter("{x:g}")
    axes.legend(ncols=3, loc="upper right", bbox_to_anchor=(1, 1.2))


def _faults(axes: Any, hours: Sequence[Hour]) -> None:
    base = [0] * len(hours)
    for name, colour in (("redelivered", _ORANGE), ("timed_out", _GREY), ("dead", _RED), ("expired", _BLUE)):
        found = _counts(hours, name)
        axes.bar(_times(hours), found, _HOUR_DAYS * 0.8, bottom=base, color=colour, label=name.replace("_", " "))
        base = [below + more for below, more in zip(base, found, strict=True)]
    axes.set_ylabel("what went wrong")
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylim(0, max(1, *base) * 1.05)
    axes.legend(ncols=4, loc="upper right", bbox_to_anchor=(1, 1.2))


def _dates(axes: Any, hours: Sequence[Hour]) -> None:
    from matplotlib import dates

    untyped: Any = dates
    ticks = untyped.AutoDateLocator(tz=UTC)
    axes.xaxis.set_major_locator(ticks)
    axes.xaxis.set_major_formatter(untyped.ConciseDateFormatter(ticks, tz=UTC))
    times = _times(hours)
    axes.set_xlim(min(times) - timedelta(hours=1), max(times) + timedelta(hours=1))


def _times(hours: Sequence[Hour]) -> list[datetime]:
    return [to_datetime(hour.start_ms) for hour in hours]


def _counts(hours: Sequence[Hour], name: str) -> list[int]:
    return [hour.counts[name] for hour in hours]
