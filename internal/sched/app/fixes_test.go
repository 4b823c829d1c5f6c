package app

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// said is what explain says of a pod, without its fixes.
func (a *asked) said(name string) (*corev1.Pod, *view.Pod) {
	a.t.Helper()
	pod := a.pod("default", name)
	verdict, err := a.live.Evaluate(a.t.Context(), pod)
	if err != nil {
		a.t.Fatal(err)
	}
	said := view.Explain(describe.Pod(pod), verdict, nil)
	for _, p := range a.core.Plugins.List() {
		if e, ok := p.(interface {
			Explain(pod *corev1.Pod, into *view.Pod, mayRead func(namespace string) bool)
		}); ok {
			e.Explain(pod, &said, func(string) bool { return true })
		}
	}
	return pod, &said
}

func (a *asked) fixes(name string) ([]view.Fix, *view.FixSearch) {
	a.t.Helper()
	pod, said := a.said(name)
	fixes, search, err := a.whatIf.Fixes(a.t.Context(), pod, said)
	if err != nil {
		a.t.Fatal(err)
	}
	return fixes, search
}

// change changes a node.
func (a *asked) change(name string, f func(*corev1.Node)) {
	info := a.core.Nodes.Dump().Nodes[name]
	node := info.Node().DeepCopy()
	f(node)
	a.core.Nodes.UpdateNode(klog.Background(), info.Node(), node)
	a.store.PutNode(node)
}

