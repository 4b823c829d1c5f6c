package migration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/core/move"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// source is where objects are read: nil for one that does not exist.
type source interface {
	pod(ctx context.Context, ref corev1.ObjectReference) (*corev1.Pod, error)
	place(ctx context.Context, name string) (*reservation.Reservation, error)
	request(ctx context.Context, j *v1alpha1.PodMigrationJob) (*unstructured.Unstructured, error)
	// fleet returns all jobs and all Reservations.
	fleet(ctx context.Context) (*fleet, error)
}

// cached reads caches.
type cached struct{ c *Controller }

func (s cached) pod(_ context.Context, ref corev1.ObjectReference) (*corev1.Pod, error) {
	return s.c.Cluster.Pod(ref.Namespace, ref.UID), nil
}

func (s cached) place(_ context.Context, name string) (*reservation.Reservation, error) {
	object, _, err := s.c.Reservations.GetByKey(name)
	r, _ := object.(*reservation.Reservation)
	return r, err
}

func (s cached) fleet(context.Context) (*fleet, error) {
	if s.c.fleet == nil {
		var places []*reservation.Reservation
		for _, object := range s.c.Reservations.List() {
			places = append(places, object.(*reservation.Reservation))
		}
		s.c.fleet = newFleet(s.c.jobs(), places, s.c.job)
	}
	return s.c.fleet, nil
}

// live reads the API server.
type live struct{ c *Controller }

func (s live) pod(ctx context.Context, ref corev1.ObjectReference) (*corev1.Pod, error) {
	p, err := s.c.Pods.CoreV1().Pods(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read pod %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	return p, nil
}

func (s live) place(ctx context.Context, name string) (*reservation.Reservation, error) {
	r := &reservation.Reservation{}
	if err := s.c.Client.Get(ctx, types.NamespacedName{Name: name}, r); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read reservation %s: %w", name, err)
	}
	return r, nil
}

func (s live) fleet(ctx context.Context) (*fleet, error) {
	var js v1alpha1.PodMigrationJobList
	var rs reservation.ReservationList
	if err := errors.Join(s.c.Client.List(ctx, &js), s.c.Client.List(ctx, &rs)); err != nil {
		return nil, fmt.Errorf("list jobs and reservations: %w", err)
	}
	jobs, places := make([]*v1alpha1.PodMigrationJob, len(js.Items)), make([]*reservation.Reservation, len(rs.Items))
	for i := range js.Items {
		jobs[i] = &js.Items[i]
	}
	for i := range rs.Items {
		places[i] = &rs.Items[i]
	}
	return newFleet(jobs, places, s.c.job), nil
}

// world collects what a step depends on.
func (c *Controller) world(ctx context.Context, j *v1alpha1.PodMigrationJob, m *move.Job, from source) (
	*move.World, error,
) {
	w := &move.World{Now: c.now(), Memory: c.Policy.Retention()}
	old, err := from.pod(ctx, *j.Spec.PodRef)
	if err != nil {
		return nil, err
	}
	if old != nil {
		w.Pod = podOf(old)
	}
	if err := c.readRequest(ctx, j, m, w, from); err != nil {
		return nil, err
	}
	r, err := readPlace(ctx, j, from)
	if err != nil {
		return nil, err
	}
	if r != nil {
		w.Place = placeOf(r, j)
	}
	if w.Successor, err = c.successor(ctx, r, m, from); err != nil {
		return nil, err
	}
	if r != nil && !w.Place.Foreign && !m.Status.Phase.IsFinal() {
		if old != nil {
			c.followAvoided(w.Place, j, old, r)
		}
		if err := c.exchange(ctx, w, m, j, r, from); err != nil {
			return nil, err
		}
	}
	if m.Passed && w.Successor == nil && old != nil && !m.Status.Phase.IsFinal() {
		c.check(w, j, old, r)
	}
	return w, nil
}

