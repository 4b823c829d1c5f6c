// Package status is what users see of an agent: conditions of its Node, Events on the Node and its pods, and metrics.
//
// A condition is written only when it changes, and one that comes to hold is an Event too. What several sources say of
// one condition is joined: it holds while one of them says so.
package status
