package system

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
)

const (
	gangNodes  = 4 // of 96 CPUs
	memberCPUs = 6
	gangKills  = 6  // of the scheduler
	gangsARow  = 15 // made before each kill
	// startsWithin is the longest time between the first and the last Binding of what a gang needs.
	startsWithin = 5 * time.Second
)

// gangSeen is what a watcher knows of one gang.
type gangSeen struct {
	least   int
	bound   map[string]bool // by pod, until the gang is removed
	since   time.Time       // of the first Binding
	took    time.Duration   // from the first Binding to that of the last one needed
	removed bool            // by the test
}

// gangWatch follows the Bindings of gangs.
type gangWatch struct {
	mu     sync.Mutex // guards what follows
	gangs  map[string]*gangSeen
	killed time.Time // the last time that a scheduler was killed
	faults []string
}

func (w *gangWatch) list(pods []corev1.Pod) {
	for i := range pods {
		w.see(watch.Event{Type: watch.Modified, Object: &pods[i]})
	}
}

func (w *gangWatch) see(e watch.Event) {
	pod, ok := e.Object.(*corev1.Pod)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.gangs[pod.Labels["gang"]]
	if g == nil || g.removed || pod.Spec.NodeName == "" || g.bound[pod.Name] {
		return
	}
	now := time.Now()
	if g.bound[pod.Name] = true; len(g.bound) == 1 {
		g.since = now
	}
	if len(g.bound) == g.least {
		g.took = now.Sub(g.since)
		if g.took > startsWithin && w.killed.Before(g.since) {
			w.faults = append(w.faults, fmt.Sprintf("gang %s took %v to start", pod.Labels["gang"], g.took))
		}
	}
}

// inPart returns the gangs of which some members are bound, and fewer than are needed.
func (w *gangWatch) inPart() (names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, g := range w.gangs {
		if n := len(g.bound); !g.removed && n > 0 && n < g.least {
			names = append(names, fmt.Sprintf("%s: %d of %d", name, n, g.least))
		}
	}
	slices.Sort(names)
	return names
}

func (w *gangWatch) bound(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.gangs[name].bound)
}

// gangLoad makes gangs of all kinds, by number.
type gangLoad struct {
	*local
	seen *gangWatch
	live map[string]int // members, by gang
	made int
}

// make creates the next gang, and waits for nothing.
func (l *gangLoad) make(t *testing.T) {
	t.Helper()
	i := l.made
	l.made++
	name, size := fmt.Sprintf("gang-%03d", i), 2+i%7
	least := max(2, size-i%3)
	if i%3 == 2 {
		least = size
	}
	l.seen.mu.Lock()
	l.seen.gangs[name] = &gangSeen{least: least, bound: map[string]bool{}}
	l.seen.mu.Unlock()
	l.live[name] = size
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"gang": name}, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			SchedulerName: "tenon-scheduler",
			Containers: []corev1.Container{{Name: "main", Image: "app", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{
					corev1.ResourceCPU: *resource.NewQuantity(memberCPUs, resource.DecimalSI),
				},
			}}},
		},
	}
	switch i % 4 {
	case 0:
		pod.Annotations[annotation.GangName] = name
		pod.Annotations[annotation.GangMinAvailable] = fmt.Sprint(least)
	case 1:
		pod.Labels[annotation.PodGroup] = name
		l.podGroup(t, v1alpha1.GroupName, name, least)
	case 2:
		pod.Labels[annotation.CommunityPodGroup] = name
		l.podGroup(t, v1alpha1.CommunityGroupName, name, least)
	default:
		pod.Labels[annotation.LightweightGang] = name
		pod.Labels[annotation.LightweightMinAvailable] = fmt.Sprint(least)
	}
	if i%5 == 4 {
		pod.Annotations[annotation.GangMatchPolicy] = annotation.GangWaitingAndRunning
	}
	for m := range size {
		pod.Name = fmt.Sprintf("%s-%d", name, m)
		l.submit(t, pod)
	}
}

func (l *gangLoad) podGroup(t *testing.T, group, name string, least int) {
	t.Helper()
	text := fmt.Sprintf(`{"apiVersion":"%s/v1alpha1","kind":"PodGroup","metadata":{"name":%q},`+
		`"spec":{"minMember":%d}}`, group, name, least)
	path := "/apis/" + group + "/v1alpha1/namespaces/" + metav1.NamespaceDefault + "/podgroups"
	err := l.client.CoreV1().RESTClient().Post().AbsPath(path).Body([]byte(text)).Do(t.Context()).Error()
	if err != nil {
		t.Fatal(err)
	}
}

