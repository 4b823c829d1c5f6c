package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/sched/diag/whatif"
	"github.com/tenon-project/tenon/internal/sched/limits"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// asked is a scheduler that answers questions, over nodes of 2 × 2 NUMA nodes with 4 cores of 2 threads each.
type asked struct {
	*Scheduler
	t testing.TB
}

// limitedObjects are objects with the LimitRange and the ResourceQuota of the namespace default; nil for none.
type limitedObjects struct {
	whatif.Objects
	limits *corev1.LimitRange
	quota  *corev1.ResourceQuota
}

func (o limitedObjects) Limits(_ context.Context, namespace string) (whatif.Limits, error) {
	if o.quota == nil || namespace != metav1.NamespaceDefault {
		return limits.New(nil, nil, clock.RealClock{}), nil
	}
	return limits.New([]*corev1.LimitRange{o.limits}, []corev1.ResourceQuota{*o.quota}, clock.RealClock{}), nil
}

func newAsked(t *testing.T, nodes ...string) *asked {
	t.Helper()
	return askedOf(t, newScheduler(t), nodes...)
}

// askedOf asks a scheduler about nodes.
func askedOf(t *testing.T, s *Scheduler, nodes ...string) *asked {
	t.Helper()
	a := &asked{s, t}
	// Whatever else runs on the machine, the answer comes.
	a.whatIf.Objects, a.whatIf.Deadline = limitedObjects{Objects: a.whatIf.Objects}, time.Hour
	for _, name := range nodes {
		node := object.Node(name, map[string]string{corev1.LabelHostname: name}, "cpu", "32", "memory", "64Gi",
			"pods", "110")
		a.core.Nodes.AddNode(klog.Background(), node)
		a.store.PutNode(node)
		a.store.PutTopology(object.Topology(name, grid.Worked().Build(t), nil))
	}
	a.store.MarkSynced()
	a.core.Tracker.Leading.Store(true)
	return a
}

// exclusive asks for whole cores of its own.
func exclusive(name, cpus string, more ...object.PodOption) *corev1.Pod {
	return object.Pod(name, append([]object.PodOption{
		object.UID("u-" + name), object.Scheduler(SchedulerName), object.Class("LSR"),
		object.PriorityClass("koord-prod"), object.Priority(9000), object.Both("cpu", cpus, "memory", "1Gi"),
	}, more...)...)
}

func (a *asked) add(pods ...*corev1.Pod) *asked {
	a.t.Helper()
	for _, pod := range pods {
		if err := a.config.InformerFactory.Core().V1().Pods().Informer().GetStore().Add(pod); err != nil {
			a.t.Fatal(err)
		}
		if pod.Spec.NodeName == "" {
			continue
		}
		if err := a.core.Nodes.AddPod(klog.Background(), pod); err != nil {
			a.t.Fatal(err)
		}
		a.store.PutPod(pod)
	}
	return a
}

// bound is a pod that holds CPUs on a node.
func bound(name, node, cpus string, more ...object.PodOption) *corev1.Pod {
	n := strings.Count(cpus, ",") + 1
	return exclusive(name, fmt.Sprint(n), append([]object.PodOption{object.On(node), object.CPUs(cpus)}, more...)...)
}

// list returns n CPUs of a node of grid.Worked from the i-th core on, both threads of each.
func list(core, n int) string {
	var all []string
	for c := core; c < core+n/2; c++ {
		all = append(all, fmt.Sprint(c))
	}
	for c := core; c < core+n/2; c++ {
		all = append(all, fmt.Sprint(c+16))
	}
	return strings.Join(all, ",")
}

func (a *asked) answer(question string) (*view.WhatIfAnswer, error) {
	a.t.Helper()
	var q view.WhatIf
	if err := json.Unmarshal([]byte(question), &q); err != nil {
		a.t.Fatal(err)
	}
	return a.whatIf.Answer(a.t.Context(), &q)
}

