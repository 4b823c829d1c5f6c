//go:build linux && e2e_cluster

package fabricated

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
)

// How many combinations of each mode a run draws.
const (
	ownCombinations    = 22
	followCombinations = 12
)

// outcome is what became of one combination.
type outcome struct {
	combination
	pods, ran, exclusive, waiting int
	counted                       map[types.UID]bool
	differences                   []string
	took                          time.Duration
}

// TestMachinesAndPolicies plays random machines with random policies and ends with the line of this level.
func TestMachinesAndPolicies(t *testing.T) {
	seed := chosenSeed(t)
	t.Logf("seed %d (repeat with TENON_SEED=%d)", seed, seed)
	combinations := drawn(t, seed)
	var names []string
	for _, c := range combinations {
		names = append(names, c.name)
	}
	w := newWorld(t, append(names, cases()...))
	var outcomes []outcome
	for _, c := range combinations {
		t.Run(c.name, func(t *testing.T) {
			o := w.play(t, c)
			outcomes = append(outcomes, o)
			for _, d := range o.differences {
				t.Errorf("%s (%s; %s): %s", c.name, c.shape, c.settings, d)
			}
		})
	}
	runCases(t, w)
	conclude(t, seed, outcomes, len(combinations))
}

func chosenSeed(t *testing.T) uint64 {
	t.Helper()
	switch text := os.Getenv("TENON_SEED"); text {
	case "":
		return usualSeed
	case "random":
		var b [4]byte
		_, _ = rand.Read(b[:]) // never fails
		return uint64(binary.NativeEndian.Uint32(b[:]))
	default:
		seed, err := strconv.ParseUint(text, 10, 64)
		testkit.Check(t, err)
		return seed
	}
}

// drawn draws the combinations of a run.
func drawn(t *testing.T, seed uint64) []combination {
	t.Helper()
	own, follow := ownCombinations, followCombinations
	if text := os.Getenv("TENON_COMBINATIONS"); text != "" {
		if _, err := fmt.Sscanf(text, "%d,%d", &own, &follow); err != nil {
			t.Fatalf("TENON_COMBINATIONS=%q: want OWN,FOLLOW, such as 22,12: %v", text, err)
		}
	}
	memory := machineMemory(t)
	var all []combination
	for i := range own + follow {
		number, following := i, i >= own
		if following {
			number = i - own
		}
		c, err := drawCombination(seed, number, following, memory)
		testkit.Check(t, err)
		all = append(all, c)
	}
	return all
}

// machineMemory is the real memory in KiB: NUMA nodes must add up to it.
func machineMemory(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/meminfo")
	testkit.Check(t, err)
	var kib int64
	if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &kib); err != nil {
		t.Fatalf("/proc/meminfo: %v", err)
	}
	return kib
}

// play runs one combination.
func (w *world) play(t *testing.T, c combination) (o outcome) {
	t.Helper()
	o.combination, o.counted = c, map[types.UID]bool{}
	begun := time.Now()
	defer func() { o.took = time.Since(begun) }()
	n := newNode(t, w, c.name, c.machine)
	o.differences = n.compareSettings(t)
	for number, wave := range c.waves {
		if number > 0 {
			n.makeRoom(t, c)
		}
		for i, wish := range wave {
			n.create(t, wish.pod(fmt.Sprintf("%s-%d-%d", c.name, number, i), n.name))
			o.pods++
		}
		o.differences = append(o.differences, n.rest(t)...)
		n.count(t, &o)
		if len(o.differences) > 0 {
			break // what follows from a difference is not another one
		}
	}
	return o
}

// count counts what became of the pods that are there; one that runs since an earlier wave is not counted again.
func (n *node) count(t *testing.T, o *outcome) {
	t.Helper()
	for _, p := range n.pods(t) {
		switch {
		case o.counted[p.UID]:
		case p.Spec.NodeName == "":
			o.waiting++
		case p.Status.Phase == corev1.PodRunning:
			o.ran++
			o.counted[p.UID] = true
			if isExclusive(&p) {
				o.exclusive++
			}
		}
	}
}

// restLimit bounds the wait for a scheduler that looks at a pod again: its longest back-off is ten seconds.
const restLimit = 30 * time.Second

// rest waits until nothing moves any more and returns what differs then: what a kubelet refuses, CPUs that are not as
// they should be, and pods that wait although there is room for them.
func (n *node) rest(t testing.TB) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), restLimit)
	defer cancel()
	for {
		if differences := append(n.awaitStable(t), n.agree(t)...); len(differences) > 0 {
			return differences
		}
		differences := n.waitInVain(t)
		if len(differences) == 0 || ctx.Err() != nil {
			return differences
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// waitInVain returns the pods that wait although there is room for them. Those that must wait are logged with the
// reason.
func (n *node) waitInVain(t testing.TB) []string {
	t.Helper()
	object, err := n.w.client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
	testkit.Check(t, err)
	var differences []string
	pods := n.pods(t)
	j := newReview(t, n.machine, n.kubeletDir(), object, pods)
	for i := range pods {
		p := &pods[i]
		if p.Spec.NodeName != "" {
			continue
		}
		why, says := j.why(t, p), ""
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled {
				says = c.Message
			}
		}
		if why == "" {
			differences = append(differences, fmt.Sprintf("%s waits and there is room for it: %s", title(p), says))
			continue
		}
		t.Logf("%s waits: %s; the scheduler: %s", title(p), why, says)
	}
	return differences
}

// create makes a pod by the API, through our webhooks.
func (n *node) create(t testing.TB, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	made, err := n.w.client.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create %s: %v", title(p), err)
	}
	return made
}

