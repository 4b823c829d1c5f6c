package annotation

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// amounts is a ResourceList as it is read.
type amounts map[corev1.ResourceName]amount

func (a amounts) list() corev1.ResourceList {
	if a == nil {
		return nil
	}
	list := make(corev1.ResourceList, len(a))
	for name, q := range a {
		list[name] = resource.Quantity(q)
	}
	return list
}

// amount reads a quantity written as text or as a number. An exponent of three digits or more is refused: bringing
// 1e-9999999 to its canonical form takes seconds, and any user may write the text.
type amount resource.Quantity

func (a *amount) UnmarshalJSON(text []byte) error {
	mantissa, exponent, ok := strings.Cut(strings.ToLower(strings.Trim(string(text), `"`)), "e")
	if ok && len(strings.TrimLeft(exponent, "+-0")) > 2 || len(mantissa) > 64 {
		return fmt.Errorf("quantity %.32s is out of range", text)
	}
	return (*resource.Quantity)(a).UnmarshalJSON(text)
}
