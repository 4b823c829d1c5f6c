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

// splitSettings returns the settings that commas separate. Items of a list belong to the setting before them.
func splitSettings(text string) (settings []string) {
	list := "" // that items can follow
	for token := range strings.SplitSeq(text, ",") {
		token = strings.TrimSpace(token)
		node, _, isMemory := strings.Cut(token, ":")
		switch {
		case list == "reserved=" && token != "" && strings.Trim(token, "0123456789-") == "",
			list == "reserved-memory=" && isMemory && node != "" && strings.Trim(node, "0123456789") == "":
			settings[len(settings)-1] += "," + token
		default:
			list = token[:strings.Index(token, "=")+1]
			settings = append(settings, token)
		}
	}
	return settings
}

// settingReader takes kubelet settings one by one.
type settingReader struct {
	kubelet *Kubelet
	// said is what was said of each thing that can be said once.
	said map[string]string
}

// once sets a value, and rejects a second, different one.
func (r *settingReader) once(what string, to *string, value string) error {
	if old, ok := r.said[what]; ok && old != value {
		return fmt.Errorf("kubelet settings name the %s %s and %s", what, old, value)
	}
	*to, r.said[what] = value, value
	return nil
}

// read reads one setting.
func (r *settingReader) read(token string) error {
	k := r.kubelet
	key, value, valued := strings.Cut(token, "=")
	if valued {
		key += "="
	}
	switch key {
	case policyNone, policyStatic:
		return r.once("CPU policies", &k.CPUPolicy, token)
	case "memory-static":
		k.MemoryPolicy = memoryStatic
		return nil
	case "pod-scope":
		return r.once("topology scopes", &k.TopologyScope, scopePod)
	case preferClosest:
		put(&k.TopologyOptions, token, "true")
		return nil
	case "scope=":
		if value != scopeContainer && value != scopePod {
			return fmt.Errorf("kubelet setting scope=%s: want %s or %s", value, scopeContainer, scopePod)
		}
		return r.once("topology scopes", &k.TopologyScope, value)
	case "version=":
		canonical, ok := canonicalVersion(value)
		if !ok {
			return fmt.Errorf("kubelet setting version=%s: want 1.MINOR or v1.MINOR.PATCH, such as 1.36", value)
		}
		return r.once("versions", &k.Version, canonical)
	case maxAllowableNUMA + "=":
		if _, ok := parseMaxNUMA(value); !ok {
			return fmt.Errorf("kubelet setting %s: want a number from %d on", token, defaultMaxNUMA)
		}
		put(&k.TopologyOptions, maxAllowableNUMA, value)
		return r.once(maxAllowableNUMA, &value, value)
	case "reserved=":
		ids, err := cpuset.ParseIDs(value)
		if err != nil {
			return fmt.Errorf("kubelet setting reserved: %w", err)
		}
		if len(ids) == 0 {
			return fmt.Errorf("kubelet setting reserved= names no CPU")
		}
		return r.once("reserved CPUs", &k.ReservedCPUs, cpuset.FormatIDs(ids))
	case "reserved-memory=":
		for item := range strings.SplitSeq(value, ",") {
			if err := k.reserveMemory(item); err != nil {
				return fmt.Errorf("kubelet setting reserved-memory: %q: %w", item, err)
			}
		}
		return nil
	}
	switch {
	case slices.Contains(cpuOptions(), token):
		put(&k.CPUOptions, token, "true")
		return nil
	case slices.Contains(topologyPolicies(), token):
		return r.once("topology policies", &k.TopologyPolicy, token)
	}
	return &UnknownSetting{Setting: token}
}

// reserveMemory reads NODE[:TYPE]:AMOUNT; a type that is missing is "memory".
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
	types := k.ReservedMemory[id]
	put(&types, kind, q.Value())
	put(&k.ReservedMemory, id, types)
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
