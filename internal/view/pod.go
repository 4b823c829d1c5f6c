package view

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Pod explains one pod. Times are RFC 3339, ages and durations are seconds, amounts are numbers in the unit named
// beside them or canonical Kubernetes strings.
type Pod struct {
	// Pod is namespace/name.
	Pod   string     `json:"pod"`
	UID   string     `json:"uid,omitempty"`
	State string     `json:"state"`
	Since *time.Time `json:"since,omitempty"`
	// Scheduler is spec.schedulerName.
	Scheduler string `json:"scheduler,omitempty"`
	QoS       string `json:"qos,omitempty"`
	// Gang is the gang that a rule for operators' objects put the pod in; absent for other pods.
	Gang *MadeGang `json:"gang,omitempty"`
	// Asked says in words what the pod asks for.
	Asked string `json:"asked,omitempty"`
	Queue *Queue `json:"queue,omitempty"`
	// RootCause is the refusal to report first; absent for pods that hold a node.
	RootCause *why.Wire `json:"rootCause,omitempty"`
	// Quota is the limit of a quota that holds the pod back now; absent where none does.
	Quota *QuotaLimit `json:"quota,omitempty"`
	// Nodes is the number of nodes that were evaluated.
	Nodes       int         `json:"nodes"`
	Obstacles   []why.Wire  `json:"obstacles"`
	MinimalSets []Set       `json:"minimalSets"`
	Candidates  []Candidate `json:"candidates"`
	// Placement and Decision are set for bound pods; Decision only while the scheduler remembers it.
	Placement *Placement `json:"placement,omitempty"`
	// Rejection is set for pods that their kubelet did not run.
	Rejection *Rejection `json:"rejection,omitempty"`
	Decision  *Decision  `json:"decision,omitempty"`
	// Expected is when a pod that waits can start, and Place its place among the pods and gangs that wait, as
	// "3 of 12". Both are absent unless fixes are asked for.
	Expected *ExpectedStart `json:"expected,omitempty"`
	Place    string         `json:"place,omitempty"`
	// Hold is the nodes that are kept for the pod or its gang, HeldBack a node that is held for another one and on
	// which it would fit. Both are absent unless fixes are asked for.
	Hold     *Hold     `json:"hold,omitempty"`
	HeldBack *HeldBack `json:"heldBack,omitempty"`
	// Fixes were tried, each on its own; Search says how they were looked for. Both are absent unless asked for.
	Fixes  []Fix      `json:"fixes,omitempty"`
	Search *FixSearch `json:"search,omitempty"`
	Data   Data       `json:"data"`
	// Notes are sentences about the answer itself: what it could not look at, and why.
	Notes []string `json:"notes,omitempty"`
}

// MadeGang is a gang, as namespace/name, and the GROUP/KIND of the rule that it was made by.
type MadeGang struct {
	Name string `json:"name"`
	Rule string `json:"rule"`
}

// Subject is a pod as its object has it: what an answer about the pod begins with, and what the account of its node is
// asked with.
type Subject struct {
	Head Pod
	// Node is the node that the pod is bound to, "" for none.
	Node string
	// Gates are the pod's scheduling gates.
	Gates []string
	// Said is the message that the last scheduler to try left on the pod; nil for none.
	Said *string
	// Ended pods hold nothing any more.
	Ended bool
	Class qos.Pod
	// Predicted is what the pod's scheduler wrote on it.
	Predicted Containers
	// Isolation is the library that is to keep the pod to its parts of GPUs, by its label; "" for none.
	Isolation string
}

// States of a pod.
const (
	Pending  = "Pending"
	Gated    = "Gated"
	Bound    = "Bound"
	Finished = "Finished"
)

// Queue is where the pod stands in the scheduler.
type Queue struct {
	// Place is active, backoff, unschedulable, gated or scheduling; "" when the scheduler does not hold the pod.
	Place string `json:"place,omitempty"`
	// Position counts from 1 in the active queue.
	Position    int        `json:"position,omitempty"`
	Length      int        `json:"length,omitempty"`
	Attempts    int        `json:"attempts"`
	LastAttempt *time.Time `json:"lastAttempt,omitempty"`
	NextTry     *time.Time `json:"nextTry,omitempty"`
	WakesOn     []string   `json:"wakesOn,omitempty"`
}

