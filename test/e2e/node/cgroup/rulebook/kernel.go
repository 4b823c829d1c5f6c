package rulebook

import (
	"errors"
	"strings"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/local/kernel"
)

// Kernel is a cgroup kernel on which the stories can be run. Groups are paths below a folder that only the story
// uses; files have the names of the kernel's dialect. Refusals wrap the errno that the kernel gave.
type Kernel interface {
	Mkdir(group string) error
	Rmdir(group string) error
	Read(group, file string) (string, error)
	Write(group, file, value string) error
	// Spawn starts a task in a group, Fork a child of a task. They return the task's number.
	Spawn(group string) (pid int, err error)
	Fork(pid int) (child int, err error)
	// Kill ends every task of a group and below, and returns when they are dead.
	Kill(group string) error
	// Affinity is sched_setaffinity of a task, Allowed the CPUs that the kernel lets it run on, both in list format.
	Affinity(pid int, cpus string) error
	Allowed(pid int) (string, error)
	// Online sets whether CPU 1 is online. It is ErrHandsOff where that CPU is none of the test's business.
	Online(on bool) error
}

// ErrHandsOff is the answer of a machine that is not the test's to change in this way. The story is left out.
var ErrHandsOff = errors.New("the machine is not the test's own")

// Simulated is a Kernel over a simulated tree.
type Simulated struct{ *kernel.Tree }

var _ Kernel = Simulated{}

// Affinity sets a task's own wish.
func (s Simulated) Affinity(pid int, cpus string) error {
	set, err := cpuset.Parse(cpus)
	if err == nil {
		s.Tree.Affinity(pid, set)
	}
	return err
}

// Allowed returns where a task may run.
func (s Simulated) Allowed(pid int) (string, error) {
	return strings.TrimSpace(s.Tree.Allowed(pid).String()), nil
}

// Online takes CPU 1 away or brings it back.
func (s Simulated) Online(on bool) error {
	cpus := cpuset.MustParse("0")
	if on {
		cpus = cpuset.MustParse("0-1")
	}
	return s.Tree.Online(cpus)
}
