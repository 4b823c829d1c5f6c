package evict

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/move"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// NeverEvict is the eviction cost of pods that are never evicted.
const NeverEvict = 1<<31 - 1

// Pod is what the rules read of a pod.
type Pod struct {
	UID, Namespace, Name string
	Node                 string // empty until the pod is bound
	Workload             string // key of its Workload; empty for a pod without a controller
	Gang                 string // namespace/name; empty for a pod without a gang
	Labels               map[string]string

	Priority     int32
	QoS          qos.Class
	EvictionCost int32
	DeletionCost int32

	Created                    time.Time
	Ready                      bool // the condition Ready of a running pod
	Terminating                bool
	Succeeded, Failed          bool   // it has ended
	Fixed                      string // why it belongs to its node: "it is of a DaemonSet"; empty if it does not
	LocalVolume, ClaimedVolume string // the first volume on the node; the first PersistentVolumeClaim
	Evictable                  bool   // the annotation descheduler.alpha.kubernetes.io/evict lifts predicates

	Budgets []*gang.Budget // PodDisruptionBudgets that its eviction is charged to
	Fault   string         // why something of the pod could not be read; empty if all was
}

// available reports whether the pod serves.
func (p *Pod) available() bool {
	return p.Ready && !p.Terminating && !p.Succeeded && !p.Failed
}

// Kind is how the state of a rollout is read.
type Kind int

// Kinds of workloads.
const (
	Unknown     Kind = iota // a kind whose replicas cannot be read
	Scaled                  // a kind with the scale subresource
	ReplicaSet              // of no Deployment
	Deployment              // apps/v1
	StatefulSet             // apps/v1, and Kruise's Advanced StatefulSet
	CloneSet                // Kruise's
)

// Workload is the owner of pods: the controller, and for a ReplicaSet of a Deployment the Deployment.
type Workload struct {
	Key   string // Key(…)
	Kind  Kind
	Batch bool // its pods are those of a Job: jobs for them follow each other

	Replicas       int // desired
	StatusReplicas int
	Updated, Ready int // status.updatedReplicas and readyReplicas

	Generation, Observed int64
	Stalled              bool // the condition Progressing is False
	OnDelete             bool // a StatefulSet's pods are updated when they are deleted
	PausedUpdate         bool // updateStrategy.paused of Kruise
	Partition            int  // pods that keep the old revision
	ExpectedUpdated      *int // status.expectedUpdatedReplicas of a CloneSet; nil if absent

	CurrentRevision, UpdateRevision string

	Leaving []string // names of pods that the spec wants deleted: podsToDelete, reserveOrdinals
	Fault   string   // why the owner could not be read; empty if it was
}

// Key names a workload.
func Key(namespace, kind, name string) string { return kind + " " + namespace + "/" + name }

// Scaler is what a HorizontalPodAutoscaler wants.
type Scaler struct {
	Workload         string
	Current, Desired int
}

// compareJobs orders jobs by creation, then by name and UID.
func compareJobs(a, b *move.Job) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// State is what caches have of the cluster. It depends on the last object of each key alone, not on their order. It is
// not safe for concurrent use.
type State struct {
	pods       map[string]*Pod
	byWorkload index[*Pod]
	byGang     index[*Pod]
	workloads  map[string]*Workload
	scalers    map[string]Scaler            // by their own names
	scalersOf  index[Scaler]                // by workload
	nodes      map[string]map[string]string // labels
	namespaces map[string]map[string]string
	bonds      map[string]gang.Bond
	groups     map[string][]string // gangs, in order, by Bond.Group
	faults     map[string]string   // what is not known, by source

	jobs        map[string]*move.Job
	started     map[string]*move.Job // by UID: those that have started and not ended
	jobsOf      index[*move.Job]     // by pod
	workloadJob index[*move.Job]
	spaceJobs   index[*move.Job]
	gangJobs    index[*move.Job]
	evicted     []eviction // Invariant: in ascending order
}

// index has values by a key, and by UID.
type index[T any] map[string]map[string]T

