package sim

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	coreinformers "k8s.io/client-go/informers/core/v1"
	resourceinformers "k8s.io/client-go/informers/resource/v1"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// apiServer is the part of an API server that a scheduler needs, in memory: it binds, patches and deletes pods. It
// delivers each change to all event handlers before it answers, so that nothing runs concurrently with the caller. It
// is not safe for concurrent use.
type apiServer struct {
	pods, nodes, claims *informer
	reservations        cache.Store
	table               accounts.Table // follows pods, nodes and reservations
	reserved            *kube.Reservations
	clock               *stepClock
	version             int
	// deleted is called with each pod that was deleted.
	deleted func(*corev1.Pod)
	// evicted deletes a pod that was asked to leave. nil: no pod is.
	evicted func(*corev1.Pod)
	// recorded is set in a replay: writes are answered and change nothing, as what became of them is recorded.
	recorded bool
	// fault is called before each request is answered. If it returns an error, the request fails with it. nil: no
	// request fails.
	fault func(r *http.Request, body []byte) error
	// changes counts the pods that were bound or deleted, which may let other pods fit.
	changes int
}

// informer delivers the changes of its store in the goroutine that makes them. The embedded informer is never started.
type informer struct {
	cache.SharedIndexInformer
	handlers []cache.ResourceEventHandler
}

func newPods(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
	return &informer{SharedIndexInformer: coreinformers.NewPodInformer(client, metav1.NamespaceAll, resync,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})}
}

func newNodes(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
	return &informer{SharedIndexInformer: coreinformers.NewNodeInformer(client, resync, nil)}
}

