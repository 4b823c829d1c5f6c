package host

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// MemoryState is what the kubelet's memory manager has recorded. Amounts are bytes, NUMA nodes the kernel's ids.
type MemoryState struct {
	// Policy is "None" or "Static".
	Policy string
	// Zones are the NUMA nodes. Invariant: every group has its own node, and only nodes of Zones.
	Zones map[int]MemoryZone
	// Pods maps a pod's UID and a container's name to its blocks. The name is WholePod where the kubelet has recorded
	// the pod as one.
	Pods map[string]map[string][]MemoryBlock
}

// WholePod stands for the container's name where the kubelet has recorded a pod as one, not by container.
const WholePod = ""

// MemoryZone is one NUMA node of a MemoryState.
type MemoryZone struct {
	// Assignments counts the blocks that touch the node, once per type.
	Assignments int `json:"numberOfAssignments"`
	// Group are the nodes that serve blocks together with this one, itself among them, ascending.
	Group []int `json:"cells"`
	// Types are "memory" and "hugepages-SIZE".
	Types map[string]MemoryAmount `json:"memoryMap"`
}

// MemoryAmount is one type of memory on one NUMA node. Invariant: 0 ≤ Free ≤ Allocatable ≤ Total.
type MemoryAmount struct{ Total, SystemReserved, Allocatable, Reserved, Free int64 }

// MemoryBlock is memory of one type that was given from a set of NUMA nodes.
type MemoryBlock struct {
	NUMAIDs []int  `json:"numaAffinity"` // ascending, at least one
	Type    string `json:"type"`
	Bytes   int64  `json:"size"`
}

const memoryStateFile = "var/lib/kubelet/memory_manager_state"

// ReadMemoryState reads the kubelet's memory_manager_state below root; the zero MemoryState when there is none. Its
// error names the file: the caller keeps what it read before.
func ReadMemoryState(root Root) (MemoryState, error) {
	return readState(root, memoryStateFile, parseMemoryState)
}

// readState parses a file of the kubelet; one that is missing or empty is the zero value.
func readState[T any](root Root, name string, parse func([]byte) (T, error)) (state T, err error) {
	err = within(root, func(t *tree) {
		if text := t.text(name); text != "" {
			var bad error
			state, bad = parse([]byte(text))
			t.fail(name, bad)
		}
	})
	return state, err
}

// memoryFile is the file in its versions 1 and 2, which adds podEntries, and the data of version 3.
type memoryFile struct {
	PolicyName   string                              `json:"policyName"`
	MachineState map[string]MemoryZone               `json:"machineState"`
	Entries      map[string]map[string][]MemoryBlock `json:"entries"`
	PodEntries   map[string]struct {
		MemoryBlocks []MemoryBlock `json:"memoryBlocks"`
	} `json:"podEntries"`
}

func parseMemoryState(text []byte) (MemoryState, error) {
	text, err := authoritative(text)
	if err != nil {
		return MemoryState{}, err
	}
	var file memoryFile
	if err := json.Unmarshal(text, &file); err != nil {
		return MemoryState{}, err
	}
	if file.PolicyName == "" {
		return MemoryState{}, errors.New("has no policyName")
	}
	s := MemoryState{Policy: file.PolicyName, Zones: map[int]MemoryZone{}, Pods: map[string]map[string][]MemoryBlock{}}
	for key, z := range file.MachineState {
		id, err := strconv.Atoi(key)
		if err != nil || id < 0 || id > cpuset.MaxID || strconv.Itoa(id) != key {
			return MemoryState{}, fmt.Errorf("machineState[%q]: want the id of a NUMA node", key)
		}
		z.Group = ascending(z.Group)
		s.Zones[id] = z
	}
	for uid, containers := range file.Entries {
		if _, whole := file.PodEntries[uid]; whole {
			continue // the pod's own entry has them all
		}
		for name, blocks := range containers {
			s.add(uid, name, blocks)
		}
	}
	for uid, e := range file.PodEntries {
		s.add(uid, WholePod, e.MemoryBlocks)
	}
	return s, s.contradiction()
}

func (s *MemoryState) add(uid, container string, blocks []MemoryBlock) {
	if len(blocks) == 0 {
		return
	}
	for i := range blocks {
		blocks[i].NUMAIDs = ascending(blocks[i].NUMAIDs)
	}
	containers := s.Pods[uid]
	put(&containers, container, blocks)
	s.Pods[uid] = containers
}

// contradiction returns what in a record cannot be true.
func (s *MemoryState) contradiction() error {
	for id, z := range s.Zones {
		if !contains(z.Group, id) {
			return fmt.Errorf("machineState[%d]: cells %v do not have the node itself", id, z.Group)
		}
		if other, ok := s.unknown(z.Group); ok {
			return fmt.Errorf("machineState[%d]: cells name NUMA node %d, which machineState does not have", id, other)
		}
		if z.Assignments < 0 {
			return fmt.Errorf("machineState[%d]: numberOfAssignments is %d", id, z.Assignments)
		}
		for kind, a := range z.Types {
			if a.Free < 0 || a.Free > a.Allocatable || a.Allocatable > a.Total || a.Reserved < 0 ||
				a.SystemReserved < 0 {
				return fmt.Errorf("machineState[%d].memoryMap[%q]: want 0 ≤ free ≤ allocatable ≤ total, got %d, %d, %d",
					id, kind, a.Free, a.Allocatable, a.Total)
			}
		}
	}
	for uid, containers := range s.Pods {
		for name, blocks := range containers {
			for _, b := range blocks {
				other, unknown := s.unknown(b.NUMAIDs)
				switch {
				case len(b.NUMAIDs) == 0 || b.Type == "" || b.Bytes < 0:
					return fmt.Errorf("entries[%q][%q]: a block of %d bytes of type %q on NUMA nodes %v", uid, name,
						b.Bytes, b.Type, b.NUMAIDs)
				case unknown:
					return fmt.Errorf("entries[%q][%q]: a block names NUMA node %d, which machineState does not have",
						uid, name, other)
				}
			}
		}
	}
	return nil
}

// unknown returns the first of ids that is not a zone.
func (s *MemoryState) unknown(ids []int) (int, bool) {
	for _, id := range ids {
		if _, ok := s.Zones[id]; !ok {
			return id, true
		}
	}
	return 0, false
}

// ascending returns distinct values in ascending order.
func ascending[T cmp.Ordered](values []T) []T {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return slices.Compact(sorted)
}

// put sets a key of a map that may not exist yet.
func put[M ~map[K]V, K comparable, V any](m *M, key K, value V) {
	if *m == nil {
		*m = M{}
	}
	(*m)[key] = value
}
