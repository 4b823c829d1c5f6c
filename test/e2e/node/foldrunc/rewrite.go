package main

import (
	"encoding/json"
	"fmt"

	"github.com/tenon-project/tenon/test/e2e/node/fold"
)

// object is a JSON object whose members are kept as they are until one is asked for: what the wrapper does not
// know survives, numbers to the last digit.
type object map[string]json.RawMessage

// within replaces the member at path by what change makes of it, and returns the whole. A path that does not exist
// changes nothing.
func within(text json.RawMessage, path []string,
	change func(json.RawMessage) (json.RawMessage, error),
) (json.RawMessage, error) {
	if len(path) == 0 {
		return change(text)
	}
	var o object
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, fmt.Errorf("member %s: %w", path[0], err)
	}
	inner, ok := o[path[0]]
	if !ok || string(inner) == "null" {
		return text, nil
	}
	changed, err := within(inner, path[1:], change)
	if err != nil {
		return nil, err
	}
	o[path[0]] = changed
	return json.Marshal(o)
}

// cpusetOf returns the cpus and mems at path, "" where they are not set.
func cpusetOf(text json.RawMessage, path ...string) (fold.Set, error) {
	var set fold.Set
	_, err := within(text, path, func(cpu json.RawMessage) (json.RawMessage, error) {
		var c struct{ CPUs, Mems string }
		err := json.Unmarshal(cpu, &c)
		set = fold.Set{CPUs: c.CPUs, Mems: c.Mems}
		return cpu, err
	})
	return set, err
}

// folded returns the text with the cpus and mems at path folded on so many CPUs.
func folded(text json.RawMessage, count int, path ...string) (json.RawMessage, error) {
	return within(text, path, func(cpu json.RawMessage) (json.RawMessage, error) {
		var o object
		if err := json.Unmarshal(cpu, &o); err != nil {
			return nil, err
		}
		for member, in := range map[string]func(string) (string, error){
			"cpus": func(list string) (string, error) { return fold.CPUs(list, count) },
			"mems": fold.Mems,
		} {
			if err := o.list(member, in); err != nil {
				return nil, err
			}
		}
		return json.Marshal(o)
	})
}

// list replaces a member that is a list of ids.
func (o object) list(member string, in func(string) (string, error)) error {
	text, ok := o[member]
	if !ok {
		return nil
	}
	var list string
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("%s: %w", member, err)
	}
	kernels, err := in(list)
	if err != nil {
		return fmt.Errorf("%s: %w", member, err)
	}
	o[member], err = json.Marshal(kernels)
	return err
}
