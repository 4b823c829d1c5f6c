package host

import (
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
	Assignments int
	// Group are the nodes that serve blocks together with this one, itself among them, ascending.
	Group []int
	// Types are "memory" and "hugepages-SIZE".
	Types map[string]MemoryAmount
}

// MemoryAmount is one type of memory on one NUMA node. Invariant: 0 ≤ Free ≤ Allocatable ≤ Total.
type MemoryAmount struct{ Total, SystemReserved, Allocatable, Reserved, Free int64 }

// MemoryBlock is memory of one type that was given from a set of NUMA nodes.
type MemoryBlock struct {
	NUMAIDs []int // ascending, at least one
	Type    string
	Bytes   int64
}

const memoryStateFile = "var/lib/kubelet/memory_manager_state"

// ReadMemoryState reads the kubelet's memory_manager_state below root; the zero MemoryState when there is none. Its
// error names the file: the caller keeps what it read before.
func ReadMemoryState(root Root) (MemoryState, error) {
	var state MemoryState
	err := readState(root, memoryStateFile, func(text []byte) (err error) {
		state, err = parseMemoryState(text)
		return err
	})
	return state, err
}

// readState gives the content of a file of the kubelet to parse; a file that is missing or empty has none.
func readState(root Root, name string, parse func([]byte) error) error {
	t, err := open(root)
	if err != nil {
		return err
	}
	defer t.close()
	text, err := t.text(name)
	if err != nil || text == "" {
		return err
	}
	if err := parse([]byte(text)); err != nil {
		return t.fault(name, err)
	}
	return nil
}

// memoryFile is the file in its versions 1 and 2, which adds podEntries.
type memoryFile struct {
	PolicyName   string `json:"policyName"`
	MachineState map[string]struct {
		NumberOfAssignments int                     `json:"numberOfAssignments"`
		MemoryMap           map[string]memoryAmount `json:"memoryMap"`
		Cells               []int                   `json:"cells"`
	} `json:"machineState"`
	Entries    map[string]map[string][]memoryBlock `json:"entries"`
	PodEntries map[string]struct {
		MemoryBlocks []memoryBlock `json:"memoryBlocks"`
	} `json:"podEntries"`
}

type memoryAmount struct {
	Total          int64 `json:"total"`
	SystemReserved int64 `json:"systemReserved"`
	Allocatable    int64 `json:"allocatable"`
	Reserved       int64 `json:"reserved"`
	Free           int64 `json:"free"`
}

type memoryBlock struct {
	NUMAAffinity []int  `json:"numaAffinity"`
	Type         string `json:"type"`
	Size         int64  `json:"size"`
}

func parseMemoryState(text []byte) (MemoryState, error) {
	var file memoryFile
	if err := json.Unmarshal(text, &file); err != nil {
		return MemoryState{}, err
	}
	if file.PolicyName == "" {
		return MemoryState{}, errors.New("has no policyName")
	}
	s := MemoryState{Policy: file.PolicyName, Zones: map[int]MemoryZone{}, Pods: map[string]map[string][]MemoryBlock{}}
	for key, in := range file.MachineState {
		id, err := strconv.Atoi(key)
		if err != nil || id < 0 || id > cpuset.MaxID || strconv.Itoa(id) != key {
			return MemoryState{}, fmt.Errorf("machineState[%q]: want the id of a NUMA node", key)
		}
		z := MemoryZone{
			Assignments: in.NumberOfAssignments, Group: ascending(in.Cells),
			Types: map[string]MemoryAmount{},
		}
		for kind, amount := range in.MemoryMap {
			z.Types[kind] = MemoryAmount(amount)
		}
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

func (s *MemoryState) add(uid, container string, blocks []memoryBlock) {
	if len(blocks) == 0 {
		return
	}
	if s.Pods[uid] == nil {
		s.Pods[uid] = map[string][]MemoryBlock{}
	}
	for _, b := range blocks {
		s.Pods[uid][container] = append(s.Pods[uid][container],
			MemoryBlock{NUMAIDs: ascending(b.NUMAAffinity), Type: b.Type, Bytes: b.Size})
	}
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

// ascending returns distinct ids in ascending order.
func ascending(ids []int) []int {
	sorted := slices.Clone(ids)
	slices.Sort(sorted)
	return slices.Compact(sorted)
}
