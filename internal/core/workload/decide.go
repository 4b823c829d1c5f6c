package workload

// Grouping is which pods form gangs by the rules of the table.
type Grouping string

// Values of Grouping.
const (
	Declared Grouping = "Declared" // those of all namespaces
	OptIn    Grouping = "OptIn"    // those of namespaces that ask for it
	Off      Grouping = "Off"      // none
)

// Groupings are all values of Grouping.
func Groupings() []Grouping { return []Grouping{Declared, OptIn, Off} }

// Allows reports whether pods of a namespace with these labels form gangs. The label off has the value off where they
// do not, and ask the value auto or required where they do.
func (g Grouping) Allows(labels map[string]string, off, ask string) bool {
	asked := labels[ask] == "auto" || labels[ask] == "required"
	return labels[off] != "off" && (g == Declared || g == OptIn && asked)
}

// Read returns an object that is above a pod, with its content.
type Read func(Link) (Link, map[string]any, error)

// Decision is what the table says of a pod. The zero value leaves the pod alone.
type Decision struct {
	// Owner is the object whose rule decides. Plan is that of the attempt to which the pod belongs.
	Owner Link
	Plan  Plan
	// Gang is the pod's gang of the Plan; "" for a pod that starts alone.
	Gang string
	// Unknown reports that the object has no such pod: what was read of it is older than the pod.
	Unknown bool
}

// Decide returns what the table says of a pod that names no gang. An error is why an owner cannot be followed, or a
// *ValueError, with the Owner whose value cannot be read. The pod is then left alone.
func (t Table) Decide(pod Link, labels map[string]string, terms Terms, read Read) (d Decision, err error) {
	contents := map[string]map[string]any{}
	rule, owner, err := t.Match(pod, func(want Link) (Link, error) {
		found, content, err := read(want)
		contents[found.UID] = content
		return found, err
	})
	if err != nil || rule == nil || rule.Default == Parent {
		return Decision{}, err
	}
	d.Owner = owner
	if d.Plan, err = rule.PlanOf(contents[owner.UID], terms, labels); err != nil {
		return d, err
	}
	gang, isMember := d.Plan.GangOf(labels)
	d.Gang, d.Unknown = gang, !isMember && !d.Plan.Suspended && d.Plan.Reason == ""
	return d, nil
}
