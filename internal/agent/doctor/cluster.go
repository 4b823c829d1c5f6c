package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// ClusterView is what the API says of a cluster that is to get Tenon.
type ClusterView convert.ClusterObjects

// The oldest Kubernetes that the chart takes.
const oldestKubernetes = "1.33"

// Cluster checks before an installation what a cluster lacks, and what of it another program has. ours are the names of
// the chart's CustomResourceDefinitions.
func Cluster(v ClusterView, ours []string) []Finding {
	var all findings
	all.add("version", v.version())
	all.add("policies", v.policies())
	all.add("rights", v.rights())
	all.add("namespace", v.level())
	all.add("definitions", v.definitions(ours))
	all.add("schedulers", v.programs()...)
	all.add("nodes", v.platforms())
	all.add("cgroups", v.cgroups())
	all.add("runtime-version", v.runtimes()...)
	all.add("nri", v.nri()...)
	all.add("gpus", v.gpus())
	return all
}

func (v *ClusterView) version() Finding {
	f := ok("API server", "%s", v.Version)
	old, readable := isBefore(v.Version, oldestKubernetes)
	switch {
	case !readable:
		return f.Because(Unknown, "its version cannot be read", "install on Kubernetes "+oldestKubernetes+" or newer")
	case old:
		return f.Because(Fail, "the chart refuses it: nothing of Tenon is tested with it",
			"update the control plane to "+oldestKubernetes+" or newer")
	}
	return f
}

func (v *ClusterView) policies() Finding {
	const where = "admissionregistration.k8s.io/v1"
	if !v.Policies {
		return ok(where, "no ValidatingAdmissionPolicy").Because(Fail,
			"nothing would limit an agent to the objects of its own node",
			"serve admissionregistration.k8s.io/v1 and its admission plugin ValidatingAdmissionPolicy")
	}
	return ok(where, "ValidatingAdmissionPolicy")
}

func (v *ClusterView) rights() Finding {
	if len(v.Denied) > 0 {
		return ok("you", "may not %s", strings.Join(v.Denied, ", ")).Because(Fail,
			"helm install would stop half-way", "install as a user with the ClusterRole cluster-admin")
	}
	return ok("you", "may install the chart")
}

func (v *ClusterView) level() Finding {
	const key = "pod-security.kubernetes.io/enforce"
	where := "namespace " + v.Namespace.Name
	if v.Namespace.UID == "" {
		return ok(where, "does not exist yet: kubectl create namespace %s", v.Namespace.Name)
	}
	level, set := v.Namespace.Labels[key]
	switch {
	case !set:
		return ok(where, "no label %s: the default of the cluster holds", key)
	case level == "privileged":
		return ok(where, "%s=%s", key, level)
	}
	return ok(where, "%s=%s", key, level).Because(Fail,
		"the agent's pods are refused there: they use the network, the processes and some folders of their node",
		fmt.Sprintf("kubectl label --overwrite namespace %s %s=privileged", v.Namespace.Name, key))
}

func (v *ClusterView) definitions(ours []string) Finding {
	const where = "CustomResourceDefinitions"
	var others []string
	there := 0
	for _, name := range ours {
		release, exists := v.CRDs[name]
		if !exists {
			continue
		}
		there++
		if release != v.Namespace.Name+"/tenon" {
			others = append(others, name)
		}
	}
	if len(others) > 0 {
		return ok(where, "%d of %d belong to another program", len(others), len(ours)).Because(Warn,
			"Helm stops at an object that is not of its release",
			"leave them to their owner, in the chart's values: crds: {skip: ["+strings.Join(others, ", ")+"]}")
	}
	return ok(where, "%d of %d exist", there, len(ours))
}

// others are the programs that do what Tenon does, with the page that describes the move.
var others = map[string]string{ //nolint:gochecknoglobals // a constant
	"koord-scheduler": "from-koordinator.md", "koord-manager": "from-koordinator.md",
	"koordlet": "from-koordinator.md", "koord-descheduler": "from-koordinator.md",
	"volcano-scheduler": "from-volcano.md",
}

func (v *ClusterView) programs() (found []Finding) {
	for _, program := range v.Programs {
		_, name, _ := strings.Cut(program, "/")
		if page := others[name]; page != "" {
			found = append(found, ok(program, "runs").Because(Warn,
				"it decides about pods, nodes or objects that Tenon decides about, too",
				"move step by step: docs/start/"+page))
		}
	}
	if found == nil {
		return []Finding{ok("", "none that does what Tenon does")}
	}
	return found
}

func (v *ClusterView) platforms() Finding {
	count := map[string]int{}
	var left []string
	for i := range v.Nodes {
		info := &v.Nodes[i].Status.NodeInfo
		platform := info.OperatingSystem + "/" + info.Architecture
		if count[platform]++; platform != "linux/amd64" && platform != "linux/arm64" {
			left = append(left, v.Nodes[i].Name)
		}
	}
	var parts []string
	for _, platform := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d %s", count[platform], platform))
	}
	f := ok("", "%s", strings.Join(parts, ", "))
	if len(left) > 0 {
		slices.Sort(left)
		f = f.Because(Warn, "Tenon has no image for "+strings.Join(left, ", ")+": no pod gets exclusive CPUs there",
			"nothing is to be done where that is meant")
	}
	return f
}

