package kube

import (
	"maps"
	"slices"

	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// limits counts, or takes back with -1, the devices that a quota limits.
func (s *Quotas) limits(name string, sign int) {
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

// respell counts pods, nodes and extra trees under the names that quotas limit devices by now.
func (s *Quotas) respell() {
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
		is := *n
		is.amounts = is.has.Offered(names)
		s.replace(name, &is)
	}
	for name := range s.objects {
		s.set(name)
	}
}
