package quota

import "fmt"

// fault is why a quota hangs under Root and not where its spec says, as words about the parent.
type fault string

const (
	unknownParent fault = "does not exist"
	parentCycle   fault = "is below it"
)

// Problems lists what the forest replaced in the quota's spec, in the place that it has now, each as a sentence with
// what counts instead.
func (q *Quota) Problems() []string {
	s := &q.spec
	var out []string
	report := func(what, instead string) {
		out = append(out, fmt.Sprintf("quota %q: %s; %s", s.Name, what, instead))
	}
	if q.misplaced != "" {
		report(fmt.Sprintf("parent %q %s", s.Parent, q.misplaced), "it counts under "+Root)
	}
	for _, field := range []struct {
		name    string
		amounts Amounts
	}{{"max", s.Max}, {"min", s.Min}, {"weight", s.Weight}, {"total", s.Total}} {
		for _, dimension := range keys(field.amounts) {
			value := field.amounts[dimension]
			ceiling, named := s.Max[dimension]
			text := fmt.Sprintf("%s of %s is %d", field.name, dimension, value)
			switch {
			case value < 0:
				report(text+", must not be negative", "0 counts")
			case !named && field.name != "total":
				report(text+" without a max", "it is ignored")
			case field.name == "min" && value > max(ceiling, 0):
				report(text+", must not exceed max", "max counts")
			}
		}
	}
	return out
}
