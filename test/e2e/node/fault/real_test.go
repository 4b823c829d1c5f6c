//go:build e2e_node

package fault

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// kills is how often the agent is killed.
const kills = 50

// notPresent is what a runtime says of a container that must not start without the agent.
const notPresent = "required plugin"

func TestAgentKilledAtRandomMoments(t *testing.T) {
	n := newRealNode(t, stage.ContainerdOptions{})
	stop := n.churn()
	n.more(2)
	var away outage
	var healed time.Duration
	for i := range kills {
		n.someMoment(400 * time.Millisecond)
		n.agent.Kill()
		away.begin()
		testkit.Check(t, n.agent.Restarted())
		if i%5 == 4 { // else it is killed at any moment of its start
			healed = max(healed, n.healed())
			away.end()
		}
	}
	stop()
	n.awaitConnected()
	refusals := n.refused(notPresent)
	if refusals == 0 {
		t.Error("no bound pod was held back while the agent was away: the moments are badly chosen")
	}
	// One that is killed before it holds the lock leaves that to the next.
	ends := n.metricGrows(kills/5-1, "tenon_agent_unclean_ends_total")
	if ends > kills {
		t.Errorf("%v unclean ends are counted after %d kills", ends, kills)
	}
	n.event("AgentRestarted")
	t.Logf("%d starts were refused: %s …", refusals, notPresent)
	figure{
		fault: "agent killed", times: kills, mayCrowd: away.longest + period + slack, healed: healed,
		metric: fmt.Sprintf("unclean_ends_total %v", ends), event: "AgentRestarted",
	}.check(t, n.exposed)
}

func TestRuntimeRestarted(t *testing.T) {
	n := newRealNode(t, stage.ContainerdOptions{})
	stop := n.churn()
	n.more(2)
	const times = 5
	var healed time.Duration
	for range times {
		n.someMoment(500 * time.Millisecond)
		n.containerd.Kill()
		n.event("NRIDisconnected")
		n.containerd.Start()
		began := time.Now()
		n.awaitConnected()
		n.healed()
		healed = max(healed, time.Since(began))
	}
	stop()
	lost := n.metricGrows(0, "tenon_agent_enforcement_failures_total", `code="NRIDisconnected"`)
	figure{
		fault: "runtime restarted", times: times, mayCrowd: period + slack, healed: healed,
		metric: fmt.Sprintf(`enforcement_failures{NRIDisconnected} %v`, lost), event: "NRIDisconnected",
	}.check(t, n.exposed)
}

// TestNRISocketGone: an agent that cannot connect holds back who must not start without it, and keeps the others off.
func TestNRISocketGone(t *testing.T) {
	n := newRealNode(t, stage.ContainerdOptions{})
	stop := n.churn()
	n.more(1)
	socket := n.s.NRISocket()
	const times = 3
	var away outage
	var healed time.Duration
	for range times {
		testkit.Check(t, os.Rename(socket, socket+".gone"))
		n.agent.Kill()
		away.begin()
		n.agent.Start()
		away.end()
		n.metricGrows(0, "tenon_agent_enforcement_failures_total", `code="NRIDisconnected"`)
		testkit.Check(t, n.metricIs("tenon_agent_runtime_connected", 0))
		n.awaitRefusal(notPresent)
		testkit.Check(t, os.Rename(socket+".gone", socket))
		began := time.Now()
		n.awaitConnected()
		n.healed()
		healed = max(healed, time.Since(began))
	}
	stop()
	n.event("NRIDisconnected")
	n.event("EnforcementDegraded")
	figure{
		fault: "NRI socket gone", times: times, mayCrowd: away.longest + period + slack, healed: healed,
		metric: "runtime_connected 0", event: "NRIDisconnected, EnforcementDegraded",
	}.check(t, n.exposed)
}

// TestPluginTooSlow: the runtime drops an agent that does not answer in time. What it was asked about does not start.
func TestPluginTooSlow(t *testing.T) {
	n := newRealNode(t, stage.ContainerdOptions{RequestTimeout: 500 * time.Millisecond})
	stop := n.churn()
	n.more(1)
	const times = 5
	var away outage
	var healed time.Duration
	lost := 0.0
	for range times {
		n.someMoment(300 * time.Millisecond)
		n.agent.Freeze()
		away.begin()
		n.awaitRefusal(notPresent) // the runtime has given the agent up
		n.someMoment(time.Second)
		n.agent.Thaw()
		began := time.Now()
		// Until it notices the end it reports the old connection.
		lost = n.metricGrows(lost, "tenon_agent_enforcement_failures_total", `code="NRIDisconnected"`)
		n.awaitConnected()
		n.healed()
		away.end()
		healed = max(healed, time.Since(began))
	}
	stop()
	n.event("NRIDisconnected")
	figure{
		fault: "plugin too slow", times: times, mayCrowd: away.longest + period + slack, healed: healed,
		metric: fmt.Sprintf("enforcement_failures{NRIDisconnected} %v", lost), event: "NRIDisconnected",
	}.check(t, n.exposed)
}

