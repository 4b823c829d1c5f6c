package observe

import (
	"cmp"
	"context"
	"strings"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/core/kubelet"
)

// reportAssumed keeps the condition KubeletAssumed: what the scheduler's predictions take for granted of this kubelet.
// A kubelet whose managers are off is not predicted.
func (b *Observer) reportAssumed(ctx context.Context, state *State) error {
	if b.o.CurrentNode() == nil {
		return nil
	}
	k := state.Settings
	var assumed []string
	if state.IsStatic() || state.KeepsMemory() ||
		cmp.Or(k.TopologyPolicy, annotation.KubeletTopologyNone) != annotation.KubeletTopologyNone {
		s := kubelet.Settings{
			Version: b.version(), CPUOptions: k.CPUOptions, TopologyOptions: k.TopologyOptions, Gates: k.Gates,
		}
		assumed = s.Assumptions()
	}
	if len(assumed) == 0 {
		return b.o.Status.Set(ctx, event.KubeletAssumed, false, "Known", "the scheduler's model knows this kubelet")
	}
	return b.o.Status.Set(ctx, event.KubeletAssumed, true, "NotInTheModel", strings.Join(assumed, "; "))
}
