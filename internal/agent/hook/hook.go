package hook

import (
	"context"

	"github.com/tenon-project/tenon/internal/agent/inject"
)

// Pod is a sandbox as a container runtime reports it.
type Pod struct {
	// ID is the sandbox's.
	ID                   string
	UID, Namespace, Name string
	// Labels and Annotations are those of the moment at which the sandbox was run.
	Labels, Annotations map[string]string
	// Cgroup is the pod's group as the runtime names it: a path below the root of the tree with the cgroupfs driver,
	// the name of a slice with the systemd driver; "" where the runtime reports none.
	Cgroup string
}

// Container is a container as a container runtime reports it.
type Container struct {
	Pod
	// ID is the container's; "" before a CRI runtime has given it one.
	ID, Name string
	// Cgroup is the container's group as the runtime names it: a path, or slice:prefix:id; "" where the runtime reports
	// none, or has not created it yet. It shadows the pod's.
	Cgroup string
	// Has is what the runtime has set for the container, or is about to set.
	Has Resources
	// Devices are what it is to be created with, before the agent's answer or, for CheckDevices, after all answers.
	Devices inject.Sight
	// Running is false for a container whose first process has not started or has ended, Ended true for the latter.
	Running, Ended bool
}

// Resources are settings of one container. Zero fields mean "not set" in a report, and "unchanged" in a request.
type Resources struct {
	// CPUs and Mems are cpuset.cpus and cpuset.mems in list format.
	CPUs, Mems string
	// Quota is the CFS quota in microseconds a period; -1 is none.
	Quota *int64
	// Shares is the CPU weight of cgroup v1, Weight that of v2, Memory the limit in bytes; 0 is none.
	Shares, Weight, Memory int64
}

// Update is a change of a container that exists already.
type Update struct {
	ContainerID string
	Resources
}

// Handler is what the transports ask at the steps of a container's life, and the source of the updates that they push.
// Its methods are safe for concurrent use, answer from memory but for Start, and never call back into a transport. An
// error means that the step must not happen now; it is an *apply.Blocked if the pod's allocation is the reason.
type Handler interface {
	// Ready reports whether containers can be decided about: a transport connects no earlier.
	Ready() bool
	// Sync replaces all earlier state with what a runtime has. Pods and containers come in any order.
	Sync(pods []Pod, containers []Container)
	// RunPod comes before a sandbox is run; its containers follow.
	RunPod(ctx context.Context, p Pod) error
	// RemovePod reports that a sandbox and all its containers are removed.
	RemovePod(p Pod)
	// Create answers what to set on a container before it exists, and what has to change on others first.
	Create(ctx context.Context, c Container) (Resources, []Update, error)
	// Devices answers which devices a container sees that is to be created. It waits for nothing, so that it is asked
	// without a time limit.
	Devices(c Container) (inject.Answer, error)
	// CheckDevices rejects a container that is to be created with other devices than its own.
	CheckDevices(c Container) error
	// Check rejects a container whose settings, c.Has, differ from those that Create returned: another writer changed
	// them.
	Check(ctx context.Context, c Container) error
	// Start is the last gate before the first process: the kernel has the requested settings, and no other container
	// can run on exclusive CPUs. Where the runtime creates the container's group only with that process, Start is
	// called twice: before, with what the runtime will write in c.Has, and with c.Running set, to check the result.
	Start(ctx context.Context, c Container) error
	// Update returns the values to set instead of those that another writer requests.
	Update(ctx context.Context, c Container, asked Resources) (Resources, error)
	// Updated reports that the values that Update returned are in force.
	Updated(c Container)
	// Stop reports that the processes have ended, Remove that the container is removed.
	Stop(c Container)
	Remove(c Container)
	// Updates has a token while there are updates to push to the runtime. NextUpdates returns those to push next; none
	// when there are no more. UpdatesDone reports that the runtime has made them, or never will.
	Updates() <-chan struct{}
	NextUpdates() []Update
	UpdatesDone(updates []Update)
}
