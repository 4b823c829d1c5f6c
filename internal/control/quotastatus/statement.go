package quotastatus

import (
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// statement is what an object says of its quota.
type statement struct {
	used        corev1.ResourceList
	annotations map[string]corev1.ResourceList
}

func newStatement(r *quota.Report) statement {
	asked := maps.Clone(r.Request)
	for name, n := range r.Passed { // lifted to min where the quota does not lend
		asked[name] = max(asked[name], n)
	}
	s := statement{used: convert.ResourceList(r.Used), annotations: map[string]corev1.ResourceList{}}
	for key, amounts := range map[string]quota.Amounts{
		annotation.QuotaRuntime:               r.Runtime,
		annotation.QuotaRequest:               asked,
		annotation.QuotaChildRequest:          r.Request,
		annotation.QuotaGuaranteed:            r.Guaranteed,
		annotation.QuotaAllocated:             r.Allocated,
		annotation.QuotaNonPreemptibleRequest: r.NonPreemptibleRequest,
		annotation.QuotaNonPreemptibleUsed:    r.NonPreemptibleUsed,
	} {
		s.annotations[key] = convert.ResourceList(amounts)
	}
	return s
}

// readStatement returns what an object says; what cannot be read is not said.
func readStatement(u *unstructured.Unstructured) statement {
	s := statement{annotations: map[string]corev1.ResourceList{}}
	if used, found, err := unstructured.NestedFieldNoCopy(u.Object, "status", "used"); found && err == nil {
		if text, err := json.Marshal(used); err == nil {
			if amounts, _, err := annotation.ParseAmounts(string(text)); err == nil {
				s.used = corev1.ResourceList(amounts)
			}
		}
	}
	for key := range newStatement(&quota.Report{}).annotations {
		if text, found := u.GetAnnotations()[key]; found {
			if amounts, _, err := annotation.ParseAmounts(text); err == nil {
				s.annotations[key] = corev1.ResourceList(amounts)
			}
		}
	}
	return s
}

func (s statement) equals(o statement) bool {
	return equality.Semantic.DeepEqual(s.used, o.used) && s.annotationsEqual(o)
}

func (s statement) annotationsEqual(o statement) bool {
	return equality.Semantic.DeepEqual(s.annotations, o.annotations)
}

// patchTo returns a merge patch that makes an object which says s say o; annotations only where o has any.
func (s statement) patchTo(o statement) []byte {
	used := map[string]any{}
	for name := range s.used {
		used[string(name)] = nil
	}
	for name, q := range o.used {
		used[string(name)] = q.String()
	}
	body := map[string]any{"status": map[string]any{"used": used}}
	if o.annotations != nil {
		annotations := map[string]string{}
		for key, list := range o.annotations {
			annotations[key] = annotation.Amounts(list).String()
		}
		body["metadata"] = map[string]any{"annotations": annotations}
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("quotastatus: names and quantities always encode: %v", err))
	}
	return text
}
