/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the page-list functions of a kernel tree stand in: lists that are counted, a zone whose
 * buddy lists give as many blocks as they are told to, locks that only note that they were taken.
 *
 * A page on a list is no page: each list has one that stands for all of its blocks, and a list
 * knows how many there are.  A hold begins where the zone's lock is taken.
 */

#include "tree_library.h"

/* Keys of static branches, as they are at boot */

struct static_key { bool enabled; };
#define static_key_true static_key
#define static_key_false static_key
#define DEFINE_STATIC_KEY_TRUE(name) struct static_key name = { true }
#define DEFINE_STATIC_KEY_FALSE(name) struct static_key name = { false }
#define DEFINE_STATIC_KEY_TRUE_RO DEFINE_STATIC_KEY_TRUE
#define DEFINE_STATIC_KEY_FALSE_RO DEFINE_STATIC_KEY_FALSE
#define DEFINE_STATIC_KEY_MAYBE(option, name) struct static_key name = { IS_ENABLED(option) }
#define DEFINE_STATIC_KEY_MAYBE_RO DEFINE_STATIC_KEY_MAYBE
#define DECLARE_STATIC_KEY_TRUE(name) extern struct static_key name
#define DECLARE_STATIC_KEY_FALSE DECLARE_STATIC_KEY_TRUE
#define DECLARE_STATIC_KEY_MAYBE(option, name) extern struct static_key name
#define static_key_enabled(key) ((key)->enabled)
#define static_branch_likely(key) static_key_enabled(key)
#define static_branch_unlikely(key) static_key_enabled(key)
#define static_branch_maybe(option, key) static_key_enabled(key)

/* Locks: that of a pageset is always free, that of the zone begins a hold. */

typedef struct { int taken; } spinlock_t;
typedef spinlock_t raw_spinlock_t;
#define DEFINE_SPINLOCK(name) spinlock_t name
#define DEFINE_RAW_SPINLOCK(name) raw_spinlock_t name

struct list_head {
	int nr;
	int index;
};

struct page {
	union {
		struct list_head pcp_list;
		struct list_head buddy_list;
		struct list_head lru;
	};
	unsigned long private;
	unsigned long flags;
	/* The type that it is on a list by, up to v6.9: page->index, as get_pcppage_migratetype() tells.
	 * In v5.14 .. v5.17 free_pcppages_bulk() shifts it and adds the order, and asks for both. */
	unsigned long index;
};

static void pcpmodel_hold(spinlock_t *lock);

/* Where only what is asked for counts, and nothing moves: behind the names of the tree's own
 * free_pcppages_bulk() and rmqueue_bulk() for whoever calls them (tree.py). */
static bool pcpmodel_foresees(void);
static bool pcpmodel_fills(void);
static int pcpmodel_ask(int count);
static int pcpmodel_fill(unsigned long count, struct list_head *list);
static int pcpmodel_threshold(int high);
static void pcpmodel_in_bulk(bool free_high);

#define smp_wmb() ((void)0)
#define spin_lock_init(lock) ((void)((lock)->taken = 0))
#define spin_lock(lock) pcpmodel_hold(lock)
#define spin_unlock(lock) ((void)(lock))
#define spin_lock_irq(lock) pcpmodel_hold(lock)
#define spin_unlock_irq(lock) ((void)(lock))
#define spin_lock_irqsave(lock, state) ((state) = 0, pcpmodel_hold(lock))
#define spin_unlock_irqrestore(lock, state) ((void)(lock), (void)(state))
#define spin_trylock(lock) (pcpmodel_hold(lock), true)
#define spin_trylock_irqsave(lock, state) ((state) = 0, pcpmodel_hold(lock), true)
#define raw_spin_lock_init spin_lock_init
#define raw_spin_lock spin_lock
#define raw_spin_unlock spin_unlock
#define raw_spin_lock_irq spin_lock_irq
#define raw_spin_unlock_irq spin_unlock_irq
#define raw_spin_lock_irqsave spin_lock_irqsave
#define raw_spin_unlock_irqrestore spin_unlock_irqrestore
#define raw_spin_trylock spin_trylock
#define raw_spin_trylock_irqsave spin_trylock_irqsave
#define spin_is_contended(lock) ((void)(lock), false)
#define spin_needbreak(lock) ((void)(lock), false)
#define local_irq_save(state) ((void)((state) = 0))
#define local_irq_restore(state) ((void)(state))
#define preempt_disable() ((void)0)
#define preempt_enable() ((void)0)
#define migrate_disable() ((void)0)
#define migrate_enable() ((void)0)
#define in_nmi() false
#define in_hardirq() false
#define in_irq() false
#define in_softirq() false
#define in_serving_softirq() false
#define in_interrupt() false
#define in_task() true
#define irqs_disabled() false
#define current_is_kswapd() false

