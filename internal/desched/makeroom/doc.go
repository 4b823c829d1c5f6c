// Package makeroom answers which pods to move so that waiting pods fit, and has the policies that move them.
//
// The limits on evictions say which pods may be moved and what that costs. The scheduler searches for the smallest set
// of them after whose move the waiting pods fit, with a place for each pod that moves. Nothing is moved here: a
// PodMigrationJob for each pod does, and each passes the limits again.
package makeroom
