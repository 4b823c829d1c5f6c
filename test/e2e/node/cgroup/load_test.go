//go:build e2e_cgroup

package cgroup

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// now returns a clock of the kernel.
func now(clock int32) time.Duration {
	var at unix.Timespec
	_ = unix.ClockGettime(clock, &at) // both clocks exist
	return time.Duration(at.Nano())
}

// burstAgainAndAgain uses 70 ms of CPU time at once, then sleeps.
func burstAgainAndAgain() {
	runtime.LockOSThread()
	for {
		for end := now(unix.CLOCK_THREAD_CPUTIME_ID) + 70*time.Millisecond; now(unix.CLOCK_THREAD_CPUTIME_ID) < end; {
		}
		time.Sleep(330 * time.Millisecond)
	}
}

// lateness sleeps until the end of each of n periods of 1 ms, and says how late it woke up.
func lateness(n int) string {
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	late := make([]time.Duration, 0, n)
	next := now(unix.CLOCK_MONOTONIC)
	for range n {
		next += time.Millisecond
		wanted := unix.NsecToTimespec(int64(next))
		for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &wanted, nil) != nil {
		}
		at := now(unix.CLOCK_MONOTONIC)
		late = append(late, at-next)
		next = max(next, at-time.Millisecond) // periods that were missed are not made up for
	}
	slices.Sort(late)
	micros := func(percent int) int64 { return late[min(n-1, n*percent/100)].Microseconds() }
	return fmt.Sprintf("periods: %d, p50_us: %d, p99_us: %d, max_us: %d", n, micros(50), micros(99), micros(100))
}
