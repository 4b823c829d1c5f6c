package nodenumaresource

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/testkit"
)

// reserve runs a cycle up to Reserve, which is repeated, as by the queue, while the account moves under it.
func (f *fixture) reserve(t *testing.T, pod *corev1.Pod, n fwk.NodeInfo) fwk.CycleState {
	t.Helper()
	testkit.Check(t, f.client.Tracker().Add(pod))
	cs, _ := f.preFilter(t, pod)
	if s := f.Filter(t.Context(), cs, pod, n); !s.IsSuccess() {
		t.Fatalf("filter %s: %s", pod.Name, s.Message())
	}
	for {
		s := f.Reserve(t.Context(), cs, pod, n.Node().Name)
		if s.IsSuccess() {
			return cs
		}
		if !errors.Is(s.AsError(), ledger.ErrExpired) {
			t.Fatalf("reserve %s: %s", pod.Name, s.Message())
		}
	}
}

// refuseBindings lets the API server refuse the Bindings of some pods; the others are collected in the order in which
// they come.
func (f *fixture) refuseBindings(refused func(pod string) bool) *[]*corev1.Binding {
	var bound []*corev1.Binding
	f.client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		b, ok := a.(clienttesting.CreateAction).GetObject().(*corev1.Binding)
		switch {
		case !ok:
			return false, nil, nil
		case refused(b.Name):
			return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), b.Name, errors.New("not today"))
		}
		bound = append(bound, b) // the client calls its reactors one after the other
		return true, b, nil
	})
	return &bound
}

// checkBound admits pods in the order of their Bindings, as the kubelet does, and holds that against what each carries,
// and against the account.
func (f *fixture) checkBound(t *testing.T, node string, bound []*corev1.Binding) {
	t.Helper()
	v := f.store.View(node)
	state := v.Facts().Model.Node.Empty()
	for _, b := range bound {
		e, known := v.Entry(string(b.UID))
		if !known {
			t.Fatalf("%s is bound and not in the account", b.Name)
		}
		after, placement, refusal := state.Admit(e.Guest.Pod)
		if refusal != nil {
			t.Fatalf("the kubelet refuses %s: %s", b.Name, refusal.Status)
		}
		state = after
		carried, _, err := annotation.ParsePredictedPlacement(b.Annotations[annotation.PredictedPlacementKey])
		testkit.Check(t, err)
		given := fmt.Sprint(convert.Placed(kubelet.HeldOf(v.Machine(), placement)))
		if got := fmt.Sprint(carried.Containers); got != given {
			t.Errorf("the Binding of %s carries %s, the kubelet gives %s", b.Name, got, given)
		}
		if got := fmt.Sprint(convert.Placed(e.Guest.Prediction.Held)); got != given {
			t.Errorf("the account says that %s gets %s, the kubelet gives %s", b.Name, got, given)
		}
	}
}

func TestPodsBehindOneThatIsNotBoundArePredictedAnew(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	n := f.addNode("n", machine(t, "amd64", 2, 4, 2), predicted("Follow", restricted))
	bound := f.refuseBindings(func(pod string) bool { return pod == "a" })
	pods := []*corev1.Pod{guaranteed("a", 4), guaranteed("b", 2), guaranteed("c", 6)}
	var states []fwk.CycleState
	for _, pod := range pods {
		states = append(states, f.reserve(t, pod, n))
	}
	before := placement.Read(states[1]).Record()[annotation.PredictedPlacementKey]
	if s := f.Bind(t.Context(), states[0], pods[0], "n"); s.IsSuccess() {
		t.Fatal("the Binding of a succeeds")
	}
	f.Unreserve(t.Context(), states[0], pods[0], "n")
	for i := range pods[1:] {
		if s := f.Bind(t.Context(), states[1+i], pods[1+i], "n"); !s.IsSuccess() {
			t.Fatalf("bind %s: %s", pods[1+i].Name, s.Message())
		}
	}
	f.checkBound(t, "n", *bound)
	if after := (*bound)[0].Annotations[annotation.PredictedPlacementKey]; len(*bound) != 2 || after == before {
		t.Errorf("%d Bindings; that of b carries %s, as it was predicted on top of a", len(*bound), after)
	}
	f.Unreserve(t.Context(), states[1], pods[1], "n")
	if _, held := f.store.View("n").Entry("b"); held {
		t.Error("Unreserve does not take back what was predicted anew")
	}
}

