// SPDX-License-Identifier: GPL-2.0-only
// The load of tools/emulated_streams.py: pairs of processes that send to each other.
//   pairs N SECONDS CPU: AF_UNIX streams of 64 KiB writes. All are forked, sleep, and begin at
//     once. Every tenth of a second a line with the pairs whose sender is on CPU and above, those
//     whose receiver is, and those of which one is and the other is not.
//   sctp SECONDS: one association, messages of 10 KiB, CPU 0 to CPU 1.
#define _GNU_SOURCE
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_PAIRS = 64, WRITE = 64 << 10, REQUEST = 10 << 20, MESSAGE = 10240, PORT = 20000 };

static int cpu_of(pid_t pid)
{
	enum { FIELD = 39 };
	char name[64], text[1024];
	snprintf(name, sizeof(name), "/proc/%d/stat", pid);
	FILE *file = fopen(name, "r");
	if (!file)
		return -1;
	text[fread(text, 1, sizeof(text) - 1, file)] = 0;
	fclose(file);
	char *word = strtok(strrchr(text, ')') + 1, " ");
	for (int field = 3; field < FIELD && word; field++)
		word = strtok(NULL, " ");
	return word ? atoi(word) : -1;
}

static void stream(int told, int start)
{
	static char text[WRITE];
	int ends[2], asks[2];
	char go;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) || pipe(asks))
		abort();
	pid_t sender = fork();
	if (!sender) {
		size_t left;
		while (read(asks[0], &left, sizeof(left)) == sizeof(left))
			for (; left; left -= WRITE)
				if (write(ends[1], text, WRITE) != WRITE)
					exit(0);
		exit(0);
	}
	if (write(told, &sender, sizeof(sender)) < 0 || read(start, &go, 1) < 1)
		abort();
	for (;;) {
		size_t left = REQUEST;
		ssize_t got;
		if (write(asks[1], &left, sizeof(left)) < 0)
			exit(0);
		for (; left; left -= got)
			if ((got = read(ends[0], text, WRITE)) <= 0)
				exit(0);
	}
}

static void pairs(int number, int tenths, int first)
{
	pid_t sender[MOST_PAIRS], receiver[MOST_PAIRS];
	int start[2], told[2];
	if (number > MOST_PAIRS || pipe(start) || pipe(told))
		abort();
	for (int i = 0; i < number; i++) {
		receiver[i] = fork();
		if (!receiver[i])
			stream(told[1], start[0]);
		if (read(told[0], &sender[i], sizeof(pid_t)) < 0)
			abort();
	}
	usleep(300000);
	for (int i = 0; i < number; i++)
		if (write(start[1], "g", 1) < 1)
			abort();
	for (int i = 0; i < tenths; i++) {
		int above[2] = { 0, 0 }, apart = 0;
		usleep(100000);
		for (int p = 0; p < number; p++) {
			int a = cpu_of(sender[p]) >= first, b = cpu_of(receiver[p]) >= first;
			above[0] += a;
			above[1] += b;
			apart += a != b;
		}
		printf("%d %d %d %d\n", number, above[0], above[1], apart);
	}
	fflush(stdout);
	for (int i = 0; i < number; i++) {
		kill(receiver[i], SIGKILL);
		kill(sender[i], SIGKILL);
	}
	while (wait(NULL) > 0)
		;
}

static int sctp_socket(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
	return socket(AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP);
}

static void sctp(int seconds)
{
	static char text[MESSAGE];
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(PORT),
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	pid_t receiver = fork(), sender;
	if (!receiver) {
		int in = sctp_socket(1);
		if (bind(in, (void *)&here, sizeof(here)) || listen(in, 1))
			abort();
		while (recv(in, text, MESSAGE, 0) >= 0)
			;
		exit(0);
	}
	usleep(100000);
	sender = fork();
	if (!sender) {
		int out = sctp_socket(0);
		while (sendto(out, text, MESSAGE, 0, (void *)&here, sizeof(here)) == MESSAGE)
			;
		exit(0);
	}
	sleep(seconds);
	kill(sender, SIGKILL);
	kill(receiver, SIGKILL);
	while (wait(NULL) > 0)
		;
}

int main(int n, char **word)
{
	if (n == 5 && !strcmp(word[1], "pairs"))
		pairs(atoi(word[2]), 10 * atoi(word[3]), atoi(word[4]));
	else if (n == 3 && !strcmp(word[1], "sctp"))
		sctp(atoi(word[2]));
	else
		return 2;
	return 0;
}
