package apply

import (
	"fmt"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/internal/agent/desired"
)

// writePlain writes the files that are not cpusets. Rows come with parents before children. Quotas that are lowered are
// written last and in the reverse order, as a v1 kernel lets no group have a larger quota than the group above it.
func (p *pass) writePlain() {
	var lowered []desired.Row
	for _, row := range p.rows {
		f := file{row.Path, row.File}
		if row.AtCreation || p.e.plain[f] == row.Value || p.e.isBackingOff(f) && row.Path != p.focus {
			continue
		}
		if isQuota(row.File) {
			if got, err := p.e.o.Cgroup.Read(row.Path, row.File); err == nil && amount(row.Value) < amount(got) {
				lowered = append(lowered, row)
				continue
			}
			if p.beHeld && p.isBoundedByEarlierAgent(row) {
				continue
			}
		}
		p.writeRow(row)
	}
	for _, row := range slices.Backward(lowered) {
		p.writeRow(row)
	}
	clear(p.e.stale)
}

// isBoundedByEarlierAgent reports whether a group of best-effort pods has a quota on v1 than which the row's is larger:
// the kernel refuses the row until it is known what these pods may use now.
func (p *pass) isBoundedByEarlierAgent(row desired.Row) bool {
	group := row.Path
	if !desired.IsBestEffort(group) {
		group = path.Dir(group)
	}
	if row.File != desired.QuotaV1 || !desired.IsBestEffort(group) {
		return false
	}
	got, err := p.e.o.Cgroup.Read(path.Dir(group), row.File)
	return err == nil && amount(got) < amount(row.Value)
}

func isQuota(file string) bool { return file == desired.QuotaV1 || file == desired.QuotaV2 }

func (p *pass) writeRow(row desired.Row) {
	row.Value = p.e.boundBurst(row.Path, row.File, row.Value)
	f, err := file{row.Path, row.File}, p.e.setPlain(row)
	switch {
	case err == nil:
		p.e.plain[f] = row.Value
		delete(p.e.faults, f)
	case isGone(err):
	default:
		p.e.failed(f, Record{UID: row.UID, Container: row.Container, Want: row.Value}, err)
		p.errs = append(p.errs, fmt.Errorf("set %s of %s to %q: %w", row.File, row.Path, row.Value, err))
	}
}

func (e *Engine) setPlain(row desired.Row) error {
	got, err := e.o.Cgroup.Read(row.Path, row.File)
	if err != nil {
		return err
	}
	if isSame(row.File, got, row.Value) {
		return nil
	}
	r := Record{
		Kind: Drifted, UID: row.UID, Container: row.Container, Group: row.Path, File: row.File, Want: row.Value,
		Got: got,
	}
	drifted := e.stale[file{row.Path, row.File}] == row.Value
	if drifted {
		e.record(r)
	}
	if err := e.o.Cgroup.Write(row.Path, row.File, row.Value); err != nil {
		return err
	}
	if drifted {
		r.Kind, r.Got = DriftRepaired, row.Value
		e.record(r)
	}
	return nil
}

// isSame reports whether the content of a file is a value as the kernel stores it: cpu.max with its period, memory in
// whole pages, and no limit of memory as the largest number.
func isSame(name, got, want string) bool {
	content, _, _ := strings.Cut(got, " ")
	if name != desired.MemoryV1 && name != desired.MemoryV2 {
		return content == want
	}
	wanted := amount(want)
	if wanted != math.MaxInt64 {
		wanted -= wanted % int64(os.Getpagesize())
	}
	return amount(content) == wanted
}

// amount returns the number in a file; the largest one for no limit, and -1 for another content.
func amount(text string) int64 {
	word, _, _ := strings.Cut(text, " ")
	if word == "max" {
		return math.MaxInt64
	}
	n, err := strconv.ParseInt(word, 10, 64)
	const unlimited = 1 << 62 // what a v1 kernel shows without a limit is a few pages below 2^63
	switch {
	case err != nil:
		return -1
	case n < 0 || n >= unlimited:
		return math.MaxInt64
	}
	return n
}
