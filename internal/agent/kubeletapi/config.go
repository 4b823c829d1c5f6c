package kubeletapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// Config is what a kubelet runs with.
type Config struct {
	// Kubelet contains the settings that placements depend on. Its Version is empty, as only the Node has it;
	// CPU.Reserved are those of reservedSystemCPUs alone.
	Kubelet annotation.Kubelet
	// ReservedMilliCPU is what kubeReserved and systemReserved come to. A static policy without reservedSystemCPUs
	// keeps so many CPUs for itself, rounded up.
	ReservedMilliCPU int64
	// CgroupRoot is the group below which the kubelet makes its own; "" and "/" are the root.
	CgroupRoot   string
	CgroupDriver host.Driver
	// NoQuotas: cpuCFSQuota is false.
	NoQuotas bool
	// RuntimeEndpoint is containerRuntimeEndpoint, such as unix:///run/containerd/containerd.sock.
	RuntimeEndpoint string
}

// configz is the part of the answer that is read. Fields that are not listed here may be anything.
type configz struct {
	Kubelet *struct {
		CPUManagerPolicy             string            `json:"cpuManagerPolicy"`
		CPUManagerPolicyOptions      map[string]string `json:"cpuManagerPolicyOptions"`
		ReservedSystemCPUs           string            `json:"reservedSystemCPUs"`
		MemoryManagerPolicy          string            `json:"memoryManagerPolicy"`
		ReservedMemory               []reservation     `json:"reservedMemory"`
		TopologyManagerPolicy        string            `json:"topologyManagerPolicy"`
		TopologyManagerScope         string            `json:"topologyManagerScope"`
		TopologyManagerPolicyOptions map[string]string `json:"topologyManagerPolicyOptions"`
		KubeReserved                 map[string]string `json:"kubeReserved"`
		SystemReserved               map[string]string `json:"systemReserved"`
		FeatureGates                 map[string]bool   `json:"featureGates"`
		CgroupRoot                   string            `json:"cgroupRoot"`
		CgroupDriver                 string            `json:"cgroupDriver"`
		CPUCFSQuota                  *bool             `json:"cpuCFSQuota"`
		ContainerRuntimeEndpoint     string            `json:"containerRuntimeEndpoint"`
	} `json:"kubeletconfig"`
}

type reservation struct {
	NUMANode int               `json:"numaNode"`
	Limits   map[string]string `json:"limits"`
}

// ParseConfig reads an answer of /configz. Fields that it does not know are left out. An answer without the settings,
// or with values that it does not understand, is refused with the name of the field.
func ParseConfig(text []byte) (Config, error) {
	var in configz
	if err := json.Unmarshal(text, &in); err != nil {
		return Config{}, fmt.Errorf("read /configz: %w", err)
	}
	k := in.Kubelet
	switch {
	case k == nil:
		return Config{}, errors.New("read /configz: has no kubeletconfig")
	case k.CPUManagerPolicy == "": // every kubelet fills it
		return Config{}, errors.New("read /configz: has no kubeletconfig.cpuManagerPolicy")
	}
	c := Config{
		CgroupRoot: k.CgroupRoot, RuntimeEndpoint: k.ContainerRuntimeEndpoint,
		Kubelet: annotation.Kubelet{Gates: k.FeatureGates}, NoQuotas: k.CPUCFSQuota != nil && !*k.CPUCFSQuota,
	}
	r := reader{}
	c.Kubelet.CPU.Policy = r.word("cpuManagerPolicy", k.CPUManagerPolicy, "none", "static")
	c.Kubelet.Memory.Policy = r.word("memoryManagerPolicy", k.MemoryManagerPolicy, "None", "Static")
	c.Kubelet.Topology.Policy = r.word("topologyManagerPolicy", k.TopologyManagerPolicy, "none", "best-effort",
		"restricted", "single-numa-node")
	c.Kubelet.Topology.Scope = r.word("topologyManagerScope", k.TopologyManagerScope, "container", "pod")
	c.CgroupDriver = host.Driver(r.word("cgroupDriver", k.CgroupDriver, string(host.Cgroupfs), string(host.Systemd)))
	c.Kubelet.CPU.Reserved = r.cpus("reservedSystemCPUs", k.ReservedSystemCPUs)
	c.Kubelet.Memory.Reserved = r.memory(k.ReservedMemory)
	c.ReservedMilliCPU = r.milliCPU("kubeReserved", k.KubeReserved) + r.milliCPU("systemReserved", k.SystemReserved)
	c.Kubelet.CPU.Options = options(k.CPUManagerPolicyOptions)
	c.Kubelet.Topology.Options = options(k.TopologyManagerPolicyOptions)
	if strings.Contains("/"+c.CgroupRoot+"/", "/../") {
		r.refuse("cgroupRoot", c.CgroupRoot, "want a group below the root")
	}
	if r.err != nil {
		return Config{}, r.err
	}
	return c, nil
}

