/* SPDX-License-Identifier: GPL-2.0-only */
/* What the functions need of headers that are not given: fields and names that releases up to v7.3
 * have.  A definition here counts only where the tree's files have none. */

enum migratetype {
	MIGRATE_UNMOVABLE,
	MIGRATE_MOVABLE,
	MIGRATE_RECLAIMABLE,
	MIGRATE_PCPTYPES,
	MIGRATE_HIGHATOMIC = MIGRATE_PCPTYPES,
	MIGRATE_CMA,
	MIGRATE_ISOLATE,
	MIGRATE_TYPES
};

enum rmqueue_mode { RMQUEUE_NORMAL, RMQUEUE_CMA, RMQUEUE_CLAIM, RMQUEUE_STEAL };

enum zone_flags { ZONE_BOOSTED_WATERMARK, ZONE_RECLAIM_ACTIVE, ZONE_BELOW_HIGH };

#define PAGE_ALLOC_COSTLY_ORDER 3
#define NR_LOWORDER_PCP_LISTS (MIGRATE_PCPTYPES * (PAGE_ALLOC_COSTLY_ORDER + 1))
#define NR_PCP_THP 2
#define NR_PCP_LISTS (NR_LOWORDER_PCP_LISTS + NR_PCP_THP)
#define MIN_PERCPU_PAGELIST_HIGH_FRACTION 8
#define PCPF_PREV_FREE_HIGH_ORDER BIT(0)
#define PCPF_FREE_HIGH_BATCH BIT(1)

/* The values do not matter here, but that they differ. */
#define FPI_NONE 0
#define FPI_SKIP_REPORT_NOTIFY BIT(0)
#define FPI_TO_TAIL BIT(1)
#define FPI_TRYLOCK BIT(2)
#define FPI_NOLOCK BIT(2)
#define ALLOC_TRYLOCK 0x400
#define ALLOC_NOLOCK 0x400
#define ALLOC_HIGHATOMIC 0x200
#define ALLOC_CMA 0x80
#define ALLOC_KSWAPD 0x800

struct per_cpu_pages {
	spinlock_t lock;
	int count;
	int high;
	int high_min;
	int high_max;
	int batch;
	u8 flags;
	u8 alloc_factor;
	u8 expire;
	short free_count;
	struct list_head lists[NR_PCP_LISTS];
};

/* Of these tree.py fills in what PCPMODEL_OF_... names. */
struct per_cpu_zonestat {
};

struct zone {
};

typedef struct pglist_data {
} pg_data_t;
