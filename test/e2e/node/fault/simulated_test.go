//go:build e2e_node

package fault

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/statedir"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// eachDialect runs a fault on cgroup v1 and v2.
func eachDialect(t *testing.T, play func(n *simNode, d desired.Dialect)) {
	t.Helper()
	for _, d := range []desired.Dialect{desired.V1, desired.V2} {
		t.Run(d.String(), func(t *testing.T) {
			stage.Count(t)
			onNode(t, d, func(n *simNode) { play(n, d) })
		})
	}
}

// inOrder starts a bound pod on CPUs 4 and 5 and one of the shared pool.
func (n *simNode) inOrder() (bound, shared *simPod) {
	n.t.Helper()
	bound, shared = n.pod("bound", "LSE", "4-5"), n.pod("shared", "LS", "")
	for _, p := range []*simPod{shared, bound} {
		n.create(p)
		testkit.Check(n.t, n.run(p))
	}
	n.until("the shared pool", n.on(shared, "0-3,6-31"))
	return bound, shared
}

func TestAPIServerGoneForTenMinutes(t *testing.T) {
	eachDialect(t, func(n *simNode, d desired.Dialect) {
		bound, shared := n.inOrder()
		n.cutOff(true)
		later(time.Second)

		// What runs is kept in order, and starts again.
		testkit.Check(n.t, n.tree.Write(bound.hook.Cgroup, desired.CPUs, "0-31"))
		n.until("the repair", n.on(bound, "4-5"))
		n.end(shared)
		testkit.Check(n.t, n.run(shared))
		n.end(bound)
		testkit.Check(n.t, n.run(bound))

		// A pod that was bound meanwhile starts as the runtime reports it.
		late := n.pod("late", "LSE", "6-7")
		n.create(late)
		testkit.Check(n.t, n.run(late))
		n.until("the shared pool", n.on(shared, "0-3,8-31"))
		for began := time.Now(); time.Since(began) < 10*time.Minute; later(30 * time.Second) {
			testkit.Check(n.t, n.on(late, "6-7")())
		}
		age := n.metric(`tenon_topology_age_seconds{node="` + simName + `"}`)
		if age < 500 {
			n.t.Errorf("the published topology counts as %v s old after ten minutes without an API server", age)
		}
		n.cutOff(false)
		healed := n.until("the report", func() error {
			if age := n.metric(`tenon_topology_age_seconds{node="` + simName + `"}`); age > 60 {
				return fmt.Errorf("the published topology is %v s old", age)
			}
			return nil
		})
		n.reported("Drifted")
		n.reported("APIServerUnreachable")
		away := n.metric("tenon_agent_api_unreachable_seconds_total")
		if away < 590 {
			n.t.Errorf("the API server counts as away for %v s after ten minutes", away)
		}
		n.check(figure{
			fault: fmt.Sprintf("API server gone for ten minutes (simulated %v)", d), times: 1, healed: healed,
			metric: fmt.Sprintf("api_unreachable_seconds_total %.0f, topology_age_seconds %.0f", away, age),
			event:  "APIServerUnreachable",
		})
	})
}

func TestCgroupChangedByHand(t *testing.T) {
	eachDialect(t, func(n *simNode, d desired.Dialect) {
		bound, shared := n.inOrder()
		const times = 10
		var healed time.Duration
		for i := range times {
			p, wrong := bound, "0-31"
			if i%2 == 1 {
				p, wrong = shared, "4-5"
			}
			testkit.Check(n.t, n.tree.Write(p.hook.Cgroup, desired.CPUs, wrong))
			took := n.until("the repair", func() error {
				return errors.Join(n.on(bound, "4-5")(), n.on(shared, "0-3,6-31")())
			})
			healed = max(healed, took)
		}
		drifts := n.metric(`tenon_agent_drift_total{kind="Drifted"}`)
		if drifts != times {
			n.t.Errorf("%v drifts are counted, want %d", drifts, times)
		}
		n.reported("Drifted")
		n.reported("DriftRepaired")
		n.check(figure{
			fault: fmt.Sprintf("cgroup changed by hand (simulated %v)", d), times: times, healed: healed,
			metric: fmt.Sprintf("drift_total %v", drifts), event: "Drifted",
		})
	})
}

// TestCPUTakenOffline: a bound pod that keeps a CPU stays on that; one that has none left goes to the shared pool
// rather than to the CPUs of others, as a v2 kernel would have it; both return with the CPU.
func TestCPUTakenOffline(t *testing.T) {
	eachDialect(t, func(n *simNode, d desired.Dialect) {
		bound, shared := n.inOrder()
		single := n.pod("single", "LSE", "6")
		n.create(single)
		testkit.Check(n.t, n.run(single))
		n.until("the shared pool", n.on(shared, "0-3,7-31"))

		n.expect(bound, "4")
		n.expect(single, "")
		n.online("0-4,7-31")
		n.until("the new machine", func() error {
			m := n.agent.Machine()
			if online := m.FormatList(m.Online()); online != "0-4,7-31" {
				return fmt.Errorf("the agent counts with the CPUs %s", online)
			}
			return nil
		})
		n.until("the pods", func() error {
			return errors.Join(n.on(bound, "4")(), n.on(shared, "0-3,7-31")(), n.on(single, "0-3,7-31")())
		})
		n.reported("TopologyChanged")
		n.reported("AllocationUnusable")

		later(time.Minute)
		n.online("0-31")
		healed := n.until("the return of the CPUs", func() error {
			return errors.Join(n.on(bound, "4-5")(), n.on(single, "6")(), n.on(shared, "0-3,7-31")())
		})
		n.expect(bound, "4-5")
		n.expect(single, "6")
		changes := n.metric("tenon_agent_machine_changes_total")
		if changes != 2 {
			n.t.Errorf("%v changes of the machine are counted, want 2", changes)
		}
		n.check(figure{
			fault: fmt.Sprintf("CPUs taken offline (simulated %v)", d), times: 2, healed: healed,
			metric: fmt.Sprintf("machine_changes_total %v", changes), event: "TopologyChanged, AllocationUnusable",
		})
	})
}

