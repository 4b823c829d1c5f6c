package kube

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Listener is notified of the outcome of predictions. Its functions are called without the store's locks, from the
// goroutine that updates the store; they must not block.
type Listener struct {
	// Confirmed is called when a node reports what a pod has, for the first time since the store is synced.
	Confirmed func(node string, c tenancy.Confirmation)
	// Left is called when a pod loses its entry: it is gone, has ended, or holds nothing that is accounted for.
	Left func(node string, e ledger.Entry)
}

// SetListener makes l the store's listener, in place of any other.
func (s *Store) SetListener(l Listener) { s.listener.Store(&l) }

// rejectedPrefix marks the entries of Hold, which are of no live pod. No UID of a pod has a slash.
const rejectedPrefix = "rejected/"

// Hold keeps what a rejected pod was predicted to get, until Release: the kubelet frees it some time after it has
// rejected the pod.
func (s *Store) Hold(node string, e ledger.Entry) {
	if e.Guest == nil {
		return
	}
	pod := *e.Guest.Pod
	pod.UID = rejectedPrefix + e.UID
	guest := *e.Guest
	guest.Pod = &pod
	rejected := ledger.Entry{UID: pod.UID, Namespace: e.Namespace, Name: e.Name, Class: e.Class, Guest: &guest}
	s.change(node, func(r *record) { r.ledger.Put(rejected) })
}

// Release ends a Hold.
func (s *Store) Release(node, uid string) {
	s.change(node, func(r *record) { r.ledger.Remove(rejectedPrefix + uid) })
}

// Holder returns on which node a pod has an entry.
func (s *Store) Holder(uid string) (node string, e ledger.Entry, found bool) {
	name, ok := s.holders.Load(uid)
	if !ok {
		return "", ledger.Entry{}, false
	}
	node = name.(string)
	e, found = s.View(node).Entry(uid)
	return node, e, found
}

// NewRejectionInformer returns an informer of pods that have failed. The scheduler's own pods are those that have not,
// so it never sees why one did. Of pods that no kubelet rejected only the name is kept.
func NewRejectionInformer(client kubernetes.Interface) cache.SharedIndexInformer {
	failed := fields.OneTermEqualSelector("status.phase", string(corev1.PodFailed)).String()
	informer := coreinformers.NewFilteredPodInformer(client, metav1.NamespaceAll, 0, cache.Indexers{},
		func(o *metav1.ListOptions) { o.FieldSelector = failed })
	_ = informer.SetTransform(trimFailed) // fails only once it runs
	return informer
}

func trimFailed(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	if _, rejected := convert.Rejected(pod); rejected {
		pod.ManagedFields = nil
		return pod, nil
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}}, nil
}