// remove deletes the pods of a gang.
func (l *gangLoad) remove(t *testing.T, name string) {
	t.Helper()
	l.seen.mu.Lock()
	l.seen.gangs[name].removed = true
	l.seen.mu.Unlock()
	for m := range l.live[name] {
		err := l.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(t.Context(), fmt.Sprintf("%s-%d", name, m),
			metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	delete(l.live, name)
}

// started returns the gangs of which enough members are bound.
func (l *gangLoad) started() (names []string) {
	for name := range l.live {
		if g := l.seen.gangs[name]; l.seen.bound(name) >= g.least {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// TestGangsStartWholeWhileSchedulersDie is G1 to G3 on a running cluster: gangs in four dialects ask for more than the
// cluster has, some end, and the leading scheduler is killed again and again. No gang is seen in part for longer than
// it takes to bind it, apart from kills; after a kill the rest of a gang that has begun follows; and when the gangs
// that run are gone, those that waited start, until none is left.
func TestGangsStartWholeWhileSchedulersDie(t *testing.T) {
	l := &gangLoad{
		local: up(t, 2, "--machine", fmt.Sprintf("xeon-2s=%d", gangNodes)), live: map[string]int{},
		seen: &gangWatch{gangs: map[string]*gangSeen{}},
	}
	watching, stop := context.WithCancel(t.Context())
	var observers sync.WaitGroup
	observers.Go(func() { l.follow(watching, l.seen.list, l.seen.see) })
	t.Cleanup(func() {
		stop()
		observers.Wait()
	})
	for range gangKills {
		for range gangsARow {
			l.make(t)
		}
		for i, name := range l.started() {
			if i%2 == 0 {
				l.remove(t, name)
			}
		}
		l.seen.mu.Lock()
		l.seen.killed = time.Now()
		l.seen.mu.Unlock()
		l.killLeader(t)
		l.seen.mu.Lock()
		l.seen.killed = time.Now()
		l.seen.mu.Unlock()
	}
	total := l.made
	for rounds := 0; len(l.live) > 0; rounds++ {
		waitFor(t, time.Minute, "gangs to start", func() error {
			if part := l.seen.inPart(); len(part) > 0 {
				return fmt.Errorf("in part are %v", part)
			}
			if len(l.started()) == 0 {
				return fmt.Errorf("none of %d has started", len(l.live))
			}
			return nil
		})
		for _, name := range l.started() {
			l.remove(t, name)
		}
	}
	l.seen.mu.Lock()
	defer l.seen.mu.Unlock()
	var longest time.Duration
	for name, g := range l.seen.gangs {
		longest = max(longest, g.took)
		if len(g.bound) < g.least {
			t.Errorf("of gang %s %d were bound, want %d", name, len(g.bound), g.least)
		}
	}
	for _, fault := range l.seen.faults {
		t.Error(fault)
	}
	t.Logf("%d gangs, %d schedulers killed; the longest took %v to start", total, gangKills,
		longest.Round(time.Millisecond))
	l.evict(t)
}

// evict fills the nodes with gangs of low priority, and lets one of high priority make room for itself: the fewest of
// them go that make room for all of it, each whole.
func (l *gangLoad) evict(t *testing.T) {
	t.Helper()
	const size, important = 8, 10
	for name, value := range map[string]int32{"low": 1, "high": 1000} {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
		_, err := l.client.SchedulingV1().PriorityClasses().Create(t.Context(), class, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	gang := func(name, class string, size int) {
		for m := range size {
			l.submit(t, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Name: fmt.Sprintf("%s-%d", name, m), Labels: map[string]string{"of": name, "class": class},
					Annotations: map[string]string{
						annotation.GangName: name, annotation.GangMinAvailable: fmt.Sprint(size),
					},
				},
				Spec: corev1.PodSpec{
					SchedulerName: "tenon-scheduler", PriorityClassName: class,
					TerminationGracePeriodSeconds: new(int64(1)),
					Containers: []corev1.Container{{Name: "main", Image: "app", Resources: corev1.ResourceRequirements{
						Requests: corev1.ResourceList{
							corev1.ResourceCPU: *resource.NewQuantity(memberCPUs, resource.DecimalSI),
						},
					}}},
				},
			})
		}
	}
	// bound counts the bound pods of a class by gang.
	bound := func(class string) (of map[string]int, all int) {
		pods, err := l.client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(),
			metav1.ListOptions{LabelSelector: "class=" + class})
		if err != nil {
			t.Fatal(err)
		}
		of = map[string]int{}
		for i := range pods.Items {
			if p := &pods.Items[i]; p.Spec.NodeName != "" && p.DeletionTimestamp == nil {
				of[p.Labels["of"]]++
				all++
			}
		}
		return of, all
	}
	for i := range gangNodes * 96 / memberCPUs / size {
		gang(fmt.Sprint("low-", i), "low", size)
	}
	full, since := 0, time.Now()
	waitFor(t, time.Minute, "the nodes to be full", func() error {
		before := full
		if _, full = bound("low"); full != before {
			since = time.Now()
		}
		if full == 0 || time.Since(since) < 3*time.Second {
			return fmt.Errorf("%d pods are bound", full)
		}
		return nil
	})
	gang("high", "high", important)
	waitFor(t, time.Minute, "the gang of high priority to start", func() error {
		if _, n := bound("high"); n != important {
			return fmt.Errorf("%d of its %d members are bound", n, important)
		}
		return nil
	})
	left, n := bound("low")
	for name, n := range left {
		if n != size {
			t.Errorf("of gang %s %d of %d are left", name, n, size)
		}
	}
	if fewest := (important + size - 1) / size * size; full-n > fewest || full == n {
		t.Errorf("%d of %d pods of low priority were evicted for %d", full-n, full, important)
	}
	t.Logf("%d of %d pods of low priority were evicted for a gang of %d", full-n, full, important)
}
