// SPDX-License-Identifier: GPL-2.0-only
// The load of tools/emulated_guest.py: as many threads as CPUs, each on its own, that touch pages and give them
// back in regions of changing size. Between "ready" and a line on the FIFO, and between "done" and
// a second line, nothing of it runs: what is traced in between has all of its holds and no others.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_THREADS = 64, PAGE = 4096, MOST = 4096 };

static pthread_barrier_t start;
static long each;

static void *work(void *number)
{
	long cpu = (long)number, left = each;
	unsigned seed = 1 + cpu;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
	char *region = mmap(NULL, (size_t)MOST * PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (region == MAP_FAILED)
		abort();
	madvise(region, (size_t)MOST * PAGE, MADV_NOHUGEPAGE);
	pthread_barrier_wait(&start);
	while (left > 0) {
		seed = seed * 1103515245u + 12345u;
		long pages = 16 + (seed >> 16) % (MOST - 16);

		for (long i = 0; i < pages; i++)
			region[i * PAGE] = 1;
		madvise(region, (size_t)pages * PAGE, MADV_DONTNEED);
		left -= pages;
	}
	return NULL;
}

static void line(const char *fifo)
{
	FILE *file = fopen(fifo, "r");

	if (!file || fgetc(file) == EOF)
		abort();
	fclose(file);
}

int main(int argc, char **argv)
{
	pthread_t threads[MOST_THREADS];
	long count = sysconf(_SC_NPROCESSORS_ONLN);

	if (argc != 3 || count > MOST_THREADS)
		return 2;
	each = atol(argv[2]);
	pthread_barrier_init(&start, NULL, count + 1);
	for (long i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, work, (void *)i);
	puts("ready");
	fflush(stdout);
	line(argv[1]);
	pthread_barrier_wait(&start);
	for (long i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	puts("done");
	fflush(stdout);
	line(argv[1]);
	return 0;
}
