package gang_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// model is a State beside what a caller knows: all pods and objects, and what each member holds.
type model struct {
	*rapid.T
	state    *gang.State
	now      time.Time
	pods     map[string]gang.Pod
	holds    map[string]gang.Phase
	objects  map[string]gang.Object
	started  map[string]bool      // gangs that are known to have been satisfied once, and of whose pods some are left
	first    map[string]time.Time // by gang: the earliest time at which one of its bound members was bound
	halted   map[string]bool      // gangs whose start was interrupted when a member was removed
	replaced map[string]bool      // gangs that had started and have lost all pods, while they exist
	ended    map[string]string    // the last owner of gangs that had started, while they have no pods
	closed   map[string]bool      // gangs whose members may not be tried
	opened   map[string]bool      // by effects, since the last event
	after    map[string]behind    // by gang: it gave back for the sake of another group
	claims   map[string]*claim    // by group: its last plan failed for lack of room
	known    map[string]settled   // by gang, until a pod or an object changes
	born     int
}

// settled is what counts for a gang.
type settled struct {
	gang.Settings
	fault  string
	exists bool
}

// claim is what a group has a right to that was overtaken.
type claim struct {
	rank      gang.Rank
	outlook   gang.Outlook
	overtaken int
}

const maxOvertakes = 2

// behind is the group of a gang, and the one that must start before it.
type behind struct{ own, winner []string }

var (
	names    = []string{"ns/a", "ns/b", "other/c"}
	policies = []gang.MatchPolicy{"", gang.OnceSatisfied, gang.OnlyWaiting, gang.WaitingAndRunning}
)

func (m *model) drawSettings() gang.Settings {
	s := gang.Settings{
		Min: rapid.IntRange(0, 4).Draw(m.T, "min"), Total: rapid.IntRange(0, 4).Draw(m.T, "total"),
		Mode:   rapid.SampledFrom([]gang.Mode{"", gang.Strict, gang.NonStrict}).Draw(m.T, "mode"),
		Policy: rapid.SampledFrom(policies).Draw(m.T, "policy"),
		Wait:   time.Duration(rapid.IntRange(0, 3).Draw(m.T, "wait")) * time.Minute,
	}
	if rapid.Bool().Draw(m.T, "lists") {
		s.Group = rapid.SliceOfN(rapid.SampledFrom(names), 0, 3).Draw(m.T, "group")
	}
	return s
}

func (m *model) drawPod(uid string) gang.Pod {
	id := rapid.SampledFrom(names).Draw(m.T, "gang")
	p := gang.Pod{
		UID: uid, Namespace: "ns", Name: "p" + fmt.Sprint(rapid.IntRange(0, 3).Draw(m.T, "name")), Gang: id,
		InObject: rapid.IntRange(0, 4).Draw(m.T, "object") == 0, Settings: m.drawSettings(),
		Created:  time.Unix(int64(rapid.IntRange(0, 3).Draw(m.T, "created")), 0),
		Owner:    rapid.SampledFrom([]string{"", "x", "y"}).Draw(m.T, "owner"),
		Priority: rapid.Int32Range(0, 1).Draw(m.T, "priority"),
	}
	if rapid.IntRange(0, 5).Draw(m.T, "gated") == 0 {
		p.Gate = "example.com/gate"
	}
	if rapid.IntRange(0, 9).Draw(m.T, "faulty") == 0 {
		p.Fault = "cannot be read"
	}
	return p
}

func (m *model) settings(id string) (s gang.Settings, fault string, exists bool) {
	now, known := m.known[id]
	if !known {
		now.Settings, now.fault, now.exists = m.settingsFor(id)
		m.known[id] = now
	}
	return now.Settings, now.fault, now.exists
}

