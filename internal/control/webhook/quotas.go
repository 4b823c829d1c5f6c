package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	ctrl "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// pendingFor is how long an admitted change counts that no informer has shown: the API server may have dropped it.
const pendingFor = 10 * time.Second

// Quotas answers about ElasticQuotas and the quotas of pods, from what informers have shown and from the changes that
// it admitted since. Its answers come one after the other, so that two changes which exclude each other are not both
// admitted.
type Quotas struct {
	// RelaxResourceKeys accepts a child whose max has only some dimensions of its parent's.
	RelaxResourceKeys bool
	// HasSynced reports whether the informers have shown everything that there was at first.
	HasSynced func() bool

	store *kube.Quotas

	mu      sync.Mutex // guards what follows
	pending map[quotaKey]pendingQuota
	rules   *quota.Checker      // nil when a change was admitted since
	version uint64              // the state of the store's quotas that rules are about
	shown   map[quotaKey]string // resource versions in that state
	expires time.Time           // when rules are void because a change is no longer pending
}

type quotaKey struct{ group, namespace, name string }

// pendingQuota is an admitted change: spec is nil for a deletion. base is the resource version that it changed.
type pendingQuota struct {
	spec  *quota.Spec
	base  string
	until time.Time
}

// NewQuotas returns Quotas that answer from a store.
func NewQuotas(store *kube.Quotas, hasSynced func() bool) *Quotas {
	return &Quotas{HasSynced: hasSynced, store: store, pending: map[quotaKey]pendingQuota{}}
}

var errNotRead = errors.New("elastic quotas are not read yet; retry in a moment")

func keyOf(s *quota.Spec) quotaKey { return quotaKey{s.Group, s.Namespace, s.Name} }

// locked calls f with the rules in force.
func (q *Quotas) locked(f func(rules *quota.Checker)) error {
	if !q.HasSynced() {
		return errNotRead
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if now := time.Now(); q.rules == nil || q.version != q.store.Changes() || !q.expires.After(now) {
		q.rules = q.newRules(now)
	}
	f(q.rules)
	return nil
}

func (q *Quotas) newRules(now time.Time) *quota.Checker {
	w := quota.World{RelaxResourceKeys: q.RelaxResourceKeys, Used: q.used}
	q.expires, q.shown = now.Add(time.Hour), map[quotaKey]string{}
	var objects []*v1alpha1.ElasticQuota
	objects, q.version = q.store.Objects()
	for _, o := range objects {
		spec, _ := convert.Quota(o)
		key := keyOf(&spec)
		q.shown[key] = o.ResourceVersion
		if p, pending := q.pending[key]; !pending || !p.until.After(now) || p.isShown(o.ResourceVersion) {
			delete(q.pending, key)
			w.Quotas = append(w.Quotas, spec)
		}
	}
	for key, p := range q.pending {
		if !p.until.After(now) {
			delete(q.pending, key)
			continue
		}
		if p.spec != nil {
			w.Quotas = append(w.Quotas, *p.spec)
		}
		if p.until.Before(q.expires) {
			q.expires = p.until
		}
	}
	return quota.NewChecker(w)
}

// isShown reports whether a version of the object is the change or comes after it.
func (p pendingQuota) isShown(version string) bool {
	order, err := resourceversion.CompareResourceVersion(version, p.base)
	return p.base == "" || err != nil || order > 0
}

func (q *Quotas) used(name string) amount.List {
	r, _ := q.store.Report(name)
	return r.Used
}

// answer admits or refuses a change of an ElasticQuota.
func (q *Quotas) answer(req ctrl.Request, author admission.Author) ctrl.Response {
	now, old, err := readQuotas(req)
	if err != nil {
		return respond(req, admission.Unreadable(err))
	}
	var a admission.Answer
	if err := q.locked(func(rules *quota.Checker) {
		q.store.Read(func(pods *quota.Account) { rules.Pods = pods.Counts() })
		a = admission.Quota(now, old, rules, author)
		if !a.Allowed() || req.DryRun != nil && *req.DryRun {
			return
		}
		spec, _ := convert.Quota(cmp.Or(now, old))
		p := pendingQuota{base: q.shown[keyOf(&spec)], until: time.Now().Add(pendingFor)}
		if old != nil {
			p.base = old.ResourceVersion
		}
		if now != nil {
			p.spec = &spec
		}
		q.pending[keyOf(&spec)], q.rules = p, nil
	}); err != nil {
		return ctrl.Errored(http.StatusServiceUnavailable, err)
	}
	return respond(req, a)
}

// addTree gives an ElasticQuota that is created the tree of its parent.
func (q *Quotas) addTree(_ context.Context, req ctrl.Request) ctrl.Response {
	now, _, err := readQuotas(req)
	if err != nil {
		return respond(req, admission.Unreadable(err))
	}
	tree := ""
	if err := q.locked(func(rules *quota.Checker) { tree = admission.TreeOf(now, rules) }); err != nil {
		return ctrl.Errored(http.StatusServiceUnavailable, err)
	}
	response := ctrl.Allowed("")
	if tree != now.Labels[annotation.QuotaTreeID] { // it names a parent, so it has labels
		kind, path := admissionv1.PatchTypeJSONPatch, strings.ReplaceAll(annotation.QuotaTreeID, "/", "~1")
		step := map[string]string{"op": "add", "path": "/metadata/labels/" + path, "value": tree}
		patch, err := json.Marshal([]any{step})
		if err != nil {
			return ctrl.Errored(http.StatusInternalServerError, err)
		}
		response.Patch, response.PatchType = patch, &kind
	}
	return response
}

// readQuotas reads the objects of a request; nil where it has none. What cannot be read of the old one does not matter.
func readQuotas(req ctrl.Request) (now, old *v1alpha1.ElasticQuota, err error) {
	if len(req.OldObject.Raw) > 0 {
		old, _ = kube.ReadQuota(req.OldObject.Raw)
	}
	if len(req.Object.Raw) > 0 {
		now, err = kube.ReadQuota(req.Object.Raw)
	} else if old == nil {
		err = errors.New("the request has no object")
	}
	return now, old, err
}

// addPod adds what is to be said about the quota of a pod. Pods that name none do not wait for the informers.
func (q *Quotas) addPod(a *admission.Answer, pod, old *corev1.Pod) {
	err := q.locked(func(rules *quota.Checker) {
		more := admission.PodQuota(pod, old, rules)
		a.Refusals, a.Warnings = append(a.Refusals, more.Refusals...), append(a.Warnings, more.Warnings...)
		if old != nil && len(more.Refusals) == 0 && convert.PodsOf(pod) != convert.PodsOf(old) {
			a.Refusals = append(a.Refusals, admission.QuotaChange(q.store.AdmitChange(pod), true).Refusals...)
		}
	})
	if _, named := pod.Labels[annotation.QuotaName]; err != nil && named {
		a.Refusals = append(a.Refusals, admission.Unreadable(err).Refusals...)
	}
}

// addResize adds what the quota of a bound pod says about other amounts.
func (q *Quotas) addResize(a *admission.Answer, pod *corev1.Pod) {
	if !q.HasSynced() {
		if _, named := pod.Labels[annotation.QuotaName]; named {
			a.Refusals = append(a.Refusals, admission.Unreadable(errNotRead).Refusals...)
		}
		return
	}
	a.Refusals = append(a.Refusals, admission.QuotaChange(q.store.AdmitChange(pod), false).Refusals...)
}
