package app

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// limited is a scheduler with a node of 32 CPUs, on which a pod of 8 is, and 12 CPUs in the namespace's ResourceQuota.
func limited(t *testing.T) *asked {
	a := newAsked(t, "n").add(bound("old", "n", list(0, 8)))
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "r", Namespace: metav1.NamespaceDefault}}
	q.Status.Hard, q.Status.Used = object.List("requests.cpu", "12"), object.List("requests.cpu", "8")
	r := &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
		{Type: corev1.LimitTypeContainer, Max: object.List("memory", "4Gi")},
		{Type: corev1.LimitTypePersistentVolumeClaim, Min: object.List("storage", "1Gi")},
	}}}
	a.whatIf.Objects = limitedObjects{a.whatIf.Objects, r, q}
	return a
}

// addedPod is a change that adds a pod.
func addedPod(name, namespace, cpus, memory string) string {
	return fmt.Sprintf(`{"addPod":{"metadata":{"name":%q,"namespace":%q},"spec":{"schedulerName":%q,"containers":[`+
		`{"name":"c","image":"i","resources":{"requests":{"cpu":%q,"memory":%q},"limits":{"memory":%[5]q}}}]}}}`,
		name, namespace, SchedulerName, cpus, memory)
}

func TestQuestionsEndAtLimitRangesAndResourceQuotas(t *testing.T) {
	const used = "exceeded quota: r, requested: requests.cpu=4, used: requests.cpu="
	for name, c := range map[string]struct {
		changes []string
		asked   string
		refused string // the last pod's reason; "" for a placement
	}{
		"room for one": {[]string{addedPod("a", "default", "4", "1Gi")}, `"default/a"`, ""},
		"no room for another": {
			[]string{addedPod("a", "default", "4", "1Gi"), addedPod("b", "default", "4", "1Gi")},
			`"default/a","default/b"`, used + "12, limited: requests.cpu=12",
		},
		"a refused pod takes nothing": {
			[]string{addedPod("a", "default", "5", "1Gi"), addedPod("b", "default", "4", "1Gi")},
			`"default/a","default/b"`, "",
		},
		"the room of a pod that leaves": {
			[]string{
				addedPod("a", "default", "4", "1Gi"), `{"removePod":"default/old"}`,
				addedPod("b", "default", "4", "1Gi"),
			}, `"default/a","default/b"`, "",
		},
		"not that of a pod that comes again": {
			[]string{
				addedPod("a", "default", "4", "1Gi"), `{"removePod":"default/old"}`,
				addedPod("b", "default", "4", "1Gi"),
			}, `"default/old","default/a","default/b"`, used,
		},
		"a successor is not compared": {[]string{`{"removePod":"default/old"}`}, `"default/old"`, ""},
		"another namespace":           {[]string{addedPod("a", "other", "16", "1Gi")}, `"other/a"`, ""},
		"a LimitRange of claims": {
			[]string{strings.Replace(addedPod("a", "default", "1", "1Gi"), `"spec":{`, `"spec":{"volumes":[{"name":`+
				`"v","ephemeral":{"volumeClaimTemplate":{"spec":{"resources":{"requests":{"storage":"1Mi"}}}}}}],`, 1)},
			`"default/a"`, "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi",
		},
		"a LimitRange": {
			[]string{addedPod("a", "default", "1", "5Gi")},
			`"default/a"`,
			"maximum memory usage per Container is 4Gi, but limit is 5Gi",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := limited(t).answer(fmt.Sprintf(`{"changes":[%s],"ask":{"pods":[%s]}}`,
				strings.Join(c.changes, ","), c.asked))
			if err != nil {
				t.Fatal(err)
			}
			keys := strings.Split(strings.ReplaceAll(c.asked, `"`, ""), ",")
			last := keys[len(keys)-1]
			for _, p := range got.Unschedulable {
				if p.Pod == last && (c.refused == "" || p.RootCause.Code != why.AdmissionRefused ||
					!strings.Contains(p.RootCause.Message, c.refused)) {
					t.Errorf("got %+v, want %q", p.RootCause, c.refused)
				}
			}
			placed := len(got.Placements) > 0 && got.Placements[len(got.Placements)-1].Pod == last
			if placed != (c.refused == "") {
				t.Errorf("pod %s is placed: %t; want %t: %+v", last, placed, c.refused == "", got)
			}
		})
	}
}

func TestAPodThatTheAPIServerRefusesHasNoNode(t *testing.T) {
	on := strings.Replace(addedPod("a", "default", "5", "1Gi"), `"spec":{`, `"spec":{"nodeName":"n",`, 1)
	_, err := limited(t).answer(`{"changes":[` + on + `],"ask":{"pods":[]}}`)
	if err == nil || !strings.Contains(err.Error(), "addPod: the API server refuses the pod") {
		t.Errorf("got %v, want a refusal of the change", err)
	}
}

func TestACountEndsAtTheResourceQuota(t *testing.T) {
	for name, c := range map[string]struct {
		cpus, memory, namespace string
		changes                 string
		pods, room              int
		says                    string
	}{
		"less than the nodes have": {"2", "1Gi", "default", "", 2, 12, "exceeded quota: r, requested: requests.cpu=2"},
		"after a pod has left": {
			"2", "1Gi", "default", `{"removePod":"default/old"},`, 6, 16, "used: requests.cpu=12",
		},
		"none": {"1", "5Gi", "default", "", 0, 12, "maximum memory usage per Container is 4Gi"},
		"all":  {"2", "1Gi", "other", "", 12, 12, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := limited(t).answer(fmt.Sprintf(`{"changes":[%s%s],"ask":{"mode":"count","pods":["%s/a"]}}`,
				c.changes, addedPod("a", c.namespace, c.cpus, c.memory), c.namespace))
			if err != nil {
				t.Fatal(err)
			}
			limit := got.Capacity.Admission
			if got.Capacity.Pods != c.pods || got.Capacity.Room != c.room || (limit == nil) != (c.says == "") ||
				limit != nil && (limit.Pods != c.pods || !strings.Contains(limit.Message, c.says)) {
				t.Errorf("got %+v, %+v; want %d of %d, %q", got.Capacity, limit, c.pods, c.room, c.says)
			}
		})
	}
}