// settingsFor returns what counts for a gang by the words of the reference: the oldest pod, the object, the defaults.
func (m *model) settingsFor(id string) (s gang.Settings, fault string, exists bool) {
	var oldest *gang.Pod
	for _, p := range m.pods {
		if p.Gang == id && (oldest == nil || p.Created.Before(oldest.Created) || p.Created.Equal(oldest.Created) &&
			p.Name+"/"+p.UID < oldest.Name+"/"+oldest.UID) {
			oldest = &p
		}
	}
	object, known := m.objects[id]
	if object.Plain {
		return gang.Settings{Mode: gang.Strict, Policy: gang.OnceSatisfied, Group: []string{id}}, object.Fault, true
	}
	var layers []gang.Settings
	if oldest != nil {
		layers = append(layers, oldest.Settings)
		fault = oldest.Fault
		if oldest.InObject && !known {
			fault += "no object"
		}
	}
	if known {
		layers = append(layers, object.Settings)
		fault += object.Fault
	}
	layers = append(layers, gang.Settings{Mode: gang.Strict, Policy: gang.OnceSatisfied, Wait: 10 * time.Minute})
	for _, l := range slices.Backward(layers) {
		if l.Min != 0 {
			s.Min = l.Min
		}
		if l.Total != 0 {
			s.Total = l.Total
		}
		if l.Mode != "" {
			s.Mode = l.Mode
		}
		if l.Policy != "" {
			s.Policy = l.Policy
		}
		if len(l.Group) > 0 {
			s.Group = l.Group
		}
	}
	if s.Min == 0 {
		s.Min = max(s.Total, 1)
	}
	s.Group = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(s.Group), id))))
	return s, fault, oldest != nil || known
}

// mutual reports whether all gangs that one lists exist and list the same.
func (m *model) mutual(s gang.Settings) bool {
	for _, id := range s.Group {
		if o, _, exists := m.settings(id); !exists || !slices.Equal(o.Group, s.Group) {
			return false
		}
	}
	return true
}

// count is the members of a gang that hold one of the phases.
func (m *model) count(id string, phases ...gang.Phase) (n int) {
	for uid, p := range m.pods {
		if p.Gang == id && slices.Contains(phases, m.holds[uid]) {
			n++
		}
	}
	return n
}

func (m *model) members(id string) int {
	return m.count(id, gang.Pending, gang.Waiting, gang.Returning, gang.Allowed, gang.Bound, gang.Gated)
}

func (m *model) running(id string, s gang.Settings) int {
	n := m.count(id, gang.Allowed, gang.Bound)
	if m.interrupted(id) {
		for uid, p := range m.pods {
			if p.Gang == id && p.Leaving && m.holds[uid] == gang.Bound {
				n--
			}
		}
	}
	if s.Policy == gang.OnlyWaiting && n >= s.Min {
		return 0
	}
	return n
}

func (m *model) open(id string) bool {
	s, fault, _ := m.settings(id)
	return fault == "" && s.Policy == gang.OnceSatisfied && (m.hasStarted(id) || m.objects[id].Plain)
}

// hasStarted reports whether a gang was satisfied once, as far as its pods say.
func (m *model) hasStarted(id string) bool {
	return m.started[id] || m.count(id, gang.Bound) > 0 && !m.interrupted(id)
}

// interrupted reports whether the bound members of a gang in a Strict group are a part of those that were to start
// together: fewer than the minimum, with enough others to complete it, one of which existed when the first was bound.
func (m *model) interrupted(id string) bool {
	s, _, _ := m.settings(id)
	group := s.Group
	if !m.mutual(s) {
		group = nil // it is strict until its group is known
	}
	strict := len(group) == 0 || slices.ContainsFunc(group, func(other string) bool {
		o, _, _ := m.settings(other)
		return o.Mode == gang.Strict
	})
	bound := m.count(id, gang.Bound)
	if !strict || m.started[id] || bound == 0 || bound >= s.Min {
		return false
	}
	if m.halted[id] {
		return true
	}
	for uid, p := range m.pods {
		if p.Gang == id && m.holds[uid] != gang.Bound && m.members(id) >= s.Min &&
			(m.first[id].IsZero() || !m.first[id].Before(p.Created)) {
			return true
		}
	}
	return false
}

