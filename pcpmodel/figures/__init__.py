"""Figures: data in, axes out.

Every function takes frames (and ``ax`` to draw on) and returns the axes; none
reads a file or knows where its data come from.  :func:`panels` repeats one per
value of a column, :func:`save` writes SVG, PDF and PNG with :func:`alt_text` and
:func:`caption`, and :func:`output` chooses size and formats.
"""

# SPDX-License-Identifier: GPL-2.0-only

from pcpmodel.lazy import lazily

_PUBLIC = {
    "FORMATS": "pcpmodel.figures.style",
    "SIZES": "pcpmodel.figures.style",
    "alt_text": "pcpmodel.figures.style",
    "answer_key": "pcpmodel.figures.simulation",
    "by_release": "pcpmodel.figures.simulation",
    "caption": "pcpmodel.figures.style",
    "foreseen": "pcpmodel.figures.recordings",
    "hold_time": "pcpmodel.figures.latency",
    "holds_by_release": "pcpmodel.figures.recordings",
    "ladder": "pcpmodel.figures.rules",
    "limit_probability": "pcpmodel.figures.limit",
    "memory_on_lists": "pcpmodel.figures.simulation",
    "numa_gain_map": "pcpmodel.figures.numa",
    "numa_published": "pcpmodel.figures.numa",
    "numa_series": "pcpmodel.figures.numa",
    "numa_situations": "pcpmodel.figures.numa",
    "output": "pcpmodel.figures.style",
    "page_list_life": "pcpmodel.figures.rules",
    "pages_over_time": "pcpmodel.figures.recordings",
    "panels": "pcpmodel.figures.style",
    "predicted_measured": "pcpmodel.figures.validation",
    "rates_measured": "pcpmodel.figures.validation",
    "residuals": "pcpmodel.figures.latency",
    "save": "pcpmodel.figures.style",
    "scale_latency": "pcpmodel.figures.limit",
    "scale_probability": "pcpmodel.figures.limit",
    "throughput_gain": "pcpmodel.figures.latency",
    "tour_picture": "pcpmodel.figures.tour",
    "tradeoff": "pcpmodel.figures.simulation",
    "tradeoff_latency": "pcpmodel.figures.simulation",
    "waterfall": "pcpmodel.figures.simulation",
}

__all__ = list(_PUBLIC)

__getattr__, __dir__ = lazily(__name__, _PUBLIC)
