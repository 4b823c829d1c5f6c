package kube_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
)

func publishedPodGroup(group, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1alpha1", "kind": "PodGroup",
		"metadata": map[string]any{
			"name": name, "namespace": "n", "annotations": map[string]any{annotation.GangMode: "NonStrict"},
			"managedFields": []any{map[string]any{"manager": "m"}},
		},
		"spec":   spec,
		"status": map[string]any{"phase": "Running", "running": "many", "scheduled": int64(2)},
	}}
}

func TestPodGroupsOfEachGroupAreRead(t *testing.T) {
	t.Parallel()
	for _, group := range v1alpha1.Groups() {
		c, _ := client(t,
			publishedPodGroup(group, "a", map[string]any{
				"minMember": int64(3), "minResources": map[string]any{"cpu": "2"}, "scheduleTimeoutSeconds": int64(60),
			}),
			publishedPodGroup(group, "says-nothing", map[string]any{"minMember": nil}),
			publishedPodGroup(group, "odd", map[string]any{
				"minMember": "3", "minResources": map[string]any{"cpu": "1e-9999999"},
				"scheduleTimeoutSeconds": int64(1 << 31),
			}))
		i := kube.NewPodGroupInformer(c, podGroups(group))
		start(t, i)
		type read struct {
			Min, CPUs int64
			Seconds   any
			Unread    []string
		}
		got := map[string]read{}
		for _, object := range i.GetStore().List() {
			g := object.(*v1alpha1.PodGroup)
			r := read{
				Min: int64(g.Spec.MinMember), CPUs: g.Spec.MinResources.Cpu().Value(),
				Unread: slices.Sorted(maps.Keys(g.Unread)),
			}
			if g.Spec.ScheduleTimeoutSeconds != nil {
				r.Seconds = *g.Spec.ScheduleTimeoutSeconds
			}
			got[g.Namespace+"/"+g.Name] = r
			if gvk := g.GroupVersionKind(); gvk.Group != group || gvk.Kind != "PodGroup" || g.ManagedFields != nil ||
				g.Annotations[annotation.GangMode] != "NonStrict" || g.Status.Phase != v1alpha1.PodGroupRunning ||
				g.Status.Scheduled != 2 {
				t.Errorf("%s of %s: read %+v", g.Name, group, g)
			}
		}
		want := map[string]read{
			"n/a": {3, 2, int32(60), nil}, "n/says-nothing": {},
			"n/odd": {Unread: []string{"spec.minMember", "spec.minResources", "spec.scheduleTimeoutSeconds"}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", group, diff)
		}
	}
}

// What API servers of Kubernetes 1.36 and 1.37 print.
const (
	of136 = `{"apiVersion":"scheduling.k8s.io/v1alpha2","kind":"PodGroup","metadata":{"name":"train-workers-x7k2p",` +
		`"namespace":"ml","uid":"0a1f","resourceVersion":"812","creationTimestamp":"2026-05-04T09:11:31Z",` +
		`"annotations":{"gang.scheduling.koordinator.sh/mode":"NonStrict"},"finalizers":[` +
		`"scheduling.k8s.io/podgroup-protection"],"ownerReferences":[{"apiVersion":"scheduling.k8s.io/v1alpha2",` +
		`"kind":"Workload","name":"train","uid":"9d","controller":true}],"managedFields":[{"manager":"m"}]},` +
		`"spec":{"podGroupTemplateRef":{"workload":{"workloadName":"train","podGroupTemplateName":"workers"}},` +
		`"schedulingPolicy":{"gang":{"minCount":4}},"disruptionMode":"PodGroup","priority":100},` +
		`"status":{"conditions":[{"type":"PodGroupScheduled","status":"True","observedGeneration":1,` +
		`"lastTransitionTime":"2026-05-04T09:11:32Z","reason":"Scheduled","message":""}]}}`
	of137 = `{"apiVersion":"scheduling.k8s.io/v1beta1","kind":"PodGroup","metadata":{"name":"train-workers-x7k2p",` +
		`"namespace":"ml","uid":"0a1f","resourceVersion":"9120","generation":2,"creationTimestamp":` +
		`"2026-09-01T10:00:00Z","annotations":{"gang.scheduling.koordinator.sh/mode":"NonStrict"},"managedFields":[` +
		`{"manager":"m"}]},"spec":{"workloadRef":{"workloadName":"train","templateName":"workers"},` +
		`"schedulingPolicy":{"gang":{"minCount":4}},"disruptionMode":{"all":{}},"preemptionPolicy":` +
		`"PreemptLowerPriority","priority":100},"status":{"conditions":[{"type":"DisruptionTarget","status":"False",` +
		`"lastTransitionTime":null,"reason":"","message":""},{"type":"PodGroupInitiallyScheduled","status":"True",` +
		`"lastTransitionTime":"2026-09-01T10:00:02Z","reason":"Scheduled","message":""}]}}`
)

// withSpec is one of them with another spec, without status.
func withSpec(recorded, name, policy, more string) string {
	head, _, _ := strings.Cut(recorded, `,"spec":`)
	return strings.Replace(head, "train-workers-x7k2p", name, 1) + `,"spec":{"schedulingPolicy":` + policy + more + "}}"
}

// TestPodGroupsOfKubernetesAreRead of a server that has one of the two versions.
func TestPodGroupsOfKubernetesAreRead(t *testing.T) {
	t.Parallel()
	type read struct {
		Min          int32
		Basic, Whole bool
		Started      bool
		Priority     int32
		Unread       string
		Key          string
		Never        bool
		Parent       string
		Claims       string
	}
	for version, recorded := range map[string]string{"v1alpha2": of136, "v1beta1": of137} {
		const policy = "spec.schedulingPolicy must have either gang or basic, is "
		const count = "spec.schedulingPolicy.gang.minCount must be a whole number from 1 to 2147483647, is "
		const oneKey = "spec.schedulingConstraints.topology[0].key must be the key of a label of nodes, is "
		const keys = "spec.schedulingConstraints.topology must have at most one key, is "
		const mode = "spec.disruptionMode must be Pod, PodGroup, {single: {}} or {all: {}}, is "
		const claims = "spec.resourceClaims must be a list of objects with name and either resourceClaimName or " +
			"resourceClaimTemplateName, is "
		specs := map[string]struct {
			policy, more string
			want         read
		}{
			"basic": {`{"basic":{}}`, `,"disruptionMode":"Pod"`, read{Basic: true}},
			"whole": {
				`{"basic":{},"gang":null}`, `,"disruptionMode":{"all":{}}`, read{Basic: true, Whole: true},
			},
			"single":     {`{"gang":{"minCount":2}}`, `,"disruptionMode":{"single":{}}`, read{Min: 2}},
			"no-mode":    {`{"gang":{"minCount":2}}`, `,"disruptionMode":null`, read{Min: 2}},
			"none":       {`null`, "", read{Unread: policy + "null"}},
			"empty":      {`{}`, "", read{Unread: policy + "{}"}},
			"both":       {`{"basic":{},"gang":{}}`, "", read{Unread: policy + `{"basic":{},"gang":{}}`}},
			"new-policy": {`{"elastic":{"max":3}}`, "", read{Unread: policy + `{"elastic":{"max":3}}`}},
			"odd-policy": {`"gang"`, "", read{Unread: policy + `"gang"`}},
			"no-count":   {`{"gang":{}}`, "", read{Unread: count + "absent"}},
			"null-count": {`{"gang":{"minCount":null}}`, "", read{Unread: count + "null"}},
			"zero":       {`{"gang":{"minCount":0}}`, "", read{Unread: count + "0"}},
			"negative":   {`{"gang":{"minCount":-1}}`, "", read{Unread: count + "-1"}},
			"large":      {`{"gang":{"minCount":2147483648}}`, "", read{Unread: count + "2147483648"}},
			"in-words":   {`{"gang":{"minCount":"3"}}`, "", read{Unread: count + `"3"`}},
			"together": {
				`{"gang":{"minCount":2}}`, `,"schedulingConstraints":{"topology":[{"key":"example.com/rack"}]}`,
				read{Min: 2, Key: "example.com/rack"},
			},
			"anywhere":  {`{"gang":{"minCount":2}}`, `,"schedulingConstraints":{"topology":[]}`, read{Min: 2}},
			"anywhere2": {`{"gang":{"minCount":2}}`, `,"schedulingConstraints":null`, read{Min: 2}},
			"two-keys": {
				`{"gang":{"minCount":2}}`, `,"schedulingConstraints":{"topology":[{"key":"a"},{"key":"b"}]}`,
				read{Min: 2, Unread: keys + `{"topology":[{"key":"a"},{"key":"b"}]}`},
			},
			"odd-constraints": {
				`{"gang":{"minCount":2}}`, `,"schedulingConstraints":7`, read{Min: 2, Unread: keys + `7`},
			},
			"odd-key": {
				`{"gang":{"minCount":2}}`, `,"schedulingConstraints":{"topology":[{"key":"a b"}]}`,
				read{Min: 2, Unread: oneKey + `"a b"`},
			},
			"no-key": {
				`{"gang":{"minCount":2}}`, `,"schedulingConstraints":{"topology":[{}]}`,
				read{Min: 2, Unread: oneKey + `""`},
			},
			"of-another-api": {`{"gang":{"minCount":2}}`, `,"minMember":9`, read{Min: 2}},
			"new-mode": {
				`{"gang":{"minCount":2}}`, `,"disruptionMode":"Job"`, read{Min: 2, Unread: mode + `"Job"`},
			},
			"odd-priority": {
				`{"gang":{"minCount":2}}`, `,"priority":"high"`,
				read{Min: 2, Unread: `spec.priority must be a whole number that fits int32, is "high"`},
			},
			"never":     {`{"gang":{"minCount":2}}`, `,"preemptionPolicy":"Never"`, read{Min: 2, Never: true}},
			"no-policy": {`{"gang":{"minCount":2}}`, `,"preemptionPolicy":null`, read{Min: 2}},
			"no-parent": {`{"gang":{"minCount":2}}`, `,"parentCompositePodGroupName":null`, read{Min: 2}},
			"odd-policy2": {
				`{"gang":{"minCount":2}}`, `,"preemptionPolicy":"Later"`, read{
					Min: 2, Unread: `spec.preemptionPolicy must be Never or PreemptLowerPriority, is "Later"`,
				},
			},
			"in-a-tree": {
				`{"gang":{"minCount":2}}`, `,"parentCompositePodGroupName":"root"`, read{Min: 2, Parent: "root"},
			},
			"odd-parent": {
				`{"gang":{"minCount":2}}`, `,"parentCompositePodGroupName":["root"]`,
				read{Min: 2, Unread: `spec.parentCompositePodGroupName must be a name, is ["root"]`},
			},
			"claims": {
				`{"gang":{"minCount":2}}`, `,"resourceClaims":[{"name":"a","resourceClaimName":"x"},{"name":"b",` +
					`"resourceClaimTemplateName":"y"}]`, read{Min: 2, Claims: "a x, b of y, "},
			},
			"no-claims": {`{"gang":{"minCount":2}}`, `,"resourceClaims":null`, read{Min: 2}},
			"odd-claims": {
				`{"gang":{"minCount":2}}`, `,"resourceClaims":["a"]`, read{Min: 2, Unread: claims + `["a"]`},
			},
			"claim-of-nothing": {
				`{"gang":{"minCount":2}}`, `,"resourceClaims":[{"name":"a"}]`,
				read{Min: 2, Unread: claims + `[{"name":"a"}]`},
			},
			"claim-of-both": {
				`{"gang":{"minCount":2}}`,
				`,"resourceClaims":[{"resourceClaimName":"x","resourceClaimTemplateName":"y"}]`,
				read{Min: 2, Unread: claims + `[{"resourceClaimName":"x","resourceClaimTemplateName":"y"}]`},
			},
			"claim-without-name": {
				`{"gang":{"minCount":2}}`, `,"resourceClaims":[{"resourceClaimName":"x"}]`,
				read{Min: 2, Unread: claims + `[{"resourceClaimName":"x"}]`},
			},
			"new-union": {
				`{"gang":{"minCount":2}}`, `,"disruptionMode":{"some":{}}`, read{Min: 2, Unread: mode + `{"some":{}}`},
			},
		}
		objects := []*unstructured.Unstructured{decoded(t, recorded)}
		want := map[string]read{"train-workers-x7k2p": {Min: 4, Whole: true, Started: true, Priority: 100}}
		for name, s := range specs {
			objects = append(objects, decoded(t, withSpec(recorded, name, s.policy, s.more)))
			want[name] = s.want
		}
		c, _ := client(t, objects...)
		i := kube.NewPodGroupInformer(c, podGroups(v1alpha1.NativeGroupName))
		start(t, i)
		got := map[string]read{}
		for _, object := range i.GetStore().List() {
			g := object.(*v1alpha1.PodGroup)
			r := read{Min: g.Spec.MinMember, Basic: g.Basic, Whole: g.Whole, Started: g.Status.Phase.IsStarted()}
			if g.Priority != nil {
				r.Priority = *g.Priority
			}
			for _, c := range g.Claims {
				if c.ResourceClaimTemplateName != nil {
					r.Claims += c.Name + " of " + *c.ResourceClaimTemplateName + ", "
				} else {
					r.Claims += c.Name + " " + *c.ResourceClaimName + ", "
				}
			}
			r.Key, r.Never, r.Parent = g.TopologyKey, g.NeverPreempts, g.Parent
			for _, field := range slices.Sorted(maps.Keys(g.Unread)) {
				r.Unread += field + " " + g.Unread[field]
			}
			got[g.Name] = r
			kind := schema.GroupVersionKind{Group: v1alpha1.NativeGroupName, Version: version, Kind: "PodGroup"}
			if g.GroupVersionKind() != kind || g.ManagedFields != nil || g.CreationTimestamp.IsZero() ||
				g.Annotations[annotation.GangMode] != "NonStrict" {
				t.Errorf("%s: read %+v", version, g)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", version, diff)
		}
	}
}

// What an API server of Kubernetes 1.37 prints with the feature gate CompositePodGroup.
const composite137 = `{"apiVersion":"scheduling.k8s.io/v1alpha3","kind":"CompositePodGroup","metadata":{"name":` +
	`"train-7k2p","namespace":"ml","uid":"5c","resourceVersion":"9044","generation":1,"creationTimestamp":` +
	`"2026-09-01T09:59:59Z","managedFields":[{"manager":"m"}]},"spec":{"workloadRef":{"workloadName":"train",` +
	`"templateName":"root"},"schedulingPolicy":{"gang":{"minGroupCount":2}},"disruptionMode":{"single":{}},` +
	`"priority":100,"preemptionPolicy":"PreemptLowerPriority"},"status":{}}`

// TestCompositePodGroupsOfKubernetesAreRead, of a server that serves them; fields without a meaning here are faults.
func TestCompositePodGroupsOfKubernetesAreRead(t *testing.T) {
	t.Parallel()
	specs := map[string]struct {
		policy, more string
		want         gang.Composite
	}{
		"basic": {`{"basic":{}}`, "", gang.Composite{}},
		"inner": {
			`{"gang":{"minGroupCount":3}}`, `,"parentCompositePodGroupName":"root"`,
			gang.Composite{Parent: "ml/root", Least: 3},
		},
		"whole": {
			`{"gang":{"minGroupCount":1}}`, `,"disruptionMode":{"all":{}}`, gang.Composite{Least: 1, Whole: true},
		},
		"policy": {
			`{"gang":{"minGroupCount":1},"basic":{}}`, "",
			gang.Composite{Fault: "spec.schedulingPolicy: must have either gang or basic"},
		},
		"count": {
			`{"gang":{"minCount":2}}`, "", gang.Composite{
				Fault: "spec.schedulingPolicy.gang.minGroupCount: " +
					"must be a whole number from 1 to 2147483647, is absent",
			},
		},
		"mode": {
			`{"gang":{"minGroupCount":1}}`, `,"disruptionMode":{"some":{}}`,
			gang.Composite{Least: 1, Fault: "spec.disruptionMode: must be"},
		},
		"apart": {
			`{"gang":{"minGroupCount":1}}`, `,"schedulingConstraints":{"topology":[{"key":"example.com/rack"}]}`,
			gang.Composite{Least: 1, Fault: "spec.schedulingConstraints: must be absent: that of each PodGroup counts"},
		},
	}
	objects := []*unstructured.Unstructured{decoded(t, composite137)}
	want := map[string]gang.Composite{"train-7k2p": {Exists: true, Least: 2}}
	for name, s := range specs {
		text := withSpec(composite137, name, s.policy, s.more)
		objects = append(objects, decoded(t, strings.Replace(text, "train-7k2p", name, 1)))
		if s.want.Fault != "" {
			s.want.Fault = "CompositePodGroup/ml/" + name + ": " + s.want.Fault
		}
		s.want.Exists = true
		want[name] = s.want
	}
	c, _ := client(t, objects...)
	kinds := v1alpha1.GangKinds()
	i := kube.NewPodGroupInformer(c, kinds[len(kinds)-1])
	start(t, i)
	for _, object := range i.GetStore().List() {
		g := object.(*v1alpha1.PodGroup)
		got := convert.GangComposite(g)
		if expected := want[g.Name]; expected.Fault != "" && strings.HasPrefix(got.Fault, expected.Fault) {
			got.Fault = expected.Fault
		}
		diff := cmp.Diff(want[g.Name], got)
		if diff != "" || g.ManagedFields != nil || g.Kind != v1alpha1.CompositeKind {
			t.Errorf("%s of %+v (-want +got):\n%s", g.Name, g, diff)
		}
		delete(want, g.Name)
	}
	if len(want) > 0 {
		t.Errorf("not read: %v", want)
	}
}

func podGroups(group string) v1alpha1.GangKind {
	return v1alpha1.GangKind{Kind: "PodGroup", At: v1alpha1.PodGroupResources(group)}
}

func decoded(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	testkit.Check(t, u.UnmarshalJSON([]byte(text)))
	return u
}

// TestTheVersionOfPodGroupsFollowsTheServer from Kubernetes 1.36 to 1.37, whose API server lacks the old version.
func TestTheVersionOfPodGroupsFollowsTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, server := client(t, decoded(t, of136))
		var upgraded atomic.Bool
		server.moved = func(path string) string {
			if upgraded.Load() {
				return strings.NewReplacer("v1alpha2", "gone", "v1beta1", "v1alpha2").Replace(path)
			}
			return path
		}
		i := kube.NewPodGroupInformer(c, podGroups(v1alpha1.NativeGroupName))
		// client-go's own would sleep until the process began, which is decades after the bubble's time.
		err := i.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {})
		testkit.Check(t, err)
		start(t, i)
		version := func() string {
			t.Helper()
			g, found, err := i.GetStore().GetByKey("ml/train-workers-x7k2p")
			if !found || err != nil {
				t.Fatalf("the object is not found: %v", err)
			}
			return g.(*v1alpha1.PodGroup).GroupVersionKind().Version
		}
		if got := version(); got != "v1alpha2" {
			t.Errorf("read in version %s", got)
		}
		upgraded.Store(true)
		time.Sleep(time.Hour) //nolint:forbidigo // the clock is the bubble's
		synctest.Wait()
		if got := version(); got != "v1beta1" {
			t.Errorf("read in version %s after the upgrade", got)
		}
	})
}