func TestWhatIf(t *testing.T) {
	for name, tt := range map[string]struct {
		question string
		want     map[string]string // pod → node; "" for a pod that fits nowhere
		victims  []string
	}{
		"a pod that no node has room for": {
			`{"ask":{"pods":["default/large"]}}`, map[string]string{"default/large": ""}, nil,
		},
		"a pod that fits once another one is gone": {
			`{"changes":[{"removePod":"default/on-a"}],"ask":{"pods":["default/large"]}}`,
			map[string]string{"default/large": "a"},
			nil,
		},
		"a pod that goes where it was, unless another one comes first": {
			`{"changes":[{"removePod":"default/on-a"}],"ask":{"pods":["default/large","default/on-a"]}}`,
			map[string]string{"default/large": "a", "default/on-a": ""},
			nil,
		},
		"a pod that fits where a node is added": {
			`{"changes":[{"addNode":{"like":"a","count":2}}],"ask":{"pods":["default/large","default/huge"]}}`,
			map[string]string{"default/large": "a-whatif-1", "default/huge": "a-whatif-2"},
			nil,
		},
		"a node that takes no further pods": {
			`{"changes":[{"cordon":"a"}],"ask":{"pods":["default/small"]}}`,
			map[string]string{"default/small": "b"},
			nil,
		},
		"a pod that may be on some nodes alone": {
			`{"changes":[{"removePod":"default/on-a"},{"removePod":"default/on-b"}],` +
				`"ask":{"pods":["default/large","default/equal"],"nodes":["b"]}}`,
			map[string]string{"default/large": "b", "default/equal": ""},
			nil,
		},
		"an added pod that takes what is free": {
			`{"changes":[{"addPod":{"metadata":{"name":"new","labels":{"koordinator.sh/qosClass":"LSR"}},` +
				`"spec":{"schedulerName":"tenon-scheduler","nodeName":"a","priority":9000,` +
				`"priorityClassName":"koord-prod","containers":[{"name":"c","resources":` +
				`{"requests":{"cpu":"4","memory":"1Gi"},"limits":{"cpu":"4","memory":"1Gi"}}}]}}}],` +
				`"ask":{"pods":["default/small"]}}`,
			map[string]string{"default/new": "a", "default/small": "b"},
			nil,
		},
		"a pod for which others would be evicted": {
			`{"ask":{"pods":["default/urgent"],"mode":"preempt"}}`,
			map[string]string{"default/urgent": "b"},
			[]string{"default/on-b"},
		},
		"a pod of equal priority evicts none": {
			`{"ask":{"pods":["default/equal"],"mode":"preempt"}}`, map[string]string{"default/equal": ""}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAsked(t, "a", "b").add(
				bound("on-a", "a", list(0, 16)), bound("on-b", "b", list(0, 24), object.Priority(5)),
				exclusive("large", "24"), exclusive("huge", "28"), exclusive("small", "4"),
				exclusive("equal", "24", object.Priority(5)),
				exclusive("urgent", "28", object.Priority(100)),
			)
			if name == "a node that takes no further pods" || strings.HasPrefix(name, "an added pod") {
				a.add(bound("more-on-a", "a", list(8, 8)))
			}
			got, err := a.answer(tt.question)
			if err != nil {
				t.Fatal(err)
			}
			nodes := map[string]string{}
			for _, p := range got.Placements {
				nodes[p.Pod] = p.Node
				if len(p.ResourceStatus) == 0 {
					t.Errorf("%s on %s has no CPUs", p.Pod, p.Node)
				}
			}
			for _, p := range got.Unschedulable {
				nodes[p.Pod] = ""
				if p.RootCause == nil || len(p.Obstacles) == 0 {
					t.Errorf("%s is unschedulable for no reason", p.Pod)
				}
			}
			if diff := cmp.Diff(tt.want, nodes); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
			var victims []string
			for _, v := range got.Victims {
				victims = append(victims, v.Pod)
			}
			if diff := cmp.Diff(tt.victims, victims); diff != "" {
				t.Errorf("victims (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMakeRoom(t *testing.T) {
	newCluster := func(t *testing.T, usedOnD int) *asked {
		return newAsked(t, "a", "b", "c", "d").add(
			bound("d1", "d", list(0, usedOnD)),
			bound("a1", "a", list(0, 12)), bound("a2", "a", list(6, 6)), bound("a3", "a", list(9, 4)),
			bound("a4", "a", list(11, 4)),
			bound("b1", "b", list(0, 8)), bound("b2", "b", list(4, 16)),
			bound("c1", "c", list(0, 20)),
			exclusive("large", "14"), exclusive("equal", "14"), exclusive("huge", "30"), exclusive("small", "4"),
			exclusive("quota", "4"), exclusive("pair-0", "10"), exclusive("pair-1", "10"),
		)
	}
	for name, tt := range map[string]struct {
		pods    string
		movable string
		want    view.RoomPlan
		nodes   map[string]string
	}{
		"a pod that fits needs no move": {
			`"default/small"`, `{"uid":"u-a1"}`,
			view.RoomPlan{Found: true, Proven: true},
			map[string]string{"default/small": "c"},
		},
		"the cheaper of two pods moves": {
			`"default/large"`, `{"uid":"u-b1","cost":5},{"uid":"u-a1","cost":9},{"uid":"u-a2","cost":4}`,
			view.RoomPlan{Found: true, Proven: true, Moves: []view.RoomMove{
				{Pod: "default/b1", UID: "u-b1", Node: "b", Target: "c", Cost: 5, Priority: 9000},
			}},
			map[string]string{"default/large": "b"},
		},
		"a pod without another place does not move": {
			`"default/large"`, `{"uid":"u-b2"}`, view.RoomPlan{Proven: true}, nil,
		},
		"two pods move": {
			`"default/large"`, `{"uid":"u-a2"},{"uid":"u-a3"}`,
			view.RoomPlan{Found: true, Proven: true, Moves: []view.RoomMove{
				{Pod: "default/a2", UID: "u-a2", Node: "a", Target: "c", Priority: 9000},
				{Pod: "default/a3", UID: "u-a3", Node: "a", Target: "b", Priority: 9000},
			}},
			map[string]string{"default/large": "a"},
		},
		"a set that takes the room of the second pod leaves nothing behind": {
			`"default/pair-0","default/pair-1"`, `{"uid":"u-b1"},{"uid":"u-b2"}`, view.RoomPlan{Proven: true}, nil,
		},
		"no set helps": {`"default/huge"`, `{"uid":"u-a1"},{"uid":"u-a2"}`, view.RoomPlan{Proven: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			a := newCluster(t, 30)
			versions := a.versions()
			got, err := a.answer(`{"ask":{"mode":"makeRoom","pods":[` + tt.pods + `],"movable":[` + tt.movable + `]}}`)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(versions, a.versions()); diff != "" {
				t.Errorf("the question changed accounts (-before +after):\n%s", diff)
			}
			for i := range got.Room.Moves {
				if len(got.Room.Moves[i].ResourceStatus) == 0 {
					t.Errorf("move %d has no CPUs", i)
				}
				got.Room.Moves[i].ResourceStatus, got.Room.Moves[i].Devices = nil, nil
			}
			tt.want.MaxMoves, tt.want.Looked = 2, got.Room.Looked
			if tt.want.Moves == nil {
				tt.want.Moves = []view.RoomMove{}
			}
			if diff := cmp.Diff(&tt.want, got.Room); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			var nodes map[string]string
			for _, p := range got.Placements {
				if nodes == nil {
					nodes = map[string]string{}
				}
				nodes[p.Pod] = p.Node
			}
			if diff := cmp.Diff(tt.nodes, nodes); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
			if !got.Room.Found && len(got.Unschedulable) != 1 {
				t.Error("nothing says why the pod fits nowhere")
			}
		})
	}
	a := newCluster(t, 20)
	for question, want := range map[string]string{
		`{"ask":{"mode":"makeRoom"}}`:                                       "ask.pods is empty",
		`{"ask":{"mode":"makeRoom","pods":["default/large"],"maxMoves":9}}`: "ask.maxMoves is 9, want 1 to 8",
		`{"ask":{"mode":"makeRoom","pods":["default/large","default/huge"]}}`: "pod default/huge has " +
			"other requests than pod default/large",
		`{"changes":[{"cordon":"a"}],"ask":{"mode":"makeRoom","pods":["default/large"]}}`: "exclude mode makeRoom",
	} {
		if _, err := a.answer(question); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", question, err, want)
		}
	}
	// A Reservation counts in the quota of its pod while the pod is there: max 15 has no room for twice the 8 CPUs.
	for most, found := range map[string]bool{"16": true, "15": false} {
		a := newCluster(t, 30)
		a.quotas.PutNode(object.Node("a", nil, "cpu", "128"))
		a.quotas.PutQuota(object.Quota("default/team", corev1.ResourceList{},
			corev1.ResourceList{"cpu": resource.MustParse(most)}))
		moved := bound("b1", "b", list(0, 8), object.Label(annotation.QuotaName, "team"))
		a.quotas.PutPod(moved)
		got, err := a.answer(`{"ask":{"mode":"makeRoom","pods":["default/large"],"movable":[{"uid":"u-b1"}]}}`)
		if err != nil || got.Room.Found != found {
			t.Errorf("with a quota of %s CPUs a plan is found: %t, want %t (%v)", most, got.Room.Found, found, err)
		}
		for reserve, want := range map[string]bool{"true": found, "false": true} {
			got, err := a.answer(`{"changes":[{"removePod":"default/b1"}],"ask":{"pods":["default/b1"],"reserve":` +
				reserve + `}}`)
			if err != nil || len(got.Placements) == 1 != want || len(got.Unschedulable) == 1 == want {
				t.Errorf("quota of %s CPUs, reserve %s: got %+v, %v; want a place: %t", most, reserve, got, err, want)
			}
		}
	}
	pair, err := a.answer(`{"ask":{"mode":"makeRoom","pods":["default/large","default/equal"],"movable":[` +
		`{"uid":"u-a2"},{"uid":"u-a3"},{"uid":"u-b1"},{"uid":"u-b2"},{"uid":"u-c1"}],"maxMoves":4}}`)
	if err != nil {
		t.Fatal(err)
	}
	var moved []string
	for _, m := range pair.Room.Moves {
		moved = append(moved, m.Pod+" "+m.Node)
	}
	if diff := cmp.Diff([]string{"default/a2 a", "default/a3 a", "default/b1 b"}, moved); diff != "" {
		t.Errorf("moves for two equal pods (-want +got):\n%s", diff)
	}
	if len(pair.Placements) != 2 {
		t.Errorf("got %d places, want one for each of two pods", len(pair.Placements))
	}
}

// TestDefragment has two nodes with half of two NUMA nodes free each, where half of the pods have a whole one.
func TestDefragment(t *testing.T) {
	newCluster := func(t *testing.T) *asked {
		return newAsked(t, "a", "b").add(
			bound("a1", "a", list(0, 4)), bound("a2", "a", list(4, 8)), bound("a3", "a", list(8, 8)),
			bound("a4", "a", list(12, 4)),
			bound("b1", "b", list(0, 4)), bound("b2", "b", list(4, 8)), bound("b3", "b", list(8, 8)),
			bound("b4", "b", list(12, 4)),
		)
	}
	const all = `{"uid":"u-a1"},{"uid":"u-a2"},{"uid":"u-b1","cost":1},{"uid":"u-b2"}`
	first := view.RoomMove{Pod: "default/a1", UID: "u-a1", Node: "a", Target: "b", Priority: 9000, Fall: 50}
	second := view.RoomMove{Pod: "default/b1", UID: "u-b1", Node: "b", Target: "a", Priority: 9000, Cost: 1, Fall: 50}
	for name, tt := range map[string]struct {
		movable string
		minFall int
		want    []view.RoomMove
	}{
		"the cheaper of two moves that help as much": {all, 50, []view.RoomMove{first}},
		"a pod that may move":                        {`{"uid":"u-b1","cost":1}`, 1, []view.RoomMove{second}},
		"no move helps as much as is asked for":      {all, 51, []view.RoomMove{}},
		"no pod may move":                            {"", 1, []view.RoomMove{}},
		"a pod of a whole NUMA node has no place":    {`{"uid":"u-a2"}`, 1, []view.RoomMove{}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newCluster(t)
			versions := a.versions()
			got, err := a.answer(fmt.Sprintf(`{"ask":{"mode":"defragment","maxMoves":1,"minFall":%d,"movable":[%s]}}`,
				tt.minFall, tt.movable))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got.Room.Moves); diff != "" {
				t.Errorf("moves (-want +got):\n%s", diff)
			}
			if !got.Room.Proven || got.Room.Found != (len(tt.want) > 0) {
				t.Errorf("got %+v", got.Room)
			}
			if diff := cmp.Diff(versions, a.versions()); diff != "" {
				t.Errorf("the question changed accounts (-before +after):\n%s", diff)
			}
		})
	}
	a := newCluster(t)
	for question, want := range map[string]string{
		`{"ask":{"mode":"defragment"}}`:                            "ask.minFall is 0, want 1 or more",
		`{"ask":{"mode":"defragment","minFall":1,"maxMoves":9}}`:   "ask.maxMoves is 9, want 1 to 8",
		`{"ask":{"mode":"defragment","minFall":1,"nodes":["a"]}}`:  "exclude mode defragment",
		`{"changes":[{"cordon":"a"}],"ask":{"mode":"defragment"}}`: "exclude mode defragment",
	} {
		if _, err := a.answer(question); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", question, err, want)
		}
	}
}

