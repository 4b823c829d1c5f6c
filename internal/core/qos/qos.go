package qos

import "slices"

// Class is the value of the label koordinator.sh/qosClass.
type Class uint8

// Classes; None is a pod without the label.
const (
	None Class = iota
	LSE
	LSR
	LS
	BE
	System
)

// classNames has the name of each Class, by its number.
var classNames = [...]string{"", "LSE", "LSR", "LS", "BE", "SYSTEM"}

// String returns the label's value; "" for None.
func (c Class) String() string { return classNames[c] }

// ParseClass reads a label value; false when it is not one of LSE, LSR, LS, BE, SYSTEM and "".
func ParseClass(s string) (Class, bool) {
	i := slices.Index(classNames[:], s)
	return Class(max(i, 0)), i >= 0
}

// Band is a priority class of Koordinator.
type Band uint8

// Bands; NoBand is a priority outside all of them.
const (
	NoBand Band = iota
	Prod
	Mid
	Batch
	Free
)

// bandNames has the name of each Band, by its number.
var bandNames = [...]string{"", "koord-prod", "koord-mid", "koord-batch", "koord-free"}

// String returns the PriorityClass name; "" for NoBand.
func (b Band) String() string { return bandNames[b] }

// ParseBand reads a PriorityClass name; false when it is not one of the four.
func ParseBand(s string) (Band, bool) {
	i := slices.Index(bandNames[:], s)
	return Band(max(i, 0)), i > 0
}

// BandOf returns the band that a numeric priority falls into: 9000–9999 prod, 7000–7999 mid, 5000–5999 batch,
// 3000–3999 free, else NoBand.
func BandOf(priority int32) Band {
	return map[int32]Band{9: Prod, 7: Mid, 5: Batch, 3: Free}[priority/1000]
}

// Kube is the QoS class of Kubernetes.
type Kube uint8

// Kubernetes' classes.
const (
	BestEffort Kube = iota
	Burstable
	Guaranteed
)

// Role is the CPUs that a pod runs on.
type Role uint8

// Roles.
const (
	// SharedPool: the CPU shared pool (LS pool), or the part of it that its shared-pool allocation names.
	SharedPool Role = iota
	// Exclusive: CPUs shared with no pod (LSE).
	Exclusive
	// ExclusiveWithBE: CPUs shared with the BE pool alone (LSR).
	ExclusiveWithBE
	// BEPool: the BE CPU shared pool.
	BEPool
	// SystemPool: the node's system CPUs, else the LS pool.
	SystemPool
	// KubeletPinned: left to the kubelet's static policy.
	KubeletPinned
)

// Binds reports whether the role has exclusive CPUs chosen by Tenon.
func (r Role) Binds() bool { return r == Exclusive || r == ExclusiveWithBE }

// Pod is what the rules look at.
type Pod struct {
	Class Class
	// Band: of the label priority-class, else of spec.priority, else NoBand (the default of the class counts).
	Band Band
	Kube Kube
	// MilliCPU is the pod's CPU request as the scheduler counts it.
	MilliCPU int64
	// PinnedByKubelet: the node's static CPU manager holds CPUs for it and no allocation of Tenon exists.
	PinnedByKubelet bool
}

// RoleOf applies the eight principles. A pod of class LSE or LSR binds when its band is prod, which is the default of
// these classes, and it asks for CPU; otherwise it falls back to the shared pool.
func RoleOf(p Pod) Role {
	binds := (p.Band == Prod || p.Band == NoBand) && p.MilliCPU > 0
	switch {
	case p.Class == LSE && binds:
		return Exclusive
	case p.Class == LSR && binds:
		return ExclusiveWithBE
	case p.Class == BE, p.Class == None && p.Kube == BestEffort:
		return BEPool
	case p.Class == System:
		return SystemPool
	case p.Class == None && p.Kube == Guaranteed && p.PinnedByKubelet:
		return KubeletPinned
	}
	return SharedPool
}