// FuzzPodGroup holds that whatever an object says, a gang of Kubernetes has a minimum, or a fault that names the field.
func FuzzPodGroup(f *testing.F) {
	for _, text := range []string{
		of136, of137, composite137, `{"spec":{"minMember":3,"scheduleTimeoutSeconds":60},"status":{"phase":"Running"}}`,
		`{"spec":{"schedulingPolicy":{"basic":{}},"disruptionMode":"PodGroup"}}`, `{"spec":[]}`, "null",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, kind := range v1alpha1.GangKinds() {
			g, err := kube.ReadPodGroup(kind.At[0].GroupVersion().WithKind(kind.Kind), text)
			if err != nil {
				return // of all kinds
			}
			o, c := convert.GangObject(g), convert.GangComposite(g)
			native := kind.At[0].Group == v1alpha1.NativeGroupName
			switch {
			case o.Native != native || !native && (o.Plain || o.Whole || o.Parent != ""):
				t.Fatalf("%v is read as %+v", kind, o)
			case kind.Kind == v1alpha1.CompositeKind && c.Least < 1 && c.Fault == "" && !o.Plain:
				t.Fatalf("%+v of %s", c, text)
			case native && !o.Plain && o.Settings.Min < 1 && o.Fault == "", len(o.Fault) > 2000 && len(g.Name) < 300:
				t.Fatalf("%+v of %s", o, text)
			}
		}
	})
}

func TestPodGroupsThatAreNotInstalledYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, server := client(t, publishedPodGroup(v1alpha1.CommunityGroupName, "a", nil))
		var installed atomic.Bool
		server.hidden = func() bool { return !installed.Load() }
		i := kube.NewPodGroupInformer(c, podGroups(v1alpha1.CommunityGroupName))
		start(t, i)
		if got := i.GetStore().List(); len(got) > 0 {
			t.Fatalf("got %v before the resource is served", got)
		}
		installed.Store(true)
		time.Sleep(time.Minute) //nolint:forbidigo // the clock is the bubble's
		synctest.Wait()
		if _, found, err := i.GetStore().GetByKey("n/a"); !found || err != nil {
			t.Errorf("the object is not found after its resource was installed: %v", err)
		}
	})
}
