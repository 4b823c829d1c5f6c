package gang

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/why"
)

// State is all gangs of the pods of one scheduler. Gangs, their groups and the gate depend on what it was given last of
// each pod and object, not on the order; rounds depend on the attempts as well. It is not safe for concurrent use.
type State struct {
	defaults Settings           // for what neither pods nor objects say
	gangs    map[string]*gang   // by namespace/name. Invariant: each has members or an object.
	members  map[string]*member // by UID, of all gangs
	// groups are by key. Invariant: each has a gang, and its gangs list exactly each other.
	groups map[string]*group
	// listers has the gangs whose settings list a gang, by the name of that gang, which need not exist. A change of a
	// gang changes the gates of its listers alone.
	listers  map[string]map[string]*gang
	branches map[string]*branch // of CompositePodGroups and PodGroups, by kind and name

	layers *domain.Layers // of the network; never nil
	// cliques has the GPU clique of each node that is in one.
	cliques map[string]string
	// releases are those of NonStrict groups for the sake of others that have yet to start.
	releases []*release

	// joinsWholeGPUs lets gangs whose members all ask for whole GPUs be placed as if each had Pod.Joint.
	joinsWholeGPUs bool

	// maxOvertakes is how many others may get room before a group that lacks it; 0 for any number.
	maxOvertakes int
	// holds are who may hold nodes for a declared start.
	holds HoldRules
	// published are the holds that others read, see PublishHolds.
	published []Hold
	// short has the groups that others may yet overtake. Invariant: by rank, each with a claim whose outlook is Short
	// and whose count is less than maxOvertakes.
	short []*group

	// ended has the last owner of gangs that had started and have no members any more, by name: a pod that this owner
	// creates again is of the same gang. endings are its keys, the oldest first, mostEnded at most.
	ended   map[string]string
	endings []string
}

// mostEnded bounds what is known of gangs that are gone.
const mostEnded = 10000

// Effects are what the caller must do. All are in ascending order.
type Effects struct {
	Allow   []string // bind these members
	Release []string // end the reservations of these, and call Lose for each
	Opened  []string // gangs whose members may be tried, and could not before
	Bonds   []string // gangs whose Bond has changed; nothing is to be done
}

// add appends other effects in their order.
func (e *Effects) add(o Effects) {
	e.Opened = append(e.Opened, o.Opened...)
	e.Allow = append(e.Allow, o.Allow...)
	e.Release = append(e.Release, o.Release...)
	e.Bonds = append(e.Bonds, o.Bonds...)
}

// New returns a State without gangs. Its gangs have the defaults where nothing else is said.
func New(defaults Settings) *State {
	return &State{
		defaults: defaults.over(Settings{
			Mode: Strict, Policy: OnceSatisfied, Wait: 10 * time.Minute, Interrupted: KeepBound,
		}),
		gangs: map[string]*gang{}, members: map[string]*member{}, groups: map[string]*group{},
		listers: map[string]map[string]*gang{}, branches: map[string]*branch{}, ended: map[string]string{},
		layers: &domain.Layers{}, cliques: map[string]string{},
	}
}

// Put records a pod that has not ended. One whose Node is known is bound.
func (s *State) Put(p Pod) (effects Effects) {
	m := s.members[p.UID]
	if m != nil && m.gang.id != p.Gang {
		effects = s.Remove(p.UID)
		m = nil
	}
	if m == nil {
		g := s.find(p.Gang)
		if len(g.members) == 0 && p.Owner != "" && s.ended[p.Gang] == p.Owner {
			g.start.proved = true
		}
		m = &member{gang: g, pod: p}
		g.members[p.UID], s.members[p.UID] = m, m
		g.enter(m, p.unplaced())
	} else if m.phase == Pending || m.phase == Gated {
		m.gang.leave(m)
		m.pod = p
		m.gang.enter(m, p.unplaced())
	}
	g := m.gang
	m.pod, g.ranked = p, false
	if p.Node != "" {
		g.set(m, Bound)
		g.start.noteBound(&p)
	}
	if g.oldest == m || m.older(g.oldest) {
		g.elect()
	}
	effects.add(s.refresh(g))
	return effects
}

