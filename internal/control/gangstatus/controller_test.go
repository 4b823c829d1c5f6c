package gangstatus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"
	"k8s.io/client-go/tools/events"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
)

// world is an API server with pods and PodGroups. The community's PodGroups have their status apart.
type world struct {
	pods   *fcache.FakeControllerSource
	groups map[string]*fcache.FakeControllerSource

	events *events.FakeRecorder

	mu      sync.Mutex // guards the rest
	shown   map[string]*v1alpha1.PodGroup
	writes  []string
	refusal error
	bare    bool // the API prunes conditions
	gone    bool // what is asked for, until it is there again
}

// run starts a controller on the world for as long as f runs.
func run(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			pods: fcache.NewFakeControllerSource(), groups: map[string]*fcache.FakeControllerSource{},
			shown: map[string]*v1alpha1.PodGroup{}, events: events.NewFakeRecorder(100),
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		start := func(i cache.SharedIndexInformer) cache.SharedIndexInformer {
			running.Go(func() { i.RunWithContext(ctx) })
			return i
		}
		o := Options{
			Events: w.events,
			Pods:   start(cache.NewSharedIndexInformer(w.pods, &corev1.Pod{}, 0, IndexPods())),
			Writes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "writes"}, []string{"outcome"}),
		}
		for _, group := range v1alpha1.PodGroupGroups() {
			w.groups[group] = fcache.NewFakeControllerSource()
			i := cache.NewSharedIndexInformer(w.groups[group], &v1alpha1.PodGroup{}, 0, cache.Indexers{})
			o.Groups = append(o.Groups, start(i))
		}
		client := fake.NewSimpleDynamicClient(runtime.NewScheme())
		client.PrependReactor("patch", "podgroups", w.patch)
		o.Client = client
		done := make(chan error, 1)
		go func() { done <- New(o).Start(ctx) }()
		synctest.Wait() // a source refuses to watch from its version 0 what was added before
		f(w)
		stop()
		if err := <-done; err != nil {
			t.Errorf("Start = %v", err)
		}
		running.Wait()
		for _, s := range append(slices.Collect(maps.Values(w.groups)), w.pods) {
			s.Shutdown()
		}
	})
}

func (w *world) add(group string) {
	g := podGroup(group, "")
	w.mu.Lock()
	w.shown[group] = g
	w.mu.Unlock()
	w.groups[group].Add(g.DeepCopy())
}

func (w *world) addPods(label, states string) {
	for _, p := range pods(states) {
		p.UID, p.Labels = types.UID(p.Name), map[string]string{label: "train"}
		w.pods.Add(p)
	}
}

func (w *world) patch(action clienttesting.Action) (bool, runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := action.(clienttesting.PatchAction)
	group := p.GetResource().Group
	apart, was := group != v1alpha1.GroupName, w.shown[group]
	var body struct {
		Metadata struct {
			ResourceVersion string
			UID             types.UID
		}
		Status *v1alpha1.PodGroupStatus
	}
	if err := json.Unmarshal(p.GetPatch(), &body); err != nil {
		return true, nil, err
	}
	missing := apierrors.NewNotFound(p.GetResource().GroupResource(), p.GetName())
	switch {
	case w.refusal != nil:
		return true, nil, w.refusal
	case was == nil || w.gone || p.GetSubresource() == "status" && !apart ||
		p.GetResource().Version != was.GroupVersionKind().Version:
		return true, nil, missing
	case body.Metadata.ResourceVersion != was.ResourceVersion || body.Metadata.UID != was.UID:
		return true, nil, apierrors.NewConflict(p.GetResource().GroupResource(), p.GetName(), errors.New("changed"))
	}
	changed := was.DeepCopy()
	if apart == (p.GetSubresource() == "status") {
		if changed.Status = *body.Status; w.bare {
			changed.Status.Conditions = nil
		}
		wrote := fmt.Sprintf("%s %s %d", group, changed.Status.Phase, changed.Status.Running)
		if group == v1alpha1.NativeGroupName {
			changed.Status.Phase = v1alpha1.NativePhase(changed.Status.Conditions)
			wrote = string(p.GetPatch()[strings.Index(string(p.GetPatch()), `"status":`):])
		}
		version, _ := strconv.Atoi(was.ResourceVersion)
		changed.ResourceVersion = strconv.Itoa(version + 1)
		w.shown[group] = changed
		w.groups[group].Modify(changed.DeepCopy())
		w.writes = append(w.writes, wrote)
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(changed)
	return true, &unstructured.Unstructured{Object: object}, err
}

// sent returns the Events.
func (w *world) sent() (all []string) {
	close(w.events.Events)
	for e := range w.events.Events {
		all = append(all, e)
	}
	return all
}

func (w *world) wrote(t *testing.T, want ...string) {
	t.Helper()
	time.Sleep(5 * time.Second) //nolint:forbidigo // in synctest's time
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.writes, want) {
		t.Errorf("wrote %q, want %q", w.writes, want)
	}
	w.writes = nil
}

