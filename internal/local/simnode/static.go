package simnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// static plays the kubelet's static CPU manager: at admission it pins every container of a Guaranteed pod that asks for
// whole CPUs, and it keeps cpu_manager_state, which the agent reads. A nil *static is the policy none.
type static struct {
	file      string
	machine   *topo.Machine
	wholeOnly bool

	mu   sync.Mutex // guards the fields below and the file
	free cpuset.Set
	pins map[types.UID]map[string]cpuset.Set // by pod and container
}

// refusal is why a kubelet does not admit a pod.
type refusal struct{ reason, text string }

func openStatic(root host.Root, k host.Kubelet, m *topo.Machine, reserved cpuset.Set) (*static, error) {
	s := &static{
		file: root.Path("var", "lib", "kubelet", "cpu_manager_state"), machine: m,
		wholeOnly: k.CPUOptions["full-pcpus-only"] == "true",
		free:      m.Online().Minus(reserved), pins: map[types.UID]map[string]cpuset.Set{},
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s, s.save()
}

// cpuState is the file of the kubelet's CPU manager.
type cpuState struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries,omitempty"`
	Checksum      uint32                       `json:"checksum"`
}

func (s *static) load() error {
	text, err := os.ReadFile(s.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var state cpuState
	if err := json.Unmarshal(text, &state); err != nil {
		return fmt.Errorf("%s: %w", s.file, err)
	}
	for uid, containers := range state.Entries {
		for name, list := range containers {
			set, _, err := s.machine.ParseList(list)
			if err != nil {
				return fmt.Errorf("%s: %w", s.file, err)
			}
			s.pin(types.UID(uid), name, set)
		}
	}
	return nil
}

func (s *static) pin(uid types.UID, name string, set cpuset.Set) {
	if s.pins[uid] == nil {
		s.pins[uid] = map[string]cpuset.Set{}
	}
	s.pins[uid][name] = set
	s.free = s.free.Minus(set)
}

func (s *static) save() error {
	state := cpuState{PolicyName: "static", Entries: map[string]map[string]string{}}
	pool := s.machine.Online()
	for uid, containers := range s.pins {
		lists := make(map[string]string, len(containers))
		for name, set := range containers {
			lists[name] = s.machine.FormatList(set)
			pool = pool.Minus(set)
		}
		state.Entries[string(uid)] = lists
	}
	state.DefaultCPUSet = s.machine.FormatList(pool)
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(s.file+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(s.file+".new", s.file)
}

// admit pins the containers of a pod, or says why it cannot run here.
func (s *static) admit(obj *corev1.Pod) *refusal {
	if s == nil || obj.Status.QOSClass != corev1.PodQOSGuaranteed {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pins[obj.UID] != nil {
		return nil
	}
	var taken []string
	for _, c := range pinnable(obj) {
		n := int(c.Resources.Requests.Cpu().Value())
		if t := s.machine.ThreadsPerCore(); s.wholeOnly && n%t != 0 {
			s.giveBack(obj.UID)
			return &refusal{"SMTAlignmentError", fmt.Sprintf("container %s asks for %d CPUs, not a multiple of the %d threads of a core", c.Name, n, t)}
		}
		r, why := cpualloc.Allocate(cpualloc.State{Machine: s.machine, Free: s.free},
			cpualloc.Request{Count: n, Bind: cpualloc.FullPCPUs, Required: s.wholeOnly, Strategy: cpualloc.MostAllocated})
		if !why.OK() {
			left := s.free.Len()
			s.giveBack(obj.UID)
			return &refusal{"UnexpectedAdmissionError", fmt.Sprintf("container %s asks for %d CPUs, the static CPU manager has %d", c.Name, n, left)}
		}
		s.pin(obj.UID, c.Name, r.CPUs)
		taken = append(taken, c.Name)
	}
	if len(taken) > 0 {
		if err := s.save(); err != nil {
			s.giveBack(obj.UID)
			return &refusal{"UnexpectedAdmissionError", err.Error()}
		}
	}
	return nil
}

// pinnable returns the containers that get CPUs of their own: those that stay and ask for whole CPUs.
func pinnable(obj *corev1.Pod) []*corev1.Container {
	var out []*corev1.Container
	consider := func(c *corev1.Container) {
		if milli := c.Resources.Requests.Cpu().MilliValue(); milli >= 1000 && milli%1000 == 0 {
			out = append(out, c)
		}
	}
	for i := range obj.Spec.InitContainers {
		if isSidecar(&obj.Spec.InitContainers[i]) {
			consider(&obj.Spec.InitContainers[i])
		}
	}
	for i := range obj.Spec.Containers {
		consider(&obj.Spec.Containers[i])
	}
	return out
}

// cpus returns what a container is pinned to, in list format; "" when it is not.
func (s *static) cpus(uid types.UID, container string) string {
	if s == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine.FormatList(s.pins[uid][container])
}

// release gives the CPUs of a pod back. A file that cannot be written now is written with the next change.
func (s *static) release(uid types.UID) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pins[uid] != nil {
		s.giveBack(uid)
		_ = s.save()
	}
}

func (s *static) giveBack(uid types.UID) {
	for _, set := range s.pins[uid] {
		s.free = s.free.Union(set)
	}
	delete(s.pins, uid)
}
