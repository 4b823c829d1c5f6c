package whatif

import (
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tenon-project/tenon/internal/view"
)

// classesTried bounds the other classes that are tried for a request.
const classesTried = 4

// claims changes one request or constraint of a claim without devices, in the order of what costs least.
func (x *fixing) claims() error {
	if x.gang != nil {
		return nil
	}
	open, classes := x.OpenClaims(x.pod)
	for _, step := range []func(*claimChange) (bool, error){
		(*claimChange).tolerate, (*claimChange).widen, (*claimChange).lower, (*claimChange).replaceClass,
	} {
		for _, c := range open {
			for i := range c.Spec.Devices.Requests {
				if c.Spec.Devices.Requests[i].Exactly == nil {
					continue
				}
				if works, err := step(&claimChange{x, c, i, classes}); works || err != nil || x.runs.Exhausted {
					return err
				}
			}
		}
	}
	return x.constraints(open)
}

// claimChange changes a request of a claim.
type claimChange struct {
	*fixing
	claim   *resourcev1.ResourceClaim
	request int
	classes []string
}

// tryClaim tries a claim with a change, and returns the node on which the pod is placed then, "" for none.
func (x *fixing) tryClaim(c *resourcev1.ResourceClaim, change func(*resourcev1.ResourceClaim)) (string, error) {
	x.claim = c.DeepCopy()
	change(x.claim)
	defer func() { x.claim = nil }()
	return x.try()
}

// keepClaim tries a change and keeps it as a fix where the pod is placed.
func (x *fixing) keepClaim(c *resourcev1.ResourceClaim, message string, change func(*resourcev1.ResourceClaim),
) (bool, error) {
	node, err := x.tryClaim(c, change)
	if node != "" && err == nil {
		x.keep(view.FixClaim, fmt.Sprintf("%s of ResourceClaim %s", message, c.Name), node)
	}
	return node != "", err
}

// exactly is the request as the cluster has it, of the name of which texts speak.
func (c *claimChange) exactly() (string, *resourcev1.ExactDeviceRequest) {
	r := &c.claim.Spec.Devices.Requests[c.request]
	return r.Name, r.Exactly
}

// keepRequest is keepClaim for a change of the request.
func (c *claimChange) keepRequest(message string, change func(*resourcev1.ExactDeviceRequest)) (bool, error) {
	return c.keepClaim(c.claim, message, func(next *resourcev1.ResourceClaim) {
		change(next.Spec.Devices.Requests[c.request].Exactly)
	})
}

func (c *claimChange) tolerate() (bool, error) {
	name, _ := c.exactly()
	return c.keepRequest("tolerate the taints of devices in request "+name, func(r *resourcev1.ExactDeviceRequest) {
		r.Tolerations = []resourcev1.DeviceToleration{{Operator: resourcev1.DeviceTolerationOpExists}}
	})
}

func (c *claimChange) widen() (works bool, err error) {
	name, r := c.exactly()
	for i := 0; i < len(r.Selectors) && !works && err == nil && !c.runs.Exhausted; i++ {
		text := ""
		if r.Selectors[i].CEL != nil {
			text = r.Selectors[i].CEL.Expression
		}
		works, err = c.keepRequest(fmt.Sprintf("leave out selector `%s` in request %s", text, name),
			func(next *resourcev1.ExactDeviceRequest) { next.Selectors = slices.Delete(next.Selectors, i, i+1) })
	}
	return works, err
}

// lower searches the largest number of devices that helps by halves. Invariant: low devices fit, and more than high do
// not.
func (c *claimChange) lower() (bool, error) {
	name, r := c.exactly()
	if r.AllocationMode == resourcev1.DeviceAllocationModeAll || r.Count < 2 {
		return false, nil
	}
	fits := func(n int64) (string, error) {
		return c.tryClaim(c.claim, func(next *resourcev1.ResourceClaim) {
			next.Spec.Devices.Requests[c.request].Exactly.Count = n
		})
	}
	node, err := fits(1)
	if node == "" || err != nil {
		return false, err
	}
	low, high := int64(1), r.Count-1
	for low < high {
		middle := (low + high + 1) / 2
		on, err := fits(middle)
		if err != nil || c.runs.Exhausted {
			return false, err // it may not be the smallest change
		}
		if on != "" {
			low, node = middle, on
		} else {
			high = middle - 1
		}
	}
	c.keep(view.FixClaim, fmt.Sprintf("request %s instead of %d in request %s of ResourceClaim %s",
		view.Count(int(low), "device"), r.Count, name, c.claim.Name), node)
	return true, nil
}

func (c *claimChange) replaceClass() (works bool, err error) {
	name, r := c.exactly()
	tried := 0
	for _, class := range c.classes {
		if class == r.DeviceClassName || tried == classesTried || works || err != nil || c.runs.Exhausted {
			continue
		}
		tried++
		works, err = c.keepRequest(fmt.Sprintf("use DeviceClass %s instead of %s in request %s", class,
			r.DeviceClassName, name), func(next *resourcev1.ExactDeviceRequest) { next.DeviceClassName = class })
	}
	return works, err
}

// constraints leaves out one constraint at a time.
func (x *fixing) constraints(open []*resourcev1.ResourceClaim) error {
	for _, c := range open {
		for i := range c.Spec.Devices.Constraints {
			text := "distinctAttribute"
			one := &c.Spec.Devices.Constraints[i]
			name := one.DistinctAttribute
			if one.MatchAttribute != nil {
				text, name = "matchAttribute", one.MatchAttribute
			}
			if name == nil {
				continue
			}
			works, err := x.keepClaim(c, fmt.Sprintf("leave out constraint %s %s", text, *name),
				func(next *resourcev1.ResourceClaim) {
					next.Spec.Devices.Constraints = slices.Delete(next.Spec.Devices.Constraints, i, i+1)
				})
			if works || err != nil || x.runs.Exhausted {
				return err
			}
		}
	}
	return nil
}
