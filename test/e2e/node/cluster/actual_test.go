//go:build linux && e2e_cluster

package fabricated

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tenon-project/tenon/test/e2e/node/fold"
)

// leaf is the group of a container or sandbox, as runtime and kernel have it.
type leaf struct {
	uid, id string
	virtual fold.Set // "" is what the parent has
	log     []fold.Entry
	kernel  string // cpuset.cpus
	allowed []string
}

// leafName is a container's id.
var leafName = regexp.MustCompile(`^[0-9a-f]{64}$`) //nolint:gochecknoglobals // compiled once

// leaves returns the groups of the node's containers and sandboxes that have a process.
func (n *node) leaves() ([]leaf, error) {
	base, err := n.w.Cgroups().Path(path.Join(n.group, "kubepods"), "cpuset.cpus")
	if err != nil {
		return nil, err
	}
	base = filepath.Dir(base)
	var out []leaf
	err = filepath.WalkDir(base, func(dir string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it ended while we looked
		}
		if err != nil || !d.IsDir() || !leafName.MatchString(d.Name()) {
			return err
		}
		l, alive, err := n.leaf(dir)
		if alive {
			out = append(out, l)
		}
		return err
	})
	return out, err
}

func (n *node) leaf(dir string) (l leaf, alive bool, err error) {
	l = leaf{id: filepath.Base(dir), uid: strings.TrimPrefix(filepath.Base(filepath.Dir(dir)), "pod")}
	pids, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs")) // one that is gone has none
	if strings.TrimSpace(string(pids)) == "" {
		return l, false, nil
	}
	record, _, err := n.w.store.Get(l.id)
	if err != nil {
		return l, false, err
	}
	l.virtual, l.log = record.Set, record.Log
	if record.Next != nil {
		return l, true, fmt.Errorf("container %s is just being changed", l.id)
	}
	cpus, err := os.ReadFile(filepath.Join(dir, "cpuset.cpus"))
	if errors.Is(err, fs.ErrNotExist) {
		return l, false, nil
	}
	l.kernel = strings.TrimSpace(string(cpus))
	for _, pid := range strings.Fields(string(pids)) {
		status, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
		if err != nil {
			continue // it ended while we looked
		}
		for _, line := range strings.Split(string(status), "\n") {
			if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
				l.allowed = append(l.allowed, strings.TrimSpace(list))
			}
		}
	}
	return l, true, err
}

// managers is what the kubelet's managers recorded.
type managers struct {
	Default string                       `json:"defaultCpuSet"`
	Entries map[string]map[string]string `json:"entries"`
}

// cpuState reads cpu_manager_state.
func (n *node) cpuState() (managers, error) {
	text, err := os.ReadFile(filepath.Join(n.kubeletDir(), "cpu_manager_state"))
	if err != nil {
		return managers{}, err
	}
	var m managers
	err = json.Unmarshal(text, &m)
	return m, err
}

// given is what PodResources says that a container has.
type given struct {
	cpus   string
	memory map[string]int64 // bytes by the list of NUMA nodes that give them together
}

func (n *node) podResourcesSocket() string {
	return filepath.Join(n.kubeletDir(), "pod-resources", "kubelet.sock")
}

// podResources asks the kubelet, by pod name and container.
func (n *node) podResources(ctx context.Context) (map[string]map[string]given, error) {
	conn, err := grpc.NewClient("unix://"+n.podResourcesSocket(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	answer, err := podresources.NewPodResourcesListerClient(conn).List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	out := map[string]map[string]given{}
	for _, p := range answer.GetPodResources() {
		out[p.GetName()] = map[string]given{}
		for _, c := range p.GetContainers() {
			g := given{memory: map[string]int64{}}
			var ids []int
			for _, id := range c.GetCpuIds() {
				ids = append(ids, int(id))
			}
			g.cpus = fold.Format(sorted(ids))
			for _, m := range c.GetMemory() {
				var group []int
				for _, node := range m.GetTopology().GetNodes() {
					group = append(group, int(node.GetID()))
				}
				if m.GetMemoryType() == "memory" && len(group) > 0 {
					g.memory[fold.Format(sorted(group))] += int64(m.GetSize())
				}
			}
			out[p.GetName()][c.GetName()] = g
		}
	}
	return out, nil
}
