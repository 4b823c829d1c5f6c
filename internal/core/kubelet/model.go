package kubelet

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
)

// Minors of the oldest and the newest kubelet whose behaviour is known.
const (
	oldestMinor = 33
	newestMinor = 37
)

// Model is the behaviour that differs between kubelet minors. Make it with ModelOf: a literal with a Minor alone is
// some mixture. Two fixes to distributed allocation are merged but not in a release yet, so they are not modelled:
// that it keeps at least as many nodes as the mask has (PR #139456), and that its round robin always ends (PR #140730).
type Model struct {
	// Minor is the release that the model follows, 33 to 37; 0 while only CPUs are counted.
	Minor int
	// Beyond: the kubelet is newer than the newest model.
	Beyond bool

	// DeviceHostsOnly: device hints are made of the NUMA nodes that carry a device of the resource; of all nodes before
	// 1.36 (PR #138244).
	DeviceHostsOnly bool
	// L3RoundsUp: the L3 step of the CPU allocation counts an odd rest as one more core; 1.33 leaves it out.
	L3RoundsUp bool
	// SkipsPodLevel: pods with spec.resources get no hints, CPUs or memory blocks; 1.33 treats them as if they had
	// none.
	SkipsPodLevel bool
	// ChecksPinned: full-pcpus-only is checked again for a container that has its CPUs already; not since 1.37.
	ChecksPinned bool
	// OneSocketFirst: distributed allocation under align-by-socket tries the combinations of one socket first and clips
	// the share to what each node has (1.37, #139778).
	OneSocketFirst bool
	// SkipsEmptyMemory: a container that asks for no memory type at all is none of the memory manager's business
	// (1.37). Before, its allocation ran with nothing to allocate, and could fail.
	SkipsEmptyMemory bool
}

// counted is the model of every kubelet whose behaviour is not known: see Counting.
var counted = Model{SkipsPodLevel: true} //nolint:gochecknoglobals // never written

// ModelOf chooses the model by status.nodeInfo.kubeletVersion ("v1.36.3"); false for a version that cannot be read or
// is below 1.33, of which only CPUs are counted.
func ModelOf(version string) (Model, bool) {
	minor, ok := minorOf(version)
	if !ok || minor < oldestMinor {
		return counted, false
	}
	m := min(minor, newestMinor)
	return Model{
		Minor: m, Beyond: minor > newestMinor,
		DeviceHostsOnly:  m >= 36,
		L3RoundsUp:       m >= 34,
		SkipsPodLevel:    m >= 34,
		ChecksPinned:     m <= 36,
		OneSocketFirst:   m >= 37,
		SkipsEmptyMemory: m >= 37,
	}, true
}

// minorOf reads the 36 of "v1.36.3-gke.1".
func minorOf(version string) (int, bool) {
	rest, ok := strings.CutPrefix(strings.TrimPrefix(version, "v"), "1.")
	if !ok {
		return 0, false
	}
	minor, err := strconv.Atoi(rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))])
	return minor, err == nil
}

// Config is the configuration of the kubelet of a node. CPUs are dense indices of the node's machine.
type Config struct {
	Model    Model
	CPU      CPU
	Memory   Memory
	Topology Topology
}

// CPU are the settings of the CPU manager.
type CPU struct {
	Static                bool
	FullPCPUsOnly         bool
	DistributeAcrossNUMA  bool
	DistributeAcrossCores bool
	AlignBySocket         bool
	StrictReservation     bool
	AlignL3               bool
	// Reserved are the CPUs of reservedSystemCPUs, or those that kubeReserved and systemReserved come to.
	Reserved cpuset.Set
}

// Counting is the configuration of a static kubelet whose behaviour is not known. A Node of it counts: it refuses what
// exceeds its CPUs, and with full-pcpus-only what does not fill cores. Which CPUs it gives predicts nothing.
func Counting(c CPU) Config {
	return Config{Model: counted, CPU: CPU{Static: c.Static, FullPCPUsOnly: c.FullPCPUsOnly, Reserved: c.Reserved}}
}

