package explanation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/tenon-project/tenon/api/explanation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/diag/whatif"
	"github.com/tenon-project/tenon/internal/view"
)

const (
	// refresh is how often an answer is looked at without an event, repeat how often at most with events.
	refresh = 10 * time.Second
	repeat  = time.Second
	// heartbeat is how often an answer that has not changed is written.
	heartbeat = time.Minute
	// followerPause is how often a process that may not answer looks whether it may.
	followerPause = 5 * time.Second
	// After an answer the worker pauses restPerAnswer times as long as it took, and at least leastRest.
	restPerAnswer = 9
	leastRest     = 100 * time.Millisecond
)

// Scheduler is what a Writer asks about pods.
type Scheduler interface {
	// Ready returns why this process does not answer, nil if it leads and knows all accounts.
	Ready() error
	// Pod returns the pod of a name; of the name of a gang, a member that waits, or any. nil for neither.
	Pod(namespace, name string) *corev1.Pod
	// Explain returns why a pod is pending, or how it was placed, to a caller who may read the pods of some namespaces.
	Explain(ctx context.Context, pod *corev1.Pod, mayRead func(namespace string) bool) (view.Pod, error)
}

// Questions are answered about other clusters, by whatif.Engine.
type Questions interface {
	Answer(ctx context.Context, q *view.WhatIf) (*view.WhatIfAnswer, error)
}

// Writer answers ScheduleExplanations. All fields are required.
type Writer struct {
	Client rest.Interface
	// Objects are the ScheduleExplanations, which Run starts, Pods all pods, which the caller starts.
	Objects, Pods cache.SharedIndexInformer
	// Scheduler explains pods, WhatIf answers questions about them.
	Scheduler Scheduler
	WhatIf    Questions

	// answers has the last answer to each object, by its key. Only the worker uses it.
	answers map[string]answer
}

// answer is an answer to the object of a UID and generation.
type answer struct {
	uid        types.UID
	generation int64
	status     v1alpha1.ScheduleExplanationStatus
	// looked is when the pod was looked at last, written when the status was written.
	looked, written time.Time
}

// asked is the index of the objects by the pod that they ask about.
const asked = "asked"

// Run answers until ctx ends.
func (w *Writer) Run(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	w.answers = map[string]answer{}
	err := w.Objects.AddIndexers(cache.Indexers{asked: func(object any) ([]string, error) {
		if o, ok := object.(*v1alpha1.ScheduleExplanation); ok {
			return []string{o.Spec.QuestionObjectKey}, nil
		}
		return nil, nil
	}})
	_, failed := w.Objects.AddEventHandler(kube.ByName(queue.Add))
	err = errors.Join(err, failed)
	_, failed = w.Pods.AddEventHandler(kube.ByName(func(pod string) {
		objects, _ := w.Objects.GetIndexer().ByIndex(asked, pod) // the index exists
		for _, object := range objects {
			if key, err := cache.MetaNamespaceKeyFunc(object); err == nil {
				queue.Add(key)
			}
		}
	}))
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("follow ScheduleExplanations: %w", err)
	}
	go w.Objects.RunWithContext(ctx)
	kube.Work(ctx, queue, "Failed to answer a ScheduleExplanation; it is tried again", w.look)
	return nil
}

