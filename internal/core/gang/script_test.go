package gang_test

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
)

var update = flag.Bool("update", false, "write what the scripts print")

// TestScripts runs each script of testdata: a line that does not begin with "  " is an event, and what follows it is
// what the event made.
// TestScripts compares what events do with what the scripts of testdata say.
//
// F10: a round is never over after a member that was not tried is deleted.
// F11: a long waiting time has no effect, or ends after 15 minutes.
// F13: members that have ended count like those that run.
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("scripts: %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		testkit.Check(t, err)
		got := run(t, string(text))
		if *update {
			testkit.Check(t, os.WriteFile(file, []byte(got), 0o600))
		}
		if diff := cmp.Diff(string(text), got); diff != "" && !*update {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

func run(t *testing.T, text string) string {
	var out strings.Builder
	var p *player
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "# "):
			p = &player{t: t, state: gang.New(gang.Settings{}), now: time.Unix(0, 0), pods: map[string]gang.Pod{}}
			fmt.Fprintln(&out, line)
		case line == "":
			fmt.Fprintln(&out)
		case !strings.HasPrefix(line, "  "):
			fmt.Fprintf(&out, "%s\n%s", line, p.do(strings.Fields(line)))
		}
	}
	return out.String()
}

type player struct {
	t     *testing.T
	state *gang.State
	now   time.Time
	pods  map[string]gang.Pod

	refused string
}

// do carries out one event. Events are: put POD… [gang=G] [gate=NAME] [KEY=VALUE…], object G [KEY=VALUE…], gone G,
// remove POD…, bind POD…, delete POD…, place POD…, fail POD…, lose POD…, wait DURATION, show. at=SECONDS is when pods
// were created or bound.
func (p *player) do(words []string) string {
	var names []string
	var s gang.Settings
	gangID, object, owner, gate, at := "ns/g", false, "", "", time.Time{}
	for _, w := range words[1:] {
		key, value, isSetting := strings.Cut(w, "=")
		n, _ := strconv.Atoi(value)
		switch {
		case !isSetting:
			names = append(names, w)
		case key == "gang":
			gangID = "ns/" + value
		case key == "at":
			at = time.Unix(int64(n), 0)
		case key == "min":
			s.Min = n
		case key == "total":
			s.Total = n
		case key == "mode":
			s.Mode = gang.Mode(value)
		case key == "policy":
			s.Policy = gang.MatchPolicy(value)
		case key == "interrupted":
			s.Interrupted = gang.Interrupted(value)
		case key == "wait":
			s.Wait, _ = time.ParseDuration(value)
		case key == "owner":
			owner = value
		case key == "object":
			object = true
		case key == "gate":
			gate = value
		case key == "group":
			for g := range strings.SplitSeq(value, ",") {
				s.Group = append(s.Group, "ns/"+g)
			}
		default:
			p.t.Fatalf("%v: unknown key", words)
		}
	}
	switch words[0] {
	case "object":
		return p.effects(p.state.PutObject(gang.Object{Gang: "ns/" + names[0], Settings: s}))
	case "gone":
		return p.effects(p.state.RemoveObject("ns/" + names[0]))
	case "wait":
		d, err := time.ParseDuration(names[0])
		if err != nil {
			p.t.Fatal(err)
		}
		p.now = p.now.Add(d)
		out := p.effects(p.state.Expire(p.now))
		if uids := p.state.Evictions(p.now); len(uids) > 0 {
			out += "  evict " + strings.Join(uids, " ") + "\n"
		}
		return out
	case "show":
		return p.show()
	}
	var all string
	for _, name := range names {
		all += p.effects(p.one(words[0], gang.Pod{
			UID: name, Namespace: "ns", Name: name, Gang: gangID, InObject: object, Settings: s,
			Owner: owner, Created: at, Gate: gate,
		}))
	}
	all += p.refused
	p.refused = ""
	return all
}

func (p *player) one(event string, pod gang.Pod) gang.Effects {
	switch event {
	case "put", "bind", "delete":
		if at := pod.Created; event != "put" {
			pod = p.pods[pod.UID]
			if pod.Leaving = event == "delete"; event == "bind" {
				pod.Node, pod.Bound = "node", at
			}
		}
		p.pods[pod.UID] = pod
		return p.state.Put(pod)
	case "remove":
		return p.state.Remove(pod.UID)
	case "place":
		if refused := p.state.Try(pod.UID); refused.Code != why.None {
			p.refused += "  " + pod.UID + " is refused: " + text(refused) + "\n"
			return gang.Effects{}
		}
		return p.state.Place(pod.UID, p.now)
	case "fail":
		return p.state.Fail(pod.UID, why.Finding{Reason: why.Reason{Code: why.InsufficientCPU}}, p.now)
	case "lose":
		return p.state.Lose(pod.UID, why.Finding{})
	}
	p.t.Fatalf("unknown event %q", event)
	return gang.Effects{}
}

// effects carries them out: what is given back is lost at once.
func (p *player) effects(e gang.Effects) (out string) {
	if len(e.Allow) > 0 {
		out += "  allow " + strings.Join(e.Allow, " ") + "\n"
	}
	if len(e.Release) > 0 {
		out += "  give back " + strings.Join(e.Release, " ") + "\n"
	}
	for _, uid := range e.Release {
		out += p.effects(p.state.Lose(uid, why.Finding{}))
	}
	return out
}

// show prints each gang, and each member with its phase, the cycle in which it was tried and why it is not bound.
func (p *player) show() (out string) {
	phases := []string{"pending", "waiting", "returning", "allowed", "bound", "gated"}
	for _, id := range p.state.Gangs() {
		r, _ := p.state.Find(id)
		out += fmt.Sprintf("  %s cycle %d min %d", id, r.Cycle, r.Settings.Min)
		if r.Started {
			out += " started"
		}
		if r.Degraded {
			out += " degraded"
		}
		if !r.Deadline.IsZero() {
			out += " until " + r.Deadline.Sub(time.Unix(0, 0)).String()
		}
		out += "\n"
		for _, m := range r.Members {
			out += fmt.Sprintf("    %s %s %d %s\n", m.Name, phases[m.Phase], m.Cycle, text(p.state.Why(m.UID)))
		}
	}
	return strings.ReplaceAll(out, " \n", "\n")
}

func text(r gang.Refusal) string {
	if r.Code == why.None {
		return ""
	}
	out := fmt.Sprintf("%s %s %d/%d", r.Code, r.Gang, r.Have, r.Need)
	if r.Pod != "" {
		out += fmt.Sprintf(" %s %s", r.Pod, r.Cause.Code)
	}
	if r.Code == why.GangGated {
		out += fmt.Sprintf(" %d for ", r.Gated)
	}
	return out + r.Text
}