// gated reports whether the members of a gang may not be tried.
func (m *model) gated(id string) bool {
	s, fault, _ := m.settings(id)
	if fault != "" || !m.mutual(s) {
		return true
	}
	if m.open(id) {
		return false
	}
	if _, waits := m.after[id]; waits {
		return true
	}
	for _, other := range s.Group {
		o, fault, _ := m.settings(other)
		there := m.count(other, gang.Pending, gang.Waiting, gang.Returning) + m.running(other, o)
		if fault != "" || !m.open(other) && there < o.Min {
			return true
		}
	}
	return false
}

// apply carries out effects, and checks that nothing is allowed before its whole group has its minimum.
func (m *model) apply(e gang.Effects) {
	for _, id := range e.Opened {
		m.opened[id] = true
	}
	satisfied := map[string]bool{}
	for _, uid := range e.Allow {
		id := m.pods[uid].Gang
		s, _, _ := m.settings(id)
		ready := m.open(id)
		if !ready {
			ready = true
			for _, other := range s.Group {
				o, fault, _ := m.settings(other)
				has := m.count(other, gang.Waiting) + m.running(other, o)
				ready = ready && fault == "" && (m.open(other) || has >= o.Min)
			}
			for _, other := range s.Group {
				satisfied[other] = ready
			}
		} else {
			satisfied[id] = true // also for a PodGroup of the name of a plain one
		}
		if !ready || m.holds[uid] != gang.Waiting {
			m.Fatalf("%s of %s may start, and holds %d; of the group %v not all have their minimum", uid, id,
				m.holds[uid], s.Group)
		}
	}
	for id, now := range satisfied {
		m.started[id] = m.started[id] || now
	}
	for _, uid := range e.Allow {
		m.holds[uid] = gang.Allowed
	}
	for _, uid := range e.Release {
		if m.holds[uid] != gang.Waiting {
			m.Fatalf("%s is to give back and holds %d", uid, m.holds[uid])
		}
		m.holds[uid] = gang.Returning
	}
	for _, id := range names { // a gang without pods and object is gone
		if _, _, exists := m.settings(id); !exists {
			delete(m.started, id)
			delete(m.replaced, id)
		}
	}
}

// forgetStarts forgets what bound members said of gangs that have none.
func (m *model) forgetStarts() {
	for _, id := range names {
		if m.count(id, gang.Bound) == 0 {
			delete(m.first, id)
			delete(m.halted, id)
		}
	}
}

// bind records that a pod is bound.
func (m *model) bind(p gang.Pod) {
	m.holds[p.UID] = gang.Bound
	if first := m.first[p.Gang]; first.IsZero() || !p.Bound.IsZero() && p.Bound.Before(first) {
		m.first[p.Gang] = p.Bound
	}
}

// boundPod is a pod after its Binding, at a time that is not always known.
func (m *model) boundPod(p gang.Pod) gang.Pod {
	p.Node = "node"
	if at := rapid.IntRange(-1, 4).Draw(m.T, "bound at"); at >= 0 {
		p.Bound = time.Unix(int64(at), 0)
	}
	return p
}

// verify compares the State with what the model knows.
func (m *model) verify(after string) {
	if err := m.state.Check(); err != nil {
		m.Fatalf("after %s: %v", after, err)
	}
	maps.DeleteFunc(m.after, func(id string, b behind) bool {
		s, _, _ := m.settings(id)
		w, _, _ := m.settings(b.winner[0])
		holds := slices.ContainsFunc(b.winner, func(other string) bool { return m.count(other, gang.Waiting) > 0 })
		return !holds || !slices.Equal(s.Group, b.own) || !m.mutual(s) || !slices.Equal(w.Group, b.winner) ||
			!m.mutual(w)
	})
	gated := map[string]bool{}
	for _, id := range names {
		gated[id] = m.gated(id)
	}
	for uid, p := range m.pods {
		if got := m.state.Gate(uid).Code != why.None; got != gated[p.Gang] {
			m.Fatalf("after %s: %s of %s is gated %v (%v), want %v", after, uid, p.Gang, got, m.state.Gate(uid).Code,
				!got)
		}
		if s, _, _ := m.settings(p.Gang); m.holds[uid] == gang.Waiting && !m.mutual(s) {
			m.Fatalf("after %s: %s waits and its group is not complete", after, uid)
		}
	}
	m.rounds(after)
	m.reservations(after)
	for _, id := range names {
		_, _, exists := m.settings(id)
		closed := exists && gated[id]
		if exists && m.closed[id] && !closed != m.opened[id] {
			m.Fatalf("after %s: the gate of %s is open: %v, and the effects say %v", after, id, !closed, m.opened[id])
		}
		m.closed[id] = closed
	}
	clear(m.opened)
	for _, id := range m.state.Gangs() {
		r, _ := m.state.Find(id)
		if r.Started != m.hasStarted(id) {
			m.Fatalf("after %s: %s has started: %v", after, id, r.Started)
		}
		for _, member := range r.Members {
			if member.Phase != m.holds[member.UID] {
				m.Fatalf("after %s: %s is %d, want %d", after, member.UID, member.Phase, m.holds[member.UID])
			}
		}
	}
}

