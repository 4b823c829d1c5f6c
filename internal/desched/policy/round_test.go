package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/descheduler"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/core/move"
	"github.com/tenon-project/tenon/internal/desched/policy/plugin"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

var start = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// stage is a cluster with a Runner.
type stage struct {
	*Runner

	state   *evict.State
	jobs    []*v1alpha1.PodMigrationJob
	patches []string
	refuse  error             // of the API server
	fits    map[string]string // nodes that the scheduler would choose, by pod
	fitErr  error
	asked   int

	unsynced func() []string // nil for none
}

func (s *stage) Read(f func(*evict.State)) { f(s.state) }

func (s *stage) Unsynced() []string {
	if s.unsynced == nil {
		return nil
	}
	return s.unsynced()
}

func (s *stage) CreateJob(_ context.Context, j *v1alpha1.PodMigrationJob) (*v1alpha1.PodMigrationJob, error) {
	if s.refuse != nil {
		return nil, s.refuse
	}
	j.Name = fmt.Sprintf("job-%d", len(s.jobs))
	j.UID = types.UID(j.Name)
	s.jobs = append(s.jobs, j)
	return j, nil
}

func (s *stage) PatchPod(_ context.Context, p *corev1.Pod, patch []byte) error {
	s.patches = append(s.patches, p.Name+" "+string(patch))
	return s.refuse
}

// newStage reads a policy file, below its header.
func newStage(t *testing.T, config string, nodes []*corev1.Node, pods ...*corev1.Pod) *stage {
	t.Helper()
	settings, err := descheduler.Read("f.yaml",
		[]byte("apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n"+config))
	testkit.Check(t, err)
	return stageOf(t, settings, nodes, pods...)
}

func stageOf(t *testing.T, settings descheduler.Settings, nodes []*corev1.Node, pods ...*corev1.Pod) *stage {
	t.Helper()
	class := func(name string) (int32, error) {
		if name == "high" {
			return 1000, nil
		}
		return 0, fmt.Errorf("no PriorityClass %s", name)
	}
	limits, err := NewPolicy(settings, "tenon-system", class)
	testkit.Check(t, err)
	s := &stage{state: evict.NewState(), fits: map[string]string{}}
	options := Options{
		Settings: settings, Policy: limits, PriorityClass: class,
		Cluster: s, Writer: s,
		Nodes:  cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Node{}, 0, cache.Indexers{}),
		Pods:   cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Pod{}, 0, cache.Indexers{}),
		Jobs:   cache.NewStore(cache.MetaNamespaceKeyFunc),
		Fitter: s, Clock: clock.RealClock{},
	}
	for _, n := range nodes {
		s.state.SetNode(n.Name, n.Labels)
		_ = options.Nodes.GetStore().Add(n)
	}
	workloads := map[string]int{}
	for _, p := range pods {
		_ = options.Pods.GetStore().Add(p)
		known := evict.Pod{
			UID: string(p.UID), Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName, Labels: p.Labels,
			Created: p.CreationTimestamp.Time, Ready: true, Failed: p.Status.Phase == corev1.PodFailed,
			Evictable: has(p, annotation.Evictable),
		}
		if p.Spec.Priority != nil {
			known.Priority = *p.Spec.Priority
		}
		for _, v := range p.Spec.Volumes {
			if v.EmptyDir != nil {
				known.LocalVolume = v.Name
			}
		}
		if o := metav1.GetControllerOf(p); o != nil {
			known.Workload = evict.Key(p.Namespace, o.Kind, o.Name)
			workloads[known.Workload]++
		}
		s.state.SetPod(known)
	}
	for key, n := range workloads {
		s.state.SetWorkload(evict.Workload{
			Key: key, Kind: evict.ReplicaSet, Replicas: n, StatusReplicas: n, Updated: n,
			Ready: n,
		})
	}
	if s.Runner, err = New(options); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stage) Fit(_ context.Context, p *corev1.Pod, nodes []string) (string, error) {
	s.asked++
	if node := s.fits[p.Name]; slices.Contains(nodes, node) {
		return node, s.fitErr
	}
	return "", s.fitErr
}