func TestAQuestionThatCannotBeAnsweredNamesTheRule(t *testing.T) {
	a := newAsked(t, "a").add(bound("on-a", "a", list(0, 4)), exclusive("small", "4"),
		exclusive("foreign", "4", object.Scheduler("other")))
	for question, want := range map[string]string{
		`{"ask":{"pods":["small"]}}`:                `ask.pods[0]: "small" is not a pod: want namespace/name`,
		`{"ask":{"pods":["default/none"]}}`:         "ask.pods[0]: pod default/none does not exist",
		`{"ask":{"pods":["default/on-a"]}}`:         "is bound to node a: remove it with removePod",
		`{"ask":{"pods":["default/foreign"]}}`:      `spec.schedulerName is "other"; this scheduler serves`,
		`{"ask":{"mode":"preempt","nodes":["a"]}}`:  "ask.nodes and ask.reserve are not for mode preempt",
		`{"ask":{"mode":"preempt","reserve":true}}`: "ask.nodes and ask.reserve are not for mode preempt",
		`{"ask":{"mode":"guess"}}`: `ask.mode is "guess", want schedule, preempt, ` +
			`makeRoom, defragment, count or forecast`,
		`{"ask":{"mode":"count"}}`:                                          "ask.pods has 0 pods, want one",
		`{"ask":{"mode":"count","pods":["a/b","a/c"]}}`:                     "ask.pods has 2 pods, want one",
		`{"ask":{"mode":"count","pods":["default/none"]}}`:                  "pod default/none does not exist",
		`{"ask":{"mode":"count","pods":["default/foreign"]}}`:               `spec.schedulerName is "other"`,
		`{"ask":{"mode":"count","pods":["default/small"],"members":-1}}`:    "ask.members is -1, want 1 to 10000",
		`{"ask":{"mode":"count","pods":["default/small"],"members":10001}}`: "ask.members is 10001, want 1 to 10000",
		`{"ask":{"mode":"count","pods":["default/small"],"nodesLike":"z"}}`: "ask.nodesLike: node z does not exist",
		`{"ask":{"mode":"count","pods":["default/small"],"reserve":true}}`:  "are not for mode count",
		`{"changes":[{"addNode":{"like":"a b","machine":{"node":{}}}}]}`:    `addNode.like is "a b", want a name`,
		`{"changes":[{"addNode":{"like":"m","machine":{"node":{"x":1}}}}]}`: `addNode.machine: json: unknown field "x"`,
		`{"changes":[{"addNode":{"like":"m","machine":{}}}]}`:               "addNode.machine.node is missing",
		`{"changes":[{"addPod":{"metadata":{"name":"n"},"spec":{"schedulerName":"tenon-scheduler","volumes":[` +
			`{"name":"d","persistentVolumeClaim":{"claimName":"c"}}]}}}],"ask":{"mode":"count",` +
			`"pods":["default/n"]}}`: "" +
			"pod default/n: volume d has a claim: the location of further volumes is unknown",
		`{"changes":[{}]}`: "changes[0]: has 0 kinds of change, want one of",
		`{"changes":[{"cordon":"a","removePod":"x/y"}]}`: "changes[0]: has 2 kinds of change",
		`{"changes":[{"cordon":"z"}]}`:                   "changes[0]: cordon: node z does not exist",
		`{"changes":[{"removePod":"default/small"}]}`:    "pod default/small is not bound to a node",
		`{"changes":[{"removePod":"default/on-a"},{"removePod":"default/on-a"}]}`: "changes[1]: removePod: pod " +
			"default/on-a is removed already",
		`{"changes":[{"addNode":{"like":"z"}}]}`:                        "addNode.like: node z does not exist",
		`{"changes":[{"addNode":{"like":"a","count":101}}]}`:            "addNode.count is 101, want 1 to 100",
		`{"changes":[{"addPod":{"metadata":{"name":"small"}}}]}`:        "addPod: pod default/small exists already",
		`{"changes":[{"addPod":{"metadata":{}}}]}`:                      "addPod: metadata.name is empty",
		`{"changes":[{"addPod":{"metadat":{}}}]}`:                       `addPod: json: unknown field "metadat"`,
		`{"changes":[{"patchPod":{"name":"default/on-a","patch":{}}}]}`: "default/on-a is bound to node a",
		`{"changes":[{"patchPod":{"name":"x","patch":{}}}]}`:            `patchPod: "x" is not a pod`,
		`{"changes":[{"patchPod":{"name":"default/small","patch":{"metadata":{"uid":"u"}}}}]}`: "patchPod: " +
			"metadata.namespace, name, uid and spec.nodeName cannot change",
		`{"changes":[{"patchPod":{"name":"default/small","patch":{"spec":{"size":1}}}}]}`: `unknown field "size"`,
		`{"changes":[{"patchNode":{"name":"x","patch":{}}}]}`:                             "node x does not exist",
		`{"changes":[{"patchNode":{"name":"a","patch":{"status":{"allocatable":{"cpu":"64"}}}}}]}`: "patchNode: only " +
			"metadata.labels, spec.taints and spec.unschedulable can change",
		`{"changes":[{"patchNode":{"name":"a","patch":{"metadata":{"labels":` +
			`{"node.koordinator.sh/numa-topology-policy":"Restricted"}}}}}]}`: "the node's account depends on it",
		`{"changes":[{"setQuota":{}}]}`:                    "setQuota: has neither min nor max",
		`{"changes":[{"setQuota":{"name":"x","max":{}}}]}`: "setQuota: quota x does not exist",
		`{"changes":[{"setQuota":{"size":1}}]}`:            `setQuota: json: unknown field "size"`,
		`{"changes":[{"removePod":"default/on-a"},{"setQuota":{"name":"x","max":{}}}]}`: "must come " +
			"before removePod",
		`{"changes":[{"scaleGang":{"gang":"a/b","to":8}}]}`: `scaleGang: gang "a/b" has no pod`,
		`{"changes":[{"addPod":{"metadata":{"name":"n"},"spec":{"nodeName":"z"}}}]}`: "spec.nodeName: node z does " +
			"not exist",
	} {
		_, err := a.answer(question)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", question, err, want)
		}
	}
}

