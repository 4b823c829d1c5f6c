package elasticquota

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/test/badquota"
)

// TestTheSchedulerOutlivesBadQuotas: with objects that no webhook saw, pods of other quotas are admitted, pods of the
// bad ones get an answer, and the endpoints say what is wrong.
//
// Q27: the scheduler needs the webhook.
func TestTheSchedulerOutlivesBadQuotas(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	f.tree()
	large := f.nodes[0].DeepCopy()
	large.Name, large.Status.Allocatable = "large", object.List("cpu", "1000", "pods", "10")
	f.quotas.PutNode(large) // enough for all of them
	f.put(t, "held", "train", "n", 5, 0)
	good := f.put(t, "good", "train", "", 2, 0)
	problems := 0
	for name, c := range badquota.Cases() {
		var objects []*v1alpha1.ElasticQuota
		for _, text := range slices.Concat(c.World, []string{c.Object}) {
			o, err := badquota.Object(text)
			testkit.Check(t, err)
			raw, err := json.Marshal(o)
			testkit.Check(t, err)
			q, _ := kube.ReadQuota(raw) // what cannot be read is left out
			objects = append(objects, q)
			f.quotas.PutQuota(q)
		}
		last := objects[len(objects)-1]
		if c.Operation == badquota.Delete {
			f.quotas.RemoveQuota(last)
		}
		if rule := saidByRule(name); rule != "" && c.Operation == badquota.Create {
			said := ""
			for _, q := range objects {
				said += strings.Join(f.quotas.Problems(q.Name), "\n")
			}
			if !strings.Contains(said, rule) {
				t.Errorf("%s: no problem of a quota says %q: %s", name, rule, said)
			}
		}
		own := f.put(t, fmt.Sprint("own-", name), last.Name, "", 15, 0)
		if refused, _, _ := f.attempt(t, good); !refused.IsSuccess() {
			t.Errorf("%s: a pod of another quota is refused: %v", name, refused)
		}
		f.attempt(t, own)
		for _, e := range f.Diagnostics().Endpoints {
			r := httptest.NewRequest(http.MethodGet, "/?includePods=true", nil)
			r.SetPathValue("name", last.Name)
			text, err := json.Marshal(e.Answer(r, func(string) bool { return true }))
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			problems += strings.Count(string(text), `"problems":[`)
		}
		f.remove(own)
		for _, q := range objects {
			f.quotas.RemoveQuota(q)
		}
	}
	if problems == 0 {
		t.Error("no endpoint says what is wrong")
	}
	if r, _ := f.quotas.Report("train"); r.Used["cpu"] != 5000 || r.Request["cpu"] != 7000 {
		t.Errorf("after all this: %+v", r)
	}
}

// saidByRule returns how a problem names the rule of a case that the forest does not mend; "" for other cases.
func saidByRule(name string) string {
	rule, what, _ := strings.Cut(name, " ")
	switch what {
	case "no such parent":
		return "does not exist"
	case "a child without a resource of its parent":
		return "" // a flag of the manager allows it
	}
	if !slices.Contains([]string{"V3", "V4", "V5", "V6", "V7", "V11", "V16"}, rule) {
		return ""
	}
	return "(" + rule + ")"
}
