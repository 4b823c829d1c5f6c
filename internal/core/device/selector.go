package device

import (
	"slices"
	"strconv"
)

// Operator is how a term of a selector compares, as in a label selector of Kubernetes.
type Operator string

// Operators.
const (
	In           Operator = "In"
	NotIn        Operator = "NotIn"
	Exists       Operator = "Exists"
	DoesNotExist Operator = "DoesNotExist"
	// Gt and Lt compare whole numbers: a label that is absent or not a number satisfies neither.
	Gt Operator = "Gt"
	Lt Operator = "Lt"
)

// Term is one condition of a selector.
type Term struct {
	Key      string
	Operator Operator
	Values   []string
}

// Selector is a label selector: all its terms hold. The zero value matches everything.
type Selector []Term

// Matches reports whether labels satisfy s. A label that is not there satisfies NotIn.
func (s Selector) Matches(labels map[string]string) bool {
	return !slices.ContainsFunc(s, func(t Term) bool {
		value, has := labels[t.Key]
		switch t.Operator {
		case In:
			return !has || !slices.Contains(t.Values, value)
		case NotIn:
			return has && slices.Contains(t.Values, value)
		case Exists:
			return !has
		case Gt, Lt:
			return !t.compares(value)
		}
		return has
	})
}

// compares reports whether a label's value satisfies a term with Gt or Lt.
func (t *Term) compares(value string) bool {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || len(t.Values) != 1 {
		return false
	}
	bound, err := strconv.ParseInt(t.Values[0], 10, 64)
	return err == nil && (t.Operator == Gt && n > bound || t.Operator == Lt && n < bound)
}