// decide returns what the scheduler's own cycle decides about a pod now, and changes nothing.
func (a *asked) decide(pod *corev1.Pod) (node, cpus string) {
	a.t.Helper()
	info, err := framework.NewPodInfo(pod.DeepCopy())
	if err != nil {
		a.t.Fatal(err)
	}
	queued := &framework.QueuedPodInfo{PodInfo: info}
	core := *a.core.Scheduler
	core.NextEntity = func(klog.Logger) (framework.QueuedEntityInfo, error) { return queued, nil }
	core.FailureHandler = func(context.Context, framework.Framework, *framework.QueuedPodInfo, *fwk.Status,
		*fwk.NominatingInfo, time.Time,
	) {
	}
	core.SchedulePod = func(ctx context.Context, f framework.Framework, cs fwk.CycleState,
		queued *framework.QueuedPodInfo,
	) (scheduler.ScheduleResult, error) {
		result, err := a.core.SchedulePod(ctx, f, cs, queued)
		if err == nil {
			node = result.SuggestedHost
			f.RunReservePluginsReserve(ctx, cs, queued.Pod, node)
			cpus = placement.Read(cs).Record()[annotation.ResourceStatusKey]
			f.RunReservePluginsUnreserve(ctx, cs, queued.Pod, node)
		}
		return result, errors.New("the decision is known")
	}
	core.ScheduleOne(a.t.Context())
	return node, cpus
}