// TestChangesOfASecondAreOneWrite, and the status is written where each API has it.
func TestChangesOfASecondAreOneWrite(t *testing.T) {
	for group, label := range map[string]string{
		v1alpha1.GroupName: annotation.PodGroup, v1alpha1.CommunityGroupName: annotation.CommunityPodGroup,
	} {
		run(t, func(w *world) {
			w.add(group)
			w.wrote(t, group+" Pending 0")
			w.addPods(label, "bbb")
			for _, p := range pods("rrr") {
				p.UID, p.Labels = types.UID(p.Name), map[string]string{label: "train"}
				w.pods.Modify(p)
			}
			w.wrote(t, group+" Running 3")
			w.wrote(t)
			for i, p := range pods("rrr") {
				p.Labels = map[string]string{label: "train"}
				w.pods.Delete(p)
				if i == 1 {
					w.wrote(t, group+" Unknown 1")
				}
			}
			w.wrote(t, group+" Pending 0")
			if diff := cmp.Diff([]string{
				"Normal GangScheduled the minimum of pods is on nodes; 3 run",
				"Warning GangDegraded fewer pods than the minimum are left on nodes; 1 run",
			}, w.sent()); diff != "" {
				t.Errorf("Events about %s (-want +got):\n%s", group, diff)
			}
		})
	}
}

// TestAGangThatCouldBeBoundInPartAlone: one Event, when it has been so for longer than Bindings take.
func TestAGangThatCouldBeBoundInPartAlone(t *testing.T) {
	for _, whole := range []bool{false, true} {
		run(t, func(w *world) {
			w.add(v1alpha1.GroupName)
			w.wrote(t, v1alpha1.GroupName+" Pending 0")
			put := func(states string) {
				for _, p := range pods(states) {
					p.UID = types.UID(p.Name)
					if p.Spec.NodeName != "" {
						p.Status.Conditions = []corev1.PodCondition{{
							Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
						}}
					}
					w.pods.Modify(p)
				}
			}
			put("bbq")
			w.wrote(t, v1alpha1.GroupName+" Scheduling 0")
			want := []string{"Warning GangDegraded only 2 of 3 pods are on nodes"}
			if whole {
				put("bbb")
				w.wrote(t, v1alpha1.GroupName+" Scheduled 0")
				want = []string{"Normal GangScheduled the minimum of pods is on nodes; 0 run"}
			}
			for range 6 { // each lets five seconds pass
				w.wrote(t)
			}
			if diff := cmp.Diff(want, w.sent()); diff != "" {
				t.Errorf("whole: %t: Events (-want +got):\n%s", whole, diff)
			}
		})
	}
}

// TestAPodCountsHoweverItJoins: by a label, an annotation or the field of Kubernetes.
func TestAPodCountsHoweverItJoins(t *testing.T) {
	run(t, func(w *world) {
		w.add(v1alpha1.GroupName)
		w.addPods(annotation.PodGroup, "r")
		all := pods("xrr")
		all[1].Labels, all[1].Annotations = nil, map[string]string{annotation.GangName: "train"}
		all[2].Labels, all[2].Spec.SchedulingGroup = nil, &corev1.PodSchedulingGroup{PodGroupName: new("train")}
		for _, p := range all[1:] {
			p.UID = types.UID(p.Name)
			w.pods.Add(p)
		}
		w.wrote(t, v1alpha1.GroupName+" Running 3")
		all[1].Status.Phase = corev1.PodSucceeded
		w.pods.Modify(Trim(all[1]))
		w.wrote(t, v1alpha1.GroupName+" Running 2")
	})
}

// TestAConditionThatTheAPIHasNotIsNotWrittenAgain with each pod.
func TestAConditionThatTheAPIHasNotIsNotWrittenAgain(t *testing.T) {
	run(t, func(w *world) {
		w.bare = true
		w.add(v1alpha1.CommunityGroupName)
		w.addPods(annotation.CommunityPodGroup, "rrr")
		w.wrote(t, v1alpha1.CommunityGroupName+" Running 3")
		w.addPods(annotation.CommunityPodGroup, "rrrq")
		w.wrote(t)
	})
}

