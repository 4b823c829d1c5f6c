// Package coscheduling is the plugin Coscheduling: pods of a gang are not tried before the gang has enough members, its
// PodGroup exists, and the gangs of its group list each other.
package coscheduling
