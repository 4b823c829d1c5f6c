package snapshot

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// strict is a snapshot whose AssumePod and ForgetPod keep its indexes as Kubernetes 1.37's do: by what AssumePod added
// for the pod that was assumed last. It refuses to forget another one. Kubernetes 1.36 keeps no index.
type strict struct {
	*cache.Snapshot
	affine, repelling []fwk.NodeInfo
	claims            map[string]int
	assumed           []added
}

// added is what AssumePod added to the indexes for a pod.
type added struct {
	pod              *corev1.Pod
	affine, repelled bool
}

func newStrict(pods []*corev1.Pod, nodes []*corev1.Node) *strict {
	s := &strict{Snapshot: cache.NewSnapshot(pods, nodes)}
	s.affine, s.repelling, s.claims = s.rebuilt()
	return s
}

// rebuilt returns the indexes that the nodes have.
func (s *strict) rebuilt() (affine, repelling []fwk.NodeInfo, claims map[string]int) {
	nodes, _ := s.List()
	claims = map[string]int{}
	for _, n := range nodes {
		if len(n.GetPodsWithAffinity()) > 0 {
			affine = append(affine, n)
		}
		if len(n.GetPodsWithRequiredAntiAffinity()) > 0 {
			repelling = append(repelling, n)
		}
		for name, users := range n.GetPVCRefCounts() {
			claims[name] += users
		}
	}
	return affine, repelling, claims
}

func (s *strict) NodeInfos() fwk.NodeInfoLister                     { return s }
func (s *strict) HavePodsWithAffinityList() ([]fwk.NodeInfo, error) { return s.affine, nil }
func (s *strict) HavePodsWithRequiredAntiAffinityList() ([]fwk.NodeInfo, error) {
	return s.repelling, nil
}

func claimsOf(p *corev1.Pod) (names []string) {
	for _, v := range p.Spec.Volumes {
		names = append(names, p.Namespace+"/"+v.PersistentVolumeClaim.ClaimName)
	}
	return names
}

func (s *strict) AssumePod(p *framework.PodInfo) error {
	n, err := s.Get(p.Pod.Spec.NodeName)
	if err != nil {
		return err
	}
	affine, repelling := len(n.GetPodsWithAffinity()), len(n.GetPodsWithRequiredAntiAffinity())
	if err := s.Snapshot.AssumePod(p); err != nil {
		return err
	}
	a := added{
		p.Pod, affine == 0 && len(n.GetPodsWithAffinity()) > 0,
		repelling == 0 && len(n.GetPodsWithRequiredAntiAffinity()) > 0,
	}
	if a.affine {
		s.affine = append(s.affine, n)
	}
	if a.repelled {
		s.repelling = append(s.repelling, n)
	}
	for _, name := range claimsOf(p.Pod) {
		s.claims[name]++
	}
	s.assumed = append(s.assumed, a)
	return nil
}

func (s *strict) ForgetPod(logger klog.Logger, p *corev1.Pod) error {
	if len(s.assumed) == 0 || s.assumed[len(s.assumed)-1].pod.UID != p.UID {
		return fmt.Errorf("%s is not the pod that was assumed last", p.Name)
	}
	last := s.assumed[len(s.assumed)-1]
	s.assumed = s.assumed[:len(s.assumed)-1]
	n, err := s.Get(p.Spec.NodeName)
	if err != nil {
		return err
	}
	pop := func(list []fwk.NodeInfo, added bool) ([]fwk.NodeInfo, error) {
		switch {
		case !added:
			return list, nil
		case len(list) == 0 || list[len(list)-1] != n:
			return list, fmt.Errorf("the list does not end with node %s of pod %s", n.Node().Name, p.Name)
		}
		return list[:len(list)-1], nil
	}
	if s.affine, err = pop(s.affine, last.affine); err != nil {
		return err
	}
	if s.repelling, err = pop(s.repelling, last.repelled); err != nil {
		return err
	}
	for _, name := range claimsOf(p) {
		if s.claims[name]--; s.claims[name] == 0 {
			delete(s.claims, name)
		}
	}
	return s.Snapshot.ForgetPod(logger, p)
}

// content returns what the nodes have: pods, requests and generations.
func (s *strict) content() map[string]string {
	nodes, _ := s.List()
	out := map[string]string{}
	for _, n := range nodes {
		var names []string
		for _, p := range n.GetPods() {
			names = append(names, p.GetPod().Name)
		}
		slices.Sort(names)
		out[n.Node().Name] = fmt.Sprint(names, n.GetRequested().GetMilliCPU(), n.GetGeneration())
	}
	return out
}

// drawPod draws a pod on a node with or without affinity, anti-affinity and claims.
func drawPod(t *rapid.T, name string, nodes int) *corev1.Pod {
	node := rapid.IntRange(0, nodes-1).Draw(t, name)
	p := object.Pod(name, object.On(fmt.Sprint("n", node)), object.Container("c", ""), object.Requests("cpu", "1"))
	term := corev1.PodAffinityTerm{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{}}
	switch rapid.IntRange(0, 4).Draw(t, "affinity") {
	case 0:
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term},
		}}
	case 1:
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term},
		}}
	case 2:
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
	}
	if rapid.IntRange(0, 3).Draw(t, "claim") == 0 {
		claim := fmt.Sprint("claim", rapid.IntRange(0, 2).Draw(t, "which"))
		p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}}
	}
	return p
}