// TestPodGroupsOfKubernetesGetTheirConditions, and nothing else, in the version that is served.
func TestPodGroupsOfKubernetesGetTheirConditions(t *testing.T) {
	for version, kind := range map[string]string{
		"v1alpha2": "PodGroupScheduled", "v1beta1": "PodGroupInitiallyScheduled",
	} {
		run(t, func(w *world) {
			g := podGroup(v1alpha1.NativeGroupName, "")
			g.SetGroupVersionKind(g.GroupVersionKind().GroupVersion().WithKind("PodGroup"))
			g.APIVersion, g.Generation = v1alpha1.NativeGroupName+"/"+version, 1
			w.shown[v1alpha1.NativeGroupName] = g
			w.groups[v1alpha1.NativeGroupName].Add(g.DeepCopy())
			w.wrote(t)
			w.addPods(annotation.PodGroup, "q")
			w.wrote(t)
			waits := pods("q")[0]
			waits.UID = "train-0"
			waits.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
				Message: "2 of 3",
			}}
			w.pods.Modify(waits)
			w.wrote(t, `"status":{"conditions":[{"lastTransitionTime":"2000-01-01T00:00:11Z","message":"2 of 3",`+
				`"observedGeneration":1,"reason":"Unschedulable","status":"False","type":"`+kind+`"}]}}`)
			w.addPods(annotation.PodGroup, "rrr")
			scheduled := `{"lastTransitionTime":"2000-01-01T00:00:16Z","message":"","observedGeneration":1,` +
				`"reason":"Scheduled","status":"True","type":"` + kind + `"}`
			w.wrote(t, `"status":{"conditions":[`+scheduled+`]}}`)
			for _, p := range pods("rrr") { // true is never taken back
				p.UID = types.UID(p.Name)
				if p.Name != "train-2" {
					w.pods.Delete(p)
					continue
				}
				p.Status.Conditions = []corev1.PodCondition{{
					Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
					Reason: corev1.PodReasonPreemptionByScheduler,
				}}
				w.pods.Modify(p)
			}
			w.wrote(t, `"status":{"conditions":[`+scheduled+`,{"lastTransitionTime":"2000-01-01T00:00:21Z",`+
				`"message":"all pods of the group are evicted","observedGeneration":1,`+
				`"reason":"PreemptionByScheduler","status":"True","type":"DisruptionTarget"}]}}`)
			w.addPods(annotation.PodGroup, "qq")
			w.wrote(t)
			if diff := cmp.Diff([]string{
				"Normal GangScheduled the minimum of pods is on nodes; 3 run",
				"Warning GangDegraded fewer pods than the minimum are left on nodes; 1 run",
			}, w.sent()); diff != "" {
				t.Errorf("Events (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAPodGroupThatWasGone does not look like an API that has the status in the object for good.
func TestAPodGroupThatWasGone(t *testing.T) {
	run(t, func(w *world) {
		w.gone = true
		w.add(v1alpha1.CommunityGroupName)
		w.wrote(t)
		w.mu.Lock()
		w.gone = false
		w.mu.Unlock()
		w.addPods(annotation.CommunityPodGroup, "rrr")
		w.wrote(t, v1alpha1.CommunityGroupName+" Running 3")
	})
}

// TestAPodThatLeavesItsGang counts for it no more.
func TestAPodThatLeavesItsGang(t *testing.T) {
	run(t, func(w *world) {
		w.add(v1alpha1.GroupName)
		w.addPods(annotation.PodGroup, "r")
		w.wrote(t, v1alpha1.GroupName+" Scheduling 1")
		p := pods("r")[0]
		p.Labels = nil
		w.pods.Modify(p)
		w.wrote(t, v1alpha1.GroupName+" Pending 0")
	})
}

// TestARefusedWriteIsTriedAgain until it is done.
func TestARefusedWriteIsTriedAgain(t *testing.T) {
	run(t, func(w *world) {
		w.refusal = errors.New("not now")
		w.add(v1alpha1.GroupName)
		w.addPods(annotation.PodGroup, "rrr")
		w.wrote(t)
		w.mu.Lock()
		w.refusal = nil
		w.mu.Unlock()
		w.wrote(t, v1alpha1.GroupName+" Running 3")
	})
}
