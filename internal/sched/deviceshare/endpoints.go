package deviceshare

import (
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/diag"
	"github.com/tenon-project/tenon/internal/view"
)

// Diagnostics returns the endpoints about accounts of devices, in Koordinator's shape. Lists of all nodes are empty for
// a caller who may not read the pods of all namespaces.
func (p *Plugin) Diagnostics() diag.Service {
	return endpoints(p.Store().Nodes, p.Account, func() []fragments { return p.survey.nodes() })
}

// ExplainDevices adds to the explanation of a placed pod how its devices compare with the other choices on its node,
// and to that of a pending pod what the devices of each refusing node lack.
func (p *Plugin) ExplainDevices(pod *corev1.Pod, into *view.Pod) {
	if held := into.Placement; held != nil {
		if len(held.Devices) == 0 {
			return
		}
		account := p.Account(pod.Spec.NodeName)
		if v, r := p.question(pod, pod.Spec.NodeName); v != nil {
			e, _ := account.Entry(string(pod.UID))
			held.Choice = view.DeviceChoiceOf(v, r, e.Devices)
		}
		return
	}
	for i := range into.Candidates {
		c := &into.Candidates[i]
		if v, r := p.question(pod, c.Node); v != nil {
			c.Devices = view.DeviceFitOf(v, r)
		}
	}
}

// question returns the account of a node without the pod, and the pod's request with the profile's ranking of devices.
// It reads the node from the survey, because no cycle is under way whose snapshot could be read. Without a generation
// the ranking is left out: a question must not create one.
func (p *Plugin) question(pod *corev1.Pod, node string) (*ledger.View, *place.Request) {
	v, r := p.Question(pod, node)
	info := p.survey.node(node)
	if v == nil || info == nil || p.weights != nil || p.learner.inForce() == nil {
		return v, r
	}
	with := *r
	p.rankBy(info, v, r, &with.Options)
	return v, &with
}

// endpoints returns the service for given sources, which tests replace: names lists the nodes, account returns the
// account of a node, nil for an unknown one, and lost returns the fragments of all nodes.
func endpoints(names func() []string, account func(node string) *ledger.View, lost func() []fragments) diag.Service {
	answer := func(node string, mayRead func(namespace string) bool) any {
		if v := account(node); v != nil && v.Devices() != nil {
			return summaryOf(v, mayRead)
		}
		return nil
	}
	return diag.Service{Endpoints: []diag.Endpoint{
		{
			Path: "nodeDeviceSummaries/{name}", Names: diag.NamesNode,
			Answer: func(r *http.Request, mayRead func(string) bool) any {
				return answer(r.PathValue("name"), mayRead)
			},
		},
		{Path: "nodeDeviceSummaries", Answer: func(_ *http.Request, mayRead func(string) bool) any {
			list := map[string]any{}
			if !mayRead("") {
				return list
			}
			for _, node := range names() {
				if s := answer(node, mayRead); s != nil {
					list[node] = s
				}
			}
			return list
		}},
		{Path: "fragmentation", Answer: func(_ *http.Request, mayRead func(string) bool) any {
			nodes := []fragments{}
			if mayRead("") {
				nodes = append(nodes, lost()...)
			}
			return map[string][]fragments{"models": append([]fragments{}, byModel(nodes)...), "nodes": nodes}
		}},
	}}
}

// detail has amounts by type of device, then by minor. A device whose minor is unknown, or the same as that of another
// device, is listed by its ID.
type detail map[device.Type]map[string]corev1.ResourceList

// put sets the amounts of one device.
func (d detail) put(t device.Type, key string, amounts corev1.ResourceList) {
	if d[t] == nil {
		d[t] = map[string]corev1.ResourceList{}
	}
	d[t][key] = amounts
}

