package why

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// unitNames has the name of each Unit, by its number.
var unitNames = [...]string{"", "milliCPU", "CPUs", "cores", "bytes", "percent", "count"}

// String returns the unit's name in JSON; "" for none.
func (u Unit) String() string { return unitNames[u] }

// scopeNames has the name of each Scope, by its number.
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
func (r Reason) Text() string {
	if r.OK() {
		return ""
	}
	text := r.Code.Entry().Text
	switch policies := int64(len(policyNames)); {
	case r.Code == TopologyMismatch:
		// These numbers are the condition itself and equal on nodes of one shape, so they belong to the phrase.
		noun := "NUMA nodes"
		if r.Free == 1 {
			noun = "NUMA node"
		}
		return fmt.Sprintf("%s: cpu needs %d %s, %s needs %d", text, r.Free, noun, r.Resource, r.Asked)
	case r.Code == TopologyPolicy && r.Resource != CPU && r.Resource != NoResource:
		return text + ": " + string(r.Resource)
	case r.Code == TopologyPolicyDiffers && r.Extra >= 0 && r.Extra < policies*policies: // Volcano's words
		return fmt.Sprintf("task topology policy[%s] is different with node[%s]", policyNames[r.Extra/policies],
			policyNames[r.Extra%policies])
	case r.Code == KubeletWouldHang && r.Extra > 0:
		return text + " (merging its NUMA hints takes too long)"
	case r.Code == KubeletPanics && r.Resource != NoResource:
		return text + " on a hugepage size that the machine does not have"
	case r.Code == KubeletPanics:
		return text + " on the machine's NUMA node ids"
	case r.Code == InsufficientExtended && r.Resource != NoResource:
		return "Insufficient " + string(r.Resource) // as NodeResourcesFit says it
	case r.Code == UsageThreshold && r.Extra == ByPercentile:
		return strings.ReplaceAll(text, "usage", string(r.Resource)+" aggregated usage")
	case r.Code == UsageThreshold:
		return strings.ReplaceAll(text, "usage", string(r.Resource)+" usage")
	case r.Resource != NoResource && r.Code >= DeviceMissing && r.Code <= InsufficientDevices:
		return r.device(text)
	case r.Code < numCodes && r.Extra > 0 && r.Extra <= int64(len(variants[r.Code])):
		return variants[r.Code][r.Extra-1]
	}
	return text
}

// device is the text with the type of the devices, or their model, where Koordinator's texts have it.
func (r Reason) device(text string) string {
	switch word, rest, _ := strings.Cut(text, " "); r.Code {
	case InsufficientDevices, VirtualFunctionsMissing:
		return word + " " + string(r.Resource) + " " + rest
	case InsufficientScopedDevices:
		return strings.ReplaceAll(text, "Devices", strings.ReplaceAll(string(r.Resource), "gpu", "GPU")+" Devices")
	case SharedTemplateMissing:
		return text + ": the node's devices have " + string(r.Resource)
	case DeviceShareUnsupported:
		return fmt.Sprintf("%s %q %s", word, r.Resource, rest)
	}
	return text
}

// ByPods, ByProduction and ByPercentile are Extra of UsageThreshold.
const (
	ByPods int64 = iota
	ByProduction
	ByPercentile
)

// policyNames has the kubelet's name of each topology policy, by its number.
var policyNames = [...]string{"none", "best-effort", "restricted", "single-numa-node"}

// Policies is Extra of TopologyPolicyDiffers: the topology policies of a pod and of a node, each 0 to 3 from the
// least to the most strict.
func Policies(pod, node uint8) int64 { return int64(len(policyNames))*int64(pod) + int64(node) }

// RequiredBind is Extra of InsufficientExclusiveCPU.
type RequiredBind int64

// Required bind policies, in the order of the code's variants in codes.json.
const (
	NoRequiredBind RequiredBind = iota
	RequiredFullPCPUs
	RequiredSpreadByPCPUs
)

// HaveNeed renders the amounts of r: "7/8 CPUs on numa 1", "512/1024 MiB". "" when the code is not about an amount,
// and without numbers.
func (r Reason) HaveNeed() string {
	if !r.Code.Entry().Amount || r.Asked == 0 {
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

// milli writes thousandths as a decimal number.
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

// tenths writes v in units of size with at most one decimal.
func tenths(v, size int64) string {
	text := strconv.FormatFloat(float64(v)/float64(size), 'f', 1, 64)
	return strings.TrimSuffix(text, ".0")
}

// Wire is an obstacle as JSON: what explain, simulate, the diagnostics API and the console show.
type Wire struct {
	Code    Code           `json:"code"`
	Class   string         `json:"class"`
	Plugin  string         `json:"plugin,omitempty"`
	Phase   string         `json:"phase,omitempty"`
	Nodes   int            `json:"nodes,omitempty"`
	Example string         `json:"example,omitempty"`
	Where   string         `json:"where,omitempty"`
	Params  map[string]any `json:"params,omitempty"`
	Message string         `json:"message"`
	// Do is the remedy, in the answers of explain.
	Do string `json:"do,omitempty"`
}

// Advised returns w with the remedy of its code.
func (w Wire) Advised() Wire {
	w.Do = w.Code.Entry().Remedy
	return w
}

// Wire returns the JSON form of o.
func (o Obstacle) Wire() Wire {
	return Wire{
		Code: o.Code, Class: o.Code.Class().String(), Plugin: o.Plugin, Phase: o.Phase.String(),
		Nodes: o.Nodes, Example: o.Object, Where: o.Where.String(), Params: o.Params(), Message: o.Phrase(),
	}
}

// Phrase is the plugin's own text for codes of upstream plugins, else the registry's text, followed by the detail
// where there is one.
func (f Finding) Phrase() string {
	text := f.Reason.Text()
	switch {
	case f.Detail == "":
		return text
	case f.Code.Entry().Upstream:
		return f.Detail
	}
	return text + ": " + f.Detail
}

// Params returns the numbers of r under their JSON names; nil when the code has none.
func (r Reason) Params() map[string]any {
	e := r.Code.Entry()
	params := map[string]any{}
	if e.Amount {
		if r.Resource != NoResource {
			params["resource"] = string(r.Resource)
		}
		if r.Unit != NoUnit && r.Asked != 0 {
			params["unit"] = r.Unit.String()
		}
	}
	if e.Amount && r.Asked != 0 {
		params["free"] = r.Free
	}
	if r.Asked != 0 {
		params["asked"] = r.Asked
	}
	if e.Extra != "" && r.Extra != 0 {
		params[e.Extra] = r.Extra
	}
	if len(params) == 0 {
		return nil
	}
	return params
}

// Flat is the compact JSON at the end of a message: code, nodes and parameters side by side.
func (o Obstacle) Flat() string {
	text := fmt.Sprintf(`{"code":%q`, o.Code)
	if o.Nodes > 0 {
		text += fmt.Sprintf(`,"nodes":%d`, o.Nodes)
	}
	if params := o.Params(); params != nil {
		tail, err := json.Marshal(params) // sorted by key
		if err != nil {
			panic(fmt.Sprintf("why: numbers and names always encode: %v", err))
		}
		text += "," + string(tail[1:len(tail)-1])
	}
	if where := o.Where.String(); where != "" {
		text += fmt.Sprintf(`,"where":%q`, where)
	}
	return text + "}"
}
