package app

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/agent/status"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// records reads what the managers of a node's kubelet have recorded. A record that cannot be used leaves the last good
// one of its manager in force; the error names all of them.
func records(root host.Root, k host.Kubelet, m *topo.Machine, last probe.KubeletState) (probe.KubeletState, error) {
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

// readState reads what the kubelet's managers recorded, and what devices there are.
func (a *Agent) readState(ctx context.Context) error {
	if !a.o.Switches.QueryKubelet {
		return nil
	}
	a.hintMismatch()
	a.mu.Lock()
	last, machine, k := a.recorded, a.machine, a.settings.inForce
	a.mu.Unlock()
	recorded, err := records(a.o.Root, k, machine, last)
	inventory := a.inventory()
	attributed := recorded
	attributed.CPU = probe.Attribute(recorded.CPU, a.podList())
	a.mu.Lock()
	state, disputed := a.resources.overlay(attributed, k)
	state.Inventory = inventory
	disputed = a.resources.dispute(disputed)
	changed := !reflect.DeepEqual(a.state, state)
	a.recorded, a.state = recorded, state
	a.mu.Unlock()
	if changed {
		a.publish()
	}
	reported := errors.Join(a.reportContradiction(ctx, "record", "CPUsGivenTwice", givenTwice(recorded.CPU)),
		a.reportContradiction(ctx, "resources", "SourcesDisagree", disputed))
	if err != nil {
		return errors.Join(err, reported, a.status.Set(ctx, status.StateUnreadable, true, "Unusable", err.Error()))
	}
	return errors.Join(reported, a.status.Set(ctx, status.StateUnreadable, false, "Readable",
		"what the kubelet's managers have recorded is in use"))
}

// reportContradiction keeps what one comparison says of the condition StateContradictory; "" is nothing.
func (a *Agent) reportContradiction(ctx context.Context, source, reason, text string) error {
	if text == "" {
		return a.status.Source(source)(ctx, status.StateContradictory, false, "Consistent",
			"the kubelet's records agree with each other")
	}
	return a.status.Source(source)(ctx, status.StateContradictory, true, reason, text)
}

// hintMismatch asks the kubelet for its settings, once, when its record is of another CPU manager policy than they are:
// it may have been restarted with other ones.
func (a *Agent) hintMismatch() {
	if a.o.AskKubelet == nil {
		return
	}
	record, err := host.ReadCPUState(a.o.Root)
	a.mu.Lock()
	defer a.mu.Unlock()
	other := ""
	if err == nil && record.Policy != "" &&
		record.Policy != orNone(a.settings.inForce.CPUPolicy, annotation.KubeletPolicyNone) {
		other = record.Policy
	}
	if other != "" && other != a.mismatch {
		a.settings.pace.hint()
	}
	a.mismatch = other
}

// readMachine takes the machine anew when CPUs or NUMA nodes have come or gone. Files that contradict themselves leave
// the last good machine in force.
func (a *Agent) readMachine(ctx context.Context) error {
	presence, err := host.Presence(a.o.Root)
	a.mu.Lock()
	same := err == nil && presence == a.presence
	old := a.machine
	a.mu.Unlock()
	if same { // an earlier agent may have reported otherwise
		return a.status.Source("machine")(ctx, status.SourceDegraded, false, "Usable",
			"the machine's files describe one machine")
	}
	var reading host.Reading
	if err == nil {
		reading, err = host.Read(a.o.Root, a.o.Arch)
	}
	if err != nil {
		return errors.Join(err, a.status.Source("machine")(ctx, status.SourceDegraded, true, "Unusable",
			err.Error()+": the last good topology stays published"))
	}
	machine := a.o.Shared.intern(reading.Machine)
	a.mu.Lock()
	a.machine, a.presence = machine, presence
	a.mu.Unlock()
	if !machine.Equal(old) {
		a.o.Shared.Metrics.MachineChanges.Inc()
		a.status.Warn("TopologyChanged",
			"the machine has CPUs %s on %d NUMA nodes, it had %s on %d: what pods hold of CPUs that are gone is left "+
				"out",
			machine.FormatList(machine.Online()), machine.NumNUMA(), old.FormatList(old.Online()), old.NumNUMA())
		a.publish()
	}
	return a.status.Source("machine")(ctx, status.SourceDegraded, false, "Usable",
		"the machine's files describe one machine")
}
