package quota

import (
	"maps"
	"slices"
)

// MayPreempt reports whether the victim may be evicted for the preemptor by the rules of quotas. Inside a quota it is a
// pod of the same quota that is preemptible, of lower priority, and not of the preemptor's gang. Pods of Default take
// none from a named quota; those of System may take any. A pod that is not known belongs to Default.
func (a *Account) MayPreempt(preemptor, victim string) bool {
	return a.mayPreempt(a.pods[preemptor], a.pods[victim])
}

// mayPreempt reports whether v may be a victim of p. Pods of the quotas System and Default follow rules of their own;
// in any other quota the victim is of the same quota, may be evicted, has a lower priority and is of another gang.
func (a *Account) mayPreempt(p, v *entry) bool {
	from, to := a.quota(v), a.quota(p)
	switch to {
	case a.system:
		return true
	case a.fallback:
		return from == a.fallback || from == a.system
	}
	return from == to && !v.pod.NonPreemptible && v.pod.Priority < p.pod.Priority &&
		(a.gangOf(p) == "" || v.pod.Gang != p.pod.Gang)
}

// quota returns the quota of a pod; Default for one that is not known.
func (a *Account) quota(e *entry) *Quota {
	if e == nil {
		return a.fallback
	}
	return e.group.quota
}

// VictimNodes returns the nodes of the bound pods of its own quota that a pod may preempt and that do not leave anyway;
// none where the pod would not be admitted without all of them either. inside is false for a pod whose victims no
// quota decides: one of Default or System, or one that is not known. The work is in the number of pods of the quota.
func (a *Account) VictimNodes(uid string) (nodes map[string]bool, inside bool) {
	p := a.pods[uid]
	if p == nil || p.group.quota == a.fallback || p.group.quota == a.system {
		return nil, false
	}
	nodes = map[string]bool{}
	t := a.trial(p)
	for _, g := range a.groupsOf[p.group.quota] {
		for _, v := range g.pods {
			if v.pod.Node != "" && !v.pod.Leaving && a.mayPreempt(p, v) {
				nodes[v.pod.Node] = true
				a.shift(t.claims, v, -1)
			}
		}
	}
	if a.AdmitTrial(t) != nil {
		return nil, true
	}
	return nodes, true
}

// Trial is a pending pod, with what a dry run takes from the pods around it or adds to them. Copy it by Clone.
type Trial struct {
	company                  // the pending one, and the members of its gang that are admitted with it
	claims  []claim          // of the pods; what they hold is for the added pods, less those that are taken
	moved   map[string]int64 // by UID: 1 for an added pod, -1 for a taken one
}

// Try begins a dry run of Admit for a pod; nil for one that is not known or not pending.
func (a *Account) Try(uid string) *Trial {
	if e := a.pods[uid]; e != nil && e.state == Pending {
		return a.trial(e)
	}
	return nil
}

// TryAll begins a dry run for pending pods, without others of their gangs.
func (a *Account) TryAll(uids []string) *Trial { return a.trialOf(company{pods: uids}) }

// trial begins a dry run for a pod, with the members of its gang that must be admitted with it.
func (a *Account) trial(e *entry) *Trial {
	if e.state != Pending {
		return &Trial{moved: map[string]int64{}}
	}
	return a.trialOf(a.together([]string{e.pod.UID}))
}

// trialOf begins a dry run. Nominated pods that come first are added, and pods that leave are taken, whatever quota
// they are in: they go whatever becomes of the dry run, so that no other pod is evicted for the room that they leave.
func (a *Account) trialOf(c company) *Trial {
	t := &Trial{company: c, claims: a.claimAll(nil, c), moved: map[string]int64{}}
	for _, uid := range a.holdAhead(t.claims, c) {
		t.moved[uid] = 1
	}
	for uid, v := range a.leaving {
		t.moved[uid] = -1
		a.shift(t.claims, v, -1)
	}
	return t
}

// Clone returns a copy that changes by itself.
func (t *Trial) Clone() *Trial {
	return &Trial{t.company, slices.Clone(t.claims), maps.Clone(t.moved)}
}

// Take removes a pod from what is used: a victim, or one that was added before.
func (a *Account) Take(t *Trial, uid string) { a.step(t, uid, -1) }

// Give adds a pod to what is used: a victim that is spared, or a pending pod that is to come first.
func (a *Account) Give(t *Trial, uid string) {
	if !t.has(uid) {
		a.step(t, uid, 1)
	}
}

// step moves a pod, at most once from where it is: one that holds its amounts is removed, and a pending one is added.
func (a *Account) step(t *Trial, uid string, sign int64) {
	e := a.pods[uid]
	if e == nil {
		return
	}
	away := int64(-1)
	if e.state == Pending {
		away = 1
	}
	if to := t.moved[uid] + sign; to == 0 || to == away {
		t.moved[uid] = to
		a.shift(t.claims, e, sign)
	}
}

// AdmitTrial is Admit for the pod of a dry run. What quotas may use is what they may use now: once a victim is gone its
// quota asks for less, but never for less than what is then used.
func (a *Account) AdmitTrial(t *Trial) *Excess {
	leaf, x := a.leafOf(t.pods)
	if x != nil {
		return x
	}
	return a.check(leaf, t.claims, t.size())
}
