package device

// Strength is how strongly pods are kept to their parts of GPUs.
type Strength string

// Strengths, weakest first.
const (
	NotIsolated Strength = "none"        // a part is a promise between the pods on the GPU
	Cooperative Strength = "cooperative" // a library limits the programs that load it
	Hard        Strength = "hard"        // a MIG device has memory and compute of its own
)

// StrengthOf returns the weakest isolation of the parts of GPUs among grants; "" where all GPUs are whole. provider is
// the library that the pod asks for; "" for none. devices may be nil.
func StrengthOf(devices *View, grants []Grant, provider string) Strength {
	slices := map[string]bool{}
	if devices != nil {
		for d := range devices.Devices() {
			slices[d.ID] = d.Profile != ""
		}
	}
	var weakest Strength
	for i := range grants {
		g := &grants[i]
		switch {
		case slices[g.ID]:
			weakest = Hard
		case g.Type != GPU || g.Amount[Cores] >= 100 || g.Ratio >= 100:
		default:
			return StrengthOfNode(true, provider)
		}
	}
	return weakest
}

// StrengthOfNode returns the isolation that a part of a GPU can have on a node: hasShares says that a GPU can be given
// in parts other than MIG devices, provider is the library that the node has; "" for none.
func StrengthOfNode(hasShares bool, provider string) Strength {
	switch {
	case !hasShares:
		return Hard
	case provider != "":
		return Cooperative
	}
	return NotIsolated
}
