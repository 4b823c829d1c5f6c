package system

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

const (
	churnRow    = 100 // pods before each kill
	mixedPrefix = "mix-"
)

// podFact is what the test knows of a pod.
type podFact struct {
	name, class, cpuset, node string
	best                      bool // BE: may share LSR's CPUs
	running                   bool
}

// observer keeps what the API server says of all pods, the deleted ones too, and notes every CPU that two live pods
// hold.
type observer struct {
	mu    sync.Mutex
	pods  map[string]podFact // by UID; deleted pods are kept: their processes may outlive them for a moment
	live  map[string]podFact
	twice []string
	moved []string
}

func (o *observer) see(e watch.Event) {
	pod, ok := e.Object.(*corev1.Pod)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	uid := string(pod.UID)
	fact := factOf(pod)
	if was, known := o.pods[uid]; known && was.cpuset != "" && was.cpuset != fact.cpuset {
		o.moved = append(o.moved, fmt.Sprintf("%s had CPUs %s, now %q", was.name, was.cpuset, fact.cpuset))
	}
	o.pods[uid] = fact
	if e.Type == watch.Deleted || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		delete(o.live, uid)
		return
	}
	if fact.cpuset != "" {
		mine := cpuset.MustParse(fact.cpuset)
		for other, f := range o.live {
			if other == uid || f.node != fact.node || f.cpuset == "" {
				continue
			}
			if theirs := cpuset.MustParse(f.cpuset); theirs.Overlaps(&mine) {
				o.twice = append(o.twice, fmt.Sprintf("%s: CPUs %s belong to %s and %s", fact.node,
					mine.Intersect(theirs), fact.name, f.name))
			}
		}
	}
	o.live[uid] = fact
}

func factOf(pod *corev1.Pod) podFact {
	f := podFact{
		name: pod.Name, class: pod.Labels[annotation.QoSClass], node: pod.Spec.NodeName,
		running: pod.Status.Phase == corev1.PodRunning,
	}
	f.best = f.class == "BE" || f.class == "" && pod.Status.QOSClass == corev1.PodQOSBestEffort
	if text, ok := pod.Annotations[annotation.ResourceStatusKey]; ok {
		var s annotation.ResourceStatus
		if json.Unmarshal([]byte(text), &s) == nil {
			f.cpuset = s.CPUSet
		}
	}
	return f
}

func (o *observer) facts() map[string]podFact {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.pods)
}

// follow shows see each change of a pod until ctx ends. It lists again when a watch breaks: pods that went meanwhile
// are shown as deleted, in their last known state, before the others; states in between are missed.
func (l *local) follow(ctx context.Context, see func(watch.Event)) {
	l.followWith(ctx, see, func(all, gone []*corev1.Pod) {
		for _, pod := range gone {
			see(watch.Event{Type: watch.Deleted, Object: pod})
		}
		for _, pod := range all {
			see(watch.Event{Type: watch.Modified, Object: pod})
		}
	})
}

// followWith is follow with what each list of pods, and those of which it is the first without, is shown to.
func (l *local) followWith(ctx context.Context, see func(watch.Event), list func(all, gone []*corev1.Pod)) {
	pods := l.client.CoreV1().Pods(metav1.NamespaceAll)
	known := map[types.UID]*corev1.Pod{}
	for ctx.Err() == nil {
		listed, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		before := known
		known = map[types.UID]*corev1.Pod{}
		all := make([]*corev1.Pod, len(listed.Items))
		for i := range listed.Items {
			all[i] = &listed.Items[i]
			known[all[i].UID] = all[i]
			delete(before, all[i].UID)
		}
		list(all, slices.Collect(maps.Values(before)))
		w, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: listed.ResourceVersion})
		if err != nil {
			continue
		}
		for e := range w.ResultChan() {
			if pod, ok := e.Object.(*corev1.Pod); ok {
				if known[pod.UID] = pod; e.Type == watch.Deleted {
					delete(known, pod.UID)
				}
			}
			see(e)
		}
	}
}

