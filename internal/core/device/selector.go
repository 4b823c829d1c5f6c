package device

import "slices"

// Operator is how a term of a selector compares, as in a label selector of Kubernetes.
type Operator string

// Operators.
const (
	In           Operator = "In"
	NotIn        Operator = "NotIn"
	Exists       Operator = "Exists"
	DoesNotExist Operator = "DoesNotExist"
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
		}
		return has
	})
}
