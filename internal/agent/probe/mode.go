package probe

import "github.com/tenon-project/tenon/api/annotation"

// Mode says whose CPU assignments hold on a node. Its text is the value of the annotation topology-mode.
type Mode string

// Modes.
const (
	// Own: Tenon's scheduler chooses CPUs, the agent writes cpusets.
	Own Mode = "Own"
	// Follow: the kubelet's static policy chooses; the agent reports and writes no cpuset.
	Follow Mode = "Follow"
	// Blind: the kubelet is not asked at all; only the topology is published (take-over phase 1).
	Blind Mode = "Blind"
)

// Switches are the two flags that seed 000 gives an agent.
type Switches struct {
	// QueryKubelet is off under --disable-query-kubelet-config.
	QueryKubelet bool
	// CPUSetAllocator is the feature gate of that name.
	CPUSetAllocator bool
}

// Writes reports whether an agent in a mode writes cpusets.
func (s Switches) Writes(m Mode) bool { return m == Own && s.CPUSetAllocator }

// Valid refuses an agent that would write cpusets without knowing what the kubelet writes.
func (s Switches) Valid() bool { return s.QueryKubelet || !s.CPUSetAllocator }

// ModeOf decides the mode from the switches, whether the kubelet's CPU manager is static, and the Node's label
// topology-mode, which is the admin's wish. conflict is a wish that cannot be met; the answer is then what holds.
func ModeOf(s Switches, static bool, wish string) (mode Mode, conflict string) {
	switch {
	case !s.QueryKubelet:
		return Blind, unmet(wish, Blind, "the agent does not query the kubelet")
	case !static && wish == string(Follow):
		return Own, "label " + annotation.TopologyMode +
			"=Follow cannot be met: the kubelet's CPU manager policy is none, there is nothing to follow"
	case static && (!s.CPUSetAllocator || wish == string(Follow)):
		return Follow, unmet(wish, Follow, "the agent's feature gate CPUSetAllocator is off")
	case !s.CPUSetAllocator:
		return Own,
			"no component enforces CPU sets: the kubelet's CPU manager policy is none, and the agent's feature gate " +
				"CPUSetAllocator is off"
	}
	return Own, unmet(wish, Own, "")
}

func unmet(wish string, mode Mode, because string) string {
	if wish == "" || wish == string(mode) {
		return ""
	}
	text := "label " + annotation.TopologyMode + "=" + wish + " cannot be met, the mode is " + string(mode)
	if because != "" {
		return text + ": " + because
	}
	return text + ": want Own or Follow"
}
