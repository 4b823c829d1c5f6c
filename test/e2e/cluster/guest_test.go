//go:build linux && e2e_install

package installed

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/guest"
	"github.com/tenon-project/tenon/test/e2e/node/guest/vm"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

const (
	guestName = "guest"
	// guestVariable names the disk of the guest, which has booted and is saved.
	guestVariable = "TENON_STAGE_GUEST"
	// guestPods is the network of the guest's pods, as its image has it.
	guestPods = "10.77.1.0/24"
	// guestPatience bounds a wait for pods of the guest: an emulated machine is slow.
	guestPatience = 8 * time.Minute
)

// guestShape is a machine of two sockets, a NUMA node each. One thread emulates all CPUs in turn: the more there are,
// the longer each waits.
func guestShape() vm.Shape {
	return vm.Shape{
		Name: "cluster2", Sockets: 2, Dies: 1, Cores: 2, Threads: 1, MemoryMiB: 1024, Tap: "guest0",
		Distance: [][]int{{10, 21}, {21, 10}},
	}
}

func guestImage() vm.Image { return vm.Image{Dir: stage.Tools("guest")} }

// prepareGuest boots the guest and saves it, once.
func prepareGuest() error {
	if err := guestImage().Sweep(); err != nil {
		return err
	}
	disk, err := guestImage().Prepare(context.Background(), guestShape(), guest.Ready)
	if err != nil {
		return fmt.Errorf("the guest (make test-cluster builds what it boots): %w", err)
	}
	return os.Setenv(guestVariable, disk)
}

// joinGuest makes a virtual machine the second node, which lasts as long as the installation. The agent comes to it by
// itself.
func (c *cluster) joinGuest(t, life *testing.T) {
	shape, archives := guestShape(), map[string]string{
		"previous.tar": filepath.Join(os.Getenv(previousVariable), "images", agent+".tar"), // what upgrade runs on it
	}
	for _, program := range []string{scheduler, manager, "tenon-descheduler", agent} {
		archives[program+".tar"] = filepath.Join(os.Getenv(imagesVariable), program+".tar")
	}
	t.Setenv("TMPDIR", c.Dir()) // nothing of the guest outlives the stage
	machine, err := guestImage().Start(t.Context(), shape, os.Getenv(guestVariable), archives)
	testkit.Check(t, err)
	c.guest = &guest.Node{
		Name: guestName, Shape: shape, Guest: machine, Kubelet: guest.KubeletPolicy{CPUManager: "none", Reserved: "0"},
	}
	life.Cleanup(func() {
		if life.Failed() {
			life.Logf("%s\n%s", c.guest.Logs(context.Background(), "kubelet", "containerd"), machine.Console())
		}
		if err := machine.Stop(); err != nil {
			life.Error(err)
		}
	})
	stage.Connect(t, shape.Tap, netip.MustParsePrefix(vm.Host+"/24"), netip.MustParsePrefix(guestPods),
		netip.MustParseAddr(vm.Address))
	_, err = machine.Run(t.Context(), "set -e\nfor archive in "+vm.Programs+"/*.tar; do "+
		"ctr -n k8s.io images import $archive; done")
	testkit.Check(t, err)
	credentials, err := guest.Credentials(c.authority, guestName, &api.Cluster{
		Server: "https://" + serviceAddress + ":443", CertificateAuthorityData: c.server.Authority,
	})
	testkit.Check(t, err)
	testkit.Check(t, c.guest.Join(t.Context(), credentials))
	stage.AwaitWithin(t, guestPatience, "the agent on the guest", func() error {
		p, err := c.guestAgent(t.Context())
		if err == nil && !isReady(p) {
			err = errors.New(state(p))
		}
		return err
	})
	c.isWell(t)
}

// guestAgent returns the agent's pod on the guest.
func (c *cluster) guestAgent(ctx context.Context) (*corev1.Pod, error) {
	list, err := c.client.CoreV1().Pods(home).List(ctx, metav1.ListOptions{
		LabelSelector: componentLabel + "=" + agent, FieldSelector: "spec.nodeName=" + guestName,
	})
	if err == nil && len(list.Items) != 1 {
		err = fmt.Errorf("%d agents", len(list.Items))
	}
	if err != nil {
		return nil, err
	}
	return &list.Items[0], nil
}

