//go:build e2e_node

package agent

import (
	"context"
	"fmt"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// TestProxy measures calls of the kubelet through the CRI proxy beside the same calls to containerd, in turn. The calls
// are those that a runtime answers at once, so that the difference is the proxy.
func TestProxy(t *testing.T) {
	stage.Count(t)
	m := newMachine(t, "proxy", stage.ContainerdOptions{NoNRI: true})
	m.startAgent(false)
	m.s.Proxy()
	proxy := m.s.Runtime(m.s.ProxySocket())
	straight, through := m.runtime.Client(), proxy.Client()

	p := m.bind("plain", false)
	b, err := proxy.RunPod(t.Context(), p)
	must(t, err)
	c, err := b.Run(t.Context(), "main")
	must(t, err)
	must(t, c.Stop(t.Context()))

	version := func(ctx context.Context, r runtimeapi.RuntimeServiceClient) error {
		_, err := r.Version(ctx, &runtimeapi.VersionRequest{})
		return err
	}
	list := func(ctx context.Context, r runtimeapi.RuntimeServiceClient) error {
		_, err := r.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		return err
	}
	stop := func(ctx context.Context, r runtimeapi.RuntimeServiceClient) error { // of one that has ended
		_, err := r.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: c.ID})
		return err
	}
	m.compare("Version through the proxy, p50 / p99", straight, through, version)
	m.compare("ListContainers through the proxy, p50 / p99", straight, through, list)
	before, err := m.agent.Metric("tenon_agent_apply_seconds_count", `path="cri"`)
	must(t, err)
	m.compare("StopContainer through the proxy with its hook, p50 / p99", straight, through, stop)
	if after, err := m.agent.Metric("tenon_agent_apply_seconds_count", `path="cri"`); err != nil || after <= before {
		t.Errorf("the agent was asked %v times before and %v after (%v): the hook is not in the path", before, after, err)
	}
}

// compare adds what a call takes on both ways to the table.
func (m *machine) compare(what string, straight, through runtimeapi.RuntimeServiceClient, call func(context.Context, runtimeapi.RuntimeServiceClient) error) {
	m.Helper()
	const calls = 500
	var alone, asked []times
	for range rounds {
		var one, other times
		for range calls {
			for _, side := range []struct {
				r    runtimeapi.RuntimeServiceClient
				took *times
			}{{straight, &one}, {through, &other}} {
				began := time.Now()
				must(m, call(m.Context(), side.r))
				*side.took = append(*side.took, time.Since(began))
			}
		}
		alone, asked = append(alone, one), append(asked, other)
	}
	i := quietest(asked)
	table.add(what, alone[i].String(), fmt.Sprintf("%v (%s)", asked[i], asked[i].over(alone[i])), "p99 adds ≤ 1 ms")
	if more := asked[i].at(99) - alone[i].at(99); more > time.Millisecond {
		m.Errorf("%s: the proxy adds %v at p99, promised is 1 ms", what, more)
	}
}
