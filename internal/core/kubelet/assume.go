package kubelet

import (
	"fmt"
	"maps"
	"slices"
)

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
		out = append(out, "the kubelet's version is not known: only CPUs are counted")
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