// rank is where a group stands.
func (m *model) rank(group []string) gang.Rank {
	r, first := gang.Rank{Name: strings.Join(group, ",")}, true
	for _, p := range m.pods {
		if slices.Contains(group, p.Gang) && (first || p.Priority < r.Priority) {
			r.Priority, first = p.Priority, false
		}
	}
	for _, id := range group {
		report, _ := m.state.Find(id)
		r.Degraded = r.Degraded || report.Degraded
		if r.Created.IsZero() || report.Created.Before(r.Created) {
			r.Created = report.Created
		}
	}
	return r
}

// reservations checks who may have one, and who has: a group that is still to start as a whole.
func (m *model) reservations(after string) {
	maps.DeleteFunc(m.claims, func(key string, _ *claim) bool {
		group, strict, open := strings.Split(key, ","), false, true
		for _, id := range group {
			s, _, exists := m.settings(id)
			if !exists || !slices.Equal(s.Group, group) || m.gated(id) {
				return true
			}
			strict, open = strict || s.Mode == gang.Strict, open && m.open(id)
		}
		return !strict || open
	})
	for uid, p := range m.pods {
		s, _, _ := m.settings(p.Gang)
		key := strings.Join(s.Group, ",")
		c := m.claims[key]
		due := c != nil && (c.outlook == gang.Reserved || keepsCount(c.outlook) && c.overtaken >= maxOvertakes)
		if m.state.Overtaken(uid, false) != due ||
			m.state.Reserves(key) != (c != nil && c.outlook >= gang.Reserved) {
			m.Fatalf("after %s: %s of %v may have a reservation: %t, want %t by %+v", after, uid, s.Group, !due, due, c)
		}
	}
}

// keepsCount reports whether plans that find this keep the count of those that have overtaken a group.
func keepsCount(o gang.Outlook) bool { return o == gang.Short || o == gang.Promised }

// overtaken counts those that give way, and returns the gangs that are to be tried for it.
func (m *model) overtaken(rank gang.Rank) (woken []string) {
	for key, c := range m.claims {
		if c.outlook != gang.Short || c.overtaken == maxOvertakes || !c.rank.Before(rank) {
			continue
		}
		if c.overtaken++; c.overtaken == maxOvertakes {
			woken = append(woken, strings.Split(key, ",")...)
		}
	}
	slices.Sort(woken)
	return woken
}

// concluded notes what a plan of a group makes of its claim: it starts, or it has failed.
func (m *model) concluded(group []string, starts, fails bool, placed int, found gang.Outlook) {
	key, rank := strings.Join(group, ","), m.rank(group)
	was := m.claims[key]
	switch {
	case starts:
		delete(m.claims, key)
		if placed > 0 {
			m.overtaken(rank)
		}
	case fails:
		delete(m.claims, key)
		if found == gang.NoRoomNeeded {
			return
		}
		m.claims[key] = &claim{rank: rank, outlook: found}
		if was != nil && keepsCount(was.outlook) && keepsCount(found) {
			m.claims[key].overtaken = was.overtaken
		}
	}
}

