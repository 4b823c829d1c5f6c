package ledger

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Errors of Commit.
var (
	// ErrExpired: the offer was made at another version of the account.
	ErrExpired = errors.New("offer expired: the account has changed since")
	// ErrTaken: the offer's CPUs or memory are not free, or its pod has an entry already. No offer of package place is
	// refused so.
	ErrTaken = errors.New("offer refused")
)

// Ledger is the account of one machine. It is not safe for concurrent writers; Views are.
type Ledger struct {
	view *View
	// assumed holds, for each committed pod that Put has not confirmed, the version its offer was made at, which no
	// other offer has. Invariant: each has an entry.
	assumed map[string]uint64
}

// New returns the account of a machine with the given facts and entries, in any order; of entries with equal UID the
// last one counts.
func New(f Facts, entries ...Entry) *Ledger {
	return derive(newFrame(f), accountsOf(f.Machine, entries), 1, change{}).Begin()
}

// Begin returns an account that is as the view is.
func (v *View) Begin() *Ledger { return &Ledger{view: v, assumed: map[string]uint64{}} }

// View returns the current state. It never changes.
func (l *Ledger) View() *View { return l.view }

// SetFacts replaces the facts. Entries remain and are translated again. Equal facts change nothing.
func (l *Ledger) SetFacts(f Facts) { new(Frames).SetFacts(l, f) }

// SetFacts is Ledger.SetFacts; ledgers with equal facts share what follows from them.
func (s *Frames) SetFacts(l *Ledger, f Facts) {
	v := l.view
	if v.facts.Equal(&f) {
		return
	}
	accounts := v.accounts
	if !v.facts.Machine.Equal(f.Machine) {
		accounts = make([]*account, len(v.accounts))
		for i, a := range v.accounts {
			accounts[i] = newAccount(f.Machine, a.Entry)
		}
		deductAllUsers(f.Machine, accounts)
	}
	l.view = s.derive(f, accounts, v.version+1)
}

// Put records what the API server says of a pod: it replaces any entry of that UID, an assumed one too. An equal entry
// changes nothing but that it is confirmed.
func (l *Ledger) Put(e Entry) {
	delete(l.assumed, e.UID)
	v := l.view
	if i, ok := v.find(e.UID); ok && v.accounts[i].Entry.Equal(e) {
		return
	}
	l.view = v.put(newAccount(v.facts.Machine, e), v.version+1)
}

// Remove forgets a pod. Unknown UIDs are ignored.
func (l *Ledger) Remove(uid string) {
	delete(l.assumed, uid)
	if i, ok := l.view.find(uid); ok {
		l.view = l.view.remove(i, l.view.version+1)
	}
}

// Commit applies an offer: its entry is assumed until Put confirms it. It returns ErrExpired when the account has
// changed since the view that the offer was computed on, and ErrTaken when the offer contradicts the account. An offer
// within a reservation takes of the reservation what it names, in the same step.
func (l *Ledger) Commit(o Offer) error {
	v := l.view
	if o.Version != v.version {
		return fmt.Errorf("commit offer for pod %s/%s: %w", o.Entry.Namespace, o.Entry.Name, ErrExpired)
	}
	a := newAccount(v.facts.Machine, o.Entry)
	open := v.Without(a.Within)
	free := open.Allocatable().Union(open.FreeIsolated())
	refusal := ""
	switch _, known := v.find(a.UID); {
	case known:
		refusal = "the pod has an entry already"
	case v.isUsedUp(a.Within):
		refusal = "the reservation is used by another pod"
	case a.cpus != o.CPUs:
		refusal = "its entry names other CPUs than it"
	case !a.cpus.SubsetOf(&free):
		refusal = "CPUs " + v.facts.Machine.FormatList(a.cpus.Minus(free)) + " are not free"
	case !open.KeepsPromises(&a.cpus), a.nodes != 0 && a.milli > open.summary.Room(a.nodes):
		refusal = "its shared pool is promised to other pods"
	case !align.Has(open.summary.Rows, a.holds):
		refusal = "its memory is not free"
	case !open.devices.Admits(a.holding()).OK():
		refusal = "its devices are not free"
	}
	if refusal != "" {
		return fmt.Errorf("commit offer for pod %s/%s: %w: %s", a.Namespace, a.Name, ErrTaken, refusal)
	}
	l.view = v.put(a, v.version+1)
	l.assumed[a.UID] = o.Version
	return nil
}

// Amend replaces a committed offer by another one for the same pod, which may differ only in what the kubelet is
// predicted to give. From then on Revert takes back now, and not was. Amend returns ErrExpired when the account has
// changed since the version of now, or when was is not assumed any more. It returns ErrTaken when more differs.
func (l *Ledger) Amend(was, now Offer) error {
	v := l.view
	if version, ok := l.assumed[was.Entry.UID]; !ok || version != was.Version || now.Version != v.version {
		return fmt.Errorf("amend offer for pod %s/%s: %w", was.Entry.Namespace, was.Entry.Name, ErrExpired)
	}
	if !now.Entry.predictedLike(was.Entry) {
		return fmt.Errorf("amend offer for pod %s/%s: %w: more than its prediction differs", was.Entry.Namespace,
			was.Entry.Name, ErrTaken)
	}
	l.view = v.put(newAccount(v.facts.Machine, now.Entry), v.version+1)
	l.assumed[now.Entry.UID] = now.Version
	return nil
}

// Revert takes back a committed offer. It does nothing when the entry is gone, was confirmed by Put, or stems from
// another offer.
func (l *Ledger) Revert(o Offer) {
	if version, ok := l.assumed[o.Entry.UID]; ok && version == o.Version {
		l.Remove(o.Entry.UID)
	}
}

// Offer is an entry computed on a view, ready to be committed.
type Offer struct {
	Entry   Entry
	CPUs    cpuset.Set   // exclusive CPUs, empty for shared-pool offers
	Nodes   topo.NodeSet // NUMA nodes that the pod uses; 0 = not constrained
	Stage   int          // cpualloc.Result.Stage
	Version uint64       // of the view
}

// accountsOf returns the accounts of entries by UID. Of two entries of one pod the last counts.
func accountsOf(m *topo.Machine, entries []Entry) []*account {
	byUID := make(map[string]*account, len(entries))
	for _, e := range entries {
		byUID[e.UID] = newAccount(m, e)
	}
	accounts := make([]*account, 0, len(byUID))
	for _, uid := range slices.Sorted(maps.Keys(byUID)) {
		accounts = append(accounts, byUID[uid])
	}
	deductAllUsers(m, accounts)
	return accounts
}
