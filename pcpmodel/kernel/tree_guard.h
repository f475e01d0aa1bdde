/* SPDX-License-Identifier: GPL-2.0-only */
/* A call of a tree's function comes to an end, whatever the function does.
 *
 * While one runs, SIGFPE, SIGSEGV, SIGBUS, SIGILL and SIGTRAP leave it for where it was called
 * (tree_glue.h), and so does a timer of the thread's own CPU time that finds one call under way
 * MOST_TICKS times.  Signals of anybody else go to whoever had them before. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "tree_abi.h"

#define MOST_TICKS 3 /* of a second each; a call takes microseconds */
#define STACK_SIZE (64 << 10)

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

struct guarded_thread {
	struct tree_call call;
	timer_t timer;
	bool timed, stacked;
	char stack[STACK_SIZE]; /* of the handler: a function without end may have used up its own */
};

static const int guarded_signals[] = { SIGFPE, SIGSEGV, SIGBUS, SIGILL, SIGTRAP };
static struct sigaction guarded_before[NSIG];
static int guard_tick; /* the timer's signal */
static pthread_key_t guard_key;
static pthread_once_t guard_once = PTHREAD_ONCE_INIT;

/* Signal handlers read it.  glibc finds the variables of a library that was loaded late by way of
 * its heap, whose lock the interrupted thread may have: amid fork(), say.  Not those that lie
 * where the thread's own do. */
#ifdef __GLIBC__
static __thread struct guarded_thread *guarded __attribute__((tls_model("initial-exec")));
#else
static __thread struct guarded_thread *guarded;
#endif

static void *interrupted_at(void *context)
{
	ucontext_t *at = context;

#if defined(__x86_64__)
	return (void *)at->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
	return (void *)at->uc_mcontext.pc;
#else
	(void)at;
	return NULL;
#endif
}

static void leave_call(struct tree_call *call, int failed, long answer, void *context)
{
	call->failed = failed;
	call->answer = answer;
	call->pc = interrupted_at(context);
	call->inside = 0;
	longjmp(call->way_out, 1);
}

static void guard_signal(int sig, siginfo_t *info, void *context)
{
	struct tree_call *call = guarded ? &guarded->call : NULL;
	struct sigaction *before = &guarded_before[sig];

	if (sig == guard_tick) {
		if (!call || call->inside != 1 || call->seen != call->number) {
			if (call) {
				call->seen = call->number;
				call->ticks = 0;
			}
		} else if (++call->ticks >= MOST_TICKS) {
			leave_call(call, TREE_ENDLESS, 0, context);
		}
		return;
	}
	if (call && call->inside)
		leave_call(call, TREE_SIGNALLED, sig, context);
	if (before->sa_flags & SA_SIGINFO) {
		before->sa_sigaction(sig, info, context);
	} else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN) {
		before->sa_handler(sig);
	} else {
		sigaction(sig, before, NULL);
		if (info->si_code <= 0) /* sent: it does not come again by itself */
			raise(sig);
	}
}

static void start_timer(struct guarded_thread *mine)
{
	struct itimerspec each = { { 1, 0 }, { 1, 0 } };
	struct sigevent event;

	memset(&event, 0, sizeof(event));
	event.sigev_notify = SIGEV_THREAD_ID;
	event.sigev_signo = guard_tick;
	event.sigev_notify_thread_id = syscall(SYS_gettid);
	mine->timed = guard_tick && !timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &mine->timer);
	if (mine->timed)
		timer_settime(mine->timer, 0, &each, NULL);
}

static void unguard_thread(void *mem)
{
	struct guarded_thread *mine = mem;
	stack_t none = { .ss_flags = SS_DISABLE };

	guarded = NULL;
	if (mine->timed)
		timer_delete(mine->timer);
	if (mine->stacked)
		sigaltstack(&none, NULL);
	free(mine);
}

/* Timers do not come along. */
static void guard_child(void)
{
	if (guarded)
		start_timer(guarded);
}

static void guard_process(void)
{
	struct sigaction now, mine;
	size_t i;
	int sig;

	memset(&mine, 0, sizeof(mine));
	mine.sa_sigaction = guard_signal;
	/* NODEFER: whoever is left does not come back to unblock it. */
	mine.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
	for (i = 0; i < sizeof(guarded_signals) / sizeof(*guarded_signals); i++)
		sigaction(guarded_signals[i], &mine, &guarded_before[guarded_signals[i]]);
	for (sig = SIGRTMAX - 1; sig > SIGRTMIN && !guard_tick; sig--) {
		if (sigaction(sig, NULL, &now) || (now.sa_flags & SA_SIGINFO) ||
		    now.sa_handler != SIG_DFL)
			continue;
		if (!sigaction(sig, &mine, NULL))
			guard_tick = sig;
	}
	pthread_key_create(&guard_key, unguard_thread);
	pthread_atfork(NULL, NULL, guard_child);
}

/* Of this thread, which is guarded from now on; the process ends if there is no memory for it. */
static struct tree_call *call_of_thread(void)
{
	stack_t stack;

	if (!guarded) {
		pthread_once(&guard_once, guard_process);
		guarded = calloc(1, sizeof(*guarded));
		if (!guarded)
			abort();
		pthread_setspecific(guard_key, guarded);
		if (!sigaltstack(NULL, &stack) && (stack.ss_flags & SS_DISABLE)) {
			memset(&stack, 0, sizeof(stack));
			stack.ss_sp = guarded->stack;
			stack.ss_size = STACK_SIZE;
			guarded->stacked = !sigaltstack(&stack, NULL);
		}
		start_timer(guarded);
	}
	return &guarded->call;
}

/* Where in a library a signal found a call; NULL if not in one. */
static const char *library_at(const void *pc, size_t *offset)
{
	Dl_info info;

	if (!pc || !dladdr(pc, &info) || !info.dli_fname)
		return NULL;
	*offset = (const char *)pc - (const char *)info.dli_fbase;
	return info.dli_fname;
}