func TestWhatIfWithoutAChangeIsTheNextDecision(t *testing.T) {
	random := rand.New(rand.NewPCG(37, 5))
	placed := 0
	for range 60 {
		a := newAsked(t, "a", "b", "c")
		for _, node := range []string{"a", "b", "c"} {
			for core := 0; core < 16; core += 4 {
				if n := 2 * random.IntN(5); n > 0 {
					a.add(bound(fmt.Sprintf("%s-%d", node, core), node, list(core, n)))
				}
			}
		}
		pod := exclusive("next", fmt.Sprint(2+2*random.IntN(14)))
		a.add(pod)
		versions := a.versions()
		got, err := a.answer(`{"ask":{"pods":["default/next"]}}`)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(versions, a.versions()); diff != "" {
			t.Fatalf("the question changed accounts (-before +after):\n%s", diff)
		}
		var node, cpus string
		if len(got.Placements) > 0 {
			node, cpus = got.Placements[0].Node, string(got.Placements[0].ResourceStatus)
			placed++
		}
		wantNode, wantCPUs := a.decide(pod)
		if node != wantNode && a.equalScores(pod, node, wantNode) {
			continue // the scheduler alternates between them
		}
		if node != wantNode || cpus != wantCPUs {
			t.Errorf("what-if says node %q with %s, the scheduler decides %q with %s", node, cpus, wantNode, wantCPUs)
		}
	}
	if placed < 20 {
		t.Errorf("only %d of 60 pods were placed: the test proves little", placed)
	}
}

