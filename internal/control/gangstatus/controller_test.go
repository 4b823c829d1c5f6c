package gangstatus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
		start := func(i cache.SharedIndexInformer) []cache.SharedIndexInformer {
			running.Go(func() { i.RunWithContext(ctx) })
			return []cache.SharedIndexInformer{i}
		}
		o := Options{
			Events: w.events,
			Pods:   start(cache.NewSharedIndexInformer(w.pods, &corev1.Pod{}, 0, IndexPods())),
			Writes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "writes"}, []string{"outcome"}),
		}
		for _, group := range v1alpha1.Groups() {
			w.groups[group] = fcache.NewFakeControllerSource()
			i := cache.NewSharedIndexInformer(w.groups[group], &v1alpha1.PodGroup{}, 0, cache.Indexers{})
			o.Groups = append(o.Groups, start(i)...)
		}
		client := fake.NewSimpleDynamicClient(runtime.NewScheme())
		client.PrependReactor("patch", "podgroups", w.patch)
		o.Client = client
		done := make(chan error, 1)
		go func() { done <- New(o).Start(ctx) }()
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
	apart, was := group == v1alpha1.CommunityGroupName, w.shown[group]
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
	case was == nil || w.gone || p.GetSubresource() == "status" && !apart:
		return true, nil, missing
	case body.Metadata.ResourceVersion != was.ResourceVersion || body.Metadata.UID != was.UID:
		return true, nil, apierrors.NewConflict(p.GetResource().GroupResource(), p.GetName(), errors.New("changed"))
	}
	is := was.DeepCopy()
	if apart == (p.GetSubresource() == "status") {
		is.Status = *body.Status
		version, _ := strconv.Atoi(was.ResourceVersion)
		is.ResourceVersion = strconv.Itoa(version + 1)
		w.shown[group] = is
		w.groups[group].Modify(is.DeepCopy())
		w.writes = append(w.writes, fmt.Sprintf("%s %s %d", group, is.Status.Phase, is.Status.Running))
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(is)
	return true, &unstructured.Unstructured{Object: object}, err
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
			for _, p := range pods("rrr") {
				p.Labels = map[string]string{label: "train"}
				w.pods.Delete(p)
			}
			w.wrote(t, group+" Unknown 0")
			close(w.events.Events)
			sent := slices.Collect(func(yield func(string) bool) {
				for e := range w.events.Events {
					if !yield(e) {
						return
					}
				}
			})
			if diff := cmp.Diff([]string{
				"Normal GangScheduled the minimum of pods is on nodes; 3 run",
				"Warning GangDegraded fewer pods than the minimum are left on nodes; 0 run",
			}, sent); diff != "" {
				t.Errorf("Events about %s (-want +got):\n%s", group, diff)
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
