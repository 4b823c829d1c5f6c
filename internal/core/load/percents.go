package load

import "github.com/tenon-project/tenon/internal/core/amount"

// Most bounds an amount, so that sums of a million of them fit. It is 9 PB, or 9 trillion CPUs.
const Most = 1 << 53

// Percents are a percentage for each resource; 0 is for a resource that is not judged.
type Percents [amount.Resources]int64

// IsZero reports whether no resource is judged.
func (p Percents) IsZero() bool { return p == Percents{} }