// rounds checks that a Strict group that cannot be completed holds nothing, and that a round ends when all were tried.
func (m *model) rounds(after string) {
	for _, id := range m.state.Gangs() {
		s, _, _ := m.settings(id)
		if !m.mutual(s) {
			continue
		}
		strict, waiting, possible, tried, left := false, 0, true, 0, 0
		for _, other := range s.Group {
			o, _, _ := m.settings(other)
			r, _ := m.state.Find(other)
			untried := 0
			for _, member := range r.Members {
				if member.Cycle == r.Cycle {
					tried++
				} else if member.Phase == gang.Pending {
					untried++
				}
			}
			left += untried
			strict = strict || o.Mode == gang.Strict
			waiting += m.count(other, gang.Waiting)
			has := m.count(other, gang.Waiting) + m.running(other, o) + untried
			possible = possible && (m.open(other) || has >= o.Min)
		}
		switch {
		case m.state.Bond(id).NonStrict == strict:
			m.Fatalf("after %s: the bond of %s is NonStrict: %t, and so is the group %v", after, id, strict, s.Group)
		case strict && waiting > 0 && !possible:
			m.Fatalf("after %s: the group %v waits and cannot be completed", after, s.Group)
		case tried > 0 && left == 0:
			m.Fatalf("after %s: the round of %v is not over, and all were tried", after, s.Group)
		}
	}
}

