package core

import (
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/sched/journal"
	"github.com/tenon-project/tenon/internal/sched/upstream/loop"
	"github.com/tenon-project/tenon/internal/sched/upstream/podqueue"
	"github.com/tenon-project/tenon/internal/sched/upstream/ranking"
	"github.com/tenon-project/tenon/internal/sched/upstream/snapshot"
)

// Record sees all that passes the seams, outside of all other layers. Embed Unrecorded for seams that are as they are.
type Record interface {
	Cache(inner snapshot.Cache) snapshot.Cache
	Queue(inner podqueue.Queue) podqueue.Queue
	Next(inner NextPod) NextPod
	Schedule(inner SchedulePod) SchedulePod
	Fail(inner loop.Fail) loop.Fail
	Profile(inner *ranking.Profile) framework.Framework
}

// Unrecorded is a Record that leaves all as it is.
type Unrecorded struct{}

// Cache returns inner, as the other methods do.
func (Unrecorded) Cache(inner snapshot.Cache) snapshot.Cache { return inner }

// Queue returns inner.
func (Unrecorded) Queue(inner podqueue.Queue) podqueue.Queue { return inner }

// Next returns inner.
func (Unrecorded) Next(inner NextPod) NextPod { return inner }

// Schedule returns inner.
func (Unrecorded) Schedule(inner SchedulePod) SchedulePod { return inner }

// Fail returns inner.
func (Unrecorded) Fail(inner loop.Fail) loop.Fail { return inner }

// Profile returns inner.
func (Unrecorded) Profile(inner *ranking.Profile) framework.Framework { return inner }

// journaled is a journal as the Record of a core.
type journaled struct{ *journal.Recorder }

// Journal returns the Record of a journal.
func Journal(r *journal.Recorder) Record { return journaled{r} }

// Profile lets the journal see what a profile does.
func (j journaled) Profile(inner *ranking.Profile) framework.Framework {
	Watch(inner, j.Recorder)
	return inner
}

// Watch makes a profile draw lots by the seed of a cycle, which sees what the profile does.
func Watch(f *ranking.Profile, c ranking.Cycle) {
	f.Cycle = c
	if p := PreemptionOf(f); p != nil {
		OrderVictims(p, func(node string) int64 { return int64(ranking.Lot(c.Seed(), node)) }, false)
	}
}
