package journal

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestAFullChannelDropsRecordsUntilASnapshot: nothing reads the records of this recorder, so its handler would block if
// it waited.
func TestAFullChannelDropsRecordsUntilASnapshot(t *testing.T) {
	t.Parallel()
	r := New(t.TempDir(), Snapshot{}, func(...metrics.Registerable) {})
	h := r.handler(cache.ResourceEventHandlerFuncs{})
	for range queued + 10 {
		h.OnAdd(object.Pod("a"), false)
	}
	if len(r.records) != queued || !r.due.Load() {
		t.Fatalf("%d records wait, due is %v; want %d and a snapshot that is due", len(r.records), r.due.Load(), queued)
	}
	last := uint64(0)
	for len(r.records) > 0 {
		last = (<-r.records).gen
	}
	h.OnAdd(object.Pod("b"), false)
	snapshot, event := <-r.records, <-r.records
	if snapshot.snapshot == nil || snapshot.snapshot.Objects != 2 || snapshot.gen != last+1 || event.gen != last+4 {
		t.Errorf("got %+v at %d and %d after %d, want a snapshot of both pods", snapshot.snapshot, snapshot.gen,
			event.gen, last)
	}
}

// TestADecisionNamesThePodThatTheQueueGaveOut: a sibling that was taken out of the queue with it may come first.
func TestADecisionNamesThePodThatTheQueueGaveOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pulled string // by name, after pod a; "" for none
		first  string
		want   []string
	}{
		"the pod itself":                {"", "a", nil},
		"the pod itself before another": {"b", "a", []string{"b"}},
		"another pod before it":         {"b", "b", []string{"b", "a"}},
	} {
		r := New(t.TempDir(), Snapshot{}, func(...metrics.Registerable) {})
		info := func(name string) *framework.QueuedPodInfo {
			i, err := framework.NewPodInfo(object.Pod(name, object.UID(name)))
			testkit.Check(t, err)
			return &framework.QueuedPodInfo{PodInfo: i}
		}
		next := r.Pop(func(klog.Logger) (*framework.QueuedPodInfo, error) { return info("a"), nil })
		_, err := next(klog.Background())
		testkit.Check(t, err)
		if c.pulled != "" {
			r.pulled = append(r.pulled, c.pulled)
		}
		r.Begin(info(c.first).Pod, 0)
		r.decision.Node = "n"
		if got := r.End().Pulled; !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
		r.Begin(info("b").Pod, 0) // the queue gives out no pod for it
		r.decision.Node = "n"
		if got := r.End().Pulled; got != nil {
			t.Errorf("%s: got %v for the next one, want none", name, got)
		}
	}
}

// TestAnUpdateThatSchedulingDoesNotReadIsNotRecorded: most updates of pods are what their containers do.
func TestAnUpdateThatSchedulingDoesNotReadIsNotRecorded(t *testing.T) {
	t.Parallel()
	r := New(t.TempDir(), Snapshot{}, func(...metrics.Registerable) {})
	h := r.handler(cache.ResourceEventHandlerFuncs{})
	was := object.Pod("a")
	h.OnAdd(was, false)
	waiting := len(r.records)
	now := was.DeepCopy()
	now.ResourceVersion, now.Status.PodIP, now.Spec.Containers = "2", "10.0.0.1", was.Spec.Containers
	h.OnUpdate(was, now)
	if len(r.records) != waiting {
		t.Error("recorded")
	}
	bound := now.DeepCopy()
	bound.Spec.NodeName = "n"
	if h.OnUpdate(now, bound); len(r.records) != waiting+1 {
		t.Error("not recorded")
	}
}