func (m *model) uids(phases ...gang.Phase) (uids []string) {
	for uid := range m.pods {
		if slices.Contains(phases, m.holds[uid]) {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

func (m *model) put(p gang.Pod) {
	if m.members(p.Gang) == 0 && p.Owner != "" && m.ended[p.Gang] == p.Owner {
		m.started[p.Gang] = true
	}
	m.pods[p.UID] = p
	clear(m.known)
	switch holds := m.holds[p.UID]; {
	case holds == gang.Pending && p.Gate != "":
		m.holds[p.UID] = gang.Gated
	case holds == gang.Gated && p.Gate == "":
		m.holds[p.UID] = gang.Pending
	}
	if p.Node != "" {
		m.bind(p)
	}
	m.apply(m.state.Put(p))
}

func (m *model) place(uid string) {
	m.holds[uid] = gang.Waiting
	m.apply(m.state.Place(uid, m.now))
}

func (m *model) lose(uid string) {
	m.holds[uid] = gang.Pending
	m.apply(m.state.Lose(uid, why.Finding{}))
}

// plans plans the round of a member's group: some members fit, others do not, and of those that fit some may fail when
// they are reserved. The plan ends as soon as some gang cannot have its minimum, and not before.
func (m *model) plans(uid string) bool {
	plan, refused := m.state.Begin(uid)
	id := m.pods[uid].Gang
	s, _, _ := m.settings(id)
	strict := slices.ContainsFunc(s.Group, func(other string) bool {
		o, _, _ := m.settings(other)
		return o.Mode == gang.Strict
	})
	if refused.Code != m.state.Try(uid).Code || (plan != nil) != (refused.Code == why.None && strict && !m.open(id)) {
		m.Fatalf("%s of %s has the plan %v, and is refused with %v", uid, id, plan, refused.Code)
	}
	if plan == nil {
		return false
	}
	var fit, placed []string
	var f gang.Failure
	left, end := slices.Clone(plan.Members), ""
	failed, have := plan.Try(plan.Members, func(uid string) bool {
		gangID, at := m.pods[uid].Gang, slices.Index(left, uid)
		if end != "" || at < 0 || m.holds[uid] != gang.Pending || m.open(gangID) {
			m.Fatalf("%s of %s is tried after %q, and holds %d", uid, gangID, end, m.holds[uid])
		}
		left = slices.Delete(left, at, at+1)
		if rapid.IntRange(0, 3).Draw(m.T, "fits") > 0 {
			fit = append(fit, uid)
			return true
		}
		for _, other := range s.Group {
			o, _, _ := m.settings(other)
			if !m.open(other) && m.running(other, o)+m.countIn(fit, other)+m.countIn(left, other) < o.Min {
				end = uid
			}
		}
		return false
	})
	if failed == "" && len(fit) < plan.Needed() {
		m.Fatalf("the plan of %s needs %d members, and starts with %v", id, plan.Needed(), fit)
	}
	if failed != end {
		m.Fatalf("the plan of %v ends with %q, want %q", s.Group, failed, end)
	}
	if failed != "" {
		gangID := m.pods[failed].Gang
		own, _, _ := m.settings(gangID)
		if want := m.running(gangID, own) + m.countIn(fit, gangID); have != want {
			m.Fatalf("%s has %d members that run or fit, want %d", gangID, have, want)
		}
		fit, f = nil, gang.Failure{UID: failed, Have: have}
		f.Outlook = rapid.SampledFrom([]gang.Outlook{
			gang.NoRoomNeeded, gang.Short, gang.Short, gang.Short, gang.Hopeless, gang.Reserved, gang.Promised,
		}).Draw(m.T, "outlook")
	}
	for _, uid := range fit {
		if rapid.IntRange(0, 9).Draw(m.T, "is reserved") > 0 {
			placed = append(placed, uid)
			m.holds[uid] = gang.Waiting
		} else {
			f = gang.Failure{UID: uid}
		}
	}
	starts := true
	for _, other := range s.Group {
		o, _, _ := m.settings(other)
		starts = starts && (m.open(other) || m.count(other, gang.Waiting)+m.running(other, o) >= o.Min)
	}
	m.concluded(s.Group, starts, f.UID != "", len(placed), f.Outlook)
	m.apply(m.state.Conclude(plan.Members, placed, f, m.now))
	if uids := m.uids(gang.Waiting); slices.ContainsFunc(uids, func(uid string) bool {
		return slices.Contains(s.Group, m.pods[uid].Gang)
	}) {
		m.Fatalf("a plan has ended, and %v wait", uids)
	}
	return true
}

// countIn counts the pods of a gang.
func (m *model) countIn(uids []string, id string) (n int) {
	for _, uid := range uids {
		if m.pods[uid].Gang == id {
			n++
		}
	}
	return n
}

// release lets some holders give back for the sake of another.
func (m *model) release() bool {
	all := m.state.Holders(100)
	if len(all) < 2 {
		return false
	}
	order := rapid.Permutation(all).Draw(m.T, "holders")
	n := rapid.IntRange(1, len(order)-1).Draw(m.T, "give back")
	var keys []string
	winner := strings.Split(order[0].Key, ",")
	for _, h := range order[1 : n+1] {
		keys = append(keys, h.Key)
		for _, id := range strings.Split(h.Key, ",") {
			m.after[id] = behind{strings.Split(h.Key, ","), winner}
		}
	}
	m.apply(m.state.Release(order[0].Key, keys))
	for _, h := range order[1 : n+1] {
		for _, uid := range h.Reserved {
			if m.holds[uid] != gang.Returning {
				m.Fatalf("%s of %s holds %d, and is to give back", uid, h.Key, m.holds[uid])
			}
		}
	}
	return true
}

// step draws one event.
func (m *model) step() (event string) {
	pick := func(phases ...gang.Phase) (uid string, ok bool) {
		uids := m.uids(phases...)
		if len(uids) == 0 {
			return "", false
		}
		return rapid.SampledFrom(uids).Draw(m.T, "uid"), true
	}
	switch kind := rapid.IntRange(0, 19).Draw(m.T, "event"); kind {
	case 0, 1:
		p := m.drawPod(fmt.Sprint("u", m.born))
		m.born++
		m.holds[p.UID] = gang.Pending
		m.put(p)
		return "put " + p.UID
	case 2:
		if uid, ok := pick(gang.Pending, gang.Gated); ok {
			p := m.drawPod(uid)
			p.Gang = m.pods[uid].Gang
			m.put(p)
			return "change " + uid
		}
	case 3:
		if uid, ok := pick(gang.Pending, gang.Waiting, gang.Returning, gang.Allowed, gang.Bound, gang.Gated); ok {
			p := m.pods[uid]
			started := m.hasStarted(p.Gang)
			m.halted[p.Gang] = m.interrupted(p.Gang)
			delete(m.pods, uid)
			delete(m.holds, uid)
			clear(m.known)
			m.forgetStarts()
			left := m.count(p.Gang, gang.Allowed, gang.Bound)
			for other, o := range m.pods {
				if o.Gang == p.Gang && o.Owner == p.Owner && other != uid {
					left++
				}
			}
			if m.started[p.Gang] = started; started && left == 0 {
				m.ended[p.Gang], m.replaced[p.Gang], m.started[p.Gang] = p.Owner, true, false
			}
			m.apply(m.state.Remove(uid))
			return "remove " + uid
		}
	case 4:
		o := gang.Object{Gang: rapid.SampledFrom(names).Draw(m.T, "gang"), Settings: m.drawSettings()}
		o.Started = rapid.IntRange(0, 9).Draw(m.T, "started") == 0
		o.Plain = rapid.IntRange(0, 4).Draw(m.T, "plain") == 0
		m.objects[o.Gang] = o
		clear(m.known)
		m.started[o.Gang] = m.started[o.Gang] || o.Started && !m.replaced[o.Gang]
		m.apply(m.state.PutObject(o))
		return "object " + o.Gang
	case 5:
		id := rapid.SampledFrom(names).Draw(m.T, "gang")
		delete(m.objects, id)
		clear(m.known)
		m.apply(m.state.RemoveObject(id))
		return "gone " + id
	case 6, 7, 8:
		if uid, ok := pick(gang.Pending); ok && m.state.Try(uid).Code == why.None {
			m.place(uid)
			return "place " + uid
		}
	case 9:
		if uid, ok := pick(gang.Pending); ok && m.state.Try(uid).Code == why.None {
			m.apply(m.state.Fail(uid, why.Finding{}, m.now))
			return "fail " + uid
		}
	case 10, 11, 12:
		if uid, ok := pick(gang.Pending); ok && m.plans(uid) {
			return "plan for " + uid
		}
	case 15, 16:
		uid, _ := pick(gang.Pending, gang.Waiting, gang.Bound)
		rank := m.state.RankOf(uid, rapid.Int32Range(0, 1).Draw(m.T, "priority"), time.Unix(2, 0), "ns/plain")
		woken := m.overtaken(rank)
		if e := m.state.Overtake(rank); !slices.Equal(e.Opened, woken) {
			m.Fatalf("after %+v was placed %v are to be tried, want %v", rank, e.Opened, woken)
		}
		return "place one alone"
	case 14:
		if m.release() {
			return "release"
		}
	case 13:
		if uid, ok := pick(gang.Waiting, gang.Returning, gang.Allowed); ok {
			m.lose(uid)
			return "lose " + uid
		}
	case 17:
		m.succeed()
		return "another scheduler"
	case 18:
		if uid, ok := pick(gang.Bound); ok {
			p := m.pods[uid]
			p.Leaving = true
			m.put(p)
			return "delete " + uid
		}
	default:
		if uid, ok := pick(gang.Allowed); ok {
			m.put(m.boundPod(m.pods[uid]))
			return "bind " + uid
		}
		m.now = m.now.Add(30 * time.Second)
		m.apply(m.state.Expire(m.now))
		for _, uid := range m.state.Evictions(m.now) {
			if p := m.pods[uid]; m.holds[uid] != gang.Bound || p.Leaving || !m.interrupted(p.Gang) {
				m.Fatalf("%s of %s is to be evicted: it is %+v", uid, p.Gang, p)
			}
		}
		return "time"
	}
	return "nothing"
}

// TestAGangStartsAsAWholeOrNotAtAll is G1, G2, G3, G4, G5, G8, G9 and G13: random pods, PodGroups, attempts, failures,
// timeouts and changes of the scheduler with three gangs that list each other or do not. Nothing is allowed before its
// group has its minimum; what is reserved ends with its round; and at the end, where nothing is in the way, each gang
// that may be tried starts. `make test` tries 100,000 orders of events.
//
// F15: a minimum of 0, or a gang that is gone and comes again, ends in a panic or is judged by what was there before.
func TestAGangStartsAsAWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &model{
			T: t, state: gang.New(gang.Settings{Interrupted: gang.EvictBound}), now: time.Unix(0, 0),
			pods:  map[string]gang.Pod{},
			holds: map[string]gang.Phase{}, objects: map[string]gang.Object{}, started: map[string]bool{},
			replaced: map[string]bool{}, first: map[string]time.Time{}, halted: map[string]bool{},
			ended: map[string]string{}, closed: map[string]bool{}, opened: map[string]bool{},
			after: map[string]behind{}, claims: map[string]*claim{}, known: map[string]settled{},
		}
		m.state.LimitOvertakes(maxOvertakes)
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			m.verify(m.step())
		}
		m.returnsAll()
		if rapid.Bool().Draw(t, "another scheduler ends it") {
			m.succeed()
			m.verify("another scheduler")
		}
		m.startsAll()
		m.expiresAll()
	})
}

