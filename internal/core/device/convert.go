package device

import (
	"maps"
	"math"
	"slices"
)

// amounts are what a container asks for, by canonical name.
type amounts map[string]int64

// spelled reads the amounts of every container. Names that the API server does not check need equal limits, and a pod
// uses one spelling of a name.
func spelled(containers []Container, kinds Kinds) (list []amounts, faults []Fault) {
	spelling := map[string]string{}
	for _, c := range containers {
		a := amounts{}
		for _, name := range names(c.Requests, c.Limits) {
			canonical := Canonical(name)
			request, asked := c.Requests[name]
			limit, limited := c.Limits[name]
			if !asked {
				request = limit // as the API server fills it in
			}
			if !isDevice(canonical, kinds) || request <= 0 && limit <= 0 {
				continue
			}
			if canonical != name && (request != limit || !limited) {
				faults = append(faults, Fault{
					Container: c.Name, Field: name, Rule: LimitEqual, Value: request, Allowed: limit,
				})
			}
			if other, ok := spelling[canonical]; ok && other != name {
				faults = append(faults, Fault{Container: c.Name, Field: name, Rule: OneSpelling, Other: other})
			}
			spelling[canonical] = name
			if request > 0 {
				a[canonical] = request
			}
		}
		list = append(list, a)
	}
	return list, faults
}

// names returns the keys of both maps, sorted and each once.
func names(a, b map[string]int64) []string {
	all := slices.Collect(maps.Keys(a))
	return slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(all, maps.Keys(b)))))
}

// IsDevice reports whether a name, in any spelling, asks for devices of the kinds that need no Device object.
func IsDevice(name string) bool { return Kinds(nil).Has(name) }

// isDevice reports whether a canonical name asks for devices.
func isDevice(canonical string, kinds Kinds) bool {
	_, other := kinds.find(canonical)
	return other || isShareOfGPU(canonical) || IsWholeGPU(canonical) || migProfile(canonical) != ""
}

// Zeros returns the amounts of nothing that a person wrote for GPUs as such: they cannot be meant.
func Zeros(containers []Container) []Fault {
	var faults []Fault
	for _, c := range containers {
		for _, name := range names(c.Requests, c.Limits) {
			request, asked := c.Requests[name]
			if canonical := Canonical(name); canonical != GPUPercent && canonical != GPUShared {
				continue
			}
			if asked && request == 0 || !asked && c.Limits[name] == 0 {
				faults = append(faults, Fault{Container: c.Name, Field: name, Rule: NotZero})
			}
		}
	}
	return faults
}

// total is what a pod asks for as a whole: the sum of containers that run together, or an init container that asks
// for more.
func total(containers []Container, list []amounts) amounts {
	sum, first := amounts{}, amounts{}
	for i, a := range list {
		for name, n := range a {
			if containers[i].Role == Init {
				first[name] = max(first[name], n)
			} else {
				sum[name] += min(n, math.MaxInt64-sum[name])
			}
		}
	}
	for name, n := range first {
		sum[name] = max(sum[name], n)
	}
	return sum
}

// reader makes parts of amounts.
type reader struct {
	// kinds and hints decide what an amount means. parts and faults grow with each container.
	kinds  Kinds
	hints  map[Type]Hint
	parts  []Part
	faults []Fault
}

// container reads the amounts of one container.
func (r *reader) container(name string, role Role, a amounts) {
	if count, need, fault := gpus(a); fault.Rule != NoRule {
		fault.Container = name
		r.faults = append(r.faults, fault)
	} else if count > 0 {
		r.parts = append(r.parts, Part{name, role, GPU, count, need})
	}
	for _, resource := range slices.Sorted(maps.Keys(a)) {
		kind, ok := r.kinds.find(resource)
		if !ok {
			continue
		}
		count, need, fault := others(kind, r.hints[kind.Type], a[resource])
		if fault.Rule != NoRule {
			fault.Container = name
			r.faults = append(r.faults, fault)
			continue
		}
		r.parts = append(r.parts, Part{name, role, kind.Type, count, need})
	}
}

// others reads an amount of devices that are not GPUs.
func others(kind Kind, hint Hint, n int64) (count int64, need Need, fault Fault) {
	switch {
	case hint.Strategy == RequestsAsCount:
		count, need.Amount[Share] = n, 1
		if hint.Exclusive == DeviceLevel {
			need.Amount[Share] = kind.Unit
		}
	case n <= kind.Unit:
		count, need.Amount[Share] = 1, n
	case hint.Strategy == ApplyForAll:
		return 0, need, Fault{Field: kind.Resource, Rule: MostPerDevice, Value: n, Allowed: kind.Unit}
	case n%kind.Unit != 0:
		return 0, need, Fault{Field: kind.Resource, Rule: HundredMultiple, Value: n, Allowed: kind.Unit}
	default:
		count, need.Amount[Share] = n/kind.Unit, kind.Unit
	}
	return count, need, Fault{}
}

