/* SPDX-License-Identifier: GPL-2.0-only */
/* What any file of the kernel is written with: types, words and macros that decide nothing.  A macro
 * here counts only where the tree's files do not define it. */

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tree_abi.h"

/* include/linux/types.h, compiler.h, kconfig.h and the like, as far as the functions use them */

typedef uint8_t u8;
typedef int8_t s8;
typedef uint16_t u16;
typedef int16_t s16;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
typedef int64_t s64;
typedef unsigned int gfp_t;
typedef unsigned int fpi_t;
typedef struct { long counter; } atomic_long_t;
typedef struct { s64 counter; } atomic64_t;
typedef struct { int counter; } atomic_t;

#define __percpu
#define __init
#define __meminit
#define __ref
#define __force
#define __always_inline inline
#define noinline
#define __maybe_unused __attribute__((unused))
#define __always_unused __attribute__((unused))
#define __must_check
#define __aligned(n) __attribute__((aligned(n)))
#define __packed __attribute__((packed))
#define __counted_by(count)
#define __must_hold(lock)
#define __guarded_by(lock)
#define __cacheline_group_begin(group)
#define __cacheline_group_end(group)
#define ____cacheline_aligned
#define __cold
#define __pure
#define __sched
#define __flatten
#define __used
#define __read_mostly
#define __ro_after_init
#define notrace
#define noinline_for_stack
#define __no_sanitize_memory
#define ____cacheline_aligned_in_smp
#define ____cacheline_internodealigned_in_smp
#define CACHELINE_PADDING(name)
#define fallthrough __attribute__((fallthrough))

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define READ_ONCE(x) (x)
#define WRITE_ONCE(x, value) ((void)((x) = (value)))
#define data_race(x) (x)
#define barrier() ((void)0)
#define cond_resched() ((void)0)
#define cond_resched_lock(lock) ((void)(lock), 0)
#define cpu_relax() ((void)0)
#define might_sleep() ((void)0)
#define might_sleep_if(x) ((void)(x))
#define smp_mb() ((void)0)
#define smp_rmb() ((void)0)
#define smp_load_acquire(at) (*(at))
#define smp_store_release(at, value) ((void)(*(at) = (value)))
#define need_resched() false
#define prefetch(x) ((void)(x))

#define PCPMODEL_GLUE2(a, b) a##b
#define PCPMODEL_GLUE(a, b) PCPMODEL_GLUE2(a, b)
#define PCPMODEL_SECOND(a, b, ...) b
#define PCPMODEL_SET_1 0, 1
#define PCPMODEL_PICK(...) PCPMODEL_SECOND(__VA_ARGS__, 0, 0)
#define PCPMODEL_IS_SET(value) PCPMODEL_PICK(PCPMODEL_GLUE(PCPMODEL_SET_, value))
#define IS_ENABLED(option) PCPMODEL_IS_SET(option)
#define IS_BUILTIN(option) PCPMODEL_IS_SET(option)

#define min(a, b) ({ __auto_type a_ = (a); __auto_type b_ = (b); a_ < b_ ? a_ : b_; })
#define max(a, b) ({ __auto_type a_ = (a); __auto_type b_ = (b); a_ > b_ ? a_ : b_; })
#define min3(a, b, c) min(min(a, b), c)
#define max3(a, b, c) max(max(a, b), c)
#define min_t(type, a, b) min((type)(a), (type)(b))
#define max_t(type, a, b) max((type)(a), (type)(b))
#define umin(a, b) min((unsigned long)(a), (unsigned long)(b))
#define umax(a, b) max((unsigned long)(a), (unsigned long)(b))
/* As the kernel since v6.6: the upper bound first, which tells where low > high. */
#define clamp(x, low, high) ({ __auto_type x_ = (x); __auto_type low_ = (low); \
	__auto_type high_ = (high); x_ >= high_ ? high_ : x_ <= low_ ? low_ : x_; })
#define clamp_t(type, x, low, high) clamp((type)(x), (type)(low), (type)(high))
#define clamp_val(x, low, high) clamp_t(__typeof__(x), x, low, high)
#define swap(a, b) do { __typeof__(a) a_ = (a); (a) = (b); (b) = a_; } while (0)
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define DIV_ROUND_UP(n, d) (((n) + (d) - 1) / (d))
/* These and round_up() are masks, as in the kernel, and wrong of what is no power of two. */
#define ALIGN(x, a) (((x) + (__typeof__(x))(a) - 1) & ~((__typeof__(x))(a) - 1))
#define ALIGN_DOWN(x, a) ((x) & ~((__typeof__(x))(a) - 1))
#define IS_ALIGNED(x, a) (((x) & ((__typeof__(x))(a) - 1)) == 0)
#define BIT(nr) (1UL << (nr))
#define GENMASK(high, low) ((~0UL << (low)) & (~0UL >> (63 - (high))))
#define ilog2(x) (63 - __builtin_clzll((unsigned long long)(x)))
#define fls(x) ((x) ? 32 - __builtin_clz((unsigned int)(x)) : 0)
#define fls64(x) ((x) ? 64 - __builtin_clzll((unsigned long long)(x)) : 0)
#define rounddown_pow_of_two(x) (1UL << ilog2(x))
#define roundup_pow_of_two(x) ((x) <= 1 ? 1UL : 1UL << (ilog2((x) - 1) + 1))
#define is_power_of_2(x) ((x) && !((x) & ((x) - 1)))
#define hweight8(x) __builtin_popcount((u8)(x))
#define hweight16(x) __builtin_popcount((u16)(x))
#define hweight32(x) __builtin_popcount((u32)(x))
#define hweight64(x) __builtin_popcountll((u64)(x))
#define hweight_long hweight64
static inline unsigned long int_sqrt(unsigned long x)
{
	unsigned long root = 0;

	for (unsigned long bit = 1UL << 31; bit; bit >>= 1)
		if ((root + bit) * (root + bit) <= x)
			root += bit;
	return root;
}
#define test_bit(nr, word) (*(word) >> (nr) & 1)
#define set_bit(nr, word) ((void)(*(word) |= 1UL << (nr)))
#define clear_bit(nr, word) ((void)(*(word) &= ~(1UL << (nr))))
#define test_and_set_bit(nr, word) ({ bool was_ = test_bit(nr, word); set_bit(nr, word); was_; })
#define test_and_clear_bit(nr, word) ({ bool was_ = test_bit(nr, word); clear_bit(nr, word); was_; })
#define __test_and_set_bit test_and_set_bit
#define __test_and_clear_bit test_and_clear_bit
#define __set_bit set_bit
#define __clear_bit clear_bit