func TestFixesWereTried(t *testing.T) {
	oneNode := object.Annotation(annotation.GangNetworkTopology,
		`{"gatherStrategy":[{"layer":"NodeTopologyLayer","strategy":"MustGather"}]}`)
	together := object.Annotation(annotation.GangGroups, `["default/g","default/h"]`)
	fullCores := object.Annotation(annotation.ResourceSpecKey, `{"requiredCPUBindPolicy":"FullPCPUs"}`)
	selects := func(key, value string) object.PodOption {
		return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{key: value} }
	}
	spreads := func(action corev1.UnsatisfiableConstraintAction) object.PodOption {
		return func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: action,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			}}
		}
	}
	for name, tt := range map[string]struct {
		pod    *corev1.Pod
		before func(*asked)
		want   []string
		note   string
	}{
		"a pod that asks for three CPUs in whole cores": {
			pod:  exclusive("odd", "3", fullCores),
			want: []string{"request cpu 4 instead of 3 in container main", "do not require CPU bind policy FullPCPUs"},
		},
		"a pod that is too large for every node": {
			pod: exclusive("huge", "40"), want: []string{"request cpu 30 instead of 40 in container main"},
		},
		"a pod that is too large for what is free": {
			pod: exclusive("large", "24"), before: func(a *asked) {
				a.add(bound("on-a", "a", list(0, 20)), bound("on-b", "b", list(0, 12)))
			},
			want: []string{
				"request cpu 18 instead of 24 in container main", "delete pod default/on-b (priority 9000) on node b",
				"add 1 node like b",
			},
		},
		"a pod that asks for too much memory": {
			pod:  exclusive("fat", "2", object.Both("cpu", "2", "memory", "100Gi")),
			want: []string{"request memory 64Gi instead of 100Gi in container main"},
		},
		"a pod whose nodes are cordoned": {
			pod: exclusive("small", "2"), before: func(a *asked) {
				for _, name := range []string{"a", "b"} {
					a.change(name, func(n *corev1.Node) { n.Spec.Unschedulable = true })
				}
			},
			want: []string{"uncordon node a", "add 1 node like a"},
		},
		"a pod whose nodes are tainted": {
			pod: exclusive("small", "2"), before: func(a *asked) {
				for _, name := range []string{"a", "b"} {
					a.change(name, func(n *corev1.Node) {
						n.Spec.Taints = []corev1.Taint{{Key: "team", Value: "ml", Effect: corev1.TaintEffectNoSchedule}}
					})
				}
			},
			want: []string{"remove taint team=ml:NoSchedule from node a"},
		},
		"a pod that selects a label that no node has": {
			pod:  exclusive("choosy", "2", selects("disk", "ssd")),
			want: []string{"leave out node selector disk=ssd", "label node a with disk=ssd"},
		},
		"a pod that is spread over a label that no node has": {
			pod: exclusive("spread", "2", spreads(corev1.DoNotSchedule)),
			want: []string{
				"label node a with topology.kubernetes.io/zone, which the pod's topologySpreadConstraints require",
			},
		},
		"a pod that is spread over one that it only prefers": {
			pod:  exclusive("large", "40", spreads(corev1.ScheduleAnyway)),
			want: []string{"request cpu 30 instead of 40 in container main"},
		},
		"a label that is a fact of the machine is not offered": {
			pod:  exclusive("choosy", "2", selects("kubernetes.io/arch", "arm64")),
			want: []string{"leave out node selector kubernetes.io/arch=arm64"},
		},
		"a pod that its quota does not admit": {
			pod: exclusive("poor", "6", object.Label(annotation.QuotaName, "team")), before: func(a *asked) {
				a.quotas.PutNode(object.Node("a", nil, "cpu", "64"))
				a.quotas.PutQuota(object.Quota("default/team", corev1.ResourceList{},
					corev1.ResourceList{"cpu": resource.MustParse("4")}))
			},
			want: []string{
				"request cpu 4 instead of 6 in container main", "raise max of quota team to cpu 6 (from 4)",
			},
		},
		"a share of a GPU that its quota does not admit": {
			pod: exclusive("greedy", "2", object.Label(annotation.QuotaName, "team"), object.Both("cpu", "2",
				"memory", "1Gi", "koordinator.sh/gpu-core", "60", "koordinator.sh/gpu-memory-ratio", "60")),
			before: func(a *asked) {
				a.equip("g", grid.Worked(), map[string]string{}, 1, 110)
				a.quotas.PutNode(object.Node("g", nil, "cpu", "32", "koordinator.sh/gpu-core", "100",
					"koordinator.sh/gpu-memory-ratio", "100"))
				a.quotas.PutQuota(object.Quota("default/team", corev1.ResourceList{}, object.List("cpu", "32",
					"koordinator.sh/gpu-core", "40", "koordinator.sh/gpu-memory-ratio", "40")))
			},
			want: []string{
				"request koordinator.sh/gpu-core and koordinator.sh/gpu-memory-ratio 40 instead of 60 " +
					"in container main",
				"raise max of quota team to koordinator.sh/gpu-core 60 (from 40), " +
					"koordinator.sh/gpu-memory-ratio 60 (from 40)",
			},
		},
		"two rules on every node: no single change helps": {
			pod: exclusive("choosy", "40", selects("disk", "ssd")),
		},
		"a pod that fits": {pod: exclusive("small", "2")},
		"a pod whose room is about to be free": {
			pod: exclusive("large", "24"), before: func(a *asked) {
				now := metav1.Now()
				a.add(bound("on-a", "a", list(0, 20), func(p *corev1.Pod) { p.DeletionTimestamp = &now }),
					bound("on-b", "b", list(0, 12), object.Priority(9999)))
			},
			want: []string{
				"wait until default/on-a on node a has ended", "request cpu 18 instead of 24 in container main",
				"add 1 node like b",
			},
		},
		"a pod in the way has a higher priority": {
			pod: exclusive("large", "24"), before: func(a *asked) {
				a.add(bound("on-a", "a", list(0, 20), object.Priority(9999)),
					bound("on-b", "b", list(0, 12), object.Gang("other", "1")))
			},
			want: []string{"request cpu 18 instead of 24 in container main", "add 1 node like b"},
		},
		"a gang that lacks pods": {
			pod:  exclusive("g-0", "8", object.Gang("g", "3")),
			want: []string{"create 2 more pods of gang default/g", "lower the minimum of gang default/g to 1 (from 3)"},
		},
		"a gang that lacks room for two members": {
			pod: exclusive("g-0", "30", object.Gang("g", "4")), before: func(a *asked) {
				for i := range 3 {
					a.know(exclusive(fmt.Sprint("g-", i+1), "30", object.Gang("g", "4")))
				}
			},
			want: []string{
				"request cpu 15 instead of 30 in container main", "lower the minimum of gang default/g to 2 (from 4)",
				"add 2 nodes like a",
			},
		},
		"a gang whose quota admits one member": {
			pod: exclusive("g-0", "6", object.Gang("g", "2"), object.Label(annotation.QuotaName, "team")),
			before: func(a *asked) {
				a.know(exclusive("g-1", "6", object.Gang("g", "2"), object.Label(annotation.QuotaName, "team")))
				a.quotas.PutNode(object.Node("a", nil, "cpu", "64"))
				a.quotas.PutQuota(object.Quota("default/team", corev1.ResourceList{},
					corev1.ResourceList{"cpu": resource.MustParse("8")}))
			},
			want: []string{
				"request cpu 4 instead of 6 in container main", "raise max of quota team to cpu 12 (from 8)",
			},
		},
		"two gangs in two quotas that admit neither": {
			pod: exclusive("g-0", "6", object.Gang("g", "1"), together, object.Label(annotation.QuotaName, "team")),
			before: func(a *asked) {
				a.know(exclusive("h-0", "6", object.Gang("h", "1"), together,
					object.Label(annotation.QuotaName, "guests")))
				a.quotas.PutNode(object.Node("a", nil, "cpu", "64"))
				for name, most := range map[string]string{"team": "4", "guests": "2"} {
					a.quotas.PutQuota(object.Quota("default/"+name, corev1.ResourceList{},
						corev1.ResourceList{"cpu": resource.MustParse(most)}))
				}
			},
			want: []string{
				"request cpu 2 instead of 6 in container main",
				"raise max of quota guests to cpu 6 (from 2) and max of quota team to cpu 6 (from 4)",
			},
		},
		"a gang whose nodes are cordoned": {
			pod: exclusive("g-0", "8", object.Gang("g", "2")), before: func(a *asked) {
				a.know(exclusive("g-1", "8", object.Gang("g", "2")))
				for _, name := range []string{"a", "b"} {
					a.change(name, func(n *corev1.Node) { n.Spec.Unschedulable = true })
				}
			},
			want: []string{"uncordon node a", "add 1 node like a"},
		},
		"a gang that must be on one node": {
			pod: exclusive("g-0", "20", object.Gang("g", "2"), oneNode), before: func(a *asked) {
				a.know(exclusive("g-1", "20", object.Gang("g", "2"), oneNode))
			},
			want: []string{"leave out the network rule of gang default/g (in one domain of layer NodeTopologyLayer)"},
		},
		"a gang that starts with another one": {
			pod: exclusive("g-0", "40", object.Gang("g", "1"),
				object.Annotation(annotation.GangGroups, `["default/g","default/h"]`)),
			note: "no fix was looked for: gang default/h, which gang default/g lists, does not exist or lists " +
				"other gangs",
		},
		"two gangs that lack room for one member of the second": {
			pod: exclusive("g-0", "30", object.Gang("g", "1"), together), before: func(a *asked) {
				a.know(exclusive("h-0", "30", object.Gang("h", "2"), together),
					exclusive("h-1", "30", object.Gang("h", "2"), together))
			},
			want: []string{
				"request cpu 15 instead of 30 in container main", "lower the minimum of gang default/h to 1 (from 2)",
				"add 1 node like a",
			},
		},
		"two gangs that lack room for all of the second": {
			pod: exclusive("g-0", "30", object.Gang("g", "2"), together), before: func(a *asked) {
				a.know(exclusive("g-1", "30", object.Gang("g", "2"), together),
					exclusive("h-0", "20", object.Gang("h", "1"), together))
			},
			want: []string{"add 1 node like a"},
		},
		"two gangs that lack pods": {
			pod: exclusive("g-0", "8", object.Gang("g", "2"), together), before: func(a *asked) {
				a.know(exclusive("h-0", "8", object.Gang("h", "3"), together))
			},
			want: []string{"create 1 more pod of gang default/g and 2 more pods of gang default/h"},
		},
		"two gangs of which the other must be on one node": {
			pod: exclusive("g-0", "8", object.Gang("g", "1"), together), before: func(a *asked) {
				for i := range 2 {
					a.know(exclusive(fmt.Sprint("h-", i), "20", object.Gang("h", "2"), together, oneNode))
				}
			},
			want: []string{"leave out the network rule of gang default/h (in one domain of layer NodeTopologyLayer)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAsked(t, "a", "b")
			if tt.before != nil {
				tt.before(a)
			}
			a.know(tt.pod)
			fixes, search := a.fixes(tt.pod.Name)
			var got []string
			for _, f := range fixes {
				message, _, _ := strings.Cut(f.Message, " (tried")
				got = append(got, message)
				if !strings.Contains(f.Message, " (tried: schedules on "+f.Node) || f.VerifiedAt == nil {
					t.Errorf("fix %+v does not say that it was tried", f)
				}
				if f.Kind == view.FixGang {
					continue // what-if knows no rules of gangs
				}
				answer, err := a.whatIf.Answer(t.Context(), &view.WhatIf{
					Changes: f.Changes, Ask: view.Ask{Pods: []string{"default/" + tt.pod.Name}},
				})
				if err != nil || len(answer.Placements) != 1 || answer.Placements[0].Node != f.Node {
					t.Errorf("what-if of %s: %+v, %v; want node %s", f.Message, answer, err, f.Node)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("fixes (-want +got):\n%s", diff)
			}
			if search != nil && (search.Note != tt.note || search.Exhausted) {
				t.Errorf("search is %+v, want note %q", search, tt.note)
			}
		})
	}
}

