package view

import (
	"github.com/tenon-project/tenon/internal/core/health"
	"github.com/tenon-project/tenon/internal/core/occupancy"
)

// GPULoad is the account of one node's GPUs.
type GPULoad struct {
	Node string `json:"node"`
	Mode string `json:"mode"` // of the Device object, see NodeDevices
	occupancy.Load
	Health health.Health `json:"health,omitzero"`
}
