"""``mm/page_alloc.c``, restated: the only place that knows the kernel's rules."""
