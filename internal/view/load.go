package view

import (
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/health"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// Load is the CPU account of one node. Quantities are canonical strings.
type Load struct {
	Node        string `json:"node"`
	Allocatable string `json:"allocatable"`
	Requested   string `json:"requested"`
	Pods        int    `json:"pods"`
	// LSE, LSR and Kubelet are whole CPUs held exclusively, LS and BE the requests of the pods of the two pools.
	LSE     int    `json:"lse"`
	LSR     int    `json:"lsr"`
	Kubelet int    `json:"kubelet"`
	LS      string `json:"ls"`
	BE      string `json:"be"`
	// SharedPool is the number of CPUs of the LS pool, Free those that new exclusive pods may get.
	SharedPool int `json:"sharedPool"`
	Free       int `json:"free"`
	// LargestFit is the most exclusive CPUs that one more pod would get, LargestOnOneNUMANode when they must be on one
	// NUMA node.
	LargestFit           int `json:"largestFit"`
	LargestOnOneNUMANode int `json:"largestOnOneNUMANode"`
	// FragmentedPercent is how much smaller LargestOnOneNUMANode is than it would be if the CPUs of LargestFit were on
	// as few NUMA nodes as possible; -1 where nothing fits.
	FragmentedPercent int64 `json:"fragmentedPercent"`
	// Quotas are the CPU requests of the pods of each quota, without those that count with the default one. Gangs are
	// the numbers of the members of each gang.
	Quotas map[string]string `json:"quotas,omitempty"`
	Gangs  map[string]int    `json:"gangs,omitempty"`
	// Labels are those of the node, without its host name.
	Labels map[string]string `json:"labels,omitempty"`
	Fault  string            `json:"fault,omitempty"`
	// Stranded is the CPU that is allocatable, not requested, and not usable by new pods, because Health is closed; ""
	// where there is none. Free, LargestFit and LargestOnOneNUMANode are 0 then.
	Stranded string        `json:"stranded,omitempty"`
	Health   health.Health `json:"health,omitzero"`
}

// LoadOf returns the CPU account of a node with so much allocatable and requested CPU, in 1/1000, whose pods are given
// by their UIDs.
func LoadOf(name string, allocatable, requested int64, v *ledger.View, pods map[string]qos.Pod, h health.Health) Load {
	out := Load{Node: name, Pods: len(pods), FragmentedPercent: -1, Health: h}
	if h.Closed != "" && allocatable > requested {
		out.Stranded = CPUText(allocatable - requested)
	}
	var ls, be int64
	for uid, class := range pods {
		switch roleOf(v, uid, class) {
		case qos.SharedPool:
			ls += class.MilliCPU
		case qos.BEPool:
			be += class.MilliCPU
		}
	}
	out.Allocatable, out.Requested = CPUText(allocatable), CPUText(requested)
	out.LS, out.BE = CPUText(ls), CPUText(be)
	if v.Machine() == nil {
		out.Fault = v.Facts().Fault.Code.String()
		return out
	}
	out.LSE, out.LSR, out.Kubelet = setLen(v.LSE()), setLen(v.LSR()), setLen(v.KubeletStatic())
	out.SharedPool = setLen(v.SharedPool())
	if h.Closed != "" {
		return out
	}
	out.Free = setLen(v.Allocatable())
	room := min(int64(out.Free), (allocatable-requested)/1000)
	out.LargestFit = largestFit(v, int(room), hint.None)
	out.LargestOnOneNUMANode = largestFit(v, int(room), hint.SingleNUMANode)
	most := 0
	for _, n := range v.Machine().CPUNodes() {
		most = max(most, setLen(v.Machine().NUMACPUs(n)))
	}
	if most = min(most, out.LargestFit); most > 0 {
		out.FragmentedPercent = 100 - PercentOf(int64(out.LargestOnOneNUMANode), int64(most))
	}
	return out
}

// largestFit asks the scheduler's own filter from the largest request downwards: what fits is not monotone where whole
// cores are required.
func largestFit(v *ledger.View, room int, policy hint.Policy) int {
	for n := room; n > 0; n-- {
		r := &place.Request{
			Class: qos.LSR, Role: qos.ExclusiveWithBE, CPUs: n, Topology: policy,
			RequestMilli: int64(n) * 1000, LimitMilli: int64(n) * 1000,
			Kubelet: &kubelet.Pod{Guaranteed: true, Containers: []kubelet.Container{{Name: "c", CPUs: n}}},
		}
		if place.Fits(v, r).OK() {
			return n
		}
	}
	return 0
}

func setLen(s cpuset.Set) int { return s.Len() }

// NUMALoad is the CPU account of one NUMA node.
type NUMALoad struct {
	Node   string `json:"node"`
	NUMA   int    `json:"numaNode"`
	Socket int    `json:"socket"`
	CPUs   int    `json:"cpus"`
	LSE    int    `json:"lse"`
	LSR    int    `json:"lsr"`
	// Kubelet is the CPUs that a static kubelet pinned.
	Kubelet int `json:"kubelet"`
	// SharedPool is the CPUs of the LS pool; Committed of them are promised to pods that are bound to this NUMA node.
	SharedPool int    `json:"sharedPool"`
	Committed  string `json:"committed"`
	Free       int    `json:"free"`
	FreeCores  int    `json:"freeWholeCores"`
	// Health is that of the node. Free and FreeCores are 0 where it is closed.
	Health health.Health `json:"health,omitzero"`
}

// NUMALoadsOf returns the CPU accounts of the NUMA nodes of a node; none where it has no CPU topology.
func NUMALoadsOf(v *ledger.View, node string, h health.Health) []NUMALoad {
	m := v.Machine()
	if m == nil {
		return nil
	}
	lse, lsr, kubelet, free := v.LSE(), v.LSR(), v.KubeletStatic(), v.Allocatable()
	if h.Closed != "" {
		free = cpuset.Set{}
	}
	var out []NUMALoad
	for _, n := range m.CPUNodes() {
		cpus, wholeCores := m.NUMACPUs(n).Intersect(m.Online()), 0
		for _, c := range byCore(m, n, free) {
			if c.Whole {
				wholeCores++
			}
		}
		s := v.Summary().Nodes[n]
		out = append(out, NUMALoad{
			Node: node, NUMA: m.NUMAID(n), Socket: m.SocketID(m.NUMASocket(n)), CPUs: cpus.Len(),
			LSE: lse.CountIn(&cpus), LSR: lsr.CountIn(&cpus), Kubelet: kubelet.CountIn(&cpus),
			SharedPool: s.PoolCPUs, Committed: CPUText(s.Promised),
			Free: free.CountIn(&cpus), FreeCores: wholeCores, Health: h,
		})
	}
	return out
}

// NodeUse is what a node has, what its pods request, and what is used. Quantities are canonical strings, "" where they
// are not known.
type NodeUse struct {
	Node   string    `json:"node"`
	CPU    AmountUse `json:"cpu"`
	Memory AmountUse `json:"memory"`
	// MemoryByClass is what the pods of each QoS class request of Memory; what Reservations hold besides has no class.
	MemoryByClass map[string]string `json:"memoryByClass,omitempty"`
	// Suppressed says to what the node's best-effort pods are suppressed, and why; "" where they are not.
	Suppressed string `json:"suppressed,omitempty"`
	// ReportSeconds is how old the node's report is; -1 without one.
	ReportSeconds int64         `json:"reportSeconds"`
	Health        health.Health `json:"health,omitzero"`
}

// PodUse is what a pod requests and uses.
type PodUse struct {
	Pod      string    `json:"pod"`
	Node     string    `json:"node"`
	QoS      string    `json:"qos,omitempty"`
	Priority string    `json:"priority,omitempty"`
	CPU      AmountUse `json:"cpu"`
	Memory   AmountUse `json:"memory"`
	// ThrottledMilliseconds is for how many milliseconds of a second the pod was at its CPU limits, by the last report.
	// The kernel adds up CPUs, so it can be more than 1000.
	ThrottledMilliseconds int64 `json:"throttledMilliseconds,omitempty"`
}

// AmountUse is one resource of a node or a pod.
type AmountUse struct {
	// Allocatable is what the node has for pods; "" of a pod.
	Allocatable string `json:"allocatable,omitempty"`
	Requested   string `json:"requested"`
	// Used is the average over the time that the report is about, P95 the percentile over the shortest window; of a pod
	// there is none.
	Used string `json:"used,omitempty"`
	P95  string `json:"p95,omitempty"`
	// UsedPercent is Used of Allocatable, of a pod of Requested; -1 where one of them is not known or 0.
	UsedPercent int64 `json:"usedPercent"`
	// Reclaimable is what pods of class koord-prod requested and are not expected to use, Batch what batch pods are
	// granted.
	Reclaimable string `json:"reclaimable,omitempty"`
	Batch       string `json:"batch,omitempty"`
}

// PercentOf returns used of all in percent, rounded down; -1 where all is not positive.
func PercentOf(used, all int64) int64 {
	if all <= 0 {
		return -1
	}
	return int64(float64(used) / float64(all) * 100)
}