func newResourceClaims(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
	return &informer{
		SharedIndexInformer: resourceinformers.NewResourceClaimInformer(client, metav1.NamespaceAll, resync,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
	}
}

// volumeInformers construct the informers that feed caches of the scheduler, besides those of pods, nodes and claims of
// devices, by an object of their kind.
var volumeInformers = map[runtime.Object]func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer{
	&corev1.PersistentVolumeClaim{}: func(c kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return &informer{
			SharedIndexInformer: coreinformers.NewPersistentVolumeClaimInformer(c, metav1.NamespaceAll, resync,
				cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		}
	},
	&corev1.PersistentVolume{}: func(c kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return &informer{SharedIndexInformer: coreinformers.NewPersistentVolumeInformer(c, resync, cache.Indexers{})}
	},
	&resourcev1.DeviceClass{}: func(c kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return &informer{SharedIndexInformer: resourceinformers.NewDeviceClassInformer(c, resync, cache.Indexers{})}
	},
	&resourcev1.DeviceTaintRule{}: func(c kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return &informer{SharedIndexInformer: resourceinformers.NewDeviceTaintRuleInformer(c, resync, cache.Indexers{})}
	},
	&resourcev1.ResourceSlice{}: func(c kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return &informer{SharedIndexInformer: resourceinformers.NewResourceSliceInformer(c, resync, cache.Indexers{})}
	},
}

func (i *informer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, cache.HandlerOptions{})
}

func (i *informer) AddEventHandlerWithOptions(h cache.ResourceEventHandler,
	o cache.HandlerOptions,
) (cache.ResourceEventHandlerRegistration, error) {
	i.handlers = append(i.handlers, h)
	return i.SharedIndexInformer.AddEventHandlerWithOptions(cache.ResourceEventHandlerFuncs{}, o)
}

// create stores an object with a new resource version. It cannot fail: stores refuse only objects without a name.
func (s *apiServer) create(i *informer, o metav1.Object) {
	s.stamp(o)
	utilruntime.Must(i.GetStore().Add(o))
	for _, h := range i.handlers {
		h.OnAdd(o, true)
	}
}

func (s *apiServer) stamp(o metav1.Object) {
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
}

func (s *apiServer) update(old, pod *corev1.Pod) { s.replace(s.pods, old, pod) }

// replace stores another state of an object.
func (s *apiServer) replace(i *informer, old, now metav1.Object) {
	s.stamp(now)
	utilruntime.Must(i.GetStore().Update(now))
	for _, h := range i.handlers {
		h.OnUpdate(old, now)
	}
}

// drop removes an object.
func (s *apiServer) drop(i *informer, o metav1.Object) {
	utilruntime.Must(i.GetStore().Delete(o))
	for _, h := range i.handlers {
		h.OnDelete(o)
	}
}

// claim returns, replaces or deletes a ResourceClaim.
func (s *apiServer) claim(method, key string, body []byte) (runtime.Object, error) {
	if method == http.MethodPut {
		return s.putClaim(body)
	}
	o, known, err := s.claims.GetStore().GetByKey(key)
	if err != nil || !known {
		return nil, apierrors.NewNotFound(resourcev1.Resource("resourceclaims"), key)
	}
	claim := o.(*resourcev1.ResourceClaim)
	switch method {
	case http.MethodGet:
	case http.MethodDelete:
		s.drop(s.claims, claim)
	default:
		return nil, fmt.Errorf("simulate has no API server for %s of a ResourceClaim", method)
	}
	return claim, nil
}

// newClaim creates the claim of a pod that requests extended resources of a DeviceClass.
func (s *apiServer) newClaim(body []byte) (runtime.Object, error) {
	claim, err := decodeClaim(body)
	if err != nil {
		return nil, err
	}
	claim.Name = cmp.Or(claim.Name, claim.GenerateName+strconv.Itoa(s.version))
	claim.UID = types.UID("simulated/" + claim.Namespace + "/" + claim.Name)
	s.create(s.claims, claim)
	return claim, nil
}

// recordedClaim returns the claim that was created for the extended resources of a pod, as it was then.
func (s *apiServer) recordedClaim(body []byte) (runtime.Object, error) {
	asked, err := decodeClaim(body)
	if err != nil {
		return nil, err
	}
	for _, o := range s.claims.GetStore().List() {
		claim, owner := o.(*resourcev1.ResourceClaim), metav1.GetControllerOfNoCopy(asked)
		if owner != nil && convert.IsMade(claim) && metav1.IsControlledBy(claim, &metav1.ObjectMeta{UID: owner.UID}) {
			claim = claim.DeepCopy()
			claim.Status = resourcev1.ResourceClaimStatus{}
			return claim, nil
		}
	}
	return nil, errors.New("the journal has no claim for the extended resources of the pod")
}

func decodeClaim(body []byte) (*resourcev1.ResourceClaim, error) {
	claim := &resourcev1.ResourceClaim{}
	if _, _, err := clientscheme.Codecs.UniversalDeserializer().Decode(body, nil, claim); err != nil {
		return nil, fmt.Errorf("read the claim: %w", err)
	}
	return claim, nil
}

// putClaim replaces a ResourceClaim, or its status: whoever writes one sends the whole claim.
func (s *apiServer) putClaim(body []byte) (runtime.Object, error) {
	claim, err := decodeClaim(body)
	if err != nil {
		return nil, err
	}
	old, known, err := s.claims.GetStore().Get(claim)
	if err != nil || !known {
		return nil, apierrors.NewNotFound(resourcev1.Resource("resourceclaims"), claim.Name)
	}
	if old := old.(*resourcev1.ResourceClaim); old.ResourceVersion != claim.ResourceVersion {
		return nil, apierrors.NewConflict(resourcev1.Resource("resourceclaims"), claim.Name,
			errors.New("it has changed"))
	}
	s.stamp(claim)
	utilruntime.Must(s.claims.GetStore().Update(claim))
	for _, h := range s.claims.handlers {
		h.OnUpdate(old, claim)
	}
	return claim, nil
}

// RoundTrip answers a request.
func (s *apiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		defer func() { _ = r.Body.Close() }() // it is in memory
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, fmt.Errorf("read the request: %w", err)
		}
	}
	code := http.StatusOK
	answer, err := s.serve(r, body)
	if refused := apierrors.APIStatus(nil); errors.As(err, &refused) {
		status := refused.Status()
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		code, answer, err = int(status.Code), &status, nil
	}
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": []string{runtime.ContentTypeJSON}},
		Body:   io.NopCloser(bytes.NewReader(text)),
	}, nil
}

