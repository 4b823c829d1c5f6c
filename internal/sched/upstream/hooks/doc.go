// Package hooks is the places where kube-scheduler's own process calls Tenon: cache, queue, informers, the loop that
// takes pods, and the server. A test holds that kube-scheduler calls each of them, and the sums in testdata that the
// functions around them are those that were read.
//
// The informers (Informers, Resources) give each event to the accounts before the scheduler's cache and queue have it.
// Changes logs the nodes that changed in the cache (Changes.Watch) or in an account, for the rankings. Events counts
// the events of the queue that may let a pod fit. Gate takes no pod from the queue before all accounts are known, nor
// while as many Bindings are on their way as the API server takes at once. Server replaces the server.
package hooks
