package kube

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// mostPerNode is the most of a resource that counts of one node, so that the total of 2^17 nodes fits 63 bits.
const mostPerNode = 1 << 46

// SameQuota reports whether two states of an ElasticQuota are the same to the account, which reads neither the status
// nor the annotations that the leader writes.
func SameQuota(a, b *v1alpha1.ElasticQuota) bool {
	before, faults := convert.Quota(a)
	after, others := convert.Quota(b)
	return a.UID == b.UID && reflect.DeepEqual(before, after) && slices.Equal(faults, others)
}

// Distinct returns the informer without updates between two states that are the same.
func Distinct[T any](same func(was, now T) bool, i cache.SharedIndexInformer) cache.SharedIndexInformer {
	return &wrapped{i, func(h cache.ResourceEventHandler) cache.ResourceEventHandler {
		return cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: h.OnAdd, DeleteFunc: h.OnDelete,
			UpdateFunc: func(old, obj any) {
				was, before := old.(T)
				current, after := obj.(T)
				if !before || !after || !same(was, current) {
					h.OnUpdate(old, obj)
				}
			},
		}
	}}
}

// compareAge orders the objects of one name: the first one counts.
func compareAge(a, b *v1alpha1.ElasticQuota) int {
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.GroupVersionKind().Group, b.GroupVersionKind().Group), cmp.Compare(a.Namespace, b.Namespace),
	)
}

// updateSpec puts the object that counts for a name into the account. A field or an annotation that cannot be read
// keeps its last value.
func (s *Quotas) updateSpec(name string) {
	objects := s.objects[name]
	var last *quota.Spec
	if q := s.account.Forest().Find(name); q != nil {
		last = q.Spec()
	}
	var problems []string
	spec, faults := convert.Quota(objects[0])
	for _, fault := range faults {
		problems = append(problems, fault.String())
		if last == nil {
			continue
		}
		switch fault.Key {
		case "spec.min":
			spec.Min = last.Min
		case "spec.max":
			spec.Max = last.Max
		case annotation.QuotaSharedWeight:
			spec.Weight = last.Weight
		case annotation.QuotaTotal:
			spec.Total = last.Total
		case annotation.QuotaNamespaces:
			spec.Namespaces = last.Namespaces
		case annotation.ExpectedRuntime:
			spec.RunTime = last.RunTime
		}
	}
	for _, o := range objects[1:] {
		problems = append(problems, fmt.Sprintf("ElasticQuota %s/%s of %s has the name of an older one; it is ignored",
			o.Namespace, o.Name, o.GroupVersionKind().Group))
	}
	spec.Total = spec.Total.Offered(s.devices)
	s.account.Set(spec)
	s.problems[name] = problems
}

// countLimited adds sign, 1 or -1, to the number of quotas that limit each device which the quota of a name limits.
func (s *Quotas) countLimited(name string, sign int) {
	q := s.account.Forest().Find(name)
	if q == nil {
		return
	}
	for device := range q.Spec().Max {
		if !amount.IsDevice(device) {
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
