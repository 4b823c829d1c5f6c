package sim

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/sched/journal"
)

// decode returns the object of a record; nil for one without.
func (r *replay) decode(record *journal.Record) (journal.Object, error) {
	if record.Event == nil || len(record.Event.Object) == 0 {
		return nil, nil
	}
	return r.objects.Decode(record.Event)
}

// event applies a recorded event; o is its object.
func (r *replay) event(ctx context.Context, e *journal.Event, o journal.Object) error {
	switch e.Op {
	case journal.Release:
		r.release(ctx, types.UID(e.UID))
		return nil
	case journal.Forget:
		r.engine.forget(ctx, types.UID(e.UID))
		return nil
	case journal.Expire:
		coscheduling.Expire(r.engine.gangs, r.at)
		return nil
	case journal.Deadlocks:
		r.engine.rounds.LookForDeadlocks(klog.FromContext(ctx))
		return nil
	}
	if o == nil {
		return errors.New("event.object: must be set")
	}
	if n, ok := o.(*reservation.Reservation); ok && n.Status.NodeName != "" {
		defer r.bound(ctx, n.UID)
	}
	if claim, ok := o.(*resourcev1.ResourceClaim); ok && e.Op == journal.Written {
		r.written(claim)
		return nil
	}
	if e.Op == journal.Written || e.Op == journal.Ended {
		r.engine.api.reserved.Apply(kube.OwnChange(e.Op), o)
		return nil
	}
	if pod, ok := o.(*corev1.Pod); ok {
		r.putPod(ctx, pod, e.Op)
		return nil
	}
	return r.engine.put(e, o)
}

// put applies the event of an object that is not a pod.
func (e *engine) put(recorded *journal.Event, o journal.Object) error {
	if n, ok := o.(*corev1.Node); ok {
		e.putNode(n, recorded.Op)
		return nil
	}
	gone := recorded.Op == journal.Delete
	if e.follows(o) {
		e.putFollowed(o, gone)
		return nil
	}
	if gone && e.table.Remove(o) || !gone && e.table.Put(o) {
		return nil
	}
	store := informerOf(o, e.factory).GetStore() // of a kind that plugins list
	if gone {
		return store.Delete(o)
	}
	return store.Add(o)
}

func (e *engine) putNode(n *corev1.Node, op string) {
	old, known, _ := e.api.nodes.GetStore().Get(n)
	switch {
	case op == journal.Delete && known:
		e.api.drop(e.api.nodes, old.(*corev1.Node))
	case op == journal.Put && known:
		e.api.replace(e.api.nodes, old.(*corev1.Node), n)
	case op == journal.Put:
		e.api.create(e.api.nodes, n)
	}
}

// putPod applies the event of a pod. One that has a node now, and is reserved, was bound as its decision says.
func (r *replay) putPod(ctx context.Context, p *corev1.Pod, op string) {
	e := r.engine
	o, known, _ := e.api.pods.GetStore().Get(p)
	old, _ := o.(*corev1.Pod)
	if known && old.UID != p.UID && op == journal.Put { // as kube.ByUID delivers it
		e.api.drop(e.api.pods, old)
		known = false
	}
	if r.forced[p.UID] != nil && op == journal.Put && p.Spec.NodeName == "" {
		r.forced[p.UID] = p
		return // the pod has a node in the replay
	}
	if op == journal.Put && p.Spec.NodeName != "" {
		r.bound(ctx, p.UID)
	}
	delete(r.forced, p.UID)
	r.unpromise(p.UID)
	switch {
	case op == journal.Delete && known:
		delete(r.keys, p.UID)
		e.api.drop(e.api.pods, old)
	case op == journal.Put && known:
		e.api.replace(e.api.pods, old, p)
	case op == journal.Put:
		r.keys[p.UID] = p.Namespace + "/" + p.Name
		e.api.create(e.api.pods, p)
	}
}

// force reserves a pod as it is recorded.
func (r *replay) force(d *journal.Decision) {
	pod := r.pod(types.UID(d.UID))
	if pod == nil || pod.Spec.NodeName != "" || d.Node == "" || d.Refused != "" || convert.IsReservePod(pod) {
		return
	}
	placed := pod.DeepCopy()
	placed.Spec.NodeName = d.Node
	for key, value := range d.Patch {
		metav1.SetMetaDataAnnotation(&placed.ObjectMeta, key, value)
	}
	r.forced[pod.UID] = pod
	r.promise(d)
	r.engine.api.replace(r.engine.api.pods, pod, placed)
}

// forget takes a pod off its node that was deleted before it was bound.
func (e *engine) forget(ctx context.Context, uid types.UID) {
	if assumed, err := e.core.Cache.GetPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}); err == nil {
		_ = e.core.Cache.ForgetPod(klog.FromContext(ctx), assumed) // fails where the replay has forgotten it already
	}
}

// waiting takes the binding cycle of a pod from those that have not ended; nil for none.
func (r *replay) waiting(uid types.UID) *bindingCycle {
	e := r.engine
	i := slices.IndexFunc(e.waiting, func(b *bindingCycle) bool { return b.pod.UID == uid })
	if i < 0 {
		return nil
	}
	b := e.waiting[i]
	e.waiting = slices.Delete(e.waiting, i, i+1)
	return b
}

// bound ends the binding cycle of a pod that was bound.
func (r *replay) bound(ctx context.Context, uid types.UID) {
	b := r.waiting(uid)
	if b == nil {
		return // another scheduler bound it, or the pod was bound before
	}
	if w := b.profile.GetWaitingPod(uid); w != nil {
		for _, plugin := range w.GetPendingPlugins() {
			w.Allow(plugin)
		}
		b.profile.WaitOnPermit(ctx, b.pod)
	}
	b.finish(nil)
}

// release ends the binding cycle of a pod that was not bound.
func (r *replay) release(ctx context.Context, uid types.UID) {
	if was := r.forced[uid]; was != nil {
		delete(r.forced, uid)
		r.unpromise(uid)
		if now := r.pod(uid); now != nil {
			r.engine.api.drop(r.engine.api.pods, now)
			r.engine.api.create(r.engine.api.pods, was)
		}
	}
	b := r.waiting(uid)
	if b == nil {
		return
	}
	status := fwk.AsStatus(errors.New("the pod was not bound"))
	if w := b.profile.GetWaitingPod(uid); w != nil {
		w.Reject("", "the pod was not bound")
		status = b.profile.WaitOnPermit(ctx, b.pod)
	}
	b.finish(status)
}
