package admission_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/control/admission"
)

func inGang(options ...podOption) *corev1.Pod {
	return newPod(append([]podOption{annot(annotation.GangName, "g")}, options...)...)
}

func native(name string) podOption {
	return func(p *corev1.Pod) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name} }
}

// TestAReplicaOfALargeGangIsJudgedByItself: what it says is all that is read, whatever the size of its gang.
//
// F20: the webhook times out when 400 replicas are created at once.
func TestAReplicaOfALargeGangIsJudgedByItself(t *testing.T) {
	cost := func(members string) float64 {
		p := inGang(annot(annotation.GangMinAvailable, members), annot(annotation.GangTotalNumber, members))
		return testing.AllocsPerRun(10, func() {
			if a := admission.Create(p, nil); !a.Allowed() {
				t.Fatalf("refused: %v", a.Refusals)
			}
		})
	}
	// Under the race detector a sync.Pool forgets at random, which is an allocation more or less.
	if few, many := cost("2"), cost("40000"); many > 2*few {
		t.Errorf("%v allocations for a gang of 2, %v for one of 40000", few, many)
	}
}

func TestWhatAPodSaysOfItsGang(t *testing.T) {
	t.Parallel()
	const (
		ofGang = "metadata.annotations[gang.scheduling.koordinator.sh/"
	)
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want []string
	}{
		"all settings": {inGang(annot(annotation.GangMinAvailable, "2"), annot(annotation.GangTotalNumber, "3"),
			annot(annotation.GangMode, "NonStrict"), annot(annotation.GangMatchPolicy, "only-waiting"),
			annot(annotation.GangWaitingTime, "72h"), annot(annotation.GangGroups, `["default/g","other/h"]`)), nil},
		"no members": {inGang(annot(annotation.GangMinAvailable, "0")), []string{ofGang + "min-available]: " +
			`byte 0: Invalid value "0": must be a whole number from 1 to 2147483647`}},
		"a number in words": {inGang(annot(annotation.GangTotalNumber, "three")), []string{ofGang + "total-number]: " +
			`byte 0: Invalid value "three": must be a whole number from 1 to 2147483647`}},
		"an unknown mode": {inGang(annot(annotation.GangMode, "soft")), []string{ofGang + "mode]: " +
			`byte 0: Unsupported value "soft": supported Strict, NonStrict`}},
		"what becomes of an interrupted gang is unknown": {inGang(annot(annotation.GangInterrupted, "true")), []string{
			"metadata.annotations[tenon.sh/gang-interrupted]: " +
				`byte 0: Unsupported value "true": supported Keep, Evict`,
		}},
		"an unknown policy": {inGang(annot(annotation.GangMatchPolicy, "always")), []string{ofGang + "match-policy]: " +
			`byte 0: Unsupported value "always": supported once-satisfied, only-waiting, waiting-and-running`}},
		"an unknown policy under the other name": {inGang(annot(annotation.GangMatchPolicyAlias, "always")), []string{
			"metadata.annotations[pod-group.scheduling.sigs.k8s.io/match-policy]: " +
				`byte 0: Unsupported value "always": supported once-satisfied, only-waiting, waiting-and-running`,
		}},
		"a group without the pod's gang": {inGang(annot(annotation.GangGroups, `["default/h","default/i"]`)), []string{
			ofGang + "groups]: must list its own gang, default/g, with the others: it lists default/h, default/i",
		}},
		"domains of the network": {
			inGang(annot(annotation.GangNetworkTopology,
				`{"gatherStrategy":[{"layer":"Block","strategy":"MustGather"}]}`)), nil,
		},
		"an unknown strategy": {
			inGang(annot(annotation.GangNetworkTopology, `{"gatherStrategy":[{"layer":"Block","strategy":"Gather"}]}`)),
			[]string{ofGang + "network-topology-spec]: byte 18: gatherStrategy.0.strategy: " +
				`Unsupported value "Gather": supported MustGather, PreferGather`},
		},
		"an old label": {inGang(label(annotation.LightweightMinAvailable, "x")), []string{
			"metadata.labels[pod-group.scheduling.sigs.k8s.io/min-available]: " +
				`byte 0: Invalid value "x": must be a whole number from 1 to 2147483647`,
		}},
		"two gangs": {inGang(label(annotation.PodGroup, "h")), []string{ofGang + "name]: " +
			`names the gang "g", and pod-group.scheduling.sigs.k8s.io names "h": a pod is in one gang`}},
		"one gang under two keys": {inGang(label(annotation.PodGroup, "g")), nil},
		"two gangs, one by Kubernetes' own field": {inGang(native("h")), []string{ofGang + "name]: " +
			`names the gang "g", and spec.schedulingGroup.podGroupName names "h": a pod is in one gang`}},
		"three gangs": {inGang(native("h"), label(annotation.CommunityPodGroup, "i")), []string{
			"metadata.labels[scheduling.x-k8s.io/pod-group]: " +
				`names the gang "i", and spec.schedulingGroup.podGroupName names "h": a pod is in one gang`,
			ofGang + "name]: names the gang " +
				`"g", and spec.schedulingGroup.podGroupName names "h": a pod is in one gang`,
		}},
		"one gang, by Kubernetes' own field too": {inGang(native("g")), nil},
		"Kubernetes' own field without a name":   {inGang(native("")), nil},
		"a group without the gang of Kubernetes' own field": {
			newPod(native("h"), annot(annotation.GangGroups, `["default/g"]`)), []string{
				ofGang + "groups]: must list its own gang, default/h, with the others: it lists default/g",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			a := admission.Create(c.pod, nil)
			for _, r := range a.Refusals {
				got = append(got, r.String())
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("refusals:\n got %q\nwant %q", got, c.want)
			}
			a = admission.Update(c.pod, newPod(), admission.Anyone)
			if updated := len(a.Refusals) > 0; updated != (c.want != nil) {
				t.Errorf("as an update: %v", a.Refusals)
			}
			if again := admission.Update(c.pod, c.pod, admission.Anyone); !again.Allowed() {
				t.Errorf("an update of something else is refused: %v", again.Refusals)
			}
		})
	}
	for _, key := range []string{annotation.GangGroups, annotation.GangWaitingTime, annotation.GangName} {
		if a := admission.Create(inGang(annot(key, "{,}")), nil); a.Allowed() {
			t.Errorf("%s of {,} is admitted", key)
		}
	}
}