// TestAChangeOfAPodIsReadAsTheWholePod: of a pod whose spec is the same but for the node the spec is left out, and a
// reader has it from the record before.
func TestAChangeOfAPodIsReadAsTheWholePod(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		generation int64
		change     func(*corev1.Pod)
		op         string // "": none
	}{
		"bound": {1, func(p *corev1.Pod) {
			object.On("n")(p)
			object.Annotation("scheduling.koordinator.sh/a", "b")(p)
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: "True"}}
		}, Change},
		"bound by an old API server":        {0, func(p *corev1.Pod) { p.Spec.NodeName = "n" }, Change},
		"it has ended":                      {1, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, Change},
		"a label":                           {1, object.Label("a", "b"), Change},
		"an address":                        {1, func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.1" }, ""},
		"a spec":                            {1, func(p *corev1.Pod) { p.Generation++ }, Put},
		"a spec of an old API server":       {0, func(p *corev1.Pod) { p.Spec.SchedulingGates = nil }, Put},
		"a successor with its name":         {1, func(p *corev1.Pod) { p.UID = "b" }, Put},
		"a spec that scheduling has no use": {0, func(p *corev1.Pod) { p.Spec.HostIPC = true }, Put},
	} {
		r := New(t.TempDir(), Snapshot{}, func(...metrics.Registerable) {})
		h := r.handler(cache.ResourceEventHandlerFuncs{})
		was := object.Pod("a", object.UID("a"), object.Both("cpu", "2"))
		was.Generation, was.Spec.SchedulingGates = c.generation, []corev1.PodSchedulingGate{{Name: "g"}}
		h.OnAdd(was, false)
		now := was.DeepCopy()
		c.change(now)
		h.OnUpdate(was, now)
		var objects Decoder
		var last Object
		op := ""
		for len(r.records) > 0 {
			if e := <-r.records; e.snapshot == nil {
				event, err := Encode(e.op, e.object)
				testkit.Check(t, err)
				last, err = objects.Decode(event)
				testkit.Check(t, err)
				op = e.op
			}
		}
		if c.op == "" {
			c.op, now = Put, was
		}
		if diff := cmp.Diff(recorded(Put, now), last, cmpopts.EquateEmpty()); op != c.op || diff != "" {
			t.Errorf("%s: recorded as %s, want %s\n(-want +got)\n%s", name, op, c.op, diff)
		}
	}
	event, err := Encode(Change, object.Pod("a", object.UID("a")))
	testkit.Check(t, err)
	if _, err := new(Decoder).Decode(event); err == nil || !strings.Contains(err.Error(), "no record has put it") {
		t.Errorf("a change of an unknown pod: got %v", err)
	}
}

// TestAHeartbeatOfANodeIsNotRecorded, and another condition is.
func TestAHeartbeatOfANodeIsNotRecorded(t *testing.T) {
	t.Parallel()
	r := New(t.TempDir(), Snapshot{}, func(...metrics.Registerable) {})
	h := r.handler(cache.ResourceEventHandlerFuncs{})
	was := object.Node("n", nil, "cpu", "8")
	was.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	h.OnAdd(was, false)
	waiting := len(r.records)
	now := was.DeepCopy()
	now.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(start)
	if h.OnUpdate(was, now); len(r.records) != waiting {
		t.Error("recorded")
	}
	unready := now.DeepCopy()
	unready.Status.Conditions[0].Status = corev1.ConditionFalse
	if h.OnUpdate(now, unready); len(r.records) != waiting+1 {
		t.Error("not recorded")
	}
}

// TestAFullDiskDropsRecordsAndNothingElse: what is written to /dev/full fails as on a full disk. A later snapshot
// begins another file, which is written again.
func TestAFullDiskDropsRecordsAndNothingElse(t *testing.T) {
	t.Parallel()
	r := New(t.TempDir(), Snapshot{}, func(...metrics.Registerable) {})
	w := &writer{recorder: r, logger: klog.Background()}
	h := r.handler(cache.ResourceEventHandlerFuncs{})
	write := w.drain
	h.OnAdd(object.Pod("a"), false)
	write()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	testkit.Check(t, err)
	defer func() { _ = full.Close() }()
	w.ring.out.Reset(full)
	h.OnAdd(object.Pod("b"), false)
	write()
	w.flush()
	if !w.broken {
		t.Fatal("the error was not seen")
	}
	h.OnAdd(object.Pod("c"), false) // dropped: a snapshot is due from then on
	write()
	for _, name := range []string{"d", "e"} { // the first snapshot ends the broken file
		h.OnAdd(object.Pod(name), false)
		write()
	}
	if w.broken || r.due.Load() {
		t.Error("the disk has room, and no new file is written")
	}
	testkit.Check(t, w.ring.end())
	_, _, text, err := ReadFile(r.folder, "")
	testkit.Check(t, err)
	if all, err := read(text); err != nil || len(all) != 7 {
		t.Errorf("the new file has %d records, %v; want a snapshot of five pods, and the last event", len(all), err)
	}
}

// TestTheFolderOfAJournalIsMade also where its parents are missing.
func TestTheFolderOfAJournalIsMade(t *testing.T) {
	t.Parallel()
	r, err := openRing(t.TempDir()+"/a/b", ringSize, fileSize)
	testkit.Check(t, err)
	testkit.Check(t, r.begin(start))
	testkit.Check(t, r.end())
}

// next returns the operation of the oldest record that waits, "" for none.
func next(r *Recorder) string {
	for len(r.records) > 0 {
		switch e := <-r.records; {
		case e.event != nil:
			return e.event.Op
		case e.snapshot == nil:
			return e.op
		}
	}
	return ""
}

