// Package domain chooses the domains of a cluster's network in which pods that start together are tried.
//
// Input: a Request (members, how many of them must be placed, Rules), the nodes as Sites, each with its domain by rule
// and its free resources, and a lower bound of what the members ask for (Demand).
//
// Output: Domains of the Request, in the order in which they are to be tried. A Domain is a set of nodes, divided into
// Parts where a rule asks for multiples or members are ranked. The caller tries each on a snapshot; the package neither
// knows affinities nor devices.
//
// The idea: a domain is left out only if a necessary condition fails, so no domain in which the members fit is lost.
// The condition is arithmetic on sums: for each resource the domain's free amount is at least Demand.All, and the
// numbers of smallest members that fit on each node add up to Request.Min. The domains that pass are ordered: domains
// of the innermost layer first, and of one layer the domain with the least room, so that large domains remain whole.
// Where the members of a preferred layer need several of its domains, these are added from the roomiest until the
// condition holds, and the last one is replaced by the smallest that suffices.
//
// Cost: the sum of free amounts over all nodes once for each rule, and a sort of the domains of each rule. At most
// mostPreferred domains of each preferred layer are tried; of a layer that is required, all.
//
// What it does not try: sets of several domains of a preferred layer other than the one that the greedy choice gives.
package domain