// returnsAll ends what is being given back.
func (m *model) returnsAll() {
	for uids := m.uids(gang.Returning); len(uids) > 0; uids = m.uids(gang.Returning) {
		m.lose(uids[0])
		m.verify("return")
	}
}

// startsAll tries all pending members until no round changes anything: what may be tried starts.
func (m *model) startsAll() {
	for range 3 {
		for _, uid := range rapid.Permutation(m.uids(gang.Pending)).Draw(m.T, "order") {
			if m.holds[uid] == gang.Pending && m.state.Try(uid).Code == why.None {
				m.place(uid)
				m.verify("place at last")
			}
			m.returnsAll()
		}
	}
	for uid, p := range m.pods {
		if m.holds[uid] < gang.Allowed && !m.gated(p.Gang) {
			m.Fatalf("%s of %s has not started: it is %d, refused by %+v", uid, p.Gang, m.holds[uid], m.state.Try(uid))
		}
	}
}

// expiresAll lets the longest waiting time pass, and the rest after it: nothing is reserved that may not start.
func (m *model) expiresAll() {
	for range 2 {
		m.now = m.now.Add(time.Hour)
		m.apply(m.state.Expire(m.now))
		m.returnsAll()
	}
	if uids := m.uids(gang.Waiting); len(uids) > 0 {
		m.Fatalf("%v wait for more than their time", uids)
	}
	if next, waits := m.state.Deadline(); waits {
		m.Fatalf("nothing waits, and a deadline is at %v", next)
	}
}

