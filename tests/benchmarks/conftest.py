"""Shows beside the times what they come to per page, event or line."""

# SPDX-License-Identifier: GPL-2.0-only

import pytest


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    session = getattr(config, "_benchmarksession", None)
    told = [b for b in getattr(session, "benchmarks", ()) if b.extra_info]
    if not told:
        return
    terminalreporter.section("per unit, from the medians (spread: IQR over median)")
    for b in sorted(told, key=lambda b: b.name):
        units = ", ".join(
            f"{k}={v:,.1f}" if isinstance(v, float) else f"{k}={v}" for k, v in b.extra_info.items()
        )
        terminalreporter.write_line(f"{b.name:64} {units}  ({b.stats.iqr / b.stats.median:.0%})")