// StaticCPU reads the options of CPU policy static. A value other than "true" and an option that is not known mean
// nothing.
func StaticCPU(options map[string]string) CPU {
	on := func(option string) bool { return options[option] == "true" }
	return CPU{
		Static:                true,
		FullPCPUsOnly:         on("full-pcpus-only"),
		DistributeAcrossNUMA:  on("distribute-cpus-across-numa"),
		DistributeAcrossCores: on("distribute-cpus-across-cores"),
		AlignBySocket:         on("align-by-socket"),
		StrictReservation:     on("strict-cpu-reservation"),
		AlignL3:               on("prefer-align-cpus-by-uncorecache"),
	}
}

// Memory are the settings of the memory manager.
type Memory struct {
	Static bool
}

// Topology are the settings of the Topology Manager.
type Topology struct {
	Policy hint.Policy
	// PodScope: one merge for the whole pod; else one for each container.
	PodScope bool
	// PreferClosest is prefer-closest-numa-nodes.
	PreferClosest bool
	// MaxNodes is max-allowable-numa-nodes; 0 = 8.
	MaxNodes int
}

// Settings are what is said of a kubelet, by the names of its configuration, as far as a Model may not know it.
type Settings struct {
	Version                     string
	CPUOptions, TopologyOptions map[string]string
	Gates                       map[string]bool
}

// Assumptions returns what a prediction of such a kubelet takes for granted, a phrase each: that a release without a
// model behaves like the newest one, that an option or a feature gate which no model knows changes nothing. Predictions
// for a kubelet without any are those that test/oracle compares.
func (s *Settings) Assumptions() []string {
	var out []string
	model, known := ModelOf(s.Version)
	switch minor, ok := minorOf(s.Version); {
	case s.Version == "":
		out = append(out, "the kubelet's version is unknown: only CPUs are counted")
	case !ok:
		out = append(out, fmt.Sprintf("kubelet version %q cannot be read: only CPUs are counted", s.Version))
	case !known:
		out = append(out, fmt.Sprintf("kubelet 1.%d has no model, the oldest is 1.%d: only CPUs are counted", minor,
			oldestMinor))
	case model.Beyond:
		out = append(out, fmt.Sprintf("kubelet 1.%d is newer than the newest model, 1.%d", minor, newestMinor))
	}
	out = append(out, unknown("CPU manager", s.CPUOptions, cpuOptions)...)
	out = append(out, unknown("Topology Manager", s.TopologyOptions, topologyOptions)...)
	for _, gate := range slices.Sorted(maps.Keys(s.Gates)) {
		if on := s.Gates[gate]; changes(gate, on, known && model.SkipsPodLevel) {
			out = append(out, fmt.Sprintf("feature gate %s=%t is not in the model", gate, on))
		}
	}
	return out
}

// Options that the models know.
var ( //nolint:gochecknoglobals // lists of words, never written
	cpuOptions = []string{
		"full-pcpus-only", "distribute-cpus-across-numa", "distribute-cpus-across-cores", "align-by-socket",
		"strict-cpu-reservation", "prefer-align-cpus-by-uncorecache",
	}
	topologyOptions = []string{"prefer-closest-numa-nodes", "max-allowable-numa-nodes"}
)

// unknown lists the options of a manager that are on and that the model does not know.
func unknown(manager string, options map[string]string, known []string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(options)) {
		if value := options[name]; value != "false" && !slices.Contains(known, name) {
			out = append(out, fmt.Sprintf("%s option %s=%s is not known", manager, name, value))
		}
	}
	return out
}

// changes reports whether a kubelet with this feature gate differs from the models: their gates have the defaults of
// the release. skipsPodLevel is the release's: before, PodLevelResources changed nothing for the managers.
func changes(gate string, on, skipsPodLevel bool) bool {
	switch gate {
	case "AllAlpha", "InPlacePodVerticalScalingExclusiveCPUs", "InPlacePodVerticalScalingExclusiveMemory",
		"PodLevelResourceManagers":
		return on
	case "AllBeta": // off, it takes PodLevelResources; on, it adds what a release has off by default
		return true
	case "PodLevelResources":
		return !on && skipsPodLevel
	}
	return false
}
