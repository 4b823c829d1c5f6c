package badinput

import (
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/core/gang"
)

// admitted fails the test where a webhook refuses what is odd and defined.
func admitted(t *testing.T, path, manifest string) {
	t.Helper()
	if r := review(t, path, manifest, ""); !r.Allowed {
		t.Errorf("refused: %+v", r.Result)
	}
}

// oddGangCases are what can be read, and what clusters and people do to gangs beside one bad object: what counts is
// defined.
func oddGangCases() []bad {
	const sigs, community = "scheduling.sigs.k8s.io/v1alpha1", "scheduling.x-k8s.io/v1alpha1"
	const ofSigs = "labels: {pod-group.scheduling.sigs.k8s.io: g}"
	odd := func(name string, try func(g *gangs) string, says ...string) bad {
		return bad{"scheduler: gang: " + name, func(t *testing.T) string {
			t.Helper()
			g := unguardedGangs(t)
			answer := try(g)
			g.check()
			return answer
		}, says}
	}
	// says is the answer to two pods that say the same, which the webhook admits.
	says := func(name, annotations string, says ...string) bad {
		return odd(name, func(g *gangs) string {
			admitted(g.t, "/validate-pod", gangMember("ml", "p", "", annotations))
			for _, name := range []string{"p", "q"} {
				g.pod(name, 0, "", annotations)
			}
			return g.says("p", "q")
		}, says...)
	}
	object := func(name, manifest string, want ...string) bad {
		return odd(name, func(g *gangs) string {
			g.group(manifest)
			g.pod("p", 0, ofSigs, "")
			return g.says("p")
		}, want...)
	}
	// waits lets the first of two members wait for days.
	waits := func(g *gangs) {
		g.pod("p", 0, "", `name: g, min-available: "2", mode: NonStrict, waiting-time: 72h`)
		g.pod("q", 0, "", `name: g, min-available: "2", mode: NonStrict, waiting-time: 72h`)
		g.tries("p")
		g.history = true
	}
	after := func(g *gangs, d time.Duration) {
		g.now = g.now.Add(d)
		g.Update(func(s *gang.State) gang.Effects { return s.Expire(g.now) })
	}
	return []bad{
		says("a waiting time of 0", "name: g, waiting-time: 0s", "p may be tried", "waits 10m0s"),
		says("a waiting time below 0", "name: g, waiting-time: -5m", "p may be tried", "waits 10m0s"),
		says("a waiting time of days", "name: g, waiting-time: 72h", "p may be tried", "waits 72h0m0s"),
		says("a total below the minimum", `name: g, min-available: "2", total-number: "1"`, "q may be tried",
			"min 2 of 2"),
		says("a total without a minimum", `name: g, total-number: "2"`, "q may be tried", "min 2 of 2"),
		says("a minimum above the members", `name: g, min-available: "5"`,
			"p: GangNotReady: gang ml/g has 2 of the 5 members that must start together"),
		says("the largest minimum", `name: g, min-available: "2147483647"`, "q: GangNotReady", "2 of the 2147483647"),
		says("a group of gangs that do not exist", `name: g, groups: '["ml/g","other/h"]'`,
			"p: GangGroupNotMutual: gang other/h, which the pod's gang lists, does not exist or lists other gangs"),
		says("a group that lists its gang twice", `name: g, groups: '["ml/g","ml/g"]'`, "p may be tried"),
		says("a group of none", "name: g, groups: '[]'", "p may be tried"),
		says("a policy under both names", `name: g, match-policy: only-waiting, `+
			`"pod-group.scheduling.sigs.k8s.io/match-policy": once-satisfied`, "p may be tried", "only-waiting"),
		object("a PodGroup with a minimum of 0", podGroupOf(sigs, "", "minMember: 0"), "p may be tried", "min 1 of 1"),
		object("a PodGroup with a minimum below 0", podGroupOf(sigs, "", "minMember: -7"), "p may be tried",
			"min 1 of 1"),
		object("a PodGroup without a spec", podGroupOf(sigs, "", ""), "p may be tried", "min 1 of 1"),
		object("a PodGroup with a waiting time of 0", podGroupOf(sigs, "", "scheduleTimeoutSeconds: 0"), "waits 10m0s"),
		object("a PodGroup with a waiting time below 0", podGroupOf(sigs, "", "scheduleTimeoutSeconds: -1"),
			"waits 10m0s"),
		object("a PodGroup of another group than the label's", podGroupOf(community, "", "minMember: 1"),
			"p may be tried"),
		odd("a waiting time of days is over", func(g *gangs) string {
			waits(g)
			after(g, 72*time.Hour-time.Second)
			before := g.says("p", "q")
			after(g, time.Second)
			g.lose("p")
			return before + g.says("p", "q")
		}, "p: GangHolding: gang ml/g holds 1 of the 2 members", "p: GangTimeout: gang ml/g had only 1 of 2 members"),
		odd("the framework ends a wait of days after 15 minutes", func(g *gangs) string {
			waits(g)
			after(g, 15*time.Minute)
			g.lose("p")
			answer := g.says("p")
			g.tries("p")
			after(g, 71*time.Hour+44*time.Minute)
			answer += g.says("p")
			after(g, time.Minute)
			g.lose("p")
			return answer + g.says("q")
		}, "p may be tried", "p: GangHolding", "q: GangTimeout"),
		odd("a group without its own gang", func(g *gangs) string {
			g.pod("p", 0, "", `name: g, groups: '["ml/h"]'`)
			g.pod("q", 0, "", `name: h, groups: '["ml/g","ml/h"]'`)
			return g.says("p", "q")
		}, "p may be tried", "q may be tried"),
		odd("lists of a group that differ", func(g *gangs) string {
			g.pod("p", 0, "", `name: g, groups: '["ml/g","ml/h"]'`)
			g.pod("q", 0, "", `name: h, groups: '["ml/g","ml/h","ml/i"]'`)
			g.pod("r", 0, "", "name: i")
			return g.says("p", "q", "r")
		},
			"p: GangGroupNotMutual: gang ml/h, which", "q: GangGroupNotMutual: gang ml/g, which", "r may be tried",
		),
		odd("a outsider lists a gang", func(g *gangs) string {
			g.pod("p", 0, "", "name: g")
			g.pod("q", 0, "", `name: outsider, groups: '["ml/g","ml/outsider"]'`)
			return g.says("p", "q")
		}, "p may be tried", "q: GangGroupNotMutual: gang ml/g, which"),
		odd("pods that disagree", func(g *gangs) string {
			g.pod("young", 1, "", `name: g, min-available: "9", mode: NonStrict`)
			g.pod("old", 60, "", `name: g, min-available: "2"`)
			g.pod("youngest", 0, "", `name: g, min-available: none`)
			answer := g.says("young", "old", "youngest")
			g.Read(func(s *gang.State) {
				if winner, overruled := s.Overruled("young"); !overruled || winner != "ml/old" {
					g.t.Errorf("young is overruled by %q, %t", winner, overruled)
				}
			})
			return answer
		}, "young may be tried", "youngest may be tried", "min 2 of 2, Strict"),
		odd("the pod that decides is deleted", func(g *gangs) string {
			g.pod("old", 60, "", `name: g, min-available: "1"`)
			g.pod("young", 1, "", `name: g, min-available: "3"`)
			before := g.says("young")
			g.RemovePod(g.pods["old"])
			delete(g.pods, "old")
			return before + g.says("young")
		}, "young may be tried", "young: GangNotReady: gang ml/g has 1 of the 3"),
		odd("two gangs", func(g *gangs) string {
			g.pod("p", 0, "labels: {pod-group.scheduling.sigs.k8s.io/name: h}", "name: g")
			g.pod("q", 0, "", `name: g, min-available: "2"`)
			return g.says("p", "q")
		}, "p may be tried", "q: GangNotReady: gang ml/g has 1 of the 2"),
		odd("a PodGroup that does not exist", func(g *gangs) string {
			g.pod("p", 0, ofSigs, `min-available: "1"`)
			return g.says("p")
		}, "p: GangNotFound: PodGroup ml/g does not exist"),
		odd("a PodGroup of Kubernetes' own that does not exist", func(g *gangs) string {
			g.pod("p", 0, "", "")
			return g.says("p")
		}, "p: GangNotFound: PodGroup ml/g does not exist"),
		odd("a PodGroup is deleted while its pods wait", func(g *gangs) string {
			g.group(podGroupOf(sigs, "mode: NonStrict", "minMember: 2"))
			g.pod("p", 0, ofSigs, "")
			g.pod("q", 0, ofSigs, "")
			g.tries("p")
			before := g.says("p")
			g.ungroup(podGroupOf(sigs, "", ""))
			g.lose("p") // as the handler does
			return before + g.says("p", "q")
		}, "p: GangHolding", "p: GangNotFound", "q: GangNotFound"),
		odd("a PodGroup is created again with another minimum", func(g *gangs) string {
			g.group(podGroupOf(sigs, "", "minMember: 1"))
			g.pod("p", 0, ofSigs, "")
			before := g.says("p")
			g.ungroup(podGroupOf(sigs, "", ""))
			between := g.says("p")
			g.group(podGroupOf(sigs, "", "minMember: 3"))
			return before + between + g.says("p")
		}, "p may be tried", "p: GangNotFound", "p: GangNotReady: gang ml/g has 1 of the 3"),
		odd("PodGroups of one name in both groups", func(g *gangs) string {
			g.group(podGroupOf(community, "", "minMember: 9"))
			g.group(podGroupOf(sigs, "", "minMember: 1"))
			g.pod("p", 0, "labels: {scheduling.x-k8s.io/pod-group: g}", "")
			return g.says("p")
		}, "p may be tried", "min 1 of 1"),
		odd("a PodGroup that cannot be read any more", func(g *gangs) string {
			g.group(podGroupOf(sigs, "", "minMember: 1"))
			g.pod("p", 0, ofSigs, "")
			before := g.says("p")
			g.group(podGroupOf(sigs, "", "minMember: x"))
			between := g.says("p")
			g.group(podGroupOf(sigs, "", "minMember: 1"))
			if g.says("p") != before {
				g.t.Errorf("after the repair: %s", g.says("p"))
			}
			return before + between
		}, "p may be tried", "p: BadAnnotation: PodGroup/ml/g: spec.minMember"),
		odd("a waiting member is deleted and comes again under its name", func(g *gangs) string {
			g.pod("p", 0, "", `name: g, min-available: "2", mode: NonStrict`)
			g.pod("q", 0, "", `name: g, min-available: "2", mode: NonStrict`)
			g.tries("p")
			g.RemovePod(g.pods["p"])
			g.pod("p", 0, "", `name: g, min-available: "2", mode: NonStrict`)
			g.tries("q")
			g.history = true
			return g.says("p", "q")
		}, "p may be tried", "q: GangHolding: gang ml/g holds 1 of the 2"),
	}
}
