package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/reservation"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// bindTries is how often Bind writes where other writers change the Reservation meanwhile.
const bindTries = 5

// Bind writes on which node a Reservation has room, and which CPUs and devices: these first, so that who reads the node
// reads all. No other writer comes between the two writes, and a Reservation that has a node keeps it: a process that
// led before may still write.
func (s *Reservations) Bind(ctx context.Context, uid types.UID, node string, record map[string]string) error {
	r, _ := s.Find(uid)
	if r == nil {
		return fmt.Errorf("bind reservation %s: it is gone", uid)
	}
	for range bindTries {
		if r.UID != uid || r.Status.NodeName != "" {
			return fmt.Errorf("bind reservation %s: it has room on node %q already, or is another one", r.Name,
				r.Status.NodeName)
		}
		err := s.bind(ctx, r, node, record)
		if !apierrors.IsConflict(err) {
			return err
		}
		if r, err = s.read(ctx, r.Name); err != nil {
			return fmt.Errorf("bind reservation %s: %w", uid, err)
		}
	}
	return fmt.Errorf("bind reservation %s: others have changed it %d times meanwhile", r.Name, bindTries)
}

// read returns a Reservation as the API server has it.
func (s *Reservations) read(ctx context.Context, name string) (*v1alpha1.Reservation, error) {
	text, err := s.client.Get().AbsPath(reservationPath(name)...).Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	return ReadReservation(text)
}

// bind is Bind for a version of the Reservation. It returns a conflict if there is a newer one.
func (s *Reservations) bind(ctx context.Context, r *v1alpha1.Reservation, node string, record map[string]string) error {
	annotations := map[string]any{annotation.ResourceStatusKey: nil, annotation.DeviceAllocatedKey: nil}
	for key := range annotations {
		if value, ok := record[key]; ok {
			annotations[key] = value
		} else if _, stale := r.Annotations[key]; !stale {
			delete(annotations, key)
		}
	}
	if len(annotations) > 0 {
		metadata := map[string]any{"annotations": annotations}
		written, err := s.patch(ctx, r, "", map[string]any{"metadata": metadata})
		if err != nil {
			return fmt.Errorf("record the allocation of reservation %s: %w", r.Name, err)
		}
		r = written
	}
	bound := r.DeepCopy()
	bound.Status.NodeName = node
	s.mu.RLock()
	phase, cause, occupants := reservation.Available, "", s.occupants[r.UID]
	s.mu.RUnlock()
	if len(occupants) > 0 {
		phase, cause = reservation.Waiting, waitsFor(references(occupants))
	}
	if err := s.writeStatus(ctx, bound, s.statusOf(bound, phase, cause, occupants)); err != nil {
		return fmt.Errorf("bind reservation %s: %w", r.Name, err)
	}
	return nil
}

// Reconcile takes a step for a Reservation, see reservation.Step: it writes the status where that has changed, and
// deletes a Reservation that ended longer ago than keepEnded. nodeGone reports whether its node was deleted. Reconcile
// is to be called again when something changes, and at the latest at the time that it returns; the zero time is never.
func (s *Reservations) Reconcile(ctx context.Context, uid types.UID, keepEnded time.Duration,
	nodeGone func(string) bool,
) (again time.Time, err error) {
	s.mu.RLock()
	r := s.objects[uid]
	w := &reservation.World{
		Now: s.now(), Announcement: s.account.Announcement(string(uid)), LateUntil: s.leading.Add(LateWrite),
		KeepEnded: keepEnded,
	}
	running := s.reserving[uid] != nil
	s.mu.RUnlock()
	if r == nil || len(r.Unread) > 0 {
		return time.Time{}, nil
	}
	state, soon := s.stateOf(r, running, w.Now), w.Now.Add(time.Second)
	users := s.boundUsers(uid)
	w.Users, w.NodeGone = podsOf(references(users)), state.Node != "" && nodeGone(state.Node)
	if state.NeedsNamed(w) {
		if w.Named, err = s.readNamed(ctx, state.Owners, w.Users); err != nil {
			return soon, fmt.Errorf("read the owners of reservation %s: %w", r.Name, err)
		}
	}
	next, do := reservation.Step(state, w)
	for _, o := range do.Adopt {
		if err := s.adopt(ctx, r, o); err != nil {
			return soon, fmt.Errorf("record reservation %s on pod %s/%s: %w", r.Name, o.Namespace, o.Name, err)
		}
	}
	if do.End {
		s.Apply(Ended, r)
	}
	switch {
	case do.Withdraw:
		return do.Again, s.nameUser(ctx, r, nil)
	case do.Delete:
		return do.Again, s.delete(ctx, r)
	case !do.Write:
		return do.Again, nil
	}
	owners := objectsOf(next.Owners)
	if next.Phase == reservation.Waiting {
		next.Cause = waitsFor(owners)
	}
	status := s.statusOf(r, next.Phase, next.Cause, users)
	status.CurrentOwners = owners
	if !equalStatus(status, r.Status) {
		switch err := s.writeStatus(ctx, r, status); {
		case apierrors.IsConflict(err): // a newer version comes
			return soon, nil
		case err != nil:
			return soon, fmt.Errorf("write the status of reservation %s: %w", r.Name, err)
		}
		lacks, lacked := roomTaken(&status), roomTaken(&r.Status)
		if s.Inform != nil && lacks != "" && lacked == "" {
			s.Inform(r, event.ReservationRoomTaken, lacks)
		}
	}
	return do.Again, nil
}

