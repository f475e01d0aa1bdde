"""Figures: data in, axes out.

Every function takes frames (and ``ax`` to draw on) and returns the axes; none
reads a file or knows where its data come from.  :func:`panels` repeats one per
value of a column, :func:`save` writes SVG, PDF and PNG with :func:`alt_text` and
:func:`caption`, and :func:`output` chooses size and formats.
"""

# SPDX-License-Identifier: GPL-2.0-only

from pcpmodel.figures.latency import hold_time, residuals, throughput_gain
from pcpmodel.figures.limit import limit_probability, scale_latency, scale_probability
from pcpmodel.figures.numa import (
    numa_gain_map,
    numa_published,
    numa_series,
    numa_situations,
)
from pcpmodel.figures.recordings import foreseen, holds_by_release, pages_over_time
from pcpmodel.figures.rules import ladder, page_list_life
from pcpmodel.figures.simulation import (
    answer_key,
    by_release,
    memory_on_lists,
    tradeoff,
    tradeoff_latency,
    waterfall,
)
from pcpmodel.figures.style import FORMATS, SIZES, alt_text, caption, output, panels, save
from pcpmodel.figures.tour import tour_picture
from pcpmodel.figures.validation import predicted_measured, rates_measured

__all__ = [
    "FORMATS",
    "SIZES",
    "alt_text",
    "answer_key",
    "by_release",
    "caption",
    "foreseen",
    "hold_time",
    "holds_by_release",
    "ladder",
    "limit_probability",
    "memory_on_lists",
    "numa_gain_map",
    "numa_published",
    "numa_series",
    "numa_situations",
    "output",
    "page_list_life",
    "pages_over_time",
    "panels",
    "predicted_measured",
    "rates_measured",
    "residuals",
    "save",
    "scale_latency",
    "scale_probability",
    "throughput_gain",
    "tour_picture",
    "tradeoff",
    "tradeoff_latency",
    "waterfall",
]
