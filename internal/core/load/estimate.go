package load

// Estimates of a pod that requests nothing: 250m CPUs and 200 MiB.
var unasked = Amounts{CPU: 250, Memory: 200 << 20}

// Ask is what a pod asks for in the resources of its class: batch-cpu and batch-memory for a pod of class batch.
type Ask struct {
	Request, Limit Amounts // 0 for what it does not name
	// Mid is set for a pod of class mid, which is estimated to use nothing where it asks for nothing.
	Mid bool
}

// Estimate returns what a pod will use: the given percentages of the larger of its request and its limit, rounded, and
// not more than its limit; 250m CPUs and 200 MiB where it asks for nothing.
func Estimate(a Ask, factors Percents) Amounts {
	var estimate Amounts
	for r := range estimate {
		asked := max(a.Request[r], a.Limit[r])
		switch {
		case asked > 0:
			estimate[r] = min(share(asked, factors[r], 100, 50), Most)
		case !a.Mid:
			estimate[r] = unasked[r]
		}
		if a.Limit[r] > 0 {
			estimate[r] = min(estimate[r], a.Limit[r])
		}
	}
	return estimate
}