// stateOf reads a Reservation. One that is not from an API server is created now.
func (s *Reservations) stateOf(r *v1alpha1.Reservation, running bool, now time.Time) *reservation.State {
	created, set, ttl := r.CreationTimestamp.Time, time.Time{}, time.Duration(0)
	if created.IsZero() {
		created = now
	}
	if r.Spec.TTL != nil {
		ttl = r.Spec.TTL.Duration
	}
	if r.Spec.Expires != nil {
		set = r.Spec.Expires.Time
	}
	return &reservation.State{
		Phase: reservation.Phase(r.Status.Phase), Node: r.Status.NodeName, Once: convert.IsOnce(r), Running: running,
		Expires: reservation.Expires(created, set, ttl), Ended: endedAt(r), Owners: podsOf(r.Status.CurrentOwners),
	}
}

// podsOf returns the pods that objects refer to, and objectsOf the reverse.
func podsOf(objects []corev1.ObjectReference) (pods []reservation.Reference) {
	for _, o := range objects {
		pods = append(pods, reservation.Reference{
			UID: string(o.UID), APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name,
		})
	}
	return pods
}

func objectsOf(pods []reservation.Reference) (objects []corev1.ObjectReference) {
	for _, p := range pods {
		objects = append(objects, corev1.ObjectReference{
			UID: types.UID(p.UID), APIVersion: p.APIVersion, Kind: p.Kind, Namespace: p.Namespace, Name: p.Name,
		})
	}
	return objects
}

// references returns what a status says of pods.
func references(pods []*corev1.Pod) (all []corev1.ObjectReference) {
	for _, p := range pods {
		all = append(all, corev1.ObjectReference{Namespace: p.Namespace, Name: p.Name, UID: p.UID})
	}
	return all
}

// waitsFor says which pods a Reservation waits for.
func waitsFor(occupants []corev1.ObjectReference) string {
	var names []string
	for _, o := range occupants {
		names = append(names, o.Namespace+"/"+o.Name)
	}
	if len(names) == 1 {
		return "pod " + names[0] + " has not ended"
	}
	return "pods " + strings.Join(names, ", ") + " have not ended"
}

func endedAt(r *v1alpha1.Reservation) (at time.Time) {
	for _, c := range r.Status.Conditions {
		if c.Type == v1alpha1.ReservationReady {
			at = c.LastTransitionTime.Time
		}
	}
	return at
}

// boundUsers returns the pods on nodes that use a Reservation, by namespace and name.
func (s *Reservations) boundUsers(uid types.UID) []*corev1.Pod {
	_, _, pods := s.Usage(uid)
	return slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return p.Spec.NodeName == "" })
}

func (s *Reservations) statusOf(r *v1alpha1.Reservation, phase reservation.Phase, cause string, users []*corev1.Pod,
) v1alpha1.ReservationStatus {
	status := v1alpha1.ReservationStatus{
		Phase: v1alpha1.ReservationPhase(phase), NodeName: r.Status.NodeName,
		Conditions: slices.Clone(r.Status.Conditions),
	}
	if status.NodeName != "" {
		status.Allocatable = convert.ResourceList(convert.Reservation(r, "").Allocatable)
	}
	s.mu.RLock()
	refused, allocated, shortage := s.refused[r.UID], s.account.Allocated(string(r.UID)), s.shortage(r)
	s.mu.RUnlock()
	status.CurrentOwners = references(users)
	if len(users) > 0 {
		status.Allocated = convert.ResourceList(allocated)
	}
	switch {
	case phase == reservation.Pending && refused != "":
		s.set(&status, v1alpha1.ReservationScheduled, metav1.ConditionFalse, v1alpha1.ReasonUnschedulable, refused)
	case status.NodeName != "":
		s.set(&status, v1alpha1.ReservationScheduled, metav1.ConditionTrue, v1alpha1.ReasonScheduled, "")
	}
	switch phase {
	case reservation.Waiting:
		s.set(&status, v1alpha1.ReservationReady, metav1.ConditionFalse, v1alpha1.ReasonWaiting, cause)
	case reservation.Available:
		if shortage != "" {
			s.set(&status, v1alpha1.ReservationReady, metav1.ConditionFalse, v1alpha1.ReasonRoomTaken, shortage)
			break
		}
		s.set(&status, v1alpha1.ReservationReady, metav1.ConditionTrue, v1alpha1.ReasonAvailable, "")
	case reservation.Succeeded:
		s.set(&status, v1alpha1.ReservationReady, metav1.ConditionFalse, v1alpha1.ReasonSucceeded, "")
	case reservation.Failed:
		s.set(&status, v1alpha1.ReservationReady, metav1.ConditionFalse, v1alpha1.ReasonExpired, cause)
	}
	return status
}

