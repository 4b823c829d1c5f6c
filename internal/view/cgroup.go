package view

import (
	"net/url"
	"time"
)

// Cgroups is what the kernel lets a pod run on: the cgroups of its containers, what each of their files is to have and
// what it has. Fields are only ever added.
type Cgroups struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Node      string `json:"node"`
	// Mode is Own, Follow or Blind: only in Own does the agent write cpusets.
	Mode string `json:"mode"`
	// Cgroup is the version of the tree, "v1" or "v2".
	Cgroup string `json:"cgroup"`
	// Read is when the kernel was asked.
	Read   time.Time `json:"read"`
	Groups []Cgroup  `json:"groups"`
	Notes  []string  `json:"notes,omitempty"`
}

// Cgroup is one cgroup of a pod.
type Cgroup struct {
	// Container is absent for a sandbox, and for the group of the pod itself.
	Container string `json:"container,omitempty"`
	// Path is the folder of the group, in the hierarchy of cpusets where each controller has its own.
	Path string `json:"path"`
	// Gone groups are not in the tree any more.
	Gone   bool          `json:"gone,omitempty"`
	Values []CgroupValue `json:"values,omitempty"`
	Drift  *Drift        `json:"drift,omitempty"`
}

// States of a CgroupValue.
const (
	// Matches: the kernel has what is wanted.
	Matches = "matches"
	// Differs: it has something else, and the agent sets it again at its next look.
	Differs = "differs"
	// Unmanaged: Tenon wants nothing of it; the kubelet says what it is.
	Unmanaged = "unmanaged"
	// Unreadable: the kernel's value cannot be read.
	Unreadable = "unreadable"
)

// CgroupValue is one file of a group.
type CgroupValue struct {
	File string `json:"file"`
	// Want is absent where State is Unmanaged.
	Want string `json:"want,omitempty"`
	Got  string `json:"got"`
	// Effective is what the kernel lets the group use, for cpuset.cpus.
	Effective string `json:"effective,omitempty"`
	State     string `json:"state"`
	// Cause says where Want comes from, or why there is none.
	Cause string `json:"cause,omitempty"`
	// AtCreation values are set when the container is created, and left alone afterwards.
	AtCreation bool   `json:"atCreation,omitempty"`
	Error      string `json:"error,omitempty"`
}

// Drift is the last change that another writer made to a file of a group.
type Drift struct {
	File string `json:"file"`
	Want string `json:"want"`
	Got  string `json:"got"`
	// Seen is when the agent noticed it, Repaired when the value was right again; absent while it is not.
	Seen     time.Time  `json:"seen"`
	Repaired *time.Time `json:"repaired,omitempty"`
}

// CgroupsPattern is the path under which an agent serves Cgroups, for http.ServeMux.
const CgroupsPattern = "/apis/v1/pods/{namespace}/{name}/cgroups"

// CgroupsPath returns where an agent serves the Cgroups of a pod.
func CgroupsPath(namespace, name string) string {
	return "/apis/v1/pods/" + url.PathEscape(namespace) + "/" + url.PathEscape(name) + "/cgroups"
}
