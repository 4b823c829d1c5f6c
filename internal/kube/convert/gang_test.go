package convert_test

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

func TestGangOfAPod(t *testing.T) {
	t.Parallel()
	native := "native"
	kueueGroup := map[string]string{annotation.KueueGroup: "k"}
	kueueTotal := func(n string) map[string]string { return map[string]string{annotation.KueueGroupTotal: n} }
	with := func(all map[string]string, key, value string) map[string]string {
		all = maps.Clone(all)
		all[key] = value
		return all
	}
	for name, test := range map[string]struct {
		labels, annotations map[string]string
		native              *string
		want                string
	}{
		"none":           {annotations: map[string]string{annotation.GangMinAvailable: "2"}, want: " 0"},
		"an annotation":  {annotations: map[string]string{annotation.GangName: "a"}, want: "n/a 0"},
		"the old labels": {labels: map[string]string{annotation.LightweightGang: "l"}, want: "n/l 0"},
		"the own field":  {native: &native, labels: map[string]string{annotation.PodGroup: "g"}, want: "n/native 0"},
		"an unreadable min": {
			annotations: map[string]string{annotation.GangName: "a", annotation.GangMinAvailable: "many"},
			want:        "n/a 0",
		},
		"a negative min": {
			annotations: map[string]string{annotation.GangName: "a", annotation.GangMinAvailable: "-1"}, want: "n/a 0",
		},
		"a label before the annotation, the annotation's min": {
			labels: map[string]string{
				annotation.CommunityPodGroup: "c", annotation.LightweightGang: "l",
				annotation.LightweightMinAvailable: "4",
			},
			annotations: map[string]string{annotation.GangName: "a", annotation.GangMinAvailable: "3"}, want: "n/c 3",
		},
		"an empty label names nothing": {
			labels: map[string]string{annotation.PodGroup: "", annotation.CommunityPodGroup: "c"}, want: "n/c 0",
		},
		"the own field without a name": {
			native: new(string), labels: map[string]string{annotation.PodGroup: "g"}, want: "n/g 0",
		},
		"a name that is not valid": {
			annotations: map[string]string{annotation.GangName: "a,n/b"}, want: "n/a%2Cn%2Fb 0",
		},
		"a group of Kueue": {labels: kueueGroup, annotations: kueueTotal("3"), want: "n/k 3"},
		"a group of Kueue, with its own min": {
			labels: kueueGroup, annotations: with(kueueTotal("3"), annotation.GangMinAvailable, "2"), want: "n/k 2",
		},
		"a group of Kueue, and another name": {
			labels: kueueGroup, annotations: with(kueueTotal("3"), annotation.GangName, "a"), want: "n/a 0",
		},
		"a group of Kueue without a size":             {labels: kueueGroup, want: " 0"},
		"a group of Kueue whose size is not a number": {labels: kueueGroup, annotations: kueueTotal("x"), want: " 0"},
		"a group of Kueue that serves": {
			labels: kueueGroup, annotations: with(kueueTotal("3"), annotation.KueueGroupServing, "true"), want: " 0",
		},
		"a group of Kueue that is admitted at its first pod": {
			labels: kueueGroup, annotations: with(kueueTotal("3"), annotation.KueueGroupFast, "true"), want: " 0",
		},
		"a group of Kueue that wants no gang": {
			labels: with(kueueGroup, annotation.GangLabel, "off"), annotations: kueueTotal("3"), want: " 0",
		},
		"a group of Kueue that names a group of Volcano": {
			labels: kueueGroup, annotations: with(kueueTotal("3"), "scheduling.k8s.io/group-name", "v"), want: " 0",
		},
		"the label's min": {
			labels: map[string]string{
				annotation.PodGroup: "g", annotation.CommunityPodGroup: "c", annotation.LightweightMinAvailable: "4",
			},
			want: "n/g 4",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "n", Labels: test.labels, Annotations: test.annotations,
			}}
			if test.native != nil {
				pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: test.native}
			}
			g, _ := convert.GangPod(pod)
			if got := fmt.Sprint(g.Gang, " ", g.Settings.Min); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if p := convert.QuotaPod(pod, convert.PodAmounts(pod)); p.Gang != g.Gang {
				t.Errorf("quotas count it with the gang %q, want %q", p.Gang, g.Gang)
			}
		})
	}
}

