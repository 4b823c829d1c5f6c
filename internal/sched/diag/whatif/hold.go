package whatif

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/internal/core/forecast"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/view"
)

// readHolds notes what is held for units that wait, and which units would start now on nodes that are held for others.
func (c *course) readHolds(estimates []forecast.Estimate, late func() bool) error {
	var rules gang.HoldRules
	var holds []gang.Hold
	c.Gangs.Read(func(s *gang.State) { rules, holds = s.HoldRules(), s.Holds() })
	byUnit := map[string]gang.Hold{}
	for _, u := range c.waiting {
		for _, h := range holds {
			if h.Unit() == u.name {
				byUnit[u.name], u.hold = h, view.HoldOf(h, rules)
			}
		}
	}
	if len(byUnit) == 0 {
		return nil
	}
	if err := c.Reset(); err != nil {
		return err
	}
	type user struct { // units that may use the same held nodes
		kind string
		runs time.Duration
	}
	fitsNowhere := map[user]bool{}
	for i, u := range c.waiting {
		// One that fits is held back by nothing, whatever the nodes are held for.
		fits := estimates[i].Start.Early == 0 && len(estimates[i].After) == 0
		like := user{u.kind(), u.runs.Late}
		if u.hold != nil || u.incomplete || fits || fitsNowhere[like] || late() {
			continue
		}
		found, err := c.heldBack(i, byUnit, rules)
		if err != nil {
			return fmt.Errorf("start %s on held nodes: %w", u.name, err)
		}
		fitsNowhere[like] = !found && like.kind != ""
	}
	return nil
}

// heldBack starts a unit as if nothing were held by holds that do not yield to it, and notes where it used held room.
// It reports whether the unit fits.
func (c *course) heldBack(waiting int, holds map[string]gang.Hold, rules gang.HoldRules) (fits bool, err error) {
	u := c.waiting[waiting]
	user := gang.HoldUser{Rank: u.rank, Ends: c.declaredEnd(u), Priority: u.rank.Priority, Evictable: u.lacking == nil}
	lifted := map[string]gang.Hold{} // by node
	for _, name := range slices.Sorted(maps.Keys(holds)) {
		h := holds[name]
		if rules.Yields(h, user) {
			continue
		}
		for uid, node := range h.Nodes {
			lifted[node] = h
			c.nodes.placed[types.UID(uid)] = true
			defer delete(c.nodes.placed, types.UID(uid))
		}
	}
	if len(lifted) == 0 {
		return true, nil
	}
	if fits, err = c.Start(waiting); !fits || err != nil {
		return fits, err
	}
	for _, p := range c.started[u.name] {
		if h, held := lifted[p.node]; held && u.heldBack == nil {
			u.heldBack = view.HeldBackBy(h, rules, p.node, user.Ends)
		}
	}
	return true, c.rollback(c.started[u.name])
}

// declaredEnd is when a unit ends that starts now, if all its pods declare that; else zero.
func (c *course) declaredEnd(u *waitingUnit) time.Time {
	if left, _ := u.runs.Left(0); left < forecast.Never {
		return c.now.Add(left)
	}
	return time.Time{}
}
