package kube

import (
	"cmp"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Gangs keeps the gangs of a cluster's pods, from Pods and PodGroups. All methods may be called from any goroutine.
type Gangs struct {
	configured atomic.Bool
	handler    atomic.Pointer[GangHandler]                  // nil before Handle
	inform     atomic.Pointer[func(id string, b gang.Bond)] // nil before Inform

	mu       sync.Mutex // guards everything below
	names    []string   // schedulers whose pods are members; empty for all
	defaults gang.Settings
	rules    convert.GangRules
	state    *gang.State
	pods     map[string]*corev1.Pod          // members, by UID, as they were put last
	objects  map[string][]*v1alpha1.PodGroup // by gang; the first counts
	// concealed has the nodes that members are nominated to without the API showing it, by UID.
	concealed map[string]string
}

// NewGangs returns an empty store with the default arguments.
func NewGangs() *Gangs {
	s := &Gangs{
		rules: convert.DefaultGangRules(), pods: map[string]*corev1.Pod{},
		objects: map[string][]*v1alpha1.PodGroup{}, concealed: map[string]string{},
	}
	s.reset()
	return s
}

// reset forgets all gangs.
func (s *Gangs) reset() {
	s.state = gang.New(s.defaults)
	s.state.LimitOvertakes(s.rules.MaxOvertakes)
	s.state.JoinWholeGPUs(s.rules.JoinsWholeGPUs)
	s.state.SetHoldRules(s.rules.Holds)
}

// Configure sets the settings that hold where neither a pod nor a PodGroup has its own, and the rules of all gangs.
// Every caller must bring equal values, before the first object.
func (s *Gangs) Configure(defaults gang.Settings, rules convert.GangRules) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !reflect.DeepEqual(defaults, s.defaults) || rules != s.rules {
		if s.configured.Load() || len(s.pods)+len(s.objects) > 0 {
			return errors.New("all profiles must give the plugin Coscheduling equal arguments")
		}
		s.defaults, s.rules = defaults, rules
		s.reset()
	}
	s.configured.Store(true)
	return nil
}

// UseDefaults is Configure with the default arguments, for a program without profiles.
func (s *Gangs) UseDefaults() *Gangs {
	s.configured.Store(true)
	return s
}

// IsConfigured reports whether Configure was called: a scheduler none of whose profiles has the plugin keeps no gangs.
func (s *Gangs) IsConfigured() bool { return s.configured.Load() }

// Rules returns what holds for all gangs.
func (s *Gangs) Rules() convert.GangRules {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rules
}

// Serve leaves out the pods of schedulers with other names. It is called before the first pod.
func (s *Gangs) Serve(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = names
}

func (s *Gangs) serves(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.names) == 0 || slices.Contains(s.names, name)
}

func (s *Gangs) gangOf(uid string) string {
	return Ask(s, func(state *gang.State) string { return state.GangOf(uid) })
}

// GangOf returns the gang of a pod, as namespace/name; empty for a pod without one.
func (s *Gangs) GangOf(p *corev1.Pod) string { return s.gangOf(string(p.UID)) }

// Record returns the annotations with which a member is bound; nil for a pod that starts alone.
func (s *Gangs) Record(p *corev1.Pod) map[string]string {
	if !s.configured.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	gangs, members := s.state.Company(string(p.UID))
	if gangs == "" {
		return nil
	}
	return map[string]string{annotation.BoundGangGroup: gangs, annotation.BoundGangMembers: strconv.Itoa(members)}
}

// Pod returns a member, nil for one that is not known.
func (s *Gangs) Pod(uid string) *corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[uid]
}

// Object returns the PodGroup of a gang, nil for one without.
func (s *Gangs) Object(id string) *v1alpha1.PodGroup {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[id]; len(o) > 0 {
		return o[0]
	}
	return nil
}

// NativeGroup returns Kubernetes' own PodGroup of a name, nil for none.
func (s *Gangs) NativeGroup(namespace, name string) *v1alpha1.PodGroup {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.objects[namespace+"/"+name] {
		if o.GroupVersionKind().Group == v1alpha1.NativeGroupName {
			return o
		}
	}
	return nil
}

// Objects returns all PodGroups that count.
func (s *Gangs) Objects() (all []*v1alpha1.PodGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.objects {
		all = append(all, o[0])
	}
	return all
}

