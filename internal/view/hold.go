package view

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tenon-project/tenon/internal/core/gang"
)

// Hold is nodes that are kept for a pod or gang that does not fit yet, until it starts there.
type Hold struct {
	Nodes []string  `json:"nodes"`
	Since time.Time `json:"since"`
	// Start is promised by the run times that pods on the nodes declare; absent for a gang that others have overtaken
	// as often as they may.
	Start *time.Time `json:"start,omitempty"`
	// Users says who else may use the nodes until then.
	Users string `json:"users"`
}

// HoldOf returns a hold under these rules.
func HoldOf(h gang.Hold, r gang.HoldRules) *Hold {
	out := &Hold{Nodes: slices.Compact(slices.Sorted(maps.Values(h.Nodes))), Since: h.Since}
	users := []string{"pods before it in the queue"}
	if !h.Start.IsZero() {
		out.Start = &h.Start
		if r.Backfill {
			users = append(users, "pods that end by then or leave it enough")
		}
	}
	if r.Frees(h.Rank, math.MinInt32) {
		users = append(users, "pods that it may evict at no loss")
	}
	out.Users = strings.Join(users, ", ")
	return out
}

// Text says which nodes, until when, and who may use them.
func (h *Hold) Text(now time.Time) string {
	text := NamesText(h.Nodes, 4) + " until " + h.until(now)
	return text + "; others that may use them: " + h.Users
}

// until is the promised start.
func (h *Hold) until(now time.Time) string {
	if h.Start == nil {
		return "it starts, at an unknown time: others overtook it as often as maxOvertakes allows"
	}
	return "it starts, at the latest at " + clock(*h.Start, now) + " by declared run times"
}

// HeldBack is why a pod or gang waits that would fit if a node were not held for another one.
type HeldBack struct {
	Node string `json:"node"`
	// For is pod/NAMESPACE/NAME or gang/NAMESPACE/NAME; absent where the caller may not read it.
	For string `json:"for,omitempty"`
	// Until is the promised start of that one; absent where it has none.
	Until *time.Time `json:"until,omitempty"`
	// Ends is when this one would end by its declared run time; absent where it declares none.
	Ends *time.Time `json:"ends,omitempty"`
	// NoBackfill says that no pod may use the node, whenever it ends.
	NoBackfill bool `json:"noBackfill,omitempty"`
}

// HeldBackBy returns why a hold keeps a unit off a node that would end at a time, zero for unknown, if it started now.
func HeldBackBy(h gang.Hold, r gang.HoldRules, node string, ends time.Time) *HeldBack {
	out := &HeldBack{Node: node, For: h.Unit(), NoBackfill: !r.Backfill}
	if !h.Start.IsZero() {
		out.Until = &h.Start
	}
	if !ends.IsZero() {
		out.Ends = &ends
	}
	return out
}

// Text names the node, for whom it is held, until when, and why this one may not use it.
func (h *HeldBack) Text(now time.Time) string {
	held := h.For
	if held == "" {
		held = "a gang or pod that you may not read"
	}
	text := "node " + h.Node + " is held for " + held
	if h.Until != nil {
		text += " until about " + clock(*h.Until, now)
	}
	switch {
	case h.Until == nil:
		return text + ", whose start is not known"
	case h.NoBackfill:
		return text + "; backfill is disabled"
	case h.Ends == nil:
		return text + "; this one declares no run time"
	}
	return text + "; this one would end at " + clock(*h.Ends, now)
}

// NamesText joins names, the first few of many.
func NamesText(names []string, most int) string {
	if n := len(names) - most; n > 0 {
		names = append(slices.Clone(names[:most]), Count(n, "other"))
	}
	return strings.Join(names, ", ")
}