#define pcp_trylock_prepare(state) ((void)((state) = 0))
#define pcp_trylock_finish(state) ((void)(state))
#define pcp_spin_lock(set) (set)
/* Its second argument, from v6.18 on, keeps the interrupt state where there is one CPU only. */
#define pcp_spin_trylock(set, ...) (set)
#define pcp_spin_unlock(set, ...) ((void)(set))
#define pcp_spin_lock_nopin(set) ((void)(set))
#define pcp_spin_unlock_nopin(set) ((void)(set))
#define pcp_spin_lock_maybe_irqsave(set, state) ((void)((state) = 0))
#define pcp_spin_unlock_maybe_irqrestore(set, state) ((void)(state))

/* That of the pagesets up to v5.19: their holder is alone here. */
typedef struct { int taken; } local_lock_t;
#define INIT_LOCAL_LOCK(lock) { 0 }
#define local_lock(lock) ((void)0)
#define local_unlock(lock) ((void)0)
#define local_lock_irq(lock) ((void)0)
#define local_unlock_irq(lock) ((void)0)
#define local_lock_irqsave(lock, state) ((void)((state) = 0))
#define local_unlock_irqrestore(lock, state) ((void)(state))

/* include/linux/cleanup.h: what is done where a block ends. */

#define DEFINE_CLASS(name, type, exit, init, args...) \
	typedef type class_##name##_t; \
	static inline void class_##name##_destructor(type *of) { type _T = *of; (void)_T; exit; } \
	static inline type class_##name##_constructor(args) { type t = init; return t; }
#define DEFINE_GUARD(name, type, lock, unlock) \
	DEFINE_CLASS(name, type, unlock, ({ lock; _T; }), type _T)
#define DEFINE_LOCK_GUARD_0(name, lock, unlock, ...) \
	DEFINE_CLASS(name, int, unlock, ({ lock; 0; }), void)