// reader keeps the first fault. What it reads after that is not used.
type reader struct{ err error }

func (r *reader) refuse(field, value, want string) {
	if r.err == nil {
		r.err = fmt.Errorf("read /configz: kubeletconfig.%s is %q: %s", field, value, want)
	}
}

// word returns a value that must be one of some words; an empty one is the first of them.
func (r *reader) word(field, value string, words ...string) string {
	if value == "" {
		return words[0]
	}
	if !slices.Contains(words, value) {
		r.refuse(field, value, "want "+strings.Join(words, ", "))
	}
	return value
}

func (r *reader) cpus(field, list string) string {
	ids, err := cpuset.ParseIDs(list)
	if err != nil {
		r.refuse(field, list, err.Error())
	}
	return cpuset.FormatIDs(ids)
}

func (r *reader) milliCPU(field string, amounts map[string]string) int64 {
	text, ok := amounts[string(corev1.ResourceCPU)]
	if !ok {
		return 0
	}
	q, err := annotation.ParseQuantity(text)
	switch {
	case err != nil || q.Sign() < 0:
		r.refuse(field+"[cpu]", text, "want an amount of CPU, 0 or more")
	case q.CmpInt64(maxCPUs) > 0:
		r.refuse(field+"[cpu]", text, fmt.Sprintf("want no more than %d", maxCPUs))
	}
	return q.MilliValue()
}

// maxCPUs is more than any machine has.
const maxCPUs = 1 << 20

func (r *reader) memory(list []reservation) map[int32]corev1.ResourceList {
	var out map[int32]corev1.ResourceList
	for i, one := range list {
		if one.NUMANode < 0 || one.NUMANode > cpuset.MaxID {
			r.refuse(fmt.Sprintf("reservedMemory[%d].numaNode", i), strconv.Itoa(one.NUMANode),
				"want the id of a NUMA node")
		}
		for _, kind := range slices.Sorted(maps.Keys(one.Limits)) {
			q, err := annotation.ParseQuantity(one.Limits[kind])
			if err != nil || q.Sign() < 0 || q.CmpInt64(maxBytes) > 0 {
				r.refuse(fmt.Sprintf("reservedMemory[%d].limits[%s]", i, kind), one.Limits[kind],
					"want an amount, from 0 to 1Ei")
			}
			if out == nil {
				out = map[int32]corev1.ResourceList{}
			}
			node := int32(one.NUMANode)
			if out[node] == nil {
				out[node] = corev1.ResourceList{}
			}
			out[node][corev1.ResourceName(kind)] = *resource.NewQuantity(q.Value(), resource.BinarySI)
		}
	}
	return out
}

// maxBytes is more than any machine has.
const maxBytes = 1 << 60

// options spells those that are on as "true" and leaves those out that are off: the kubelet takes "True" and "1" too.
func options(in map[string]string) map[string]string {
	var out map[string]string
	for name, value := range in {
		if on, err := strconv.ParseBool(value); err == nil && name != annotation.OptionMaxNUMANodes {
			if !on {
				continue
			}
			value = "true"
		}
		if out == nil {
			out = map[string]string{}
		}
		out[name] = value
	}
	return out
}