// mixed returns pod i of the mix: of ten pods two LSE, two LSR, one LS that may burst in one NUMA node, two LS, two BE,
// one plain.
func mixed(i int) *corev1.Pod {
	p := pod(fmt.Sprintf(mixedPrefix+"%04d", i))
	amounts := func(request, limit string) {
		object.Requests("cpu", request, "memory", "64Mi")(p)
		if limit != "" {
			object.Limits("cpu", limit, "memory", "64Mi")(p)
		}
	}
	spec := func(text string) { p.Annotations[annotation.ResourceSpecKey] = text }
	class := func(c string) { p.Labels[annotation.QoSClass] = c }
	switch i % 10 {
	case 0:
		class("LSE")
		amounts("2", "2")
		spec(`{"preferredCPUBindPolicy":"FullPCPUs"}`)
	case 1:
		class("LSE")
		amounts("1", "1")
		spec(`{"preferredCPUBindPolicy":"SpreadByPCPUs","preferredCPUExclusivePolicy":"PCPULevel"}`)
	case 2:
		class("LSR")
		amounts("2", "2")
		spec(`{"preferredCPUBindPolicy":"SpreadByPCPUs"}`)
	case 3:
		class("LSR")
		amounts("2", "2")
	case 4:
		class("LS")
		amounts("200m", "2")
		spec(`{"preferredCPUBindPolicy":"ConstrainedBurst"}`)
	case 5, 6:
		class("LS")
		amounts("100m", "")
	case 7:
		class("BE")
	case 8: // no class, no amounts: BestEffort
	default:
		amounts("50m", "")
	}
	return p
}

