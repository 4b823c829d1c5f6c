package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"

	"k8s.io/utils/dump"

	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// CPUState is what the kubelet's CPU manager has recorded.
type CPUState struct {
	Policy string
	// Default is the pool of containers without CPUs of their own.
	Default []int
	// Pods maps a pod's UID to the CPUs of all its containers, ascending.
	Pods map[string][]int
	// Containers maps a pod's UID and a container's name to its CPUs, ascending. The name is WholePod where the kubelet
	// has recorded the pod as one.
	Containers map[string]map[string][]int
}

// Of returns the CPUs of a container: those that it was given, else the pool.
func (s *CPUState) Of(uid, container string) []int {
	for _, name := range []string{container, WholePod} {
		if ids, given := s.Containers[uid][name]; given {
			return ids
		}
	}
	return s.Default
}

const cpuStateFile = "var/lib/kubelet/cpu_manager_state"

// ReadCPUState reads the kubelet's cpu_manager_state below root; the zero CPUState when there is none. Its error names
// the file: the caller keeps what it read before. CPUs that are given twice are no error (GivenTwice).
func ReadCPUState(root Root) (CPUState, error) { return readState(root, cpuStateFile, parseCPUState) }

// parseCPUState reads versions 2 to 4: entries by pod and container, and in version 3 also podEntries; version 4 has
// both in its data. The checksum of versions 2 and 3 is over the text of a structure of Go's: it is not checked, as the
// kubelet takes 0 for any.
func parseCPUState(text []byte) (CPUState, error) {
	text, err := authoritative(text)
	if err != nil {
		return CPUState{}, err
	}
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
	s := CPUState{Policy: file.PolicyName, Pods: map[string][]int{}, Containers: map[string]map[string][]int{}}
	if s.Default, err = cpuset.ParseIDs(file.DefaultCPUSet); err != nil {
		return CPUState{}, fmt.Errorf("defaultCpuSet: %w", err)
	}
	for uid, raw := range file.Entries {
		if bytes.HasPrefix(raw, []byte(`"`)) {
			return CPUState{}, fmt.Errorf("entries[%q]: is of version 1, by container id; versions 2 to 4 are read",
				uid)
		}
		var containers map[string]string
		if err := json.Unmarshal(raw, &containers); err != nil {
			return CPUState{}, fmt.Errorf("entries[%q]: want containers with CPU lists", uid)
		}
		for name, list := range containers {
			if err := s.add(uid, name, list); err != nil {
				return CPUState{}, fmt.Errorf("entries[%q][%q]: %w", uid, name, err)
			}
		}
	}
	for uid, e := range file.PodEntries {
		delete(s.Containers, uid) // the pod's own entry has them all
		if err := s.add(uid, WholePod, e.CPUSet); err != nil {
			return CPUState{}, fmt.Errorf("podEntries[%q]: %w", uid, err)
		}
	}
	return s, nil
}

// authoritative returns what counts in a record of the kubelet's CPU or memory manager. A kubelet from 1.37 on writes
// a record as text into the field data, with a checksum of that text, and beside it, for older kubelets, a copy that
// lacks what was given to pods as a whole.
func authoritative(text []byte) ([]byte, error) {
	var file struct {
		Data     *string `json:"data"`
		Checksum uint64  `json:"dataChecksum"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	if file.Data == nil || *file.Data == "" {
		return text, nil
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, dump.ForHash(*file.Data)) // a hash takes all that it is given
	if sum := uint64(h.Sum32()); sum != file.Checksum {
		return nil, fmt.Errorf("dataChecksum is %d, and the checksum of data is %d", file.Checksum, sum)
	}
	return []byte(*file.Data), nil
}

// GivenTwice returns the CPUs that several pods have, and those that a pod has and the pool too, ascending. A kubelet
// records such on machines whose cores differ in threads: its CPU manager takes the average for the size of a core, may
// then give a CPU twice and frees it with either pod (kubernetes#140495). The record is what it goes by, so it is no
// error.
func (s *CPUState) GivenTwice() (several, pool []int) {
	taken := map[int]bool{}
	for _, ids := range s.Pods {
		for _, id := range ids {
			if taken[id] {
				several = append(several, id)
			}
			taken[id] = true
		}
	}
	for _, id := range s.Default {
		if taken[id] {
			pool = append(pool, id)
		}
	}
	return ascending(several), pool
}

func (s *CPUState) add(uid, container, list string) error {
	ids, err := cpuset.ParseIDs(list)
	if err == nil && len(ids) > 0 {
		s.Put(uid, container, ids)
	}
	return err
}

// Put records CPUs of a container, ascending. Records that share what they have of a pod are not affected.
func (s *CPUState) Put(uid, container string, ids []int) {
	containers := maps.Clone(s.Containers[uid])
	put(&containers, container, ids)
	put(&s.Containers, uid, containers)
	put(&s.Pods, uid, ascending(slices.Concat(slices.Collect(maps.Values(containers))...)))
}