// TestKubeletRestarted: a kubelet with the static policy sends every container its set once more after a restart, and
// it knows nothing of bound pods.
func TestKubeletRestarted(t *testing.T) {
	var k *kubelet
	n := newRealNode(t, stage.ContainerdOptions{}, func() { k = startKubelet(t) })
	stop := n.churn()
	n.more(2)
	const times, each = 4, 5
	for i := range times {
		k.restart()
		n.metricGrows(float64(i), "tenon_agent_kubelet_restarts_total")
		for updates := 0; updates < each; {
			n.someMoment(200 * time.Millisecond)
			for _, c := range n.all() {
				asked := &runtimeapi.LinuxContainerResources{CpusetCpus: allCPUs, CpuPeriod: 100_000, CpuQuota: 100_000}
				if c.Update(t.Context(), asked) == nil {
					updates++ // the others have ended meanwhile
				}
			}
		}
	}
	healed := n.healed()
	stop()
	testkit.Check(t, n.metricIs("tenon_agent_kubelet_restarts_total", times))
	overridden := n.metricGrows(0, "tenon_agent_overridden_updates_total")
	n.event("KubeletRestarted")
	figure{
		fault: "kubelet restarted", times: times, mayCrowd: period + slack, healed: healed,
		metric: fmt.Sprintf("kubelet_restarts_total %d, overridden_updates_total %v", times, overridden),
		event:  "KubeletRestarted",
	}.check(t, n.exposed)
}

func TestCgroupsChangedByHand(t *testing.T) {
	n := newRealNode(t, stage.ContainerdOptions{})
	stop := n.churn()
	n.more(2)
	// An update of the runtime may undo a change before the agent sees it, and then it does not count as drift.
	const times, most = 20, 200
	changes := 0
	for seen := 0.0; changes < times || seen == 0 && changes < most; {
		n.someMoment(200 * time.Millisecond)
		for _, c := range n.all() {
			if n.s.Cgroups().Write(c.Group, "cpuset.cpus",
				[]string{allCPUs, boundCPU, sharedCPU}[n.random.IntN(3)]) == nil {
				changes++
			}
		}
		seen, _ = n.agent.Metric("tenon_agent_drift_total", `kind="Drifted"`) // an error is none seen
	}
	healed := n.healed()
	stop()
	drifts := n.metricGrows(0, "tenon_agent_drift_total", `kind="Drifted"`)
	n.event("Drifted")
	n.event("DriftRepaired")
	figure{
		fault: "cgroups changed by hand", times: changes, mayLose: period + slack, mayCrowd: period + slack,
		healed: healed,
		metric: fmt.Sprintf("drift_total %v", drifts), event: "Drifted, DriftRepaired",
	}.check(t, n.exposed)
}

// TestDiskFullUnderPods: grants that cannot be recorded are not given, and an agent that starts on a full disk works.
func TestDiskFullUnderPods(t *testing.T) {
	const state = "/var/lib/tenon-agent"
	n := newRealNode(t, stage.ContainerdOptions{}, func() {
		testkit.Check(t, os.MkdirAll(state, 0o755))
		testkit.Check(t, syscall.Mount("tmpfs", state, "tmpfs", 0, "size=64k"))
		t.Cleanup(func() { testkit.Check(t, syscall.Unmount(state, syscall.MNT_DETACH)) })
	})
	stop := n.churn()
	n.more(2)
	const times = 3
	var away outage
	var healed time.Duration
	failures := 0.0
	for range times {
		free := fill(t, state)
		n.awaitRefusal("no space left")
		failures = max(failures, n.metricGrows(0, "tenon_agent_enforcement_failures_total", `code="EnforcementFailed"`))
		n.agent.Kill()
		away.begin()
		n.agent.Start()
		away.end()
		free()
		began := time.Now()
		n.awaitConnected()
		n.healed()
		healed = max(healed, time.Since(began))
		testkit.Check(t, n.metricIs("tenon_agent_runtime_connected", 1))
	}
	stop()
	n.event("EnforcementFailed")
	figure{
		fault: "disk full", times: times, mayCrowd: away.longest + period + slack, healed: healed,
		metric: fmt.Sprintf("enforcement_failures{EnforcementFailed} %v", failures), event: "EnforcementFailed",
	}.check(t, n.exposed)
}

func TestSecondAgentOnTheNode(t *testing.T) {
	n := newRealNode(t, stage.ContainerdOptions{})
	stop := n.churn()
	n.more(1)
	const times = 5
	text := fmt.Sprintf("another agent works on this machine: process %d", n.agent.PID())
	for range times {
		second := n.s.Run(stage.Command{Name: "second", Path: stage.Binary("tenon-agent"), Args: []string{
			"run", "--node-name=" + n.node.Name, "--kubeconfig=" + n.s.AgentKubeconfig(n.plane, n.node),
			"--nri-socket=" + n.s.NRISocket(),
			"--hook-socket=", "--cgroup-root=" + n.s.Group(), "--health-address=",
		}})
		<-second.Done()
		if second.Err() == nil || !strings.Contains(second.Log(), text) {
			t.Errorf("the second agent ended with %v and said %q, want %q in it", second.Err(), second.Log(), text)
		}
	}
	healed := n.healed()
	stop()
	stage.Await(t, "the refused agents to be counted",
		func() error { return n.metricIs("tenon_agent_refused_agents_total", times) })
	n.event("SecondAgent")
	figure{
		fault: "second agent", times: times, mayCrowd: period + slack, healed: healed,
		metric: fmt.Sprintf("refused_agents_total %d", times), event: "SecondAgent",
	}.check(t, n.exposed)
}
