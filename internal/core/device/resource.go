package device

import "cmp"

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