const (
	gangs       = "gang.scheduling.koordinator.sh/"
	podGroups   = "pod-group.scheduling.sigs.k8s.io/"
	membersRule = "must be a whole number from 1 to 2147483647"
	nameRule    = "must be up to 253 letters, digits, '-', '_' and '.', with a letter or digit at both ends"
)

func gangPod(labels, annotations map[string]string) *corev1.Pod {
	p := object.Pod("n/p", object.UID(""))
	p.Labels, p.Annotations = labels, annotations
	return p
}

// TestWhenAMemberWasBound: the condition says it for a pod with a node, whatever it said before.
func TestWhenAMemberWasBound(t *testing.T) {
	t.Parallel()
	at := metav1.Unix(100, 0)
	for name, c := range map[string]struct {
		node   string
		status corev1.ConditionStatus
		want   time.Time
	}{
		"bound":                       {"n", corev1.ConditionTrue, at.Time},
		"bound, and says nothing":     {"n", "", time.Time{}},
		"bound, and says it does not": {"n", corev1.ConditionFalse, time.Time{}},
		"pending":                     {"", corev1.ConditionFalse, time.Time{}},
	} {
		p := gangPod(nil, map[string]string{gangs + "name": "a"})
		p.Spec.NodeName = c.node
		p.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(200, 0)},
			{Type: corev1.PodScheduled, Status: c.status, LastTransitionTime: at},
		}
		if g, _ := convert.GangPod(p); !g.Bound.Equal(c.want) || g.Leaving {
			t.Errorf("%s: bound at %v, leaving %t; want %v", name, g.Bound, g.Leaving, c.want)
		}
		p.DeletionTimestamp = &at
		if g, _ := convert.GangPod(p); !g.Leaving {
			t.Errorf("%s, and deleted: it does not leave", name)
		}
	}
}

