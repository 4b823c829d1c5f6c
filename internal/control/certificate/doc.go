// Package certificate makes the serving certificates of a release, replaces them in time and publishes the authorities
// that signed them to those who connect.
//
//	Secret ca.crt, <server>.crt   ──►  servers (every replica reads it; no restart)
//	       next.<server>.crt
//	          │ 1 make: a new authority, pairs that it signed; its key is discarded
//	          │ 2 publish: every valid authority, in ConfigMap tenon-ca and in caBundle of the webhooks
//	          ▼ 3 promote: next becomes what is served, once every bundle has its authority
//
// An authority remains published until it expires: a replica that still serves an older pair is accepted. Each
// replica runs all three steps. What it writes depends on what it read in the same pass, published bundles first, and
// is refused by the API server when another replica was faster.
//
// The library cert-controller does not do this: it replaces authority, pair and caBundle at once, so that webhook calls
// are refused until every replica has its new files. docs/adr/0008-certificates.md compares both.
package certificate
