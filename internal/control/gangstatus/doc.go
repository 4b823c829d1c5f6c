// Package gangstatus keeps the status of PodGroups equal to what their pods do, as gang.Step decides. It writes changes
// only, at most one a second for a PodGroup and 20 for all, in the words that the API group of the PodGroup has.
package gangstatus