func TestGangPodReadsWhichGangAndItsSettings(t *testing.T) {
	t.Parallel()
	type keys = map[string]string
	for title, test := range map[string]struct {
		native              string
		labels, annotations keys
		want                gang.Pod
	}{
		"Kubernetes' own field before all": {
			native: "own", labels: keys{annotation.PodGroup: "g"}, annotations: keys{
				gangs + "name": "a", gangs + "mode": "NonStrict",
			},
			want: gang.Pod{Gang: "n/own", InObject: true, Settings: gang.Settings{Mode: gang.NonStrict}},
		},
		"an own field that is not valid": {native: "-", want: gang.Pod{
			Gang: "n/-", InObject: true,
			Fault: `spec.schedulingGroup.podGroupName: byte 0: Invalid value "-": ` + nameRule,
		}},
		"an annotation": {annotations: keys{gangs + "name": "a"}, want: gang.Pod{Gang: "n/a"}},
		"the old label before the annotation": {
			labels: keys{podGroups + "name": "l"}, annotations: keys{gangs + "name": "a"}, want: gang.Pod{Gang: "n/l"},
		},
		"a PodGroup of the community before the old label": {
			labels: keys{annotation.CommunityPodGroup: "c", podGroups + "name": "l"},
			want:   gang.Pod{Gang: "n/c", InObject: true},
		},
		"Koordinator's PodGroup before all": {
			labels:      keys{annotation.PodGroup: "g", annotation.CommunityPodGroup: "c", podGroups + "name": "l"},
			annotations: keys{gangs + "name": "a"}, want: gang.Pod{Gang: "n/g", InObject: true},
		},
		"an empty label names nothing": {
			labels: keys{annotation.PodGroup: ""}, annotations: keys{gangs + "name": "a"}, want: gang.Pod{Gang: "n/a"},
		},
		"all settings": {
			annotations: keys{
				gangs + "name": "a", gangs + "min-available": "2", gangs + "total-number": "4",
				gangs + "mode": "NonStrict", gangs + "match-policy": "only-waiting", gangs + "waiting-time": "72h",
				gangs + "groups": `["m/b","n/a","m/b"]`, annotation.GangInterrupted: "Evict",
			},
			want: gang.Pod{Gang: "n/a", Settings: gang.Settings{
				Interrupted: gang.EvictBound,
				Min:         2, Total: 4, Mode: gang.NonStrict, Policy: gang.OnlyWaiting, Wait: 72 * time.Hour,
				Group: []string{"m/b", "n/a"},
			}},
		},
		"settings that say nothing": {
			annotations: keys{gangs + "name": "a", gangs + "waiting-time": "0s", gangs + "groups": "[]"},
			want:        gang.Pod{Gang: "n/a", Settings: gang.Settings{Group: []string{}}},
		},
		"the annotation's minimum before the label's": {
			labels:      keys{annotation.PodGroup: "g", podGroups + "min-available": "4"},
			annotations: keys{gangs + "min-available": "3"},
			want:        gang.Pod{Gang: "n/g", InObject: true, Settings: gang.Settings{Min: 3}},
		},
		"the label's minimum": {
			labels: keys{podGroups + "name": "l", podGroups + "min-available": "4"},
			want:   gang.Pod{Gang: "n/l", Settings: gang.Settings{Min: 4}},
		},
		"the policy's other key": {
			annotations: keys{gangs + "name": "a", podGroups + "match-policy": "waiting-and-running"},
			want:        gang.Pod{Gang: "n/a", Settings: gang.Settings{Policy: gang.WaitingAndRunning}},
		},
		"the policy's own key before the other": {
			annotations: keys{
				gangs + "name": "a", podGroups + "match-policy": "waiting-and-running",
				gangs + "match-policy": "once-satisfied",
			},
			want: gang.Pod{Gang: "n/a", Settings: gang.Settings{Policy: gang.OnceSatisfied}},
		},
		"a minimum that cannot be read": {
			annotations: keys{gangs + "name": "a", gangs + "min-available": "0", gangs + "total-number": "3"},
			want: gang.Pod{
				Gang: "n/a", Settings: gang.Settings{Total: 3},
				Fault: "metadata.annotations[" + gangs + `min-available]: byte 0: Invalid value "0": ` + membersRule,
			},
		},
		"a label's minimum that cannot be read": {
			labels: keys{podGroups + "name": "l", podGroups + "min-available": "x"},
			want: gang.Pod{
				Gang:  "n/l",
				Fault: "metadata.labels[" + podGroups + `min-available]: byte 0: Invalid value "x": ` + membersRule,
			},
		},
		"a minimum that cannot be read does not leave it to the label": {
			labels:      keys{podGroups + "name": "l", podGroups + "min-available": "4"},
			annotations: keys{gangs + "min-available": ""},
			want: gang.Pod{
				Gang:  "n/l",
				Fault: "metadata.annotations[" + gangs + `min-available]: byte 0: Invalid value "": ` + membersRule,
			},
		},
		"a total that cannot be read": {
			annotations: keys{gangs + "name": "a", gangs + "total-number": "-1"},
			want: gang.Pod{
				Gang:  "n/a",
				Fault: "metadata.annotations[" + gangs + `total-number]: byte 0: Invalid value "-1": ` + membersRule,
			},
		},
		"an unknown mode": {
			annotations: keys{gangs + "name": "a", gangs + "mode": "Relaxed"},
			want: gang.Pod{Gang: "n/a", Fault: "metadata.annotations[" + gangs +
				`mode]: byte 0: Unsupported value "Relaxed": supported Strict, NonStrict`},
		},
		"what becomes of an interrupted gang is unknown": {
			annotations: keys{gangs + "name": "a", annotation.GangInterrupted: "true"},
			want: gang.Pod{Gang: "n/a", Fault: "metadata.annotations[tenon.sh/gang-interrupted]: byte 0: " +
				`Unsupported value "true": supported Keep, Evict`},
		},
		"an unknown policy under the other key": {
			annotations: keys{gangs + "name": "a", podGroups + "match-policy": "once"},
			want: gang.Pod{Gang: "n/a", Fault: "metadata.annotations[" + podGroups + `match-policy]: byte 0: ` +
				`Unsupported value "once": supported once-satisfied, only-waiting, waiting-and-running`},
		},
		"a waiting time without unit": {
			annotations: keys{gangs + "name": "a", gangs + "waiting-time": "600"},
			want: gang.Pod{Gang: "n/a", Fault: "metadata.annotations[" + gangs + `waiting-time]: byte 0: ` +
				`Invalid value "600": must be a Go duration of at most 290 years, such as 600s, 1h30m or 48h`},
		},
		"a group without namespaces": {
			annotations: keys{gangs + "name": "a", gangs + "groups": `["a","b"]`},
			want: gang.Pod{Gang: "n/a", Fault: "metadata.annotations[" + gangs + `groups]: byte 0: [0]: ` +
				`Invalid value "a": must be namespace/name of a gang; the name ` + nameRule},
		},
		"a name that would be two gangs": {
			annotations: keys{gangs + "name": "a,n/b"},
			want: gang.Pod{
				Gang:  "n/a%2Cn%2Fb",
				Fault: "metadata.annotations[" + gangs + `name]: byte 0: Invalid value "a,n/b": ` + nameRule,
			},
		},
		"a label that is not valid": {
			labels: keys{annotation.PodGroup: "-"},
			want: gang.Pod{
				Gang: "n/-", InObject: true,
				Fault: "metadata.labels[" + annotation.PodGroup + `]: byte 0: Invalid value "-": ` + nameRule,
			},
		},
		"of several faults the name's": {
			annotations: keys{gangs + "name": "a b", gangs + "mode": "x", gangs + "min-available": "x"},
			want: gang.Pod{
				Gang:  "n/a%20b",
				Fault: "metadata.annotations[" + gangs + `name]: byte 0: Invalid value "a b": ` + nameRule,
			},
		},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			test.want.Namespace, test.want.Name = "n", "p"
			if test.want.Fault != "" {
				test.want.Fault = "Pod/n/p: " + test.want.Fault
			}
			p := gangPod(test.labels, test.annotations)
			p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &test.native}
			got, ok := convert.GangPod(p)
			if diff := cmp.Diff(test.want, got); diff != "" || !ok {
				t.Errorf("%v (-want +got):\n%s", ok, diff)
			}
		})
	}
}

