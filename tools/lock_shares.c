/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Loads of tools/lock_shares.py, each on one CPU:
 *   lock_shares calls CPU SECONDS PAUSE    fgetxattr() with room for 64 KiB: the kernel takes a
 *                                          block of order 4 for it, past the lists, and gives it
 *                                          back; then a pause of up to PAUSE loops
 *   lock_shares faults CPU SECONDS MIB     memory that is mapped, touched and unmapped
 * Prints how often, and how long each took [ns].
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define ROOM 65536

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

int main(int argc, char **argv)
{
	uint64_t start, t, end, dice = 88172645463325252ull, done = 0;
	char path[] = "/tmp/lock-shares-XXXXXX";
	size_t size, i;
	cpu_set_t set;
	char *room;
	int fd;

	if (argc != 5)
		return 2;
	CPU_ZERO(&set);
	CPU_SET(atoi(argv[2]), &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		return 1;
	dice += atoi(argv[2]) * 7919;
	size = (size_t)atol(argv[4]);
	fd = mkstemp(path);
	unlink(path);
	room = malloc(ROOM);
	if (fd < 0 || !room)
		return 1;
	start = t = now();
	end = start + (uint64_t)(atof(argv[3]) * 1e9);
	while (t < end) {
		if (!strcmp(argv[1], "calls")) {
			for (i = 0; i < 100; i++, done++) {
				if (fgetxattr(fd, "user.none", room, ROOM) >= 0 || errno != ENODATA)
					return 1; /* then it may not have come so far */
				dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
				for (volatile size_t k = size ? dice % size : 0; k > 0; k--)
					;
			}
		} else {
			room = mmap(NULL, size << 20, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			if (room == MAP_FAILED)
				return 1;
			madvise(room, size << 20, MADV_NOHUGEPAGE);
			for (i = 0; i < size << 20; i += 4096, done++)
				room[i] = 1;
			munmap(room, size << 20);
		}
		t = now();
	}
	printf("%llu %.1f\n", (unsigned long long)done, (double)(t - start) / done);
	return 0;
}
