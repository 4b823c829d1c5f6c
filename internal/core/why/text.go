package why

import (
	"fmt"
	"strconv"
	"strings"
)

// Lang is the language of a text.
type Lang string

// Languages. Any other value reads as English.
const (
	English Lang = "en"
	Chinese Lang = "zh"
)

var unitNames = [...]string{"", "milliCPU", "CPUs", "cores", "bytes", "percent", "count"}

// String returns the unit's name in JSON; "" for none.
func (u Unit) String() string { return unitNames[u] }

var scopeNames = [...]string{"", "numa", "socket", "core"}

// String returns "numa 1", "socket 0" or "core 3"; "" for the whole machine.
func (w Where) String() string {
	if w.Scope == Machine {
		return ""
	}
	return scopeNames[w.Scope] + " " + strconv.Itoa(int(w.Index))
}

// Text states the unmet condition in one phrase, without numbers; "" when r is OK. Nodes that refuse for the same
// reason return equal phrases, so that they can be counted. Texts of upstream schedulers are kept verbatim: users
// search for them.
func (r Reason) Text(lang Lang) string {
	if r.OK() {
		return ""
	}
	e := r.Code.Entry()
	switch {
	case r.Code == TopologyMismatch:
		return e.text(lang) + r.spans(lang)
	case r.Code == TopologyPolicy && r.Resource != CPU && r.Resource != NoResource:
		return e.text(lang) + ": " + string(r.Resource)
	}
	if r.Code == TopologyPolicyDiffers {
		return r.differing(lang)
	}
	if lang == Chinese {
		return e.Chinese + r.cause().Chinese
	}
	if r.Code == InsufficientExclusiveCPU {
		switch RequiredBind(r.Extra) {
		case RequiredFullPCPUs:
			return "insufficient CPUs to satisfy required cpu bind policy FullPCPUs"
		case RequiredSpreadByPCPUs:
			return "insufficient CPUs to satisfy required cpu bind policy SpreadByPCPUs"
		}
	}
	return e.Text + r.cause().English
}

func (e Entry) text(lang Lang) string {
	if lang == Chinese {
		return e.Chinese
	}
	return e.Text
}

// spans states how many NUMA nodes each resource of a TopologyMismatch needs. These numbers are the condition itself
// and equal on nodes of one shape, so they belong to the phrase.
func (r Reason) spans(lang Lang) string {
	if lang == Chinese {
		return fmt.Sprintf(":cpu 需要 %d 个 NUMA 节点,%s 需要 %d 个", r.Free, r.Resource, r.Asked)
	}
	noun := "NUMA nodes"
	if r.Free == 1 {
		noun = "NUMA node"
	}
	return fmt.Sprintf(": cpu needs %d %s, %s needs %d", r.Free, noun, r.Resource, r.Asked)
}

// RequiredBind is Extra of InsufficientExclusiveCPU.
type RequiredBind int64

// Required bind policies.
const (
	NoRequiredBind RequiredBind = iota
	RequiredFullPCPUs
	RequiredSpreadByPCPUs
)

// HaveNeed renders the amounts of r: "7/8 CPUs on numa 1", "512/1024 MiB". "" when the code is not about an amount.
func (r Reason) HaveNeed() string {
	if !r.Code.Entry().Amount {
		return ""
	}
	have, need, unit := strconv.FormatInt(r.Free, 10), strconv.FormatInt(r.Asked, 10), ""
	switch r.Unit {
	case MilliCPU:
		have, need, unit = milli(r.Free), milli(r.Asked), "CPUs"
	case CPUs, Cores:
		unit = r.Unit.String()
	case Bytes:
		have, need, unit = bytesPair(r.Free, r.Asked)
	case Percent:
		unit = "%"
	}
	text := have + "/" + need
	if unit != "" {
		text += " " + unit
	}
	if where := r.Where.String(); where != "" {
		text += " on " + where
	}
	return text
}

// milli writes milli-CPU as CPUs: 1500 is 1.5.
func milli(m int64) string { return strconv.FormatFloat(float64(m)/1000, 'f', -1, 64) }

// bytesPair writes two amounts in the largest binary unit in which they still differ, with at most one digit after the
// point.
func bytesPair(a, b int64) (have, need, unit string) {
	units := [...]string{"B", "KiB", "MiB", "GiB", "TiB"}
	for i := len(units) - 1; i > 0; i-- {
		size := int64(1) << (10 * i)
		have, need = tenths(a, size), tenths(b, size)
		if max(a, b) >= size && (have != need || a == b) {
			return have, need, units[i]
		}
	}
	return strconv.FormatInt(a, 10), strconv.FormatInt(b, 10), units[0]
}

// tenths writes v / size rounded to a tenth, without a trailing ".0".
func tenths(v, size int64) string {
	text := strconv.FormatFloat(float64(v)/float64(size), 'f', 1, 64)
	return strings.TrimSuffix(text, ".0")
}
