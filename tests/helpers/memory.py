"""Work for a `Memory`."""

# SPDX-License-Identifier: GPL-2.0-only


def busy(mem, rng):
    """Bursts of allocations and frees of several orders, ticks between them."""
    held = []
    for _ in range(60):
        order = int(rng.choice([0, 0, 0, 1, 2, 3]))
        if rng.random() < 0.5 or len(held) < 300:
            for _ in range(int(rng.integers(1, 400)) >> order):
                pfn = mem.alloc(0, order, int(rng.integers(0, 3)))
                if pfn is not None:
                    held.append((pfn, order))
        else:
            for _ in range(int(rng.integers(1, 300))):
                mem.free(0, *held.pop(int(rng.integers(len(held)))))
        if rng.random() < 0.2:
            mem.refresh_cpu_vm_stats(0)
    return mem.state()
