package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Records reads what the managers of a node's kubelet have recorded. A record that cannot be used leaves the last good
// one of its manager in force; the error names all of them.
func Records(root host.Root, k host.Kubelet, m *topo.Machine, last probe.KubeletState) (probe.KubeletState, error) {
	next := last
	var errs []error
	if k.CPUPolicy == annotation.KubeletPolicyStatic {
		state, err := host.ReadCPUState(root)
		if err == nil {
			err = errors.Join(gone("cpu_manager_state", last.CPU.Policy != "", state.Policy == ""), checkCPUs(state, m))
		}
		if err == nil {
			next.CPU = state
		}
		errs = append(errs, err)
	} // else what an earlier static kubelet has pinned counts until its pods end
	if k.MemoryPolicy == annotation.KubeletMemoryStatic {
		state, err := host.ReadMemoryState(root)
		if err == nil {
			err = errors.Join(gone("memory_manager_state", last.Memory.Policy != "", state.Policy == ""),
				checkMemory(state, m))
		}
		if err == nil {
			next.Memory = state
		}
		errs = append(errs, err)
	} else {
		next.Memory = host.MemoryState{}
	}
	state, err := host.ReadDeviceState(root)
	if err == nil {
		err = gone("the device checkpoint", last.Devices.Registered != nil, state.Registered == nil)
	}
	if err == nil {
		next.Devices = state
	}
	return next, errors.Join(append(errs, err)...)
}

// gone refuses a record that is not there any more. Who changes a kubelet's policy removes them, while pods still run
// on what they recorded: the kubelet's next record contains the pods that are left.
func gone(what string, was, missing bool) error {
	if was && missing {
		return fmt.Errorf("%s was there, and is not any more", what)
	}
	return nil
}

// checkCPUs refuses a record that is not of a static kubelet on this machine.
func checkCPUs(state host.CPUState, m *topo.Machine) error {
	if state.Policy == "" {
		return nil // the kubelet has not written it yet
	}
	if state.Policy != annotation.KubeletPolicyStatic {
		return fmt.Errorf("cpu_manager_state is of policy %q, the kubelet's is %q", state.Policy,
			annotation.KubeletPolicyStatic)
	}
	online := m.Online()
	for whose, cpus := range map[string]map[string][]int{"pod": state.Pods, "container": state.ByID} {
		for owner, ids := range cpus {
			for _, id := range ids {
				if c, ok := m.CPUByID(id); !ok || !online.Has(int(c)) {
					return fmt.Errorf("cpu_manager_state gives CPU %d to %s %s, and that CPU is not online", id, whose,
						owner)
				}
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
func checkMemory(state host.MemoryState, m *topo.Machine) error {
	if state.Policy == "" {
		return nil
	}
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
		return Records(b.o.Root, state.Settings, b.o.Machine(), last)
	})
	recorded, answered := b.records.Value(), b.resources.Value()
	attributed := recorded
	attributed.CPU = probe.Attribute(recorded.CPU, b.o.Pods())
	next, disputed := answered.over(attributed, state.Settings)
	next.Inventory = answered.devices
	if b.o.Devices != nil {
		next.Inventory = b.o.Devices()
	}
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
		record.Policy != cmp.Or(state.Settings.CPUPolicy, annotation.KubeletPolicyNone) {
		other = record.Policy
	}
	if other != "" && other != b.mismatch {
		b.settings.Hint()
	}
	b.mismatch = other
}
