package probe

import "github.com/tenon-project/tenon/api/annotation"

// Switches are the two flags that seed 000 gives an agent.
type Switches struct {
	// QueryKubelet is off under --disable-query-kubelet-config.
	QueryKubelet bool
	// CPUSetAllocator is the feature gate of that name.
	CPUSetAllocator bool
}

// Writes reports whether an agent in a mode writes cpusets.
func (s Switches) Writes(m annotation.Mode) bool {
	return m == annotation.ModeOwn && s.CPUSetAllocator
}

// Valid refuses an agent that would write cpusets without knowing what the kubelet writes.
func (s Switches) Valid() bool { return s.QueryKubelet || !s.CPUSetAllocator }

// ModeOf decides the mode from the switches, whether the kubelet's CPU manager is static, and the Node's label
// topology-mode, which is the admin's wish. conflict is a wish that cannot be met; the answer is then what holds.
func ModeOf(s Switches, static bool, wish string) (mode annotation.Mode, conflict string) {
	switch {
	case !s.QueryKubelet:
		return answer(annotation.ModeBlind, wish, "the agent does not query the kubelet")
	case !static && wish == annotation.ModeFollow:
		return annotation.ModeOwn, "label " + annotation.TopologyMode +
			"=Follow cannot be met: the kubelet's CPU manager policy is none, there is nothing to follow"
	case static && (!s.CPUSetAllocator || wish == annotation.ModeFollow):
		return answer(annotation.ModeFollow, wish, "the agent's feature gate CPUSetAllocator is off")
	case !s.CPUSetAllocator:
		return annotation.ModeOwn,
			"no component enforces CPU sets: the kubelet's CPU manager policy is none, and the agent's feature gate " +
				"CPUSetAllocator is off"
	}
	return answer(annotation.ModeOwn, wish, "")
}

// answer is a mode, and why it is not the wished one; "" where it is.
func answer(mode annotation.Mode, wish, because string) (_ annotation.Mode, conflict string) {
	if wish == "" || wish == mode {
		return mode, ""
	}
	text := "label " + annotation.TopologyMode + "=" + wish + " cannot be met, the mode is " + mode
	if because != "" {
		return mode, text + ": " + because
	}
	return mode, text + ": want Own or Follow"
}

// DeviceModeOf returns whose choice of a node's devices holds, by the agent's configuration, "" for none, and the mode
// so far. A node whose kubelet gave devices out becomes Tenon's when no pod has them any more: until then it moves.
func DeviceModeOf(wish, now annotation.DeviceMode, held bool) annotation.DeviceMode {
	switch {
	case wish == "":
		return now
	case wish == annotation.DeviceOwn && now != annotation.DeviceOwn && held:
		return annotation.DeviceMoving
	}
	return wish
}
