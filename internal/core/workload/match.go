package workload

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Link is an object of a chain of owners.
type Link struct {
	Namespace, Group, Version, Kind, Name, UID string
	// Deleted reports whether the object is being deleted, Off whether it has the label that prevents gangs.
	Deleted, Off bool
	// Owner is the controller of the object, whose namespace is not known; nil without one.
	Owner *Link
}

func (l Link) String() string { return l.Kind + " " + l.Name }

// mostOwners is how many owners a pod may have above it.
const mostOwners = 6

// ErrNotFound is what a lookup returns of an object that does not exist.
var ErrNotFound = errors.New("not found")

// Ignores reports whether pods of a kind start one by one whatever is above it, and whatever the objects say.
func (t Table) Ignores(group, version, kind string) bool {
	r := t.Find(group, version, kind)
	return r != nil && r.Default == Never && len(r.Roles) == 0 &&
		!slices.ContainsFunc(t.rules, func(o *Rule) bool { return slices.Contains(o.Covers, r.Name()) })
}

// Match returns the object above a pod whose rule decides about it, with the rule; nil where no rule does, or where an
// owner prevents gangs. It asks lookup for each owner, but for those that no rule is about and that are above an object
// with a rule: where one of them cannot be read, the rule decides. Every other error is why an owner cannot be
// followed: the pod is then left alone.
func (t Table) Match(pod Link, lookup func(Link) (Link, error)) (*Rule, Link, error) {
	var rule *Rule
	var owner Link
	seen := map[Link]bool{}
	for at, steps := pod, 0; at.Owner != nil; steps++ {
		want := *at.Owner
		want.Namespace, want.Owner = pod.Namespace, nil
		switch {
		case seen[want]:
			return nil, Link{}, fmt.Errorf("the owners of pod %s are a cycle: %s is above itself", pod.Name, want)
		case steps == mostOwners:
			return nil, Link{}, fmt.Errorf("pod %s has more than %d owners", pod.Name, mostOwners)
		}
		seen[want] = true
		if t.Ignores(want.Group, want.Version, want.Kind) {
			return rule, owner, nil
		}
		found, err := lookup(want)
		switch {
		case err != nil && rule != nil && t.Find(want.Group, want.Version, want.Kind) == nil:
			return rule, owner, nil
		case err != nil:
			return nil, Link{}, fmt.Errorf("read the owner %s: %w", want, err)
		case found.Namespace != pod.Namespace:
			return nil, Link{}, fmt.Errorf("the owner %s is in namespace %q, the pod in %q", want, found.Namespace,
				pod.Namespace)
		case found.UID != want.UID:
			return nil, Link{}, fmt.Errorf("the owner %s was created again: its uid is %q, the reference has %q", want,
				found.UID, want.UID)
		case found.Deleted:
			return nil, Link{}, fmt.Errorf("the owner %s is being deleted", want)
		case found.Off:
			return nil, Link{}, nil
		}
		at = found
		r := t.Find(at.Group, at.Version, at.Kind)
		if r == nil || r.Default == Parent {
			continue
		}
		if rule == nil || slices.Contains(r.Covers, rule.Name()) {
			rule, owner = r, at
		}
	}
	return rule, owner, nil
}

// SplitAPIVersion returns the group and the version of an apiVersion.
func SplitAPIVersion(apiVersion string) (group, version string) {
	group, version, found := strings.Cut(apiVersion, "/")
	if !found {
		return "", apiVersion
	}
	return group, version
}
