package view

import (
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
)

// Isolation is what keeps a pod, and its neighbours, to their parts of a GPU.
type Isolation struct {
	Strength device.Strength `json:"strength"`
	// By is the library of cooperative isolation, by the label koordinator.sh/gpu-isolation-provider.
	By string `json:"by,omitempty"`
}

// isolationOf returns the isolation of a pod's grants; nil where all GPUs are whole.
func isolationOf(v *ledger.View, grants []device.Grant, provider string) *Isolation {
	switch strength := device.StrengthOf(v.Devices(), grants, provider); strength {
	case "":
		return nil
	case device.Cooperative:
		return &Isolation{Strength: strength, By: provider}
	default:
		return &Isolation{Strength: strength}
	}
}

// isolationOnNode returns the strength of isolation that a share of a GPU can have on a node: that of a library needs
// the pod's label as well.
func isolationOnNode(v *ledger.View) device.Strength {
	hasShares := false
	for d := range v.Devices().Devices() {
		hasShares = hasShares || d.Type == device.GPU && d.Offered && d.Profile == ""
	}
	return device.StrengthOfNode(hasShares, v.Facts().GPUIsolation)
}