// succeed lets another scheduler take over. It is given the pods and objects that the API has, in any order, and knows
// of no reservation; of the members that may be bound some are, and the status of a PodGroup says that its gang was
// satisfied, or does not yet.
func (m *model) succeed() {
	for _, uid := range m.uids(gang.Allowed) {
		if rapid.Bool().Draw(m.T, "is bound") {
			m.pods[uid] = m.boundPod(m.pods[uid])
		}
	}
	before, started := m.state, m.started
	m.state, m.started = gang.New(gang.Settings{Interrupted: gang.EvictBound}), map[string]bool{}
	m.state.LimitOvertakes(maxOvertakes)
	clear(m.ended)
	clear(m.replaced)
	clear(m.closed)
	clear(m.opened)
	clear(m.after)
	clear(m.claims)
	clear(m.known)
	clear(m.first)
	clear(m.halted)
	for uid, p := range m.pods {
		if m.holds[uid] = gang.Pending; p.Gate != "" {
			m.holds[uid] = gang.Gated
		}
		if p.Node != "" {
			m.bind(p)
		}
	}
	for _, id := range rapid.Permutation(names).Draw(m.T, "objects") {
		if o, known := m.objects[id]; known {
			o.Started = o.Started || started[id] && rapid.Bool().Draw(m.T, "is written")
			m.started[id] = m.started[id] || o.Started
			m.objects[id] = o
			m.apply(m.state.PutObject(o))
		}
	}
	for _, uid := range rapid.Permutation(m.uids(gang.Pending, gang.Bound, gang.Gated)).Draw(m.T, "pods") {
		m.apply(m.state.Put(m.pods[uid]))
	}
	for _, id := range before.Gangs() {
		was, _ := before.Find(id)
		if now, _ := m.state.Find(id); fmt.Sprint(now.Settings) != fmt.Sprint(was.Settings) {
			m.Fatalf("%s has the settings %+v, and for the scheduler before %+v", id, now.Settings, was.Settings)
		}
	}
}
