// Package coscheduling is the plugin Coscheduling: pods of a gang are not tried before the gang has enough members, its
// PodGroup exists, and the gangs of its group list each other.
//
//	Rounds       takes the members out of the queue together, and gives each of them its cycle
//	attempt      places members on the snapshot and on copies of the accounts, and takes all of it back
//	place        is the domain of the network in which members are tried
//	preemption   is an attempt with pods of lower priority out of the way
//	reservation  is nodes that are kept for a gang which others overtook
//	answers      are why gangs do not fit, for those of equal shape
package coscheduling
