"""Questions asked of machines, workloads and releases, and their answers."""

# SPDX-License-Identifier: GPL-2.0-only

from pcpmodel.lazy import lazily

# One-off studies; what is asked more often is a name of `pcpmodel` itself.
_PUBLIC = {
    "add_workload": "pcpmodel.study.workloads",
    "boot_drains": "pcpmodel.study.contention.batching",
    "build_memory": "pcpmodel.study.contention.autotuning",
    "build_surprise": "pcpmodel.study.contention.autotuning",
    "bulk_free": "pcpmodel.study.contention.bulk_free",
    "contention_by_cpus": "pcpmodel.study.contention.zone_splitting",
    "early_stop": "pcpmodel.study.contention.batching",
    "example_tree": "pcpmodel.study.patch",
    "checked_or_stored": "pcpmodel.study.validate",
    "explain": "pcpmodel.study.contention.explain",
    "explain_machines": "pcpmodel.hardware.fleet",
    "ladder": "pcpmodel.study.lists.ladder",
    "largest_drains": "pcpmodel.study.contention.batching",
    "latency_surprise": "pcpmodel.study.published.surprises",
    "limit_surprise": "pcpmodel.study.published.surprises",
    "lock_starvation": "pcpmodel.study.contention.starvation",
    "page_table_isolation": "pcpmodel.study.contention.autotuning",
    "pages_over_time": "pcpmodel.study.recorded",
    "patch_surprise": "pcpmodel.study.published.surprises",
    "policy_surprise": "pcpmodel.study.published.surprises",
    "recorded_exits": "pcpmodel.study.contention.autotuning",
    "recorded_work": "pcpmodel.study.recorded",
    "recordings": "pcpmodel.study.recorded",
    "replay_surprise": "pcpmodel.study.published.surprises",
    "rules_surprise": "pcpmodel.study.published.surprises",
    "stranded": "pcpmodel.study.lists.stranded",
    "stream_price": "pcpmodel.study.contention.batching",
    "stream_surprise": "pcpmodel.study.contention.autotuning",
    "throughput_gain": "pcpmodel.study.hold.throughput",
    "throughput_simulated": "pcpmodel.study.hold.throughput",
    "tradeoff": "pcpmodel.study.lists.tradeoff",
    "trajectory": "pcpmodel.study.lists.trajectory",
    "try_patch": "pcpmodel.study.patch",
    "unfair_lock": "pcpmodel.study.contention.starvation",
    "validation": "pcpmodel.study.validate",
    "version_surprise": "pcpmodel.study.contention.autotuning",
    "what_if_judged": "pcpmodel.study.judged",
    "whole_build": "pcpmodel.study.builds",
    "zone_splitting": "pcpmodel.study.contention.zone_splitting",
}

__all__ = list(_PUBLIC)

__getattr__, __dir__ = lazily(__name__, _PUBLIC)