// followAvoided compares a place with the nodes that the job must avoid now: other jobs have started or ended since it
// was created. The scheduler knows them as node affinity, which the pod does not have: the refusal names them.
func (c *Controller) followAvoided(p *move.Place, j *v1alpha1.PodMigrationJob, pod *corev1.Pod,
	r *reservation.Reservation,
) {
	avoid := c.avoided(pod)
	if now, err := reservationFor(j, pod, avoid, 0); err == nil {
		p.Stale = !slices.Equal(convert.ExcludedNodes(&now.Spec.Template.Spec),
			convert.ExcludedNodes(&r.Spec.Template.Spec))
	}
	own := pod.Spec.NodeName
	p.Barred = p.Node != own && slices.Contains(avoid, p.Node)
	if p.Refused != "" && own != "" {
		p.Refused += " (the job excludes node " + own + " of the pod"
		avoid = slices.DeleteFunc(avoid, func(node string) bool { return node == own })
		if len(avoid) > 0 {
			p.Refused += fmt.Sprintf(", and by %s those that pods of the workload leave or have left: %s",
				evict.ReturnWindow, strings.Join(avoid, ", "))
		}
		p.Refused += ")"
	}
}

// avoided returns the nodes that a pod must not be moved to now.
func (c *Controller) avoided(pod *corev1.Pod) (nodes []string) {
	c.Cluster.Read(func(s *evict.State) { nodes = s.Avoid(c.Policy, string(pod.UID), c.Clock.Now()) })
	return nodes
}

// readPlace reads the Reservation of a job, nil where there is none.
func readPlace(ctx context.Context, j *v1alpha1.PodMigrationJob, from source) (*reservation.Reservation, error) {
	if placeName(j) == "" {
		return nil, nil
	}
	return from.place(ctx, placeName(j))
}

// successor returns the pod that uses a Reservation, or that the job knows already.
func (c *Controller) successor(ctx context.Context, r *reservation.Reservation, m *move.Job, from source) (
	*move.Pod, error,
) {
	if r != nil {
		if u, _, err := userOf(ctx, r, from); err != nil {
			return nil, err
		} else if u != nil {
			return &u.Pod, nil
		}
	}
	p, err := readPod(ctx, m.Status.Pod, from)
	if err != nil || p == nil || convert.UsedReservation(p) == "" {
		return nil, err
	}
	return podOf(p), nil
}

// readPod reads a pod by its UID, nil for none.
func readPod(ctx context.Context, r move.Reference, from source) (*corev1.Pod, error) {
	if r.UID == "" {
		return nil, nil
	}
	p, err := from.pod(ctx, corev1.ObjectReference{Namespace: r.Namespace, Name: r.Name, UID: types.UID(r.UID)})
	if err != nil || p == nil || string(p.UID) != r.UID {
		return nil, err
	}
	return p, nil
}

// userOf returns the pod that uses a Reservation, nil for none. announced: a pod is named that is not bound yet.
func userOf(ctx context.Context, r *reservation.Reservation, from source) (u *move.User, announced bool, err error) {
	for _, ref := range r.Status.CurrentOwners {
		p, err := from.pod(ctx, ref)
		switch {
		case err != nil:
			return nil, false, err
		case p == nil || p.UID != ref.UID:
		case convert.UsedReservation(p) == string(r.UID):
			return newUser(p), false, nil
		default:
			announced = true
		}
	}
	return nil, announced, nil
}

// exchange reads the rooms of other jobs whose pods have the same owner, where the step depends on them.
func (c *Controller) exchange(ctx context.Context, w *move.World, m *move.Job, j *v1alpha1.PodMigrationJob,
	r *reservation.Reservation, from source,
) error {
	if !w.NeedsNeighbors(m) {
		return nil
	}
	f, err := from.fleet(ctx)
	if err != nil {
		return err
	}
	released, err := c.released(ctx, r, j.Spec.PodRef.Namespace, f, from)
	if err != nil {
		return err
	}
	var neighbors []move.Neighbor
	for _, other := range f.neighbors(r, m) {
		n, err := other.neighbor(ctx, from)
		if err != nil {
			return err
		}
		neighbors = append(neighbors, n)
	}
	w.Exchange(m, neighbors, released)
	return nil
}

