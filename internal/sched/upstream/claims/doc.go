// Package claims changes what kube-scheduler's plugin DynamicResources sees of ResourceClaims. The plugin and its
// allocator decide which devices may serve a claim.
//
// # Choice
//
// The allocator gives the first devices that satisfy the claims of a pod. Choose puts a chooser around the allocator
// of each pod. It asks again without some devices, as package claim of the core proposes, and passes on the best
// answer:
//
//	PreFilter   puts the chooser in the place of the allocator; notes what the pod's claims have already
//	Filter      where a topology policy requires it: the devices, and the rest of the pod, on NUMA nodes that the
//	            policy allows together; else the node is refused
//	Reserve     the best devices on the node: the plugin filters it once more. The rest of the pod, which other
//	            plugins reserve after it, is placed beside them
//
// All that the plugin keeps of a pod so comes from its own allocator, and what it writes is what it has filtered.
//
// # Preemption
//
// The plugin knows no preemption, and refuses a node without free devices for good. On a node whose pods may have
// devices of claims the refusal becomes one that victims can resolve. In a dry run, and in the attempt of a gang
// (Depart), the devices of claims whose pods are all victims are free, and so are the cards that victims have without
// claims.
//
// A node may be kept for pods with claims, which are nominated to it. Another pod gets devices there that are left
// beside these, now or, after LookAhead, at a later time.
//
// # Members of a gang
//
// All members of a gang are reserved before the first one is bound. A claim that they share is then allocated in memory
// alone, and the plugin refuses further pods that use such a claim, but for pods of the cycle of a Kubernetes PodGroup.
// Sharing therefore calls the plugin for a member with the state of such a cycle, one for all members that are
// reserved:
//
//	PreFilter   with the state; claims that a sibling has been promised come last in the pod (see ordered)
//	Filter      refuses the nodes where a promised allocation cannot be used
//	Reserve     with the state; notes the pod
//	PreBind     one pod of a claim after the other: the first one writes the allocation; for each later one the plugin
//	            reads the claims again, as it would write another allocation from what it has read before
//	Unreserve   with the state; in a plan nothing is written to the API server
//
// The allocator gives each pod the first alternative of a request that is free, which may leave too little for the next
// member. After LaterFirst the chooser asks it for claims whose alternatives are in reverse order.
//
// # PodGroups
//
// A claim in spec.resourceClaims of a Kubernetes PodGroup is reserved for the PodGroup. Upstream serves it behind a
// feature gate that needs GenericWorkload, which queues a PodGroup as one. Sharing switches it on in the plugin alone,
// and gives the plugin the PodGroups that are known of gangs. Free does what the plugin does at the end of the cycle of
// a PodGroup.
//
// # Cards
//
// A card may have two publishers: the node's Device object, for pods, and the ResourceSlice of a driver, for claims.
// Books is between the plugin and the claims of the cluster. Devices whose cards pods have are allocated for the
// plugin: the allocator avoids them by its own rules, and their counters are used up. What the plugin promises to a
// claim is in the account of the node at once (kube.Claims), so that no pod gets it. Where a pod asks for cards in both
// ways, or a node is kept for pods of the other kind, one filter alone cannot answer: a room gives the cards of the
// node to one after the other, by the allocator and by the account. Pods without claims are therefore filtered, too,
// where drivers publish cards.
//
// # Questions
//
// Imagined is the claims of a cluster as a question has changed them: claims that its pods would get are allocated.
package claims