// look answers one object, or deletes it. It returns after what time to look again.
func (w *Writer) look(ctx context.Context, key string) (time.Duration, error) {
	object, exists, err := w.Objects.GetIndexer().GetByKey(key)
	o, ok := object.(*v1alpha1.ScheduleExplanation)
	if err != nil || !exists || !ok {
		delete(w.answers, key)
		return 0, err
	}
	if w.Scheduler.Ready() != nil {
		delete(w.answers, key) // another process may write meanwhile
		return followerPause, nil
	}
	now, next := time.Now(), refresh
	ttl, wrong := ttlOf(o)
	if ttl > 0 {
		left := o.CreationTimestamp.Add(ttl).Sub(now)
		if left <= 0 {
			return 0, w.delete(ctx, o)
		}
		next = min(next, left)
	}
	last := w.answers[key]
	same := last.uid == o.UID && last.generation == o.Generation
	if early := repeat - now.Sub(last.looked); same && early > 0 {
		return early, nil
	}
	written := o.Status.LastUpdateTime
	isForeign := written != nil && !(last.uid == o.UID && written.Unix() == last.written.Unix())
	status, err := w.answer(ctx, o, wrong, isForeign)
	took := time.Since(now)
	defer pause(ctx, max(restPerAnswer*took, leastRest))
	if errors.As(err, &whatif.Busy{}) {
		return repeat, nil
	}
	if err != nil || status == nil {
		return next, err
	}
	last.looked = now
	if !same || now.Sub(last.written) >= heartbeat || !equality.Semantic.DeepEqual(&last.status, status) {
		last = answer{o.UID, o.Generation, *status, now, now}
		status.LastUpdateTime = &metav1.Time{Time: now}
		if err := w.write(ctx, o, status); err != nil {
			return 0, err
		}
	}
	w.answers[key] = last
	return next, nil
}

// pause lets the worker rest.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// answer returns the status of an object; nil for a pod of another scheduler, which is not ours to explain. wrong is
// what is known to be wrong with the object. Another scheduler may answer what cannot be answered here, such as a
// template: isForeign says that the object has an answer that this process has not written.
func (w *Writer) answer(ctx context.Context, o *v1alpha1.ScheduleExplanation, wrong string, isForeign bool,
) (*v1alpha1.ScheduleExplanationStatus, error) {
	name, unnamed := nameOf(o)
	switch wrong = cmp.Or(wrong, unnamed); {
	case wrong != "" && isForeign && o.Status.FailedMessage != wrong:
		return nil, nil
	case wrong != "":
		return failed(wrong), nil
	}
	pod := w.Scheduler.Pod(o.Namespace, name)
	if pod == nil {
		return failed(fmt.Sprintf("cannot find pod or gang %s/%s: it does not exist, or has ended", o.Namespace,
			name)), nil
	}
	said, err := w.Scheduler.Explain(ctx, pod, func(namespace string) bool { return namespace == o.Namespace })
	if err != nil {
		return nil, fmt.Errorf("explain pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	switch root := said.RootCause; {
	case root != nil && root.Code == why.NoScheduler:
		return nil, nil
	case root == nil || !mayPreempt(root.Code):
		return answerOf(&said, nil), nil
	}
	preempted, err := w.WhatIf.Answer(ctx, &view.WhatIf{Ask: view.Ask{Pods: []string{said.Pod}, Mode: view.Preempt}})
	if errors.As(err, &whatif.Busy{}) {
		return nil, err
	}
	return answerOf(&said, preempted), nil // without what cannot be asked about the pod
}

// write replaces the status of an object that still has its UID.
func (w *Writer) write(ctx context.Context, o *v1alpha1.ScheduleExplanation,
	status *v1alpha1.ScheduleExplanationStatus,
) error {
	type step struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	text, err := json.Marshal([]step{{"test", "/metadata/uid", o.UID}, {"add", "/status", status}})
	if err == nil {
		err = w.Client.Patch(types.JSONPatchType).AbsPath(append(pathOf(o), "status")...).Body(text).Do(ctx).Error()
	}
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return nil // it is gone, and an event says so
	}
	return err
}

// delete deletes an object that still has its UID.
func (w *Writer) delete(ctx context.Context, o *v1alpha1.ScheduleExplanation) error {
	text, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions: &metav1.Preconditions{UID: &o.UID},
	})
	if err == nil {
		err = w.Client.Delete().AbsPath(pathOf(o)...).Body(text).Do(ctx).Error()
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// pathOf is the path of an object on the API server.
func pathOf(o *v1alpha1.ScheduleExplanation) []string {
	at := v1alpha1.Resource()
	return []string{"/apis", at.Group, at.Version, "namespaces", o.Namespace, at.Resource, o.Name}
}