// expect says what the set of a pod is from now on.
func (n *simNode) expect(p *simPod, cpus string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.containers[p.hook.Cgroup].want = cpuset.MustParse(cpus)
}

// online sets which CPUs are online, for the kernel and in its files.
func (n *simNode) online(cpus string) {
	n.t.Helper()
	testkit.Check(n.t, n.tree.Online(cpuset.MustParse(cpus)))
	n.file("sys/devices/system/cpu/online", cpus+"\n")
}

// TestDiskFull: what cannot be remembered is not granted; what runs is kept in order.
func TestDiskFull(t *testing.T) {
	eachDialect(t, func(n *simNode, d desired.Dialect) {
		bound, shared := n.inOrder()
		late := n.pod("late", "LSE", "6-7")
		n.create(late)
		free := n.fillDisk()
		const times = 5
		for range times {
			if err := n.run(late); !errors.Is(err, apply.ErrEnforcement) {
				n.t.Fatalf("the start of a pod whose CPUs cannot be recorded: %v, want %v", err, apply.ErrEnforcement)
			}
			later(time.Second)
		}
		testkit.Check(n.t, n.tree.Write(bound.hook.Cgroup, desired.CPUs, "0-31"))
		n.until("the repair", n.on(bound, "4-5"))
		n.end(shared)
		testkit.Check(n.t, n.run(shared))

		failures := n.metric(`tenon_agent_enforcement_failures_total{code="EnforcementFailed"}`)
		if failures < times {
			n.t.Errorf("%v failures are counted, want %d or more", failures, times)
		}
		free()
		healed := n.until("the start of the late pod", func() error { return n.run(late) })
		n.check(figure{
			fault: fmt.Sprintf("disk full (simulated %v)", d), times: times, healed: healed,
			// Here the test is who asks, and gets the refusal: with a runtime the agent sends it, see the disk on the
			// stage.
			metric: fmt.Sprintf("enforcement_failures_total %v", failures), event: "the refusal EnforcementFailed",
		})
	})
}

// fillDisk mounts a small file system over the agent's folder, with what is there, and fills it; the answer makes room.
func (n *simNode) fillDisk() (free func()) {
	n.t.Helper()
	dir := n.root.Path("var/lib/tenon-agent")
	kept := n.t.TempDir()
	testkit.Check(n.t, os.CopyFS(kept+"/x", os.DirFS(dir)))
	testkit.Check(n.t, syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"))
	n.t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	testkit.Check(n.t, os.CopyFS(dir, os.DirFS(kept+"/x")))
	return fill(n.t, dir)
}

// fill takes all the room of a file system; the answer gives it back.
func fill(t testing.TB, dir string) (free func()) {
	t.Helper()
	ballast := dir + "/ballast"
	f, err := os.Create(ballast)
	testkit.Check(t, err)
	for err == nil {
		_, err = f.WriteString(strings.Repeat("x", 512))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling %s: %v, want %v", dir, err, syscall.ENOSPC)
	}
	testkit.Check(t, f.Close())
	return func() { testkit.Check(t, os.Remove(ballast)) }
}

func TestSecondAgentEndsAtOnce(t *testing.T) {
	eachDialect(t, func(n *simNode, d desired.Dialect) {
		bound, _ := n.inOrder()
		const times = 5
		for range times {
			second, err := app.New(n.options)
			testkit.Check(n.t, err)
			if err := second.Run(n.t.Context()); !errors.Is(err, statedir.ErrSecondAgent) {
				n.t.Fatalf("a second agent: %v, want %v", err, statedir.ErrSecondAgent)
			}
		}
		testkit.Check(n.t, n.on(bound, "4-5")())
		later(2 * resync)
		refused := n.metric("tenon_agent_refused_agents_total")
		if refused != times {
			n.t.Errorf("%v refused agents are counted, want %d", refused, times)
		}
		// The refused one sends it itself.
		list, err := n.client.EventsV1().Events("").List(n.t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 || list.Items[0].Reason != "SecondAgent" {
			n.t.Errorf("the Events are %+v (%v), want one SecondAgent", list.Items, err)
		}
		n.check(figure{
			fault: fmt.Sprintf("second agent (simulated %v)", d), times: times,
			metric: fmt.Sprintf("refused_agents_total %v", refused), event: "SecondAgent",
		})
	})
}
