package whatif

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/forecast"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/view"
)

const (
	// forecastEvery is how long a forecast is answered before another one is made.
	forecastEvery = 10 * time.Second
	// workloads and runsOfEach bound what is learned from pods that have ended.
	workloads, runsOfEach = 2000, 50
)

// course is a forecast: the forecast.Cluster that plays on the nodes of a session, and the units that wait.
type course struct {
	*session
	now  time.Time
	jobs map[string]*batchv1.Job
	// waiting are the units in the order of the queue.
	waiting []*waitingUnit
	// running are the bound pods, by the name of their unit, started the pods that Start has placed.
	running map[string]*corev1.Pod
	started map[string][]*placed
	learned map[string]bool         // units whose run times are learned
	overdue map[string]view.Overdue // pods that have outlived their run time, by the name of their unit
}

// waitingUnit is a pod, or members of gangs that start together, the first in their order first.
type waitingUnit struct {
	name string
	rank gang.Rank
	pods []*corev1.Pod
	// lacking is how many members of each gang must be placed; nil for a pod that starts alone.
	lacking map[string]int
	// incomplete says that members must be created, or give back what they hold, before the unit may be tried.
	incomplete bool
	runs       forecast.RunTime
	// hold is what is held for the unit, heldBack a hold for another one without which it would start now.
	hold     *view.Hold
	heldBack *view.HeldBack
}

// forecast answers when the pods that wait can start, at most once in forecastEvery anew.
func (s *session) forecast(q *view.WhatIf) (*view.Forecast, error) {
	if len(q.Changes)+len(q.Ask.Pods)+len(q.Ask.Nodes)+len(q.Ask.Movable)+q.Ask.Members > 0 || q.Ask.Reserve {
		return nil, bad("changes, ask.pods, ask.nodes, ask.movable, ask.members and ask.reserve are not for mode %s",
			view.PlayForward)
	}
	now := s.Clock.Now()
	// After a step back of the clock, the last one is not answered for longer.
	if age := now.Sub(s.pastAt()); s.last != nil && age >= 0 && age < forecastEvery {
		return s.last, nil
	}
	c := &course{session: s, now: now}
	out := &view.Forecast{At: now, Queue: []view.WaitingUnit{}}
	if err := c.learn(out); err != nil {
		return nil, err
	}
	running, err := c.collectRunning()
	if err != nil {
		return nil, err
	}
	c.collectWaiting()
	began := s.Clock.Now()
	left := now.Add(s.searchTime()).Sub(began)
	late := func(parts, all int) bool {
		return s.Clock.Now().Sub(began) >= left*time.Duration(parts)/time.Duration(all)
	}
	estimates, err := forecast.Run(c, running, c.units(), late)
	if err != nil {
		return nil, err
	}
	if err := c.readHolds(estimates, func() bool { return late(1, 1) }); err != nil {
		return nil, err
	}
	for i, u := range c.waiting {
		w := c.describe(u)
		w.Position, w.Hold, w.HeldBack = i+1, u.hold, u.heldBack
		e := estimates[i]
		learned := slices.ContainsFunc(e.After, func(name string) bool { return c.learned[name] })
		for _, name := range e.After {
			if o, outlived := c.overdue[name]; outlived && !slices.Contains(out.Overdue, o) {
				out.Overdue = append(out.Overdue, o)
			}
		}
		e.After = c.owners(e.After)
		if w.Start = view.ExpectedStartOf(e, now); w.Start == nil {
			out.Bound = s.searchTime().String()
		}
		if w.Start != nil {
			w.Start.Learned = learned
		}
		if u.incomplete {
			w.Start = &view.ExpectedStart{State: view.StartIncomplete}
		}
		out.Queue = append(out.Queue, w)
	}
	s.last = out
	return out, nil
}

// pastAt is when the last forecast was made.
func (s *session) pastAt() (at time.Time) {
	if s.last != nil {
		at = s.last.At
	}
	return at
}