// A pod behind in the line is reserved and given up while another one is predicted anew. Here it has the very CPU of
// the pod that gave up before, so that the new prediction would equal the stale one.
func TestAPodGivenUpWhileAnotherIsPredictedAnewDoesNotCountAsBound(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	n := f.addNode("n", machine(t, "amd64", 2, 4, 2), predicted("Follow", restricted))
	first, second, third := guaranteed("first", 1), guaranteed("second", 5), guaranteed("third", 1)
	gone, renewed := f.reserve(t, first, n), f.reserve(t, second, n)
	f.Unreserve(t.Context(), gone, first, "n")
	passing := f.reserve(t, third, n)
	var giveUp sync.Once
	_, view := f.tracker.Order.Bound("n", func(node string) *ledger.View {
		v := f.store.View(node)
		giveUp.Do(func() { f.Unreserve(t.Context(), passing, third, node) })
		return v
	})
	for e := range view.Entries() {
		t.Errorf("%s counts as bound, and none is", e.Name)
	}
	if s := f.Bind(t.Context(), renewed, second, "n"); !s.IsSuccess() {
		t.Fatal(s.Message())
	}
	const want = `{"model":"1.36","gen":1,"containers":{"c":{"mask":[0],"preferred":true,"cpus":"1-2,8-10"}}}`
	if got := placement.Read(renewed).Record()[annotation.PredictedPlacementKey]; got != want {
		t.Errorf("the Binding carries %s, want %s", got, want)
	}
}

// Another binder takes the annotation from PreBind.
func TestPreBindPredictsAnewToo(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "", "DefaultBinder", Name)
	n := f.addNode("n", machine(t, "amd64", 2, 4, 2), predicted("Follow", restricted))
	a, b := guaranteed("a", 4), guaranteed("b", 2)
	first, second := f.reserve(t, a, n), f.reserve(t, b, n)
	f.Unreserve(t.Context(), first, a, "n")
	if s := f.PreBind(t.Context(), second, b, "n"); !s.IsSuccess() {
		t.Fatal(s.Message())
	}
	written, err := f.client.CoreV1().Pods(b.Namespace).Get(t.Context(), "b", metav1.GetOptions{})
	testkit.Check(t, err)
	const want = `{"model":"1.36","gen":1,"containers":{"c":{"mask":[0],"preferred":true,"cpus":"1,9"}}}`
	if got := written.Annotations[annotation.PredictedPlacementKey]; got != want {
		t.Errorf("the pod carries %s, want %s", got, want)
	}
}

// Where a pod no longer fits without those before it, its Binding fails and the queue tries it again.
func TestAPodThatDoesNotFitWhenItIsPredictedAnewIsTriedAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	n := f.addNode("n", machine(t, "amd64", 2, 4, 2), predicted("Follow", restricted))
	bound := f.refuseBindings(func(string) bool { return false })
	a, b := guaranteed("a", 1), guaranteed("b", 2)
	first, second := f.reserve(t, a, n), f.reserve(t, b, n)
	f.Unreserve(t.Context(), first, a, "n")
	live, _ := f.store.Node("n")
	off := live.Topology.DeepCopy()
	off.Annotations[annotation.KubeletKey] = strings.ReplaceAll(restricted, `"reserved":"0"`, `"reserved":"0-15"`)
	f.store.PutTopology(off) // the kubelet has come back with other settings
	s := f.Bind(t.Context(), second, b, "n")
	if s.Code() != fwk.Error || len(*bound) != 0 {
		t.Fatalf("Bind: %v with %d Bindings, want an error and none", s, len(*bound))
	}
	f.Unreserve(t.Context(), second, b, "n")
	if left := remembered(f.tracker); left["byNode"] != 0 {
		t.Errorf("queues are left: %v", left)
	}
}

// Pods are reserved and bound side by side, some Bindings fail, some pods are given up before: what every Binding
// carries is what a kubelet gives that meets the pods in the order of the Bindings.
func TestBindingsThatFailLeaveNoStalePredictions(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		f := newFixture(t, "")
		n := f.addNode("n", machine(t, "amd64", 4, 16, 2), predicted("Follow", restricted))
		const pods = 24
		fails, givesUp := map[string]bool{}, map[string]bool{}
		cpus := make([]int, pods)
		for i := range pods {
			name := fmt.Sprintf("p%d", i)
			fails[name], givesUp[name] = rng.IntN(4) == 0, rng.IntN(5) == 0
			cpus[i] = 1 + rng.IntN(6)
		}
		bound := f.refuseBindings(func(pod string) bool { return fails[pod] })
		var binding sync.WaitGroup
		for i := range pods {
			pod := guaranteed(fmt.Sprintf("p%d", i), cpus[i])
			cs := f.reserve(t, pod, n)
			binding.Go(func() {
				if givesUp[pod.Name] || !f.Bind(t.Context(), cs, pod, "n").IsSuccess() {
					f.Unreserve(t.Context(), cs, pod, "n")
				}
			})
		}
		binding.Wait()
		if len(*bound) < pods/4 {
			t.Errorf("seed %d: only %d pods are bound", seed, len(*bound))
		}
		f.checkBound(t, "n", *bound)
		if left := remembered(f.tracker); left["byNode"] != 0 {
			t.Errorf("seed %d: queues are left: %v", seed, left)
		}
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}
