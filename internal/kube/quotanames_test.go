package kube_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	quotav1alpha1 "github.com/tenon-project/tenon/api/quota/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
)

// spellings returns the canonical name of every resource of pods that the table of support has a second name of, by
// that name. Of a prefix it takes one amount of CPU and one of memory.
func spellings(t *testing.T) map[string]string {
	t.Helper()
	var names []string
	for _, s := range annotation.Supports() {
		for _, key := range s.Keys {
			prefix, found := strings.CutSuffix(key, "*")
			switch {
			case s.Place != annotation.PodResource || s.State != annotation.Done:
			case found:
				names = append(names, prefix+"cpu", prefix+"memory")
			default:
				names = append(names, key)
			}
		}
	}
	out := map[string]string{}
	for _, name := range names {
		for _, pair := range [][2]string{{"koordinator.sh/", "kubernetes.io/"}, {"kubernetes.io/", "koordinator.sh/"}} {
			kind, ok := strings.CutPrefix(name, pair[0])
			if canonical := amount.Canonical(name); ok && slices.Contains(names, pair[1]+kind) && canonical != name {
				out[name] = canonical
			}
		}
	}
	if len(out) != 10 {
		t.Fatalf("the table of support has %d names with another one, want 4 of batch and mid, 6 of devices: %v",
			len(out), out)
	}
	return out
}

// TestADeprecatedNameIsTheAmountOfItsCanonicalOne: a quota, its parent, three pods and the node write one resource in
// both ways, and all mean one amount.
func TestADeprecatedNameIsTheAmountOfItsCanonicalOne(t *testing.T) {
	t.Parallel()
	for alias, canonical := range spellings(t) {
		for spelled := range 16 {
			name := func(bit int) corev1.ResourceName {
				if spelled>>bit&1 == 1 {
					return corev1.ResourceName(alias)
				}
				return corev1.ResourceName(canonical)
			}
			_, s := clockAt()
			n := sized("n", 10)
			devices(n.Status.Allocatable, name(0), 400)
			s.PutNode(n)
			parent := elastic("a", "parent", 0, 10, annotation.QuotaIsParent, "true")
			devices(parent.Spec.Min, name(1), 300)
			devices(parent.Spec.Max, name(1), 300)
			s.PutQuota(parent)
			q := elastic("a", "team", 0, 10, annotation.QuotaParent, "parent")
			devices(q.Spec.Min, name(2), 200)
			devices(q.Spec.Max, name(3), 200)
			s.PutQuota(q)
			for _, uid := range []string{"a", "b", "c"} {
				p := asking(uid, "team", "", 1)
				devices(p.Spec.Containers[0].Resources.Requests, corev1.ResourceName(alias), 60)
				other := *p.Spec.Containers[0].DeepCopy()
				other.Name = "other"
				other.Resources.Requests = testobject.List(canonical, "40")
				p.Spec.Containers = append(p.Spec.Containers, other)
				s.PutPod(p)
			}
			if x := s.Reserve("a", "b"); x != nil {
				t.Errorf("%s, %04b: 200 of 200 are refused: %v", alias, spelled, x)
			}
			if x := admit(s, "c"); x == nil {
				t.Errorf("%s, %04b: 300 of 200 are admitted", alias, spelled)
			}
			got := report(t, s, "team")
			for field, amounts := range map[string]amount.List{"min": got.Min, "max": got.Max, "used": got.Used} {
				if amounts[canonical] != 200 || amounts[alias] != 0 {
					t.Errorf("%s, %04b: %s is %v, want 200 of %s alone", alias, spelled, field, amounts, canonical)
				}
			}
			if total := report(t, s, quota.Root).Runtime[canonical]; total != 400 {
				t.Errorf("%s, %04b: the tree has %d, want 400", alias, spelled, total)
			}
			if problems := s.Problems("team"); len(problems) > 0 {
				t.Errorf("%s, %04b: problems: %q", alias, spelled, problems)
			}
		}
	}
}

func TestBothNamesOfAnAmountMustAgree(t *testing.T) {
	t.Parallel()
	_, s := clockAt()
	q := elastic("a", "team", 0, 10)
	q.Spec.Max = testobject.List("kubernetes.io/batch-cpu", "2000", "koordinator.sh/batch-cpu", "3000",
		"koordinator.sh/batch-memory", "1Gi", "kubernetes.io/batch-memory", "1024Mi")
	q.Annotations = map[string]string{
		annotation.QuotaSharedWeight: `{"kubernetes.io/gpu":2,"koordinator.sh/gpu":1}`,
		annotation.QuotaStrictKeys:   `["koordinator.sh/batch-cpu"]`,
	}
	s.PutQuota(q)
	got := report(t, s, "team")
	want := amount.List{"kubernetes.io/batch-cpu": 2000, "kubernetes.io/batch-memory": 1 << 30}
	if !maps.Equal(want, got.Max) {
		t.Errorf("max %v, want the canonical names' %v", got.Max, want)
	}
	problems := strings.Join(s.Problems("team"), "\n")
	for _, text := range []string{
		"spec.max: conflicting values for kubernetes.io/batch-cpu and its alias koordinator.sh/batch-cpu: 2k and 3k",
		"shared-weight: conflicting values for koordinator.sh/gpu and its alias kubernetes.io/gpu: 1 and 2",
	} {
		if !strings.Contains(problems, text) {
			t.Errorf("problems:\n%s\nwant %s", problems, text)
		}
	}
	if strings.Contains(problems, "batch-memory") {
		t.Errorf("equal amounts are called a problem:\n%s", problems)
	}
	strict := kube.Ask(s, func(a *quota.Account) []string { return a.Forest().Find("team").Spec().Strict })
	if diff := cmp.Diff([]string{"kubernetes.io/batch-cpu"}, strict); diff != "" {
		t.Errorf("strict resources (-want +got):\n%s", diff)
	}
}

func TestAProfileCountsADeprecatedName(t *testing.T) {
	t.Parallel()
	n := sized("n", 10)
	n.Status.Allocatable["kubernetes.io/batch-cpu"] = resource.MustParse("5000")
	profile := &quotav1alpha1.ElasticQuotaProfile{}
	profile.Spec.NodeSelector = &metav1.LabelSelector{}
	profile.Annotations = map[string]string{annotation.QuotaResourceKeys: `["koordinator.sh/batch-cpu"]`}
	now, _ := clockAt()
	q, err := kube.ProfileQuota(profile, []*corev1.Node{n}, *now)
	if err != nil {
		t.Fatal(err)
	}
	if total := q.Spec.Max["kubernetes.io/batch-cpu"]; total.Value() != 5000 || len(q.Spec.Max) != 1 {
		t.Errorf("max is %v, want 5000 of kubernetes.io/batch-cpu", q.Spec.Max)
	}
}
