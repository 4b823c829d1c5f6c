package hook

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// container is what is known of a container. Service.mu guards it.
type container struct {
	// uid is the UID of the pod, sandbox the id of its sandbox, group the container's cgroup; "" if the runtime reports
	// none.
	uid, group, name, sandbox string
	// ended reports that the container's processes have ended. No more sets are pushed for it.
	ended bool
	cpuSets
	deviceView
}

// deviceView is what is known of the devices of one container, on a node with devices.
type deviceView struct {
	// visible are the GPUs that the container's environment names.
	visible []host.Device
	// seen is the last report of the runtime; nil on a node without devices.
	seen *Container
	// mismatch says which devices the container was last found to have too many or to lack, and since is when this was
	// found first; "" if it has its own. reported is set once the mismatch was reported.
	mismatch string
	since    time.Time
	reported bool
}

// record stores what the runtime reports of a container.
func (s *Service) record(c *Container) *container {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.containers[c.ID]
	if known == nil {
		known = &container{}
		if c.ID != "" {
			s.containers[c.ID] = known
		}
	}
	known.uid, known.name, known.sandbox, known.ended = c.UID, c.Name, c.Pod.ID, c.Ended
	if s.o.Agent.Devices().HasDevices() {
		seen := *c
		seen.Devices = inject.Sight{Privileged: c.Devices.Privileged, Files: c.Devices.Files}
		known.seen = &seen
	}
	if at := groupOf(c.Cgroup); at != "" && c.ID != "" {
		known.group = at
	}
	if c.Has.CPUs != "" {
		known.stored = c.Has.CPUs
	}
	if c.Devices.Env != nil {
		known.visible = inject.Visible(c.Devices.Env)
	}
	return known
}

// dropReplaced drops the containers that c replaces: a runtime that reports no groups, such as a runtime proxy, reports
// no removals either. A container for which a write is pending is kept.
func (s *Service) dropReplaced(c *Container) {
	if c.ID == "" || c.Name == "" {
		return
	}
	now := s.o.Clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.containers, func(id string, x *container) bool {
		return id != c.ID && x.uid == c.UID && x.name == c.Name && x.group == "" &&
			!slices.ContainsFunc(
				x.pending[:],
				func(w pendingWrite) bool { return w.isPending(now) },
			) && len(x.shrunk) == 0
	})
}

// identify returns a container with the group and the pod that the runtime reported before, if it reports none now.
func (s *Service) identify(c *Container) apply.Container {
	e := engineContainer(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.containers[c.ID]; known != nil && e.Group == "" {
		e.Group, e.PodUID = known.group, known.uid
	}
	return e
}

// engineContainer translates a container to the terms of the engine.
func engineContainer(c *Container) apply.Container {
	return apply.Container{
		PodUID: c.UID, ID: c.ID, Name: c.Name, Group: groupOf(c.Cgroup), PodGroup: apply.SliceGroup(c.Pod.Cgroup),
	}
}

// trusted returns a pod without the labels and annotations that do not count.
func (s *Service) trusted(p *Pod) *Pod {
	if s.o.Agent.Trust(p) != Untrusted {
		return p
	}
	plain := *p
	plain.Labels, plain.Annotations = convert.WithoutKeys(p.Labels), convert.WithoutKeys(p.Annotations)
	return &plain
}

// podOf translates a sandbox: its cgroup shows the pod's class of Kubernetes.
func (s *Service) podOf(p *Pod) desired.Pod {
	p = s.trusted(p)
	group := apply.SliceGroup(p.Cgroup)
	class := qos.Guaranteed
	switch {
	case strings.Contains(group, "besteffort"):
		class = qos.BestEffort
	case strings.Contains(group, "burstable"):
		class = qos.Burstable
	}
	d := desired.FromSandbox(convert.Sandbox{
		UID: p.UID, Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Annotations: p.Annotations, Kube: class,
	})
	d.Cgroup = group
	return d
}

// resources are the rows of one container in the terms of runtimes.
func resources(rows []desired.Row) Resources {
	var r Resources
	for _, row := range rows {
		switch row.File {
		case desired.CPUs:
			r.CPUs = row.Value
		case desired.Mems:
			r.Mems = row.Value
		case desired.QuotaV1, desired.QuotaV2:
			quota := number(row.Value)
			r.Quota = &quota
		case desired.SharesV1:
			r.Shares = number(row.Value)
		case desired.WeightV2:
			r.Weight = number(row.Value)
		case desired.MemoryV1, desired.MemoryV2:
			r.Memory = max(number(row.Value), 0) // no limit is what a container has anyway
		}
	}
	return r
}

// number returns the number in a value of a row; -1 for "max".
func number(value string) int64 {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// groupOf returns the group of a container, relative to the root of the tree, from the path that the runtime reports:
//
//	/kubepods/burstable/pod12/ID               the cgroupfs driver
//	kubepods-burstable-pod12.slice:crio:ID     the systemd driver: slice, prefix of the scope, id
//
// It is "" where the runtime reports none.
func groupOf(cgroup string) string {
	slice, rest, scoped := strings.Cut(cgroup, ":")
	if !scoped {
		return apply.SliceGroup(cgroup)
	}
	prefix, id, _ := strings.Cut(rest, ":")
	if prefix != "" {
		id = prefix + "-" + id
	}
	if strings.Contains(id, "/") {
		return "" // no unit has such a name
	}
	if slice == "" {
		slice = "system.slice" // systemd's own default
	}
	return path.Join(apply.SliceGroup(slice), id+".scope")
}
