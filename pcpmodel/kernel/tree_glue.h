/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One pageset of a tree, and what may be asked of it.  Comes after the tree's own
 * struct per_cpu_pages and functions; TREE_... macros (see tree.py) say how to call them and
 * which fields there are.
 */

#define MOST_HOLDS (1 << 22)
#define MOST_REFILLED (1 << 20) /* blocks of a hold, as of a policy */

#define ORDERS 11 /* of blocks */

_Static_assert(sizeof(((struct per_cpu_pages *)0)->lists) == NR_PCP_LISTS * sizeof(struct list_head),
	       "struct per_cpu_pages has another number of lists than NR_PCP_LISTS");

struct set {
	struct per_cpu_pages *pcp;
	struct zone zone;
	struct pglist_data node;
	struct per_cpu_zonestat zonestat;
	struct page *stands_for[NR_PCP_LISTS];
	struct page *loose;
	char *given; /* where pcp and pages are */
	size_t given_size;
	int gathered[NR_PCP_LISTS]; /* on the function's own list, of each of the pageset */
	unsigned long index[NR_PCP_LISTS]; /* of their pages, as they came there */
	int last; /* list that a page was taken off */
	enum pcpmodel_end taken; /* where the page looked at last stands on its list */
	long available;
	bool allocates; /* the operation */
	/* Of the request or of the block freed */
	int migratetype;
	unsigned int alloc_flags;
	bool scarce; /* the buddy lists have few blocks: some of other types are taken */
	int mode;    /* that the next page of a refill has to begin with */
	int mode_of; /* the hold that it is of; 0: none */
	struct tree_passed passed;
	int failed;
	int nr_holds, room;
	struct tree_hold *holds;
	struct tree_call *call; /* of the thread under way */
	/* Of an operation that is only foreseen */
	bool foresees;
	int nr_asked, first, total; /* calls of free_pcppages_bulk(), and their pages */
	int blocks; /* that a refill asked for */
	bool refills; /* rmqueue_bulk() is run */
	int threshold; /* that nr_pcp_high() returned; -1: it was not called */
	bool in_bulk;  /* free_high, as it was told */
	int order;     /* of allocations in a row */
	/* What one that takes no lock adds to the tree's own fields: each order, then frees */
	bool learnt[ORDERS + 1];
	char change[ORDERS + 1][PCPMODEL_TREE_OWN];
};

/* What an operation is under way on; each thread has its own. */
static __thread struct set *at;

static void pcpmodel_hold(spinlock_t *lock)
{
	struct tree_hold *holds;
	int inside = at->call->inside;

	if (lock != &at->zone.lock)
		return;
	if (at->nr_holds == at->room) {
		if (at->room == MOST_HOLDS) {
			at->failed = 4;
			at->nr_holds = 0; /* so that it comes to an end */
			at->pcp->count = 0;
		} else {
			at->call->inside = 2; /* whoever left it now would keep malloc's lock */
			holds = realloc(at->holds, sizeof(*holds) * (at->room ? at->room * 2 : 16));
			at->call->inside = inside;
			if (!holds) {
				at->failed = 1;
				at->nr_holds = 0;
			} else {
				at->holds = holds;
				at->room = at->room ? at->room * 2 : 16;
			}
		}
	}
	if (at->room) {
		memset(&at->holds[at->nr_holds], 0, sizeof(*at->holds));
		at->nr_holds++;
	}
}

/* Ends a call that would go on for long, or without end. */
static void pcpmodel_leave(int failed, long answer)
{
	struct tree_call *call = at->call;

	call->failed = failed;
	call->answer = answer;
	call->pc = __builtin_return_address(0);
	call->inside = 0;
	longjmp(call->way_out, 1);
}

static struct tree_hold *hold_now(void)
{
	static __thread struct tree_hold none;

	return at->nr_holds ? &at->holds[at->nr_holds - 1] : &none;
}

static int list_index(const struct list_head *list)
{
	if (list < at->pcp->lists || list >= at->pcp->lists + NR_PCP_LISTS) {
		at->failed = 2;
		return 0;
	}
	return list - at->pcp->lists;
}

static inline void pcpmodel_compare(enum tree_argument which, int due, int passed)
{
	if (likely(passed == due) || at->passed.otherwise >> which & 1)
		return;
	at->passed.otherwise |= 1U << which;
	at->passed.due[which] = due;
	at->passed.passed[which] = passed;
}

static void pcpmodel_asked(int order, int migratetype)
{
	pcpmodel_compare(TREE_RMQUEUE_ORDER, at->order, order);
	pcpmodel_compare(TREE_RMQUEUE_TYPE, at->migratetype, migratetype);
}