// TestWhatIfWithOtherQuotasIsTheNextDecisionWithThem compares a cluster that is asked about another quota, or about one
// more member of a gang, with one that has it.
func TestWhatIfWithOtherQuotasIsTheNextDecisionWithThem(t *testing.T) {
	random := rand.New(rand.NewPCG(37, 9))
	outcomes := map[string]int{}
	for range 60 {
		most, changed := 8+2*random.IntN(16), 8+2*random.IntN(16)
		scales := random.IntN(2) == 0
		cpus := map[string]int{}
		newCluster := func(quota int) *asked {
			a := newAsked(t, "a", "b", "c")
			a.quotas.PutNode(object.Node("a", nil, "cpu", "96"))
			a.quotas.PutQuota(object.Quota("default/team", corev1.ResourceList{},
				corev1.ResourceList{"cpu": resource.MustParse(fmt.Sprint(quota))}))
			a.gangs.PutGroup(object.PodGroup("default/g", 1))
			for i, node := range []string{"a", "b", "c"} {
				name := fmt.Sprintf("g-%d", i)
				if cpus[name] == 0 {
					cpus[name] = 2 + 2*random.IntN(4)
				}
				a.know(bound(name, node, list(0, cpus[name]), object.Label(annotation.QuotaName, "team"),
					object.Label(annotation.PodGroup, "g")))
			}
			return a
		}
		asked := "next"
		a, b := newCluster(most), newCluster(changed)
		next := exclusive("next", fmt.Sprint(2+2*random.IntN(6)), object.Label(annotation.QuotaName, "team"))
		question := fmt.Sprintf(`{"setQuota":{"name":"team","max":{"cpu":"%d"}}}`, changed)
		if scales {
			asked = "g-0-whatif-1"
			next = exclusive(asked, fmt.Sprint(cpus["g-0"]), object.Label(annotation.QuotaName, "team"),
				object.Label(annotation.PodGroup, "g"))
			question += `,{"scaleGang":{"gang":"default/g","to":4}}`
		} else {
			a.know(next)
		}
		b.know(next)
		got, err := a.answer(`{"changes":[` + question + `],"ask":{"pods":["default/` + asked + `"]}}`)
		if err != nil {
			t.Fatal(err)
		}
		node := ""
		if len(got.Placements) > 0 {
			node = got.Placements[0].Node
		}
		want, _ := b.decide(next)
		if node != want && (node == "" || want == "" || !b.equalScores(next, node, want)) {
			t.Errorf("%s, quota of %d: what-if says node %q, the scheduler decides %q", asked, changed, node, want)
		}
		outcomes[fmt.Sprintf("scales %t, placed %t", scales, node != "")]++
	}
	for _, name := range []string{
		"scales true, placed true", "scales true, placed false", "scales false, placed true",
		"scales false, placed false",
	} {
		if outcomes[name] < 5 {
			t.Errorf("%s: %d of 60 cases: the test proves little", name, outcomes[name])
		}
	}
}