// TestARequestBetweenThoseThatDoNotFitIsFound: a kubelet with the policy restricted refuses whole CPUs that need fewer
// NUMA nodes than the memory beside them, and gives no hint for a fraction. Amounts that fit and amounts that do not
// alternate. A fraction of a CPU would leave the pod without exclusive CPUs.
func TestARequestBetweenThoseThatDoNotFitIsFound(t *testing.T) {
	a := newAsked(t, "a")
	a.change("a", func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.36.3" })
	memory := make([]string, 4)
	for i := range memory {
		memory[i] = fmt.Sprintf(`"%d":{"allocatable":{"memory":"16Gi"}}`, i)
	}
	a.store.PutTopology(object.Topology("a", grid.Worked().Build(t), map[string]string{
		annotation.KubeletKey: `{"version":"v1.36.3","cpu":{"policy":"static","reserved":"0"},` +
			`"memory":{"policy":"Static"},"topology":{"policy":"restricted","scope":"container"}}`,
		annotation.NUMAStateKey: `{"memory":{` + strings.Join(memory, ",") + `}}`,
	}))
	wide := object.Both("cpu", "8", "memory", "20Gi")
	a.know(object.Pod("wide", object.Scheduler(SchedulerName), wide))
	// Its container that requests most CPUs is not the one that the kubelet refuses.
	a.know(object.Pod("two", object.Scheduler(SchedulerName), object.Both("cpu", "9", "memory", "20Gi"),
		object.Container("small", "i"), wide))
	for pod, container := range map[string]string{"wide": "main", "two": "small"} {
		fixes, search := a.fixes(pod)
		var got []string
		for _, f := range fixes {
			if f.Kind == view.FixRequest {
				got = append(got, f.Message)
			}
		}
		want := []string{
			"request memory 16Gi instead of 20Gi in container " + container +
				" (tried: schedules on a, not with 16416Mi, 16448Mi, 16608Mi, 17888Mi and 2 larger amounts)",
		}
		if diff := cmp.Diff(want, got); diff != "" || search.Exhausted {
			t.Errorf("%s: %+v (-want +got):\n%s", pod, search, diff)
		}
	}
}

// TestAFixOfExclusiveCPUsIsAWholeNumber: 30,500 milli-CPUs are free. A Guaranteed pod that asks for whole CPUs has them
// for itself where the kubelet's policy is static, and a fraction would put it on shared ones.
func TestAFixOfExclusiveCPUsIsAWholeNumber(t *testing.T) {
	t.Parallel()
	both := func(cpus string) object.PodOption { return object.Both("cpu", cpus, "memory", "1Gi") }
	const static = `{"version":"v1.36.3","cpu":{"policy":"static","reserved":"0"}}`
	for name, tt := range map[string]struct {
		kubelet, want string
		pod           object.PodOption
	}{
		"a static kubelet":            {static, "request cpu 30 instead of 40", both("40")},
		"a kubelet that pins nothing": {"", "request cpu 30500m instead of 40", both("40")},
		"a Burstable pod":             {static, "request cpu 30500m instead of 40", object.Requests("cpu", "40")},
		"a request with a fraction":   {static, "request cpu 30500m instead of 40500m", both("40500m")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAsked(t, "a")
			if tt.kubelet != "" {
				a.change("a", func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.36.3" })
				a.store.PutTopology(object.Topology("a", grid.Worked().Build(t), map[string]string{
					annotation.KubeletKey: tt.kubelet,
				}))
			}
			a.add(object.Pod("shared", object.UID("u-shared"), object.On("a"), object.Requests("cpu", "1500m")))
			a.know(object.Pod("big", object.UID("u-big"), object.Scheduler(SchedulerName), tt.pod))
			fixes, search := a.fixes("big")
			if len(fixes) != 1 || !strings.HasPrefix(fixes[0].Message, tt.want+" in container main") {
				t.Errorf("got %+v, %+v, want %s", fixes, search, tt.want)
			}
		})
	}
}

// TestFixesAreRememberedUntilTheClusterChanges: an open page of a console asked for a whole search each two seconds.
func TestFixesAreRememberedUntilTheClusterChanges(t *testing.T) {
	a := newAsked(t, "a", "b")
	a.know(exclusive("huge", "40"))
	first, _ := a.fixes("huge")
	again, _ := a.fixes("huge")
	if len(first) != 1 || !first[0].VerifiedAt.Equal(*again[0].VerifiedAt) {
		t.Errorf("fixes %+v, then %+v; want those of the same search", first, again)
	}
	a.add(bound("on-a", "a", list(0, 20)), bound("on-b", "b", list(0, 12)))
	changed, _ := a.fixes("huge")
	if len(changed) == 0 || changed[0].Message == first[0].Message {
		t.Errorf("fixes %+v after two pods were bound, want others than %+v", changed, first)
	}
	a.quotas.PutPod(exclusive("other", "2")) // nothing that the pod depends on
	if again, _ = a.fixes("huge"); !again[0].VerifiedAt.Equal(*changed[0].VerifiedAt) {
		t.Errorf("fixes %+v, want those of the same search as %+v", again, changed)
	}
}

// TestTheRequestOfAFixIsTheLargestThatFits compares the search by halves with a trial of every amount, and every fix
// with what the pod finds once it is made.
func TestTheRequestOfAFixIsTheLargestThatFits(t *testing.T) {
	compareFixes(t, 12, 39)
}

// compareFixes makes random clusters of two nodes.
func compareFixes(t *testing.T, rounds int, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 3))
	seen := map[string]int{}
	for range rounds {
		a := newAsked(t, "a", "b")
		for _, node := range []string{"a", "b"} {
			a.add(bound("on-"+node, node, list(0, 4+2*random.IntN(13))))
		}
		asked := 2 * (1 + random.IntN(17))
		a.know(exclusive("next", fmt.Sprint(asked)))
		fits := func(cpus int) bool {
			patch := fmt.Sprintf(`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"%d"},`+
				`"limits":{"cpu":"%d"}}}]}}`, cpus, cpus)
			answer, err := a.whatIf.Answer(t.Context(), &view.WhatIf{
				Changes: []view.Change{{PatchPod: &view.Patch{Name: "default/next", Patch: []byte(patch)}}},
				Ask:     view.Ask{Pods: []string{"default/next"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			return len(answer.Placements) == 1
		}
		_, said := a.said("next")
		fixes, _ := a.fixes("next")
		if fits(asked) {
			if len(fixes) > 0 {
				t.Fatalf("%d CPUs fit, and have fixes %+v", asked, fixes)
			}
			seen["fits"]++
			continue
		}
		step := 1
		for _, o := range said.Obstacles {
			if o.Code == why.SMTAlignment {
				step = 2
			}
		}
		want := ""
		for cpus := (asked - 1) / step * step; cpus > 0 && want == ""; cpus -= step {
			if fits(cpus) {
				want = fmt.Sprintf("request cpu %d instead of %d in container main", cpus, asked)
			}
		}
		got := ""
		for _, f := range fixes {
			if f.Kind == view.FixRequest {
				got, _, _ = strings.Cut(f.Message, " (")
			}
		}
		if got != want {
			t.Fatalf("of %d CPUs: got %q, want %q; obstacles %+v", asked, got, want, said.Obstacles)
		}
		seen["waits"]++
	}
	if seen["fits"] == 0 || seen["waits"] == 0 {
		t.Errorf("outcomes %v, want both", seen)
	}
}