static void pcpmodel_asked_flags(unsigned int alloc_flags)
{
	pcpmodel_compare(TREE_RMQUEUE_FLAGS, at->alloc_flags, alloc_flags);
}

/* Where a page was found is where the next one of the hold is looked for first.  What a scarce zone
 * gives was not found at the first place, which is 0. */
static void pcpmodel_asked_mode(const void *given)
{
	int *mode = (int *)given;

	if (!mode) {
		pcpmodel_compare(TREE_RMQUEUE_MODE, 0, -1);
		return;
	}
	if (at->mode_of == at->nr_holds || *mode != at->mode)
		pcpmodel_compare(TREE_RMQUEUE_MODE, at->mode_of == at->nr_holds ? at->mode : 0, *mode);
	if (at->scarce)
		*mode = 1;
	at->mode = *mode;
	at->mode_of = at->nr_holds;
}

/* How: 1 __rmqueue_smallest(), 2 __rmqueue_cma_fallback(). */
static struct page *pcpmodel_rmqueue(int how, int order)
{
	struct tree_hold *hold = hold_now();

	(void)order;
	pcpmodel_compare(TREE_RMQUEUE, 0, how);
	if (unlikely(++hold->asked > MOST_REFILLED))
		pcpmodel_leave(TREE_ASKS, hold->asked);
	if (at->available <= 0)
		return NULL;
	at->available--;
	hold->got++;
	return at->loose;
}

/* The list that a page stands for; -1: none, so that it is the one allocated or freed. */
static int pcpmodel_list_of(const struct page *page)
{
	int i;

	if (likely(page == at->stands_for[at->last]))
		return at->last;
	for (i = 0; i < NR_PCP_LISTS; i++)
		if (page == at->stands_for[i])
			return i;
	return -1;
}

static int pcpmodel_page_type(const struct page *page)
{
	int i = pcpmodel_list_of(page);

	/* Of huge pages, too: the second of their lists is that of movable ones. */
	return i < 0 ? at->migratetype : i % MIGRATE_PCPTYPES;
}

/* The same, as the tree's functions have noted it since the page was looked at. */
static int pcpmodel_noted_type(const struct page *page)
{
	return pcpmodel_list_of(page) < 0 ? at->migratetype : (int)page->index;
}

static int pcpmodel_block_type(const struct page *page)
{
	int i = pcpmodel_list_of(page);

	return i < 0 ? at->migratetype : (i + 1) % MIGRATE_PCPTYPES;
}

static void pcpmodel_free_one(struct page *page, unsigned int order, int migratetype, int flags)
{
	hold_now()->blocks++;
	hold_now()->pages += 1 << order;
	pcpmodel_compare(TREE_FREE_LIST_TYPE, pcpmodel_page_type(page), migratetype);
	pcpmodel_compare(TREE_FREE_BLOCK_TYPE, pcpmodel_block_type(page), migratetype);
	pcpmodel_compare(TREE_FREE_FLAGS, 0, flags);
}

static struct page *pcpmodel_loose(void)
{
	return at->loose;
}

static struct zone *pcpmodel_zone(void)
{
	return &at->zone;
}

static struct list_head pcpmodel_own_list(void)
{
	memset(at->gathered, 0, sizeof(at->gathered));
	return (struct list_head){ 0, PCPMODEL_OWN_LIST };
}

/* One of the pageset is emptied; any other is the function's own. */
static void pcpmodel_init_list(struct list_head *list)
{
	if (list >= at->pcp->lists && list < at->pcp->lists + NR_PCP_LISTS)
		list->nr = 0;
	else
		*list = pcpmodel_own_list();
}

/* The next of an own list: in the order of the pageset's lists, which decides nothing. */
static struct page *pcpmodel_gathered(struct list_head *list)
{
	int i;

	for (i = 0; list->nr > 0 && i < NR_PCP_LISTS; i++) {
		if (at->gathered[i] > 0) {
			at->gathered[i]--;
			at->stands_for[i]->index = at->index[i];
			return at->stands_for[i];
		}
	}
	return at->loose;
}

static void pcpmodel_add(struct list_head *entry, struct list_head *list, enum pcpmodel_end end)
{
	struct page *page = (struct page *)((char *)entry - offsetof(struct page, lru));
	bool own = list->index == PCPMODEL_OWN_LIST;

	pcpmodel_compare(TREE_COMES, own || at->allocates ? PCPMODEL_TAIL : PCPMODEL_HEAD, end);
	if (own) {
		list->nr++;
		if (entry->index >= 0 && entry->index < NR_PCP_LISTS) {
			at->gathered[entry->index]++;
			at->index[entry->index] = page->index;
		}
		return;
	}
	list_index(list);
	if (++list->nr > 1 << 28)
		at->failed = 3;
}

