package elasticquota

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// copyKey is where a cycle has its Copy.
const copyKey fwk.StateKey = Name + "Copy"

// Copy is an account of quotas apart from the cluster's: questions change it freely. It is safe for concurrent use.
type Copy struct {
	// quotas reads pods as the cluster's account does. Nothing is written to it.
	quotas *kube.Quotas
	mu     sync.Mutex // guards account
	// account is the copy. It does not follow the cluster's.
	account *quota.Account
}

// NewCopy returns a copy of the account as it is.
func NewCopy(q *kube.Quotas) *Copy {
	return &Copy{quotas: q, account: kube.Ask(q, (*quota.Account).Rebuilt)}
}

// Clone returns c: a dry run has its own quota.Trial.
func (c *Copy) Clone() fwk.StateData { return c }

// Mark makes the plugin use the copy in an attempt, instead of the cluster's account.
func (c *Copy) Mark(cs fwk.CycleState) { cs.Write(copyKey, c) }

// Read calls f with the account, which must not be kept.
func (c *Copy) Read(f func(*quota.Account)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.account)
}

// Set changes min and max of a quota in the named dimensions. It returns a text that says what is wrong with the
// request, empty if nothing is.
func (c *Copy) Set(name string, least, most corev1.ResourceList) (wrong string) {
	c.Read(func(a *quota.Account) {
		q := a.Forest().Find(name)
		if q == nil {
			wrong = "quota " + name + " does not exist"
			return
		}
		next := *q.Spec()
		next.Min, next.Max = with(next.Min, least), with(next.Max, most)
		for _, dimension := range slices.Sorted(maps.Keys(next.Min)) {
			limit, limited := next.Max[dimension]
			if n := next.Min[dimension]; n < 0 || limited && limit < n {
				wrong = "quota " + name + ": min." + dimension + " must be from 0 to max." + dimension
				return
			}
		}
		a.Set(next)
	})
	return wrong
}

// with returns a copy of amounts in which those of list replace the old ones.
func with(amounts amount.List, list corev1.ResourceList) amount.List {
	if len(list) == 0 {
		return amounts
	}
	next := amount.List{}
	maps.Copy(next, amounts)
	maps.Copy(next, convert.Amounts(list))
	return next
}

// Put counts a pod as pending.
func (c *Copy) Put(pod *corev1.Pod) {
	p := c.quotas.Convert(pod)
	c.Read(func(a *quota.Account) { a.Put(p) })
}

// PutClaim counts a ResourceClaim.
func (c *Copy) PutClaim(claim *resourcev1.ResourceClaim) {
	charge := c.quotas.ChargeOf(claim)
	c.Read(func(a *quota.Account) { a.PutCharge(charge) })
}

// Reserve makes a pod hold what it asks for, whatever the limits.
func (c *Copy) Reserve(uid string) { c.Read(func(a *quota.Account) { _ = a.Reserve(uid) }) }

// Remove forgets a pod.
func (c *Copy) Remove(uid string) { c.Read(func(a *quota.Account) { a.Remove(uid) }) }

// Limit returns why a pod is not admitted, with its gang; nil for one that is.
func (c *Copy) Limit(uid string) (x *view.QuotaLimit) {
	c.Read(func(a *quota.Account) { x = limitOf(a, uid, anywhere(nil)) })
	return x
}

// Most returns how many pods like this one the quotas admit one after the other, at most limit, and reserves them in c
// outside of any gang. If it is fewer than limit, name is the quota that refuses the next one, and refused says why. It
// takes a number of steps logarithmic in limit, because pods are admitted one after the other if and only if one pod
// with their sum is. Each pod has own ResourceClaims beside those that all of them share.
func (c *Copy) Most(pod *corev1.Pod, own []*resourcev1.ResourceClaim, limit int,
) (n int, name string, refused *fwk.Status) {
	one := c.quotas.Convert(pod)
	one.Gang, one.Node = "", ""
	for _, claim := range own {
		charge := c.quotas.ChargeOf(claim)
		one.Amounts = maps.Clone(one.Amounts)
		one.Amounts.Add(charge.Amounts)
		one.Claims = slices.DeleteFunc(slices.Clone(one.Claims), func(id string) bool { return id == charge.ID })
	}
	c.Read(func(a *quota.Account) {
		for size := 1 << bits.Len(uint(limit)); size > 0; size >>= 1 {
			if n+size > limit {
				continue
			}
			some := one
			some.UID, some.Amounts = fmt.Sprintf("%s and %d more", pod.UID, n), amount.List{}
			for name, each := range one.Amounts {
				some.Amounts[name] = times(each, int64(size))
			}
			a.Put(some)
			if a.Reserve(some.UID) == nil {
				n += size
			} else {
				a.Remove(some.UID)
			}
		}
		if n == limit {
			return
		}
		one.UID = string(pod.UID) + " and one more"
		a.Put(one)
		if x := a.Admit(one.UID); x != nil {
			name, refused = x.Quota, (&refusal{x}).status().WithPlugin(Name)
		}
		a.Remove(one.UID)
	})
	return n, name, refused
}

// times returns a·b, or the largest number if the product is larger. Both are not negative.
func times(a, b int64) int64 {
	if high, low := bits.Mul64(uint64(a), uint64(b)); high == 0 && low <= math.MaxInt64 {
		return int64(low)
	}
	return math.MaxInt64
}
