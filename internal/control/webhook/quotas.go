package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// pendingFor is how long an admitted change counts that no informer has shown: the API server may have dropped it.
const pendingFor = 10 * time.Second

// Quotas answers about ElasticQuotas and the quotas of pods, from what informers have shown and from the changes that
// it
// admitted since. Its answers come one after the other, so that two changes which exclude each other are not both
// admitted.
type Quotas struct {
	// RelaxResourceKeys accepts a child whose max has only some dimensions of its parent's.
	RelaxResourceKeys bool

	informers []cache.SharedIndexInformer
	handlers  []cache.ResourceEventHandlerRegistration

	mu      sync.Mutex // guards what follows
	seen    map[quotaKey]seenQuota
	pending map[quotaKey]pendingQuota
	pods    map[quota.PodsOf]int
	rules   *quota.Checker // nil when quotas have changed
	expires time.Time      // when rules are void because a change is no longer pending
}

type quotaKey struct{ group, namespace, name string }

type seenQuota struct {
	spec quota.Spec
	used quota.Amounts
}

// pendingQuota is an admitted change: spec is nil for a deletion. base is the resource version that it changed.
type pendingQuota struct {
	spec  *quota.Spec
	base  string
	until time.Time
}

// NewQuotas returns Quotas that follow informers of ElasticQuotas, and one of the metadata of pods that have not ended.
func NewQuotas(pods cache.SharedIndexInformer, quotas ...cache.SharedIndexInformer) (*Quotas, error) {
	q := &Quotas{
		informers: slices.Concat(quotas, []cache.SharedIndexInformer{pods}),
		seen:      map[quotaKey]seenQuota{}, pending: map[quotaKey]pendingQuota{}, pods: map[quota.PodsOf]int{},
	}
	handler, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { q.count(obj, 1) },
		UpdateFunc: func(old, obj any) {
			q.count(old, -1)
			q.count(obj, 1)
		},
		DeleteFunc: func(obj any) { q.count(obj, -1) },
	})
	q.handlers = append(q.handlers, handler)
	for _, informer := range quotas {
		handler, failed := informer.AddEventHandler(kube.Handler(q.put, q.remove))
		q.handlers, err = append(q.handlers, handler), errors.Join(err, failed)
	}
	return q, err
}

// Start runs the informers until ctx ends.
func (q *Quotas) Start(ctx context.Context) error {
	var running sync.WaitGroup
	for _, informer := range q.informers {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	running.Wait()
	return nil
}

// NeedLeaderElection is false: every replica answers.
func (q *Quotas) NeedLeaderElection() bool { return false }

func (q *Quotas) put(e *v1alpha1.ElasticQuota) {
	spec, _ := convert.Quota(e)
	key := keyOf(&spec)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.seen[key] = seenQuota{spec, convert.Amounts(e.Status.Used)}
	if p, ok := q.pending[key]; ok {
		if newer, err := resourceversion.CompareResourceVersion(e.ResourceVersion, cmp.Or(p.base,
			"1")); err != nil || newer > 0 {
			delete(q.pending, key)
		}
	}
	q.rules = nil
}

func (q *Quotas) remove(e *v1alpha1.ElasticQuota) {
	spec, _ := convert.Quota(e)
	key := keyOf(&spec)
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.seen, key)
	if p := q.pending[key]; p.spec == nil {
		delete(q.pending, key)
	}
	q.rules = nil
}

func (q *Quotas) count(obj any, n int) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	pod, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	key := convert.PodsOf(&corev1.Pod{ObjectMeta: pod.ObjectMeta})
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pods[key] += n; q.pods[key] == 0 {
		delete(q.pods, key)
	}
}

func keyOf(s *quota.Spec) quotaKey { return quotaKey{s.Group, s.Namespace, s.Name} }

// HasSynced reports whether the informers have shown everything that there was at first.
func (q *Quotas) HasSynced() bool {
	return !slices.ContainsFunc(q.handlers,
		func(h cache.ResourceEventHandlerRegistration) bool { return !h.HasSynced() })
}

// locked calls f with the rules in force.
func (q *Quotas) locked(f func(rules *quota.Checker)) error {
	if !q.HasSynced() {
		return errors.New("elastic quotas are not read yet; retry in a moment")
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if now := time.Now(); q.rules == nil || !q.expires.After(now) {
		q.rules = q.newRules(now)
	}
	f(q.rules)
	return nil
}

func (q *Quotas) newRules(now time.Time) *quota.Checker {
	w := quota.World{Pods: q.pods, RelaxResourceKeys: q.RelaxResourceKeys}
	used := map[string]quota.Amounts{}
	for key, s := range q.seen {
		used[key.name] = s.used
		if q.pending[key].until.Before(now) {
			w.Quotas = append(w.Quotas, s.spec)
		}
	}
	w.Used = func(name string) quota.Amounts { return used[name] }
	q.expires = now.Add(time.Hour)
	for key, p := range q.pending {
		if p.until.Before(now) {
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

// answer admits or refuses a change of an ElasticQuota.
func (q *Quotas) answer(req ctrl.Request, by admission.Author) ctrl.Response {
	now, old, err := readQuotas(req)
	if err != nil {
		return respond(req, admission.Unreadable(err))
	}
	var a admission.Answer
	if err := q.locked(func(rules *quota.Checker) {
		a = admission.Quota(now, old, rules, by)
		if !a.Allowed() || req.DryRun != nil && *req.DryRun {
			return
		}
		spec, _ := convert.Quota(cmp.Or(now, old))
		p := pendingQuota{until: time.Now().Add(pendingFor)}
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
		patch, err := json.Marshal([]admission.Step{{Op: "add", Path: "/metadata/labels/" + path, Value: tree}})
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
		a.Refusals = append(a.Refusals, more.Refusals...)
	})
	if _, named := pod.Labels[annotation.QuotaName]; err != nil && named {
		a.Refusals = append(a.Refusals, admission.Unreadable(err).Refusals...)
	}
}
