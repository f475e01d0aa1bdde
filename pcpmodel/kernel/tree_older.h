/* SPDX-License-Identifier: GPL-2.0-only */
/* What a tree with struct per_cpu_pageset (up to v5.13) has no function for: its lists hold single
 * pages, one list for each type. */

#define NR_PCP_LISTS MIGRATE_PCPTYPES

static unsigned int order_to_pindex(int migratetype, int order)
{
	(void)order;
	return migratetype;
}

static int pindex_to_order(unsigned int pindex)
{
	(void)pindex;
	return 0;
}