// Law: whatever happens to schedulers, no CPU is given twice, no pod loses its CPUs, containers run exactly where their
// annotation says, and shared pools never hold an exclusive CPU, at any instant that was observed. Beside these pods
// others with shares of GPUs and whole ones come and end on the same nodes and through the same kills, faster than the
// nodes can take them: no GPU is given twice, and containers get the GPUs that their pods were given and no others. Two
// pods race for each Reservation for one pod: one gets it, with the CPUs that were reserved, and the other waits.
func TestPodsAndDevicesHoldWhileSchedulersDie(t *testing.T) {
	t.Parallel()
	repeated := size(2, 5) // the list of seven machines, of which four have GPUs
	l := up(t, 2, "--journal="+strconv.FormatBool(*soak), "--nodes", strconv.Itoa(7*repeated), "--machine", "epyc-2s",
		"--machine", "epyc-256", "--machine", "arm64-1s", "--machine", "hgx-h100=2", "--machine", "t4-2=2")
	gpus := &gpuLoad{gangLoad: watchGangs(t, l), nodes: 4 * repeated}
	owners := newRaces(t, l)
	ctx := t.Context()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	seen := &observer{pods: map[string]podFact{}, live: map[string]podFact{}}
	var observers sync.WaitGroup
	observers.Go(func() { l.follow(watching, seen.see) })

	forest, err := trees(l.dir)
	testkit.Check(t, err)
	if want := 7 * repeated; len(forest) != want {
		t.Fatalf("%d node trees, want %d", len(forest), want)
	}
	var instants atomic.Int64
	var badMu sync.Mutex
	bad := map[string]int{}
	observers.Go(func() {
		for watching.Err() == nil {
			for _, tr := range forest {
				state, ok, err := tr.instant()
				if err != nil {
					badMu.Lock()
					bad["read "+tr.node+": "+err.Error()]++
					badMu.Unlock()
					continue
				}
				if !ok {
					continue
				}
				found, err := overlaps(tr.node, state, seen.facts())
				if err != nil {
					found = append(found, err.Error())
				}
				instants.Add(1)
				badMu.Lock()
				for _, f := range found {
					bad[f]++
				}
				badMu.Unlock()
			}
			select { // two cores are for the cluster too
			case <-watching.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	})

	pods := l.client.CoreV1().Pods(metav1.NamespaceDefault)
	created := 0
	create := func(n int) {
		for range n {
			l.submit(t, mixed(created))
			created++
		}
	}
	// Some pods of earlier rounds go and come again, so CPUs change hands under load.
	deleted := 0
	remove := func(n int) {
		for range n {
			waitFor(t, time.Minute, fmt.Sprintf("pod %d to be deleted", deleted), func() error {
				err := pods.Delete(ctx, mixed(deleted).Name, metav1.DeleteOptions{})
				if apierrors.IsNotFound(err) { // the answer to an earlier try was lost
					return nil
				}
				return err
			})
			deleted++
		}
	}
	for round := range kills() {
		create(churnRow)
		if round > 0 {
			remove(10)
		}
		gpus.create(t, size(60, 100))
		gpus.compareInjected(t)
		owners.create(t)
		l.killLeader(t)
	}
	t.Logf("%d pods created, %d deleted, %d leaders killed", created, deleted, kills())

	waitFor(t, 5*time.Minute, "every pod to run", func() error {
		facts := seen.facts()
		seen.mu.Lock()
		running, live := 0, 0
		for uid := range seen.live {
			if !strings.HasPrefix(facts[uid].name, mixedPrefix) {
				continue
			}
			live++
			if facts[uid].running {
				running++
			}
		}
		seen.mu.Unlock()
		if live != created-deleted || running != live {
			return fmt.Errorf("%d of %d live pods run, want %d", running, live, created-deleted)
		}
		return nil
	})
	gpus.end(t)
	owners.check(t)
	compareEnd(t, l, forest)
	if *soak {
		l.replay(t)
	}
	stop()
	observers.Wait()

	seen.mu.Lock()
	defer seen.mu.Unlock()
	for _, s := range seen.twice {
		t.Errorf("given twice: %s", s)
	}
	for _, s := range seen.moved {
		t.Errorf("lost its CPUs: %s", s)
	}
	for _, s := range slices.Sorted(maps.Keys(bad)) {
		t.Errorf("seen %d times: %s", bad[s], s)
	}
	if instants.Load() < int64(50*kills()) {
		t.Errorf("only %d instants were observed: the test has not looked", instants.Load())
	}
	t.Logf("%d instants of node trees observed, %d pods at the end", instants.Load(), len(seen.live))
}

// replay makes the decisions of all schedulers again, those of the killed ones too.
func (l *local) replay(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(l.dir, "journal", "*", "*.jsonl"))
	testkit.Check(t, err)
	all := 0
	for _, file := range files {
		out, err := exec.Command(binary(t), "replay", file, "-o", "json").CombinedOutput()
		if err != nil {
			testkit.Check(t, os.Link(file, filepath.Join(l.dir, "log", filepath.Base(file)))) // kept with the logs
			t.Errorf("replay %s: %v\n%s", file, err, out)
			continue
		}
		var replayed struct{ Decisions int }
		testkit.Check(t, json.Unmarshal(out, &replayed))
		all += replayed.Decisions
	}
	if len(files) < kills() || all == 0 {
		t.Errorf("%d decisions in %d files, want those of a scheduler for each of %d kills", all, len(files), kills())
	}
	t.Logf("%d decisions of %d schedulers made again", all, len(files))
}

// compareEnd holds every pod's annotation against its containers' groups once all is quiet.
func compareEnd(t *testing.T, l *local, forest []tree) {
	t.Helper()
	list, err := l.client.CoreV1().Pods(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	groups := map[string][]string{} // by pod UID: effective CPUs of its containers
	for _, tr := range forest {
		state, err := tr.read()
		testkit.Check(t, err)
		for path, list := range state {
			groups[podOf(path)] = append(groups[podOf(path)], list)
		}
	}
	bound := 0
	for i := range list.Items {
		pod := &list.Items[i]
		fact := factOf(pod)
		if pod.Status.Phase == corev1.PodSucceeded || pod.Namespace == raceNamespace && pod.Spec.NodeName == "" {
			continue // it has had GPUs, or another pod uses its Reservation
		}
		sets := groups[string(pod.UID)]
		if len(sets) == 0 {
			t.Errorf("%s on %s has no group", fact.name, fact.node)
		}
		wantsCPUs := fact.class == "LSE" || fact.class == "LSR"
		if wantsCPUs != (fact.cpuset != "") {
			t.Errorf("%s of class %q has cpuset %q", fact.name, fact.class, fact.cpuset)
		}
		for _, s := range sets {
			if s == "" {
				t.Errorf("%s runs on no CPU", fact.name)
			}
			if fact.cpuset != "" && s != fact.cpuset {
				t.Errorf("%s: group has %s, annotation %s", fact.name, s, fact.cpuset)
			}
		}
		if fact.cpuset != "" {
			bound++
		}
		delete(groups, string(pod.UID))
	}
	for uid, sets := range groups {
		t.Errorf("pod %s is gone but its groups are there: %v", uid, sets)
	}
	if bound == 0 {
		t.Error("no pod has CPUs: nothing was tested")
	}
}
