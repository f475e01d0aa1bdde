"""What to run on a machine that has only ftrace, perf or bpftrace; printed, not run here."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

__all__ = ["SCRIPTS"]

_BPFTRACE = """\
#!/bin/sh
# How long the functions take that hold the zone lock, by number of pages: ten seconds, as root.
# Since v6.7 one kernel asks for anything from a batch to batch << CONFIG_PCP_BATCH_SCALE_MAX.
# Counts: the whole function; the wait for the lock and the probes' own cost are in it.
# Where the compiler inlined rmqueue_bulk(), its caller is timed, if the count of the lists grew
# in it; that needs BTF. Run it under load; -f json may follow:
#     sh pages.sh > pages.txt
#     pcpmodel data add latency --machine NAME --free pages.txt --alloc pages.txt
set -eu
free='
kprobe:free_pcppages_bulk { @free_from[tid] = nsecs; @free_count[tid] = (uint32)arg1; }
kretprobe:free_pcppages_bulk /@free_from[tid]/ {
  $ns = nsecs - @free_from[tid];
  @free_ns[@free_count[tid]] = hist($ns);
  @free_total_ns[@free_count[tid]] = sum($ns);
  delete(@free_from[tid]); delete(@free_count[tid]);
}
interval:s:10 { exit(); }
END {
  clear(@free_from); clear(@free_count);
  clear(@alloc_from); clear(@alloc_count); clear(@alloc_list);
}
'
called='
kprobe:rmqueue_bulk {
  @alloc_from[tid] = nsecs; @alloc_count[tid] = (int64)((uint32)arg2 << (uint32)arg1);
  @alloc_list[tid] = (uint64)0;
}
kretprobe:rmqueue_bulk /@alloc_from[tid]/ {
  $ns = nsecs - @alloc_from[tid];
  @alloc_ns[@alloc_count[tid]] = hist($ns);
  @alloc_total_ns[@alloc_count[tid]] = sum($ns);
  delete(@alloc_from[tid]); delete(@alloc_count[tid]); delete(@alloc_list[tid]);
}
'
inlined='
kprobe:__rmqueue_pcplist {
  @alloc_list[tid] = (uint64)arg4;
  @alloc_count[tid] = (int64)((struct per_cpu_pages *)arg4)->count - (int64)(1 << (uint32)arg1);
  @alloc_from[tid] = nsecs;
}
kretprobe:__rmqueue_pcplist /@alloc_from[tid]/ {
  $ns = nsecs - @alloc_from[tid];
  $pages = (int64)((struct per_cpu_pages *)@alloc_list[tid])->count - @alloc_count[tid];
  if (retval != 0 && $pages > 0) {
    @alloc_ns[$pages] = hist($ns);
    @alloc_total_ns[$pages] = sum($ns);
  }
  delete(@alloc_from[tid]); delete(@alloc_count[tid]); delete(@alloc_list[tid]);
}
'
traced() {
  grep -qx "$1" /sys/kernel/tracing/available_filter_functions \\
    /sys/kernel/debug/tracing/available_filter_functions 2> /dev/null
}
if traced rmqueue_bulk; then alloc=$called
elif traced __rmqueue_pcplist; then alloc=$inlined
else
  echo "neither rmqueue_bulk nor __rmqueue_pcplist can be probed: use pcpmodel measure" >&2
  exit 1
fi
exec bpftrace "$@" -e "$free$alloc"
"""

_FTRACE = """\
#!/bin/sh
# Waits for locks, each with its stack, for ten seconds, to waits.txt: run it under load, as root.
# Counts: waits; how long the lock was held is not in it. Time stamps are whole microseconds.
# An instance of its own: other tracing goes on as it was.
#     sh waits.sh && pcpmodel data add latency --machine NAME --waits waits.txt
set -eu
tracing=/sys/kernel/tracing
[ -d "$tracing/instances" ] || tracing=/sys/kernel/debug/tracing
own=$tracing/instances/pcpmodel-waits
mkdir "$own"
trap 'echo 0 > "$own/events/lock/enable"; rmdir "$own"' EXIT
trap 'exit 1' HUP INT TERM
echo 16384 > "$own/buffer_size_kb"
echo 1 > "$own/options/stacktrace"
echo 1 > "$own/events/lock/contention_begin/enable"
echo 1 > "$own/events/lock/contention_end/enable"
sleep 10
echo 0 > "$own/tracing_on"
cat "$own/trace" > waits.txt
"""

_PERF = """\
#!/bin/sh
# Waits for locks, each with its stack, for ten seconds, to waits.txt: run it under load, as root.
# Counts: waits; how long the lock was held is not in it. Time stamps are nanoseconds.
#     sh waits.sh && pcpmodel data add latency --machine NAME --waits waits.txt
# A summary alone, without percentiles, is `perf lock contention -x, -i waits.data`.
set -eu
perf record -a -g --kernel-callchains -e lock:contention_begin -e lock:contention_end \\
    -o waits.data -- sleep 10
perf script --ns -F comm,tid,cpu,time,event,trace,ip,sym -i waits.data > waits.txt
"""

#: Tool -> script.
SCRIPTS = {"bpftrace": _BPFTRACE, "ftrace": _FTRACE, "perf": _PERF}
