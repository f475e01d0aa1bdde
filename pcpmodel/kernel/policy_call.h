/* SPDX-License-Identifier: GPL-2.0-only */
/* A call of a user's rule that Ctrl-C, SIGTERM and SIGHUP can end.
 *
 * Python's handler only notes a signal until Python runs again, which is never where a compiled rule
 * does not return.  While one runs in the main thread, these signals leave it; other threads are not
 * stopped so.  A rule that holds the GIL (with gil: ...) is left alone until it lets go. */

#include <Python.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static const int pcp_endings[] = { SIGINT, SIGTERM, SIGHUP };
static sigjmp_buf pcp_way_out;
static volatile sig_atomic_t pcp_inside, pcp_had_gil, pcp_watches;
static pthread_t pcp_main_thread;
static struct sigaction pcp_before[NSIG];

static void pcp_interrupted(int sig, siginfo_t *info, void *context)
{
	struct sigaction *before = &pcp_before[sig];

	if (pcp_inside && !pthread_equal(pthread_self(), pcp_main_thread)) {
		pthread_kill(pcp_main_thread, sig);
		return;
	}
	if (before->sa_flags & SA_SIGINFO)
		before->sa_sigaction(sig, info, context);
	else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN)
		before->sa_handler(sig);
	if (pcp_inside && PyGILState_Check() == pcp_had_gil) {
		pcp_inside = 0;
		siglongjmp(pcp_way_out, 1);
	}
}

/* Whoever was in a rule when another thread forked is not in the new process. */
static void pcp_forked(void)
{
	if (pthread_equal(pthread_self(), pcp_main_thread))
		return;
	pcp_inside = 0;
	pcp_main_thread = pthread_self();
}

/* Called in the main thread before a rule is used; what handled a signal so far goes on doing so (Python
 * notes it), one that is ignored stays ignored, and one that kills kills. */
static void pcp_watch_interrupts(void)
{
	struct sigaction now;
	size_t i;
	int sig;

	if (syscall(SYS_gettid) != getpid())
		return;
	for (i = 0; i < sizeof(pcp_endings) / sizeof(*pcp_endings); i++) {
		sig = pcp_endings[i];
		if (sigaction(sig, NULL, &now))
			continue;
		if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == pcp_interrupted)
			continue;
		if (!(now.sa_flags & SA_SIGINFO) &&
		    (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN))
			continue;
		pcp_before[sig] = now;
		pcp_main_thread = pthread_self();
		now.sa_sigaction = pcp_interrupted;
		now.sa_flags = SA_SIGINFO | (now.sa_flags & ~(SA_RESETHAND | SA_NODEFER));
		if (!sigaction(sig, &now, NULL) && !pcp_watches) {
			pcp_watches = 1;
			pthread_atfork(NULL, NULL, pcp_forked);
		}
	}
}

typedef int (*pcp_rule)(void *view, void *ctx);

/* What the rule answers; `stopped`: a signal ended it. */
static int pcp_call(pcp_rule rule, void *view, void *ctx, int *stopped)
{
	sigset_t endings;
	size_t i;
	int answer;

	*stopped = 0;
	if (!pcp_watches || !pthread_equal(pthread_self(), pcp_main_thread))
		return rule(view, ctx);
	if (sigsetjmp(pcp_way_out, 0)) {
		sigemptyset(&endings);
		for (i = 0; i < sizeof(pcp_endings) / sizeof(*pcp_endings); i++)
			sigaddset(&endings, pcp_endings[i]);
		pthread_sigmask(SIG_UNBLOCK, &endings, NULL);
		*stopped = 1;
		return 0;
	}
	pcp_had_gil = PyGILState_Check();
	pcp_inside = 1;
	answer = rule(view, ctx);
	pcp_inside = 0;
	return answer;
}
