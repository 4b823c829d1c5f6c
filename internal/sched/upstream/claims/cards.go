package claims

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// cards are those of a node that claims can get, and pods without claims.
type cards struct {
	books *Books
	// account has what pods get without claims, published is what drivers publish.
	account   *ledger.View
	published []convert.Published
}

// sharesCards reports whether drivers publish cards that pods may also get without claims.
func (c *choice) sharesCards() bool {
	books, _ := c.dra.(*Books)
	return books != nil && books.claims.AnyCards() && len(books.claims.Published()) > 0
}

// cards returns those of a node in a cycle; nil for none.
func (c *choice) cards(cs fwk.CycleState, node string) *cards {
	books, _ := c.dra.(*Books)
	if books == nil {
		return nil
	}
	view := books.view
	if trial := c.others.Trial(cs); trial != nil {
		view = trial
	}
	found := &cards{books, view(node), books.claims.Published()[node]}
	if len(found.published) == 0 || found.account == nil || found.account.Devices() == nil {
		return nil
	}
	return found
}

// held returns the devices whose cards pods have.
func (c *cards) held() []structured.DeviceID {
	h := heldDevices{account: c.account, published: c.published}
	h.fill()
	return h.ids
}

// hide lets no claim get devices whose cards pods have.
func (c *cards) hide(state *structured.AllocatedState) {
	state.AllocatedDevices.Insert(c.held()...)
}

// regain lets claims get devices whose cards only victims have. A pod may have got the card of a victim's claim
// meanwhile.
func (c *cards) regain(state *structured.AllocatedState, gone *victims) {
	byClaims, err := c.books.SharedDRAManager.ResourceClaims().ListAllAllocatedDevices()
	if err != nil {
		return // claims are changing: it remains with what was read before
	}
	for _, id := range c.held() {
		if !byClaims.Has(id) {
			state.AllocatedDevices.Delete(id)
		}
	}
	c.account = gone.removedFrom(c.account)
	c.hide(state)
}

// haveCards reports whether a victim has devices without claims.
func (v *victims) haveCards(c *choice) bool {
	if v == nil || !c.sharesCards() {
		return false
	}
	for _, pod := range v.pods {
		if c.others.AsksForDevices(pod) != nil {
			return true
		}
	}
	return false
}

// removedFrom returns the account of a node without the victims.
func (v *victims) removedFrom(account *ledger.View) *ledger.View {
	if v == nil {
		return account
	}
	for uid := range v.pods {
		account = account.Leave(string(uid))
	}
	return account
}

// mayHold reports whether a pod may have devices that claims can get.
func (c *choice) mayHold(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || c.sharesCards() && c.others.AsksForDevices(pod) != nil ||
		c.extended(pod, nil) != nil
}
