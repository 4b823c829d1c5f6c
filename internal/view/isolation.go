package view

import (
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
)

// Strengths of isolation, weakest first.
const (
	IsolationNone        = "none"        // the share is a promise between the pods on the GPU
	IsolationCooperative = "cooperative" // a library limits the programs that load it
	IsolationHard        = "hard"        // a MIG device has memory and compute of its own
)

// Isolation is what keeps a pod, and its neighbours, to their parts of a GPU.
type Isolation struct {
	Strength string `json:"strength"`
	// By is the library of cooperative isolation, by the label koordinator.sh/gpu-isolation-provider.
	By string `json:"by,omitempty"`
}

// isolationOf returns the weakest isolation of the parts of GPUs among grants; nil where all GPUs are whole. Provider
// is the library that the pod asks for; "" for none.
func isolationOf(v *ledger.View, grants []device.Grant, provider string) *Isolation {
	slices := map[string]bool{}
	if account := v.Devices(); account != nil {
		for d := range account.Devices() {
			slices[d.ID] = d.Profile != ""
		}
	}
	var hard bool
	for i := range grants {
		g := &grants[i]
		switch {
		case slices[g.ID]:
			hard = true
		case g.Type != device.GPU || g.Amount[device.Cores] >= 100 || g.Ratio >= 100:
		case provider != "":
			return &Isolation{Strength: IsolationCooperative, By: provider}
		default:
			return &Isolation{Strength: IsolationNone}
		}
	}
	if hard {
		return &Isolation{Strength: IsolationHard}
	}
	return nil
}

// isolationOnNode returns the strength of isolation that a share of a GPU can have on a node: that of a library needs
// the pod's label as well.
func isolationOnNode(v *ledger.View) string {
	parts := 0
	for d := range v.Devices().Devices() {
		if d.Type == device.GPU && d.Offered && d.Profile == "" {
			parts++
		}
	}
	switch {
	case parts == 0:
		return IsolationHard
	case v.Facts().GPUIsolation != "":
		return IsolationCooperative
	}
	return IsolationNone
}
