package host

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// settingReader takes kubelet settings word by word.
type settingReader struct {
	tokens  []string // that are left
	kubelet *Kubelet
	// said is what was said of each thing that can be said once.
	said map[string]string
}

func (r *settingReader) take() string {
	token := strings.TrimSpace(r.tokens[0])
	r.tokens = r.tokens[1:]
	return token
}

// once rejects a second, different value of a setting.
func (r *settingReader) once(what, value string) error {
	if old, ok := r.said[what]; ok && old != value {
		return fmt.Errorf("kubelet settings name the %s %s and %s", what, old, value)
	}
	r.said[what] = value
	return nil
}

// next reads one setting, with the rest of its list.
func (r *settingReader) next() error {
	token, k := r.take(), r.kubelet
	switch {
	case token == policyNone || token == policyStatic:
		k.CPUPolicy = token
		return r.once("CPU policies", token)
	case token == "memory-static":
		k.MemoryPolicy = memoryStatic
	case token == "pod-scope":
		k.TopologyScope = scopePod
		return r.once("topology scopes", scopePod)
	case token == preferClosest:
		k.setTopologyOption(token, "true")
	case slices.Contains(cpuOptions(), token):
		if k.CPUOptions == nil {
			k.CPUOptions = map[string]string{}
		}
		k.CPUOptions[token] = "true"
	case slices.Contains(topologyPolicies(), token):
		k.TopologyPolicy = token
		return r.once("topology policies", token)
	default:
		key, value, ok := strings.Cut(token, "=")
		if !ok {
			return &UnknownSetting{Setting: token}
		}
		return r.valued(key, value, token)
	}
	return nil
}

// valued reads a setting that has a value.
func (r *settingReader) valued(key, value, token string) error {
	k := r.kubelet
	switch key {
	case "scope":
		if value != scopeContainer && value != scopePod {
			return fmt.Errorf("kubelet setting scope=%s: want %s or %s", value, scopeContainer, scopePod)
		}
		k.TopologyScope = value
		return r.once("topology scopes", value)
	case "version":
		canonical, ok := canonicalVersion(value)
		if !ok {
			return fmt.Errorf("kubelet setting version=%s: want 1.MINOR or v1.MINOR.PATCH, such as 1.36", value)
		}
		k.Version = canonical
		return r.once("versions", canonical)
	case maxAllowableNUMA:
		if _, ok := parseMaxNUMA(value); !ok {
			return fmt.Errorf("kubelet setting %s=%s: want a number from %d on", key, value, defaultMaxNUMA)
		}
		k.setTopologyOption(key, value)
		return r.once(key, value)
	case "reserved":
		return r.reservedCPUs(value)
	case "reserved-memory":
		return r.reservedMemory(value)
	}
	return &UnknownSetting{Setting: token}
}

func (k *Kubelet) setTopologyOption(name, value string) {
	if k.TopologyOptions == nil {
		k.TopologyOptions = map[string]string{}
	}
	k.TopologyOptions[name] = value
}

func (r *settingReader) reservedCPUs(list string) error {
	for len(r.tokens) > 0 && isListItem(r.tokens[0]) {
		list += "," + r.take()
	}
	ids, err := cpuset.ParseIDs(list)
	if err != nil {
		return fmt.Errorf("kubelet setting reserved: %w", err)
	}
	if len(ids) == 0 {
		return fmt.Errorf("kubelet setting reserved= names no CPU")
	}
	r.kubelet.ReservedCPUs = cpuset.FormatIDs(ids)
	return r.once("reserved CPUs", r.kubelet.ReservedCPUs)
}

func isListItem(token string) bool {
	token = strings.TrimSpace(token)
	return token != "" && strings.Trim(token, "0123456789-") == ""
}

// reservedMemory reads items NODE[:TYPE]:AMOUNT; a type that is missing is "memory".
func (r *settingReader) reservedMemory(item string) error {
	k := r.kubelet
	for {
		if err := k.reserveMemory(item); err != nil {
			return fmt.Errorf("kubelet setting reserved-memory: %q: %w", item, err)
		}
		if len(r.tokens) == 0 || !isMemoryItem(r.tokens[0]) {
			return nil
		}
		item = r.take()
	}
}

func isMemoryItem(token string) bool {
	node, _, ok := strings.Cut(strings.TrimSpace(token), ":")
	return ok && node != "" && strings.Trim(node, "0123456789") == ""
}

func (k *Kubelet) reserveMemory(item string) error {
	node, rest, ok := strings.Cut(item, ":")
	id, err := strconv.Atoi(node)
	if !ok || err != nil || id < 0 || id > cpuset.MaxID {
		return fmt.Errorf("want NODE:AMOUNT or NODE:TYPE:AMOUNT, such as 0:1Gi")
	}
	kind, amount, ok := strings.Cut(rest, ":")
	if !ok {
		kind, amount = string(corev1.ResourceMemory), rest
	}
	if kind != string(corev1.ResourceMemory) && !strings.HasPrefix(kind, corev1.ResourceHugePagesPrefix) {
		return fmt.Errorf("the type %q is neither memory nor hugepages-SIZE", kind)
	}
	q, err := resource.ParseQuantity(amount)
	if err != nil || q.Sign() <= 0 {
		return fmt.Errorf("the amount %q is not a positive quantity, such as 1Gi", amount)
	}
	if _, twice := k.ReservedMemory[id][kind]; twice {
		return fmt.Errorf("%s of node %d is said twice", kind, id)
	}
	if k.ReservedMemory == nil {
		k.ReservedMemory = map[int]map[string]int64{}
	}
	if k.ReservedMemory[id] == nil {
		k.ReservedMemory[id] = map[string]int64{}
	}
	k.ReservedMemory[id][kind] = q.Value()
	return nil
}

// parseMaxNUMA reads the value of max-allowable-numa-nodes.
func parseMaxNUMA(value string) (int, bool) {
	n, err := strconv.Atoi(value)
	return n, err == nil && n >= defaultMaxNUMA
}

// canonicalVersion spells a version as a Node's status does: "1.36" is "v1.36.0".
func canonicalVersion(text string) (string, bool) {
	if strings.Count(text, ".") == 1 {
		text += ".0"
	}
	v, err := version.ParseSemantic(text)
	if err != nil || v.Major() != 1 {
		return "", false
	}
	return "v" + v.String(), true
}

// minorOf returns the release of a version of Kubernetes 1.
func minorOf(text string) (uint, bool) {
	v, err := version.ParseSemantic(text)
	if err != nil {
		return 0, false
	}
	return v.Minor(), true
}
