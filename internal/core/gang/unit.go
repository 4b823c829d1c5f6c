package gang

// Bond is what holds the pods of a gang together. The zero value is of a gang of which nothing is known.
type Bond struct {
	Least int  // members that must run; 0 where nothing is known of the gang
	Plain bool // its pods are scheduled one by one, whatever they say
	Whole bool // its pods are evicted together
	// NonStrict members are reserved one by one, as they fit: all gangs of the group have that mode.
	NonStrict bool
	Group     string // the same for gangs that start together; empty where one that it lists does not list the same
}

// Bond returns what holds the pods of a gang together; the zero value for one that does not exist.
func (s *State) Bond(id string) Bond {
	if g := s.gangs[id]; g != nil {
		return g.bond()
	}
	return Bond{}
}

// bond returns what binds the members to each other, for the accounts of quotas and evictions.
func (g *gang) bond() Bond {
	b := Bond{Least: g.settings.Min, Plain: g.isPlain(), Whole: g.isWhole()}
	if g.group != nil {
		b.Group, b.NonStrict = g.group.key, !g.group.isStrict()
	}
	return b
}

// Spares returns how many of the members that hold resources may be evicted one by one, so that the gang keeps its
// minimum. A gang that is evicted whole spares none, and so does one of which nothing is known.
func (b Bond) Spares(holding int) int {
	switch {
	case b.Whole, b.Least == 0 && !b.Plain:
		return 0
	case b.Plain:
		return holding
	}
	return max(holding-b.Least, 0)
}

// Lacks returns how many members must start together, beside those that hold resources.
func (b Bond) Lacks(holding int) int {
	if b.Plain {
		return 0
	}
	return max(b.Least-holding, 0)
}

// AtOnce returns how many members must be admitted at once, beside those that hold resources: all that the gang lacks,
// and of a NonStrict one none.
func (b Bond) AtOnce(holding int) int {
	if b.NonStrict {
		return 0
	}
	return b.Lacks(holding)
}

// Divide divides members of one gang that hold resources, of which there are further ones elsewhere. Each of alone, the
// first of the members, may be evicted by itself. Each of joint may be evicted only with all members of all gangs that
// start with its own.
func Divide[T any](b Bond, members []T, elsewhere int) (alone, joint []T) {
	n := min(b.Spares(len(members)+elsewhere), len(members))
	return members[:n], members[n:]
}