// summary is the JSON of one node in Koordinator's shape: field names are contract. IDs and Version are additions.
type summary struct {
	// Total is the sum of what the devices have, whether or not they are healthy.
	Total corev1.ResourceList `json:"deviceTotal"`
	// Free is the sum of what pods may still have.
	Free corev1.ResourceList `json:"deviceFree"`
	// Used is the sum of what pods have, hidden ones included.
	Used corev1.ResourceList `json:"deviceUsed"`
	// TotalDetail has the terms of Total by device.
	TotalDetail detail `json:"deviceTotalDetail"`
	// FreeDetail has the terms of Free by device.
	FreeDetail detail `json:"deviceFreeDetail"`
	// UsedDetail has the terms of Used by device.
	UsedDetail detail `json:"deviceUsedDetail"`
	// Allocations are what pods hold, by type, then by namespace and name.
	Allocations map[device.Type]map[string]map[string]corev1.ResourceList `json:"allocateSet"`
	// PodsHidden counts pods with devices in namespaces that the caller may not read. Their amounts are in the sums.
	PodsHidden int `json:"podsHidden,omitempty"`
	// IDs are the IDs of the devices by type, and by the key that the details use.
	IDs map[device.Type]map[string]string `json:"ids"`
	// Version is that of the account. It grows with each change of the account.
	Version uint64 `json:"version"`
}

// identity names a device on its node: IDs are unique within a type only.
type identity struct {
	// kind is the type of the device.
	kind device.Type
	// id is the ID that the Device object gives it.
	id string
}

// summaryOf returns the summary of an account with devices. A grant of a device that has left the account since is
// listed under the minor that the device had.
func summaryOf(v *ledger.View, mayRead func(namespace string) bool) *summary {
	s := &summary{
		Total: corev1.ResourceList{}, Free: corev1.ResourceList{}, Used: corev1.ResourceList{},
		TotalDetail: detail{}, FreeDetail: detail{}, UsedDetail: detail{},
		Allocations: map[device.Type]map[string]map[string]corev1.ResourceList{},
		IDs:         map[device.Type]map[string]string{}, Version: v.Version(),
	}
	keys := map[identity]string{}
	for d := range v.Devices().Devices() {
		keys[identity{d.Type, d.ID}] = s.add(&d)
	}
	for e := range v.Entries() {
		grants := v.GrantsOf(&e)
		if len(grants) > 0 && !mayRead(e.Namespace) {
			s.PodsHidden++
			continue
		}
		for i := range grants {
			g := &grants[i]
			key, known := keys[identity{g.Type, g.ID}]
			if !known {
				key = strconv.Itoa(int(g.Minor))
			}
			s.hold(e.Namespace+"/"+e.Name, key, g)
		}
	}
	return s
}

// add adds a device to the sums and details, and returns the key under which the details list it.
func (s *summary) add(d *device.Status) string {
	if s.IDs[d.Type] == nil {
		s.IDs[d.Type] = map[string]string{}
	}
	key := strconv.Itoa(int(d.Minor))
	if _, taken := s.IDs[d.Type][key]; taken || d.Minor < 0 {
		key = d.ID
	}
	s.IDs[d.Type][key] = d.ID
	put := func(sum corev1.ResourceList, into detail, amounts map[string]int64) {
		list := convert.DeviceQuantities(amounts)
		into.put(d.Type, key, list)
		for name, q := range list {
			added := sum[name]
			added.Add(q)
			sum[name] = added
		}
	}
	total, used, free := d.Amounts()
	put(s.Total, s.TotalDetail, total)
	put(s.Used, s.UsedDetail, used)
	put(s.Free, s.FreeDetail, free)
	return key
}

// hold adds a pod's grant of one device to the allocations.
func (s *summary) hold(pod, key string, g *device.Grant) {
	if s.Allocations[g.Type] == nil {
		s.Allocations[g.Type] = map[string]map[string]corev1.ResourceList{}
	}
	if s.Allocations[g.Type][pod] == nil {
		s.Allocations[g.Type][pod] = map[string]corev1.ResourceList{}
	}
	s.Allocations[g.Type][pod][key] = convert.DeviceQuantities(g.Amount.Amounts(g.Type, g.Ratio))
}
