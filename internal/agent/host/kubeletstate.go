package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// CPUState is what the kubelet's CPU manager has recorded.
type CPUState struct {
	Policy string
	// Default is the pool of containers without CPUs of their own.
	Default []int
	// Pods maps a pod's UID to the CPUs of all its containers, ascending.
	Pods map[string][]int
}

const cpuStateFile = "var/lib/kubelet/cpu_manager_state"

// ReadCPUState reads the kubelet's cpu_manager_state below root; the zero CPUState when there is none. Its error names
// the file: the caller keeps what it read before.
func ReadCPUState(root Root) (CPUState, error) {
	t, err := open(root)
	if err != nil {
		return CPUState{}, err
	}
	defer t.close()
	text, err := t.text(cpuStateFile)
	if err != nil || text == "" {
		return CPUState{}, err
	}
	state, err := parseCPUState([]byte(text))
	if err != nil {
		return CPUState{}, t.fault(cpuStateFile, err)
	}
	return state, nil
}

// parseCPUState reads versions 2 and 3: entries by pod and container, in version 3 also podEntries. Version 1 has
// entries by container id, from which no pod can be told.
func parseCPUState(text []byte) (CPUState, error) {
	var file struct {
		PolicyName    string                     `json:"policyName"`
		DefaultCPUSet string                     `json:"defaultCpuSet"`
		Entries       map[string]json.RawMessage `json:"entries"`
		PodEntries    map[string]struct {
			CPUSet string `json:"cpuSet"`
		} `json:"podEntries"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return CPUState{}, err
	}
	if file.PolicyName == "" {
		return CPUState{}, errors.New("has no policyName")
	}
	s := CPUState{Policy: file.PolicyName, Pods: map[string][]int{}}
	var err error
	if s.Default, err = parseList(file.DefaultCPUSet); err != nil {
		return CPUState{}, fmt.Errorf("defaultCpuSet: %w", err)
	}
	for uid, raw := range file.Entries {
		var containers map[string]string
		if err := json.Unmarshal(raw, &containers); err != nil {
			return CPUState{}, fmt.Errorf("entries[%q]: want containers with CPU lists: the file is of version 1 or corrupt", uid)
		}
		for name, list := range containers {
			if err := s.add(uid, list); err != nil {
				return CPUState{}, fmt.Errorf("entries[%q][%q]: %w", uid, name, err)
			}
		}
	}
	for uid, e := range file.PodEntries {
		if err := s.add(uid, e.CPUSet); err != nil {
			return CPUState{}, fmt.Errorf("podEntries[%q]: %w", uid, err)
		}
	}
	return s, nil
}

func (s *CPUState) add(uid, list string) error {
	ids, err := parseList(list)
	if err != nil || len(ids) == 0 {
		return err
	}
	all := slices.Concat(s.Pods[uid], ids)
	slices.Sort(all)
	s.Pods[uid] = slices.Compact(all)
	return nil
}
