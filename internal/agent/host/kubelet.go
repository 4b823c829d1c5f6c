package host

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// Kubelet is how the kubelet of a node handles CPUs, memory and topology. Values are spelled as in its configuration.
// The zero value is a kubelet with the policies none.
type Kubelet struct {
	Version string
	// CPUPolicy is "none" or "static"; "" counts as "none".
	CPUPolicy string
	// CPUOptions are cpuManagerPolicyOptions, such as full-pcpus-only: "true".
	CPUOptions map[string]string
	// ReservedCPUs is reservedSystemCPUs in list format.
	ReservedCPUs string
	// MemoryPolicy is "None" or "Static"; "" counts as "None".
	MemoryPolicy string
	// TopologyPolicy is "none", "best-effort", "restricted" or "single-numa-node"; "" counts as "none".
	TopologyPolicy string
	// TopologyScope is "container" or "pod"; "" counts as "container".
	TopologyScope   string
	TopologyOptions map[string]string
}

var (
	cpuOptions = []string{
		"full-pcpus-only", "distribute-cpus-across-numa", "align-by-socket", "distribute-cpus-across-cores",
		"prefer-align-cpus-by-uncorecache", "strict-cpu-reservation",
	}
	topologyPolicies = []string{"best-effort", "restricted", "single-numa-node"}
)

// ParseKubelet reads settings separated by commas: the CPU policy none or static, CPU manager options, one topology
// policy, scope=container|pod and reserved=LIST, whose list may have commas of its own. "" is a kubelet with the
// policies none. A word that is none of them is an *UnknownSetting.
func ParseKubelet(settings string) (Kubelet, error) {
	k := Kubelet{CPUPolicy: "none", MemoryPolicy: "None", TopologyPolicy: "none", TopologyScope: "container"}
	if settings == "" {
		return k, nil
	}
	tokens := strings.Split(settings, ",")
	policy := ""
	for i := 0; i < len(tokens); i++ {
		token := strings.TrimSpace(tokens[i])
		key, value, hasValue := strings.Cut(token, "=")
		switch {
		case token == "none" || token == "static":
			if policy != "" && policy != token {
				return k, fmt.Errorf("kubelet settings name the CPU policies %s and %s", policy, token)
			}
			policy, k.CPUPolicy = token, token
		case slices.Contains(cpuOptions, token):
			if k.CPUOptions == nil {
				k.CPUOptions = map[string]string{}
			}
			k.CPUOptions[token] = "true"
		case slices.Contains(topologyPolicies, token):
			if k.TopologyPolicy != "none" && k.TopologyPolicy != token {
				return k, fmt.Errorf("kubelet settings name the topology policies %s and %s", k.TopologyPolicy, token)
			}
			k.TopologyPolicy = token
		case hasValue && key == "scope":
			if value != "container" && value != "pod" {
				return k, fmt.Errorf("kubelet setting scope=%s: want container or pod", value)
			}
			k.TopologyScope = value
		case hasValue && key == "reserved":
			for i+1 < len(tokens) && isListItem(tokens[i+1]) {
				i++
				value += "," + tokens[i]
			}
			ids, err := cpuset.ParseIDs(value)
			if err != nil {
				return k, fmt.Errorf("kubelet setting reserved: %w", err)
			}
			if len(ids) == 0 {
				return k, fmt.Errorf("kubelet setting reserved= names no CPU")
			}
			k.ReservedCPUs = cpuset.FormatIDs(ids)
		default:
			return k, &UnknownSetting{token}
		}
	}
	if k.CPUPolicy != "static" && (len(k.CPUOptions) > 0 || k.ReservedCPUs != "") {
		return k, fmt.Errorf("kubelet settings %q: CPU manager options and reserved= need the CPU policy static", settings)
	}
	return k, nil
}

func isListItem(token string) bool {
	token = strings.TrimSpace(token)
	return token != "" && strings.Trim(token, "0123456789-") == ""
}

// KubeletSettings lists the words that ParseKubelet understands.
func KubeletSettings() []string {
	return slices.Concat([]string{"none", "static"}, cpuOptions, topologyPolicies,
		[]string{"scope=container", "scope=pod", "reserved=LIST"})
}

// UnknownSetting is the error of ParseKubelet for a word that it does not know.
type UnknownSetting struct{ Setting string }

// Error names the word and all known ones.
func (u *UnknownSetting) Error() string {
	return fmt.Sprintf("unknown kubelet setting %q: want any of %s", u.Setting, strings.Join(KubeletSettings(), ", "))
}
