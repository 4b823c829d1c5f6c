package quotastatus

import (
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// part is a set of parts of an object.
type part uint8

const (
	used        part = 1 << iota // status.used
	annotations                  // those that start with what a quota may use now
)

// statement is what an object is to say of its quota.
type statement struct{ used, annotations map[string]string }

func newStatement(r *quota.Report) statement {
	asked := maps.Clone(r.Request)
	for name, n := range r.Passed { // lifted to min where the quota does not lend
		asked[name] = max(asked[name], n)
	}
	s := statement{map[string]string{}, map[string]string{}}
	for name, n := range r.Used {
		s.used[name] = convert.QuotaText(name, n)
	}
	for key, amounts := range map[string]amount.List{
		annotation.QuotaRuntime:               r.Runtime,
		annotation.QuotaRequest:               asked,
		annotation.QuotaChildRequest:          r.Request,
		annotation.QuotaGuaranteed:            r.Guaranteed,
		annotation.QuotaAllocated:             r.Allocated,
		annotation.QuotaNonPreemptibleRequest: r.NonPreemptibleRequest,
		annotation.QuotaNonPreemptibleUsed:    r.NonPreemptibleUsed,
	} {
		s.annotations[key] = annotation.Amounts(convert.ResourceList(amounts)).String()
	}
	return s
}

// patch returns a merge patch that makes parts of an object say what a statement does; nil where they do.
func (s statement) patch(shown *v1alpha1.ElasticQuota, parts part) []byte {
	body := map[string]any{}
	if said := usedOf(shown); parts&used != 0 && !maps.Equal(said, s.used) {
		amounts := map[string]any{}
		for name := range said {
			amounts[name] = nil
		}
		for name, text := range s.used {
			amounts[name] = text
		}
		body["status"] = map[string]any{"used": amounts}
	}
	differ := maps.Clone(s.annotations)
	maps.DeleteFunc(differ, func(key, text string) bool { return shown.Annotations[key] == text })
	if parts&annotations != 0 && len(differ) > 0 {
		body["metadata"] = map[string]any{"annotations": differ}
	}
	if len(body) == 0 {
		return nil
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("quotastatus: texts always encode: %v", err))
	}
	return text
}

func usedOf(q *v1alpha1.ElasticQuota) map[string]string {
	out := map[string]string{}
	for name, n := range q.Status.Used {
		out[string(name)] = n.String()
	}
	return out
}

// isUsed reports whether an answer of the API server has the status of a statement.
func (s statement) isUsed(answer *unstructured.Unstructured) bool {
	said, _, err := unstructured.NestedStringMap(answer.Object, "status", "used")
	return err == nil && maps.Equal(said, s.used)
}