// moved runs a round and returns the pods for which there are jobs, in order.
func (s *stage) moved(t *testing.T) (names []string) {
	t.Helper()
	testkit.Check(t, s.Round(t.Context()))
	for _, j := range s.jobs {
		names = append(names, j.Spec.PodRef.Name)
	}
	return names
}

// refusals are the codes of what refused each pod in the last round.
func (s *stage) refused() map[string]string {
	all := map[string]string{}
	for _, d := range s.last {
		for _, r := range d.Refusals {
			all[d.Pod] += string(r.Code) + " "
		}
		all[d.Pod] = strings.TrimSpace(all[d.Pod])
	}
	return all
}

// web returns a pod of a ReplicaSet that is old enough to be moved.
func web(name, node string, more ...object.PodOption) *corev1.Pod {
	all := append([]object.PodOption{
		object.On(node), object.Created(start), object.Scheduler("tenon-scheduler"), object.Phase(corev1.PodRunning),
		owned("ReplicaSet", "web"),
	}, more...)
	return object.Pod(name, all...)
}

func owned(kind, name string) object.PodOption {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: kind, Name: name, UID: types.UID(name), Controller: new(true),
		}}
	}
}

func nodes(names ...string) (all []*corev1.Node) {
	for _, name := range names {
		all = append(all, object.Node(name, map[string]string{"kubernetes.io/hostname": name}))
	}
	return all
}

// lifetime moves every pod that is older than an hour, with more of the profile before it and more arguments after it.
func lifetime(top, config string) string {
	return top + "profiles:\n- name: p\n  plugins: {deschedule: {enabled: [PodLifeTime]}}\n  pluginConfig:\n" +
		"  - {name: PodLifeTime, args: {maxPodLifeTimeSeconds: 3600}}\n" + config
}

const noLimits = "  - name: MigrationController\n    args: {maxMigratingPerNode: 0, objectLimiters: {workload: " +
	"{duration: 0s}}, maxMigratingPerWorkload: 100%, maxUnavailablePerWorkload: 100%, " +
	"skipCheckExpectedReplicas: true}\n"

