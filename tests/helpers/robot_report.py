"""A mail of a kernel test robot, made up, with every form of row that their tables have."""

# SPDX-License-Identifier: GPL-2.0-only

RULER = "=" * 89
TABLE = f"""\
{RULER}
compiler/cpufreq_governor/kconfig/nr_task/rootfs/tbox_group/testcase:
  gcc-12/performance/x86_64-rhel-8.3/200%/debian-11.1/box-2sp7/kbuild

commit:\x20
  90b41691b9 ("mm: add framework for pcp high auto-tuning")
  51a755c56d ("mm: tune pcp high automatically")

90b41691b9881376 51a755c56dc05a8b31ed28d24f2\x20
---------------- ---------------------------\x20
         %stddev     %change         %stddev
             \\          |                \\ \x20
     26.42            -4.3%      25.28        kbuild.buildtime.per_iteration
     49.35            +0.6       49.98        perf-stat.i.cache-miss-rate%
    138055 ± 18%     +33.4%     184128 ± 14%  cpuidle..usage
      0.20 ±153%  +2.1e+05%     418.07 ±203%  perf-sched.wait_time.max.ms.schedule
 4.171e+08            -7.6%  3.853e+08        proc-vmstat.numa_hit
    -68.07           +72.5%    -117.40        sched_debug.cpu.nr_uninterruptible.min
      0.00 ±223%   +4e+05%       4.44 ± NaN%  cpuidle.C1.time
      6.45            -6.3        0.18 ± 10%  perf-profile.calltrace.cycles-pp.rmqueue_bulk.x
      1.26            -0.1        1.15        perf-profile.self.cycles-pp.clear_page_erms
      1.00            -0.5        0.50        perf-profile.self.cycles-pp.vfs_read

"""
BODY = f"""\
Hello,

kernel test robot noticed a -4.3% improvement of kbuild.buildtime.per_iteration on:

testcase: kbuild
config: x86_64-rhel-8.3
test machine: 224 threads 2 sockets Intel(R) Xeon(R) Platinum 8480CTDX (Sapphire Rapids) with 512G memory

{TABLE}
Disclaimer:
"""  # noqa: E501