// serve answers requests about /api/v1/namespaces/NAMESPACE/pods/NAME and what is below.
func (s *apiServer) serve(r *http.Request, body []byte) (runtime.Object, error) {
	if s.fault != nil {
		if err := s.fault(r, body); err != nil {
			return nil, err
		}
	}
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if s.recorded && r.Method == http.MethodPut && len(path) >= 7 && path[5] == "resourceclaims" {
		return decodeClaim(body) // as if it were written
	}
	if s.recorded && r.Method == http.MethodPost && len(path) == 6 && path[5] == "resourceclaims" {
		return s.recordedClaim(body)
	}
	if s.recorded && r.Method != http.MethodGet {
		return &metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess,
		}, nil
	}
	if r.Method == http.MethodPost && len(path) == 6 && path[5] == "resourceclaims" {
		return s.newClaim(body)
	}
	if len(path) >= 7 && path[5] == "resourceclaims" {
		return s.claim(r.Method, path[4]+"/"+path[6], body)
	}
	if r.Method == http.MethodPatch && len(path) >= 5 && path[3] == "reservations" {
		return s.patchReservation(path[4], body)
	}
	if len(path) < 6 || path[4] != "pods" {
		return nil, fmt.Errorf("simulate has no API server for %s %s", r.Method, r.URL.Path)
	}
	o, known, err := s.pods.GetStore().GetByKey(path[3] + "/" + path[5])
	if err != nil || !known {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), path[5])
	}
	pod, verb := o.(*corev1.Pod), strings.Join(append([]string{r.Method}, path[6:]...), " ")
	switch {
	case verb == "GET":
		return pod, nil
	case verb == "POST binding":
		return s.bind(pod, body)
	case verb == "POST eviction":
		s.evicted(pod)
		return &metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess,
		}, nil
	case verb == "DELETE":
		s.remove(pod)
		return pod, nil
	case (verb == "PATCH" || verb == "PATCH status") &&
		r.Header.Get("Content-Type") == string(types.StrategicMergePatchType):
		return s.patch(pod, body)
	}
	return nil, fmt.Errorf("simulate has no API server for %s %s", r.Method, r.URL.Path)
}

// bind sets the node of a pod. The pod runs at once.
func (s *apiServer) bind(old *corev1.Pod, body []byte) (runtime.Object, error) {
	var binding corev1.Binding
	if err := json.Unmarshal(body, &binding); err != nil {
		return nil, fmt.Errorf("read the binding: %w", err)
	}
	if old.Spec.NodeName != "" || binding.UID != "" && binding.UID != old.UID {
		return nil, apierrors.NewConflict(corev1.Resource("pods/binding"), old.Name,
			errors.New("the pod is another one or has a node"))
	}
	pod := old.DeepCopy()
	pod.Spec.NodeName = binding.Target.Name
	for key, value := range binding.Annotations {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value)
	}
	start(pod, s.clock.Now())
	s.changes++
	s.update(old, pod)
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess,
		Code: http.StatusCreated,
	}, nil
}

// start makes a pod one that runs, unless its status says more.
func start(pod *corev1.Pod, at time.Time) {
	if s := &pod.Status; s.StartTime == nil {
		s.StartTime = new(metav1.NewTime(at))
	}
	if s := &pod.Status; s.Phase == "" || s.Phase == corev1.PodPending && len(s.Conditions) == 0 {
		s.Phase = corev1.PodRunning
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	}
}

func (s *apiServer) patch(old *corev1.Pod, patch []byte) (runtime.Object, error) {
	was, err := json.Marshal(old)
	if err != nil {
		return nil, fmt.Errorf("encode pod %s/%s: %w", old.Namespace, old.Name, err)
	}
	pod := &corev1.Pod{}
	patched, err := strategicpatch.StrategicMergePatch(was, patch, corev1.Pod{})
	if err == nil {
		err = json.Unmarshal(patched, pod)
	}
	if err != nil {
		return nil, fmt.Errorf("patch pod %s/%s: %w", old.Namespace, old.Name, err)
	}
	pod.Status.StartTime = old.Status.StartTime // JSON has whole seconds alone
	s.update(old, pod)
	return pod, nil
}

func (s *apiServer) remove(pod *corev1.Pod) {
	s.deleted(pod)
	s.leave(pod)
}

// leave takes a pod out of the cluster that has ended, or is deleted.
func (s *apiServer) leave(pod *corev1.Pod) {
	s.changes++
	s.drop(s.pods, pod)
	if !s.recorded {
		s.releaseClaims(pod)
	}
}

// releaseClaims does what Kubernetes' controllers do once a pod is gone: its own claims are deleted, and others are
// deallocated if no other pod may use them.
func (s *apiServer) releaseClaims(pod *corev1.Pod) {
	for _, key := range slices.Sorted(slices.Values(s.claims.GetStore().ListKeys())) {
		o, _, err := s.claims.GetStore().GetByKey(key)
		utilruntime.Must(err)
		old := o.(*resourcev1.ResourceClaim)
		isOf := func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == pod.UID }
		left := slices.DeleteFunc(slices.Clone(old.Status.ReservedFor), isOf)
		switch {
		case metav1.IsControlledBy(old, pod):
			s.drop(s.claims, old)
		case len(left) < len(old.Status.ReservedFor):
			claim := old.DeepCopy()
			if claim.Status.ReservedFor = left; len(left) == 0 {
				claim.Status.Allocation, claim.Status.Devices = nil, nil
			}
			s.replace(s.claims, old, claim)
		}
	}
}
