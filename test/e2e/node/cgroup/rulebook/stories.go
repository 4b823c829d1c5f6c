package rulebook

import (
	"io/fs"
	"slices"
	"syscall"

	"github.com/tenon-project/tenon/internal/agent/desired"
)

// Files besides those that Tenon writes.
const (
	procs          = "cgroup.procs"
	subtreeControl = "cgroup.subtree_control"
	effectiveV1    = "cpuset.effective_cpus"
	effectiveV2    = "cpuset.cpus.effective"
	memsV2         = "cpuset.mems.effective"
)

var (
	both = []desired.Dialect{desired.V1, desired.V2}
	v1   = []desired.Dialect{desired.V1}
	v2   = []desired.Dialect{desired.V2}
)

// child gives p/c the CPU 1 and node 0, with a task "t" in it.
var child = []step{
	{do: write, at: "p/c", file: desired.CPUs, text: "1"},
	{do: write, at: "p/c", file: desired.Mems, text: "0"},
	{do: spawn, at: "p/c", text: "t"},
}

// Stories returns the table: each row of the differences between the two dialects, and what they have in common.
func Stories() []Story {
	return slices.Concat(cpusetStories(), offlineStories(), taskStories(), quotaStories(), treeStories())
}

func cpusetStories() []Story {
	return []Story{
		{"a new group takes no task until cpus and mems are set", v1, []step{
			{do: read, at: "p/c", file: desired.CPUs},
			{do: read, at: "p/c", file: effectiveV1},
			{do: spawn, at: "p/c", want: syscall.ENOSPC},
			{do: write, at: "p/c", file: desired.CPUs, text: "1"},
			{do: spawn, at: "p/c", want: syscall.ENOSPC},
			{do: write, at: "p/c", file: desired.Mems, text: "0"},
			{do: spawn, at: "p/c", text: "t"},
			{do: read, at: "p/c", file: effectiveV1, text: "1"},
		}},
		{"a new group has the parent's effective set and takes tasks", v2, []step{
			{do: read, at: "p/c", file: desired.CPUs},
			{do: read, at: "p/c", file: effectiveV2, text: "0-1"},
			{do: read, at: "p/c", file: memsV2, text: "0"},
			{do: spawn, at: "p/c", text: "t"},
		}},
		{"cpus outside of the parent are refused", v1, []step{
			{do: write, at: "p", file: desired.CPUs, text: "0"},
			{do: write, at: "p/c", file: desired.CPUs, text: "0-1", want: syscall.EACCES},
			{do: write, at: "p/c", file: desired.CPUs, text: "1", want: syscall.EACCES},
			{do: read, at: "p/c", file: desired.CPUs},
		}},
		{"cpus outside of the parent are cut", v2, []step{
			{do: write, at: "p", file: desired.CPUs, text: "0"},
			{do: write, at: "p/c", file: desired.CPUs, text: "0-1"},
			{do: read, at: "p/c", file: desired.CPUs, text: "0-1"},
			{do: read, at: "p/c", file: effectiveV2, text: "0"},
		}},
		{"a set disjoint from the parent's falls back to all of it", v2, []step{
			{do: write, at: "p", file: desired.CPUs, text: "0"},
			{do: write, at: "p/c", file: desired.CPUs, text: "1"},
			{do: read, at: "p/c", file: desired.CPUs, text: "1"},
			{do: read, at: "p/c", file: effectiveV2, text: "0"},
		}},
		{"a parent cannot give up what a child has", v1, []step{
			{do: write, at: "p/c", file: desired.CPUs, text: "1"},
			{do: write, at: "p", file: desired.CPUs, text: "0", want: syscall.EBUSY},
			{do: read, at: "p", file: desired.CPUs, text: "0-1"},
			{do: write, at: "p/c", file: desired.CPUs, text: "0"},
			{do: write, at: "p", file: desired.CPUs, text: "0"},
			{do: read, at: "p", file: effectiveV1, text: "0"},
		}},
		{"a parent that shrinks below a child takes its isolation without an error", v2, []step{
			{do: write, at: "p/c", file: desired.CPUs, text: "1"},
			{do: write, at: "p", file: desired.CPUs, text: "0"},
			{do: read, at: "p/c", file: desired.CPUs, text: "1"},
			{do: read, at: "p/c", file: effectiveV2, text: "0"},
			{do: write, at: "p", file: desired.CPUs, text: "0-1"},
			{do: read, at: "p/c", file: effectiveV2, text: "1"},
		}},
		{"CPUs beyond the possible ones and unknown memory nodes are refused", both, []step{
			{do: write, at: "p/c", file: desired.CPUs, text: "60000", want: syscall.ERANGE},
			{do: write, at: "p/c", file: desired.Mems, text: "63", want: syscall.EINVAL},
			{do: read, at: "p/c", file: desired.CPUs},
			{do: read, at: "p/c", file: desired.Mems},
		}},
		{"a text that is not a list is refused, an unsorted list is sorted", both, []step{
			{do: write, at: "p/c", file: desired.CPUs, text: "1-", want: syscall.EINVAL},
			{do: write, at: "p/c", file: desired.CPUs, text: "1-0", want: syscall.EINVAL},
			{do: write, at: "p/c", file: desired.CPUs, text: "x", want: syscall.EINVAL},
			{do: write, at: "p/c", file: desired.Mems, text: "0-", want: syscall.EINVAL},
			{do: write, at: "p/c", file: desired.CPUs, text: "1,0\n"},
			{do: read, at: "p/c", file: desired.CPUs, text: "0-1"},
		}},
		{"a populated group keeps its cpus when they are cleared", both, append(slices.Clone(child), []step{
			{do: write, at: "p/c", file: desired.CPUs, text: "\n", want: syscall.ENOSPC},
			{do: write, at: "p/c", file: desired.Mems, text: "\n", want: syscall.ENOSPC},
			{do: read, at: "p/c", file: desired.CPUs, text: "1"},
			{do: read, at: "p/c", file: desired.Mems, text: "0"},
		}...)},
		{"an empty group's cpus can be cleared", both, []step{
			{do: write, at: "p/c", file: desired.CPUs, text: "1"},
			{do: write, at: "p/c", file: desired.CPUs, text: "\n"},
			{do: read, at: "p/c", file: desired.CPUs},
		}},
		{"the effective set cannot be written", v1, []step{
			{do: write, at: "p", file: effectiveV1, text: "0", want: syscall.EINVAL},
		}},
	}
}