// gpus reads all that a container says of GPUs: how many, and what of each.
func gpus(a amounts) (count int64, need Need, fault Fault) {
	var complete, shares []string
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if IsWholeGPU(name) || migProfile(name) != "" {
			complete = append(complete, name)
		} else if isShareOfGPU(name) {
			shares = append(shares, name)
		}
	}
	switch {
	case len(complete) > 1:
		return 0, need, Fault{Field: complete[0], Rule: OneGPUName, Other: complete[1]}
	case len(complete) == 1 && len(shares) > 0:
		return 0, need, Fault{Field: complete[0], Rule: OneGPUName, Other: shares[0]}
	case len(complete) == 1:
		need.Whole, need.Profile = true, migProfile(complete[0])
		if need.Profile == "" {
			need.Vendor = complete[0]
		}
		return a[complete[0]], need, fault
	case len(shares) == 0:
		return 0, need, fault
	case a[GPUPercent] > 0 && len(shares) > 1:
		shares = slices.DeleteFunc(shares, func(name string) bool { return name == GPUPercent })
		return 0, need, Fault{Field: GPUPercent, Rule: ShorthandAlone, Other: shares[0]}
	case a[GPUMemory] > 0 && a[GPURatio] > 0:
		return 0, need, Fault{Field: GPUMemory, Rule: OneMemory, Other: GPURatio}
	case a[NPUCore] > 0 || a[NPUCPU] > 0 || a[NPUDVPP] > 0:
		return template(a, shares[0])
	case a[GPUPercent] > 0:
		a = amounts{GPUCore: a[GPUPercent], GPURatio: a[GPUPercent]}
		if n := a[GPUCore]; n > whole && n%whole != 0 {
			return 0, need, Fault{Field: GPUPercent, Rule: HundredMultiple, Value: n}
		}
	}
	return share(a)
}

// share reads cores and memory of GPUs, spread over as many as gpu.shared says, or as their amounts imply.
func share(a amounts) (count int64, need Need, fault Fault) {
	core, ratio, count := a[GPUCore], a[GPURatio], a[GPUShared]
	if ratio == 0 && a[GPUMemory] == 0 {
		field := GPUCore
		if count > 0 {
			field = GPUShared
		}
		return 0, need, Fault{Field: field, Rule: MemoryMissing}
	}
	if count == 0 {
		for _, name := range [...]string{GPUCore, GPURatio} {
			if n := a[name]; n > whole && n%whole != 0 {
				return 0, need, Fault{Field: name, Rule: HundredMultiple, Value: n}
			}
		}
		switch {
		case ratio > 0 && ratio <= whole && core > whole:
			return 0, need, Fault{Field: GPUCore, Rule: CountsAgree, Value: core, Other: GPURatio}
		case ratio > 0:
			count = max(ratio/whole, 1)
		default:
			count = max(core/whole, 1)
		}
	}
	for _, name := range [...]string{GPUCore, GPURatio} {
		if n := a[name]; n%count != 0 {
			return 0, need, Fault{Field: name, Rule: Divisible, Value: n, Allowed: count}
		} else if n/count > whole {
			return 0, need, Fault{Field: name, Rule: MostPerDevice, Value: n / count, Allowed: whole}
		}
	}
	need.Amount[Cores], need.Ratio = core/count, ratio/count
	if bytes := a[GPUMemory]; bytes > 0 {
		need.Amount[Bytes] = (bytes-1)/count + 1 // rounded up
	}
	if core/count == whole && ratio == core {
		need = Need{Whole: true}
	}
	return count, need, Fault{}
}

// template reads a request for a part of an Ascend NPU, which a template of that very vector must grant.
func template(a amounts, field string) (count int64, need Need, fault Fault) {
	byRatio := a[NPUCore] > 0 && a[GPURatio] > 0 && a[NPUCPU] == 0 && a[NPUDVPP] == 0 && a[GPUShared] == 0
	byBytes := a[GPUShared] > 0 && a[NPUCore] > 0 && a[NPUCPU] > 0 && a[GPUMemory] > 0
	switch {
	case a[GPUShared] > 1:
		return 0, need, Fault{Field: GPUShared, Rule: TemplateOne, Value: a[GPUShared], Other: field}
	case a[NPUDVPP] > whole:
		return 0, need, Fault{Field: NPUDVPP, Rule: MostPerDevice, Value: a[NPUDVPP], Allowed: whole}
	case a[GPURatio] > whole:
		return 0, need, Fault{Field: GPURatio, Rule: MostPerDevice, Value: a[GPURatio], Allowed: whole}
	case a[GPUCore] > 0 || !byRatio && !byBytes:
		return 0, need, Fault{Field: field, Rule: TemplateForm}
	}
	need = Need{Ratio: a[GPURatio], Template: true}
	need.Amount[Bytes], need.Amount[NPUCores] = a[GPUMemory], a[NPUCore]
	need.Amount[NPUCPUs], need.Amount[NPUDVPPs] = a[NPUCPU], a[NPUDVPP]
	return 1, need, Fault{}
}