#define DEFINE_LOCK_GUARD_1(name, type, lock_, unlock, ...) \
	typedef struct { type *lock; } class_##name##_t; \
	static inline void class_##name##_destructor(class_##name##_t *_T) { (void)_T; unlock; } \
	static inline class_##name##_t class_##name##_constructor(type *of) \
	{ class_##name##_t t = { of }, *_T = &t; lock_; return t; }
#define DEFINE_FREE(name, type, free) \
	static inline void free_##name##_(void *of) { type _T = *(type *)of; free; }
/* Aligned so that the compiler says the name of one that is not there. */
#define __free(name) \
	__attribute__((cleanup(free_##name##_), aligned(_Alignof(__typeof__(&free_##name##_)))))
#define CLASS(name, variable) \
	class_##name##_t variable __attribute__((cleanup(class_##name##_destructor), unused)) = \
		class_##name##_constructor
#define guard(name) CLASS(name, PCPMODEL_GLUE(guard_, __COUNTER__))
#define scoped_guard(name, ...) \
	for (CLASS(name, scope_)(__VA_ARGS__), *once_ = NULL; !once_; once_ = (void *)&scope_)

DEFINE_GUARD(spinlock, spinlock_t *, pcpmodel_hold(_T), (void)0)
DEFINE_GUARD(spinlock_irq, spinlock_t *, pcpmodel_hold(_T), (void)0)
DEFINE_GUARD(spinlock_irqsave, spinlock_t *, pcpmodel_hold(_T), (void)0)
DEFINE_GUARD(raw_spinlock, raw_spinlock_t *, pcpmodel_hold(_T), (void)0)
DEFINE_GUARD(raw_spinlock_irq, raw_spinlock_t *, pcpmodel_hold(_T), (void)0)
DEFINE_GUARD(raw_spinlock_irqsave, raw_spinlock_t *, pcpmodel_hold(_T), (void)0)
DEFINE_GUARD(local_lock, local_lock_t *, (void)0, (void)0)
DEFINE_GUARD(local_lock_irq, local_lock_t *, (void)0, (void)0)
DEFINE_GUARD(local_lock_irqsave, local_lock_t *, (void)0, (void)0)
DEFINE_LOCK_GUARD_0(irq, (void)0, (void)0)
DEFINE_LOCK_GUARD_0(irqsave, (void)0, (void)0)
DEFINE_LOCK_GUARD_0(preempt, (void)0, (void)0)
DEFINE_LOCK_GUARD_0(migrate, (void)0, (void)0)

/* include/linux/static_call.h: as they are defined. */

#define DEFINE_STATIC_CALL(name, function) __typeof__(function) *static_call_##name = function
#define DECLARE_STATIC_CALL(name, function) extern __typeof__(function) *static_call_##name
#define static_call(name) (*static_call_##name)

/* A machine of one pageset */

struct per_cpu_pages;
struct per_cpu_pageset; /* up to v5.13: begins with a struct per_cpu_pages */
struct per_cpu_zonestat;

struct pglist_data;
struct zone;

/* Of structures that a tree may add fields to (tree.py), those that known releases use here. */
#define PCPMODEL_OF_pglist_data \
	int node_id; \
	int nr_zones; \
	atomic_t kswapd_failures;
#define PCPMODEL_OF_per_cpu_zonestat
#define PCPMODEL_OF_zone \
	unsigned long flags; \
	spinlock_t lock; \
	struct per_cpu_pages *per_cpu_pageset; \
	struct per_cpu_pageset *pageset; \
	struct per_cpu_zonestat *per_cpu_zonestats; \
	struct pglist_data *zone_pgdat; \
	int node; \
	int pageset_high_min, pageset_high_max, pageset_batch; \
	union { unsigned long managed, managed_pages; }; /* by its field up to v4.20 */ \
	unsigned long min_wmark, low_wmark, high_wmark; \
	unsigned long nr_isolate_pageblock; \
	int cpus, all_cpus;

#define zone_managed_pages(zone) ((zone)->managed)
#define min_wmark_pages(zone) ((zone)->min_wmark)
#define low_wmark_pages(zone) ((zone)->low_wmark)
#define high_wmark_pages(zone) ((zone)->high_wmark)
#define zone_to_nid(zone) ((zone)->node)
#define zone_idx(zone) 2
#define MAX_NUMNODES 64
#define numa_node_id() 0
#define numa_mem_id() 0
#define smp_processor_id() 0
#define raw_smp_processor_id() 0
#define next_memory_node(node) MAX_NUMNODES
#define kswapd_test_hopeless(pgdat) ((void)(pgdat), false)
#define kswapd_clear_hopeless(pgdat, reason) ((void)(pgdat))
#define ATOMIC_INIT(value) { value }
#define atomic_read(a) ((a)->counter)
#define atomic_set(a, value) ((void)((a)->counter = (value)))
#define atomic_add(n, a) ((void)((a)->counter += (n)))
#define atomic_sub(n, a) ((void)((a)->counter -= (n)))
#define atomic_inc(a) atomic_add(1, a)
#define atomic_dec(a) atomic_sub(1, a)
#define atomic_add_return(n, a) ((a)->counter += (n))
#define atomic_sub_return(n, a) ((a)->counter -= (n))
#define atomic_inc_return(a) atomic_add_return(1, a)
#define atomic_dec_return(a) atomic_sub_return(1, a)
#define atomic_dec_and_test(a) (atomic_dec_return(a) == 0)
#define atomic_fetch_add(n, a) (atomic_add_return(n, a) - (n))
#define atomic_fetch_inc(a) ((a)->counter++)
#define atomic_fetch_dec(a) ((a)->counter--)
#define xchg(at, new) ({ __auto_type at_ = (at); __typeof__(*at_) was_ = *at_; *at_ = (new); was_; })
#define cmpxchg(at, old, new) ({ __auto_type at_ = (at); __typeof__(*at_) was_ = *at_; \
	if (was_ == (old)) *at_ = (new); was_; })
#define try_cmpxchg(at, old, new) ({ __auto_type to_ = (at); __auto_type old_ = (old); \
	bool same_ = *to_ == *old_; if (same_) *to_ = (new); else *old_ = *to_; same_; })