func (n *node) pods(t testing.TB) []corev1.Pod {
	t.Helper()
	list, err := n.w.client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	return list.Items
}

// makeRoom deletes every other pod before the next wave. A kubelet takes CPUs back when the containers of an ending pod
// are dead, and no other component knows when that is: where CPUs are predicted, nothing is bound meanwhile.
func (n *node) makeRoom(t testing.TB, c combination) {
	t.Helper()
	remove := func(p *corev1.Pod) {
		testkit.Check(t, n.w.client.CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name, metav1.DeleteOptions{}))
	}
	pods := n.pods(t)
	if c.follow {
		pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool {
			waits := p.Spec.NodeName == ""
			if waits {
				remove(&p)
			}
			return waits
		})
	}
	for i := range pods {
		if i%2 == 0 {
			remove(&pods[i])
		}
	}
	if c.follow {
		if left := n.awaitStable(t); len(left) > 0 {
			t.Errorf("pods that were deleted: %v", left)
		}
	}
}

// stableLimit bounds the wait for pods that were created together.
const stableLimit = 90 * time.Second

// awaitStable waits until every pod runs, has ended, or waits for room, and returns which the kubelet refused and which
// never ran.
func (n *node) awaitStable(t testing.TB) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stableLimit)
	defer cancel()
	for {
		var open, refused []string
		for _, p := range n.pods(t) {
			switch state := stateOf(&p); {
			case p.Status.Phase == corev1.PodFailed && p.DeletionTimestamp == nil: // a deleted one fails as it ends
				refused = append(refused, fmt.Sprintf("%s was bound and the kubelet refused it: %s: %s", title(&p),
					p.Status.Reason, p.Status.Message))
			case state != "":
				open = append(open, title(&p)+": "+state)
			}
		}
		if len(open) == 0 || len(refused) > 0 {
			return refused
		}
		select {
		case <-ctx.Done():
			for i := range open {
				open[i] = "it does not settle: " + open[i]
			}
			return open
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// stateOf says why a pod has not settled; "" when it has.
func stateOf(p *corev1.Pod) string {
	if p.DeletionTimestamp != nil {
		return "it is being deleted"
	}
	if p.Spec.NodeName == "" {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && why.Refuses(c.Reason) {
				return ""
			}
		}
		return "the scheduler has not looked at it"
	}
	if ended(p) {
		return ""
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return ""
		}
	}
	var reasons []string
	for _, s := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		if s.State.Waiting != nil {
			reasons = append(reasons, s.Name+": "+s.State.Waiting.Reason+": "+s.State.Waiting.Message)
		}
	}
	return "it is not ready: " + strings.Join(reasons, "; ")
}

// agreeLimit bounds the wait for containers to have what they should: the kubelet looks at them every second, the agent
// at once.
const agreeLimit = 20 * time.Second

// agree waits until nothing differs and returns what still does at the end.
func (n *node) agree(t testing.TB) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), agreeLimit)
	defer cancel()
	for {
		pods := n.pods(t)
		var differences []string
		if n.follow {
			differences = n.compareFollow(t.Context(), pods)
		} else {
			differences = n.compareOwn(t.Context(), pods)
		}
		if len(differences) == 0 || ctx.Err() != nil {
			return differences
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// isExclusive reports whether a pod was given CPUs of its own, by us or as predicted.
func isExclusive(p *corev1.Pod) bool {
	return strings.Contains(p.Annotations["scheduling.koordinator.sh/resource-status"], `"cpuset"`) ||
		strings.Contains(p.Annotations["tenon.sh/predicted-placement"], `"cpus"`)
}

// leastExclusive is how many pods with CPUs of their own every combination runs.
const leastExclusive = 2

// conclude prints the table and the last line, and fails where a run shows nothing.
func conclude(t *testing.T, seed uint64, outcomes []outcome, planned int) {
	t.Helper()
	differences, ran, exclusive, waiting := 0, 0, 0, 0
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "COMBINATION\tMACHINE\tKUBELET\tPODS\tRUN\tEXCLUSIVE\tWAIT\tDIFFERENCES\tTIME")
	for _, o := range outcomes {
		differences += len(o.differences)
		ran += o.ran
		exclusive += o.exclusive
		waiting += o.waiting
		if o.exclusive < leastExclusive {
			t.Errorf("%s: %d pods ran on CPUs of their own, want at least %d", o.name, o.exclusive, leastExclusive)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%.1fs\n",
			o.name, o.shape, o.settings, o.pods, o.ran, o.exclusive, o.waiting, len(o.differences), o.took.Seconds())
	}
	_ = table.Flush() // a strings.Builder takes everything
	fmt.Printf("seed %d\n%s", seed, b.String())
	if unplayed := planned - len(outcomes); unplayed > 0 {
		t.Errorf("%d of %d combinations could not be played to their end", unplayed, planned)
		differences += unplayed
	}
	fmt.Printf("%d pods ran, %d of them on CPUs of their own; %d had to wait\n", ran, exclusive, waiting)
	line := fmt.Sprintf("level %d: %d combinations, %d differences", level, planned, differences)
	if t.Failed() {
		line += ", FAILED"
	}
	testkit.Check(t, os.WriteFile(os.Getenv(conclusionVariable), []byte(line+"\n"), 0o644))
}