func TestTheEvictorsDecide(t *testing.T) {
	t.Parallel()
	localStorage := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{
			Name:         "scratch",
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		}}
	}
	claims := func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }
	evictorArgs := func(args string) string {
		return lifetime("", noLimits+"  - name: DefaultEvictor\n    args: "+args+"\n")
	}
	for name, c := range map[string]struct {
		config string
		pod    *corev1.Pod
		want   string // the codes; "" where the pod is moved
	}{
		"a pod that nothing protects": {lifetime("", noLimits), web("a", "n0"), ""},
		"a bare pod": {lifetime("", noLimits), web("a", "n0",
			func(p *corev1.Pod) { p.OwnerReferences = nil }), "BarePod"},
		"local storage": {lifetime("", noLimits), web("a", "n0", localStorage), "LocalStorage"},
		"local storage with the annotation": {lifetime("", noLimits), web("a", "n0", localStorage,
			object.Annotation(annotation.Evictable, "true")), ""},
		"local storage that the profile allows": {evictorArgs("{evictLocalStoragePods: true}"), web("a", "n0",
			localStorage), ""},
		"a pod of another scheduler": {
			lifetime("", noLimits), web("a", "n0", object.Scheduler("other")), "Protected",
		},
		"a pod that another program moves": {
			lifetime("", noLimits), web("a", "n0", object.Annotation(annotation.EvictionInProgress, "true")),
			"AlreadyEvicting",
		},
		"a pod that prefers no eviction": {
			evictorArgs("{}"), web("a", "n0", object.Annotation(annotation.PreferNoEviction, "true")), "",
		},
		"a pod that prefers no eviction where that is mandatory": {
			evictorArgs("{noEvictionPolicy: Mandatory}"),
			web("a", "n0", object.Annotation(annotation.PreferNoEviction, "true")), "Protected",
		},
		"resource claims": {evictorArgs("{}"), web("a", "n0", claims), ""},
		"resource claims, protected": {
			evictorArgs("{podProtections: {extraEnabled: [PodsWithResourceClaims]}}"),
			web("a", "n0", claims), "Protected",
		},
		"no PodDisruptionBudget":      {evictorArgs("{ignorePodsWithoutPDB: true}"), web("a", "n0"), "Protected"},
		"fewer replicas than allowed": {evictorArgs("{minReplicas: 5}"), web("a", "n0"), "ExpectedReplicas"},
		"a failed pod, fewer replicas than allowed": {
			evictorArgs("{minReplicas: 5}"), web("a", "n0", object.Phase(corev1.PodFailed)), "",
		},
		"a failed pod of one replica": {lifetime("", ""), web("a", "n0", object.Phase(corev1.PodFailed)), ""},
		"a priority by class": {evictorArgs("{priorityThreshold: {name: high}}"), web("a", "n0",
			object.Priority(1000)), "PriorityThreshold"},
		"a priority below the class": {evictorArgs("{priorityThreshold: {name: high}}"), web("a", "n0",
			object.Priority(999)), ""},
		"labels that do not match": {
			evictorArgs("{labelSelector: {matchLabels: {app: web}}}"), web("a", "n0"),
			"LabelSelector",
		},
		"a pod younger than the profile allows": {
			evictorArgs("{minPodAge: 3h}"), web("a", "n0", object.Created(start.Add(-2*time.Hour))), "MinAge",
		},
		"a namespace that is never touched": {
			lifetime("", noLimits), web("kube-system/a", "n0"), "NamespaceNotInCanary",
		},
		"paused": {
			lifetime("", "  - {name: MigrationController, args: {paused: true, skipCheckExpectedReplicas: true, "+
				"maxMigratingPerWorkload: 100%, maxUnavailablePerWorkload: 100%}}\n"), web("a", "n0"), "Paused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.pod.CreationTimestamp.Time.Equal(start) {
				c.pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-24 * time.Hour))
			} else {
				c.pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-2 * time.Hour))
			}
			s := newStage(t, c.config, nodes("n0", "n1"), c.pod)
			moved := s.moved(t)
			if got := s.refused()[c.pod.Name]; got != c.want || (len(moved) == 1) != (c.want == "") {
				t.Errorf("got refusals %q and jobs for %v, want %q", got, moved, c.want)
			}
		})
	}
}

func TestAnAcceptedMoveIsAJobOfThePodWithItsUID(t *testing.T) {
	t.Parallel()
	pod := web("a", "n0")
	s := newStage(t, lifetime("gracePeriodSeconds: 7\n", noLimits), nodes("n0", "n1"), pod)
	s.moved(t)
	want := v1alpha1.PodMigrationJobSpec{
		PodRef:        &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "a", UID: pod.UID},
		DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: new(int64(7))},
	}
	if diff := cmp.Diff(want, s.jobs[0].Spec); diff != "" {
		t.Errorf("the job (-want +got):\n%s", diff)
	}
	if got := s.jobs[0].Annotations[annotation.MigrationPlugin]; got != "p/PodLifeTime" {
		t.Errorf("the job is of %q, want p/PodLifeTime", got)
	}
}