// check asks whether the pod may be evicted now, and whether the pods that must move with it may.
func (c *Controller) check(w *move.World, j *v1alpha1.PodMigrationJob, old *corev1.Pod, r *reservation.Reservation) {
	if r != nil {
		if w.Refused = unusable(r, old); w.Refused != nil {
			return
		}
	}
	now := c.Clock.Now()
	c.Cluster.Read(func(s *evict.State) {
		refuses := func(pod, job string) []evict.Refusal {
			return s.CheckMove(c.Policy, evict.Move{PodUID: pod, Job: job}, now)
		}
		if all := refuses(string(old.UID), string(j.UID)); len(all) > 0 {
			w.Refused = &move.Refusal{Code: string(all[0].Code), Text: all[0].String(), Final: all[0].Final()}
			return
		}
		unit := s.Unit(string(old.UID))
		if len(unit) == 1 {
			return
		}
		for _, m := range c.decoded {
			known, ok := s.Job(m.UID)
			placed := known.Status.Node != "" || m.Direct // it waits for nothing but its eviction
			if i := slices.Index(unit, known.PodUID); ok && i >= 0 && known.IsRunning() &&
				(!known.Status.EvictedAt().IsZero() || placed && len(refuses(known.PodUID, known.UID)) == 0) {
				unit = slices.Delete(unit, i, i+1)
			}
		}
		w.Unready = len(unit)
	})
}

// unusable refuses a Reservation that the successor of a pod may not use, or may have to share.
func unusable(r *reservation.Reservation, old *corev1.Pod) *move.Refusal {
	spec := convert.Reservation(r, r.Status.NodeName)
	var text string
	pod, err := convert.ReservationPod(old)
	switch {
	case err != nil:
		text = err.Error()
	case !spec.Once:
		text = fmt.Sprintf("reservation %s: allocateOnce must be true: the room is for one pod", r.Name)
	case !spec.Matches(&pod):
		text = fmt.Sprintf("reservation %s is not for pods like %s/%s: owners, taints or keys of the pod exclude them",
			r.Name, old.Namespace, old.Name)
	default:
		return nil
	}
	return &move.Refusal{Text: text, Final: true}
}

func podOf(p *corev1.Pod) *move.Pod {
	_, asked := p.Annotations[annotation.SoftEvictionKey]
	out := &move.Pod{
		Reference: move.Reference{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)}, Node: p.Spec.NodeName,
		Terminating: p.DeletionTimestamp != nil, Asked: asked,
	}
	for _, condition := range p.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			out.Ready = true
		}
	}
	out.Ready = out.Ready || p.Status.Phase == corev1.PodSucceeded
	return out
}

func placeOf(r *reservation.Reservation, j *v1alpha1.PodMigrationJob) *move.Place {
	out := &move.Place{
		Name: r.Name, Node: r.Status.NodeName, Foreign: r.Annotations[annotation.MigrationJobKey] != string(j.UID),
		Available: r.Status.Phase == reservation.ReservationAvailable,
		Used:      r.Status.Phase == reservation.ReservationSucceeded,
		Expired:   r.Status.Phase == reservation.ReservationFailed,
	}
	if out.Available && len(r.Status.CurrentOwners) > 0 {
		out.Available, out.Used = false, true
	}
	for _, o := range r.Status.CurrentOwners {
		out.Owners = append(out.Owners, string(o.UID))
	}
	for _, condition := range r.Status.Conditions {
		if condition.Type == reservation.ReservationScheduled && condition.Status == metav1.ConditionFalse {
			out.Refused = condition.Message
		}
	}
	return out
}

// patchOf is a merge patch that sets an annotation of the object with a UID.
func patchOf(uid, key, value string) ([]byte, error) {
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": uid, "annotations": map[string]string{key: value}},
	})
}
