package gang

// Budget is a PodDisruptionBudget while victims are chosen. Two budgets are the same one only if their pointers are
// equal.
type Budget struct {
	Name string // for messages
	// Allowed is how many of the pods that the budget counts may be evicted now.
	Allowed int
}

// Charges is how many victims have been chosen of the pods that each budget counts. nil charges no budget, for reading.
type Charges map[*Budget]int

// Add charges a victim to the budgets that count it, and reports whether one of them does not allow the eviction.
func (c Charges) Add(budgets []*Budget) (violates bool) {
	for _, b := range budgets {
		c[b]++
		violates = violates || c[b] > max(b.Allowed, 0)
	}
	return violates
}

// Remove takes back what Add charged for a victim that is spared.
func (c Charges) Remove(budgets []*Budget) {
	for _, b := range budgets {
		c[b]--
	}
}

// Exceed reports whether more victims are chosen than one of the budgets allows.
func (c Charges) Exceed() bool {
	for b, n := range c {
		if n > max(b.Allowed, 0) {
			return true
		}
	}
	return false
}
