package apply

import (
	"errors"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strconv"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/desired"
)

// burstsFile contains, in the agent's folder, the UIDs of the pods whose groups may have a burst. An agent that starts
// later sets them to 0 once the pods may not exceed their limits any more.
const burstsFile = "bursts.json"

// burstRecord stands for burstsFile where files of the tree are named.
const burstRecord = "the record of CPU bursts"

// Burst sets how far pods may exceed their CPU limits, from the next pass on. Before the first call no burst changes.
func (e *Engine) Burst(c slo.CPUBurstConfig) { e.change(func() { e.burst = &c }) }

// LacksBurst reports whether the kernel has no files for CPU burst, as far as the last look at the whole tree shows.
func (e *Engine) LacksBurst() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.noBurst
}

// findBurst finds out whether the kernel has files for CPU burst, and loads once which pods may have a burst. A record
// that cannot be read counts as empty. The caller holds turn.
func (e *Engine) findBurst() {
	quota, _ := e.o.Cgroup.Dialect().Quota()
	lacks := false
	for _, root := range e.o.Roots {
		_, err := e.o.Cgroup.Read(root, e.o.Cgroup.Dialect().Burst())
		_, other := e.o.Cgroup.Read(root, quota)
		lacks = lacks || errors.Is(err, fs.ErrNotExist) && other == nil
	}
	var uids []string
	if !e.surveyed && e.o.Dir != "" {
		_, _ = e.o.Dir.Load(burstsFile, &uids)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.noBurst = lacks
	for _, uid := range uids {
		e.bursted[uid] = true
	}
}

// noteBursts saves which pods get a burst, before they get it. Where that fails, as on a full disk, they get none.
func (p *pass) noteBursts() {
	known := p.e.knownBursts()
	more := maps.Clone(known)
	for _, row := range p.rows {
		if desired.IsBurst(row.File) && row.Value != "0" {
			more[row.UID] = true
		}
	}
	err := p.e.saveBursts(known, more)
	if err == nil {
		return
	}
	p.rows = slices.DeleteFunc(p.rows, func(row desired.Row) bool {
		drop := desired.IsBurst(row.File) && !known[row.UID]
		if drop {
			r := Record{UID: row.UID, Container: row.Container, Want: row.Value}
			p.e.failed(file{row.Path, burstRecord}, r, err)
		}
		return drop
	})
}

// dropBursts drops pods that have ended, and those whose groups all have 0 again. A save that fails is repeated with
// the next pass.
func (p *pass) dropBursts() {
	e := p.e
	known := e.knownBursts()
	rest := maps.Clone(known)
	e.mu.Lock()
	maps.DeleteFunc(rest, func(uid string, _ bool) bool { return e.complete && e.pods[uid] == nil })
	e.mu.Unlock()
	ended := map[string]bool{}
	for _, row := range p.rows {
		if desired.IsBurst(row.File) {
			failed := e.faults[file{row.Path, row.File}] != nil
			before, seen := ended[row.UID]
			ended[row.UID] = (before || !seen) && row.Value == "0" && !failed
		}
	}
	maps.DeleteFunc(rest, func(uid string, _ bool) bool { return ended[uid] })
	_ = e.saveBursts(known, rest)
}

func (e *Engine) knownBursts() map[string]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bursted
}

// saveBursts saves which pods have a burst, if that has changed.
func (e *Engine) saveBursts(known, now map[string]bool) error {
	if maps.Equal(known, now) {
		return nil
	}
	var err error
	switch {
	case e.o.Dir == "":
	case len(now) == 0:
		err = e.o.Dir.Remove(burstsFile)
	default:
		err = e.o.Dir.SaveSynced(burstsFile, slices.Sorted(maps.Keys(now)))
	}
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bursted = now
	return nil
}

// boundBurst returns the value of a row as the kernel takes it beside the quota that the group has now: a kubelet may
// have another period, or be about to resize the container. Without a quota a burst has no effect, and a later quota
// below it would be refused.
func (e *Engine) boundBurst(group, name, value string) string {
	if !desired.IsBurst(name) {
		return value
	}
	file, _ := e.o.Cgroup.Dialect().Quota()
	text, err := e.o.Cgroup.Read(group, file)
	if err != nil {
		return value
	}
	switch quota := amount(text); {
	case quota == math.MaxInt64 || quota < 0:
		return "0"
	case quota < amount(value):
		return strconv.FormatInt(quota, 10)
	}
	return value
}
