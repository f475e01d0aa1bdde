"""Zone instances of the splitting RFC (May 2023); T55 and T56 of the worked examples."""

from itertools import pairwise

import pytest

from pcpmodel.errors import InputError
from pcpmodel.kernel.zone_split import instance_ranges, nr_instances, zonelist

GIB = 1 << 18  # 4 KiB pages


@pytest.mark.parametrize(
    ("present", "instances"),
    [
        (508 * GIB - 1, 1),
        (508 * GIB, 2),
        (157_286_400, 2),  # 600 GiB
        (268_435_456, 4),  # 1 TiB
        (8192 * GIB, 4),
    ],
)
def test_t55_instances_by_present_pages(present, instances):
    assert nr_instances(present) == instances


def test_instances_stop_where_lower_types_used_the_slots():
    assert [nr_instances(1024 * GIB, slots) for slots in range(5)] == [1, 2, 3, 4, 4]


def test_t56_a_cpu_starts_at_its_own_instance_and_goes_round():
    # CPU 6, NORMAL in four instances, then one DMA32 and one DMA.
    normal, dma32, dma = 0, 1, 2
    order = [(normal, 2), (normal, 3), (normal, 0), (normal, 1), (dma32, 0), (dma, 0)]
    assert zonelist(6, [4, 1, 1]) == order


def test_every_instance_is_somebody_s_first():
    firsts = {zonelist(cpu, [3, 1])[0] for cpu in range(6)}
    assert firsts == {(0, 0), (0, 1), (0, 2)}


@pytest.mark.parametrize("instances", [1, 2, 3, 4])
def test_ranges_cover_the_span_and_end_on_whole_gib(instances):
    start, spanned = 1 << 20, 1021 * GIB + 4321
    ranges = instance_ranges(start, spanned, instances)
    assert ranges[0][0] == start
    assert ranges[-1][1] == start + spanned
    for (_, end), (begin, _) in pairwise(ranges):
        assert end == begin
        assert end % GIB == 0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: nr_instances(-1), "negative"),
        (lambda: nr_instances(1, 5), "outside 0..4"),
        (lambda: instance_ranges(0, 10, 5), "outside 1..4"),
        (lambda: zonelist(-1, [1]), "cpu=-1"),
        (lambda: zonelist(0, []), "a type or more"),
        (lambda: zonelist(0, [4, 0]), "outside 1..4"),
    ],
)
def test_impossible_splits_are_refused(call, said):
    with pytest.raises(InputError, match=said):
        call()
