/* SPDX-License-Identifier: GPL-2.0-only */
/* What a compiled kernel tree and the program that loads it agree on (pcpmodel/kernel/tree.py). */

#ifndef PCPMODEL_TREE_ABI_H
#define PCPMODEL_TREE_ABI_H

#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PCPMODEL_TREE_ABI 9
#define PCPMODEL_TREE_LISTS 64 /* most lists that a tree may have */
#define PCPMODEL_TREE_OWN 64   /* bytes of its own fields that the engines carry */

/* Scalars of struct per_cpu_pages [pages].  One that the tree does not have is 0 and ignored, but
 * for high_min and high_max, which are high then. */
struct tree_fields {
	int count, high, high_min, high_max, batch, flags;
	int alloc_factor, free_factor, free_count, count_min, expire;
};

/* What happened while the zone's lock was held once. */
struct tree_hold {
	int pages;  /* given back to the buddy lists [pages] */
	int blocks; /* the same in blocks */
	int asked;  /* blocks that a refill asked for */
	int got;    /* blocks that it got */
};

/* What the buddy lists are asked for, or given back, otherwise than an operation has it, and at which
 * end of a list a block leaves it or comes to it: a bit for each argument, and the first value of
 * each that is otherwise beside that which it should be. */
enum tree_argument {
	TREE_RMQUEUE,	     /* __rmqueue(), not another: 1 is __rmqueue_smallest() */
	TREE_RMQUEUE_ORDER,
	TREE_RMQUEUE_TYPE,
	TREE_RMQUEUE_FLAGS,
	TREE_RMQUEUE_MODE,   /* what the page before left; NULL is -1 */
	TREE_FREE_LIST_TYPE, /* that of the page, as up to v6.9 */
	TREE_FREE_BLOCK_TYPE, /* that of its page block, as since v6.10 */
	TREE_FREE_FLAGS,
	TREE_LEAVES, /* the head (0) for whoever allocates, the tail (1) for a drain */
	TREE_COMES,  /* to the head as it is freed, to the tail from a refill */
	TREE_ARGUMENTS
};

struct tree_passed {
	unsigned int otherwise;
	int due[TREE_ARGUMENTS], passed[TREE_ARGUMENTS];
};

/* struct per_cpu_pages as the engines keep it (pcp.pxd): the same words in the same order. */
struct tree_pcp {
	char own[PCPMODEL_TREE_OWN]; /* fields that only the tree has, one after the other */
	int count, high, high_min, high_max, batch, free_count, count_min;
	int due, chunk;
	signed char flags, alloc_factor, free_factor, expire;
};

/* Decisions on it (pcp.pxd says what each is). */
struct tree_steps {
	int (*refill)(struct tree_pcp *pcp, unsigned int zone_flags, int order, bool holds);
	void (*hits)(struct tree_pcp *pcp, int order, int k, bool skip);
	int (*frees)(struct tree_pcp *pcp, unsigned int zone_flags, int k, bool skip);
	void (*own_add)(struct tree_pcp *pcp, int order, int k, bool frees);
	int (*commit)(struct tree_pcp *pcp, unsigned int zone_flags, int order);
	int (*decay)(struct tree_pcp *pcp, int *work);
	int (*zone_hold)(struct tree_pcp *pcp);
	int (*remote_hold)(struct tree_pcp *pcp);
};

/* A call of a tree's function that a signal may end (tree_guard.h): one for each thread. */
struct tree_call {
	jmp_buf way_out;
	volatile sig_atomic_t inside; /* 1: may be left; 2: not just now */
	unsigned long number, seen;   /* of the call; of the one that the last tick found */
	int ticks;		      /* that found it */
	/* What is under way, or what failed */
	const char *function;
	const void *of; /* tree_steps or tree_ops */
	struct tree_fields state;
	unsigned int zone_flags;
	int order;
	int failed; /* TREE_... below; until it is told nothing is asked any more */
	long answer;
	void *pc;  /* where a signal found it */
	int32_t *stop; /* of an engine under way: gets `why`, if it is not NULL */
	int why;
};

#define TREE_SIGNALLED 1 /* `answer`: the signal */
#define TREE_ENDLESS 2
#define TREE_ASKS 3   /* a refill of `answer` blocks */
#define TREE_DRAINS 4 /* holds of `answer` pages of a list that is to be drained */

/* What a pageset is to be put through.  zone_flags: BOOSTED_WATERMARK 1, RECLAIM_ACTIVE 2,
 * BELOW_HIGH 4. */
struct tree_ops {
	int abi;
	int nr_lists;
	size_t size; /* of a pageset [bytes] */
	void (*init)(void *set);
	void (*release)(void *set); /* frees what it has allocated, not itself */
	void (*get)(const void *set, struct tree_fields *fields, int *lists);
	void (*put)(void *set, const struct tree_fields *fields, const int *lists);
	/* Each begins a new list of holds.  alloc: up to `available` blocks come from the buddy
	 * lists; returns whether there was one. */
	int (*alloc)(void *set, unsigned int zone_flags, int order, int migratetype,
		     long available);
	void (*commit)(void *set, unsigned int zone_flags, int order, int migratetype);
	int (*decay)(void *set, unsigned int zone_flags);
	void (*drain_remote)(void *set); /* drain_zone_pages() */
	void (*drain_all)(void *set);	 /* drain_pages_zone() */
	int (*pindex)(int migratetype, int order);
	int (*order)(int pindex);
	int (*holds)(const void *set, const struct tree_hold **holds);
	const struct tree_passed *(*passed)(const void *set); /* by the last operation */
	/* 0, or what went wrong: 1 no memory, 2 a list that is not of this pageset, 3 too many
	 * pages for one list, 4 no end of holds, 5 what the thread's tree_call says, 6 a block of
	 * an empty list. */
	int (*failed)(const void *set);
	/* Sizing: zone_batchsize() and zone_highsize(); LONG_MIN where the tree has none.
	 * Up to v5.13 one function sets both: `*set` is the batch then. */
	long (*batchsize)(unsigned long managed);
	long (*highsize)(unsigned long managed, unsigned long low_wmark, int batch, int cpus,
			 int all_cpus, int fraction, int cpu_online, int *set);
	const struct tree_steps *steps;
	size_t pcp_size; /* of struct tree_pcp [bytes] */
	size_t own_size; /* of the tree's own fields [bytes]; own: where they go */
	void (*own)(const void *set, char *own);
	struct tree_call *(**this_call)(void); /* set by who loads it, before anything is called */
};

#endif
