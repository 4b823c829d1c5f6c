package sim

import (
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	quotav1alpha1 "github.com/tenon-project/tenon/api/quota/v1alpha1"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

type elasticQuota struct {
	origin
	*v1alpha1.ElasticQuota
}

type quotaProfile struct {
	origin
	*quotav1alpha1.ElasticQuotaProfile
}

// followProfiles adds the quotas that the manager makes of profiles.
func (w *world) followProfiles(p *problems) {
	for _, from := range w.profiles {
		top, err := kube.ProfileQuota(from.ElasticQuotaProfile, w.nodes, w.latest())
		if err != nil {
			p.add(from.origin, "%s", oneLine(err))
			continue
		}
		i := slices.IndexFunc(w.quotas, func(q elasticQuota) bool {
			return q.Namespace == top.Namespace && q.Name == top.Name && q.GroupVersionKind() == top.GroupVersionKind()
		})
		switch {
		case i < 0:
			w.quotas = append(w.quotas, elasticQuota{from.origin, top})
		case w.quotas[i].Labels[annotation.QuotaProfile] == from.Name:
			w.quotas[i].ElasticQuota = kube.WithProfile(w.quotas[i].ElasticQuota, top)
		default:
			p.add(from.origin, "spec.quotaName: Invalid value: %q: an ElasticQuota of this name is in the input, and "+
				"its label %s is not %q", top.Name, annotation.QuotaProfile, from.Name)
		}
	}
}

// admitQuotas calls the webhook's function for each quota, parents before their children whatever the order of the
// input. Quotas of a cluster are admitted already. It sets w.rules.
func (w *world) admitQuotas(warn io.Writer, p *problems) {
	var known quota.World // of pods only changes and deletions ask
	w.rules = quota.NewChecker(known)
	sortByDepth(w.quotas)
	for _, q := range w.quotas {
		if !q.stored {
			w.admitQuota(q, warn, p)
		}
		spec, _ := convert.Quota(q.ElasticQuota)
		known.Quotas = append(known.Quotas, spec)
		w.rules = quota.NewChecker(known)
	}
}

func (w *world) admitQuota(q elasticQuota, warn io.Writer, p *problems) {
	if tree := admission.TreeOf(q.ElasticQuota, w.rules); tree != "" {
		metav1.SetMetaDataLabel(&q.ObjectMeta, annotation.QuotaTreeID, tree)
	}
	var old *v1alpha1.ElasticQuota
	if q.Name == quota.Default { // it exists, and is changed
		old = &v1alpha1.ElasticQuota{
			TypeMeta: q.TypeMeta, ObjectMeta: metav1.ObjectMeta{Namespace: q.Namespace, Name: q.Name},
		}
	}
	answer := admission.Quota(q.ElasticQuota, old, w.rules, admission.Anyone)
	for _, r := range answer.Refusals {
		p.add(q.origin, "%s", r.String())
	}
	for _, text := range answer.Warnings {
		warnf(warn, "warning: ElasticQuota %s/%s: %s", q.Namespace, q.Name, text)
	}
}

func sortByDepth(quotas []elasticQuota) {
	above := map[string]string{}
	for _, q := range quotas {
		above[q.Name] = q.Labels[annotation.QuotaParent]
	}
	depths := map[string]int{}
	for name := range above {
		for parent := above[name]; parent != "" && depths[name] <= len(above); parent = above[parent] {
			depths[name]++
		}
	}
	slices.SortStableFunc(quotas, func(a, b elasticQuota) int { return depths[a.Name] - depths[b.Name] })
}

// quotasOf returns the quotas of the input, by name, in their current state.
func (e *engine) quotasOf(w *world) []view.Quota {
	out := []view.Quota{}
	for _, q := range w.quotas {
		var v view.Quota
		e.quotas.Read(func(a *quota.Account) {
			v = view.QuotaOf(a.Forest(), a.Forest().Find(q.Name), convert.QuotaText)
		})
		v.Problems = e.quotas.Problems(q.Name)
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b view.Quota) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(out, func(a, b view.Quota) bool { return a.Name == b.Name })
}
