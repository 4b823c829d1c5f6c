package annotation

import (
	"strings"

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

// String returns the canonical JSON.
func (t Takeover) String() string { return encode(t) }

// ParseTakeover reads a Takeover.
func ParseTakeover(text string) (Takeover, []Warning, error) {
	var t Takeover
	warnings, err := decode(text, &t)
	if err != nil {
		return Takeover{}, nil, err
	}
	return t, warnings, nil
}

// Report is the generation of what an agent says of its node (ReportKey).
type Report struct {
	// Gen grows by one with each change, over restarts too.
	Gen int64 `json:"gen"`
	// Hash is of all the agent's values, Boot the kernel's boot id.
	Hash string `json:"hash,omitempty"`
	Boot string `json:"boot,omitempty"`
}

// String returns the canonical JSON.
func (r Report) String() string { return encode(r) }

// ParseReport reads a Report.
func ParseReport(text string) (Report, []Warning, error) {
	var r Report
	warnings, err := decode(text, &r)
	if err != nil {
		return Report{}, nil, err
	}
	return r, warnings, nil
}

// Simulate is how a simulated node plays a pod's containers (SimulateKey).
type Simulate struct {
	// RunFor is how long the containers run; nil = a Job's pod for a second, any other until it is deleted.
	RunFor *metav1.Duration `json:"runFor,omitempty"`
	// ExitCode is what they end with.
	ExitCode int32 `json:"exitCode,omitempty"`
}

// String returns the canonical JSON.
func (s Simulate) String() string { return encode(s) }

// ParseSimulate reads a Simulate. runFor must not be negative, exitCode must be 0…255.
func ParseSimulate(text string) (Simulate, []Warning, error) {
	var s Simulate
	warnings, err := decode(text, &s)
	if err != nil {
		return Simulate{}, nil, err
	}
	if s.RunFor != nil && s.RunFor.Duration < 0 {
		return Simulate{}, nil, &Error{
			Offset: valueOffset(text, "runFor"), Field: "runFor",
			Text: "must not be negative",
		}
	}
	if s.ExitCode < 0 || s.ExitCode > 255 {
		return Simulate{}, nil, &Error{Offset: valueOffset(text, "exitCode"), Field: "exitCode", Text: "must be 0…255"}
	}
	return s, warnings, nil
}

// SetByScheduler reports whether a pod's annotation belongs to the scheduler alone.
func SetByScheduler(key string) bool {
	switch key {
	case ResourceStatusKey, DeviceAllocatedKey, ReservationAllocatedKey, PredictedPlacementKey:
		return true
	}
	return strings.HasPrefix(key, BindKeyPrefix)
}
