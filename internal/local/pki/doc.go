// Package pki is the certificate authority of a local cluster.
//
// It is a folder of PEM files. A pair is made once, used again at every later start, and renewed under the same name
// when less than a month of it is left, or when what it must vouch for has changed. Keys are ECDSA P-256: a whole set
// takes milliseconds.
package pki