// learn reads Jobs, and how long pods ran that have ended. A forecast without them says so.
func (c *course) learn(out *view.Forecast) (err error) {
	if c.jobs, err = c.Jobs(c.ctx); err != nil {
		out.Notes = append(out.Notes, "run times that Jobs declare are not known: "+err.Error())
	}
	if !c.Learn {
		return c.ctx.Err()
	}
	ended, err := c.Succeeded(c.ctx)
	if err != nil {
		out.Notes = append(out.Notes, "run times of pods that have ended are not known: "+err.Error())
	}
	for i := range ended {
		started, at := convert.Ran(&ended[i])
		c.history.Add(convert.Workload(&ended[i]), string(ended[i].UID), started, at)
	}
	return c.ctx.Err()
}

// runTime returns how long a pod runs: as declared, else as learned.
func (c *course) runTime(pod *corev1.Pod) forecast.RunTime {
	var job *batchv1.Job
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && owner.Kind == "Job" {
		job = c.jobs[pod.Namespace+"/"+owner.Name]
	}
	d := convert.Declared(pod, job)
	d.Quota = kube.Ask(c.Held, func(a *quota.Account) time.Duration { return a.RunTime(string(pod.UID)) })
	if declared := d.RunTime(); declared.IsDeclared() {
		return declared
	}
	return c.history.RunTime(convert.Workload(pod))
}

// collectRunning returns the bound pods with their ends. A pod that terminates ends within its grace period.
func (c *course) collectRunning() (units []forecast.Unit, err error) {
	c.running, c.learned, c.overdue = map[string]*corev1.Pod{}, map[string]bool{}, map[string]view.Overdue{}
	all, err := c.nodes.List()
	if err != nil {
		return nil, err
	}
	for _, n := range all {
		for _, info := range n.GetPods() {
			pod := info.GetPod()
			runs := c.runTime(pod)
			ran := c.now.Sub(convert.Started(pod))
			ends := runs.Ends(ran)
			if _, outlived := runs.Left(ran); outlived {
				c.overdue[string(pod.UID)] = view.Overdue{
					Pod: pod.Namespace + "/" + pod.Name, Declared: runs.Late.String(),
					Ran: ran.Round(time.Second).String(),
				}
			}
			c.learned[string(pod.UID)] = runs.Source == forecast.Learned
			if pod.DeletionTimestamp != nil {
				ends = forecast.Range{Late: max(0, pod.DeletionTimestamp.Sub(c.now))}
			}
			name := string(pod.UID)
			c.running[name] = pod
			units = append(units, forecast.Unit{Name: name, Range: ends})
		}
	}
	return units, nil
}

// collectWaiting groups the pods that wait by what starts together, in the order of the queue.
func (c *course) collectWaiting() {
	byName := map[string]*waitingUnit{}
	for _, pod := range c.Waiting() {
		if c.profiles[pod.Spec.SchedulerName] == nil || len(pod.Spec.SchedulingGates) > 0 ||
			pod.DeletionTimestamp != nil {
			continue
		}
		rank := c.Gangs.RankOf(pod)
		name := rank.Unit()
		u := byName[name]
		if u == nil {
			u = &waitingUnit{name: name, rank: rank}
			byName[name] = u
			if !c.Gangs.Alone(pod) {
				u.incomplete = c.readGangs(u, c.Gangs.GangOf(pod))
			}
		}
		u.pods = append(u.pods, pod)
	}
	c.waiting = slices.SortedFunc(maps.Values(byName), func(a, b *waitingUnit) int { return a.rank.Compare(b.rank) })
	for _, u := range c.waiting {
		slices.SortFunc(u.pods, func(a, b *corev1.Pod) int {
			return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
		})
		u.runs = c.runTime(u.pods[0])
		for _, pod := range u.pods[1:] { // a gang ends with its last member
			runs := c.runTime(pod)
			if u.runs.Source == forecast.Unknown || runs.Source == forecast.Unknown {
				u.runs = forecast.RunTime{}
			} else if runs.Late > u.runs.Late {
				u.runs = runs
			}
		}
	}
}

// readGangs notes how many members must start together with those of a gang, and reports whether any are missing.
func (c *course) readGangs(u *waitingUnit, id string) (incomplete bool) {
	w, _ := c.waitingGang(id, "")
	if w == nil {
		return true
	}
	u.lacking = map[string]int{}
	for _, g := range w.group {
		u.lacking[g.Name] = g.Min - len(g.Bound)
		incomplete = incomplete || len(g.Members) < g.Min
	}
	return incomplete
}

