"""The rules of one kernel state, as the compiled core holds them."""

# SPDX-License-Identifier: GPL-2.0-only


cdef struct pcp_rules:
    # Field by field `pcpmodel.kernel.releases.Rules`, where each is explained;
    # truth values are 0 or 1.
    int pcp_lock
    int nr_pcp_lists

    int batchsize_1m
    int batchsize_256k
    int high_by_watermark
    int high_min_max
    int batch_scale_max
    int cacheinfo

    int alloc_scale
    int auto_high
    int below_high

    int free_high
    int free_high_two_in_a_row
    int free_high_batch
    int free_count
    int free_high_half_high_min
    int free_high_pages
    int commit_drain

    int reclaim_limit
    int high_decrement_batch
    int count_min
    int scaled_drains
    int free_factor_cap
    int free_factor_inclusive
    int free_high_limited

    int drain_by_list
    int decay
    int decay_chunks
    int drain_zone_chunks
    int remote_expire_is_change

    int free_folios
    int free_coalesce

    int fallback
    int drain_block_type
    int cma_balance
    int merge_mergeable
    int merge_retype
    int free_split_blocks
    int isolate_bit
    int nolock
    int zone_locked_list

    int boost_watermark
    int alloc_nofragment
    int boost_needs_kswapd
    int alloc_non_block
    int skip_busy_kswapd
    int highatomic_needs_gfp_high
    int highatomic_last_resort
    int highatomic_free_counter
    int highatomic_limit_rounded
    int highatomic_in_buddy
    int highatomic_fast_path

    # Of a user's kernel tree (tree_rules.py); 0 for a release.
    size_t tree  # const tree_steps *: its compiled functions
    int tree_hits  # TREE_*


# Of a tree: allocations, or frees, that take no lock are those of these rules; those of the tree,
# but not each one is asked for; with the first, its own fields change by the
# same each time.  Same numbers as `Hits` of tree_rules.py.
cdef enum:
    TREE_HITS_AS_RULES = 1
    TREE_FREES_AS_RULES = 2
    TREE_HITS_SKIP = 4
    TREE_FREES_SKIP = 8
    TREE_HITS_ADD = 16
    TREE_FREES_ADD = 32
    TREE_REFILLS_IN_HOLDS = 64


# Values of the rules that are not truth values; same numbers as the enums of releases.py.
cdef enum:
    CACHEINFO_NONE = 0
    CACHEINFO_DATA_4X = 1
    CACHEINFO_SLICE_3X = 2

    DECAY_NONE = 0
    DECAY_FIFTH = 1
    DECAY_EIGHTH = 2

    COMMIT_WHOLE = 0
    COMMIT_CHUNKS_WHILE_HIGH = 1
    COMMIT_CHUNKS = 2

    FALLBACK_STEAL_THEN_RETRY = 0
    FALLBACK_STEAL_PAGE = 1
    FALLBACK_CLAIM_OR_STEAL = 2


cdef pcp_rules rules_of(object release) except *
