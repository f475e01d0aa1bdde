// SPDX-License-Identifier: GPL-2.0-only
/*
 * An excerpt that reads like a kernel's mm/page_alloc.c: the functions that decide about per-CPU
 * page lists, by their names and arguments, in words of its own, with the rules of v7.2.
 * What surrounds them (struct per_cpu_pages, migratetypes) comes from elsewhere.
 */
#include <linux/mm.h>
#include "internal.h"

static inline unsigned int order_to_pindex(int migratetype, int order)
{
	if (order > PAGE_ALLOC_COSTLY_ORDER)
		return NR_LOWORDER_PCP_LISTS + (migratetype == MIGRATE_MOVABLE ? 1 : 0);
	return migratetype + order * MIGRATE_PCPTYPES;
}

static inline int pindex_to_order(unsigned int pindex)
{
	return pindex < NR_LOWORDER_PCP_LISTS ? pindex / MIGRATE_PCPTYPES : HPAGE_PMD_ORDER;
}

/* Gives back until `count` pages are gone, one list after the other. */
static void free_pcppages_bulk(struct zone *zone, int count, struct per_cpu_pages *pcp, int pindex)
{
	int left = min(count, pcp->count);

	guard(spinlock_irqsave)(&zone->lock);
	for (; left > 0; pindex = pindex + 1 < NR_PCP_LISTS ? pindex + 1 : 0) {
		struct list_head *from = &pcp->lists[pindex];
		int order = pindex_to_order(pindex);

		for (; left > 0 && !list_empty(from); left -= 1 << order) {
			struct page *last = list_last_entry(from, struct page, pcp_list);
			unsigned long pfn = page_to_pfn(last);

			list_del(&last->pcp_list);
			pcp->count -= 1 << order;
			__free_one_page(last, pfn, zone, order, get_pfnblock_migratetype(last, pfn),
					FPI_NONE);
		}
	}
}

static int rmqueue_bulk(struct zone *zone, unsigned int order, unsigned long count,
			struct list_head *list, int migratetype, unsigned int alloc_flags)
{
	enum rmqueue_mode where = RMQUEUE_NORMAL;
	unsigned long irq, got = 0;

	spin_lock_irqsave(&zone->lock, irq);
	while (got < count) {
		struct page *page = __rmqueue(zone, order, migratetype, alloc_flags, &where);

		if (!page)
			break;
		list_add_tail(&page->pcp_list, list);
		got++;
	}
	spin_unlock_irqrestore(&zone->lock, irq);
	return got;
}

bool decay_pcp_high(struct zone *zone, struct per_cpu_pages *pcp)
{
	int surplus, batch = READ_ONCE(pcp->batch);
	bool again = false;

	if (pcp->high > pcp->high_min) {
		int eighth_less = pcp->high - (pcp->high >> 3);
		int within_reach = pcp->count - (batch << CONFIG_PCP_BATCH_SCALE_MAX);

		pcp->high = max3(within_reach, eighth_less, pcp->high_min);
		again = pcp->high > pcp->high_min;
	}
	for (surplus = pcp->count - pcp->high; surplus > 0; surplus -= batch) {
		free_pcppages_bulk(zone, min(surplus, batch), pcp, 0);
		again = true;
	}
	return again;
}

#ifdef CONFIG_NUMA
void drain_zone_pages(struct zone *zone, struct per_cpu_pages *pcp)
{
	int some = min(pcp->count, READ_ONCE(pcp->batch));

	if (some > 0)
		free_pcppages_bulk(zone, some, pcp, 0);
}
#endif

static void drain_pages_zone(unsigned int cpu, struct zone *zone)
{
	struct per_cpu_pages *pcp = per_cpu_ptr(zone->per_cpu_pageset, cpu);

	while (pcp->count)
		free_pcppages_bulk(zone, pcp->batch << CONFIG_PCP_BATCH_SCALE_MAX, pcp, 0);
}

static int nr_pcp_free(struct per_cpu_pages *pcp, int batch, int high, bool free_high)
{
	if (free_high)
		return min(pcp->count, batch << CONFIG_PCP_BATCH_SCALE_MAX);
	if (high < batch)
		return 1;
	return clamp_t(int, pcp->free_count, batch, high - batch);
}

static int nr_pcp_high(struct per_cpu_pages *pcp, struct zone *zone, int batch, bool free_high)
{
	int least = READ_ONCE(pcp->high_min), most = READ_ONCE(pcp->high_max);
	int high = pcp->high = clamp(pcp->high, least, most);
	int burst = max_t(int, pcp->free_count, batch);

	if (!high)
		return 0;
	if (free_high) {
		pcp->high = max(high - (batch << CONFIG_PCP_BATCH_SCALE_MAX), least);
		return 0;
	}
	if (test_bit(ZONE_RECLAIM_ACTIVE, &zone->flags)) {
		pcp->high = max(high - burst, least);
		return min(batch << 2, pcp->high);
	}
	if (least == most)
		return high;
	if (test_bit(ZONE_BELOW_HIGH, &zone->flags)) {
		pcp->high = max(high - burst, least);
		return max(pcp->count, least);
	}
	if (pcp->count >= high && pcp->high < pcp->free_count + batch)
		pcp->high = clamp(pcp->free_count + batch, least, most);
	return high;
}

