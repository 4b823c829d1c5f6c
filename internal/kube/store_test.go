package kube_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
)

// machine has numa NUMA nodes of cores cores with two threads each; thread 1 of core c is CPU c + numa·cores.
func machine(tb testing.TB, numa, cores int) *topo.Machine {
	tb.Helper()
	return grid.Machine{Arch: "amd64", Nodes: numa, Cores: cores, Threads: 2}.Build(tb)
}

func topology(tb testing.TB, node string, m *topo.Machine) *v1alpha2.NodeResourceTopology {
	tb.Helper()
	return testobject.Topology(node, m, nil)
}

func node(name string, labels map[string]string) *corev1.Node {
	return testobject.Node(name, labels)
}

// pod is an LSR pod of n CPUs; bound to node with the CPUs when node is not empty.
func pod(name, node string, n int, cpus string) *corev1.Pod {
	return testobject.Pod(name, testobject.On(node), testobject.Class("LSR"), testobject.CPUs(cpus),
		testobject.Container("", ""), testobject.Both("cpu", fmt.Sprint(n), "memory", "1Gi"))
}

// account is what a view says, in the kernel's ids.
type account struct {
	Fault                 why.Code
	Shared, BE, Free, LSR string
	Holders               map[string]string
}

func accountOf(v *ledger.View) account {
	a := account{Fault: v.Facts().Fault.Code, Holders: map[string]string{}}
	m := v.Machine()
	for e := range v.Entries() {
		a.Holders[e.UID] = e.CPUList
	}
	if m == nil {
		return a
	}
	a.Shared, a.BE, a.Free, a.LSR = m.FormatList(v.SharedPool()), m.FormatList(v.BEPool()),
		m.FormatList(v.Allocatable()), m.FormatList(v.LSR())
	return a
}

func TestPodThatComesBeforeItsNodesTopologyIsAccountedWhenTheTopologyComes(t *testing.T) {
	t.Parallel()
	s := kube.NewStore()
	s.PutPod(pod("a", "n", 2, "0,8"))
	if got := accountOf(s.View("n")); got.Fault != why.TopologyMissing || got.Holders["a"] != "0,8" {
		t.Fatalf("before the topology: got %+v", got)
	}
	s.PutNode(node("n", nil))
	s.PutTopology(topology(t, "n", machine(t, 2, 4)))
	want := account{
		Shared: "1-7,9-15", BE: "0-15", Free: "1-7,9-15", LSR: "0,8",
		Holders: map[string]string{"a": "0,8"},
	}
	if diff := cmp.Diff(want, accountOf(s.View("n"))); diff != "" {
		t.Errorf("after the topology (-want +got):\n%s", diff)
	}
}