static void pcpmodel_del(struct list_head *entry)
{
	int i = entry->index;

	if (i < 0 || i >= NR_PCP_LISTS || at->pcp->lists[i].nr <= 0) {
		at->failed = i < 0 || i >= NR_PCP_LISTS ? 2 : 6;
		return;
	}
	pcpmodel_compare(TREE_LEAVES, at->allocates ? PCPMODEL_HEAD : PCPMODEL_TAIL, at->taken);
	at->last = i;
	at->pcp->lists[i].nr--;
}

static struct page *pcpmodel_entry(struct list_head *list, enum pcpmodel_end end)
{
	int i = list_index(list);

	at->taken = end;
	at->stands_for[i]->index = i % MIGRATE_PCPTYPES; /* of another block than the last time */
	return at->stands_for[i];
}

/* A function of the tree is called as `if (FAILS(...)) return what is harmless; ...; came_back()`:
 * what ends it comes back to the `if` (tree_guard.h), and so does every call until that was told. */

static struct tree_call *(*this_call)(void); /* of the program that loads it */

static inline bool goes_on(struct tree_call *call, const char *function, unsigned int zone_flags,
			   int order)
{
	if (unlikely(call->failed))
		return false;
	call->function = function;
	call->zone_flags = zone_flags;
	call->order = order;
	call->number++;
	call->inside = 1;
	return true;
}

static inline void came_back(struct tree_call *call)
{
	__asm__ volatile("" ::: "memory");
	call->inside = 0;
}

static bool tell(struct tree_call *call, const void *of)
{
	call->of = of;
	if (call->stop)
		*call->stop = call->why;
	return true;
}

#define FAILS(call, of, told, ...) \
	(!goes_on(call, __VA_ARGS__) || (_setjmp((call)->way_out) && (told, tell(call, of))))

static void begin(struct set *set, unsigned int zone_flags)
{
	at = set;
	set->nr_holds = 0;
	set->passed.otherwise = 0;
	set->allocates = false;
	set->mode = set->mode_of = 0;
	set->zone.flags = (zone_flags & 1 ? TREE_BOOSTED_WATERMARK : 0) |
			  (zone_flags & 2 ? TREE_RECLAIM_ACTIVE : 0) |
			  (zone_flags & 4 ? TREE_BELOW_HIGH : 0);
}

/* What the tree's functions are given ends where a page begins that nobody may touch: whatever they
 * do behind it is noticed. */
static void *ends_before_a_gap(char **at_, size_t size)
{
	size_t page = sysconf(_SC_PAGESIZE), room = (size + page - 1) / page * page;
	char *begin = *at_;

	if (mprotect(begin, room, PROT_READ | PROT_WRITE))
		abort();
	*at_ = begin + room + page;
	return begin + room - size;
}

