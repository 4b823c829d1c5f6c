package watched

// Empty returns a Cluster without objects and informers.
var Empty = empty
