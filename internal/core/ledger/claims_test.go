package ledger_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
)

// TestAClaimIsAHolder: it takes a card from pods and is shown with the card, and one of which it is not known what it
// has closes the node for pods, not for claims.
func TestAClaimIsAHolder(t *testing.T) {
	t.Parallel()
	f := ledger.Facts{Devices: gpus(t, nil, "a", "b")}
	claim := ledger.Entry{UID: ledger.OfClaim + "c", Namespace: "ns", Name: "c"}
	known := claim
	known.Devices = []device.Grant{
		{Hardware: &device.Hardware{Name: "d/p/share-0", UUID: "a"}},
		{Hardware: &device.Hardware{Name: "d/p/share-1", UUID: "a"}},
		{Hardware: &device.Hardware{Name: "d/p/other", UUID: "x"}},
	}
	v := ledger.New(f, known, percent("p", "b", 50)).View()
	e, _ := v.Entry(claim.UID)
	var cards []string
	for _, g := range v.GrantsOf(&e) {
		cards = append(cards, g.ID)
	}
	if diff := cmp.Diff([]string{"a"}, cards); diff != "" || !e.IsClaim() {
		t.Errorf("cards of the claim (-want +got):\n%s", diff)
	}
	if p, _ := v.Entry("p"); p.IsClaim() || len(v.GrantsOf(&p)) != 1 {
		t.Errorf("the pod is a claim: %t, has %v", p.IsClaim(), v.GrantsOf(&p))
	}
	if n := v.UnknownHolders(); n != 0 || v.AnyUnknownPod() {
		t.Errorf("%d unknown holders", n)
	}
	unknown := claim
	unknown.Unallocated = true
	if v := ledger.New(f, unknown).View(); v.UnknownHolders() != 1 || v.AnyUnknownPod() {
		t.Errorf("%d unknown holders, a pod among them: %t", v.UnknownHolders(), v.AnyUnknownPod())
	}
	pod := ledger.Entry{UID: "p", Unallocated: true}
	if v := ledger.New(f, unknown, pod).View(); v.UnknownHolders() != 2 || !v.AnyUnknownPod() {
		t.Errorf("%d unknown holders, a pod among them: %t", v.UnknownHolders(), v.AnyUnknownPod())
	}
	without := ledger.New(ledger.Facts{}, known).View()
	if e, _ := without.Entry(claim.UID); without.GrantsOf(&e) != nil {
		t.Errorf("on a node without devices the claim has %v", without.GrantsOf(&e))
	}
	moved := known
	moved.Devices = []device.Grant{{Hardware: &device.Hardware{Name: "d/p/share-0", UUID: "b"}}}
	if same := known; known.Equal(moved) || !known.Equal(same) {
		t.Error("claims with other devices are equal")
	}
}