#define atomic_xchg(a, new) xchg(&(a)->counter, new)
#define atomic_cmpxchg(a, old, new) cmpxchg(&(a)->counter, old, new)
#define atomic_try_cmpxchg(a, old, new) try_cmpxchg(&(a)->counter, old, new)
#define ATOMIC_LONG_INIT ATOMIC_INIT
#define atomic_long_add_return atomic_add_return
#define atomic_long_sub_return atomic_sub_return
#define atomic_long_inc_return atomic_inc_return
#define atomic_long_dec_return atomic_dec_return
#define atomic_long_fetch_add atomic_fetch_add
#define atomic_long_xchg atomic_xchg
#define atomic_long_cmpxchg atomic_cmpxchg
#define ATOMIC64_INIT ATOMIC_INIT
#define atomic64_read atomic_read
#define atomic64_set atomic_set
#define atomic64_add atomic_add
#define atomic64_sub atomic_sub
#define atomic64_inc atomic_inc
#define atomic64_dec atomic_dec
#define atomic64_add_return atomic_add_return
#define atomic64_sub_return atomic_sub_return
#define atomic64_inc_return atomic_inc_return
#define atomic64_dec_return atomic_dec_return
#define atomic_long_read atomic_read
#define atomic_long_set atomic_set
#define atomic_long_add atomic_add
#define atomic_long_sub atomic_sub
#define atomic_long_inc atomic_inc
#define atomic_long_dec atomic_dec

/* Variables of each CPU: there is one. */
#define DEFINE_PER_CPU(type, name) __typeof__(type) name
#define DEFINE_PER_CPU_READ_MOSTLY DEFINE_PER_CPU
#define DEFINE_PER_CPU_ALIGNED DEFINE_PER_CPU
#define DEFINE_PER_CPU_SHARED_ALIGNED DEFINE_PER_CPU
#define DEFINE_PER_CPU_PAGE_ALIGNED DEFINE_PER_CPU
#define DECLARE_PER_CPU(type, name) extern __typeof__(type) name
#define DECLARE_PER_CPU_READ_MOSTLY DECLARE_PER_CPU
#define DECLARE_PER_CPU_ALIGNED DECLARE_PER_CPU
#define DECLARE_PER_CPU_SHARED_ALIGNED DECLARE_PER_CPU
#define DECLARE_PER_CPU_PAGE_ALIGNED DECLARE_PER_CPU
#define per_cpu_ptr(set, cpu) ((void)(cpu), (set))
#define this_cpu_ptr(set) (set)
#define raw_cpu_ptr(set) (set)
#define get_cpu_ptr(set) (set)
#define put_cpu_ptr(set) ((void)(set))
#define per_cpu(variable, cpu) (*per_cpu_ptr(&(variable), cpu))
#define get_cpu_var(variable) (variable)
#define put_cpu_var(variable) ((void)0)
#define this_cpu_read(variable) (variable)
#define this_cpu_write(variable, value) ((void)((variable) = (value)))
#define this_cpu_add(variable, n) ((void)((variable) += (n)))
#define this_cpu_sub(variable, n) ((void)((variable) -= (n)))
#define this_cpu_inc(variable) this_cpu_add(variable, 1)
#define this_cpu_dec(variable) this_cpu_sub(variable, 1)
#define this_cpu_add_return(variable, n) ((variable) += (n))
#define this_cpu_sub_return(variable, n) ((variable) -= (n))
#define this_cpu_inc_return(variable) this_cpu_add_return(variable, 1)
#define this_cpu_dec_return(variable) this_cpu_sub_return(variable, 1)
#define __this_cpu_read this_cpu_read
#define __this_cpu_write this_cpu_write
#define __this_cpu_add this_cpu_add
#define __this_cpu_sub this_cpu_sub
#define __this_cpu_inc this_cpu_inc
#define __this_cpu_dec this_cpu_dec
#define raw_cpu_read this_cpu_read
#define raw_cpu_write this_cpu_write
#define raw_cpu_add this_cpu_add
#define raw_cpu_inc this_cpu_inc