// Priority returns the priority of a pod: that of its PodGroup, where Kubernetes' own has one.
func (s *Gangs) Priority(p *corev1.Pod) int32 {
	if p.Spec.SchedulingGroup != nil { // others do not pay for it
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	return s.priorityOf(p)
}

func (s *Gangs) priorityOf(p *corev1.Pod) int32 {
	if p.Spec.SchedulingGroup != nil {
		if o := s.objects[s.state.GangOf(string(p.UID))]; len(o) > 0 && o[0].Priority != nil {
			return *o[0].Priority
		}
	}
	if p.Spec.Priority != nil {
		return *p.Spec.Priority
	}
	return 0
}

// PutPod records a pod; one that has ended, or is deleted before it runs, does not count.
func (s *Gangs) PutPod(p *corev1.Pod) {
	member, counts := convert.GangPod(p)
	counts = counts && !convert.Ended(p) && (p.DeletionTimestamp == nil || p.Spec.NodeName != "") &&
		s.serves(p.Spec.SchedulerName)
	if was := s.gangOf(string(p.UID)); was != "" && (!counts || was != member.Gang) {
		s.remove(string(p.UID))
	}
	if counts {
		s.Update(func(state *gang.State) gang.Effects {
			s.pods[member.UID] = p
			return state.Put(member)
		})
	}
}

// RemovePod forgets a pod.
func (s *Gangs) RemovePod(p *corev1.Pod) {
	if s.gangOf(string(p.UID)) != "" {
		s.remove(string(p.UID))
	}
}

func (s *Gangs) remove(uid string) {
	s.Update(func(state *gang.State) gang.Effects {
		delete(s.pods, uid)
		delete(s.concealed, uid)
		return state.Remove(uid)
	})
}

// GangHandler carries out the effects of events. It is called without the store's lock.
type GangHandler interface {
	// Opened is called with pods, by namespace/name, that may be tried and could not before, or failed before.
	Opened(pods map[string]*corev1.Pod)
	// Allow is called with the UIDs of reserved pods that may be bound, Release with those whose reservations end.
	Allow(uids []string)
	Release(uids []string)
}

// Handle sets the handler.
func (s *Gangs) Handle(h GangHandler) { s.handler.Store(&h) }

// Inform lets f know each change of what holds a gang together: the zero value for one that is gone. It is called
// before the first pod; f is called without the store's lock.
func (s *Gangs) Inform(f func(id string, b gang.Bond)) { s.inform.Store(&f) }

// Update changes the state by an event, and lets the handler carry out the effects.
func (s *Gangs) Update(event func(*gang.State) gang.Effects) {
	pods, effects, bonds := s.apply(event)
	if inform := s.inform.Load(); inform != nil {
		for id, b := range bonds {
			(*inform)(id, b)
		}
	}
	handler := s.handler.Load()
	if handler == nil {
		return
	}
	h := *handler
	if len(effects.Allow) > 0 {
		h.Allow(effects.Allow)
	}
	if len(effects.Release) > 0 {
		h.Release(effects.Release)
	}
	if len(pods) > 0 {
		h.Opened(pods)
	}
}

// apply applies an event to the state. It returns the pending pods of gangs that it opened, its other effects, and the
// bonds that it has changed, by gang.
func (s *Gangs) apply(event func(*gang.State) gang.Effects,
) (pods map[string]*corev1.Pod, effects gang.Effects, bonds map[string]gang.Bond) {
	s.mu.Lock()
	defer s.mu.Unlock()
	effects = event(s.state)
	for _, id := range effects.Opened {
		r, _ := s.state.Find(id)
		for _, m := range r.Members {
			if m.Phase != gang.Pending {
				continue
			}
			if pods == nil {
				pods = map[string]*corev1.Pod{}
			}
			pods[m.Namespace+"/"+m.Name] = s.pods[m.UID]
		}
	}
	for _, id := range effects.Bonds {
		if bonds == nil {
			bonds = map[string]gang.Bond{}
		}
		bonds[id] = s.state.Bond(id)
	}
	return pods, effects, bonds
}

// Begin returns the round of the pod's group with its members, or why the pod may not be tried. There is neither for a
// pod that is tried alone.
func (s *Gangs) Begin(p *corev1.Pod) (plan *gang.Plan, members []*corev1.Pod, refused gang.Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if plan, refused = s.state.Begin(string(p.UID)); plan != nil {
		for _, uid := range plan.Members {
			members = append(members, s.pods[uid])
		}
	}
	return plan, members, refused
}

// Pass records that a pod was reserved, and reports whether it must wait for others of its gang.
func (s *Gangs) Pass(p *corev1.Pod, now time.Time) (waits bool) {
	uid := string(p.UID)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.pods[uid] == nil:
		return false
	case !s.state.IsOpen(uid):
		return true
	}
	s.state.Place(uid, now)
	return false
}

