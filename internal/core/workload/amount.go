package workload

import (
	"encoding/json"
	"math"
	"strconv"
)

// read returns the number, and whether there is one. A missing Amount has none.
func (a *Amount) read(root, from place) (n int64, has bool, err error) {
	if a == nil {
		return 0, false, nil
	}
	found, has, err := a.At.one(root, from)
	if err != nil {
		return 0, false, err
	}
	if has {
		n, err = wholeNumber(found, false)
	}
	if a.Default != nil && (!has || a.ZeroIsAbsent && n == 0) {
		n, has = *a.Default, true
	} else if a.ZeroIsAbsent && n == 0 {
		has = false
	}
	return max(n-a.Minus, 0), has, err
}

// or returns the number, or another one without it.
func (a *Amount) or(root, from place, fallback int64) (int64, error) {
	n, has, err := a.read(root, from)
	if !has {
		n = fallback
	}
	return n, err
}

func wholeNumber(p place, isText bool) (int64, error) {
	n, ok := int64(0), false
	switch v := p.value.(type) {
	case int:
		n, ok = int64(v), true
	case int32:
		n, ok = int64(v), true
	case int64:
		n, ok = v, true
	case float64:
		n, ok = int64(v), v == math.Trunc(v) && math.Abs(v) <= math.MaxInt32
	case json.Number:
		i, err := v.Int64()
		n, ok = i, err == nil
	case string:
		i, err := strconv.ParseInt(v, 10, 64)
		n, ok = i, isText && err == nil
	}
	if !ok || n < 0 || n > math.MaxInt32 {
		return 0, p.errorf("must be a whole number from 0 to %d", math.MaxInt32)
	}
	return n, nil
}

// anyHolds reports whether one of the conditions holds for a role.
func anyHolds(all []Condition, root, from place, role string) (bool, error) {
	for i := range all {
		if holds, err := all[i].holds(root, from, role); err != nil || holds {
			return holds, err
		}
	}
	return false, nil
}

func (c *Condition) holds(root, from place, role string) (bool, error) {
	if c.Role != "" {
		return c.Role == role, nil
	}
	found, err := c.At.find(root, from)
	if err != nil {
		return false, err
	}
	exempt, err := c.Unless.find(root, from)
	if err != nil || len(exempt) > 0 {
		return false, err
	}
	one := int64(1)
	switch {
	case c.Present:
		for _, f := range found {
			if !isEmpty(f.value) {
				return true, nil
			}
		}
		return false, nil
	case !c.Differs.isZero():
		a, err := (&Amount{At: c.At, Default: &one}).or(root, from, 1)
		if err != nil {
			return false, err
		}
		b, err := (&Amount{At: c.Differs, Default: &one}).or(root, from, 1)
		return a != b, err
	case c.Not != "":
		text, err := c.At.textAt(root, from)
		return text != c.Not, err
	}
	for _, f := range found {
		switch want := c.Equals.(type) {
		case bool:
			got, ok := f.value.(bool)
			if !ok {
				return false, f.errorf("must be true or false")
			}
			if got == want {
				return true, nil
			}
		case string:
			got, ok := f.value.(string)
			if !ok {
				return false, f.errorf("must be a string")
			}
			if got == want {
				return true, nil
			}
		}
	}
	return false, nil
}

// problem returns what is wrong with the condition.
func (c *Condition) problem() string {
	ways := 0
	for _, given := range []bool{c.Role != "", c.Equals != nil, c.Not != "", c.Present, !c.Differs.isZero()} {
		if given {
			ways++
		}
	}
	switch c.Equals.(type) {
	case nil, bool, string:
	default:
		return "equals must be true, false or a string"
	}
	if ways != 1 || c.At.isZero() != (c.Role != "") {
		return "must have role, or at and one of equals, not, present, differs"
	}
	return ""
}

func isEmpty(value any) bool {
	switch v := value.(type) {
	case []any:
		return len(v) == 0
	case map[string]any:
		return false
	case string:
		return v == ""
	}
	return value == nil
}