// TestTheDevicesOfAChangedPodAreNamedAsThoseOfACreatedOne: no webhook sees the pod of a question. No node offers the
// resource kubernetes.io/gpu.
func TestTheDevicesOfAChangedPodAreNamedAsThoseOfACreatedOne(t *testing.T) {
	const spec = `"spec":{"schedulerName":"tenon-scheduler","containers":[{"name":"c","resources":` +
		`{"requests":{"kubernetes.io/gpu":"50"},"limits":{"kubernetes.io/gpu":"50"}}}]}`
	for asked, change := range map[string]string{
		"new": `{"addPod":{"metadata":{"name":"new"},` + spec + `}}`,
		"old": `{"patchPod":{"name":"default/old","patch":{` + spec + `}}}`,
	} {
		a := newAsked(t, "a").add(object.Pod("old", object.UID("u"), object.Scheduler(SchedulerName)))
		got, err := a.answer(`{"changes":[` + change + `],"ask":{"pods":["default/` + asked + `"]}}`)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range got.Unschedulable {
			if p.RootCause == nil || p.RootCause.Code != why.DeviceMissing || len(p.Obstacles) != 1 {
				t.Errorf("%s: %+v, want nothing but a Device missing", change, p.Obstacles)
			}
		}
		if len(got.Unschedulable) != 1 {
			t.Errorf("%s: %+v, want one pod that no node has a Device for", change, got)
		}
	}
}