#define roundup(n, d) (((n) + (d) - 1) / (d) * (d))
#define rounddown(n, d) ((n) - (n) % (d))
#define round_up(n, d) ((((n) - 1) | ((__typeof__(n))(d) - 1)) + 1)
#define round_down(n, d) ((n) & ~((__typeof__(n))(d) - 1))
/* Half of it is taken off where one of them, of a signed type, is below 0. */
#define DIV_ROUND_CLOSEST(n, d) ({ __auto_type n_ = (n); __auto_type d_ = (d); \
	(__typeof__(n_))-1 > 0 || (__typeof__(d_))-1 > 0 || (n_ > 0) == (d_ > 0) ? \
	(n_ + d_ / 2) / d_ : (n_ - d_ / 2) / d_; })
#define mult_frac(n, numerator, denominator) ((__typeof__(n))((__typeof__(n))((n) / (denominator)) * \
	(numerator) + (n) % (denominator) * (numerator) / (denominator)))
#define div_u64(n, d) ((u64)(n) / (u32)(d))
#define div64_u64(n, d) ((u64)(n) / (u64)(d))
#define div64_ul(n, d) ((u64)(n) / (unsigned long)(d))
#define do_div(n, d) ({ u32 d_ = (d), left_ = (u64)(n) % d_; (n) = (u64)(n) / d_; left_; })
#define abs(x) ({ __auto_type x_ = (x); x_ < 0 ? -x_ : x_; })
#define abs_diff(a, b) ({ __auto_type a_ = (a); __auto_type b_ = (b); a_ > b_ ? a_ - b_ : b_ - a_; })
#define order_base_2(n) ((n) > 1 ? ilog2((n) - 1) + 1 : 0)
#define check_add_overflow(a, b, to) __builtin_add_overflow(a, b, to)
#define check_sub_overflow(a, b, to) __builtin_sub_overflow(a, b, to)
#define check_mul_overflow(a, b, to) __builtin_mul_overflow(a, b, to)

#define printk(...) ((void)0)
#define printk_once printk
#define printk_ratelimited printk
#define pr_err printk
#define pr_warn printk
#define pr_info printk
#define pr_debug printk
#define pr_err_once printk
#define pr_warn_once printk
#define pr_info_once printk
#define pr_err_ratelimited printk
#define pr_warn_ratelimited printk
#define pr_info_ratelimited printk
#define pr_debug_ratelimited printk
#define pr_debug_once printk
#define BUG_ON(x) ((void)(x))
#define VM_BUG_ON(x) ((void)(x))
#define VM_BUG_ON_PAGE(x, page) ((void)(x))
#define VM_WARN_ON(x) ((void)(x))
#define VM_WARN_ON_ONCE(x) ((void)(x))
#define VM_WARN_ONCE(x, ...) ((void)(x))
#define VM_WARN_ON_ONCE_PAGE(x, page) ((void)(x))
#define WARN_ON(x) (!!(x))
#define WARN(x, ...) (!!(x))
#define WARN_ONCE(x, ...) (!!(x))
#define WARN_ON_ONCE(x) (!!(x))
#define BUILD_BUG_ON(x) ((void)(x))
#define BUILD_BUG_ON_MSG(x, ...) ((void)(x))
#define static_assert(x, ...) _Static_assert(x, "" __VA_ARGS__)
#define ASSERT_EXCLUSIVE_WRITER(x) ((void)(x))
#define ASSERT_EXCLUSIVE_ACCESS(x) ((void)(x))
#define lockdep_assert_preemption_disabled() ((void)0)
#define lockdep_assert_preemption_enabled() ((void)0)
#define lockdep_assert_irqs_enabled() ((void)0)
#define lockdep_assert_held(lock) ((void)(lock))
#define lockdep_assert_irqs_disabled() ((void)0)

#define SZ_4K 0x1000
#define SZ_64K 0x10000
#define SZ_128K 0x20000
#define SZ_256K 0x40000
#define SZ_512K 0x80000
#define SZ_1M 0x100000
#define SZ_2M 0x200000
#ifndef PAGE_SHIFT
#define PAGE_SHIFT 12
#endif
#define PAGE_SIZE (1UL << PAGE_SHIFT)
#define HPAGE_PMD_ORDER (PAGE_SHIFT - 3)
#define pageblock_order HPAGE_PMD_ORDER
#define pageblock_nr_pages (1UL << pageblock_order)
#define HPAGE_PMD_NR (1 << HPAGE_PMD_ORDER)
#define HPAGE_PMD_SIZE (PAGE_SIZE << HPAGE_PMD_ORDER)
#define is_pmd_order(order) ((order) == HPAGE_PMD_ORDER)
