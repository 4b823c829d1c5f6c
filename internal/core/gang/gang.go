package gang

import (
	"cmp"
	"slices"
	"time"

	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Mode is what becomes of reservations when the gang cannot be completed.
type Mode string

// Modes. A group is NonStrict where all its gangs are.
const (
	Strict    Mode = "Strict"    // they end
	NonStrict Mode = "NonStrict" // they wait for the rest, until the waiting time is over
)

// MatchPolicy is which members count towards the minimum.
type MatchPolicy string

// Match policies.
const (
	OnceSatisfied     MatchPolicy = "once-satisfied"      // waiting and bound; satisfied once, it is forever
	OnlyWaiting       MatchPolicy = "only-waiting"        // waiting; bound ones too while they lack some of the minimum
	WaitingAndRunning MatchPolicy = "waiting-and-running" // waiting and bound
)

// Interrupted is what becomes of bound members if the start of their gang was interrupted and the others do not follow
// within the waiting time.
type Interrupted string

// Values of Interrupted.
const (
	KeepBound  Interrupted = "Keep"
	EvictBound Interrupted = "Evict"
)

// Settings are what a pod, a PodGroup or the arguments of the scheduler say of a gang. A field that is zero says
// nothing.
type Settings struct {
	Min    int // of members; Total where nothing is said, and 1 where that is not either
	Total  int // of members, to be shown
	Mode   Mode
	Policy MatchPolicy
	Wait   time.Duration // from the first reservation of the group; not negative
	Group  []string      // all gangs of its group
	// DomainRules is which domains of the network its members are in.
	DomainRules []domain.Rule
	Interrupted Interrupted
}

// over returns what s says, and what o says where s says nothing.
func (s Settings) over(o Settings) Settings {
	if len(s.Group) > 0 {
		o.Group = s.Group
	}
	if len(s.DomainRules) > 0 {
		o.DomainRules = s.DomainRules
	}
	return Settings{
		DomainRules: o.DomainRules,
		Min:         cmp.Or(s.Min, o.Min), Total: cmp.Or(s.Total, o.Total), Mode: cmp.Or(s.Mode, o.Mode),
		Policy: cmp.Or(s.Policy, o.Policy), Wait: cmp.Or(s.Wait, o.Wait), Group: o.Group,
		Interrupted: cmp.Or(s.Interrupted, o.Interrupted),
	}
}

// least returns how many members must start together.
func (s Settings) least() int { return cmp.Or(s.Min, s.Total, 1) }

// Pod is what a State reads of a pod of a gang that has not ended.
type Pod struct {
	UID, Namespace, Name string
	// Gang is namespace/name of the gang. InObject is set for one that a PodGroup must describe.
	Gang     string
	InObject bool
	Settings Settings
	Fault    string // what cannot be read of its settings; names the key
	Joint    bool   // it asks for its GPUs next to those of the other members
	// WholeGPUs says that it asks for whole GPUs, and for no share and no MIG device.
	WholeGPUs bool
	Index     int    // its rank: members that follow each other get neighboring places; 0 where nothing is said
	Owner     string // UID of its controller; empty without one
	Priority  int32
	Created   time.Time
	Node      string    // empty until it is bound
	Bound     time.Time // when it was bound; zero where nothing says it
	Leaving   bool      // it is being deleted
	// Gate has the names of its scheduling gates, separated by commas. Empty once all of them are removed.
	Gate string
}

// unplaced returns the phase of a pod that neither has a node nor holds a reservation.
func (p *Pod) unplaced() Phase {
	if p.Gate != "" {
		return Gated
	}
	return Pending
}

// Object is what a State reads of a PodGroup.
type Object struct {
	Gang     string // namespace/name
	Settings Settings
	Fault    string // what cannot be read of it; names the field
	Created  time.Time
	Phase    string // of its status; empty where it has none
	Started  bool   // its status says that a set of pods has started and not ended
	Plain    bool   // it is not a gang: its pods start one by one, whatever else is said
	Whole    bool   // its pods are evicted together
	Native   bool   // it is Kubernetes' own
	Parent   string // namespace/name of the CompositePodGroup above it; empty for none
	Rule     string // by which it was made of an operator's object; empty for none
}

// Phase is what a member holds.
type Phase int

// Phases.
const (
	Pending   Phase = iota
	Waiting         // reserved, until all gangs of the group have their minimum
	Returning       // its reservation is to end
	Allowed         // reserved, and may be bound
	Bound
	Gated // a scheduling gate of the pod holds it back: it does not count towards the minimum
	numPhases
)

// gang is a gang with its members. Invariant: it has members or an object.
type gang struct {
	id      string             // namespace/name
	object  *Object            // its PodGroup; nil without one
	members map[string]*member // by UID
	// oldest is the member whose annotations win; nil without members.
	oldest *member
	// settings are in force. refresh computes them after each change. Invariant: Group is sorted and has id.
	settings Settings
	// group is nil where a gang that this one lists does not exist or lists others: then no member may be tried.
	group *group
	start start
	// replaced is set when a set of its pods has started and ended: the phase of its object proves nothing of later
	// pods.
	replaced bool
	// unknown is a rule that must hold and whose layer is not known; zero for none. It closes the gate.
	unknown domain.Rule
	tree    *tree // of its object; nil where it starts on its own
	bonded  Bond  // as Effects reported it last
	// closed is set where members could not be tried after the last event that may change it. Effects name the gang
	// when it is unset.
	closed bool
	count  [numPhases]int // of members, by phase
	// gates counts the members that are Gated, by Pod.Gate. nil before the first.
	gates map[string]int
	// untried counts the pending members that were not tried in the round. Invariant: those with a lower cycle than
	// the group's, or all of them without a group.
	untried int
	// lowest is the lowest priority of the members. It is valid while ranked is set, which each change of a member
	// unsets.
	lowest int32
	ranked bool
}

// member is a pod of a gang. It belongs to one gang as long as it is known: a pod that names another one is another
// member.
type member struct {
	pod   Pod // as it was put last
	gang  *gang
	phase Phase // changed by gang.set alone
	// cycle is that of the round in which the member was tried last. Invariant: at most that of its group.
	cycle int
}

// older reports whether a member comes before another one of its gang.
func (m *member) older(o *member) bool {
	return o == nil || cmp.Or(m.pod.Created.Compare(o.pod.Created), cmp.Compare(m.pod.Name, o.pod.Name),
		cmp.Compare(m.pod.UID, o.pod.UID)) < 0
}

// fault returns what cannot be read of the settings in force.
func (g *gang) fault() string {
	switch {
	case g.oldest != nil && g.oldest.pod.Fault != "" && !g.isPlain():
		return g.oldest.pod.Fault
	case g.object != nil:
		return g.object.Fault
	}
	return ""
}

// lacksObject reports whether a PodGroup must describe the gang and does not exist.
func (g *gang) lacksObject() bool { return g.object == nil && g.oldest != nil && g.oldest.pod.InObject }

// isPlain reports whether a PodGroup says that the pods are not a gang.
func (g *gang) isPlain() bool { return g.object != nil && g.object.Plain }

// isOpen reports whether members are scheduled like pods without a gang.
func (g *gang) isOpen() bool {
	return (g.isPlain() || g.hasStarted() && g.settings.Policy == OnceSatisfied) && g.refusal().Code == why.None
}

// isWhole reports whether all members are disrupted together, as the gang's object or tree says.
func (g *gang) isWhole() bool {
	return g.object != nil && g.object.Whole || g.tree != nil && g.tree.whole
}

// running is how many members hold what they need, apart from those that wait, as far as they count. Where waiting
// members alone count, those of a set that lacks some of its minimum do too: else the rest could never follow.
func (g *gang) running() int {
	n := g.count[Allowed] + g.count[Bound]
	if g.isInterrupted() {
		n -= g.start.leaving
	}
	if g.settings.Policy == OnlyWaiting && n >= g.settings.Min {
		return 0
	}
	return n
}

// isSatisfied reports whether the gang has started, or would start with the members that wait and run.
func (g *gang) isSatisfied() bool {
	return g.isOpen() || g.refusal().Code == why.None && g.count[Waiting]+g.running() >= g.settings.Min
}

// canComplete reports whether the minimum can still be reached in this round.
func (g *gang) canComplete() bool {
	return g.isOpen() || g.count[Waiting]+g.running()+g.untried >= g.settings.Min
}

// present is how many members there are of those that count.
func (g *gang) present() int {
	return g.count[Pending] + g.count[Waiting] + g.count[Returning] + g.running()
}

// isShort reports whether there are too few members for the minimum.
func (g *gang) isShort() bool { return !g.isOpen() && g.present() < g.settings.Min }

// isDegraded reports whether fewer members than the minimum run of a gang that has started, or of whose group members
// run, and others are pending.
func (g *gang) isDegraded() bool {
	return g.count[Pending] > 0 && g.count[Allowed]+g.count[Bound] < g.settings.Min &&
		(g.isOpen() || g.group != nil && slices.ContainsFunc(g.group.gangs, (*gang).runs))
}

// runs reports whether members are bound or may be.
func (g *gang) runs() bool { return g.count[Allowed]+g.count[Bound] > 0 }

// created is when the gang was: its object, or its oldest member. An object of a file says no time.
func (g *gang) created() time.Time {
	switch {
	case g.object != nil && (g.oldest == nil || !g.object.Created.IsZero()):
		return g.object.Created
	case g.oldest != nil:
		return g.oldest.pod.Created
	}
	return time.Time{}
}
