package health

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Cause is what is wrong with a node.
type Cause string

// Causes, the most serious first. All but Taint close a node.
const (
	NotReady Cause = "notReady" // its kubelet is not ready, or is silent
	Cordon   Cause = "cordon"
	Pressure Cause = "pressure" // it lacks memory, disk, process IDs or a network
	Agent    Cause = "agent"    // its agent is silent or not ready: nothing enforces what new pods are given
	Taint    Cause = "taint"    // pods need a toleration
)

var order = []Cause{NotReady, Cordon, Pressure, Agent, Taint}

// silentPeriods is how many periods without a report make an agent silent.
const silentPeriods = 3

// Facts are what the API says of a node.
type Facts struct {
	// Cordoned is spec.unschedulable.
	Cordoned   bool
	Conditions []Condition
	Taints     []NodeTaint
	// Reported is when the agent last reported the use of the node, zero where no report is known. Period is how often
	// it reports.
	Reported time.Time
	Period   time.Duration
	// AgentNotReady: the pod of the agent is not ready.
	AgentNotReady bool
}

// Condition is a condition of a Node; Status is True, False or Unknown.
type Condition struct {
	Type, Status, Message string
	Since                 time.Time
}

// NodeTaint is a taint of a Node.
type NodeTaint struct {
	Key, Value, Effect string
}

// Health is what is wrong with a node. The zero value is a healthy node.
type Health struct {
	// Closed is the most serious cause for which new pods cannot use what the node has free; "" where they can.
	Closed Cause `json:"closed,omitempty"`
	// Findings are sorted by their cause, the most serious first.
	Findings []Finding `json:"findings,omitempty"`
}

// Finding is one thing that is wrong with a node.
type Finding struct {
	Cause Cause `json:"cause"`
	// Text is a few words, such as NotReady, MemoryPressure or a taint.
	Text string `json:"text"`
	// Message is what the writer of the condition says; "" where there is none.
	Message string `json:"message,omitempty"`
	// Since is when the condition began, or when the agent last reported; nil where that is not known.
	Since *time.Time `json:"since,omitempty"`
}

// Of returns the health of a node at a time.
func Of(f *Facts, now time.Time) Health {
	var all []Finding
	for _, c := range f.Conditions {
		cause, text, bad := c.fault()
		if bad {
			all = append(all, Finding{Cause: cause, Text: text, Message: c.Message, Since: since(c.Since)})
		}
	}
	if f.Cordoned {
		all = append(all, Finding{Cause: Cordon, Text: "cordoned"})
	}
	for _, t := range f.Taints {
		cause, text := t.fault()
		repeats := slices.ContainsFunc(all, func(have Finding) bool { return cause != Taint && have.Cause == cause })
		if t.Effect != preferNoSchedule && !repeats {
			all = append(all, Finding{Cause: cause, Text: text})
		}
	}
	switch silence := now.Sub(f.Reported); {
	case !f.Reported.IsZero() && f.Period > 0 && silence > silentPeriods*f.Period:
		all = append(all, Finding{Cause: Agent, Text: "agent silent", Since: since(f.Reported)})
	case f.AgentNotReady:
		all = append(all, Finding{Cause: Agent, Text: "agent not ready"})
	}
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Compare(slices.Index(order, a.Cause), slices.Index(order, b.Cause))
	})
	h := Health{Findings: all}
	if len(all) > 0 && all[0].Cause != Taint {
		h.Closed = all[0].Cause
	}
	return h
}

// Text lists the findings: "NotReady, cordoned"; "" for a healthy node.
func (h *Health) Text() string {
	var parts []string
	for _, f := range h.Findings {
		parts = append(parts, f.Text)
	}
	return strings.Join(parts, ", ")
}

func since(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

const preferNoSchedule = "PreferNoSchedule"

func (c *Condition) fault() (cause Cause, text string, bad bool) {
	switch c.Type {
	case "Ready":
		return NotReady, "NotReady", c.Status != "True"
	case "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable":
		return Pressure, c.Type, c.Status == "True"
	}
	return "", "", false
}

// lifecycle has the causes of the taints that Kubernetes sets and removes by itself.
var lifecycle = map[string]Cause{
	"node.kubernetes.io/not-ready":                   NotReady,
	"node.kubernetes.io/unreachable":                 NotReady,
	"node.kubernetes.io/out-of-service":              NotReady,
	"node.cloudprovider.kubernetes.io/shutdown":      NotReady,
	"node.cloudprovider.kubernetes.io/uninitialized": NotReady,
	"node.kubernetes.io/unschedulable":               Cordon,
	"node.kubernetes.io/memory-pressure":             Pressure,
	"node.kubernetes.io/disk-pressure":               Pressure,
	"node.kubernetes.io/pid-pressure":                Pressure,
	"node.kubernetes.io/network-unavailable":         Pressure,
	"ToBeDeletedByClusterAutoscaler":                 Cordon,
	"DeletionCandidateOfClusterAutoscaler":           Taint,
	"karpenter.sh/disrupted":                         Cordon,
	"karpenter.sh/unregistered":                      NotReady,
	"node.cluster.x-k8s.io/uninitialized":            NotReady,
	"node.cluster.x-k8s.io/outdated-revision":        Taint,
}

// IsTemporary reports whether a taint is about the state of one node, not about its kind: a new node like it does not
// have the taint. The names are those of Kubernetes, of its autoscalers and of Cluster API.
func IsTemporary(key string) bool {
	for _, prefix := range []string{
		"ignore-taint.cluster-autoscaler.kubernetes.io/", "startup-taint.cluster-autoscaler.kubernetes.io/",
		"status-taint.cluster-autoscaler.kubernetes.io/",
	} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	_, known := lifecycle[key]
	return known
}

func (t *NodeTaint) fault() (cause Cause, text string) {
	text = t.Key
	if t.Value != "" {
		text += "=" + t.Value
	}
	return cmp.Or(lifecycle[t.Key], Taint), text + ":" + t.Effect
}