func offlineStories() []Story {
	return []Story{
		{"a CPU that goes offline is gone for good", v1, []step{
			{do: write, at: "p/c", file: desired.CPUs, text: "0-1"},
			{do: unplug},
			{do: line, at: "p/c", file: desired.CPUs, text: "0"},
			{do: write, at: "p/c", file: desired.CPUs, text: "0-1", want: syscall.EINVAL},
			{do: replug},
			{do: line, at: "p/c", file: desired.CPUs, text: "0"},
		}},
		{"tasks of a group whose CPUs all went offline move up", v1, append(slices.Clone(child), []step{
			{do: unplug},
			{do: line, at: "p/c", file: desired.CPUs},
			{do: line, at: "p/c", file: procs},
			{do: allowed, file: "t", text: "0"},
			{do: tasks, at: "p", text: "t"},
		}...)},
		{"a CPU that goes offline comes back, and meanwhile the parent's set counts", v2, []step{
			{do: write, at: "p/c", file: desired.CPUs, text: "1"},
			{do: unplug},
			{do: read, at: "p/c", file: desired.CPUs, text: "1"},
			{do: line, at: "p/c", file: effectiveV2, text: "0"},
			{do: replug},
			{do: line, at: "p/c", file: effectiveV2, text: "1"},
		}},
	}
}