// Remove forgets a pod that is deleted or has ended. Its own reservation is the caller's to end.
func (s *State) Remove(uid string) Effects {
	m := s.members[uid]
	if m == nil {
		return Effects{}
	}
	g := m.gang
	started := g.hasStarted()
	g.start.sticky = g.isInterrupted()
	blamed := g.group != nil && g.group.failure.Pod == m.pod.Namespace+"/"+m.pod.Name
	g.leave(m)
	g.ranked = false
	delete(s.members, uid)
	delete(g.members, uid)
	if g.start.proved = started; started && g.setEnded(m.pod.Owner) {
		s.remember(g.id, m.pod.Owner)
		g.start.proved, g.replaced = false, true
	}
	if g.oldest == m {
		g.elect()
	}
	effects := s.refresh(g)
	if blamed {
		effects.add(s.retry(g))
	}
	return effects
}

// retry lets a group be tried again whose last round failed for a reason that is gone.
func (s *State) retry(g *gang) (effects Effects) {
	if g.group != nil && g.group.failure.Code != why.None {
		g.group.failure, effects.Opened = Refusal{}, s.open(g.group)
	}
	return effects
}

// open returns the gangs of a group whose members may be tried.
func (s *State) open(g *group) (ids []string) {
	for _, o := range g.gangs {
		if s.gate(o).Code == why.None {
			ids = append(ids, o.id)
		}
	}
	return ids
}

// setEnded reports whether no pod is left of a set whose last owner is given: no member runs, and those that are
// pending have another owner.
func (g *gang) setEnded(owner string) bool {
	if g.runs() {
		return false
	}
	for _, m := range g.members {
		if m.pod.Owner == owner {
			return false
		}
	}
	return true
}

// remember notes that a gang has started of whose pods none is left. Pods of its name that another owner creates are
// another set, which starts as a whole.
func (s *State) remember(id, owner string) {
	if _, known := s.ended[id]; !known {
		if s.endings = append(s.endings, id); len(s.endings) > mostEnded {
			delete(s.ended, s.endings[0])
			s.endings = s.endings[1:]
		}
	}
	s.ended[id] = owner
}

// PutObject records a PodGroup.
func (s *State) PutObject(o Object) Effects {
	g := s.find(o.Gang)
	g.start.proved = g.start.proved || o.Started && !g.replaced
	g.object = &o
	return s.refresh(s.attach("PodGroup "+o.Gang, g, Composite{Exists: true, Parent: o.Parent})...)
}

// RemoveObject forgets the PodGroup of a gang.
func (s *State) RemoveObject(id string) Effects {
	g := s.gangs[id]
	if g == nil {
		return Effects{}
	}
	g.object, g.tree = nil, nil
	return s.refresh(append(s.attach("PodGroup "+id, nil, Composite{}), g)...)
}

// find returns a gang, which it makes if it is not known. The caller gives it a member or an object.
func (s *State) find(id string) *gang {
	g := s.gangs[id]
	if g == nil {
		g = &gang{id: id, members: map[string]*member{}}
		s.gangs[id] = g
	}
	return g
}

// elect finds the oldest member.
func (g *gang) elect() {
	g.oldest = nil
	for _, m := range g.members {
		if m.older(g.oldest) {
			g.oldest = m
		}
	}
}

// refresh follows a change of the members or the objects of gangs. With one, as for a pod, it keeps off the heap.
func (s *State) refresh(gangs ...*gang) (effects Effects) {
	before, moved := append(make([]Settings, 0, 1), make([]Settings, len(gangs))...), []*gang(nil)
	for i, g := range gangs {
		before[i] = g.settings
		if len(g.members) == 0 && g.object == nil {
			delete(s.gangs, g.id)
			g.settings.Group = nil
		} else {
			g.settings = s.settingsOf(g)
			g.unknown = s.unknown(g)
			g.noteStart()
		}
		if listed := before[i].Group; !slices.Equal(listed, g.settings.Group) {
			s.list(g, listed)
			moved = append(moved, g)
		}
	}
	affected := s.affected(moved...)
	for _, h := range affected {
		effects.add(s.regroup(h))
	}
	for _, h := range affected { // when all are in their groups, whose modes bonds depend on
		s.noteBond(h, &effects)
	}
	for i, g := range gangs {
		s.noteBond(g, &effects)
		if g.group != nil {
			effects.add(g.group.advanceRound())
		}
		if g.group != nil && before[i].Mode != g.settings.Mode {
			for _, o := range g.group.gangs {
				s.noteBond(o, &effects)
			}
		}
		if was := before[i]; was.Min != g.settings.Min || was.Mode != g.settings.Mode ||
			was.Policy != g.settings.Policy || !slices.Equal(was.DomainRules, g.settings.DomainRules) {
			effects.add(s.retry(g))
		}
	}
	effects.Opened = append(effects.Opened, s.opened(gangs...)...)
	return s.finish(effects)
}