// know adds pods that quotas and gangs count, too.
func (a *asked) know(pods ...*corev1.Pod) {
	a.add(pods...)
	for _, pod := range pods {
		a.quotas.PutPod(pod)
		a.gangs.PutPod(pod)
	}
}

// TestAGangIsPreemptedWhole: a what-if named one member as the victim, and the scheduler evicts both.
func TestAGangIsPreemptedWhole(t *testing.T) {
	a := newAsked(t, "a", "b")
	a.gangs.PutGroup(object.PodGroup("default/g", 2))
	low := []object.PodOption{object.PriorityClass(""), object.Priority(100), object.Label(annotation.PodGroup, "g")}
	a.know(bound("g-0", "a", list(0, 24), low...), bound("g-1", "b", list(0, 24), low...),
		exclusive("urgent", "20"))
	got, err := a.answer(`{"ask":{"pods":["default/urgent"],"mode":"preempt"}}`)
	if err != nil {
		t.Fatal(err)
	}
	want := []view.Victim{
		{Pod: "default/g-0", Node: "a", For: "default/urgent"}, {Pod: "default/g-1", Node: "b", For: "default/urgent"},
	}
	slices.SortFunc(got.Victims, func(x, y view.Victim) int { return strings.Compare(x.Pod, y.Pod) })
	if diff := cmp.Diff(want, got.Victims); diff != "" {
		t.Errorf("victims (-want +got):\n%s", diff)
	}
}

// equalScores reports whether the scheduler scores two nodes equally for a pod.
func (a *asked) equalScores(pod *corev1.Pod, nodes ...string) bool {
	scores := map[string]int64{}
	f := a.core.Profiles[pod.Spec.SchedulerName]
	cs := framework.NewCycleState()
	f.RunPreFilterPlugins(a.t.Context(), cs, pod)
	all, err := f.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		a.t.Fatal(err)
	}
	var fit []fwk.NodeInfo
	for _, n := range all {
		if f.RunFilterPluginsWithNominatedPods(a.t.Context(), cs, pod, n).IsSuccess() {
			fit = append(fit, n)
		}
	}
	f.RunPreScorePlugins(a.t.Context(), cs, pod, fit)
	list, _ := f.RunScorePlugins(a.t.Context(), cs, pod, fit)
	for _, s := range list {
		scores[s.Name] = s.TotalScore
	}
	return scores[nodes[0]] == scores[nodes[1]] && scores[nodes[0]] > 0
}

// versions are those of all accounts, with the CPUs that are held there.
func (a *asked) versions() map[string]string {
	out := map[string]string{}
	for _, node := range a.store.Nodes() {
		v := a.store.View(node)
		var held []string
		for e := range v.Entries() {
			held = append(held, e.UID+"="+e.CPUList)
		}
		out[node] = fmt.Sprint(v.Version(), held)
	}
	return out
}
