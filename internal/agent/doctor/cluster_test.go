package doctor_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/internal/agent/doctor"
)

// newNode is a node of a cluster before an installation.
func newNode(name, platform, runtime string, labels map[string]string, gpus int64) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	n.Status.NodeInfo.OperatingSystem, n.Status.NodeInfo.Architecture, _ = strings.Cut(platform, "/")
	n.Status.NodeInfo.ContainerRuntimeVersion = runtime
	if gpus > 0 {
		n.Status.Allocatable = corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(gpus, resource.DecimalSI)}
	}
	return n
}

func TestClusterBeforeAnInstallation(t *testing.T) {
	t.Parallel()
	ours := []string{"devices.scheduling.koordinator.sh", "reservations.scheduling.koordinator.sh"}
	const good = "ok version, ok policies, ok rights, ok namespace, ok definitions, ok schedulers, ok nodes, " +
		"ok cgroups, ok runtime-version, unknown nri, ok gpus"
	for name, c := range map[string]struct {
		change func(*doctor.ClusterView)
		want   string // the findings that differ; "" for none
		text   string // part of what is found or of the remedy
	}{
		"a fresh cluster": {change: func(*doctor.ClusterView) {}},
		"an old API server": {
			func(v *doctor.ClusterView) { v.Version = "v1.32.9" }, "fail version", "1.33 or newer",
		},
		"a version that cannot be read": {
			func(v *doctor.ClusterView) { v.Version = "main" }, "unknown version", "cannot be read",
		},
		"a vendor's version": {change: func(v *doctor.ClusterView) { v.Version = "v1.36.2-eks-1a2b3c4" }},
		"no admission policies": {
			func(v *doctor.ClusterView) { v.Policies = false }, "fail policies", "own node",
		},
		"a user without rights": {
			func(v *doctor.ClusterView) { v.Denied = []string{"create clusterroles"} },
			"fail rights", "create clusterroles",
		},
		"a namespace for privileged pods": {change: func(v *doctor.ClusterView) {
			v.Namespace.UID, v.Namespace.Labels = "1", map[string]string{level: "privileged"}
		}},
		"a namespace without a level": {change: func(v *doctor.ClusterView) { v.Namespace.UID = "1" }},
		"a namespace for restricted pods": {func(v *doctor.ClusterView) {
			v.Namespace.UID, v.Namespace.Labels = "1", map[string]string{level: "baseline"}
		}, "fail namespace", "kubectl label --overwrite namespace tenon-system " + level + "=privileged"},
		"definitions of Koordinator's release": {func(v *doctor.ClusterView) {
			v.CRDs = map[string]string{ours[0]: "koordinator-system/koordinator", "others.example.com": ""}
		}, "warn definitions", "values: crds: {skip: [" + ours[0] + "]}"},
		"definitions of this release": {change: func(v *doctor.ClusterView) {
			v.CRDs = map[string]string{ours[0]: "tenon-system/tenon"}
		}},
		"Koordinator runs": {
			func(v *doctor.ClusterView) { v.Programs = []string{"a/b", "koordinator-system/koordlet"} },
			"warn schedulers", "from-koordinator.md",
		},
		"Volcano runs": {
			func(v *doctor.ClusterView) { v.Programs = []string{"volcano-system/volcano-scheduler"} },
			"warn schedulers", "from-volcano.md",
		},
		"a node with Windows": {func(v *doctor.ClusterView) {
			v.Nodes = append(v.Nodes, newNode("w", "windows/amd64", "containerd://2.2.0", nil, 0))
		}, "warn nodes", "1 linux/amd64, 1 windows/amd64"},
		"an old runtime": {func(v *doctor.ClusterView) {
			v.Nodes = []corev1.Node{newNode("o", "linux/arm64", "containerd://1.7.27", nil, 0)}
		}, "warn runtime-version, warn nri", "update containerd to 2.2"},
		"a runtime of another kind": {func(v *doctor.ClusterView) {
			v.Nodes = []corev1.Node{newNode("o", "linux/arm64", "cri-o://1.36.0", nil, 0)}
		}, "", "without the validator while the agent is down"},
		"nodes of a local cluster": {func(v *doctor.ClusterView) {
			v.Nodes = []corev1.Node{newNode("o", "linux/arm64", "tenon://1.0.0", nil, 0)}
		}, "no nri", ""},
		"a node with old cgroups": {func(v *doctor.ClusterView) {
			v.Cgroups["b"] = "1"
		}, "warn cgroups", "version 1 on b"},
		"no kubelet answers": {func(v *doctor.ClusterView) { v.Cgroups = nil }, "unknown cgroups", ""},
		"a device plugin": {func(v *doctor.ClusterView) {
			v.Nodes[0] = newNode("g", "linux/amd64", "containerd://2.2.0",
				map[string]string{"feature.node.kubernetes.io/pci-0302_10de.present": "true"}, 8)
		}, "warn gpus", "move-gpus.md"},
		"a device plugin without a feature discovery": {func(v *doctor.ClusterView) {
			v.Nodes[0] = newNode("g", "linux/amd64", "containerd://2.2.0", nil, 8)
		}, "warn gpus", "kubectl label node g nvidia.com/gpu.present=true"},
		"cards without a device plugin": {change: func(v *doctor.ClusterView) {
			v.Nodes[0].Labels = map[string]string{"nvidia.com/gpu.present": "true"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := doctor.ClusterView{
				Version: "v1.36.3", Policies: true, CRDs: map[string]string{}, Cgroups: map[string]string{"a": "2"},
				Programs:  []string{"kube-system/coredns"},
				Nodes:     []corev1.Node{newNode("a", "linux/amd64", "containerd://2.2.0", nil, 0)},
				Namespace: corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenon-system"}},
			}
			c.change(&v)
			var all []string
			text := ""
			for _, f := range doctor.Cluster(v, ours) {
				all = append(all, fmt.Sprint(f.Status, " ", f.Check))
				if f.Status != doctor.OK {
					text += f.Found + f.Why + f.Remedy
				}
				if f.Status != doctor.OK && (f.Why == "" || f.Remedy == "") {
					t.Errorf("no reason or remedy: %+v", f)
				}
			}
			want := good
			for _, differs := range strings.Split(c.want, ", ") {
				if _, check, found := strings.Cut(differs, " "); found {
					want = regexp.MustCompile(`\w+ `+check+`, |\w+ `+check+`$`).ReplaceAllString(want, differs+", ")
				}
			}
			want = strings.TrimSuffix(strings.Replace(want, "no nri, ", "", 1), ", ")
			if got := strings.Join(all, ", "); got != want || !strings.Contains(text, c.text) {
				t.Errorf("got  %s\nwant %s\n%q in %s", got, want, c.text, text)
			}
		})
	}
}

const level = "pod-security.kubernetes.io/enforce"
