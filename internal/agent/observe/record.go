package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Records reads what the managers of a node's kubelet have recorded. A record that cannot be used leaves the last good
// one of its manager in force; the error names all of them.
func Records(root host.Root, k annotation.Kubelet, m *topo.Machine, last probe.KubeletState) (probe.KubeletState,
	error,
) {
	next := last
	var cpus, memory, devices error
	if k.CPU.Policy == annotation.KubeletPolicyStatic {
		cpus = take(&next.CPU, root, host.ReadCPUState, "cpu_manager_state",
			func(s *host.CPUState) bool { return s.Policy != "" },
			func(s *host.CPUState) error { return checkCPUs(s, m) })
	} // else what an earlier static kubelet has pinned counts until its pods end
	next.Memory = host.MemoryState{}
	if k.Memory.Policy == annotation.KubeletMemoryStatic {
		next.Memory = last.Memory
		memory = take(&next.Memory, root, host.ReadMemoryState, "memory_manager_state",
			func(s *host.MemoryState) bool { return s.Policy != "" },
			func(s *host.MemoryState) error { return checkMemory(s, m) })
	}
	devices = take(&next.Devices, root, host.ReadDeviceState, "the device checkpoint",
		func(s *host.DeviceState) bool { return s.Registered != nil }, nil)
	return next, errors.Join(cpus, memory, devices)
}

// take reads a record into the place of the last good one. It refuses one that check refuses, and one that is not there
// any more: who changes a kubelet's policy removes them, while pods still run on what they recorded. The kubelet's next
// record contains the pods that are left.
func take[T any](last *T, root host.Root, read func(host.Root) (T, error), what string, isThere func(*T) bool,
	check func(*T) error,
) error {
	now, err := read(root)
	switch {
	case err != nil:
		return err
	case isThere(last) && !isThere(&now):
		return fmt.Errorf("%s was there, and is not any more", what)
	case check != nil && isThere(&now): // else the kubelet has not written it yet
		err = check(&now)
	}
	if err == nil {
		*last = now
	}
	return err
}

// checkCPUs refuses a record that is not of a static kubelet on this machine.
func checkCPUs(state *host.CPUState, m *topo.Machine) error {
	if state.Policy != annotation.KubeletPolicyStatic {
		return fmt.Errorf("cpu_manager_state is of policy %q, the kubelet's is %q", state.Policy,
			annotation.KubeletPolicyStatic)
	}
	online := m.Online()
	for uid, ids := range state.Pods {
		for _, id := range ids {
			if c, ok := m.CPUByID(id); !ok || !online.Has(int(c)) {
				return fmt.Errorf("cpu_manager_state gives CPU %d to pod %s, and that CPU is not online", id, uid)
			}
		}
	}
	return nil
}

// givenTwice describes the CPUs that the kubelet's record gives twice; "" when there are none.
func givenTwice(state host.CPUState) string {
	several, pool := state.GivenTwice()
	var parts []string
	if len(several) > 0 {
		parts = append(parts, fmt.Sprintf("gives the CPUs %s to several pods", cpuset.FormatIDs(several)))
	}
	if len(pool) > 0 {
		parts = append(parts, fmt.Sprintf("gives the CPUs %s to a pod and has them in defaultCpuSet",
			cpuset.FormatIDs(pool)))
	}
	if len(parts) == 0 {
		return ""
	}
	return "cpu_manager_state " + strings.Join(parts, ", and ") +
		": pods share what should be exclusive; the record is in use as it is"
}

// checkMemory refuses a record that is not of a kubelet with memory policy Static on this machine.
func checkMemory(state *host.MemoryState, m *topo.Machine) error {
	if state.Policy != annotation.KubeletMemoryStatic {
		return fmt.Errorf("memory_manager_state is of policy %q, the kubelet's is %q", state.Policy,
			annotation.KubeletMemoryStatic)
	}
	for id := range state.Zones {
		if _, ok := m.NUMAByID(id); !ok {
			return fmt.Errorf("memory_manager_state has NUMA node %d, which the machine does not have", id)
		}
	}
	return nil
}

// readRecords reads what the kubelet's managers recorded, and what devices there are.
func (b *Observer) readRecords(ctx context.Context, state *State) error {
	if !b.o.Switches.QueryKubelet {
		return nil
	}
	b.hintMismatch(state)
	err := b.records.Refresh(ctx, func(last probe.KubeletState) (probe.KubeletState, error) {
		return Records(b.o.Root, state.Settings, b.o.Agent.Machine(), last)
	})
	recorded, answered := b.records.Value(), b.resources.Value()
	if doubt := recorded.Devices.Doubt; doubt != "" && doubt != state.Records.Devices.Doubt {
		klog.FromContext(ctx).Info("The device checkpoint in use may be damaged", "node", b.o.Node, "problem", doubt)
	}
	next, disputed := answered.over(recorded, state.Settings)
	next.Inventory = answered.devices
	state.Records = next
	return errors.Join(err, b.reportContradiction(ctx, "record", annotation.CPUsGivenTwice, givenTwice(recorded.CPU)),
		b.reportContradiction(ctx, "resources", "SourcesDisagree", b.dispute.lasting(disputed, answered.answers)))
}

// reportContradiction keeps what one comparison says of the condition StateContradictory; "" is nothing.
func (b *Observer) reportContradiction(ctx context.Context, source, reason, text string) error {
	holds := text != ""
	if !holds {
		reason, text = "Consistent", "the kubelet's records agree with each other"
	}
	return b.o.Status.Condition(event.KubeletStateContradictory, source)(ctx, holds, reason, text)
}

// hintMismatch asks the kubelet for its settings, once, when its record is of another CPU manager policy than they are:
// it may have been restarted with other ones.
func (b *Observer) hintMismatch(state *State) {
	record, err := host.ReadCPUState(b.o.Root)
	other := ""
	if err == nil && record.Policy != "" &&
		record.Policy != cmp.Or(state.Settings.CPU.Policy, annotation.KubeletPolicyNone) {
		other = record.Policy
	}
	if other != "" && other != b.mismatch {
		b.settings.Hint()
	}
	b.mismatch = other
}