// Set is an inclusion-minimal set of codes: lifting all of them makes the pod schedulable on one of Nodes nodes,
// lifting fewer does not.
type Set struct {
	Codes []why.Code `json:"codes"`
	Nodes int        `json:"nodes"`
	// Missing is what the node that comes closest lacks, by code, as a number in that reason's unit.
	Missing map[string]string `json:"missing,omitempty"`
}

// Candidate is one node, or Count equal ones, with all that it refuses the pod for.
type Candidate struct {
	Node    string    `json:"node"`
	Count   int       `json:"count"`
	Reasons []Refusal `json:"reasons"`
	// Devices is what the node has of the devices that the pod asks for; absent for other pods.
	Devices *DeviceFit `json:"devices,omitempty"`
	// Closest is the amount that the nearest reason offers against what it needs, e.g. "7/8 CPUs on numa 1".
	Closest string `json:"closest,omitempty"`
}

// Refusal is one reason of a node.
type Refusal struct {
	why.Wire
	// HaveNeed is what the node offers against what the pod needs; absent where the code is not about an amount.
	HaveNeed string `json:"haveNeed,omitempty"`
}

// Placement is where a bound pod is.
type Placement struct {
	Node string `json:"node"`
	// CPUSet is the exclusive CPUs in list format; "" for pods of a shared pool.
	CPUSet string `json:"cpuset,omitempty"`
	// Pool names the pool of a pod without exclusive CPUs: "shared", "be", "system", "kubelet".
	Pool     string `json:"pool,omitempty"`
	PoolCPUs string `json:"poolCPUs,omitempty"`
	NUMA     []Part `json:"numa"`
	// Overcommitted are the NUMA nodes of the pod of which pods hold more than there is, a sentence each.
	Overcommitted []string `json:"overcommitted,omitempty"`
	// Devices are those that the pod holds, by type; absent for none. Choice compares them with others; it is absent
	// where no scheduler was asked.
	Devices map[string][]Device `json:"devices,omitempty"`
	Choice  *DeviceChoice       `json:"deviceChoice,omitempty"`
	// Claims are the ResourceClaims of the pod that have devices; absent for none, and where no scheduler was asked.
	Claims []HeldClaim `json:"claims,omitempty"`
	// Isolation is that of the parts of GPUs among Devices; absent where all GPUs are whole.
	Isolation *Isolation `json:"isolation,omitempty"`
	// Predicted is what the scheduler predicted that the node's kubelet gives the pod, by container; absent where it
	// predicted nothing. Actual is what the node reports; absent while it has not. Differs says in which way they are
	// not the same, once both are known: mask, cpus, memory, device.
	Predicted Containers `json:"predicted,omitempty"`
	Actual    Containers `json:"actual,omitempty"`
	Differs   []string   `json:"differs,omitempty"`
	// Assumed is what predictions for the node's kubelet take for granted, a phrase each; absent where the model knows
	// it.
	Assumed []string `json:"assumed,omitempty"`
}

// HeldClaim is a ResourceClaim with its devices.
type HeldClaim struct {
	Name    string          `json:"name"`
	Devices []ClaimedDevice `json:"devices"`
}

// ClaimedDevice is a device of a ResourceClaim.
type ClaimedDevice struct {
	Name string `json:"name"` // DRIVER/POOL/DEVICE
	// NUMANodes are those that it is connected to; absent where they are not known.
	NUMANodes []int `json:"numaNodes,omitempty"`
}

// Containers is what the containers of a pod have, by name.
type Containers map[string]Container

// Container is what the managers of a kubelet gave to a container, or will give as far as can be predicted.
type Container struct {
	// Mask are the NUMA nodes of the merged hint; Preferred is true when fewer would not have sufficed.
	Mask      []int  `json:"mask,omitempty"`
	Preferred bool   `json:"preferred,omitempty"`
	CPUs      string `json:"cpus,omitempty"`
	// Memory is ordinary memory by the NUMA nodes that it is taken from together, in list format; Hugepages is the same
	// for each kind.
	Memory    map[string]string            `json:"memory,omitempty"`
	Hugepages map[string]map[string]string `json:"hugepages,omitempty"`
	Devices   map[string]Devices           `json:"devices,omitempty"`
	// Uncertain, of a prediction: it follows from something that the kubelet does in random order, or that a device
	// plugin chooses.
	Uncertain bool `json:"uncertain,omitempty"`
}

