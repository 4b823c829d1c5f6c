package annotation

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Takeover is the progress of taking the CPUs over from a static kubelet (TakeoverKey).
type Takeover struct {
	// Phase is 1 while the kubelet keeps the CPUs, 2 when Tenon assigns those of new pods.
	Phase int32 `json:"phase"`
	// Since is when phase 2 began: pods that started earlier keep the kubelet's CPUs.
	Since metav1.Time `json:"since,omitzero"`
	// KubeletPolicy is the kubelet's CPU manager policy now.
	KubeletPolicy string `json:"kubeletPolicy,omitempty"`
	// PinnableCPUs are the CPUs that the kubelet can still pin, in Linux list format.
	PinnableCPUs string `json:"kubeletFreeCPUs,omitempty"`
	// RemainingPods counts the pods that the kubelet still pins.
	RemainingPods int32 `json:"remainingPods"`
}

// ParseTakeover reads a Takeover.
func ParseTakeover(text string) (Takeover, []Warning, error) { return read[Takeover](text, nil) }

// IsolatedCPUs is which CPUs the boot of a node keeps other work from, and what disturbs its CPUs (IsolatedCPUsKey).
// CPUs are in Linux list format. The agent reads it when it starts, and when CPUs have come or gone.
type IsolatedCPUs struct {
	// Isolated are those of the boot option isolcpus, NoHzFull those of nohz_full.
	Isolated string `json:"isolated,omitempty"`
	NoHzFull string `json:"noHzFull,omitempty"`
	// NoCallbacks are those of rcu_nocbs. SparesManaged: isolcpus has the flag managed_irq.
	NoCallbacks   string `json:"noCallbacks,omitempty"`
	SparesManaged bool   `json:"sparesManaged,omitempty"`
	// Irqbalance: the daemon runs. SlowGovernors are the frequency governors in use other than performance.
	Irqbalance    bool     `json:"irqbalance,omitempty"`
	SlowGovernors []string `json:"slowGovernors,omitempty"`
	// FixedInterrupts are the CPUs on which interrupts fire that cannot be moved, as far as the kernel says (Linux 6.12
	// and newer).
	FixedInterrupts string `json:"fixedInterrupts,omitempty"`
}

// IsZero reports whether nothing is isolated, and nothing is known that disturbs.
func (i *IsolatedCPUs) IsZero() bool {
	return i.Isolated+i.NoHzFull+i.NoCallbacks+i.FixedInterrupts == "" && !i.SparesManaged && !i.Irqbalance &&
		len(i.SlowGovernors) == 0
}

// ParseIsolatedCPUs reads an IsolatedCPUs.
func ParseIsolatedCPUs(text string) (IsolatedCPUs, []Warning, error) {
	return read[IsolatedCPUs](text, nil)
}

// Report is the generation of what an agent says of its node (ReportKey).
type Report struct {
	// Gen grows by one with each change, over restarts too.
	Gen int64 `json:"gen"`
	// Hash is of all the agent's values, Boot the kernel's boot id.
	Hash string `json:"hash,omitempty"`
	Boot string `json:"boot,omitempty"`
}

// ParseReport reads a Report.
func ParseReport(text string) (Report, []Warning, error) { return read[Report](text, nil) }

// Simulate is how a simulated node plays a pod's containers (SimulateKey).
type Simulate struct {
	// RunFor is how long the containers run; nil = a Job's pod for a second, any other until it is deleted.
	RunFor *metav1.Duration `json:"runFor,omitempty"`
	// ExitCode is what they end with.
	ExitCode int32 `json:"exitCode,omitempty"`
	// CPU and Memory are what the pod uses in all while its containers run, as far as its node has that; nil = nothing.
	CPU    *resource.Quantity `json:"cpu,omitempty"`
	Memory *resource.Quantity `json:"memory,omitempty"`
	// Pattern is how the use of CPU changes: SimulateSine, SimulateBurst or SimulateSteps; "" = not at all.
	Pattern string `json:"pattern,omitempty"`
}

// Values of Simulate.Pattern. All begin anew with each minute of the clock.
const (
	// SimulateSine rises from nothing to CPU and falls again.
	SimulateSine = "sine"
	// SimulateBurst is CPU for the first ten seconds, and a tenth of it for the rest.
	SimulateBurst = "burst"
	// SimulateSteps is 25, 50, 75 and 100 % of CPU, for 15 seconds each.
	SimulateSteps = "steps"
)

// ParseSimulate reads a Simulate. runFor, cpu and memory must not be negative, exitCode must be 0…255.
func ParseSimulate(text string) (Simulate, []Warning, error) {
	return readAmounts(text, func(r *reader, s *Simulate) {
		if s.RunFor != nil {
			r.atLeastZero("runFor", int64(s.RunFor.Duration))
		}
		if s.ExitCode < 0 || s.ExitCode > 255 {
			r.refuse("exitCode", Error{Text: "must be 0…255"})
		}
		r.amount("cpu", s.CPU)
		r.amount("memory", s.Memory)
		r.word("pattern", &s.Pattern, []string{SimulateSine, SimulateBurst, SimulateSteps})
	})
}

// SetByScheduler reports whether a pod's annotation belongs to the scheduler alone.
func SetByScheduler(key string) bool {
	switch key {
	case ResourceStatusKey, DeviceAllocatedKey, ReservationAllocatedKey, PredictedPlacementKey,
		ReservationCurrentOwnerKey, QuotaBound:
		return true
	}
	return strings.HasPrefix(key, BindKeyPrefix)
}
