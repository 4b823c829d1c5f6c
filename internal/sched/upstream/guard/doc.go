// Package guard ends the panic of a plugin in the status of the one pod that the plugin was asked about.
//
// kube-scheduler makes its plugins, orders them and keeps them by itself, and calls many in goroutines of its own. A
// Guard therefore replaces each plugin where kube-scheduler keeps it: in the lists of a framework, one for each
// extension point, and in the queue, which has the PreEnqueue plugins and the hints. Each replacement has one method
// that defers, asks the plugin and allocates nothing:
//
//	framework ── list of an extension point ──► replacement ──► plugin
//	                                                │ a panic: an error that names plugin, extension point and pod
//	                                                ▼
//	                                          status of the pod, log, metric, count of attempts
//
// Plugins that divide their work do so by the Parallelizer of the framework. The one in its place continues a panic in
// the goroutine that waits for the work, where the replacement of the plugin catches it.
//
// A pod in whose attempts plugins panicked twice is held before the queue for a while (PreEnqueue), so that it costs
// the other pods nothing. Guard also refuses, before the allocator is asked, the ResourceClaims of which upstream's
// allocator is known to panic.
//
// Not guarded are the order of the queue, which is about no single pod, goroutines that a plugin starts by itself, and
// the extension points of pod groups, which need feature gates that Tenon does not support.
package guard
