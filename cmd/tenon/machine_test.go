//go:build !nolocal

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/internal/cli"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/sim"
	"github.com/tenon-project/tenon/internal/testkit"
)

// exclusivePod asks for four CPUs of its own.
const exclusivePod = `{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {koordinator.sh/qosClass: LSR}}, spec: {
  containers: [{name: c, image: i, resources: {limits: {cpu: 4, memory: 1Gi}, requests: {cpu: 4, memory: 1Gi}}}]}}`

// simulate runs the verb and wants no warnings.
func simulate(t *testing.T, in string, args ...string) string {
	t.Helper()
	var out, warnings bytes.Buffer
	c := sim.NewCommand(genericiooptions.IOStreams{In: strings.NewReader(in), Out: &out, ErrOut: &warnings},
		machines())
	c.SetArgs(args)
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("simulate %v: %v", args, err)
	}
	if warnings.Len() > 0 {
		t.Errorf("simulate %v warns: %s", args, warnings.String())
	}
	return out.String()
}

func simulated(t *testing.T, in string, args ...string) (r sim.Result) {
	t.Helper()
	testkit.Check(t, json.Unmarshal([]byte(simulate(t, in, append(args, "-o", "json")...)), &r))
	return r
}

func TestMachinesAreInput(t *testing.T) {
	r := simulated(t, exclusivePod, "--machine", "epyc-2s=2", "--machine", "arm64-1s", "-f", "-")
	pools := map[string][]string{}
	for _, n := range r.Nodes {
		for _, p := range n.SharedPools {
			pools[n.Name] = append(pools[n.Name], p.CPUSet)
		}
	}
	want := []string{"0-15,64-79", "16-31,80-95", "32-47,96-111", "48-63,112-127"}
	if got := pools["epyc-2s-1"]; !slices.Equal(got, want) {
		t.Errorf("epyc-2s-1 has the CPUs %v", got)
	}
	if got := pools["arm64-1s-0"]; len(pools) != 3 || len(pools["epyc-2s-0"]) != 4 || len(got) != 1 {
		t.Errorf("the nodes have the CPUs %v", pools)
	}
	if p := r.Pods[0]; p.State != sim.Scheduled || p.CPUSet == "" || len(p.NUMANodes) != 1 {
		t.Errorf("the pod is %+v, want it scheduled with CPUs of one NUMA node", p)
	}
}

func TestMachinesTakeKubeletSettings(t *testing.T) {
	const pod = `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {
  containers: [{name: c, image: i, resources: {limits: {cpu: 4, memory: 100Gi}, requests: {cpu: 4, memory: 100Gi}}}]}}`
	for spec, want := range map[string]string{
		"epyc-2s@static": sim.Scheduled,
		"epyc-2s@restricted,memory-static,follow":  sim.Scheduled,
		"epyc-2s,kubelet=single-numa-node+follow":  sim.Scheduled,
		"epyc-2s@static,reserved=0-125":            sim.Unschedulable,
		"snc2@restricted,memory-static,follow":     sim.Scheduled,
		"hybrid@single-numa-node,follow":           sim.Unschedulable,
		"arm64-1s@full-pcpus-only,static,follow=3": sim.Scheduled,
	} {
		r := simulated(t, pod, "--machine", spec, "-f", "-")
		if p := r.Pods[0]; p.State != want {
			t.Errorf("%s: the pod is %+v, want %s", spec, p, want)
		}
	}
}

func TestCapturedMachinesGiveEqualBytes(t *testing.T) {
	d, _, err := machine.Parse("hybrid")
	testkit.Check(t, err)
	capture := filepath.Join(t.TempDir(), "captured")
	testkit.Check(t, d.Write(capture))
	args := []string{"--machine", capture, "--machine", "snc2", "-f", "-", "-o", "json"}
	first := simulate(t, exclusivePod, args...)
	if second := simulate(t, exclusivePod, args...); second != first {
		t.Errorf("two runs differ:\n%s\n%s", first, second)
	}
	if !strings.Contains(first, `"captured-0"`) ||
		strings.Contains(first, os.TempDir()) || strings.Contains(first, "/dev/shm") {
		t.Errorf("the answer lacks captured-0, or has a temporary path:\n%s", first)
	}
}

func TestTheGuideShowsMachines(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "guide", "simulate.md"))
	testkit.Check(t, err)
	pods := filepath.Join("..", "..", "internal", "sim", "testdata", "guide", "pods.yaml")
	if want := simulate(t, "", "--machine", "epyc-2s=2", "-f", pods); !strings.Contains(string(guide), want) {
		t.Errorf("docs/guide/simulate.md does not show:\n%s", want)
	}
}

// TestMachinesComplete: both verbs that take machines offer the presets, and files where none fits.
func TestMachinesComplete(t *testing.T) {
	for _, verb := range []string{"up", "simulate"} {
		var out bytes.Buffer
		streams := genericiooptions.IOStreams{Out: &out, ErrOut: io.Discard}
		root := cli.NewRoot("tenon", streams, doctors, append(localVerbs(streams),
			sim.NewCommand(streams, machines()))...)
		code := cli.Run(t.Context(), root, []string{"__complete", verb, "--machine", ""}, io.Discard)
		if got := out.String(); code != cli.ExitOK || !strings.HasPrefix(got, "epyc-2s\nxeon-2s\n") ||
			!strings.HasSuffix(got, "\n:0\n") {
			t.Errorf("%s: exit code %d, got %q", verb, code, got)
		}
	}
}
