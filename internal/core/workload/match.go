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
	// Deleted reports whether the object is being deleted.
	Deleted bool
	// Owner is the controller of the object, whose namespace is not known; nil without one.
	Owner *Link
}

func (l Link) String() string { return l.Kind + " " + l.Name }

// mostOwners is how many owners a pod may have above it.
const mostOwners = 6

// ErrNotFound is what a lookup returns of an object that does not exist.
var ErrNotFound = errors.New("not found")

// Match returns the object above a pod whose rule decides about it, with the rule; nil where no rule does. It asks
// lookup for each owner. The error is why an owner cannot be followed: the pod is then left alone.
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
		found, err := lookup(want)
		switch {
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
	if rule == nil && pod.Owner == nil {
		rule, owner = t.Find(pod.Group, pod.Version, pod.Kind), pod
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
