package wire

// Request asks the guest for something.
type Request struct {
	// ID comes back in the answer. Answers may overtake each other.
	ID int `json:"id"`
	// Clock is set first, in nanoseconds since 1970; 0 leaves the clock alone.
	Clock int64 `json:"clock,omitempty"`
	// Run is a script for the guest's shell; "" runs nothing.
	Run string `json:"run,omitempty"`
	// LimitMillis ends the script with all its children in the foreground; 0 means without limit.
	LimitMillis int64 `json:"limitMillis,omitempty"`
}

// Answer is what became of a request.
type Answer struct {
	ID int `json:"id"`
	// Code is the script's exit code; -1 when it could not be run or took longer than its limit.
	Code int `json:"code"`
	// Out is what it wrote to its standard output and error output, Error why Code is -1.
	Out   string `json:"out,omitempty"`
	Error string `json:"error,omitempty"`
}

// Watched is what `inside watch` prints.
type Watched struct {
	// Rounds is how often all groups were read.
	Rounds int `json:"rounds"`
	// Owners is how many containers with exclusive CPUs were seen.
	Owners int `json:"owners"`
	// Pools are the sets of CPUs that LS containers were seen with.
	Pools []string `json:"pools"`
	// Problems are pairs of containers that shared a CPU that was exclusive to one of them.
	Problems []string `json:"problems"`
}

// Group is what `inside look` prints of one cgroup that holds processes.
type Group struct {
	// Path is below the root of the tree.
	Path string `json:"path"`
	// Files are contents without the last line break: cpuset.cpus, cpuset.cpus.effective, cpuset.mems,
	// cpuset.mems.effective, cpuset.cpus.partition, cpu.max, cpu.weight, memory.max; those of the group above have
	// "../" before their names.
	Files     map[string]string `json:"files"`
	Processes []Process         `json:"processes"`
}

// Process is one process of a group.
type Process struct {
	PID int `json:"pid"`
	// Name is that of its program, Class what its environment has as TENON_CLASS.
	Name  string `json:"name"`
	Class string `json:"class,omitempty"`
	// CPUs and Mems are what the kernel allows it.
	CPUs string `json:"cpus"`
	Mems string `json:"mems"`
	// Anonymous is its anonymous memory by NUMA node, in pages.
	Anonymous map[int]int `json:"anonymous,omitempty"`
	// Started is the moment of its start, in clock ticks since the boot; with PID it distinguishes a process from its
	// successor.
	Started string `json:"started"`
}