// TestWhatThisProcessWritesIsRecordedInOrder: the account learns of a write only when no cycle runs.
func TestWhatThisProcessWritesIsRecordedInOrder(t *testing.T) {
	t.Parallel()
	r := New(t.TempDir(), Snapshot{}, func(...metrics.Registerable) {})
	account := kube.NewReservations(nil, time.Now)
	account.Order = r.Own
	written := &reservation.Reservation{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "r", ResourceVersion: "1"}}
	account.Put(written)
	written = written.DeepCopy()
	written.Status.NodeName = "n"
	r.order.Lock() // as a cycle has it
	applied := make(chan struct{})
	go func() {
		defer close(applied)
		account.Apply(kube.Written, written)
	}()
	runtime.Gosched()
	if now, _ := account.Find("r"); now.Status.NodeName != "" || next(r) != "" {
		t.Error("the account has learnt of the write during a cycle")
	}
	r.order.Unlock()
	<-applied
	if now, _ := account.Find("r"); now.Status.NodeName != "n" || next(r) != Written {
		t.Errorf("the account has %q, want the write, and its record", now.Status.NodeName)
	}
}

// TestAClaimIsRecordedWhenSomethingThatIsReadHasChanged: its snapshot has the newest state, though an older event comes
// after a write.
func TestAClaimIsRecordedWhenSomethingThatIsReadHasChanged(t *testing.T) {
	t.Parallel()
	r := New(t.TempDir(), Snapshot{}, func(...metrics.Registerable) {})
	h := r.handler(cache.ResourceEventHandlerFuncs{})
	version := func(v string, change func(*resourcev1.ResourceClaim)) *resourcev1.ResourceClaim {
		c := claim()
		c.ResourceVersion, c.Status.Allocation = v, nil
		change(c)
		return c
	}
	known := func() string { return r.objects[KeyOf(claim())].GetResourceVersion() }
	first := version("7", func(*resourcev1.ResourceClaim) {})
	finalizer := version("8", func(c *resourcev1.ResourceClaim) { c.Finalizers = []string{"f"} })
	written := version("9", func(c *resourcev1.ResourceClaim) { c.Status.Allocation = claim().Status.Allocation })
	r.Own(kube.Written, written, func() {})
	if next(r) != Written || len(r.objects) != 0 {
		t.Errorf("got %v for a claim that is gone", r.objects)
	}
	h.OnAdd(first, false)
	if next(r) != Put {
		t.Error("a new claim is not recorded")
	}
	h.OnUpdate(first, finalizer)
	if op := next(r); op != "" || known() != "8" {
		t.Errorf("got %q for a finalizer, and version %s", op, known())
	}
	r.Own(kube.Written, written, func() {})
	if next(r) != Written || known() != "9" {
		t.Errorf("got version %s, want what was written", known())
	}
	h.OnUpdate(finalizer, version("8", func(c *resourcev1.ResourceClaim) { c.Labels = map[string]string{"a": "b"} }))
	if next(r) != Put || known() != "9" {
		t.Errorf("got version %s after an older event", known())
	}
	h.OnUpdate(finalizer, written)
	if next(r) != Put {
		t.Error("an allocation is not recorded")
	}
	another := version("3", func(c *resourcev1.ResourceClaim) { c.UID = "d" })
	if h.OnUpdate(written, another); known() != "3" {
		t.Errorf("got version %s, want that of the claim with this name", known())
	}
}

// TestAPodWhoseBindingFailsIsReleasedAtOnce: no event comes between the plugins, which release it, and the cache.
func TestAPodWhoseBindingFailsIsReleasedAtOnce(t *testing.T) {
	t.Parallel()
	r := New(t.TempDir(), Snapshot{}, func(...metrics.Registerable) {})
	pod := object.Pod("a", object.UID("a"))
	c := r.Cache(forgets{})
	r.Unreserving(framework.NewCycleState(), pod)
	if r.order.TryLock() || next(r) != Release {
		t.Error("an event may be applied between the two")
	}
	testkit.Check(t, c.ForgetPod(klog.Background(), pod))
	if !r.order.TryLock() {
		t.Fatal("no event may be applied afterwards")
	}
	r.order.Unlock()

	// The pod is deleted while it is bound: the scheduler's handler forgets it.
	h := r.handler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) {
		testkit.Check(t, c.ForgetPod(klog.Background(), pod))
	}})
	h.OnDelete(pod)
	if first, second := next(r), next(r); first != Delete || second != Forget {
		t.Errorf("recorded %q and %q, want %q and %q", first, second, Delete, Forget)
	}
}

type forgets struct{ schedulercache.Cache }

func (forgets) ForgetPod(klog.Logger, *corev1.Pod) error { return nil }
