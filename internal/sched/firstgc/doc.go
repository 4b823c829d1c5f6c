// Package firstgc delays the first garbage collection of a process until its heap has 24 MB. A command imports it for
// this effect.
//
// The runtime collects at 4 MB first, and then each time that the heap has doubled. A scheduler reaches 20 MB while it
// starts, after seven collections that take a fifth of its CPU; afterwards its heap has as much in any case. From the
// first collection on GOGC is in force as if there had been no delay.
//
// The package imports the standard library alone, and its path sorts before go.etcd.io and k8s.io: so Go initializes
// it before the packages that allocate most before main.
package firstgc