// set enters a value under a key and UID. It does nothing for an empty key.
func (i index[T]) set(key, uid string, value T) {
	if key == "" {
		return
	}
	if i[key] == nil {
		i[key] = map[string]T{}
	}
	i[key][uid] = value
}

// delete removes a value, and a key without values.
func (i index[T]) delete(key, uid string) {
	if delete(i[key], uid); len(i[key]) == 0 {
		delete(i, key)
	}
}

// NewState returns a State without objects. Each source, such as "pods", has the fault that its cache is not synced.
func NewState(sources ...string) *State {
	s := &State{
		pods: map[string]*Pod{}, byWorkload: index[*Pod]{}, byGang: index[*Pod]{}, workloads: map[string]*Workload{},
		scalers: map[string]Scaler{}, scalersOf: index[Scaler]{},
		nodes: map[string]map[string]string{}, namespaces: map[string]map[string]string{},
		bonds: map[string]gang.Bond{}, groups: map[string][]string{}, faults: map[string]string{},
		jobs: map[string]*move.Job{}, started: map[string]*move.Job{}, jobsOf: index[*move.Job]{},
		workloadJob: index[*move.Job]{}, spaceJobs: index[*move.Job]{}, gangJobs: index[*move.Job]{},
	}
	for _, source := range sources {
		s.SetFault(source, "the cache is not synced")
	}
	return s
}

// SetFault makes all answers LookupFailed, because a source cannot be read. An empty text ends that.
func (s *State) SetFault(source, text string) {
	if s.faults[source] = text; text == "" {
		delete(s.faults, source)
	}
}

// SetPod records a pod.
func (s *State) SetPod(p Pod) {
	s.DeletePod(p.UID)
	s.pods[p.UID] = &p
	s.byWorkload.set(p.Workload, p.UID, &p)
	s.byGang.set(p.Gang, p.UID, &p)
	for _, j := range slices.Collect(maps.Values(s.jobsOf[p.UID])) {
		if j.IsWaiting() {
			s.SetJob(*j)
		}
	}
}

// DeletePod forgets a pod that does not exist any more.
func (s *State) DeletePod(uid string) {
	if p := s.pods[uid]; p != nil {
		delete(s.pods, uid)
		s.byWorkload.delete(p.Workload, uid)
		s.byGang.delete(p.Gang, uid)
	}
}

// Pod returns a pod, false if it is not known.
func (s *State) Pod(uid string) (Pod, bool) {
	if p := s.pods[uid]; p != nil {
		return *p, true
	}
	return Pod{}, false
}

// Pods yields all pods, in no order.
func (s *State) Pods() iter.Seq[Pod] {
	return func(yield func(Pod) bool) {
		for _, p := range s.pods {
			if !yield(*p) {
				return
			}
		}
	}
}

// SetWorkload records an owner of pods.
func (s *State) SetWorkload(w Workload) { s.workloads[w.Key] = &w }

// DeleteWorkload forgets one: pods that still have it as their owner are refused with LookupFailed.
func (s *State) DeleteWorkload(key string) { delete(s.workloads, key) }

// SetScaler records a HorizontalPodAutoscaler by its namespace and name.
func (s *State) SetScaler(name string, a Scaler) {
	s.DeleteScaler(name)
	s.scalers[name] = a
	s.scalersOf.set(a.Workload, name, a)
}

// DeleteScaler forgets one.
func (s *State) DeleteScaler(name string) {
	s.scalersOf.delete(s.scalers[name].Workload, name)
	delete(s.scalers, name)
}

// SetNode records the labels of a node.
func (s *State) SetNode(name string, labels map[string]string) { s.nodes[name] = labels }

// DeleteNode forgets a node.
func (s *State) DeleteNode(name string) { delete(s.nodes, name) }

// SetNamespace records the labels of a namespace.
func (s *State) SetNamespace(name string, labels map[string]string) { s.namespaces[name] = labels }

