package inject

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
)

// Node is the machine and what the API has of its devices.
type Node struct {
	// Mode is that of the node's Device object; "" where there is none.
	Mode annotation.DeviceMode
	// Types are the types of device that the Device object lists.
	Types []annotation.DeviceType
	Cards host.Cards
	// CDI are the names of devices that the runtime can resolve, such as tenon.sh/gpu=GPU-98583a5c.
	CDI []string
	// Foreign are the devices that pods have without an allocation, by ID, with the pod's UID. Granted are those of
	// pods with one. Resolve returns the ID of a device that a device plugin names, "" for none; nil knows none.
	Foreign map[string]string
	Granted map[string]bool
	Resolve func(name string) string
	// MPS is what HasMPS reports, Exclusive are the GPUs that Exclusive returns.
	MPS       bool
	Exclusive []string
	// Exempt pods without an allocation keep what they have: exporters of metrics, drivers.
	Exempt []Exemption
}

// HasDevices reports whether there is anything to decide about on the machine.
func (n *Node) HasDevices() bool { return n != nil && (n.Mode != "" || len(n.Cards.List) > 0) }

// Exemption names pods by their namespace and labels. The namespace is required: users choose labels.
type Exemption struct {
	Namespace string
	Selector  labels.Selector
}

// ParseExemption reads NAMESPACE or NAMESPACE/SELECTOR, such as gpu-operator/app=dcgm-exporter.
func ParseExemption(text string) (Exemption, error) {
	namespace, selector, _ := strings.Cut(text, "/")
	parsed, err := labels.Parse(selector)
	if namespace == "" || err != nil {
		return Exemption{}, fmt.Errorf("%q: want NAMESPACE or NAMESPACE/SELECTOR, such as gpu/app=exporter: %w",
			text, cmp.Or(err, errors.New("the namespace is missing")))
	}
	return Exemption{namespace, parsed}, nil
}

// Container is a container that is to be created, with its pod.
type Container struct {
	Name, Namespace     string
	Labels, Annotations map[string]string // of the pod
	// Asks are the types of device that the pod requests, as far as the API has sent it.
	Asks []annotation.DeviceType
	// Has is what it is to be created with.
	Has Sight
}

// Sight is what a container sees of devices.
type Sight struct {
	// Env has NAME=value.
	Env   []string
	Files []File
	// CDI are names of devices that the runtime resolves.
	CDI []string
	// Privileged containers see every device file of the machine.
	Privileged bool
}

// File is a device file of a container. A runtime reports its numbers, or else its path on the host.
type File struct {
	host.DeviceFile
	HostPath string
}

// Answer is what to set on a container.
type Answer struct {
	// Env are variables, set over those of image and pod.
	Env    map[string]string
	Files  []host.DeviceFile
	CDI    []string
	Mounts []Mount
}

// Mount is a folder of the host that a container gets, or one of its own.
type Mount struct {
	// Path is that in the container. Source is that of the host; "" for the same.
	Path, Source string
	ReadOnly     bool
	// InMemory folders are empty at first, the container's own, and end with it. They have no Source.
	InMemory bool
}

// IsEmpty reports whether nothing is to be set.
func (a *Answer) IsEmpty() bool {
	return len(a.Env) == 0 && len(a.Files) == 0 && len(a.CDI) == 0 && len(a.Mounts) == 0
}

// Causes of a Refusal. Their texts are reasons of Events.
var (
	// ErrMalformed: the allocation cannot be read, or contradicts itself.
	ErrMalformed = errors.New("BadAnnotation")
	// ErrUnallocated: the pod requests devices, and no scheduler allocated any.
	ErrUnallocated = errors.New("UnallocatedDevicePod")
	// ErrUnavailable: the machine does not have an allocated device, or not with files.
	ErrUnavailable = errors.New("DeviceUnavailable")
	// ErrConflict: the container is to have devices that were not allocated to it. What another writer gives it cannot
	// be taken away: runtimes drop removals of device files from the answers of NRI plugins.
	ErrConflict = errors.New("DeviceConflict")
)

// Refusal says why a container must not be created.
type Refusal struct {
	Cause error // one of the errors above
	Text  string
}

// Error returns cause and text.
func (r *Refusal) Error() string { return r.Cause.Error() + ": " + r.Text }

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Cause }
