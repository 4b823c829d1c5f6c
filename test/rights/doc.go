// Package rights tests, against a real API server, what the credential of one node's agent can do: what its work needs,
// and nothing to other nodes, other programs' fields, or itself. The manifests are those of deploy.
//
// # The console in the cluster
//
// TestTheConsoleShowsWhatItsVisitorMayRead (test/rights) starts the console with the arguments of the chart, over TLS,
// beside a real API server. An account with rights on one namespace, one without rights and one that reads all ask for
// every topic, and for topics with paths in them. Then come some 50 requests that no page sends: foreign names in Host
// and Origin, tokens that are missing, expired, cut off or of another audience, in a query, a cookie or another header,
// other methods, paths out of the folder, bodies that are too large, HTTP without TLS and old TLS.
//
// TestBadInputOnARunningCluster of test/badinput asks a real API server with seven bad ScheduleExplanations. Six are
// refused and not stored, with field and rule in the text: no pod, a pod without a namespace, two gangs, a pod that
// does not exist yet, a negative ttl, a ttl that does not fit 64 bits. The seventh, about a pod of another namespace,
// is stored, and its status names the rule.
package rights