// F21: a gang is ignored because the kind of its owner is not known.
func TestGangPodReadsTheRestOfThePod(t *testing.T) {
	t.Parallel()
	created, priority := time.Unix(1, 0), int32(7)
	p := gangPod(map[string]string{annotation.PodGroup: "g"}, nil)
	p.UID, p.CreationTimestamp, p.Spec.NodeName, p.Spec.Priority = "u", metav1.NewTime(created), "node", &priority
	p.OwnerReferences = []metav1.OwnerReference{{UID: "no controller"}, {
		APIVersion: "example.com/v9", Kind: "Unheard", UID: "job", Controller: new(true),
	}}
	p.Annotations = map[string]string{annotation.DeviceJointAllocateKey: `{"deviceTypes":["rdma","gpu"]}`}
	got, ok := convert.GangPod(p)
	want := gang.Pod{
		UID: "u", Namespace: "n", Name: "p", Gang: "n/g", InObject: true, Priority: 7, Created: created, Node: "node",
		Owner: "job", Joint: true,
	}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("%v (-want +got):\n%s", ok, diff)
	}
}

func TestWhoWantsGPUsNextToThoseOfOthers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{"deviceTypes":["gpu"]}`: true, `{"deviceTypes":["rdma"]}`: false, `{"deviceTypes":`: false, "": false,
	} {
		p := gangPod(nil, map[string]string{annotation.GangName: "g", annotation.DeviceJointAllocateKey: text})
		if got, _ := convert.GangPod(p); got.Joint != want || got.Fault != "" {
			t.Errorf("%s: got %v, %s", text, got.Joint, got.Fault)
		}
	}
}

// TestWhoAsksForWholeGPUs: not with a share, a MIG device or an amount that is not valid.
func TestWhoAsksForWholeGPUs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		asks []string // resources and amounts, a container for each pair
		want bool
	}{
		"NVIDIA's":        {[]string{"nvidia.com/gpu", "2"}, true},
		"in percent":      {[]string{"koordinator.sh/gpu", "200"}, true},
		"of two":          {[]string{"nvidia.com/gpu", "1", "nvidia.com/gpu", "2"}, true},
		"with an adapter": {[]string{"nvidia.com/gpu", "1", "koordinator.sh/rdma", "100"}, true},
		"a share":         {[]string{"koordinator.sh/gpu", "50"}, false},
		"a share as well": {[]string{"koordinator.sh/gpu", "100", "koordinator.sh/gpu", "50"}, false},
		"a MIG device":    {[]string{"nvidia.com/mig-1g.5gb", "1"}, false},
		"an adapter":      {[]string{"koordinator.sh/rdma", "100"}, false},
		"not valid":       {[]string{"koordinator.sh/gpu", "150"}, false},
		"no device":       {[]string{"cpu", "1"}, false},
	} {
		p := gangPod(nil, map[string]string{annotation.GangName: "g"})
		p.Spec.Containers = nil
		for i := 0; i < len(c.asks); i += 2 {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
				Name: fmt.Sprint("c", i), Resources: object.Equal(c.asks[i], c.asks[i+1]),
			})
		}
		if got, _ := convert.GangPod(p); got.WholeGPUs != c.want {
			t.Errorf("%s: got %t, want %t", name, got.WholeGPUs, c.want)
		}
	}
}

func TestPodsWithoutAGangCostNothing(t *testing.T) {
	native := gangPod(nil, nil)
	native.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{}
	many := map[string]string{}
	for i := range 50 {
		many[fmt.Sprintf("example.com/%d", i)] = "x"
	}
	for title, p := range map[string]*corev1.Pod{
		"nothing said": gangPod(nil, nil), "keys of others": gangPod(many, many),
		"settings alone": gangPod(nil, map[string]string{annotation.GangMinAvailable: "x"}),
		"empty names": gangPod(
			map[string]string{annotation.PodGroup: ""}, map[string]string{annotation.GangName: ""},
		),
		"the own field of Kubernetes without a name": native,
	} {
		if got, ok := convert.GangPod(p); ok || !reflect.DeepEqual(got, gang.Pod{}) {
			t.Errorf("%s: got %+v", title, got)
		}
		if n := testing.AllocsPerRun(100, func() { convert.GangPod(p) }); n > 0 {
			t.Errorf("%s: %v allocations", title, n)
		}
	}
}

func TestGangObjectReadsAnnotationsBeforeTheSpec(t *testing.T) {
	t.Parallel()
	type keys = map[string]string
	seconds := func(n int32) *int32 { return &n }
	for title, test := range map[string]struct {
		annotations keys
		spec        v1alpha1.PodGroupSpec
		unread      keys
		key         string
		want        gang.Object
	}{
		"nothing said": {},
		"the spec": {
			spec: v1alpha1.PodGroupSpec{MinMember: 3, ScheduleTimeoutSeconds: seconds(1<<31 - 1)},
			want: gang.Object{Settings: gang.Settings{Min: 3, Wait: (1<<31 - 1) * time.Second}},
		},
		"numbers below 1 say nothing": {
			spec: v1alpha1.PodGroupSpec{MinMember: -3, ScheduleTimeoutSeconds: seconds(-1)},
		},
		"annotations before the spec": {
			annotations: keys{
				gangs + "min-available": "4", gangs + "waiting-time": "5s", gangs + "mode": "NonStrict",
				gangs + "total-number": "6", podGroups + "match-policy": "only-waiting",
				gangs + "groups": `["n/g","n/h"]`,
			},
			spec: v1alpha1.PodGroupSpec{MinMember: 3, ScheduleTimeoutSeconds: seconds(60)},
			want: gang.Object{Settings: gang.Settings{
				Min: 4, Total: 6, Mode: gang.NonStrict, Policy: gang.OnlyWaiting, Wait: 5 * time.Second,
				Group: []string{"n/g", "n/h"},
			}},
		},
		"domains of the network": {
			annotations: keys{gangs + "network-topology-spec": `{"gatherStrategy":[{"layer":"Block","strategy":` +
				`"MustGather","podCountMultiple":1},{"layer":"Spine","strategy":"prefergather",` +
				`"podCountMultiple":4}]}`},
			key: "rack",
			want: gang.Object{Settings: gang.Settings{
				DomainRules: []domain.Rule{{Layer: "Block", Must: true}, {Layer: "Spine", Multiple: 4}},
			}},
		},
		"a label of nodes": {
			key:  "rack",
			want: gang.Object{Settings: gang.Settings{DomainRules: []domain.Rule{{Label: "rack", Must: true}}}},
		},
		"domains that cannot be read": {
			annotations: keys{gangs + "network-topology-spec": `{"gatherStrategy":[{"layer":"Block"}]}`},
			want: gang.Object{Fault: "metadata.annotations[" + gangs + "network-topology-spec]: byte 18: " +
				"gatherStrategy.0.strategy: must be one of MustGather, PreferGather"},
		},
		"an annotation that cannot be read": {
			annotations: keys{gangs + "min-available": "x"}, spec: v1alpha1.PodGroupSpec{MinMember: 3},
			want: gang.Object{
				Settings: gang.Settings{Min: 3},
				Fault:    "metadata.annotations[" + gangs + `min-available]: byte 0: Invalid value "x": ` + membersRule,
			},
		},
		"the first field that cannot be read": {
			unread: keys{"spec.scheduleTimeoutSeconds": "bad", "spec.minMember": "worse"},
			want:   gang.Object{Fault: "spec.minMember: worse"},
		},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			created := time.Unix(1, 0)
			test.want.Gang, test.want.Created = "n/g", created
			if test.want.Fault != "" {
				test.want.Fault = "PodGroup/n/g: " + test.want.Fault
			}
			got := convert.GangObject(&v1alpha1.PodGroup{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "n", Name: "g", Annotations: test.annotations,
					CreationTimestamp: metav1.NewTime(created),
					Labels:            keys{annotation.LightweightMinAvailable: "9"}, // a label of pods
				},
				Spec: test.spec, Unread: test.unread, TopologyKey: test.key,
			})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for group, want := range map[string]bool{v1alpha1.NativeGroupName: true, v1alpha1.GroupName: false} {
		basic := &v1alpha1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Annotations: keys{gangs + "mode": "x", gangs + "min-available": "2"}},
			Basic:      true, Whole: true, TopologyKey: "rack",
		}
		basic.SetGroupVersionKind(schema.GroupVersionKind{Group: group})
		if diff := cmp.Diff(gang.Object{Gang: "/", Plain: true, Whole: true, Native: want},
			convert.GangObject(basic)); diff != "" {
			t.Errorf("%s: pods that are not a gang (-want +got):\n%s", group, diff)
		}
	}
	scheduled := &v1alpha1.PodGroup{Status: v1alpha1.PodGroupStatus{Phase: v1alpha1.PodGroupScheduled}}
	if !convert.GangObject(scheduled).Started {
		t.Error("a gang that was scheduled has not started")
	}
}

// The two spellings of a value are one, since the text of an annotation becomes a setting as it is.
func TestSettingsAreSpeltLikeTheirAnnotations(t *testing.T) {
	t.Parallel()
	for text, setting := range map[string]any{
		annotation.GangStrict: gang.Strict, annotation.GangNonStrict: gang.NonStrict,
		annotation.GangOnceSatisfied: gang.OnceSatisfied, annotation.GangOnlyWaiting: gang.OnlyWaiting,
		annotation.GangWaitingAndRunning: gang.WaitingAndRunning,
	} {
		if text != fmt.Sprint(setting) {
			t.Errorf("%s is %v in the core", text, setting)
		}
	}
}

func FuzzGangPod(f *testing.F) {
	f.Add("", "g", "", "", "1", "2", "3", "Strict", `["n/a"]`, "once-satisfied", "600s")
	f.Add("own", "", "l", "a,b", "x", "", "-1", "Relaxed", `["n/a",`, "once", "-1h")
	f.Fuzz(func(t *testing.T, native, podGroup, label, name, least, oldLeast, total, mode, groups, policy,
		wait string,
	) {
		p := gangPod(map[string]string{
			annotation.PodGroup: podGroup, annotation.LightweightGang: label,
			annotation.LightweightMinAvailable: oldLeast,
		}, map[string]string{
			annotation.GangName: name, annotation.GangMinAvailable: least, annotation.GangTotalNumber: total,
			annotation.GangMode: mode, annotation.GangGroups: groups, annotation.GangMatchPolicyAlias: policy,
			annotation.GangWaitingTime: wait,
		})
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &native}
		got, ok := convert.GangPod(p)
		if again, _ := convert.GangPod(p); !reflect.DeepEqual(got, again) {
			t.Fatalf("read as %+v, then as %+v", got, again)
		}
		if want := native != "" || podGroup != "" || label != "" || name != ""; ok != want {
			t.Fatalf("a gang: %v, want %v", ok, want)
		}
		if !ok {
			return
		}
		id, found := strings.CutPrefix(got.Gang, "n/")
		if !found || id == "" || strings.ContainsAny(id, ",/") || len(got.Gang) > 1000 || len(got.Fault) > 1000 {
			t.Fatalf("gang %q, fault %q", got.Gang, got.Fault)
		}
		s := got.Settings
		if s.Min < 0 || s.Total < 0 || s.Wait < 0 || got.Fault == "" && s.Min == 0 {
			t.Fatalf("settings %+v, fault %q", s, got.Fault)
		}
	})
}
