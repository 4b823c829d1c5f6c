package usage_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/agent/usage"
)

// throttled sets for how long the group of a pod, "", and its containers a and b were at their limits since they exist.
func (n *node) throttled(uid string, pod, a, b time.Duration) {
	n.t.Helper()
	for name, spent := range map[string]time.Duration{"": pod, "/a": a, "/b": b} {
		at := "kubepods/pod" + uid + name
		if name != "" {
			n.containers[at] = uid
		}
		if n.v1 {
			n.write("sys/fs/cgroup/cpu/"+at+"/cpu.stat",
				fmt.Sprintf("nr_periods 9\nnr_throttled 2\nthrottled_time %d\n", spent.Nanoseconds()))
			continue
		}
		n.write("sys/fs/cgroup/"+at+"/cpu.stat", fmt.Sprintf("usage_usec 1\nnr_periods 9\nnr_throttled 2\n"+
			"throttled_usec %d\nnr_bursts 0\n", spent.Microseconds()))
	}
}

func TestThrottledTimeIsThatOfContainersOrOfThePod(t *testing.T) {
	t.Parallel()
	inBothVersions(t, func(t *testing.T, n *node) {
		const second = time.Second
		for name, c := range map[string]struct {
			pod, a, b, want time.Duration
		}{
			"nothing":                {0, 0, 0, 0},
			"one container":          {0, second, 0, second},
			"both containers":        {second, second, second, 2 * second},
			"the pod's limit alone":  {3 * second, 0, 0, 3 * second},
			"more by the pod's":      {3 * second, second, second, 3 * second},
			"a counter that is less": {-second, second, 0, second},
		} {
			n := newNode(t, n.v1)
			n.pod("p", 1, 100, 10)
			n.throttled("p", 5*second, 5*second, 5*second)
			for range 6 {
				n.tick(second)
			}
			if got := n.sample().Throttled; len(got) > 0 {
				t.Errorf("%s: %v before the agent counts", name, got)
			}
			n.throttled("p", 5*second+c.pod, 5*second+c.a, 5*second+c.b)
			var sum time.Duration
			for range 5 {
				n.tick(second)
				sum += n.sample().Throttled["p"]
			}
			if sum != c.want {
				t.Errorf("%s: %v, want %v", name, sum, c.want)
			}
		}
	})
}

func TestThrottledTimeIsReported(t *testing.T) {
	t.Parallel()
	inBothVersions(t, func(t *testing.T, n *node) {
		got := map[string]int64{}
		for i := range 20 {
			for _, uid := range []string{"p", "q"} {
				n.pod(uid, float64(i)/10, 100, 10)
			}
			n.throttled("p", 0, time.Duration(i)*250*time.Millisecond, 0)
			n.tick(time.Second)
		}
		status := n.c.Status(nil, []usage.Pod{{UID: "p", Name: "p"}, {UID: "q", Name: "q"}, {UID: "gone"}}, n.now)
		for range 5 { // for the pod that was not read
			if status == nil {
				status = n.c.Status(nil, []usage.Pod{{UID: "p", Name: "p"}, {UID: "q", Name: "q"}}, n.now)
			}
		}
		for _, p := range status.PodsMetric {
			got[p.Name] = p.Extension().ThrottledMilliseconds
			if p.Name == "q" && p.Extensions != nil {
				t.Errorf("q has the extensions %s", p.Extensions.Raw)
			}
		}
		if diff := cmp.Diff(map[string]int64{"p": 250, "q": 0}, got); diff != "" {
			t.Errorf("milliseconds of a second (-want +got):\n%s", diff)
		}
	})
}