// sorted returns nodes by name, each as often as it is in the list.
func sorted(nodes []fwk.NodeInfo) []string {
	var names []string
	for _, n := range nodes {
		names = append(names, n.Node().Name)
	}
	slices.Sort(names)
	return names
}

// step is a change that an attempt takes back in the end, as attempts of a plan do.
type step func() error

// TestASessionLeavesTheIndexesRight: members are assumed and taken off in any order, victims leave and return, and at
// last all is undone, the last step first. In between no node is missing from the list that filters read, and
// none is there twice.
func TestASessionLeavesTheIndexesRight(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var nodes []*corev1.Node
		many := rapid.IntRange(1, 4).Draw(t, "nodes")
		for i := range many {
			nodes = append(nodes, object.Node(fmt.Sprint("n", i), nil, "cpu", "100", "pods", "100"))
		}
		var bound []*corev1.Pod
		for i := range rapid.IntRange(0, 6).Draw(t, "bound") {
			bound = append(bound, drawPod(t, fmt.Sprint("b", i), many))
		}
		snapshot := newStrict(bound, nodes)
		s, before := begin(snapshot), snapshot.content()
		check := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		var undo []step
		var placed []*framework.PodInfo
		var here, gone []fwk.PodInfo
		for _, p := range bound {
			info, err := framework.NewPodInfo(p)
			check(err)
			here = append(here, info)
		}
		forget := func(p *framework.PodInfo) step {
			return func() error { return s.Forget(klog.Background(), p.Pod) }
		}
		without := func(list []fwk.PodInfo, at int) []fwk.PodInfo { return slices.Delete(slices.Clone(list), at, at+1) }
		for i := range rapid.IntRange(0, 20).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0: // a member is placed
				p, err := framework.NewPodInfo(drawPod(t, fmt.Sprint("m", i), many))
				check(err)
				check(s.Assume(p))
				placed, undo = append(placed, p), append(undo, forget(p))
			case 1: // a member is displaced
				if len(placed) == 0 {
					continue
				}
				at := rapid.IntRange(0, len(placed)-1).Draw(t, "member")
				p := placed[at]
				check(s.Forget(klog.Background(), p.Pod))
				placed, undo = slices.Delete(placed, at, at+1), append(undo, func() error { return s.Assume(p) })
			case 2: // a victim leaves
				if len(here) == 0 {
					continue
				}
				at := rapid.IntRange(0, len(here)-1).Draw(t, "victim")
				p := here[at]
				check(s.Remove(klog.Background(), p.GetPod()))
				here, gone = without(here, at), append(gone, p)
				undo = append(undo, func() error { return s.Return(p) })
			case 3: // a victim is spared
				if len(gone) == 0 {
					continue
				}
				at := rapid.IntRange(0, len(gone)-1).Draw(t, "victim")
				p := gone[at]
				check(s.Return(p))
				here, gone = append(here, p), without(gone, at)
				undo = append(undo, func() error { return s.Remove(klog.Background(), p.GetPod()) })
			}
			_, repelling, _ := snapshot.rebuilt()
			listed := sorted(snapshot.repelling)
			for _, name := range sorted(repelling) {
				if !slices.Contains(listed, name) {
					t.Fatalf("node %s has pods that require anti-affinity, and is not in %v", name, listed)
				}
			}
			if len(slices.Compact(slices.Clone(listed))) != len(listed) {
				t.Fatalf("a node is twice in %v", listed)
			}
		}
		for _, step := range slices.Backward(undo) {
			check(step())
		}
		affine, repelling, claims := snapshot.rebuilt()
		if got, want := sorted(snapshot.affine), sorted(affine); !slices.Equal(got, want) {
			t.Errorf("nodes with affinity: got %v, want %v", got, want)
		}
		if got, want := sorted(snapshot.repelling), sorted(repelling); !slices.Equal(got, want) {
			t.Errorf("nodes with required anti-affinity: got %v, want %v", got, want)
		}
		if !maps.Equal(snapshot.claims, claims) {
			t.Errorf("claims: got %v, want %v", snapshot.claims, claims)
		}
		if got := snapshot.content(); !maps.Equal(got, before) {
			t.Errorf("nodes: got %v, want %v", got, before)
		}
		if len(snapshot.assumed)+len(s.assumed) > 0 {
			t.Errorf("%d pods are still assumed", len(snapshot.assumed))
		}
	})
}

func TestAPodThatIsNotAssumedIsNotForgotten(t *testing.T) {
	t.Parallel()
	p := object.Pod("a", object.On("n"))
	s := begin(newStrict(nil, []*corev1.Node{object.Node("n", nil, "cpu", "1")}))
	if err := s.Forget(klog.Background(), p); err == nil {
		t.Error("no error for a pod that was never assumed")
	}
	if err := s.Remove(klog.Background(), p); err == nil {
		t.Error("no error for a victim that is not on its node")
	}
	info, err := framework.NewPodInfo(object.Pod("b", object.On("other")))
	testkit.Check(t, err)
	if err := s.Return(info); err == nil {
		t.Error("no error for a victim of an unknown node")
	}
}
