/* Numbers and layouts that the Rust half relies on, held against Apple's own headers: compiled, never linked or run.
   decide_tests.rs holds the Rust half against this file. */
#include <errno.h>
#include <stddef.h>
#include <sys/param.h>
#include <sys/proc.h>
#include <sys/sysctl.h>
#include <sys/time.h>

_Static_assert(EPERM == 1, "EPERM");
_Static_assert(ESRCH == 3, "ESRCH");
_Static_assert(SZOMB == 5, "SZOMB");
_Static_assert(sizeof(struct timeval) == 16, "timeval");
_Static_assert(sizeof(struct kinfo_proc) == 648, "kinfo_proc");
_Static_assert(offsetof(struct kinfo_proc, kp_proc.p_un.__p_starttime.tv_sec) == 0, "start, seconds");
_Static_assert(offsetof(struct kinfo_proc, kp_proc.p_un.__p_starttime.tv_usec) == 8, "start, microseconds");
_Static_assert(offsetof(struct kinfo_proc, kp_proc.p_stat) == 36, "state");
_Static_assert(offsetof(struct kinfo_proc, kp_proc.p_pid) == 40, "pid");