func TestALimitCountsThePodsOfTheRound(t *testing.T) {
	t.Parallel()
	pods := func() (all []*corev1.Pod) {
		for i := range 6 {
			all = append(all, web(fmt.Sprint("a", i), fmt.Sprint("n", i%2), owned("ReplicaSet", fmt.Sprint("w", i))))
		}
		return all
	}
	for name, c := range map[string]struct {
		config string
		want   int
	}{
		"without a limit":      {lifetime("", noLimits), 6},
		"in all":               {lifetime("maxNoOfPodsToEvictTotal: 3\n", noLimits), 3},
		"of a node":            {lifetime("maxNoOfPodsToEvictPerNode: 1\n", noLimits), 2},
		"of a namespace":       {lifetime("maxNoOfPodsToEvictPerNamespace: 1\n", noLimits), 1},
		"none":                 {lifetime("maxNoOfPodsToEvictTotal: 0\n", noLimits), 0},
		"at a time, of a node": {lifetime("", strings.Replace(noLimits, "PerNode: 0", "PerNode: 2", 1)), 4},
		"without a limit, dry": {lifetime("", strings.Replace(noLimits, "{max", "{dryRun: true, max", 1)), 6},
		"at a time of a node, dry": {lifetime("", strings.Replace(noLimits, "{maxMigratingPerNode: 0",
			"{dryRun: true, maxMigratingPerNode: 2", 1)), 4},
		"in all, with an old round": {lifetime("maxNoOfPodsToEvictTotal: 3\n", noLimits), 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, c.config, nodes("n0", "n1"), pods()...)
			jobs := s.moved(t)
			accepted := 0
			for _, d := range s.last {
				if len(d.Refusals) == 0 {
					accepted++
				}
			}
			if accepted != c.want || !strings.Contains(name, "dry") && len(jobs) != c.want || strings.Contains(name,
				"dry") && len(jobs) > 0 {
				t.Errorf("accepted %d, jobs for %v, want %d; refused %v", accepted, jobs, c.want, s.refused())
			}
			if _, left := s.state.Job("proposed a0"); left {
				t.Error("a proposed job was left in the state")
			}
		})
	}
}

// hasty is a Writer whose jobs have failed before their creation is answered.
type hasty struct{ *stage }

func (h hasty) CreateJob(ctx context.Context, j *v1alpha1.PodMigrationJob) (*v1alpha1.PodMigrationJob, error) {
	made, err := h.stage.CreateJob(ctx, j)
	h.state.SetJob(move.Job{
		UID: string(made.UID), PodUID: string(j.Spec.PodRef.UID), Namespace: "default", Source: "n0",
		Created: time.Now().Add(-time.Second), Status: move.Status{Phase: move.Failed},
	})
	return made, err
}

func TestALimitOfTheRoundCountsAJobThatHasEnded(t *testing.T) {
	t.Parallel()
	config := lifetime("maxNoOfPodsToEvictTotal: 1\n", noLimits)
	s := newStage(t, config, nodes("n0", "n1"), web("a", "n0"), web("b", "n1"))
	s.Writer = hasty{s}
	if moved := s.moved(t); len(moved) != 1 {
		t.Errorf("jobs for %v, want one", moved)
	}
}

func TestAPodIsMovedOnlyWhereTheSchedulerFindsANode(t *testing.T) {
	t.Parallel()
	fit := strings.Replace(noLimits, "{max", "{nodeFit: true, nodeSelector: kubernetes.io/hostname!=n2, max", 1)
	for name, c := range map[string]struct {
		node string
		err  error
		want string
	}{
		"another node":                        {"n1", nil, ""},
		"no node":                             {"", nil, "NodeFit"},
		"the node where it is":                {"n0", nil, "NodeFit"},
		"a node that is not selected":         {"n2", nil, "NodeFit"},
		"no answer":                           {"n1", errors.New("timeout"), "LookupFailed"},
		"no answer, and no node in its place": {"", errors.New("timeout"), "LookupFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, lifetime("", fit), nodes("n0", "n1", "n2"), web("a", "n0"))
			s.fits["a"], s.fitErr = c.node, c.err
			if moved := s.moved(t); s.refused()["a"] != c.want || (len(moved) == 1) != (c.want == "") {
				t.Errorf("got %v, jobs for %v, want %q", s.refused(), moved, c.want)
			}
		})
	}
}

