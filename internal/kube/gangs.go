package kube

import (
	"cmp"
	"errors"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Gangs keeps the gangs of a cluster's pods, from Pods and PodGroups. All methods may be called from any goroutine.
type Gangs struct {
	configured atomic.Bool
	opened     atomic.Pointer[func(map[string]*corev1.Pod)] // nil before OnOpened

	mu       sync.Mutex // guards everything below
	names    []string   // of the schedulers whose pods are members; empty for all
	defaults gang.Settings
	state    *gang.State
	pods     map[string]*corev1.Pod          // members, by UID, as they were put last
	objects  map[string][]*v1alpha1.PodGroup // by gang; the first counts
}

// NewGangs returns an empty store with the default arguments.
func NewGangs() *Gangs {
	return &Gangs{
		state: gang.New(gang.Settings{}), pods: map[string]*corev1.Pod{}, objects: map[string][]*v1alpha1.PodGroup{},
	}
}

// Configure sets what holds where neither a pod nor a PodGroup says anything. Every caller must bring equal values,
// before the first object.
func (s *Gangs) Configure(defaults gang.Settings) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !reflect.DeepEqual(defaults, s.defaults) {
		if s.configured.Load() || len(s.pods)+len(s.objects) > 0 {
			return errors.New("all profiles must give the plugin Coscheduling equal arguments")
		}
		s.defaults, s.state = defaults, gang.New(counted(defaults))
	}
	s.configured.Store(true)
	return nil
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

// PutPod records a pod; one that has ended, or is deleted before it runs, does not count.
func (s *Gangs) PutPod(p *corev1.Pod) {
	is, member := convert.GangPod(p)
	if !member || convert.Ended(p) || p.DeletionTimestamp != nil && p.Spec.NodeName == "" ||
		!s.serves(p.Spec.SchedulerName) {
		s.RemovePod(p)
		return
	}
	is.Settings = counted(is.Settings)
	s.follow(func() gang.Effects {
		s.pods[is.UID] = p
		return s.state.Put(is)
	})
}

// RemovePod forgets a pod.
func (s *Gangs) RemovePod(p *corev1.Pod) {
	s.follow(func() gang.Effects {
		delete(s.pods, string(p.UID))
		return s.state.Remove(string(p.UID))
	})
}

// OnOpened makes f learn of pods, by namespace/name, that may be tried and could not before. It is called without the
// store's lock.
func (s *Gangs) OnOpened(f func(map[string]*corev1.Pod)) { s.opened.Store(&f) }

// follow calls OnOpened's function with the pods of the gangs that an event opens.
func (s *Gangs) follow(event func() gang.Effects) {
	if pods, f := s.after(event), s.opened.Load(); len(pods) > 0 && f != nil {
		(*f)(pods)
	}
}

func (s *Gangs) after(event func() gang.Effects) (pods map[string]*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range event().Opened {
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
	return pods
}

// PutGroup records a PodGroup. Of two of one name that of scheduling.sigs.k8s.io counts.
func (s *Gangs) PutGroup(g *v1alpha1.PodGroup) { s.putGroup(g, []*v1alpha1.PodGroup{g}) }

// RemoveGroup forgets a PodGroup.
func (s *Gangs) RemoveGroup(g *v1alpha1.PodGroup) { s.putGroup(g, nil) }

func (s *Gangs) putGroup(g *v1alpha1.PodGroup, is []*v1alpha1.PodGroup) {
	s.follow(func() gang.Effects { return s.replace(g, is) })
}

func (s *Gangs) replace(g *v1alpha1.PodGroup, is []*v1alpha1.PodGroup) gang.Effects {
	id := g.Namespace + "/" + g.Name
	for _, o := range s.objects[id] {
		if o.GroupVersionKind().Group != g.GroupVersionKind().Group {
			is = append(is, o)
		}
	}
	slices.SortFunc(is, func(a, b *v1alpha1.PodGroup) int {
		return cmp.Compare(a.GroupVersionKind().Group, b.GroupVersionKind().Group)
	})
	if s.objects[id] = is; len(is) == 0 {
		delete(s.objects, id)
		return s.state.RemoveObject(id)
	}
	o := convert.GangObject(is[0])
	o.Settings = counted(o.Settings)
	return s.state.PutObject(o)
}

// counted lets members that run count under every policy. Members are bound one after the other as long as none is
// reserved before the others: under only-waiting the first one that is bound would close the gate for the rest.
func counted(of gang.Settings) gang.Settings {
	if of.Policy == gang.OnlyWaiting {
		of.Policy = gang.WaitingAndRunning
	}
	return of
}

// Gate returns why a pod may not be tried; nothing for a pod without a gang.
func (s *Gangs) Gate(p *corev1.Pod) gang.Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Gate(string(p.UID))
}

// Read calls f with the state. f must be short, must not change it, and must not keep it.
func (s *Gangs) Read(f func(*gang.State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.state)
}

// Pods returns the members that f chooses, by what the gangs know of them.
func (s *Gangs) Pods(f func(uid string, state *gang.State) bool) (pods []*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, p := range s.pods {
		if f(uid, s.state) {
			pods = append(pods, p)
		}
	}
	return pods
}

// PodHandler puts pods. Like GroupHandler it does nothing before Configure: a scheduler none of whose profiles has the
// plugin keeps no gangs.
func (s *Gangs) PodHandler() cache.ResourceEventHandler {
	return whenTrue(&s.configured, Handler(s.PutPod, s.RemovePod))
}

// GroupHandler puts PodGroups.
func (s *Gangs) GroupHandler() cache.ResourceEventHandler {
	return whenTrue(&s.configured, Handler(s.PutGroup, s.RemoveGroup))
}

// whenTrue leaves a handler's events out until a condition holds.
func whenTrue(is *atomic.Bool, h cache.ResourceEventHandler) cache.ResourceEventHandler {
	return cache.FilteringResourceEventHandler{FilterFunc: func(any) bool { return is.Load() }, Handler: h}
}