func taskStories() []Story {
	return []Story{
		{"inner groups may hold tasks", v1, []step{
			{do: write, at: "p/c", file: desired.CPUs, text: "1"},
			{do: spawn, at: "p", text: "t"},
			{do: tasks, at: "p", text: "t"},
		}},
		{"groups that enabled controllers hold no tasks, and groups with tasks enable none", v2, []step{
			{do: spawn, at: "p", want: syscall.EBUSY},
			{do: spawn, at: "p/c", text: "t"},
			{do: write, at: "p/c", file: subtreeControl, text: "+memory", want: syscall.EBUSY},
			{do: write, at: "p/c", file: subtreeControl, text: "+nonsense", want: syscall.EINVAL},
		}},
		{"below a group that enables nothing there are no files of controllers", v2, []step{
			{do: mkdir, at: "p/c/d"},
			{do: read, at: "p/c/d", file: desired.CPUs, want: fs.ErrNotExist},
			{do: write, at: "p/c/d", file: desired.QuotaV2, text: "max", want: fs.ErrNotExist},
			{do: write, at: "p/c", file: subtreeControl, text: "+cpuset +cpu +memory"},
			{do: read, at: "p/c/d", file: effectiveV2, text: "0-1"},
		}},
		{
			"a task that pinned itself is kept inside its group and gets its wish back when that is wide again", both,
			[]step{
				{do: write, at: "p/c", file: desired.CPUs, text: "0-1"},
				{do: write, at: "p/c", file: desired.Mems, text: "0"},
				{do: spawn, at: "p/c", text: "t"},
				{do: allowed, file: "t", text: "0-1"},
				{do: affinity, file: "t", text: "1"},
				{do: allowed, file: "t", text: "1"},
				{do: write, at: "p/c", file: desired.CPUs, text: "0"},
				{do: allowed, file: "t", text: "0"},
				{do: write, at: "p/c", file: desired.CPUs, text: "0-1"},
				{do: allowed, file: "t", text: "1"},
			},
		},
		{"the child of a task that is moved away stays where it was born", both, append(slices.Clone(child), []step{
			{do: mkdir, at: "p/d"},
			{do: write, at: "p/d", file: desired.CPUs, text: "0"},
			{do: write, at: "p/d", file: desired.Mems, text: "0"},
			{do: fork, file: "t", text: "u"},
			{do: move, at: "p/d", text: "t"},
			{do: tasks, at: "p/c", text: "u"},
			{do: allowed, file: "u", text: "1"},
			{do: allowed, file: "t", text: "0"},
			{do: move, at: "p/d", text: "u"},
			{do: tasks, at: "p/c"},
			{do: kill, at: "p/d"},
			{do: rmdir, at: "p/d"},
		}...)},
		{"a group is empty when it has no process", v1, append(slices.Clone(child), []step{
			{do: tasks, at: "p/c", text: "t"},
			{do: rmdir, at: "p/c", want: syscall.EBUSY},
			{do: kill, at: "p"},
			{do: read, at: "p/c", file: procs},
			{do: rmdir, at: "p/c"},
		}...)},
		{"populated counts the whole subtree, and cgroup.kill ends it", v2, []step{
			{do: spawn, at: "p/c", text: "t"},
			{do: line, at: "p", file: "cgroup.events", text: "populated 1"},
			{do: rmdir, at: "p/c", want: syscall.EBUSY},
			{do: write, at: "p", file: "cgroup.kill", text: "1"},
			{do: line, at: "p", file: "cgroup.events", text: "populated 0"},
			{do: read, at: "p/c", file: procs},
			{do: rmdir, at: "p/c"},
		}},
	}
}