func TestTheOrderOfPods(t *testing.T) {
	t.Parallel()
	class := func(c corev1.PodQOSClass) object.PodOption { return func(p *corev1.Pod) { p.Status.QOSClass = c } }
	want := []*corev1.Pod{
		web("low", "n0", object.Priority(1), class(corev1.PodQOSGuaranteed)),
		web("best-effort", "n0", object.Priority(2), class(corev1.PodQOSBestEffort)),
		web("burstable", "n0", object.Priority(2), class(corev1.PodQOSBurstable)),
		web("young", "n0", object.Priority(2), class(corev1.PodQOSGuaranteed), object.Created(start.Add(time.Second))),
		web("old", "n0", object.Priority(2), class(corev1.PodQOSGuaranteed)),
		web("high", "n0", object.Priority(3), class(corev1.PodQOSBestEffort)),
		web("prefers", "n0", object.Priority(0), object.Annotation(annotation.PreferNoEviction, "")),
	}
	want[6].Annotations[annotation.PreferNoEviction] = ""
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, plugin.Before)
	for i := range want {
		if got[i].Name != want[i].Name {
			t.Errorf("position %d has %s, want %s", i, got[i].Name, want[i].Name)
		}
	}
}

func TestADeletionCostOfAUserStays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		annotations map[string]string
		dry         bool
		want        int // patches
	}{
		"none":            {nil, false, 1},
		"a user's":        {map[string]string{corev1.PodDeletionCost: "7"}, false, 0},
		"an older one":    {map[string]string{corev1.PodDeletionCost: "7", annotation.OwnDeletionCost: "7"}, false, 1},
		"the same":        {map[string]string{corev1.PodDeletionCost: "5", annotation.OwnDeletionCost: "5"}, false, 0},
		"changed by user": {map[string]string{corev1.PodDeletionCost: "8", annotation.OwnDeletionCost: "7"}, false, 0},
		"dry run":         {nil, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := web("a", "n0")
			maps.Copy(pod.Annotations, c.annotations)
			s := newStage(t, "", nodes("n0"), pod)
			s.Settings.DryRun = c.dry
			if err := s.newRound().SetDeletionCost(t.Context(), pod, 5); err != nil || len(s.patches) != c.want {
				t.Errorf("got %v, patches %v, want %d", err, s.patches, c.want)
			}
		})
	}
}

func TestAJobThatCannotBeCreatedIsARefusal(t *testing.T) {
	t.Parallel()
	s := newStage(t, lifetime("maxNoOfPodsToEvictTotal: 1\n", noLimits), nodes("n0", "n1"), web("a", "n0"), web("b",
		"n1"))
	s.refuse = errors.New("conflict")
	s.moved(t)
	want := map[string]string{"a": "LookupFailed", "b": "LookupFailed"}
	if diff := cmp.Diff(want, s.refused()); diff != "" {
		t.Errorf("refusals (-want +got):\n%s", diff)
	}
}

func TestNoRoundBeginsBeforeTheCachesAreComplete(t *testing.T) {
	t.Parallel()
	s := newStage(t, lifetime("", noLimits), nodes("n0", "n1"), web("a", "n0"))
	s.unsynced = func() []string { return []string{"Pods"} }
	if err := s.Round(t.Context()); err == nil || len(s.jobs) > 0 {
		t.Errorf("got %v and %d jobs, want an error and none", err, len(s.jobs))
	}
}

func TestRoundsBeginAtTheIntervalAndWhenNodesChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, lifetime("", noLimits), nodes("n0", "n1"), web("a", "n0"))
		var began []time.Duration
		first := time.Now()
		s.unsynced = func() []string {
			if time.Since(first) < 2*time.Second {
				return []string{"Pods"}
			}
			began = append(began, time.Since(first))
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = s.Start(ctx) }()
		<-time.After(time.Minute)
		same := nodes("n0")[0]
		s.nodeChanged(same, same.DeepCopy())
		<-time.After(time.Second)
		for range 3 { // as when the nodes of a group change
			tainted := same.DeepCopy()
			tainted.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}
			s.nodeChanged(same, tainted)
		}
		<-time.After(2 * time.Minute)
		cancel()
		synctest.Wait()
		// The first one is asked for twice.
		want := []time.Duration{
			2 * time.Second, 2 * time.Second, 61 * time.Second, 66 * time.Second, 122 * time.Second,
		}
		if diff := cmp.Diff(want, began); diff != "" {
			t.Errorf("rounds began (-want +got):\n%s", diff)
		}
	})
}