// guestWorkload is a pod for the guest.
func guestWorkload(name, class, cpu string) *corev1.Pod {
	p := workload("guest-"+name, class, cpu)
	p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: guestName}
	return p
}

// landOnGuest leaves pods on the guest. The LSR pod's CPUs are all of a NUMA node.
func (c *cluster) landOnGuest(t *testing.T) {
	lsr := guestWorkload("lsr", "LSR", "2")
	lsr.Annotations = map[string]string{annotation.NUMATopologySpecKey: `{"numaTopologyPolicy":"SingleNUMANode"}`}
	pods := c.createAsPredicted(t, lsr, guestWorkload("be", "BE", ""), guestWorkload("ls", "LS", "50m"))
	c.holds(t, c.boundOnGuest(t))

	status, _, err := annotation.ParseResourceStatus(pods[0].Annotations[annotation.ResourceStatusKey])
	testkit.Check(t, err)
	if len(status.NUMANodeResources) != 1 {
		t.Fatalf("%s has resources of %d NUMA nodes, want 1", pods[0].Name, len(status.NUMANodeResources))
	}
	node := int(status.NUMANodeResources[0].Node)
	first, last := c.guest.Shape.NodeCPUs(node)
	want := cpuset.Span(first, last)
	groups, err := c.guest.Look(t.Context())
	testkit.Check(t, err)
	own, _ := guest.Containers(groups, pods[0].UID)
	for _, g := range own {
		got := []string{g.Files["cpuset.cpus.effective"], g.Files["cpuset.mems.effective"], g.Processes[0].Mems}
		if diff := cmp.Diff([]string{want.String(), fmt.Sprint(node), fmt.Sprint(node)}, got); diff != "" {
			t.Errorf("%s: CPUs, memory of the group, of the process (-want +got):\n%s", g.Path, diff)
		}
	}
}

// boundOnGuest returns the pods that landOnGuest left, with their CPUs.
func (c *cluster) boundOnGuest(t *testing.T) map[*corev1.Pod]string {
	t.Helper()
	pods := c.workloads(t, guestName, "guest-be", "guest-ls", "guest-lsr")
	own, err := cpuset.Parse(allocated(t, pods["guest-lsr"]))
	testkit.Check(t, err)
	all := cpuset.Span(0, c.guest.Shape.CPUs()-1)
	pool := all.Minus(own)
	return map[*corev1.Pod]string{
		pods["guest-lsr"]: own.String(), pods["guest-be"]: all.String(), pods["guest-ls"]: pool.String(),
	}
}

// confinedOnGuest is confined for a pod of the guest.
func (c *cluster) confinedOnGuest(p *corev1.Pod, cpus string) error {
	want, err := cpuset.Parse(cpus)
	if err != nil {
		return err
	}
	groups, err := c.guest.Look(context.Background())
	if err != nil {
		return err
	}
	return guest.Confined(groups, p, want)
}

// outliveGuestAgent kills the agent of the guest. It comes back, and a pod that is created then runs.
func (c *cluster) outliveGuestAgent(t *testing.T) {
	end := c.keep(t, c.boundOnGuest(t))
	before, err := c.guestAgent(t.Context())
	testkit.Check(t, err)
	testkit.Check(t, c.guest.Kill(t.Context(), "KILL", agent))
	stage.AwaitWithin(t, guestPatience, "the agent to be back", func() error {
		p, err := c.guestAgent(t.Context())
		if err == nil && (!isReady(p) ||
			p.Status.ContainerStatuses[0].RestartCount == before.Status.ContainerStatuses[0].RestartCount) {
			err = errors.New(state(p))
		}
		return err
	})
	c.remove(t, c.create(t, guestWorkload("later", "LS", "10m"))...)
	end()
}

// areSpread wants the replicas of each component on different nodes.
func (c *cluster) areSpread(t *testing.T) {
	t.Helper()
	for _, component := range []string{scheduler, manager} {
		var nodes []string
		for _, p := range c.pods(t, component) {
			nodes = append(nodes, p.Spec.NodeName)
		}
		if len(nodes) != 2 || nodes[0] == nodes[1] {
			t.Errorf("%s runs on %s, want one on each node", component, strings.Join(nodes, ", "))
		}
	}
}
