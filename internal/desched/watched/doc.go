// Package watched keeps an evict.State that follows the API server.
//
//	Pod, PodGroup ─► kube.Gangs ─► bonds ┐
//	Pod, Node, Namespace                 │
//	PodDisruptionBudget                  ├─► Cluster ─► Read(func(*evict.State))
//	HorizontalPodAutoscaler              │
//	owners of pods, PodMigrationJob      ┘
//
// Owners are read as JSON through a table of paths, so that CloneSet and Advanced StatefulSet of Kruise need not be
// compiled in. Other kinds are looked up when a pod of them is first seen: those with the scale subresource are read at
// spec.replicas and status.replicas, the others are unknown owners.
//
// Events only mark what has changed. Read brings the State up to date first, once for all events before it. Until the
// caches are synced, and while something of a pod cannot be read, the State answers LookupFailed.
package watched