func TestPodEvents(t *testing.T) {
	t.Parallel()
	terminating := pod("a", "n", 2, "0,8")
	terminating.DeletionTimestamp = &metav1.Time{}
	finished := pod("a", "n", 2, "0,8")
	finished.Status.Phase = corev1.PodSucceeded
	unbound := pod("a", "", 2, "")
	tests := map[string]struct {
		do   func(*kube.Store)
		want string // free CPUs
	}{
		"an update with other CPUs replaces the old ones": {func(s *kube.Store) {
			s.PutPod(pod("a", "n", 2,
				"1,9"))
		}, "0,2-8,10-15"},
		"the same update twice changes nothing": {func(s *kube.Store) {
			s.PutPod(pod("a", "n", 2,
				"0,8"))
		}, "1-7,9-15"},
		"a terminating pod keeps its CPUs": {
			func(s *kube.Store) { s.PutPod(terminating) },
			"1-7,9-15",
		},
		"a pod in a terminal phase gives its CPUs back": {func(s *kube.Store) { s.PutPod(finished) }, "0-15"},
		"a deleted pod gives its CPUs back": {func(s *kube.Store) {
			s.RemovePod(pod("a", "n", 2,
				"0,8"))
		}, "0-15"},
		"a deletion whose object never knew its node": {
			func(s *kube.Store) { s.RemovePod(unbound) },
			"0-15",
		},
		"deleting a pod twice": {func(s *kube.Store) {
			s.RemovePod(
				unbound)
			s.RemovePod(unbound)
		}, "0-15"},
		"deleting another pod changes nothing": {func(s *kube.Store) {
			s.RemovePod(pod("b", "n", 2,
				"0,8"))
		}, "1-7,9-15"},
		"CPU ids that the machine does not have are left out": {func(s *kube.Store) {
			s.PutPod(pod("a", "n", 2,
				"1,99"))
		}, "0,2-15"},
		"an unbound pod holds nothing": {func(s *kube.Store) {
			s.PutPod(pod("b", "", 2,
				"4,12"))
		}, "1-7,9-15"},
		"the same pod on another node leaves the first one": {func(s *kube.Store) {
			s.PutPod(pod("a", "m", 2,
				"0,8"))
		}, "0-15"},
		"the node object going leaves its pods and the topology": {
			func(s *kube.Store) { s.RemoveNode("n") },
			"1-7,9-15",
		},
		"the topology going and coming back changes nothing more": {func(s *kube.Store) {
			s.RemoveTopology(
				"n")
			s.PutTopology(topology(t, "n", machine(t, 2, 4)))
		}, "1-7,9-15"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := kube.NewStore()
			s.PutNode(node("n", nil))
			s.PutTopology(topology(t, "n", machine(t, 2, 4)))
			s.PutPod(pod("a", "n", 2, "0,8"))
			tc.do(s)
			if got := accountOf(s.View("n")).Free; got != tc.want {
				t.Errorf("free CPUs: got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestNodeLabelChangesTheFactsAndTheVersion(t *testing.T) {
	t.Parallel()
	s := kube.NewStore()
	s.PutNode(node("n", nil))
	s.PutTopology(topology(t, "n", machine(t, 2, 4)))
	before := s.View("n")
	heartbeat := node("n", nil)
	heartbeat.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.Now()}}
	s.PutNode(heartbeat)
	if s.View("n").Version() != before.Version() {
		t.Error("a heartbeat must not move the version")
	}
	s.PutNode(node("n", map[string]string{annotation.NodeNUMATopologyPolicy: "SingleNUMANode"}))
	if got := s.View("n"); got.Facts().Topology != hint.SingleNUMANode || got.Version() == before.Version() {
		t.Errorf("got policy %s at version %d, want SingleNUMANode after version %d", got.Facts().Topology,
			got.Version(), before.Version())
	}
}

// TestANodeThatIsLeftHasNoTopology: also before the agent's report is removed, and with the annotation gone it has.
func TestANodeThatIsLeftHasNoTopology(t *testing.T) {
	t.Parallel()
	s := kube.NewStore()
	s.PutTopology(topology(t, "n", machine(t, 2, 4)))
	for _, leaving := range []bool{false, true, false} {
		n := node("n", nil)
		if leaving {
			n.Annotations = map[string]string{annotation.LeaveKey: "true"}
		}
		s.PutNode(n)
		if has := s.View("n").Machine() != nil; has == leaving {
			t.Errorf("leaving: %v, and it has a topology: %v", leaving, has)
		}
	}
}

// TestCPUsGivenTwiceAreNoticedWithTheCondition: conditions come with heartbeats, which cost no parse.
func TestCPUsGivenTwiceAreNoticedWithTheCondition(t *testing.T) {
	t.Parallel()
	s := kube.NewStore()
	s.PutNode(node("n", nil))
	nrt := topology(t, "n", machine(t, 2, 4))
	nrt.Annotations[annotation.KubeletKey] = `{"version":"v1.36.3","cpu":{"policy":"static","reserved":"0"}}`
	s.PutTopology(nrt)
	if got := s.View("n").Facts().Model.Assumed; len(got) > 0 {
		t.Fatalf("assumed %q of a known kubelet", got)
	}
	contradictory := node("n", nil)
	contradictory.Status.Conditions = []corev1.NodeCondition{{
		Type: annotation.KubeletStateContradictory, Status: corev1.ConditionTrue, Reason: annotation.CPUsGivenTwice,
	}}
	s.PutNode(contradictory)
	if got := s.View("n").Facts().Model.Assumed; len(got) != 1 {
		t.Errorf("assumed %q, want what the condition says", got)
	}
}

func TestClusterWideCountersFollowTheFacts(t *testing.T) {
	t.Parallel()
	s := kube.NewStore()
	if s.AnyStaticKubelet() || s.AnyConstrained() {
		t.Fatal("an empty store has no special node")
	}
	static := topology(t, "n", machine(t, 2, 4))
	static.Annotations[annotation.KubeletCPUManagerPolicy] = `{"policy":"static","reservedCPUs":"0,8"}`
	s.PutTopology(static)
	s.PutNode(node("n", map[string]string{annotation.NodeNUMATopologyPolicy: "Restricted"}))
	if !s.AnyStaticKubelet() || !s.AnyConstrained() {
		t.Error("a static kubelet with Restricted: both must be seen")
	}
	s.PutNode(node("n", nil))
	s.RemoveTopology("n")
	if s.AnyStaticKubelet() || s.AnyConstrained() {
		t.Error("both are gone and must not be seen any more")
	}
}

func TestEqualMachinesAreOneValue(t *testing.T) {
	t.Parallel()
	s := kube.NewStore()
	s.PutTopology(topology(t, "a", machine(t, 2, 4)))
	s.PutTopology(topology(t, "b", machine(t, 2, 4)))
	if s.View("a").Machine() != s.View("b").Machine() {
		t.Error("two nodes with equal topology have two machines")
	}
}

func TestProfilesMustAgreeOnArguments(t *testing.T) {
	t.Parallel()
	s := kube.NewStore()
	args := convert.DefaultArgs()
	args.MinSharedCPUs = 4
	testkit.Check(t, s.Configure(args))
	if err := s.Configure(args); err != nil {
		t.Errorf("equal arguments: %v", err)
	}
	if err := s.Configure(convert.DefaultArgs()); err == nil {
		t.Error("other arguments must be refused: there is one account per machine")
	}
}

func TestCommitOnANodeThatIsGoneIsExpired(t *testing.T) {
	t.Parallel()
	s := kube.NewStore()
	s.PutTopology(topology(t, "n", machine(t, 1, 4)))
	offer := mustOffer(t, s, pod("a", "", 2, ""))
	s.RemoveTopology("n")
	if err := s.Commit("n", offer); !errors.Is(err, ledger.ErrExpired) {
		t.Errorf("got %v, want ErrExpired", err)
	}
	if s.Known("n") != nil {
		t.Error("a node that nothing names is forgotten")
	}
}

func TestRevertRestoresTheAccountAndSparesAConfirmedPod(t *testing.T) {
	t.Parallel()
	s := kube.NewStore()
	s.PutTopology(topology(t, "n", machine(t, 1, 4)))
	before := accountOf(s.View("n"))
	offer := mustOffer(t, s, pod("a", "", 2, ""))
	testkit.Check(t, s.Commit("n", offer))
	s.Revert("n", offer)
	s.Revert("n", offer)
	if diff := cmp.Diff(before, accountOf(s.View("n"))); diff != "" {
		t.Errorf("after commit and revert (-before +after):\n%s", diff)
	}
	offer = mustOffer(t, s, pod("a", "", 2, ""))
	testkit.Check(t, s.Commit("n", offer))
	s.PutPod(pod("a", "n", 2, offer.Entry.CPUList))
	s.Revert("n", offer)
	if _, held := s.View("n").Entry("a"); !held {
		t.Error("the API server confirmed the pod, so a late revert must not take its CPUs")
	}
}

func mustOffer(t *testing.T, s *kube.Store, p *corev1.Pod) ledger.Offer {
	t.Helper()
	r, reason, detail := convert.Request(p, convert.DefaultArgs())
	if !reason.OK() {
		t.Fatal(reason, detail)
	}
	offer, reason := place.Try(s.View("n"), r)
	if !reason.OK() {
		t.Fatal(reason)
	}
	return offer
}

// The account after any interleaving of the objects' histories, with duplicates and whole replays, equals the one that
// is built from the last objects alone, also where it was filled until a step or the end. Events of one object keep
// their order, as informers promise.
func TestLiveStoreEqualsARebuild(t *testing.T) {
	t.Parallel()
	big, small := machine(t, 2, 4), machine(t, 1, 4)
	rapid.Check(t, func(rt *rapid.T) {
		world := map[string]func(*kube.Store){} // last event of each object
		live := kube.NewStore()
		steps, filled := rapid.IntRange(1, 40).Draw(rt, "steps"), rapid.IntRange(0, 40).Draw(rt, "filled")
		if filled > 0 {
			live.Fill()
		}
		for step := range steps {
			if step == filled {
				live.MarkSynced()
			}
			name := fmt.Sprintf("n%d", rapid.IntRange(0, 2).Draw(rt, "node"))
			var key string
			var event func(*kube.Store)
			switch rapid.IntRange(0, 10).Draw(rt, "kind") {
			case 0:
				key = "node/" + name
				policy := rapid.SampledFrom([]string{"None", "Restricted", "SingleNUMANode"}).Draw(rt, "policy")
				event = func(s *kube.Store) {
					s.PutNode(node(name, map[string]string{annotation.NodeNUMATopologyPolicy: policy}))
				}
			case 1:
				key = "node/" + name
				event = func(s *kube.Store) { s.RemoveNode(name) }
			case 2:
				key = "topology/" + name
				m := rapid.SampledFrom([]*topo.Machine{big, small}).Draw(rt, "machine")
				event = func(s *kube.Store) { s.PutTopology(topology(t, name, m)) }
			case 3:
				key = "topology/" + name
				event = func(s *kube.Store) { s.RemoveTopology(name) }
			case 4:
				uid := fmt.Sprintf("p%d", rapid.IntRange(0, 5).Draw(rt, "pod"))
				key = "pod/" + uid
				event = func(s *kube.Store) { s.RemovePod(pod(uid, "", 2, "")) }
			case 5:
				key = "numatopology/" + name
				free := rapid.SampledFrom([]string{"0-7", "0-3,6", "1-2"}).Draw(rt, "free")
				event = func(s *kube.Store) { s.PutNumatopology(kube.ReadNumatopology(exported(name, free))) }
			case 6:
				key = "numatopology/" + name
				event = func(s *kube.Store) { s.RemoveNumatopology(name) }
			case 7:
				key = "device/" + name
				server := serverOf{sick: rapid.IntRange(-1, 5).Draw(rt, "sick"), gone: -1, mode: annotation.DeviceOwn}
				event = func(s *kube.Store) { s.PutDevice(server.device(name)) }
			case 8:
				key = "device/" + name
				event = func(s *kube.Store) { s.RemoveDevice(name) }
			default:
				uid := fmt.Sprintf("p%d", rapid.IntRange(0, 5).Draw(rt, "pod"))
				key = "pod/" + uid
				cpus := rapid.SampledFrom([]string{"0,8", "1,9", "2-3", "4-7", "40"}).Draw(rt, "cpus")
				event = func(s *kube.Store) { s.PutPod(pod(uid, name, 2, cpus)) }
			}
			world[key] = event
			for range rapid.IntRange(1, 2).Draw(rt, "copies") {
				event(live)
			}
			if rapid.IntRange(0, 9).Draw(rt, "replay") == 0 {
				for _, k := range keysIn(rt, world) {
					world[k](live)
				}
			}
		}
		live.MarkSynced()
		rebuilt := kube.NewStore()
		for _, k := range keysIn(rt, world) {
			world[k](rebuilt)
		}
		if diff := cmp.Diff(rebuilt.Nodes(), live.Nodes()); diff != "" {
			rt.Fatalf("nodes (-rebuilt +live):\n%s", diff)
		}
		for i := range 3 {
			name := fmt.Sprintf("n%d", i)
			if diff := cmp.Diff(accountOf(rebuilt.View(name)), accountOf(live.View(name))); diff != "" {
				rt.Fatalf("account of %s (-rebuilt +live):\n%s", name, diff)
			}
			if a, b := rebuilt.View(name), live.View(name); !a.Facts().Equal(b.Facts()) {
				rt.Fatalf("facts of %s: rebuilt %+v, live %+v", name, a.Facts(), b.Facts())
			}
			if (rebuilt.Known(name) == nil) != (live.Known(name) == nil) {
				rt.Fatalf("Known(%s): rebuilt %v, live %v", name, rebuilt.Known(name), live.Known(name))
			}
		}
		if rebuilt.AnyConstrained() != live.AnyConstrained() || rebuilt.AnyStaticKubelet() != live.AnyStaticKubelet() ||
			rebuilt.AnyInventory() != live.AnyInventory() {
			rt.Fatal("the cluster-wide counters differ from a rebuild's")
		}
	})
}

// keysIn returns the objects in a random order.
func keysIn(rt *rapid.T, world map[string]func(*kube.Store)) []string {
	keys := make([]string, 0, len(world))
	for k := range world {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	if len(keys) < 2 {
		return keys
	}
	return rapid.Permutation(keys).Draw(rt, "order")
}

func TestReadersNeverSeeAHalfWrittenAccount(t *testing.T) {
	t.Parallel()
	s := kube.NewStore()
	s.PutNode(node("n", nil))
	s.PutTopology(topology(t, "n", machine(t, 2, 4)))
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				v := s.View("n")
				shared, lsr := v.SharedPool(), v.LSR()
				if shared.Overlaps(&lsr) {
					t.Error("a view's shared pool overlaps its exclusive CPUs")
					return
				}
			}
		})
	}
	for w := range 4 {
		writers.Go(func() {
			name := fmt.Sprintf("p%d", w)
			for i := range 200 {
				s.PutPod(pod(name, "n", 2, fmt.Sprintf("%d,%d", 2*w+i%2, 2*w+i%2+8)))
				if i%3 == 0 {
					s.RemovePod(pod(name, "n", 2, ""))
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
}

// The agent keeps a running pod where it is, so its CPUs must not be given to the next one.
func TestADamagedStatusOfARunningPodKeepsItsCPUs(t *testing.T) {
	t.Parallel()
	damages := map[string]func(map[string]string){
		"removed":         func(a map[string]string) { delete(a, annotation.ResourceStatusKey) },
		"not JSON":        func(a map[string]string) { a[annotation.ResourceStatusKey] = "2-3" },
		"no list of CPUs": func(a map[string]string) { a[annotation.ResourceStatusKey] = `{"cpuset":"two"}` },
		"empty":           func(a map[string]string) { a[annotation.ResourceStatusKey] = `{"cpuset":""}` },
	}
	for name, damage := range damages {
		s := kube.NewStore()
		s.PutNode(node("n", nil))
		s.PutTopology(topology(t, "n", machine(t, 1, 4)))
		running := pod("p", "n", 2, "2-3")
		s.PutPod(running)
		damaged := running.DeepCopy()
		damage(damaged.Annotations)
		s.PutPod(damaged)
		if e, _ := s.View("n").Entry(string(running.UID)); e.CPUList != "2-3" {
			t.Errorf("%s: the account says that the pod holds %q", name, e.CPUList)
		}
		if got := s.Differences([]*corev1.Pod{damaged}); len(got) != 0 {
			t.Errorf("%s: the audit finds %v", name, got)
		}
		moved := damaged.DeepCopy()
		moved.UID += "-recreated"
		s.RemovePod(damaged)
		s.PutPod(moved)
		if e, held := s.View("n").Entry(string(moved.UID)); held && e.CPUList != "" {
			t.Errorf("%s: another UID holds %q", name, e.CPUList)
		}
		ended := damaged.DeepCopy()
		ended.Status.Phase = corev1.PodSucceeded
		s.PutPod(running)
		s.PutPod(damaged)
		s.PutPod(ended)
		if _, held := s.View("n").Entry(string(running.UID)); held {
			t.Errorf("%s: a pod that has ended holds CPUs", name)
		}
	}
}

func TestEachChangeOfAnAccountIsReported(t *testing.T) {
	t.Parallel()
	s := kube.NewStore()
	s.PutNode(node("n", nil))
	var changed []string
	s.OnChange(func(node string) { changed = append(changed, node) })
	bound := pod("a", "n", 2, "0,8")
	other := topology(t, "n", machine(t, 2, 4))
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"a topology", func() { s.PutTopology(other) }, []string{"n"}},
		{"the same topology", func() { s.PutTopology(other.DeepCopy()) }, nil},
		{"a pod", func() { s.PutPod(bound) }, []string{"n"}},
		{"the same pod", func() { s.PutPod(bound.DeepCopy()) }, nil},
		{"an offer", func() {
			offer := offerFor(t, s, "n", "b")
			if err := s.Commit("n", offer); err != nil {
				t.Error(err)
			}
		}, []string{"n"}},
		{"a pod that ends", func() { s.RemovePod(bound) }, []string{"n"}},
	} {
		changed = nil
		if step.do(); !slices.Equal(changed, step.want) {
			t.Errorf("%s: got %v, want %v", step.name, changed, step.want)
		}
	}
}

func offerFor(t *testing.T, s *kube.Store, node, name string) ledger.Offer {
	t.Helper()
	r, reason, detail := convert.Request(pod(name, "", 2, ""), convert.DefaultArgs())
	if !reason.OK() {
		t.Fatal(reason, detail)
	}
	offer, reason := place.Try(s.View(node), r)
	if !reason.OK() {
		t.Fatal(reason)
	}
	return offer
}

// TestAForgedAllocationOfAPodOfAnotherSchedulerHoldsNothing: no webhook checks its annotations, so anyone may write
// them.
func TestAForgedAllocationOfAPodOfAnotherSchedulerHoldsNothing(t *testing.T) {
	t.Parallel()
	for scheduler, want := range map[string]string{
		"": "", "default-scheduler": "", "volcano": "", "tenon-schedule": "",
		"tenon-scheduler": "0-3", "koord-scheduler": "0-3",
	} {
		s := kube.NewStore()
		s.Trust(convert.NewSchedulers("tenon-scheduler", "koord-scheduler"))
		testkit.Check(t, s.Configure(convert.DefaultArgs()))
		s.PutNode(node("n", nil))
		s.PutTopology(topology(t, "n", machine(t, 2, 8)))
		p := pod("p", "n", 4, "0-3")
		p.Spec.SchedulerName = scheduler
		p.Annotations[annotation.DeviceAllocatedKey] = `{"gpu":[{"minor":0,"id":"GPU-0"}]}`
		s.PutPod(p)
		forged := p.DeepCopy() // an update, as no webhook refuses it
		forged.Annotations[annotation.ResourceStatusKey] = `{"cpuset":"0-3"}`
		s.PutPod(forged)
		e, _ := s.View("n").Entry("p")
		if e.CPUList != want || (len(e.Devices) > 0) != (want != "") {
			t.Errorf("pod of %q holds %q and %v, want %q", scheduler, e.CPUList, e.Devices, want)
		}
		if found := s.Differences([]*corev1.Pod{forged}); len(found) > 0 {
			t.Errorf("pod of %q: the audit finds %+v", scheduler, found)
		}
		if len(forged.Annotations) != 2 {
			t.Errorf("the pod of %q itself is changed: %v", scheduler, forged.Annotations)
		}
	}
}
