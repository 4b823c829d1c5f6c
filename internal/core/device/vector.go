package device

import (
	"cmp"
	"math/bits"
)

// whole is a device in percent.
const whole = 100

// Dim is a dimension of one device's account.
type Dim uint8

// Dimensions. GPUs have Cores, Bytes and Slots, other devices Share, Ascend NPUs the units of templates too.
const (
	Cores Dim = iota // percent
	Bytes            // of memory; percent on a device whose memory is not known
	Slots            // one for each container that shares the device
	Share            // as Kind.Unit counts
	NPUCores
	NPUCPUs
	NPUDVPPs
	numDims
)

// Vector is an amount in every dimension of one device.
type Vector [numDims]int64

// add adds o, sign times, in every dimension.
func (v *Vector) add(o *Vector, sign int64) {
	for d := range v {
		v[d] += sign * o[d]
	}
}

// Within reports whether v is at most o in every dimension.
func (v *Vector) Within(o *Vector) bool {
	for d := range v {
		if v[d] > o[d] {
			return false
		}
	}
	return true
}

// raise raises v to o where o is larger.
func (v *Vector) raise(o *Vector) {
	for d := range v {
		v[d] = max(v[d], o[d])
	}
}

// minus is v − o, 0 where that is negative.
func (v *Vector) minus(o *Vector) Vector {
	var out Vector
	for d := range v {
		out[d] = max(v[d]-o[d], 0)
	}
	return out
}

// BytesOf returns ratio percent of a memory of total bytes, rounded down: what several ratios of at most 100 together
// come to is never more than the total.
func BytesOf(total, ratio int64) int64 { return total/whole*ratio + total%whole*ratio/whole }

// UsedRatio returns the percent of total that are used, rounded up and at most 100, so that used memory is never shown
// as free.
func UsedRatio(total, used int64) int64 {
	switch {
	case used <= 0:
		return 0
	case used >= total:
		return whole
	}
	high, low := bits.Mul64(uint64(used), whole)
	quotient, rest := bits.Div64(high, low, uint64(total))
	if rest > 0 {
		quotient++
	}
	return int64(quotient)
}

// FreeRatio returns the percent of total that are free, rounded down.
func FreeRatio(total, free int64) int64 {
	if total <= 0 {
		return 0
	}
	free = min(max(free, 0), total)
	return whole - UsedRatio(total, total-free)
}

// resource returns the name under which a dimension of devices of a type is written; "" for one that is not.
func (t Type) resource(d Dim) string {
	switch {
	case t == GPU:
		return [numDims]string{
			Cores: GPUCore, Bytes: GPUMemory, NPUCores: NPUCore, NPUCPUs: NPUCPU, NPUDVPPs: NPUDVPP,
		}[d]
	case d == Share:
		return ShareOf(t)
	}
	return ""
}

// ShareOf returns the resource of devices of a type other than GPUs.
func ShareOf(t Type) string { return "koordinator.sh/" + string(t) }

// Measure reads amounts of one device by canonical resource name, as a vector without slots and as percent of a GPU's
// memory. A device that is not a GPU may have its only resource under any name. Amounts above all real ones are cut.
func Measure(t Type, amounts map[string]int64) (v Vector, ratio int64) {
	for d := range numDims {
		if name := t.resource(d); name != "" {
			v[d] = min(amounts[name], mostAmount)
		}
	}
	if t == GPU {
		v[Cores] = cmp.Or(v[Cores], amounts[GPUPercent])
		return v, cmp.Or(amounts[GPURatio], amounts[GPUPercent])
	}
	if len(amounts) == 1 {
		for _, n := range amounts {
			v[Share] = min(n, mostAmount)
		}
	}
	return v, 0
}

// Amounts writes what Measure reads. It leaves out zeros.
func (v *Vector) Amounts(t Type, ratio int64) map[string]int64 {
	out := map[string]int64{}
	for d, n := range v {
		if name := t.resource(Dim(d)); name != "" && n != 0 {
			out[name] = n
		}
	}
	if ratio != 0 {
		out[GPURatio] = ratio
	}
	return out
}
