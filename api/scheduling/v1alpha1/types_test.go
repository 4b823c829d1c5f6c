package v1alpha1_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/testkit"
)

func TestBothGroupsDecodeAndKeepTheirName(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	testkit.Check(t, v1alpha1.AddToScheme(scheme))
	decoder := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	for _, group := range v1alpha1.Groups() {
		object, _, err := decoder.Decode([]byte(`{"apiVersion":"`+group+`/v1alpha1","kind":"ElasticQuota",`+
			`"metadata":{"name":"q"},"spec":{"min":{"cpu":1},"max":{"cpu":"2"}},`+
			`"status":{"used":{"cpu":"500m"}}}`), nil, nil)
		testkit.Check(t, err)
		q, ok := object.(*v1alpha1.ElasticQuota)
		if !ok || q.GroupVersionKind().Group != group || q.Spec.Min.Cpu().MilliValue() != 1000 ||
			q.Spec.Max.Cpu().MilliValue() != 2000 || q.Status.Used.Cpu().MilliValue() != 500 {
			t.Errorf("%s: read %+v", group, object)
		}
	}
}

func TestPodGroupsOfBothGroupsDecodeAndKeepTheirName(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	testkit.Check(t, v1alpha1.AddToScheme(scheme))
	decoder := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	for _, group := range v1alpha1.Groups() {
		object, _, err := decoder.Decode([]byte(`{"apiVersion":"`+group+`/v1alpha1","kind":"PodGroup",`+
			`"metadata":{"name":"g"},"spec":{"minMember":3,"minResources":{"cpu":1},"scheduleTimeoutSeconds":60},`+
			`"status":{"phase":"Running","occupiedBy":"n/j","scheduled":4,"running":3,"succeeded":2,"failed":1,`+
			`"scheduleStartTime":"2026-01-02T03:04:05Z"}}`), nil, nil)
		testkit.Check(t, err)
		g, ok := object.(*v1alpha1.PodGroup)
		if !ok || g.GroupVersionKind().Group != group || g.Spec.MinMember != 3 ||
			*g.Spec.ScheduleTimeoutSeconds != 60 || g.Spec.MinResources.Cpu().MilliValue() != 1000 ||
			g.Status.Phase != v1alpha1.PodGroupRunning || g.Status.OccupiedBy != "n/j" || g.Status.Scheduled != 4 ||
			g.Status.Running != 3 || g.Status.Succeeded != 2 || g.Status.Failed != 1 ||
			g.Status.ScheduleStartTime.Unix() != 1767323045 {
			t.Errorf("%s: read %+v", group, object)
		}
	}
}

func TestPhasesThatProveThatAGangHasStarted(t *testing.T) {
	t.Parallel()
	for phase, want := range map[v1alpha1.PodGroupPhase]bool{
		"": false, v1alpha1.PodGroupPending: false, v1alpha1.PodGroupPreScheduling: false,
		v1alpha1.PodGroupScheduling: false, v1alpha1.PodGroupScheduled: true, v1alpha1.PodGroupRunning: true,
		v1alpha1.PodGroupUnknown: true, v1alpha1.PodGroupFinished: true, v1alpha1.PodGroupFailed: true,
	} {
		if got := phase.IsStarted(); got != want {
			t.Errorf("%q: %v, want %v", phase, got, want)
		}
	}
}