func quotaStories() []Story {
	return []Story{
		{"a quota above the parent's is refused, both ways", v1, []step{
			{do: write, at: "p", file: desired.QuotaV1, text: "50000"},
			{do: write, at: "p/c", file: desired.QuotaV1, text: "60000", want: syscall.EINVAL},
			{do: write, at: "p/c", file: desired.QuotaV1, text: "40000"},
			{do: write, at: "p", file: desired.QuotaV1, text: "30000", want: syscall.EINVAL},
			{do: write, at: "p/c", file: desired.QuotaV1, text: "-1"},
			{do: write, at: "p", file: desired.QuotaV1, text: "30000"},
			{do: read, at: "p/c", file: desired.QuotaV1, text: "-1"},
		}},
		{"quotas are compared by their part of the period", v1, []step{
			{do: write, at: "p", file: desired.QuotaV1, text: "50000"},
			{do: write, at: "p/c", file: desired.QuotaV1, text: "25000"},
			{do: write, at: "p/c", file: "cpu.cfs_period_us", text: "50000"},
			{do: write, at: "p/c", file: "cpu.cfs_period_us", text: "40000", want: syscall.EINVAL},
			{do: read, at: "p/c", file: "cpu.cfs_period_us", text: "50000"},
		}},
		{"a quota above the parent's is accepted", v2, []step{
			{do: write, at: "p", file: desired.QuotaV2, text: "50000 100000"},
			{do: write, at: "p/c", file: desired.QuotaV2, text: "60000"},
			{do: read, at: "p/c", file: desired.QuotaV2, text: "60000 100000"},
			{do: write, at: "p/c", file: desired.QuotaV2, text: "60000 50000"},
			{do: read, at: "p/c", file: desired.QuotaV2, text: "60000 50000"},
			{do: write, at: "p/c", file: desired.QuotaV2, text: "max"},
			{do: read, at: "p/c", file: desired.QuotaV2, text: "max 50000"},
		}},
		{"a burst is at most the quota, and a quota at least the burst", v1, []step{
			{do: write, at: "p/c", file: desired.BurstV1, text: "70000"},
			{do: write, at: "p/c", file: desired.QuotaV1, text: "60000", want: syscall.EINVAL},
			{do: write, at: "p/c", file: desired.BurstV1, text: "0"},
			{do: write, at: "p/c", file: desired.QuotaV1, text: "60000"},
			{do: write, at: "p/c", file: desired.BurstV1, text: "60001", want: syscall.EINVAL},
			{do: write, at: "p/c", file: desired.BurstV1, text: "-1", want: syscall.EINVAL},
			{do: write, at: "p/c", file: desired.BurstV1, text: "60000"},
			{do: read, at: "p/c", file: desired.BurstV1, text: "60000"},
			{do: write, at: "p/c", file: desired.QuotaV1, text: "-1"},
			{do: read, at: "p/c", file: desired.BurstV1, text: "60000"},
		}},
		{"a burst is at most the quota, and a quota at least the burst", v2, []step{
			{do: write, at: "p/c", file: desired.BurstV2, text: "70000"},
			{do: write, at: "p/c", file: desired.QuotaV2, text: "60000", want: syscall.EINVAL},
			{do: write, at: "p/c", file: desired.BurstV2, text: "0"},
			{do: write, at: "p/c", file: desired.QuotaV2, text: "60000"},
			{do: write, at: "p/c", file: desired.BurstV2, text: "60001", want: syscall.EINVAL},
			{do: write, at: "p/c", file: desired.BurstV2, text: "-1", want: syscall.EINVAL},
			{do: write, at: "p/c", file: desired.BurstV2, text: "60000"},
			{do: read, at: "p/c", file: desired.BurstV2, text: "60000"},
			{do: write, at: "p/c", file: desired.QuotaV2, text: "max"},
			{do: read, at: "p/c", file: desired.BurstV2, text: "60000"},
		}},
		{"a quota or period that is too short or not a number is refused", v1, []step{
			{do: write, at: "p/c", file: desired.QuotaV1, text: "999", want: syscall.EINVAL},
			{do: write, at: "p/c", file: desired.QuotaV1, text: "0", want: syscall.EINVAL},
			{do: write, at: "p/c", file: desired.QuotaV1, text: "max", want: syscall.EINVAL},
			{do: write, at: "p/c", file: "cpu.cfs_period_us", text: "999", want: syscall.EINVAL},
			{do: write, at: "p/c", file: "cpu.cfs_period_us", text: "1000001", want: syscall.EINVAL},
			{do: write, at: "p/c", file: desired.QuotaV1, text: "1000"},
			{do: write, at: "p/c", file: desired.QuotaV1, text: "-5"},
			{do: read, at: "p/c", file: desired.QuotaV1, text: "-1"},
		}},
		{"a quota or period that is too short or not a number is refused", v2, []step{
			{do: write, at: "p/c", file: desired.QuotaV2, text: "999 100000", want: syscall.EINVAL},
			{do: write, at: "p/c", file: desired.QuotaV2, text: "-1", want: syscall.EINVAL},
			{do: write, at: "p/c", file: desired.QuotaV2, text: "max 999", want: syscall.EINVAL},
			{do: write, at: "p/c", file: desired.QuotaV2, text: "max 1000001", want: syscall.EINVAL},
			{do: read, at: "p/c", file: desired.QuotaV2, text: "max 100000"},
		}},
	}
}

func treeStories() []Story {
	return []Story{
		{"a file or group that does not exist says so", both, []step{
			{do: read, at: "p/x", file: desired.CPUs, want: fs.ErrNotExist},
			{do: write, at: "p/x", file: desired.CPUs, text: "1", want: fs.ErrNotExist},
			{do: read, at: "p", file: "cpuset.unknown", want: fs.ErrNotExist},
			{do: mkdir, at: "x/y", want: fs.ErrNotExist},
			{do: rmdir, at: "x", want: fs.ErrNotExist},
			{do: mkdir, at: "p/c", want: fs.ErrExist},
			{do: rmdir, at: "p", want: syscall.EBUSY},
		}},
	}
}