// noteBond reports the bond of a gang if it is not the one that was reported last.
func (s *State) noteBond(g *gang, effects *Effects) {
	if b := s.Bond(g.id); b != g.bonded {
		g.bonded = b
		effects.Bonds = append(effects.Bonds, g.id)
	}
}

// opened returns the gangs whose gate a change of others has opened: those that list them.
func (s *State) opened(gangs ...*gang) (ids []string) {
	for _, o := range s.affected(gangs...) {
		was := o.closed
		o.closed = s.gate(o).Code != why.None
		if was && !o.closed {
			ids = append(ids, o.id)
		}
		if o.group != nil && (o.closed || !o.group.plans()) {
			s.unclaim(o.group)
		}
	}
	return ids
}

// finish adds what releases bring after a change, and puts all effects in ascending order, so that equal events have
// equal effects.
func (s *State) finish(effects Effects) Effects {
	effects.add(s.follow())
	slices.Sort(effects.Opened)
	effects.Opened = slices.Compact(effects.Opened)
	slices.Sort(effects.Allow)
	slices.Sort(effects.Release)
	return effects
}

// settingsOf returns what counts: what the oldest pod says, then the object, then the defaults. Pods that are not a
// gang have no minimum.
func (s *State) settingsOf(g *gang) (settings Settings) {
	if g.isPlain() {
		return Settings{Group: []string{g.id}}.over(s.defaults)
	}
	if g.oldest != nil {
		settings = g.oldest.pod.Settings
	}
	if g.object != nil {
		settings = settings.over(g.object.Settings)
	}
	if t := g.tree; t != nil && t.refused.Code == why.None {
		settings = settings.over(Settings{Group: t.group})
	}
	settings = settings.over(s.defaults)
	settings.Min = settings.least()
	settings.Total = max(settings.Total, settings.Min)
	settings.Group = append(slices.Clone(settings.Group), g.id)
	slices.Sort(settings.Group)
	settings.Group = slices.Compact(settings.Group)
	return settings
}

// list follows a change of the names that a gang lists.
func (s *State) list(g *gang, before []string) {
	for _, id := range before {
		if delete(s.listers[id], g.id); len(s.listers[id]) == 0 {
			delete(s.listers, id)
		}
	}
	for _, id := range g.settings.Group {
		if s.listers[id] == nil {
			s.listers[id] = map[string]*gang{}
		}
		s.listers[id][g.id] = g
	}
}

// affected returns gangs and those that list them, in order.
func (s *State) affected(gangs ...*gang) []*gang {
	all := slices.Clone(gangs)
	for _, g := range gangs {
		all = slices.AppendSeq(all, maps.Values(s.listers[g.id]))
	}
	slices.SortFunc(all, func(a, b *gang) int { return cmp.Compare(a.id, b.id) })
	return slices.Compact(all)
}

// regroup moves a gang to the group that it belongs to. What the group that it leaves has reserved is given back.
func (s *State) regroup(g *gang) (effects Effects) {
	to := s.groupOf(g)
	if from := g.group; from != nil && from.key != to {
		effects = from.releaseMembers()
		s.unclaim(from)
		from.gangs = slices.DeleteFunc(from.gangs, func(o *gang) bool { return o == g })
		g.group = nil
		if len(from.gangs) == 0 {
			delete(s.groups, from.key)
		}
	}
	if to != "" && g.group == nil {
		s.join(g, to)
	}
	return effects
}

// groupOf returns the key of the group of a gang: each gang that it lists exists and lists the same; empty where one
// does not, and for a gang that is gone.
func (s *State) groupOf(g *gang) string {
	if s.foreign(g) != "" {
		return ""
	}
	return strings.Join(g.settings.Group, ",")
}

// foreign returns the first gang that a gang lists and that does not exist or lists others.
func (s *State) foreign(g *gang) string {
	for _, id := range g.settings.Group {
		if o := s.gangs[id]; o == nil || !slices.Equal(o.settings.Group, g.settings.Group) {
			return id
		}
	}
	return ""
}

// join adds a gang to the group of a key. The group's round goes behind all rounds in which a member of the gang was
// tried, so that all its pending members are untried.
func (s *State) join(g *gang, key string) {
	to := s.groups[key]
	if to == nil {
		to = &group{key: key, cycle: 1}
		s.groups[key] = to
	}
	to.gangs = append(to.gangs, g)
	slices.SortFunc(to.gangs, func(a, b *gang) int { return cmp.Compare(a.id, b.id) })
	g.group = to
	for _, m := range g.members {
		to.cycle = max(to.cycle, m.cycle+1)
	}
	for _, g := range to.gangs {
		g.untried = g.count[Pending]
	}
}