// Compare is negative where a pod is to be tried before another one of the same priority: members of gangs that lack
// some of their minimum first, then by the time of creation, of the gang for a member.
func (s *Gangs) Compare(a, b *corev1.Pod) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.state.Turn(string(a.UID), a.CreationTimestamp.Time)
	return x.Compare(s.state.Turn(string(b.UID), b.CreationTimestamp.Time))
}

// IsMember reports whether a pod is of a gang: its rank may change by what becomes of others.
func (s *Gangs) IsMember(p *corev1.Pod) bool {
	return Ask(s, func(s *gang.State) string { return s.GangOf(string(p.UID)) }) != ""
}

// RankOf returns the rank of a pod, with the priority of its PodGroup.
func (s *Gangs) RankOf(p *corev1.Pod) gang.Rank {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rankOf(p)
}

func (s *Gangs) rankOf(p *corev1.Pod) gang.Rank {
	return s.state.RankOf(string(p.UID), s.priorityOf(p), p.CreationTimestamp.Time, p.Namespace+"/"+p.Name)
}

// Overtake counts a pod that gets a node against the gangs of higher rank that wait.
func (s *Gangs) Overtake(p *corev1.Pod) {
	s.mu.Lock()
	counts := s.state.Counts()
	s.mu.Unlock()
	if !counts {
		return
	}
	s.Update(func(state *gang.State) gang.Effects { return state.Overtake(s.rankOf(p)) })
}

// Alone reports whether a pod starts without others: it is of no gang, or of one that has started.
func (s *Gangs) Alone(p *corev1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[string(p.UID)] == nil || s.state.IsOpen(string(p.UID))
}

// PutGroup records a PodGroup or CompositePodGroup. Of several of one name that of the first of PodGroupGroups counts.
func (s *Gangs) PutGroup(g *v1alpha1.PodGroup) { s.putGroup(g, []*v1alpha1.PodGroup{g}) }

// RemoveGroup forgets one.
func (s *Gangs) RemoveGroup(g *v1alpha1.PodGroup) { s.putGroup(g, nil) }

func (s *Gangs) putGroup(g *v1alpha1.PodGroup, counted []*v1alpha1.PodGroup) {
	s.Update(func(*gang.State) gang.Effects { return s.replace(g, counted) })
}

// replace puts the objects counted, one or none, in the place of an object of g's name and API group.
func (s *Gangs) replace(g *v1alpha1.PodGroup, counted []*v1alpha1.PodGroup) gang.Effects {
	id := g.Namespace + "/" + g.Name
	if g.Kind == v1alpha1.CompositeKind {
		if len(counted) == 0 {
			return s.state.PutComposite(id, gang.Composite{})
		}
		return s.state.PutComposite(id, convert.GangComposite(g))
	}
	for _, o := range s.objects[id] {
		if o.GroupVersionKind().Group != g.GroupVersionKind().Group {
			counted = append(counted, o)
		}
	}
	slices.SortFunc(counted, func(a, b *v1alpha1.PodGroup) int {
		return cmp.Compare(groupRank(a), groupRank(b))
	})
	if s.objects[id] = counted; len(counted) == 0 {
		delete(s.objects, id)
		return s.state.RemoveObject(id)
	}
	return s.state.PutObject(convert.GangObject(counted[0]))
}

// groupRank is the place of the object's API group among those that may have a PodGroup of one name.
func groupRank(g *v1alpha1.PodGroup) int {
	return slices.Index(v1alpha1.PodGroupGroups(), g.GroupVersionKind().Group)
}

// Read calls f with the state. f must be short, and must neither change the state nor keep it.
func (s *Gangs) Read(f func(*gang.State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.state)
}

// Ask returns the answer of f about the state of Gangs or the account of Quotas. f is called by Read of them.
func Ask[S, T any](store interface{ Read(f func(S)) }, f func(S) T) (answer T) {
	store.Read(func(s S) { answer = f(s) })
	return answer
}

// Pods returns the members that f chooses, by what the gangs know of them.
func (s *Gangs) Pods(f func(p *corev1.Pod, state *gang.State) bool) (pods []*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pods {
		if f(p, s.state) {
			pods = append(pods, p)
		}
	}
	return pods
}
