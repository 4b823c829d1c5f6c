// Package describe reads API objects for internal/view: a pod's subject, and what the objects of a node say beside its
// account.
package describe
