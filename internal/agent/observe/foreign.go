package observe

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/deviceplugin"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Foreign is what pods have of a node's devices that Tenon's scheduler did not give them.
type Foreign struct {
	// Holders are by pod and container; one without ids has none for sure.
	Holders annotation.DevicesCheckpoints
	// Stale are the UIDs of holders, or their names, that the API does not have or of which it says that they ended.
	Stale []string
	// Disputed are the ids of devices that one source names for a container, and not another one that names some.
	Disputed []string
	// Unknown are the pods, as namespace/name, that may have devices, and of which no source says which.
	Unknown []string
}

// Foreign compares PodResources, the kubelet's checkpoint and the running containers with the pods of the API: what one
// of them names is held. inv are the devices of the node; running are those that containers see, by the pod's UID, as
// the node knows it, and the container's name. false before the kubelet's records were read for the first time: nothing
// is known then.
func (b *Observer) Foreign(inv *device.Inventory, running map[string]map[string][]host.Device) (Foreign, bool) {
	b.mu.Lock()
	known := b.refreshed
	b.mu.Unlock()
	answer := b.resources.Value()
	f := finder{
		inv: inv, node: b.o.Agent.CurrentNode(), found: map[claim]map[string]sources{}, answer: answer,
		file: b.records.Value().Devices.Pods, running: running,
		unasked: b.o.AskResources != nil && b.o.Switches.QueryKubelet && answer.answers == 0,
	}
	return f.find(b.o.Agent.Pods()), known
}

type claim struct{ uid, container, resource string }

type sources uint8 // a set of those that name a device

const (
	byAnswer sources = 1 << iota
	byFile
	byEnv
)

type finder struct {
	inv     *device.Inventory
	node    *corev1.Node
	answer  resources
	file    map[string]map[string]map[string][]host.Device
	running map[string]map[string][]host.Device
	unasked bool                         // the kubelet is to be asked, and has not answered yet
	found   map[claim]map[string]sources // ids, with the sources that name them
	Foreign
}

func (f *finder) find(pods []*convert.Pod) Foreign {
	alive := map[string]bool{} // UIDs, and namespaces with names
	for _, pod := range pods {
		if convert.Ended(pod.Pod) {
			continue
		}
		node, uid := convert.NodeUID(pod.Pod), string(pod.UID)
		alive[node], alive[uid], alive[pod.Namespace+"/"+pod.Name] = true, true, true
		if len(pod.Entry.Devices) > 0 {
			continue
		}
		before := len(f.found)
		for name, c := range f.answer.pods[node].containers {
			f.add(uid, name, byAnswer, c.Devices)
		}
		f.addRecorded(node, uid, pod.Entry.Unallocated)
		switch {
		case !pod.Entry.Unallocated || len(f.found) > before:
		case f.hasNone(pod):
			f.Holders = append(f.Holders, annotation.DevicesCheckpoint{PodUID: pod.UID, DeviceIDs: []string{}})
		default:
			f.Unknown = append(f.Unknown, pod.Namespace+"/"+pod.Name)
		}
	}
	f.addStale(alive)
	for c, ids := range f.found {
		f.resolveClaim(c, ids)
	}
	order := func(c annotation.DevicesCheckpoint) string {
		return string(c.PodUID) + "/" + c.ContainerName + "/" + c.ResourceName
	}
	slices.SortFunc(f.Holders, func(a, b annotation.DevicesCheckpoint) int { return cmp.Compare(order(a), order(b)) })
	slices.Sort(f.Stale)
	slices.Sort(f.Disputed)
	f.Stale, f.Disputed = slices.Compact(f.Stale), slices.Compact(f.Disputed)
	return f.Foreign
}

// addStale finds what pods hold that are gone from the API, as after a deletion by force: while a container of theirs
// runs, while the kubelet names them, and while it is not known what the kubelet says. Its checkpoint alone has pods
// for some time after they have ended.
func (f *finder) addStale(alive map[string]bool) {
	known := maps.Clone(f.found)
	for _, pod := range f.answer.holders {
		key := pod.Namespace + "/" + pod.Name
		for name, c := range pod.Containers {
			if !alive[key] || f.answer.twice[key] {
				f.add(key, name, byAnswer, c.Devices)
			}
		}
	}
	for _, uid := range slices.AppendSeq(slices.Collect(maps.Keys(f.running)), maps.Keys(f.file)) {
		if !alive[uid] && (f.unasked || f.running[uid] != nil) {
			f.addRecorded(uid, uid, true)
		}
	}
	for c := range f.found {
		if known[c] == nil {
			f.Stale = append(f.Stale, c.uid)
		}
	}
}

// addRecorded adds what the checkpoint has of a pod and, where env is set, the environment of its containers.
func (f *finder) addRecorded(node, uid string, env bool) {
	for name, resources := range f.file[node] {
		for _, devices := range resources {
			f.add(uid, name, byFile, devices)
		}
	}
	for name, devices := range f.running[node] {
		if env {
			f.add(uid, name, byEnv, devices)
		}
	}
}

// add leaves out what device plugins give that is not a device of the node, such as a file of /dev, or a placeholder.
func (f *finder) add(uid, container string, source sources, devices []host.Device) {
	for _, d := range devices {
		if d.ID == "" || strings.HasPrefix(d.ID, deviceplugin.IDPrefix) ||
			!device.IsServed(d.Resource) && f.inv.Resolve(d.ID) == "" {
			continue
		}
		c := claim{uid, container, d.Resource}
		if f.found[c] == nil {
			f.found[c] = map[string]sources{}
		}
		f.found[c][d.ID] |= source
	}
}

// resolveClaim makes a holder of a claim, and finds what its sources disagree about: they may name one device in two
// ways.
func (f *finder) resolveClaim(c claim, ids map[string]sources) {
	speak, named := sources(0), map[string]sources{}
	for id, source := range ids {
		speak |= source
		named[f.inv.Resolve(id)] |= source
	}
	for id, source := range named {
		if id != "" && source != speak {
			f.Disputed = append(f.Disputed, id)
		}
	}
	f.Holders = append(f.Holders, annotation.DevicesCheckpoint{
		PodUID: types.UID(c.uid), ContainerName: c.container, ResourceName: c.resource,
		DeviceIDs: slices.Sorted(maps.Keys(ids)),
	})
}

// hasNone reports whether a pod that no source names has no device of the kubelet for sure. The kubelet gives out only
// what a plugin has registered, and has decided about a pod that it names.
func (f *finder) hasNone(pod *convert.Pod) bool {
	if f.answer.pods[convert.NodeUID(pod.Pod)].named {
		return true
	}
	return f.node != nil && !slices.ContainsFunc(convert.ServedDevices(pod.Pod), func(name string) bool {
		amount := f.node.Status.Capacity[corev1.ResourceName(name)]
		return !strings.HasPrefix(device.Canonical(name), "koordinator.sh/") && !amount.IsZero()
	})
}