// DeleteNamespace forgets a namespace.
func (s *State) DeleteNamespace(name string) { delete(s.namespaces, name) }

// SetGang records what holds the pods of a gang together; the zero value for a gang that is gone.
func (s *State) SetGang(id string, b gang.Bond) {
	if group := s.bonds[id].Group; group != "" {
		s.groups[group] = slices.DeleteFunc(s.groups[group], func(o string) bool { return o == id })
		if len(s.groups[group]) == 0 {
			delete(s.groups, group)
		}
	}
	if delete(s.bonds, id); b == (gang.Bond{}) {
		return
	}
	if s.bonds[id] = b; b.Group != "" {
		s.groups[b.Group] = append(s.groups[b.Group], id)
		slices.Sort(s.groups[b.Group])
	}
}

// SetJob records a job. One that waits takes workload, gang and node from its pod. One that has ended is kept until
// DeleteJob: the limits over time are computed from it.
func (s *State) SetJob(j move.Job) {
	s.DeleteJob(j.UID)
	if p := s.pods[j.PodUID]; p != nil && j.IsWaiting() {
		j = forPod(j, p)
	}
	s.jobs[j.UID] = &j
	s.jobsOf.set(j.PodUID, j.UID, &j)
	s.workloadJob.set(j.Workload, j.UID, &j)
	s.spaceJobs.set(j.Namespace, j.UID, &j)
	s.gangJobs.set(j.Gang, j.UID, &j)
	if j.IsRunning() {
		s.started[j.UID] = &j
	}
	if at := j.LastEviction(); !at.IsZero() {
		e := eviction{at, j.UID}
		i, _ := slices.BinarySearchFunc(s.evicted, e, eviction.compare)
		s.evicted = slices.Insert(s.evicted, i, e)
	}
}

// forPod returns the job with what it takes from its pod.
func forPod(j move.Job, p *Pod) move.Job {
	j.PodUID, j.Namespace, j.Workload, j.Gang, j.Source = p.UID, p.Namespace, p.Workload, p.Gang, p.Node
	if p.Failed {
		j.Workload, j.Gang = "", ""
	}
	return j
}

// Propose returns the job that a pod would have if it started now.
func (s *State) Propose(podUID, target string, now time.Time) move.Job {
	j := move.Job{UID: "proposed " + podUID, PodUID: podUID, Created: now, Started: now}
	j.Status.Node = target
	if p := s.pods[podUID]; p != nil {
		j.PodName = p.Name
		return forPod(j, p)
	}
	return j
}

// DeleteJob forgets a job.
func (s *State) DeleteJob(uid string) {
	j := s.jobs[uid]
	if j == nil {
		return
	}
	delete(s.jobs, uid)
	delete(s.started, uid)
	s.jobsOf.delete(j.PodUID, uid)
	s.workloadJob.delete(j.Workload, uid)
	s.spaceJobs.delete(j.Namespace, uid)
	s.gangJobs.delete(j.Gang, uid)
	if i, found := slices.BinarySearchFunc(s.evicted, eviction{j.LastEviction(), uid}, eviction.compare); found {
		s.evicted = slices.Delete(s.evicted, i, i+1)
	}
}

// Waiting returns the jobs that wait for arbitration, the oldest first.
func (s *State) Waiting() (waiting []move.Job) {
	for _, j := range s.jobs {
		if j.IsWaiting() {
			waiting = append(waiting, *j)
		}
	}
	slices.SortFunc(waiting, func(a, b move.Job) int { return compareJobs(&a, &b) })
	return waiting
}

// Job returns a job, false if it is not known.
func (s *State) Job(uid string) (move.Job, bool) {
	if j := s.jobs[uid]; j != nil {
		return *j, true
	}
	return move.Job{}, false
}

// eviction is the last time at which a job may have evicted its pod.
type eviction struct {
	at  time.Time
	job string // its UID
}

// compare orders evictions by time.
func (e eviction) compare(o eviction) int {
	return cmp.Or(e.at.Compare(o.at), cmp.Compare(e.job, o.job))
}