static bool free_frozen_page_commit(struct zone *zone, struct per_cpu_pages *pcp,
				    struct page *page, int migratetype, unsigned int order,
				    fpi_t fpi_flags)
{
	int pindex = order_to_pindex(migratetype, order), batch = READ_ONCE(pcp->batch);
	bool high_order = order >= 1 && order <= PAGE_ALLOC_COSTLY_ORDER, free_high = false;
	int high, left;

	pcp->alloc_factor /= 2;
	list_add(&page->pcp_list, &pcp->lists[pindex]);
	pcp->count += 1 << order;
	if (high_order) {
		free_high = pcp->free_count >= batch + pcp->high_min / 2 &&
			    pcp->flags & PCPF_PREV_FREE_HIGH_ORDER &&
			    (pcp->count >= batch || !(pcp->flags & PCPF_FREE_HIGH_BATCH));
		pcp->flags |= PCPF_PREV_FREE_HIGH_ORDER;
	} else {
		pcp->flags &= ~PCPF_PREV_FREE_HIGH_ORDER;
	}
	if (pcp->free_count < batch << CONFIG_PCP_BATCH_SCALE_MAX)
		pcp->free_count += 1 << order;
	if (fpi_flags & FPI_NOLOCK)
		return true;

	high = nr_pcp_high(pcp, zone, batch, free_high);
	if (pcp->count < high)
		return true;
	left = nr_pcp_free(pcp, batch, high, free_high);
	while (left > 0 && pcp->count > 0) {
		free_pcppages_bulk(zone, min(left, batch), pcp, pindex);
		left -= min(left, batch);
		pcp_spin_unlock(pcp);
		pcp = pcp_spin_trylock(zone->per_cpu_pageset);
		if (!pcp)
			return false;
	}
	return true;
}

static int nr_pcp_alloc(struct per_cpu_pages *pcp, struct zone *zone, int order)
{
	int least = READ_ONCE(pcp->high_min), most = READ_ONCE(pcp->high_max);
	int high = pcp->high = clamp(pcp->high, least, most), base = READ_ONCE(pcp->batch), n = base;

	if (high < base)
		return 1;
	if (!order)
		n = base << pcp->alloc_factor;
	if (least != most && !test_bit(ZONE_BELOW_HIGH, &zone->flags))
		high = pcp->high = min(high + n, most);
	if (!order) {
		int room = max(high - pcp->count - base, base);

		if (n <= room && pcp->alloc_factor < CONFIG_PCP_BATCH_SCALE_MAX)
			pcp->alloc_factor++;
		n = min(n, room);
	}
	return n > 1 ? max(n >> order, 2) : n;
}

static struct page *rmqueue_pcplist(struct zone *preferred_zone, struct zone *zone,
				    unsigned int order, int migratetype, unsigned int alloc_flags)
{
	struct per_cpu_pages *pcp = pcp_spin_trylock(zone->per_cpu_pageset);
	struct page *page = NULL;
	struct list_head *list;

	if (!pcp)
		return NULL;
	pcp->free_count >>= 1;
	list = &pcp->lists[order_to_pindex(migratetype, order)];
	if (list_empty(list))
		pcp->count += rmqueue_bulk(zone, order, nr_pcp_alloc(pcp, zone, order), list,
					   migratetype, alloc_flags)
			      << order;
	if (!list_empty(list)) {
		page = list_first_entry(list, struct page, pcp_list);
		list_del(&page->pcp_list);
		pcp->count -= 1 << order;
	}
	pcp_spin_unlock(pcp);
	return page;
}

static int zone_batchsize(struct zone *zone)
{
	int batch = min(zone_managed_pages(zone) >> 12, SZ_256K / PAGE_SIZE);

	return batch > 1 ? rounddown_pow_of_two(batch + batch / 2) - 1 : 1;
}

static int zone_highsize(struct zone *zone, int batch, int cpu_online, int high_fraction)
{
	unsigned long pages = low_wmark_pages(zone);
	int cpus = cpumask_weight(cpumask_of_node(zone_to_nid(zone))) + cpu_online;

	if (high_fraction)
		pages = zone_managed_pages(zone) / high_fraction;
	return max((int)(pages / (cpus ? cpus : num_online_cpus())), batch * 4);
}
