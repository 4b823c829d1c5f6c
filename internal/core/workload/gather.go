package workload

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
)

// gather adds the gangs of one part to the plan, and names them in its roles. It returns why the minimum cannot be
// reached; "" if it can.
func (e *reading) gather(out *Plan, part []slot) (reason string, err error) {
	var groups []string
	members := map[string][]*slot{}
	for i := range part {
		s := &part[i]
		if s.outside || s.Later || s.onRequest && !e.wishes() {
			continue
		}
		if e.all {
			s.min = s.count
		}
		if members[s.group] == nil {
			groups = append(groups, s.group)
		}
		members[s.group] = append(members[s.group], s)
	}
	if later := slices.ContainsFunc(part, func(s slot) bool { return s.Later }); later && e.wishes() &&
		len(groups) == 0 {
		return "its pods are created one after the other", nil
	}
	refill, err := anyHolds(e.Restarting, e.root, e.root, "")
	if err != nil {
		return "", err
	}
	for _, group := range groups {
		gangs, reason, err := e.gangs(members[group], group == "")
		if err != nil || reason != "" {
			return reason, err
		}
		started := gangs[:0:0]
		for _, g := range gangs {
			if g.Min > 0 {
				started = append(started, g)
			}
		}
		joined := join(started, out.Ordered)
		if len(joined) > mostJoined {
			return fmt.Sprintf("%d gangs would start together: supported up to %d", len(joined), mostJoined), nil
		}
		for _, g := range started {
			if g.Min == 1 && joined == nil {
				continue // its pods start one by one anyway
			}
			g.Joined, g.Refill = joined, refill
			for _, s := range g.slots {
				s.Gang = g.Name
			}
			out.Gangs = append(out.Gangs, g.Gang)
		}
		for _, s := range members[group] {
			e.addFurther(out, s)
		}
	}
	return "", nil
}

// gathered is a gang with its roles.
type gathered struct {
	Gang
	slots []*slot
}

// gangs divides roles that start together into gangs.
func (e *reading) gangs(slots []*slot, isBase bool) (out []gathered, reason string, err error) {
	sum, members := int64(0), int64(0)
	for _, s := range slots {
		sum += s.min * s.size
		members += s.members()
	}
	total := sum
	if isBase && !e.all {
		if total, err = e.Total.or(e.root, e.root, sum); err != nil {
			return nil, "", err
		}
		total = cmp.Or(e.wish, total)
	}
	if total > members {
		return nil, fmt.Sprintf("the minimum %d is above the number of pods that start together, %d", total,
			members), nil
	}
	split := e.Together || total != sum
	var rest []*slot
	for _, s := range slots {
		switch {
		case !split:
			out = append(out, e.gang([]*slot{s}, s.min*s.size))
		case slices.Contains(e.InFull, s.name):
			n := min(s.members(), total)
			total -= n
			out = append(out, e.gang([]*slot{s}, n))
		default:
			rest = append(rest, s)
		}
	}
	if len(rest) > 0 {
		out = append(out, e.gang(rest, total))
	}
	return out, "", nil
}

// gang returns a gang of roles. The units of a role above its minimum are gangs of their own where a unit has several
// pods and the object has no minimum of its own.
func (e *reading) gang(slots []*slot, least int64) gathered {
	g := gathered{Gang{Min: least}, slots}
	var names []string
	for _, s := range slots {
		g.Members += s.members()
		names = append(names, s.Role)
	}
	values := maps.Clone(slots[0].values)
	values["{role}"] = strings.Join(names, "-")
	g.Name = cmp.Or(e.Gang, "{owner}-{role}").fill(values)
	if s := slots[0]; len(slots) == 1 && s.size > 1 && least == s.min*s.size && s.min < s.count {
		s.further, g.Members = g.Name, least
	}
	return g
}

// addFurther adds the gangs of the units of a role above its minimum.
func (e *reading) addFurther(out *Plan, s *slot) {
	if s.further == "" {
		return
	}
	for unit := s.min; unit < s.count; unit++ {
		out.Gangs = append(out.Gangs, Gang{Name: furtherName(s.further, unit), Min: s.size, Members: s.size})
	}
}

// join returns the names of gangs that start together; nil where each starts alone.
func join(gangs []gathered, ordered bool) (names []string) {
	if ordered || len(gangs) < 2 {
		return nil
	}
	for _, g := range gangs {
		names = append(names, g.Name)
	}
	return names
}

// ObjectName returns the name of a gang's object, which is the value of a label too: the name itself, or where that is
// too long, cannot be the name of an object or is that of another one, its beginning and a hash of the owner's uid.
func ObjectName(name, uid string, isTaken func(string) bool) string {
	const longest = 63
	valid := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(name)), "-")
	if valid == name && len(name) <= longest && !isTaken(name) {
		return name
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(uid + "/" + name)) // it cannot fail
	suffix := fmt.Sprintf("-%08x", hash.Sum32())
	return cmp.Or(strings.TrimRight(valid[:min(len(valid), longest-len(suffix))], "-"), "gang") + suffix
}
