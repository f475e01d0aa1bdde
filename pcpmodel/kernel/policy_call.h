/* SPDX-License-Identifier: GPL-2.0-only */
/* A call of a user's rule that Ctrl-C can end.
 *
 * Python's handler only notes a SIGINT until Python runs again, which is never where a compiled rule
 * does not return.  While one runs in the main thread, SIGINT leaves it; other threads are not
 * stopped so.  A rule that holds the GIL (with gil: ...) is left alone until it lets go. */

#include <Python.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static sigjmp_buf pcp_way_out;
static volatile sig_atomic_t pcp_inside, pcp_had_gil, pcp_watches;
static pthread_t pcp_main_thread;
static struct sigaction pcp_before;

static void pcp_interrupted(int sig, siginfo_t *info, void *context)
{
	if (pcp_inside && !pthread_equal(pthread_self(), pcp_main_thread)) {
		pthread_kill(pcp_main_thread, sig);
		return;
	}
	if (pcp_inside && PyGILState_Check() == pcp_had_gil) {
		pcp_inside = 0;
		siglongjmp(pcp_way_out, 1);
	}
	if (pcp_before.sa_flags & SA_SIGINFO)
		pcp_before.sa_sigaction(sig, info, context);
	else if (pcp_before.sa_handler != SIG_DFL && pcp_before.sa_handler != SIG_IGN)
		pcp_before.sa_handler(sig);
}

/* Called in the main thread before a rule is used; what handled SIGINT so far goes on doing so, and an
 * ignored one stays ignored. */
static void pcp_watch_interrupts(void)
{
	struct sigaction now;

	if (syscall(SYS_gettid) != getpid() || sigaction(SIGINT, NULL, &now))
		return;
	if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == pcp_interrupted)
		return;
	if (!(now.sa_flags & SA_SIGINFO) &&
	    (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN))
		return;
	pcp_before = now;
	pcp_main_thread = pthread_self();
	now.sa_sigaction = pcp_interrupted;
	now.sa_flags = SA_SIGINFO | (now.sa_flags & ~(SA_RESETHAND | SA_NODEFER));
	pcp_watches = !sigaction(SIGINT, &now, NULL);
}

typedef int (*pcp_rule)(void *view, void *ctx);

/* What the rule answers; `stopped`: SIGINT ended it. */
static int pcp_call(pcp_rule rule, void *view, void *ctx, int *stopped)
{
	sigset_t interrupt;
	int answer;

	*stopped = 0;
	if (!pcp_watches || !pthread_equal(pthread_self(), pcp_main_thread))
		return rule(view, ctx);
	if (sigsetjmp(pcp_way_out, 0)) {
		sigemptyset(&interrupt);
		sigaddset(&interrupt, SIGINT);
		pthread_sigmask(SIG_UNBLOCK, &interrupt, NULL);
		*stopped = 1;
		return 0;
	}
	pcp_had_gil = PyGILState_Check();
	pcp_inside = 1;
	answer = rule(view, ctx);
	pcp_inside = 0;
	return answer;
}