/* zone_highsize() asks for the CPUs of the zone's node and for all. */
static __thread struct zone *pcpmodel_sized;
#define cpumask_of_node(node) ((void)(node), 0)
#define cpumask_weight(mask) ((void)(mask), pcpmodel_sized->cpus)
#define num_online_cpus() (pcpmodel_sized->all_cpus)

/* The zone, and of a page the type that it is on a list by, and that of its page block: on a list
 * another, as after a fallback, so that both are told apart. */
static struct zone *pcpmodel_zone(void);
static int pcpmodel_noted_type(const struct page *page);
static int pcpmodel_block_type(const struct page *page);

/* Beside the matter */

#define __count_vm_events(item, n) ((void)(n))
#define count_vm_events(item, n) ((void)(n))
#define __count_vm_event(item) ((void)0)
#define count_vm_event(item) ((void)0)
#define __count_zid_vm_events(item, zid, n) ((void)(n))
#define zone_statistics(preferred, ...) ((void)(preferred))
#define __mod_zone_page_state(zone, item, n) ((void)(n))
#define __mod_zone_freepage_state(zone, n, mt) ((void)(n))
#define account_freepages(zone, n, mt) ((void)(n))
#define page_zonenum(page) ((void)(page), 2) /* as zone_idx() */
#define page_zone(page) ((void)(page), pcpmodel_zone())
#define page_to_pfn(page) ((void)(page), 0UL)
#define page_to_nid(page) 0
#define set_page_private(page, value) ((void)((page)->private = (value)))
#define page_private(page) ((page)->private)
#define get_pfnblock_migratetype(page, pfn) ((void)(pfn), pcpmodel_block_type(page))
#define get_pageblock_migratetype(page) pcpmodel_block_type(page)
#define get_pcppage_migratetype(page) pcpmodel_noted_type(page)
#define set_pcppage_migratetype(page, mt) ((void)(mt))
#define is_migrate_cma(mt) ((void)(mt), false)
#define is_migrate_isolate(mt) ((void)(mt), false)
#define is_migrate_isolate_page(page) ((void)(page), false)
#define is_migrate_highatomic(mt) ((void)(mt), false)
#define has_isolate_pageblock(zone) ((void)(zone), false)
#define trace_mm_page_pcpu_drain(page, order, mt) ((void)(page), (void)(order), (void)(mt))
#define trace_mm_page_free_batched(page) ((void)(page))
#define trace_mm_page_alloc_zone_locked(page, order, mt, ...) ((void)(page)) /* 3 up to v5.18 */
#define check_new_page(page) ((void)(page), false)
#define check_new_pages(page, order) ((void)(page), false)
#define check_new_pcp(page, ...) ((void)(page), false)
#define check_pcp_refill(page, ...) ((void)(page), false)
#define check_pages_enabled false
#define bulkfree_pcp_prepare(page) ((void)(page), false)
#define prefetch_buddy(page) ((void)(page))
#define zone_watermark_ok(zone, order, mark, index, flags) ((void)(zone), (void)(mark), false)
#define zone_watermark_fast(zone, order, mark, index, flags) ((void)(zone), (void)(mark), false)

