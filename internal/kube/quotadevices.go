package kube

import (
	"maps"
	"slices"

	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// countLimited adds sign, 1 or -1, to the number of quotas that limit each device which the quota of a name limits.
func (s *Quotas) countLimited(name string, sign int) {
	q := s.account.Forest().Find(name)
	if q == nil {
		return
	}
	for device := range q.Spec().Max {
		if !quota.IsDevice(device) {
			continue
		}
		if s.limited[device] += sign; s.limited[device] == 0 {
			delete(s.limited, device)
		}
	}
}

// recountDevices counts pods, nodes and extra trees anew if the names by which quotas limit devices have changed.
func (s *Quotas) recountDevices() {
	names := slices.Sorted(maps.Keys(s.limited))
	if slices.Equal(names, s.devices) {
		return
	}
	s.devices = names
	for uid, p := range s.pods {
		m, _ := s.account.Find(string(uid))
		m.Amounts = convert.PodAmounts(p).Asked(names)
		s.account.Put(m.Pod)
	}
	for name, n := range s.nodes {
		next := *n
		next.amounts = next.has.Offered(names)
		s.replace(name, &next)
	}
	for name := range s.objects {
		s.updateSpec(name)
	}
}
