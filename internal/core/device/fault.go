package device

import (
	"fmt"
	"strings"
)

// Rule is what a request for devices breaks.
type Rule uint8

// Rules. NotAsked and InvalidAlone are warnings: the request is read all the same.
const (
	NoRule          Rule = iota
	OneGPUName           // a container names whole GPUs beside shares, or two vendors
	ShorthandAlone       // koordinator.sh/gpu beside another name of GPUs
	OneMemory            // bytes and ratio
	MemoryMissing        // cores, or GPUs to spread over, without memory
	HundredMultiple      // percent above 100 that are not a multiple of it
	CountsAgree          // cores of several GPUs, memory of one
	Divisible            // not a multiple of the number of GPUs
	MostPerDevice        // more than one device has
	TemplateForm         // neither form in which templates are asked for
	TemplateOne          // a template on several devices
	LimitEqual           // request and limit of a name that the API server does not check
	OneSpelling          // two spellings of one name in a pod
	NotZero              // an amount of nothing
	NotAsked             // a wish about devices that the pod does not request
	InvalidAlone         // containers that are only valid as their sum
)

// Fault is a refusal or warning about what a pod asks for: which container, which field, which rule. Value is what the
// field says, Allowed the number in the rule, Other the second field that takes part.
type Fault struct {
	Container string // "" for the pod
	Field     string
	Rule      Rule
	Value     int64
	Allowed   int64
	Other     string
}

// Error names container, field and rule.
func (f Fault) Error() string {
	if f.Container == "" {
		return f.Field + ": " + f.Text()
	}
	return fmt.Sprintf("container %q: %s: %s", f.Container, f.Field, f.Text())
}

// Text is the rule alone.
func (f Fault) Text() string {
	var b strings.Builder
	switch f.Rule {
	case OneGPUName:
		fmt.Fprintf(&b, "must not be requested together with %s; a container names GPUs in one way", f.Other)
	case ShorthandAlone:
		fmt.Fprintf(&b, "must not be requested together with %s; it already means cores and memory", f.Other)
	case OneMemory:
		fmt.Fprintf(&b, "declare GPU memory and GPU memory ratio at same time; request this or %s", f.Other)
	case MemoryMissing:
		fmt.Fprintf(&b, "GPU memory and GPU memory ratio all is zero; request %s or %s too", GPUMemory, GPURatio)
	case HundredMultiple:
		if f.Allowed != 0 && f.Allowed != whole {
			fmt.Fprintf(&b, "%d must be at most %d, which one device has, or a multiple of it", f.Value, f.Allowed)
			break
		}
		fmt.Fprintf(&b, "%d must be percentage of 100: at most 100, or a multiple of 100", f.Value)
	case CountsAgree:
		fmt.Fprintf(&b, "%d requests several GPUs, but %s requests a share of one", f.Value, f.Other)
	case Divisible:
		fmt.Fprintf(&b, "%d must be a multiple of %d, the number of GPUs", f.Value, f.Allowed)
	case MostPerDevice:
		fmt.Fprintf(&b, "%d must be at most %d on one device", f.Value, f.Allowed)
	case TemplateForm:
		fmt.Fprintf(&b, "must be requested as %s and %s, or as %s 1, %s, %s and %s with or without %s",
			NPUCore, GPURatio, GPUShared, NPUCore, NPUCPU, GPUMemory, NPUDVPP)
	case TemplateOne:
		fmt.Fprintf(&b, "%d must be 1 where %s is requested", f.Value, f.Other)
	case LimitEqual:
		fmt.Fprintf(&b, "request %d must equal limit %d", f.Value, f.Allowed)
	case OneSpelling:
		fmt.Fprintf(&b, "the pod also requests %s; use one spelling", f.Other)
	case NotZero:
		b.WriteString("must be greater than zero")
	case NotAsked:
		b.WriteString("has no effect: no container requests such devices")
	case InvalidAlone:
		b.WriteString("is only valid as the sum of all containers; give each container a valid request")
	}
	return b.String()
}