// roomTaken returns what a Reservation says that its node lacks, "" if the node lacks nothing.
func roomTaken(status *v1alpha1.ReservationStatus) string {
	for _, c := range status.Conditions {
		if c.Type == v1alpha1.ReservationReady && c.Reason == v1alpha1.ReasonRoomTaken {
			return c.Message
		}
	}
	return ""
}

// set sets a condition. One that says the same keeps its times.
func (s *Reservations) set(status *v1alpha1.ReservationStatus, kind string, value metav1.ConditionStatus,
	reason, message string,
) {
	now := metav1.NewTime(s.now().Truncate(time.Second))
	c := v1alpha1.ReservationCondition{
		Type: kind, Status: value, Reason: reason, Message: message, LastProbeTime: now, LastTransitionTime: now,
	}
	i := slices.IndexFunc(status.Conditions, func(o v1alpha1.ReservationCondition) bool { return o.Type == kind })
	if i < 0 {
		status.Conditions = append(status.Conditions, c)
		return
	}
	was := &status.Conditions[i]
	if was.Status == value {
		c.LastTransitionTime = was.LastTransitionTime
	}
	if was.Status != value || was.Reason != reason || was.Message != message {
		*was = c
	}
}

func equalStatus(a, b v1alpha1.ReservationStatus) bool {
	amounts := func(l corev1.ResourceList) any { return convert.Amounts(l) }
	owners := func(l []corev1.ObjectReference) []corev1.ObjectReference {
		return append([]corev1.ObjectReference{}, l...)
	}
	return a.Phase == b.Phase && a.NodeName == b.NodeName && reflect.DeepEqual(a.Conditions, b.Conditions) &&
		reflect.DeepEqual(owners(a.CurrentOwners), owners(b.CurrentOwners)) &&
		reflect.DeepEqual(amounts(a.Allocatable), amounts(b.Allocatable)) &&
		reflect.DeepEqual(amounts(a.Allocated), amounts(b.Allocated))
}

// writeStatus replaces the status. Lists and amounts that are empty now are removed.
func (s *Reservations) writeStatus(ctx context.Context, r *v1alpha1.Reservation, status v1alpha1.ReservationStatus,
) error {
	text, err := json.Marshal(status)
	if err != nil {
		return err
	}
	patch := map[string]any{}
	if err := json.Unmarshal(text, &patch); err != nil {
		return err
	}
	for _, key := range []string{"currentOwners", "allocated"} {
		if _, ok := patch[key]; !ok {
			patch[key] = nil
		}
	}
	for key, was := range map[string]corev1.ResourceList{
		"allocatable": r.Status.Allocatable, "allocated": r.Status.Allocated,
	} {
		amounts, _ := patch[key].(map[string]any)
		for name := range was {
			if _, has := amounts[string(name)]; !has && amounts != nil {
				amounts[string(name)] = nil
			}
		}
	}
	_, err = s.patch(ctx, r, "status", map[string]any{"status": patch})
	return err
}

// reservationPath returns the path of a Reservation in the API.
func reservationPath(name string) []string {
	at := v1alpha1.Resource()
	return []string{"/apis", at.Group, at.Version, at.Resource, name}
}

// patch changes this very version of a Reservation, and returns the one that it becomes. It returns a conflict if there
// is a newer version: no allocation and no announcement is overwritten.
func (s *Reservations) patch(ctx context.Context, r *v1alpha1.Reservation, part string, change map[string]any,
) (*v1alpha1.Reservation, error) {
	metadata, _ := change["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		change["metadata"] = metadata
	}
	metadata["uid"] = r.UID
	if r.ResourceVersion != "" {
		metadata["resourceVersion"] = r.ResourceVersion
	}
	text, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	path := reservationPath(r.Name)
	if part != "" {
		path = append(path, part)
	}
	text, err = s.client.Patch(types.MergePatchType).AbsPath(path...).Body(text).Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	if written, err := ReadReservation(text); err == nil && written.UID == r.UID {
		// A pod that was created because of this write may come before the write's own event.
		s.Apply(Written, written)
		r = written
	}
	return r, nil
}

func (s *Reservations) delete(ctx context.Context, r *v1alpha1.Reservation) error {
	text, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions: &metav1.Preconditions{UID: &r.UID},
	})
	if err == nil {
		err = s.client.Delete().AbsPath(reservationPath(r.Name)...).Body(text).Do(ctx).Error()
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
