package sim

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/tenon-project/tenon/internal/sched/journal"
	"github.com/tenon-project/tenon/internal/testkit"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// randomJournal writes a journal in which pods come, are decided about, bound, given back, deleted and made again.
func randomJournal(t *testing.T, rng *rand.Rand, began_ time.Time) (path string) {
	t.Helper()
	records := []*journal.Record{began(t)}
	type state struct{ uid, node string }
	nodes, pods := map[string]bool{}, map[string]*state{}
	object := func(name string, s *state, options ...testobject.PodOption) *corev1.Pod {
		cpus := testobject.Both("cpu", fmt.Sprint(1+len(s.uid)%3))
		return podNamed(name, append(options, testobject.UID(s.uid), cpus)...)
	}
	for i := range 60 {
		name, node := fmt.Sprintf("p%d", rng.IntN(6)), fmt.Sprintf("n%d", rng.IntN(3))
		p := pods[name]
		switch step := rng.IntN(8); {
		case step == 0:
			op := journal.Put
			if nodes[node] && rng.IntN(4) == 0 {
				op = journal.Delete
			}
			nodes[node] = op == journal.Put
			records = append(records, event(t, op, testobject.Node(node, nil, "cpu", "64", "pods", "110")))
		case p == nil || step == 1: // also where one of that name exists
			pods[name] = &state{uid: fmt.Sprintf("%s-%d", name, i)}
			records = append(records, put(t, object(name, pods[name])))
		case step == 2:
			records = append(records, event(t, journal.Delete, object(name, p, testobject.On(p.node))))
			delete(pods, name)
		case p.node == "" && nodes[node]:
			p.node = node
			records = append(records, decide("default/"+name, p.uid, node))
		case p.node != "" && step == 3:
			gone := object(name, p, testobject.On(p.node), testobject.Phase(corev1.PodSucceeded))
			records = append(records, put(t, gone))
			delete(pods, name)
		case p.node != "" && step < 6:
			records = append(records, put(t, object(name, p, testobject.On(p.node))))
		}
	}
	return seal(t, began_, records...)
}

// replayed is what the accounts of a replay have on each node.
func replayed(t *testing.T, path string, until time.Time) []view.NodeThen {
	t.Helper()
	p := view.Past{}
	c := comparison{path: path, until: until}
	err := c.record(t.Context(), &usage{}, func(*journal.Record, journal.Object) {}, func(r *replay) {
		for _, o := range r.engine.api.nodes.GetStore().List() {
			n := o.(*corev1.Node)
			p.Nodes = append(p.Nodes, view.PastNode{Node: n.Name, MilliCPU: n.Status.Allocatable.Cpu().MilliValue()})
		}
		for _, o := range r.engine.api.pods.GetStore().List() {
			pod := o.(*corev1.Pod)
			asked := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
			if pod.Spec.NodeName != "" && pod.Status.Phase != corev1.PodSucceeded {
				p.Pods = append(p.Pods, view.PastPod{Node: pod.Spec.NodeName, MilliCPU: asked.Cpu().MilliValue()})
			}
		}
	})
	testkit.Check(t, err)
	return p.FleetAt(until)
}

// TestThePastIsWhatAReplayHas: at each moment of a journal, the nodes have the pods and requests that its replay has.
func TestThePastIsWhatAReplayHas(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 26, 10, 0, 0, 0, time.UTC)
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 60))
		path := randomJournal(t, rng, start)
		text, err := os.Open(path)
		testkit.Check(t, err)
		past, err := journal.PastOf(path, text)
		testkit.Check(t, err)
		testkit.Check(t, text.Close())
		for _, second := range []int{5, 17, 29, 41, 60} {
			at := start.Add(time.Duration(second) * time.Second)
			if diff := cmp.Diff(replayed(t, path, at), past.FleetAt(at)); diff != "" {
				t.Fatalf("seed %d, second %d: the replay has -, the past +\n%s", seed, second, diff)
			}
		}
	}
}

// TestReplayPrintsTheFleet at a time of a journal.
func TestReplayPrintsTheFleet(t *testing.T) {
	t.Parallel()
	path := seal(t, time.Date(2026, 11, 26, 10, 0, 0, 0, time.UTC),
		began(t), put(t, testobject.Node("n", nil, "cpu", "8", "pods", "110")), put(t, podNamed("a")),
		decide("default/a", "a", "n"), put(t, podNamed("b")), decide("default/b", "b", "n"))
	for args, want := range map[string]string{
		"": "2026-11-26T10:00:00Z to 2026-11-26T10:00:05Z, at 2026-11-26T10:00:05Z:\n\n" +
			"NODE  PODS  CPU REQUESTED  ALLOCATABLE\nn     2     4              8\n",
		"--until 2026-11-26T10:00:03.5Z": "at 2026-11-26T10:00:03.5Z:\n\n" +
			"NODE  PODS  CPU REQUESTED  ALLOCATABLE\nn     1     2              8\n",
		"--until 2026-11-26T10:00:00Z": "NODE  PODS  CPU REQUESTED  ALLOCATABLE\n",
		"-o json":                      `"fleet": [`,
		"--until 2025-11-26T10:00:00Z": "error: --until 2025-11-26T10:00:00Z is not allowed: " + path + " begins at ",
		"--with x":                     "error: --fleet and --with are not allowed together",
	} {
		var out strings.Builder
		c := NewReplayCommand(genericiooptions.IOStreams{Out: &out, ErrOut: io.Discard})
		c.SilenceErrors, c.SilenceUsage = true, true
		c.SetArgs(append([]string{path, "--fleet"}, strings.Fields(args)...))
		if err := c.ExecuteContext(t.Context()); err != nil {
			fmt.Fprintf(&out, "error: %v", err)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: got\n%s\nwant\n%s", args, out.String(), want)
		}
	}
}
