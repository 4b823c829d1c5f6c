package host

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/tenon-project/tenon/api/annotation"
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
	kubelet *annotation.Kubelet
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
	case annotation.KubeletPolicyNone, annotation.KubeletPolicyStatic:
		return r.once("CPU policies", &k.CPU.Policy, token)
	case "memory-static":
		k.Memory.Policy = annotation.KubeletMemoryStatic
		return nil
	case "pod-scope":
		return r.once("topology scopes", &k.Topology.Scope, annotation.TopologyScopePod)
	case annotation.OptionPreferClosest:
		put(&k.Topology.Options, token, "true")
		return nil
	case "scope=":
		if value != annotation.TopologyScopeContainer && value != annotation.TopologyScopePod {
			return fmt.Errorf("kubelet setting scope=%s: want %s or %s", value,
				annotation.TopologyScopeContainer, annotation.TopologyScopePod)
		}
		return r.once("topology scopes", &k.Topology.Scope, value)
	case "version=":
		canonical, ok := canonicalVersion(value)
		if !ok {
			return fmt.Errorf("kubelet setting version=%s: want 1.MINOR or v1.MINOR.PATCH, such as 1.36", value)
		}
		return r.once("versions", &k.Version, canonical)
	case annotation.OptionMaxNUMANodes + "=":
		if _, ok := parseMaxNUMA(value); !ok {
			return fmt.Errorf("kubelet setting %s: want a number from %d on", token, defaultMaxNUMA)
		}
		put(&k.Topology.Options, annotation.OptionMaxNUMANodes, value)
		return r.once(annotation.OptionMaxNUMANodes, &value, value)
	case "reserved=":
		ids, err := cpuset.ParseIDs(value)
		if err != nil {
			return fmt.Errorf("kubelet setting reserved: %w", err)
		}
		if len(ids) == 0 {
			return fmt.Errorf("kubelet setting reserved= names no CPU")
		}
		return r.once("reserved CPUs", &k.CPU.Reserved, cpuset.FormatIDs(ids))
	case "reserved-memory=":
		for item := range strings.SplitSeq(value, ",") {
			if err := reserveMemory(k, item); err != nil {
				return fmt.Errorf("kubelet setting reserved-memory: %q: %w", item, err)
			}
		}
		return nil
	}
	switch {
	case slices.Contains(cpuOptions(), token):
		put(&k.CPU.Options, token, "true")
		return nil
	case slices.Contains(topologyPolicies(), token):
		return r.once("topology policies", &k.Topology.Policy, token)
	}
	return &UnknownSetting{Setting: token}
}

// reserveMemory reads NODE[:TYPE]:AMOUNT; a type that is missing is "memory".
func reserveMemory(k *annotation.Kubelet, item string) error {
	node, rest, ok := strings.Cut(item, ":")
	id, err := strconv.Atoi(node)
	if !ok || err != nil || id < 0 || id > cpuset.MaxID {
		return fmt.Errorf("want NODE:AMOUNT or NODE:TYPE:AMOUNT, such as 0:1Gi")
	}
	name, amount, ok := strings.Cut(rest, ":")
	if !ok {
		name, amount = string(corev1.ResourceMemory), rest
	}
	kind := corev1.ResourceName(name)
	if kind != corev1.ResourceMemory && !strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) {
		return fmt.Errorf("the type %q is neither memory nor hugepages-SIZE", kind)
	}
	q, err := annotation.ParseQuantity(amount)
	if err != nil || q.Sign() <= 0 {
		return fmt.Errorf("the amount %q is not a positive quantity, such as 1Gi", amount)
	}
	types := k.Memory.Reserved[int32(id)]
	if _, twice := types[kind]; twice {
		return fmt.Errorf("%s of node %d is said twice", kind, id)
	}
	put(&types, kind, *resource.NewQuantity(q.Value(), resource.BinarySI))
	put(&k.Memory.Reserved, int32(id), types)
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
