package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/cpuset"
)

func TestAnonymousPagesAreCountedByNode(t *testing.T) {
	t.Parallel()
	const maps = `00400000 default file=/probe mapped=412 N0=412 kernelpagesize_kB=4
00b3a000 default file=/probe anon=7 dirty=7 N1=7 kernelpagesize_kB=4
c000000000 default anon=48 dirty=48 N0=5 N1=43 kernelpagesize_kB=4
7ffd2c1a0000 default stack anon=3 dirty=3 N1=3 kernelpagesize_kB=4
7ffd2c1f2000 default
`
	if diff := cmp.Diff(map[int]int{0: 5, 1: 46}, anonymous(maps)); diff != "" {
		t.Errorf("pages of mappings without a file (-want +got):\n%s", diff)
	}
}

func TestWhoMayShareCPUs(t *testing.T) {
	t.Parallel()
	leafFor := func(pod, class string) leaf {
		return leaf{path: "/sys/fs/cgroup/kubepods/" + pod + "/c", class: class, cpus: cpuset.Of(1)}
	}
	for name, tt := range map[string]struct {
		owner, other leaf
		want         bool
	}{
		"containers of one pod":     {leafFor("a", "LSE"), leafFor("a", "LSE"), true},
		"best effort on LSR":        {leafFor("a", "LSR"), leafFor("b", "BE"), true},
		"best effort on LSE":        {leafFor("a", "LSE"), leafFor("b", "BE"), false},
		"the shared pool on LSR":    {leafFor("a", "LSR"), leafFor("b", "LS"), false},
		"two pods with CPUs of own": {leafFor("a", "LSE"), leafFor("b", "LSR"), false},
	} {
		if got := tt.owner.mayShare(tt.other); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
