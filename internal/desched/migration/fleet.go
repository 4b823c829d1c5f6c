package migration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/move"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// fleet is all jobs and Reservations at one time. Each job is decoded once.
type fleet struct {
	// groups has the jobs whose pods the scheduler may place in the same rooms, see groupOf.
	groups map[string][]*decoded
	// reserved has the UIDs of the Reservations.
	reserved map[types.UID]bool
	// first is when a job first evicted a pod; the zero time where none has.
	first time.Time
}

// decoded is a job, and its Reservation; nil where it has none.
type decoded struct {
	object *v1alpha1.PodMigrationJob
	job    *move.Job
	place  *reservation.Reservation
}

func newFleet(jobs []*v1alpha1.PodMigrationJob, places []*reservation.Reservation,
	decode func(*v1alpha1.PodMigrationJob) *move.Job,
) *fleet {
	f := &fleet{groups: map[string][]*decoded{}, reserved: map[types.UID]bool{}}
	byJob := map[string]*reservation.Reservation{}
	for _, p := range places {
		f.reserved[p.UID] = true
		if uid := p.Annotations[annotation.MigrationJobKey]; byJob[uid] == nil {
			byJob[uid] = p
		}
	}
	for _, object := range jobs {
		if object.Spec.PodRef == nil {
			continue
		}
		d := &decoded{object, decode(object), byJob[string(object.UID)]}
		if at := d.job.Status.EvictedAt(); !at.IsZero() && (f.first.IsZero() || at.Before(f.first)) {
			f.first = at
		}
		group := groupOf(d.place, d.job)
		f.groups[group] = append(f.groups[group], d)
	}
	return f
}

// groupOf names the jobs whose pods may use the same rooms: those whose Reservations have equal owners and, of those
// that have none, those whose pods are of one workload.
func groupOf(r *reservation.Reservation, m *move.Job) string {
	if r == nil {
		return "workload " + m.Workload
	}
	owners, err := json.Marshal(r.Spec.Owners)
	if err != nil {
		panic(fmt.Sprintf("migration: owners of a Reservation always encode: %v", err))
	}
	return "owners " + string(owners)
}

// neighbors returns the jobs whose pods may use the rooms of a job with a Reservation, and the job itself.
func (f *fleet) neighbors(r *reservation.Reservation, m *move.Job) []*decoded {
	return slices.Concat(f.groups[groupOf(r, m)], f.groups[groupOf(nil, m)])
}

// neighbor reads the pods of a job.
func (d *decoded) neighbor(ctx context.Context, from source) (n move.Neighbor, err error) {
	n = move.Neighbor{Job: d.job, HasRoom: d.place != nil}
	known, err := readPod(ctx, d.job.Status.Pod, from)
	if err != nil {
		return n, err
	}
	if known != nil {
		n.Known = newUser(known)
	}
	if !n.HasRoom {
		return n, nil
	}
	if n.User, n.Announced, err = userOf(ctx, d.place, from); err != nil {
		return n, err
	}
	old, err := from.pod(ctx, *d.object.Spec.PodRef)
	if old != nil {
		n.Old = podOf(old)
	}
	return n, err
}

// released returns the rooms of Reservations that jobs have released, in which pods are that may use a Reservation. No
// pod counts that came before the first eviction, and none such is read: each pod that ever moved is in such a room.
func (c *Controller) released(ctx context.Context, r *reservation.Reservation, namespace string, f *fleet,
	from source,
) (rooms []move.Room, err error) {
	for _, p := range c.Cluster.PodsOf(namespace) {
		if p.CreationTimestamp.Time.Before(f.first) {
			continue
		}
		used := convert.ReservationOf(p)
		uid, own := strings.CutPrefix(used.Name, placePrefix)
		if !own || f.reserved[used.UID] || unusable(r, p) != nil {
			continue
		}
		if p, err = readPod(ctx, podOf(p).Reference, from); err != nil {
			return nil, err
		} else if p != nil {
			rooms = append(rooms, move.Room{Job: uid, User: newUser(p)})
		}
	}
	return rooms, nil
}

func newUser(p *corev1.Pod) *move.User {
	return &move.User{Pod: *podOf(p), Created: p.CreationTimestamp.Time}
}
