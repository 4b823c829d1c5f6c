package elasticquota

import (
	"fmt"
	"strings"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// refusal is a quota.Excess as an error: errors.As on a framework's status finds it again.
type refusal struct{ *quota.Excess }

// Error is the text that users of Koordinator search for.
func (r *refusal) Error() string {
	if r.LimitKind == quota.NoQuota {
		return fmt.Sprintf("quota %q does not exist", r.Quota)
	}
	var limit, used, request, dimensions []string
	for _, s := range r.Shortages {
		dimensions = append(dimensions, s.Dimension)
		for _, c := range []struct {
			list *[]string
			n    int64
		}{{&limit, s.Limit}, {&used, s.Used}, {&request, s.Request}} {
			*c.list = append(*c.list, s.Dimension+":"+convert.QuotaText(s.Dimension, c.n))
		}
	}
	join := func(list []string) string { return strings.Join(list, ",") }
	text := fmt.Sprintf("Insufficient quotas, quotaName: %s, %s: %s, used: %s, pod's request: %s, "+
		"exceedDimensions: [%s]", r.Quota, r.LimitKind, join(limit), join(used), join(request), join(dimensions))
	if len(r.Path) > 1 {
		text += ", path: " + strings.Join(r.Path, "/")
	}
	d := r.Shortages[0].Dimension
	for _, outside := range []struct {
		quota string
		n     int64
	}{{quota.Default, r.Outside.Default}, {quota.System, r.Outside.System}} {
		if outside.n > 0 {
			text += fmt.Sprintf(", used outside: %s %s:%s", outside.quota, d, convert.QuotaText(d, outside.n))
		}
	}
	if r.Pods > 1 {
		text += fmt.Sprintf(", together with %d more of its gang", r.Pods-1)
	}
	return text
}

// Finding returns the reason in the dimension that lacks the most; the reader adds plugin and phase. Free is less than
// what is asked for even if the limit alone would suffice, as other pods of the gang count too.
func (r *refusal) Finding() why.Finding {
	if r.LimitKind == quota.NoQuota {
		return why.Finding{Reason: why.Reason{Code: why.QuotaNotFound}, Detail: r.Error()}
	}
	s := r.Shortages[0]
	code := why.QuotaExceeded
	if r.Outside != (quota.Outside{}) {
		code = why.QuotaPoolUsed
	}
	return why.Finding{Detail: r.Error(), Reason: why.Reason{
		Code: code, Resource: why.Resource(s.Dimension), Unit: convert.UnitOf(s.Dimension), Asked: s.Request,
		Free: max(0, min(s.Limit-s.Used, s.Request-1)),
	}}
}

// status returns the refusal as a status. Preemption cannot resolve a quota that does not exist.
func (r *refusal) status() *fwk.Status {
	code := fwk.Unschedulable
	if r.LimitKind == quota.NoQuota {
		code = fwk.UnschedulableAndUnresolvable
	}
	return fwk.NewStatus(code).WithError(r)
}
