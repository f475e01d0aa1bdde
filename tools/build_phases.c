// SPDX-License-Identifier: GPL-2.0-only
/*
 * A shell for make that tells of every command, and with COSTS takes SLOW times as long as it took.
 *
 * LOG gets a line of each: its number, that of the command whose make it is of, CPU time that was
 * used here [s], begin and end [s], CPU time that it takes [s], and kind and target of the message
 * that kbuild prints.  With COSTS (target, tab, seconds) what is compiled is not: after SLOW times
 * its seconds its object comes from SAVED.  Other commands are run, and last SLOW times as long as
 * they took of a CPU, so that few CPUs show what many would be busy with.  A command that is a make
 * counts with what it took beside its own commands, at its end.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOTE 0.01 /* a command that takes less is no job [s] */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void sleep_until(double end)
{
	double left = end - now();
	struct timespec t = { (time_t)left, (long)((left - (time_t)left) * 1e9) };

	if (left > 0)
		nanosleep(&t, NULL);
}

static int copy(const char *from, const char *to)
{
	char part[1 << 16];
	ssize_t n = 0;
	int in = open(from, O_RDONLY), out;

	unlink(to);
	out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (in < 0 || out < 0)
		return 1;
	while ((n = read(in, part, sizeof(part))) > 0)
		if (write(out, part, n) != n)
			return 1;
	close(in);
	return close(out) || n < 0;
}

/* The object, and what kbuild noted beside it. */
static int restore(const char *target)
{
	const char *base = strrchr(target, '/');
	char from[2048], note[1024];

	base = base ? base + 1 : target;
	snprintf(note, sizeof(note), "%.*s.%s.cmd", (int)(base - target), target, base);
	snprintf(from, sizeof(from), "%s/%s", getenv("SAVED"), note);
	if (copy(from, note))
		return 1;
	snprintf(from, sizeof(from), "%s/%s", getenv("SAVED"), target);
	return copy(from, target);
}

static double cost_of(const char *target)
{
	double cost = -1;
	char line[1024], *tab;
	FILE *costs = getenv("COSTS") ? fopen(getenv("COSTS"), "r") : NULL;

	while (costs && cost < 0 && fgets(line, sizeof(line), costs)) {
		tab = strchr(line, '\t');
		if (tab && (size_t)(tab - line) == strlen(target) && !strncmp(line, target, tab - line))
			cost = atof(tab + 1);
	}
	if (costs)
		fclose(costs);
	return cost;
}

static int run(char **argv, double *cpu)
{
	struct rusage used;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		argv[0] = "/bin/sh";
		execv(argv[0], argv);
		_exit(127);
	}
	if (pid < 0 || wait4(pid, &status, 0, &used) < 0)
		return 127;
	*cpu = used.ru_utime.tv_sec + used.ru_stime.tv_sec
	       + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* CPU time that the commands of this one's makes used here. */
static double used_by_own(int id)
{
	double sum = 0, used;
	int own, of;
	char line[1024];
	FILE *log = fopen(getenv("LOG"), "r");

	while (log && fgets(line, sizeof(line), log))
		if (sscanf(line, "%d\t%d\t%lf", &own, &of, &used) == 3 && of == id)
			sum += used;
	if (log)
		fclose(log);
	return sum;
}

int main(int argc, char **argv)
{
	double begin = now(), slow = getenv("COSTS") ? atof(getenv("SLOW")) : 1, used = 0, cost;
	const char *command = argc > 2 ? argv[2] : "", *said = strstr(command, "echo '  ");
	char kind[32] = "-", target[512] = "-", line[1024], number[16];
	int of = getenv("COMMAND") ? atoi(getenv("COMMAND")) : 0, code, log, n;

	if (said && sscanf(said + 8, "%31s %511[^ ']", kind, target) == 2 && !strcmp(target, "[M]"))
		sscanf(said + 8, "%*s %*s %511[^ ']", target);
	cost = strcmp(kind, "CC") && strcmp(kind, "AS") ? -1 : cost_of(target);
	if (cost >= 0) {
		sleep_until(begin + slow * cost);
		code = restore(target);
	} else {
		snprintf(number, sizeof(number), "%d", getpid());
		setenv("COMMAND", number, 1);
		code = run(argv, &used);
		cost = used;
		if (strstr(command, "make")) {
			cost -= used_by_own(getpid());
			if (cost < used)
				begin = now() - cost;
		}
		if (slow > 1 && cost > NOTE)
			sleep_until(begin + slow * cost);
	}
	n = snprintf(line, sizeof(line), "%d\t%d\t%.4f\t%.4f\t%.4f\t%.4f\t%s\t%s\n", getpid(), of, used,
		     begin, now(), cost, kind, target);
	log = open(getenv("LOG"), O_WRONLY | O_APPEND | O_CREAT, 0644);
	if (log < 0 || write(log, line, n) != n)
		return 126;
	return code;
}