/* The buddy lists: they give `available` blocks and take everything. */

static struct page *pcpmodel_rmqueue(int how, int order);
static void pcpmodel_asked(int order, int migratetype);
static void pcpmodel_asked_flags(unsigned int alloc_flags);
static void pcpmodel_asked_mode(const void *mode);
static void pcpmodel_free_one(struct page *page, unsigned int order, int migratetype, int flags);

/* The fourth argument is there from v5.0 on, the fifth since v6.15. */
#define PCPMODEL_COUNTED(a, b, c, d, e, f, g, h, name, ...) name
#define PCPMODEL_GIVEN(name, ...) PCPMODEL_GLUE(name, \
	PCPMODEL_COUNTED(__VA_ARGS__, 5, 5, 5, 5, 4, 3, 2, 1, 0))(__VA_ARGS__)
#define PCPMODEL_RMQUEUE_3(zone, order, mt) \
	((void)(zone), pcpmodel_asked(order, mt), pcpmodel_rmqueue(0, order))
#define PCPMODEL_RMQUEUE_4(zone, order, mt, flags) \
	(pcpmodel_asked_flags(flags), PCPMODEL_RMQUEUE_3(zone, order, mt))
#define PCPMODEL_RMQUEUE_5(zone, order, mt, flags, mode, ...) \
	(pcpmodel_asked_mode(mode), PCPMODEL_RMQUEUE_4(zone, order, mt, flags))
#define __rmqueue(...) PCPMODEL_GIVEN(PCPMODEL_RMQUEUE_, __VA_ARGS__)
#define __rmqueue_smallest(zone, order, mt, ...) \
	((void)(zone), pcpmodel_asked(order, mt), pcpmodel_rmqueue(1, order))
#define __rmqueue_cma_fallback(zone, order, ...) ((void)(zone), pcpmodel_rmqueue(2, order))
#define __free_one_page(page, pfn, zone, order, mt, ...) \
	((void)(pfn), (void)(zone), pcpmodel_free_one(page, order, mt, (int)(0, ##__VA_ARGS__)))

/* include/linux/list.h on lists that are counted.  Only what is on a pageset's list, or comes to
 * it, ever stands in one, and what gathers on a list of the function's own. */

#define PCPMODEL_OWN_LIST (-2)
static struct page *pcpmodel_loose(void);
static struct list_head pcpmodel_own_list(void);
static struct page *pcpmodel_gathered(struct list_head *list);

enum pcpmodel_end { PCPMODEL_HEAD, PCPMODEL_TAIL };
static void pcpmodel_add(struct list_head *entry, struct list_head *list, enum pcpmodel_end end);
static void pcpmodel_del(struct list_head *entry);
static struct page *pcpmodel_entry(struct list_head *list, enum pcpmodel_end end);

#define LIST_HEAD(name) struct list_head name = pcpmodel_own_list()
#define list_for_each_entry_safe(pos, next, list, member) \
	for ((pos) = (next) = pcpmodel_gathered(list); (list)->nr > 0; \
	     (list)->nr--, (pos) = pcpmodel_gathered(list))
static void pcpmodel_init_list(struct list_head *list);
#define INIT_LIST_HEAD(list) pcpmodel_init_list(list)
#define list_empty(list) ((list)->nr == 0)
#define list_is_singular(list) ((list)->nr == 1)
#define list_count_nodes(list) ((size_t)(list)->nr)
#define list_add(entry, list) pcpmodel_add(entry, list, PCPMODEL_HEAD)
#define list_add_tail(entry, list) pcpmodel_add(entry, list, PCPMODEL_TAIL)
#define list_del(entry) pcpmodel_del(entry)
#define list_del_init(entry) pcpmodel_del(entry)
#define list_first_entry(list, type, member) pcpmodel_entry(list, PCPMODEL_HEAD)
#define list_last_entry(list, type, member) pcpmodel_entry(list, PCPMODEL_TAIL)
#define list_first_entry_or_null(list, type, member) \
	(list_empty(list) ? NULL : list_first_entry(list, type, member))
