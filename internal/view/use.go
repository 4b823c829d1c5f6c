package view

// NodeUse is what a node has, what its pods request, and what is used. Quantities are canonical strings, "" where they
// are not known.
type NodeUse struct {
	Node   string    `json:"node"`
	CPU    AmountUse `json:"cpu"`
	Memory AmountUse `json:"memory"`
	// Suppressed says to what the node's best-effort pods are suppressed, and why; "" where they are not.
	Suppressed string `json:"suppressed,omitempty"`
	// ReportSeconds is how old the node's report is; -1 without one.
	ReportSeconds int64 `json:"reportSeconds"`
}

// PodUse is what a pod requests and uses.
type PodUse struct {
	Pod      string    `json:"pod"`
	Node     string    `json:"node"`
	QoS      string    `json:"qos,omitempty"`
	Priority string    `json:"priority,omitempty"`
	CPU      AmountUse `json:"cpu"`
	Memory   AmountUse `json:"memory"`
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