// byRuntime returns the names of nodes by their container runtime.
func (v *ClusterView) byRuntime() map[string][]string {
	nodes := map[string][]string{}
	for i := range v.Nodes {
		text := v.Nodes[i].Status.NodeInfo.ContainerRuntimeVersion
		nodes[text] = append(nodes[text], v.Nodes[i].Name)
	}
	return nodes
}

func andMore(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return fmt.Sprintf("%s and %d more", names[0], len(names)-1)
}

// runtimes judges each release of a container runtime once.
func (v *ClusterView) runtimes() (found []Finding) {
	nodes := v.byRuntime()
	for _, text := range slices.Sorted(maps.Keys(nodes)) {
		where := andMore(nodes[text])
		name, version, readable := strings.Cut(text, "://")
		switch {
		case name == simulated:
			found = append(found, ok(where, "%s: a simulated node", text))
		case readable:
			found = append(found, versionFinding(where, name, version))
		default:
			found = append(found, unknown(where, "%q", text))
		}
	}
	return found
}

func (v *ClusterView) cgroups() Finding {
	var old, others []string
	for _, node := range slices.Sorted(maps.Keys(v.Cgroups)) {
		switch v.Cgroups[node] {
		case "1":
			old = append(old, node)
		case "2":
			others = append(others, node)
		}
	}
	const where = "kubelet_cgroup_version"
	switch {
	case len(old) > 0:
		return ok(where, "version 1 on %s", strings.Join(old, ", ")).Because(Warn,
			"Tenon works there, and a kubelet of 1.35 or newer does not start unless its failCgroupV1 is false",
			"start the node's kernel with systemd.unified_cgroup_hierarchy=1")
	case len(others) == 0:
		return ok(where, "no kubelet that was asked says it").Because(Unknown,
			"a kubelet of 1.35 or newer does not start with cgroups of version 1 by itself",
			"run tenon doctor on the nodes")
	}
	return ok(where, "version 2 on %s", strings.Join(others, ", "))
}

// nri says what a runtime does by itself: no API shows the settings of a node.
func (v *ClusterView) nri() (found []Finding) {
	const page = "docs/guide/run-the-agent.md#the-container-runtime"
	nodes := v.byRuntime()
	for _, text := range slices.Sorted(maps.Keys(nodes)) {
		name, version, _ := strings.Cut(text, "://")
		old, readable := isBefore(version, "2.0")
		switch where := andMore(nodes[text]); {
		case name == simulated:
		case name == "containerd" && readable && old:
			found = append(found, ok(where, "off in %s, unless the node's file switches it on", text).Because(Warn,
				"without NRI containers start on all CPUs and see no cards of Tenon",
				"switch it on, as "+page+" shows, and run tenon doctor on the node"))
		default:
			f := ok(where, "%s: the node's file says whether it and its validator are on", text)
			found = append(found, f.Because(Unknown,
				"without NRI containers start on all CPUs, without the validator while the agent is down",
				"run tenon doctor on the node; the settings are in "+page))
		}
	}
	return found
}

// ReporterLabels are those of the nodes on which the chart runs its reporter of NVIDIA's cards by itself.
var ReporterLabels = []string{ //nolint:gochecknoglobals // a constant
	"nvidia.com/gpu.present", "feature.node.kubernetes.io/pci-10de.present",
	"feature.node.kubernetes.io/pci-0300_10de.present", "feature.node.kubernetes.io/pci-0302_10de.present",
}

func (v *ClusterView) gpus() Finding {
	cards, offered := 0, 0
	var unlabelled []string
	drivers := map[string]bool{}
	for i := range v.Nodes {
		n := &v.Nodes[i]
		labelled := slices.ContainsFunc(ReporterLabels, func(key string) bool { return n.Labels[key] == "true" })
		plugin := n.Status.Allocatable["nvidia.com/gpu"]
		if labelled || !plugin.IsZero() {
			cards++
		}
		if !plugin.IsZero() {
			offered++
			if !labelled {
				unlabelled = append(unlabelled, n.Name)
			}
		}
		if driver := n.Labels["nvidia.com/cuda.driver-version.full"]; driver != "" {
			drivers[driver] = true
		}
	}
	if cards == 0 {
		return ok("", "no node says that it has cards of NVIDIA")
	}
	driver := "no label says its version; see tenon doctor gpu on a node"
	if len(drivers) > 0 {
		driver = strings.Join(slices.Sorted(maps.Keys(drivers)), ", ")
	}
	f := ok("", "%s with cards of NVIDIA; the device plugin offers those of %d; driver: %s", view.Count(cards, "node"),
		offered, driver)
	if len(unlabelled) > 0 {
		return f.Because(Warn, "no label of a feature discovery is on "+andMore(unlabelled)+
			": there nothing would ask nvidia-smi about memory, links and health",
			"kubectl label node "+strings.Join(unlabelled, " ")+" "+ReporterLabels[0]+"=true")
	}
	if offered > 0 {
		return f.Because(Warn, "parts of cards and whole cards of Tenon must not be the device plugin's, too",
			"install with --set nvidia.enabled=true, and move node by node: docs/guide/move-gpus.md")
	}
	return f.Because(OK, "", "install with --set nvidia.enabled=true")
}
