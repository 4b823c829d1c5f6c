package app

import (
	"context"
	"strings"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/status"
	"github.com/tenon-project/tenon/internal/core/kubelet"
)

// reportAssumed keeps the condition KubeletAssumed: what the scheduler's predictions take for granted of this kubelet.
// A kubelet whose managers are off is not predicted.
func (a *Agent) reportAssumed(ctx context.Context) error {
	a.mu.Lock()
	k, known := a.settings.inForce, a.node != nil
	version := a.versionLocked()
	a.mu.Unlock()
	if !known {
		return nil
	}
	var assumed []string
	if k.CPUPolicy == annotation.KubeletPolicyStatic || keepsMemory(k) ||
		orNone(k.TopologyPolicy, annotation.KubeletTopologyNone) != annotation.KubeletTopologyNone {
		s := kubelet.Settings{
			Version: version, CPUOptions: k.CPUOptions, TopologyOptions: k.TopologyOptions, Gates: k.Gates,
		}
		assumed = s.Assumptions()
	}
	if len(assumed) == 0 {
		return a.status.Set(ctx, status.KubeletAssumed, false, "Known", "the scheduler's model knows this kubelet")
	}
	return a.status.Set(ctx, status.KubeletAssumed, true, "NotInTheModel", strings.Join(assumed, "; "))
}