static void op_init(void *mem)
{
	struct set *set = mem;
	size_t page = sysconf(_SC_PAGESIZE);
	char *next;
	int i;

	memset(set, 0, sizeof(*set));
	set->given_size = sizeof(*set->pcp) + (2 * NR_PCP_LISTS + 4) * page;
	set->given = next = mmap(NULL, set->given_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (next == MAP_FAILED)
		abort();
	set->pcp = ends_before_a_gap(&next, sizeof(*set->pcp));
	set->zone.per_cpu_pageset = set->pcp;
	set->zone.pageset = (struct per_cpu_pageset *)set->pcp;
	set->zone.zone_pgdat = &set->node;
	set->zone.per_cpu_zonestats = &set->zonestat;
	for (i = 0; i < NR_PCP_LISTS; i++) {
		set->stands_for[i] = ends_before_a_gap(&next, sizeof(struct page));
		set->pcp->lists[i].index = i;
		set->stands_for[i]->pcp_list.index = i;
	}
	set->loose = ends_before_a_gap(&next, sizeof(struct page));
	set->loose->pcp_list.index = -1;
}

/* One for each thread, kept until the process ends. */
static struct set *this_thread(void)
{
	static __thread struct set *mine;

	if (unlikely(!mine)) {
		mine = malloc(sizeof(*mine));
		if (!mine)
			abort();
		op_init(mine);
		mine->foresees = true;
		mine->call = this_call();
	}
	return mine;
}

static void op_release(void *mem)
{
	struct set *set = mem;

	free(set->holds);
	set->holds = NULL;
	munmap(set->given, set->given_size);
	set->given_size = 0;
	set->room = set->nr_holds = 0;
}

/* PCPF_* by their names: a tree may number them otherwise.  PREV_FREE_HIGH_ORDER is 1 here and
 * FREE_HIGH_BATCH 2; what else the tree has goes where those were. */
static inline int bits_swapped(int flags, int a, int b)
{
	if (a == b || !a)
		return flags;
	return (flags & ~(a | b)) | (flags & a ? b : 0) | (flags & b ? a : 0);
}

#ifndef PCPF_PREV_FREE_HIGH_ORDER
#define PCPF_PREV_FREE_HIGH_ORDER 0
#endif
#ifndef PCPF_FREE_HIGH_BATCH
#define PCPF_FREE_HIGH_BATCH 0
#endif

static inline int flags_of_tree(int flags)
{
	int batch = bits_swapped(PCPF_FREE_HIGH_BATCH, PCPF_PREV_FREE_HIGH_ORDER, 1);

	return bits_swapped(bits_swapped(flags, PCPF_PREV_FREE_HIGH_ORDER, 1), batch, 2);
}

static inline int flags_for_tree(int flags)
{
	int batch = bits_swapped(PCPF_FREE_HIGH_BATCH, PCPF_PREV_FREE_HIGH_ORDER, 1);

	return bits_swapped(bits_swapped(flags, batch, 2), PCPF_PREV_FREE_HIGH_ORDER, 1);
}

static void op_get(const void *mem, struct tree_fields *f, int *lists)
{
	const struct per_cpu_pages *pcp = ((const struct set *)mem)->pcp;
	int i;

	memset(f, 0, sizeof(*f));
	TREE_GET(f, pcp)
#ifndef TREE_HIGH_MIN
	f->high_min = f->high_max = f->high;
#endif
	for (i = 0; i < NR_PCP_LISTS; i++)
		lists[i] = pcp->lists[i].nr;
}

static void op_put(void *mem, const struct tree_fields *f, const int *lists)
{
	struct per_cpu_pages *pcp = ((struct set *)mem)->pcp;
	int i;

	TREE_PUT(f, pcp)
	for (i = 0; i < NR_PCP_LISTS; i++)
		pcp->lists[i].nr = lists[i];
}

extern const struct tree_ops pcpmodel_tree;

static bool op_fails(struct set *set)
{
	set->failed = 5;
	return true;
}

static void begin_op(struct set *set, unsigned int zone_flags)
{
	int lists[NR_PCP_LISTS];

	set->call = this_thread()->call;
	begin(set, zone_flags);
	if (!set->call->failed)
		op_get(set, &set->call->state, lists);
}

#define OP_FAILS(set, function, zone_flags, order) \
	(begin_op(set, zone_flags), \
	 FAILS((set)->call, &pcpmodel_tree, 0, function, zone_flags, order) && op_fails(set))

/* Of a function that looks at no pageset. */
static struct tree_call *stateless_call(void)
{
	struct tree_call *call = this_thread()->call;

	if (!call->failed)
		memset(&call->state, 0, sizeof(call->state));
	return call;
}

static int op_alloc(void *mem, unsigned int zone_flags, int order, int migratetype, long available)
{
	struct set *set = mem;
	unsigned int alloc_flags = ALLOC_KSWAPD;
	int got;

	(void)alloc_flags;
	if (OP_FAILS(set, "rmqueue_pcplist", zone_flags, order))
		return 0;
	set->available = available;
	set->scarce = available < MOST_REFILLED;
	set->allocates = true;
	set->order = order;
	set->migratetype = migratetype;
	set->alloc_flags = alloc_flags;
	got = TREE_ALLOC != NULL;
	came_back(set->call);
	return got;
}

static void op_commit(void *mem, unsigned int zone_flags, int order, int migratetype)
{
	struct set *set = mem;
	unsigned long irq_state = 0;

	(void)irq_state;
	if (OP_FAILS(set, TREE_COMMIT_NAME, zone_flags, order))
		return;
	set->migratetype = migratetype;
	(void)TREE_COMMIT;
	came_back(set->call);
}

static int op_decay(void *mem, unsigned int zone_flags)
{
	struct set *set = mem;
	int work = 0;

	if (OP_FAILS(set, "decay_pcp_high", zone_flags, 0))
		return 0;
#ifdef TREE_DECAY
	work = (int)TREE_DECAY;
#endif
	came_back(set->call);
	return work;
}

static void op_drain_remote(void *mem)
{
	struct set *set = mem;

	if (OP_FAILS(set, "drain_zone_pages", 0, 0))
		return;
	TREE_DRAIN_REMOTE;
	came_back(set->call);
}

static void op_drain_all(void *mem)
{
	struct set *set = mem;

	if (OP_FAILS(set, "drain_pages_zone", 0, 0))
		return;
	TREE_DRAIN_ALL;
	came_back(set->call);
}

static int op_pindex(int migratetype, int order)
{
	struct tree_call *call = stateless_call();
	int pindex;

	if (FAILS(call, &pcpmodel_tree, 0, "order_to_pindex", 0, order))
		return 0;
	pindex = (int)order_to_pindex(migratetype, order);
	came_back(call);
	return pindex;
}

static int op_order(int pindex)
{
	struct tree_call *call = stateless_call();
	int order;

	if (FAILS(call, &pcpmodel_tree, 0, "pindex_to_order", 0, 0))
		return 0;
	order = pindex_to_order(pindex);
	came_back(call);
	return order;
}

static int op_holds(const void *mem, const struct tree_hold **holds)
{
	const struct set *set = mem;

	*holds = set->holds;
	return set->nr_holds;
}

static const struct tree_passed *op_passed(const void *mem)
{
	return &((const struct set *)mem)->passed;
}

static int op_failed(const void *mem)
{
	return ((const struct set *)mem)->failed;
}

static long op_batchsize(unsigned long managed)
{
#ifdef TREE_BATCHSIZE
	struct tree_call *call = stateless_call();
	struct zone zone = { .managed = managed };
	long batch;

	pcpmodel_sized = &zone;
	if (FAILS(call, &pcpmodel_tree, 0, "zone_batchsize", 0, 0))
		return 0;
	batch = TREE_BATCHSIZE;
	came_back(call);
	pcpmodel_sized = NULL;
	return batch;
#else
	(void)managed;
	return LONG_MIN;
#endif
}

static long op_highsize(unsigned long managed, unsigned long low_wmark, int batch, int cpus,
			int all_cpus, int fraction, int cpu_online, int *set)
{
#ifdef TREE_HIGHSIZE
	/* As __setup_per_zone_wmarks() spaces watermarks, by watermark_scale_factor=10 and unboosted. */
	unsigned long gap = max(low_wmark / 5, managed / 1000);
	struct zone zone = {
		.managed = managed, .cpus = cpus, .all_cpus = all_cpus,
		.min_wmark = low_wmark - min(gap, low_wmark), .low_wmark = low_wmark,
		.high_wmark = low_wmark + gap,
	};
	struct tree_call *call = stateless_call();
	long high;

	pcpmodel_sized = &zone;
	(void)fraction, (void)cpu_online, (void)set;
#ifdef TREE_FRACTION
	TREE_FRACTION = fraction;
#endif
	if (FAILS(call, &pcpmodel_tree, 0, "zone_highsize", 0, 0))
		return 0;
	high = TREE_HIGHSIZE;
	came_back(call);
	pcpmodel_sized = NULL;
	return high;
#elif defined(TREE_SET_SIZE)
	struct zone zone = { .managed = managed };
	struct tree_call *call = stateless_call();
	struct per_cpu_pageset size = { .pcp.high = 0 };

	(void)low_wmark, (void)batch, (void)cpus, (void)all_cpus, (void)cpu_online;
	pcpmodel_sized = &zone;
	percpu_pagelist_fraction = fraction;
	if (FAILS(call, &pcpmodel_tree, 0, "pageset_set_high_and_batch", 0, 0))
		return 0;
	TREE_SET_SIZE;
	came_back(call);
	pcpmodel_sized = NULL;
	*set = size.pcp.batch;
	return size.pcp.high;
#else
	(void)managed, (void)low_wmark, (void)batch, (void)cpus, (void)all_cpus, (void)fraction;
	(void)cpu_online, (void)set;
	return LONG_MIN;
#endif
}

/* Decisions: the tree's functions on a struct per_cpu_pages without lists.  Each drain takes as
 * many pages as it asks for; where the last block of one is larger, the caller sees to it. */

static bool pcpmodel_foresees(void)
{
	return at->foresees;
}

static int pcpmodel_ask(int count)
{
	if (count > at->pcp->count)
		count = at->pcp->count;
	if (++at->nr_asked > MOST_HOLDS) {
		at->failed = 4;
		count = at->pcp->count;
	}
	if (at->nr_asked == 1)
		at->first = count;
	at->total += count;
	at->pcp->count -= count;
	return count;
}

static bool pcpmodel_fills(void)
{
	return at->foresees && !at->refills;
}

static int pcpmodel_fill(unsigned long count, struct list_head *list)
{
	at->blocks = (int)count;
	list->nr += (int)count;
	return (int)count;
}

static int pcpmodel_threshold(int high)
{
	at->threshold = high;
	return high;
}

static void pcpmodel_in_bulk(bool free_high)
{
	at->in_bulk = free_high;
}

static struct set *foresee(const struct tree_pcp *p, unsigned int zone_flags)
{
	struct set *mine = this_thread();

	begin(mine, zone_flags);
	mine->nr_asked = mine->first = mine->total = mine->blocks = 0;
	mine->threshold = -1;
	mine->in_bulk = mine->refills = false;
	TREE_PUT(p, mine->pcp)
#ifndef TREE_HIGH_MIN
	mine->pcp->high = p->high_min;
#endif
	TREE_PUT_OWN(p->own, mine->pcp)
	return mine;
}

static void foreseen(struct tree_pcp *p, const struct set *set)
{
	TREE_GET(p, set->pcp)
#ifndef TREE_HIGH_MIN
	p->high_min = p->high_max = p->high;
#endif
	TREE_GET_OWN(p->own, set->pcp)
}

extern const struct tree_steps pcpmodel_steps;

/* The state that a failed call began with: nothing is written back until one has come to its end. */
static void was(struct tree_call *call, const struct tree_pcp *p)
{
	struct tree_fields *f = &call->state;

	f->count = p->count;
	f->high = p->high;
	f->high_min = p->high_min;
	f->high_max = p->high_max;
	f->batch = p->batch;
	f->flags = p->flags;
	f->alloc_factor = p->alloc_factor;
	f->free_factor = p->free_factor;
	f->free_count = p->free_count;
	f->count_min = p->count_min;
	f->expire = p->expire;
}

#define STEP_FAILS(set, p, ...) \
	FAILS((set)->call, &pcpmodel_steps, was((set)->call, p), __VA_ARGS__)

/* An answer that would have those who asked go on without end. */
static void answers(struct tree_call *call, const struct tree_pcp *p, int failed, long answer)
{
	call->failed = failed;
	call->answer = answer;
	call->pc = NULL;
	was(call, p);
	tell(call, &pcpmodel_steps);
}

/* Blocks of the first hold that took any. */
static int first_hold(const struct set *set)
{
	int i;

	for (i = 0; i < set->nr_holds; i++)
		if (set->holds[i].got)
			return set->holds[i].got;
	return set->blocks;
}

static int step_refill(struct tree_pcp *p, unsigned int zone_flags, int order, bool holds)
{
	struct set *set = foresee(p, zone_flags);
	int count = p->count, count_min = p->count_min, migratetype = MIGRATE_MOVABLE, i;
	unsigned int alloc_flags = ALLOC_KSWAPD;

	(void)alloc_flags;
	p->chunk = 1; /* of a call that fails, which those who asked go on from */
	if (STEP_FAILS(set, p, "rmqueue_pcplist", zone_flags, order))
		return 1;
	set->available = 1L << 26;
	set->refills = holds;
	set->pcp->lists[order_to_pindex(migratetype, order)].nr = 0;
	(void)TREE_ALLOC;
	came_back(set->call);
	for (i = 0; i < set->nr_holds; i++)
		set->blocks += set->holds[i].got;
	if (unlikely(set->blocks < 1 || set->blocks > MOST_REFILLED)) {
		answers(set->call, p, TREE_ASKS, set->blocks);
		return 1;
	}
	foreseen(p, set);
	p->count = count;
	p->count_min = count_min;
	p->chunk = first_hold(set);
	return set->blocks;
}

/* Many operations that take no lock.  Where two in a row have changed every field by the same, as
 * counters and fields at their bounds do, some are leapt over by adding that many times as much, if
 * the next one then changes them by the same again; else fewer are.  Whether that comes to the same
 * for a tree is tried before it is used (tree_rules.py). */

#define FIELD_WORDS(field) ((sizeof(((struct per_cpu_pages *)0)->field) + 7) / 8)
#define FIELD_DECLARED(field) uint64_t field[FIELD_WORDS(field)];
struct words {
	TREE_EACH(FIELD_DECLARED)
};

/* By the size of each, as a store is not passed on to a wider load that follows it. */
static __always_inline uint64_t one_word(const void *from, size_t size)
{
	uint64_t word = 0;

	if (size == 1)
		return *(const uint8_t *)from;
	if (size == 2)
		return *(const uint16_t *)from;
	if (size == 4)
		return *(const uint32_t *)from;
	memcpy(&word, from, size < 8 ? size : 8);
	return word;
}

#define EACH_WORD(field) for (i = 0; i < FIELD_WORDS(field); i++)

static __always_inline struct words get_words(const struct per_cpu_pages *pcp)
{
	struct words w;
	size_t i;

#define GET_FIELD(field) EACH_WORD(field) \
	w.field[i] = one_word((const char *)&pcp->field + 8 * i, sizeof(pcp->field) - 8 * i);
	TREE_EACH(GET_FIELD)
	return w;
}

/* Modulo the size of each field: what lies beyond it is not stored. */
static __always_inline void put_words(struct per_cpu_pages *pcp, struct words w)
{
#define PUT_FIELD(field) memcpy(&pcp->field, w.field, sizeof(pcp->field));
	TREE_EACH(PUT_FIELD)
}

static __always_inline struct words added(struct words w, struct words change, uint64_t times)
{
	size_t i;

#define ADD_FIELD(field) EACH_WORD(field) w.field[i] += times * change.field[i];
	TREE_EACH(ADD_FIELD)
	return w;
}

static __always_inline bool unlike(struct words a, struct words b)
{
	uint64_t bits = 0;
	size_t i;

#define COMPARE_FIELD(field) EACH_WORD(field) bits |= a.field[i] ^ b.field[i];
	TREE_EACH(COMPARE_FIELD)
	return bits != 0;
}

/* Up to k operations until one takes a lock, which is not done; how many. */
static __always_inline int in_a_row(struct set *set, bool (*once)(struct set *set), int k,
				    bool skip)
{
	struct words here = get_words(set->pcp), next, change, last;
	int done = 0, jump = 0;
	bool known = false; /* the last change */

	while (done < k) {
		if (!once(set)) {
			put_words(set->pcp, here);
			break;
		}
		done++;
		next = get_words(set->pcp);
		change = added(next, here, -1);
		here = next;
		if (!skip)
			continue;
		/* One change alone may be a flag's that is cleared: -1, and so it would go on. */
		if (!known || unlike(change, last)) {
			last = change;
			known = true;
			continue;
		}
		/* As far as it goes; nr_pcp_high() may have said how far that is. */
		jump = k - done - 1;
		if (set->threshold > set->pcp->count && jump > set->threshold - set->pcp->count - 2)
			jump = set->threshold - set->pcp->count - 2;
		for (; jump > 2; jump /= 2) {
			put_words(set->pcp, added(here, change, jump));
			next = get_words(set->pcp);
			if (once(set) && !unlike(added(get_words(set->pcp), next, -1), change)) {
				here = get_words(set->pcp);
				done += jump + 1;
				if (jump > k - done)
					jump = k - done;
			} else {
				put_words(set->pcp, here);
			}
		}
		known = false;
	}
	return done;
}

static bool hit_once(struct set *set)
{
	int order = set->order, migratetype = MIGRATE_MOVABLE;
	unsigned int alloc_flags = ALLOC_KSWAPD;

	(void)alloc_flags;
	set->pcp->lists[order_to_pindex(migratetype, order)].nr = 1;
	(void)TREE_ALLOC;
	return true;
}

static bool free_once(struct set *set)
{
	int order = 0, migratetype = MIGRATE_MOVABLE;
	unsigned long irq_state = 0, flags = set->zone.flags;

	(void)irq_state;
	set->nr_asked = 0;
	set->pcp->lists[order_to_pindex(migratetype, order)].nr = 0;
	(void)TREE_COMMIT;
	set->zone.flags = flags;
	return set->nr_asked == 0;
}

static void step_hits(struct tree_pcp *p, int order, int k, bool skip)
{
	struct set *set = foresee(p, 0);

	set->order = order;
	if (STEP_FAILS(set, p, "rmqueue_pcplist", 0, order)) {
		p->count -= k << order;
		return;
	}
	if (skip)
		in_a_row(set, hit_once, k, true);
	else
		while (k--)
			hit_once(set);
	came_back(set->call);
	foreseen(p, set);
}

static int step_frees(struct tree_pcp *p, unsigned int zone_flags, int k, bool skip)
{
	struct set *set = foresee(p, zone_flags);

	if (STEP_FAILS(set, p, TREE_COMMIT_NAME, zone_flags, 0))
		return 0;
	k = in_a_row(set, free_once, k, skip);
	came_back(set->call);
	foreseen(p, set);
	return k;
}

/* Where the known fields go by a release's rules, and what is added to the tree's own does not
 * depend on any state: seen once, added k times.  Tried before it is used, too. */

static void learn(struct set *set, int order, bool frees, char *change)
{
	struct tree_pcp idle = {
		.count = 1 << 12, .high = 1 << 14, .high_min = 1 << 14, .high_max = 1 << 14,
		.batch = 63,
	};

	foresee(&idle, 0);
	set->order = order;
	if (frees)
		free_once(set);
	else
		hit_once(set);
	TREE_GET_OWN(change, set->pcp)
}

static __always_inline void add_bytes(char *to, const char *change, size_t size, int k)
{
	uint64_t word;
	size_t i, n;

	for (i = 0; i < size; i += 8) {
		n = size - i < 8 ? size - i : 8;
		word = one_word(to + i, n) + (uint64_t)k * one_word(change + i, n);
		memcpy(to + i, &word, n);
	}
}

static void step_own_add(struct tree_pcp *p, int order, int k, bool frees)
{
	struct set *set = this_thread();
	int which = frees ? ORDERS : order;

	if (unlikely(!set->learnt[which])) {
		if (STEP_FAILS(set, p, frees ? TREE_COMMIT_NAME : "rmqueue_pcplist", 0, order))
			return;
		learn(set, order, frees, set->change[which]);
		came_back(set->call);
		set->learnt[which] = true;
	}
#define ADD_OWN(at, size) add_bytes(p->own + (at), set->change[which] + (at), size, k);
	if (TREE_OWN_SIZE <= PCPMODEL_TREE_OWN) {
		TREE_OWN_PLACES(ADD_OWN)
	}
	(void)p, (void)k;
}

static int step_commit(struct tree_pcp *p, unsigned int zone_flags, int order)
{
	struct set *set = foresee(p, zone_flags);
	int count = p->count, migratetype = MIGRATE_MOVABLE;
	unsigned long irq_state = 0;

	(void)irq_state;
	if (STEP_FAILS(set, p, TREE_COMMIT_NAME, zone_flags, order)) {
		p->due = p->chunk = 0;
		return INT_MAX;
	}
	set->pcp->count = count - (1 << order);
	set->pcp->lists[order_to_pindex(migratetype, order)].nr = 0;
	set->migratetype = migratetype;
	(void)TREE_COMMIT;
	came_back(set->call);
	foreseen(p, set);
	p->count = count;
	p->due = set->total;
	p->chunk = set->in_bulk ? -set->first : set->first;
	if (set->total)
		return set->threshold >= 0 && set->threshold <= count ? set->threshold : 0;
	return set->threshold > count ? set->threshold : INT_MAX;
}

static int step_decay(struct tree_pcp *p, int *work)
{
#ifdef TREE_DECAY
	struct set *set = foresee(p, 0);
	int count = p->count;

	*work = 0;
	if (STEP_FAILS(set, p, "decay_pcp_high", 0, 0))
		return 0;
	*work = !!(TREE_DECAY);
	came_back(set->call);
	if (unlikely(set->total > 0 && set->first <= 0)) {
		answers(set->call, p, TREE_DRAINS, set->first);
		return 0;
	}
	foreseen(p, set);
	p->count = count;
	p->chunk = set->first;
	return set->total;
#else
	*work = 0;
	(void)p;
	return 0;
#endif
}

static int step_zone_hold(struct tree_pcp *p)
{
	struct set *set = foresee(p, 0);
	int count = p->count;

	if (STEP_FAILS(set, p, "drain_pages_zone", 0, 0))
		return count;
	TREE_DRAIN_ALL;
	came_back(set->call);
	if (unlikely(count > 0 && set->first <= 0)) {
		answers(set->call, p, TREE_DRAINS, set->first);
		return count;
	}
	foreseen(p, set);
	p->count = count;
	return set->first;
}

static int step_remote_hold(struct tree_pcp *p)
{
	struct set *set = foresee(p, 0);
	int count = p->count;

	if (STEP_FAILS(set, p, "drain_zone_pages", 0, 0))
		return 0;
	TREE_DRAIN_REMOTE;
	came_back(set->call);
	foreseen(p, set);
	p->count = count;
	return set->first;
}

const struct tree_steps pcpmodel_steps = {
	.refill = step_refill,
	.hits = step_hits,
	.frees = step_frees,
	.own_add = step_own_add,
	.commit = step_commit,
	.decay = step_decay,
	.zone_hold = step_zone_hold,
	.remote_hold = step_remote_hold,
};

static void op_own(const void *mem, char *own)
{
	const struct set *set = mem;

	(void)set, (void)own;
	TREE_GET_OWN(own, set->pcp)
}

const struct tree_ops pcpmodel_tree = {
	.abi = PCPMODEL_TREE_ABI,
	.nr_lists = NR_PCP_LISTS,
	.size = sizeof(struct set),
	.init = op_init,
	.release = op_release,
	.get = op_get,
	.put = op_put,
	.alloc = op_alloc,
	.commit = op_commit,
	.decay = op_decay,
	.drain_remote = op_drain_remote,
	.drain_all = op_drain_all,
	.pindex = op_pindex,
	.order = op_order,
	.holds = op_holds,
	.passed = op_passed,
	.failed = op_failed,
	.batchsize = op_batchsize,
	.highsize = op_highsize,
	.steps = &pcpmodel_steps,
	.pcp_size = sizeof(struct tree_pcp),
	.own_size = TREE_OWN_SIZE,
	.own = op_own,
	.this_call = &this_call,
};