// units returns the units that wait, with their kinds.
func (c *course) units() (units []forecast.Unit) {
	for _, u := range c.waiting {
		runs := forecast.Range{Early: forecast.Never, Late: forecast.Never}
		if u.runs.Source != forecast.Unknown {
			runs = u.runs.Range
		}
		c.learned[u.name] = u.runs.Source == forecast.Learned
		units = append(units, forecast.Unit{Name: u.name, Kind: u.kind(), Range: runs})
	}
	return units
}

// kind is equal for units whose pods differ in what does not decide where they fit: their names, the index in their
// Job, and how long they run.
func (u *waitingUnit) kind() string {
	var all []any
	for _, pod := range u.pods {
		shape := *pod
		shape.Annotations, shape.Labels = maps.Clone(pod.Annotations), maps.Clone(pod.Labels)
		for _, m := range []map[string]string{shape.Annotations, shape.Labels} {
			delete(m, batchv1.JobCompletionIndexAnnotation)
			delete(m, annotation.ExpectedRuntime)
			delete(m, annotation.SimulateKey)
		}
		all = append(all, wishes(&shape), shape.Labels, u.lacking)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return "" // like no other
	}
	return string(text)
}

// Reset begins anew on the nodes as they are.
func (c *course) Reset() error {
	c.restart()
	c.quotas, c.started = c.Quotas(), map[string][]*placed{}
	return nil
}

// Start places the pods of a unit one after the other: first as many of each gang as must start together, then the
// others that fit, as the scheduler does.
func (c *course) Start(waiting int) (bool, error) {
	u := c.waiting[waiting]
	if u.incomplete {
		return false, nil
	}
	left := map[string]int{}
	maps.Copy(left, u.lacking)
	var all []*placed
	var beyond []*corev1.Pod
	for _, pod := range u.pods {
		id := c.Gangs.GangOf(pod)
		if u.lacking != nil && left[id] <= 0 {
			beyond = append(beyond, pod)
			continue
		}
		p, err := c.place(pod, nil)
		if err != nil {
			return false, err
		}
		if p != nil {
			left[id]--
			all = append(all, p)
		} else if u.lacking == nil {
			return false, nil
		}
	}
	for _, n := range left {
		if n > 0 {
			return false, c.rollback(all)
		}
	}
	for _, pod := range beyond {
		p, err := c.place(pod, nil)
		if err != nil {
			return false, err
		}
		if p != nil {
			all = append(all, p)
		}
	}
	c.started[u.name] = all
	return true, nil
}

// rollback removes pods that were placed, which wait again.
func (c *course) rollback(all []*placed) error {
	for _, p := range all {
		if err := c.remove(p.pod); err != nil {
			return err
		}
		delete(c.nodes.placed, p.pod.UID)
		waits := p.pod.DeepCopy()
		waits.Spec.NodeName = ""
		c.quotas.Put(waits)
	}
	return nil
}

// End removes the pods of a unit.
func (c *course) End(name string) error {
	if pod := c.running[name]; pod != nil {
		return c.remove(pod)
	}
	for _, p := range c.started[name] {
		if err := c.remove(p.pod); err != nil {
			return err
		}
	}
	delete(c.started, name)
	return nil
}

// owners returns the controllers of units, each once.
func (c *course) owners(units []string) (names []string) {
	for _, name := range units {
		if pod := c.running[name]; pod != nil {
			name = convert.OwnerName(pod)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// describe returns a unit without its place and its start.
func (c *course) describe(u *waitingUnit) view.WaitingUnit {
	w := view.WaitingUnit{
		Name: u.name, Pods: []string{}, Priority: u.rank.Priority, Since: u.rank.Created,
		RunTime: view.RunTimeOf(u.runs),
	}
	for _, pod := range u.pods {
		w.Pods = append(w.Pods, pod.Namespace+"/"+pod.Name)
	}
	c.Held.Read(func(a *quota.Account) {
		m, _ := a.Find(string(u.pods[0].UID))
		for q := m.Quota; q != nil && q.Name() != quota.Root; q = q.Parent() {
			w.QuotaPath = slices.Insert(w.QuotaPath, 0, q.Name())
		}
	})
	if said := view.FromObject(describe.Pod(u.pods[0])); said.RootCause != nil &&
		said.RootCause.Code != why.NotAttempted {
		w.Waits = said.RootCause
	}
	return w
}