// Devices are devices of one resource, with the NUMA nodes to which they are attached.
type Devices struct {
	Mask  []int `json:"mask"`
	Count int   `json:"count"`
	// Split lists the devices by the NUMA nodes of each, where these differ.
	Split []Devices `json:"split,omitempty"`
	// Open, of a prediction: other devices of the resource would do.
	Open bool `json:"open,omitempty"`
}

// Rejection is why a kubelet did not run a pod.
type Rejection struct {
	Node string `json:"node"`
	// Reason and Message are the kubelet's.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	// BackoffSeconds is how much longer the scheduler keeps pods of the same shape off the node; 0 when it does not.
	BackoffSeconds int64 `json:"backoffSeconds,omitempty"`
}

// Part is the part of a placement on one NUMA node, in the kernel's ids.
type Part struct {
	Node   int        `json:"node"`
	Socket int        `json:"socket"`
	CPUSet string     `json:"cpuset"`
	Cores  []CorePart `json:"cores,omitempty"`
}

// CorePart is the part of a placement on one physical core.
type CorePart struct {
	Core   int    `json:"core"`
	CPUSet string `json:"cpuset"`
	// Whole is true if the pod holds every online CPU of the core.
	Whole bool `json:"whole"`
}

// Decision is what the scheduler recorded when it chose the node.
type Decision struct {
	Pod     string    `json:"pod"`
	UID     string    `json:"uid,omitempty"`
	Profile string    `json:"profile,omitempty"`
	Time    time.Time `json:"time"`
	Node    string    `json:"node"`
	// Feasible of Of nodes passed every filter.
	Feasible int `json:"feasible"`
	Of       int `json:"of"`
	// Only says why no other node was considered; empty where others were, or where the cause is not known.
	Only   string  `json:"only,omitempty"`
	Scores []Score `json:"scores"`
}

// Score is a node's score: the sum of Plugins, which are weighted. Plugins has all score plugins of the profile, by
// name.
type Score struct {
	Node    string        `json:"node"`
	Total   int64         `json:"total"`
	Plugins []PluginScore `json:"plugins"`
}

// PluginScore is one plugin's score of a node. Score is Weight times Normalized.
type PluginScore struct {
	Name       string `json:"name"`
	Score      int64  `json:"score"`
	Normalized int64  `json:"normalized"`
	Weight     int64  `json:"weight"`
	// Raw is what the plugin said before it normalized; absent for one that did not score the pod's nodes.
	Raw *int64 `json:"raw,omitempty"`
}

// Data is what the answer was computed from.
type Data struct {
	// Generation is the scheduler's snapshot generation; 0 when no scheduler was asked.
	Generation int64 `json:"generation,omitempty"`
	// Ages are seconds by kind of data.
	Ages map[string]float64 `json:"ages,omitempty"`
	// Source is scheduler or objects.
	Source string `json:"source"`
}

// ScoreTable prints the best n scores of d as a Markdown table. Weights are applied, so that a row's columns add up to
// its Score.
func ScoreTable(d Decision, n int) string {
	scores := slices.SortedFunc(slices.Values(d.Scores), CompareScores)
	scores = scores[:min(n, len(scores))]
	var plugins []string
	for _, s := range scores {
		for _, p := range s.Plugins {
			plugins = append(plugins, p.Name)
		}
	}
	slices.Sort(plugins)
	plugins = slices.Compact(plugins)

	var b strings.Builder
	row := func(cells ...string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	row(append([]string{"#", "Pod", "Node", "Score"}, plugins...)...)
	b.WriteString("| --- | --- | --- | ---:|" + strings.Repeat(" ---:|", len(plugins)) + "\n")
	for i, s := range scores {
		cells := []string{strconv.Itoa(i), d.Pod, s.Node, strconv.FormatInt(s.Total, 10)}
		for _, name := range plugins {
			cells = append(cells, strconv.FormatInt(s.Of(name).Score, 10))
		}
		row(cells...)
	}
	return b.String()
}

// Of returns what a plugin scored; zero for one that is not there.
func (s Score) Of(plugin string) PluginScore {
	for _, p := range s.Plugins {
		if p.Name == plugin {
			return p
		}
	}
	return PluginScore{Name: plugin}
}

// CompareScores orders scores: the best first, equal ones by node.
func CompareScores(a, b Score) int {
	return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Node, b.Node))
}
