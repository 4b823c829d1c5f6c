package limits

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/testkit/object"
)

// quota is a ResourceQuota with what is used: "cpu", "8", "2" are 2 of 8.
func quota(name string, hardUsed ...string) corev1.ResourceQuota {
	q := corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}}
	q.Spec.Hard, q.Status.Used = corev1.ResourceList{}, corev1.ResourceList{}
	for i := 0; i < len(hardUsed); i += 3 {
		key := corev1.ResourceName(hardUsed[i])
		q.Spec.Hard[key], q.Status.Used[key] = resource.MustParse(hardUsed[i+1]), resource.MustParse(hardUsed[i+2])
	}
	q.Status.Hard = q.Spec.Hard
	return q
}

func limit(kind corev1.LimitType, most corev1.ResourceList) *corev1.LimitRange {
	return &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: kind, Max: most}}}}
}

// TestMostIsHowManyAreAdmittedOneAfterTheOther compares with pods that are admitted one by one.
func TestMostIsHowManyAreAdmittedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	refusals := 0
	for i := range 300 {
		var quotas []corev1.ResourceQuota
		for n := range r.IntN(3) {
			q := quota(fmt.Sprint("q", n), "requests.cpu", fmt.Sprint(r.IntN(12)), fmt.Sprint(r.IntN(4)),
				"pods", fmt.Sprint(3+r.IntN(9)), "3", "limits.memory", fmt.Sprint(r.IntN(12)), "0")
			if r.IntN(3) == 0 {
				q.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort}
				for _, list := range []corev1.ResourceList{q.Spec.Hard, q.Status.Used} {
					delete(list, "requests.cpu")
					delete(list, "limits.memory")
				}
			}
			quotas = append(quotas, q)
		}
		p := object.Pod("p", object.Both("cpu", fmt.Sprintf("%dm", 250*r.IntN(9)), "memory", fmt.Sprint(r.IntN(3))))
		if r.IntN(4) == 0 {
			p = object.Pod("p")
		}
		l, one := New(nil, quotas, clock.RealClock{}), New(nil, quotas, clock.RealClock{})
		got, why := l.Most(p, 10)
		want, err := 0, error(nil)
		for want < 10 {
			if err = one.Admit(p); err != nil {
				break
			}
			want++
		}
		if got != want || (why == nil) != (err == nil) || why != nil && why.Error() != err.Error() {
			t.Fatalf("case %d: got %d, %v; want %d, %v of %+v", i, got, why, want, err, quotas)
		}
		if err != nil && want > 0 {
			refusals++
		}
	}
	if refusals < 30 {
		t.Errorf("%d cases end in a refusal after some pods, want 30: the draws show too little", refusals)
	}
}

func TestAReleasedPodMakesRoom(t *testing.T) {
	t.Parallel()
	two := object.Pod("p", object.Both("cpu", "2", "memory", "1Gi"))
	l := New(nil, []corev1.ResourceQuota{quota("r", "requests.cpu", "4", "3")}, clock.RealClock{})
	const says = "exceeded quota: r, requested: requests.cpu=2"
	if err := l.Admit(two); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("2 of 4 with 3 used: got %v, want a refusal", err)
	}
	l.Release(two)
	if err := l.Admit(two); err != nil {
		t.Errorf("2 of 4 with 1 used: %v", err)
	}
	if n, err := l.Most(two, 5); n != 0 || err == nil {
		t.Errorf("2 of 4 with 3 used: got %d, %v, want none", n, err)
	}
}

func TestALimitRangeRefuses(t *testing.T) {
	t.Parallel()
	l := New([]*corev1.LimitRange{
		limit(corev1.LimitTypeContainer, object.List("cpu", "1")),
		limit(corev1.LimitTypePersistentVolumeClaim, object.List("storage", "1Gi")),
	}, nil, clock.RealClock{})
	if n, err := l.Most(object.Pod("p", object.Both("cpu", "2", "memory", "1Gi")), 5); n != 0 || err == nil ||
		!strings.Contains(err.Error(), "maximum cpu usage per Container is 1, but limit is 2") {
		t.Errorf("got %d, %v, want the LimitRange's refusal", n, err)
	}
	if n, err := l.Most(object.Pod("p", object.Both("cpu", "1", "memory", "1Gi")), 5); n != 5 || err != nil {
		t.Errorf("got %d, %v, want 5", n, err)
	}
	for size, fits := range map[string]bool{"1Gi": true, "2Gi": false} {
		c := &corev1.PersistentVolumeClaim{}
		c.Spec.Resources.Requests = object.List("storage", size)
		if err := l.AdmitClaim(c); (err == nil) != fits {
			t.Errorf("a claim of %s: %v", size, err)
		}
	}
}

func TestAPodIsAdmittedWithItsClaims(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		storage []string // of each ephemeral volume
		want    string   // of the error; "" for none
	}{
		"no claim":    {nil, ""},
		"a claim":     {[]string{"1Gi"}, ""},
		"a large one": {[]string{"3Gi"}, "PersistentVolumeClaim p-v0: maximum storage usage per"},
		"too many":    {[]string{"2Gi", "2Gi"}, "PersistentVolumeClaim p-v1: "},
	} {
		p := object.Pod("p", object.Both("cpu", "1", "memory", "1Gi"))
		for i, size := range c.storage {
			template := &corev1.PersistentVolumeClaimTemplate{}
			template.Spec.Resources.Requests = object.List("storage", size)
			v := corev1.Volume{Name: fmt.Sprint("v", i)}
			v.Ephemeral = &corev1.EphemeralVolumeSource{VolumeClaimTemplate: template}
			p.Spec.Volumes = append(p.Spec.Volumes, v)
		}
		l := New([]*corev1.LimitRange{limit(corev1.LimitTypePersistentVolumeClaim, object.List("storage", "2Gi"))},
			[]corev1.ResourceQuota{quota("r", "pods", "1", "0", "requests.storage", "3Gi", "0")}, clock.RealClock{})
		err := l.AdmitWithClaims(p)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
		// A pod that is refused for its claim takes nothing.
		if err := l.Admit(object.Pod("next")); (err == nil) != (c.want != "") {
			t.Errorf("%s: the next pod: %v", name, err)
		}
	}
}
