//go:build e2e_node

package agent

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/internal/testkit"
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

	version := func(ctx context.Context, r runtimeapi.RuntimeServiceClient) error {
		_, err := r.Version(ctx, &runtimeapi.VersionRequest{})
		return err
	}
	list := func(ctx context.Context, r runtimeapi.RuntimeServiceClient) error {
		_, err := r.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		return err
	}
	m.compare("Version through the proxy, p50 / p99", straight, through, version)
	m.compare("ListContainers through the proxy, p50 / p99", straight, through, list)
}

// overhead is a line of the benchmark of the proxy, whose runtime answers from memory.
var overhead = regexp.MustCompile(
	`^BenchmarkOverhead/call=(\S+)/hooks=([01])\S*\s.*?(-?[\d.]+) p50-µs\s+(-?[\d.]+) p99-µs`)

// TestProxyWithHooks takes what the benchmark of the proxy measures: calls that a hook server is asked about and
// others, to a runtime that answers from memory, so that nothing hides what the proxy adds.
func TestProxyWithHooks(t *testing.T) {
	stage.Count(t)
	medians, tails := map[string]times{}, map[string]times{}
	for range rounds {
		cmd := exec.CommandContext(t.Context(), "go", "test", "-run", "^$", "-bench", "BenchmarkOverhead", "-benchtime",
			"500x",
			"github.com/tenon-project/tenon/internal/agent/criproxy")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
		for line := range strings.Lines(string(out)) {
			found := overhead.FindStringSubmatch(line)
			if found == nil {
				continue
			}
			key := found[1] + map[string]string{"0": ", no hook", "1": ", with the hook"}[found[2]]
			medians[key], tails[key] = append(medians[key], microseconds(t, found[3])),
				append(tails[key], microseconds(t, found[4]))
		}
	}
	if len(tails) == 0 {
		t.Fatal("the benchmark of the proxy says nothing")
	}
	for _, key := range slices.Sorted(maps.Keys(tails)) {
		// Differences of two measurements: the middle round counts, as noise goes both ways.
		p50, p99 := medians[key].at(50), tails[key].at(50)
		table.add("added by the proxy to "+key+", p50 / p99", "–", fmt.Sprintf("%v / %v", short(p50), short(p99)),
			"p99 ≤ 1 ms")
		if p99 > time.Millisecond {
			t.Errorf("the proxy adds %v at p99 to %s, promised is 1 ms", p99, key)
		}
	}
}

func microseconds(t *testing.T, text string) time.Duration {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	testkit.Check(t, err)
	return time.Duration(n * float64(time.Microsecond))
}

// compare adds what a call takes on both ways to the table.
func (m *machine) compare(
	what string, straight, through runtimeapi.RuntimeServiceClient,
	call func(context.Context, runtimeapi.RuntimeServiceClient) error,
) {
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
				testkit.Check(m, call(m.Context(), side.r))
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
