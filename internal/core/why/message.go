package why

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxMessage bounds a message in bytes: the API server's limit for the note of an Event.
const MaxMessage = 1024

// Message is the text of the pod condition PodScheduled and of the Event FailedScheduling:
//
//	<RootCode>: 0/98 nodes are available: 80 <phrase>, 18 <phrase>. preemption: 98 <phrase>. <JSON of the root>
//	<RootCode>: <phrase>. <JSON of the root>            (a code that is asked once per pod)
//
// nodes is the number of nodes of the cluster. A text that would be longer than MaxMessage is shortened at a clause;
// code and JSON are kept. "" when nothing refused.
func Message(findings []Finding, nodes int) string {
	_, message := Explain(findings, nodes)
	return message
}

// Explain returns Root and Message.
func Explain(findings []Finding, nodes int) (Obstacle, string) {
	n := number(findings)
	root := n.root()
	if root.OK() {
		return root, ""
	}
	tail := " " + root.Flat()
	return root, n.text(root, nodes, MaxMessage-len(tail)) + tail
}

// ParseMessage reads a Message; false for the message of another scheduler, which does not begin with a code.
func ParseMessage(message string) (Wire, bool) {
	head, rest, ok := strings.Cut(message, ": ")
	code, known := ParseCode(head)
	if !ok || !known {
		return Wire{}, false
	}
	w := Wire{Code: code, Class: code.Class().String(), Message: rest}
	at := strings.LastIndex(rest, " {")
	var tail map[string]any
	if at < 0 || json.Unmarshal([]byte(rest[at+1:]), &tail) != nil {
		return w, true
	}
	w.Message = rest[:at]
	nodes, _ := tail["nodes"].(float64)
	w.Nodes = int(nodes)
	w.Where, _ = tail["where"].(string)
	delete(tail, "code")
	delete(tail, "nodes")
	delete(tail, "where")
	if len(tail) > 0 {
		w.Params = tail
	}
	return w, true
}

// Text is Message without its JSON, and half as long, so that it can be a part of another message.
func Text(findings []Finding, nodes int) string {
	n := number(findings)
	root := n.root()
	if root.OK() {
		return ""
	}
	return n.text(root, nodes, MaxMessage/2)
}

// text returns the code of the root cause and a summary, in at most room bytes.
func (n numbered) text(root Obstacle, nodes, room int) string {
	head := root.Code.String() + ": "
	return head + n.summary(root, nodes, room-len(head))
}

// summary counts nodes by reason, most first, as kube-scheduler's message does, and ends with what came of preemption.
// A root cause about the pod as such is its only text. Reasons that exceed room are counted and not named.
func (n numbered) summary(root Obstacle, nodes, room int) string {
	if root.Nodes == 0 {
		return clip(oneLine(root.Phrase()), room-1) + "."
	}
	head := fmt.Sprintf("0/%d nodes are available: ", nodes)
	clauses := n.clauses(false)
	if len(clauses) == 0 { // preemption alone refused
		head, clauses = "preemption: ", n.clauses(true)
		return head + join(clauses, room-len(head)-1) + "."
	}
	text := head + join(clauses, room-len(head)-1) + "."
	preemption := n.clauses(true)
	if len(preemption) == 0 {
		return text
	}
	second := " preemption: "
	for shown := len(preemption); shown > 0; shown-- {
		if full := text + second + joinFirst(preemption, shown) + "."; len(full) <= room {
			return full
		}
	}
	return text
}

// clauses counts nodes by phrase: "80 node(s) …", most nodes first.
func (n numbered) clauses(preemption bool) []string {
	type says struct {
		Reason
		detail string
	}
	phraseOf := map[says]string{}
	nodesOf, seen := map[string]int{}, map[string][]bool{}
	for i := range n.findings {
		f := &n.findings[i]
		if f.OK() || f.Object == "" || (f.Phase == Preemption) != preemption {
			continue
		}
		said := says{f.Reason, f.Detail}
		if said.Where = (Where{}); f.Code != TopologyMismatch { // whose text alone has them
			said.Asked, said.Free = 0, 0
		}
		phrase, known := phraseOf[said]
		if !known {
			phrase = oneLine(f.Phrase())
			phraseOf[said] = phrase
			if seen[phrase] == nil {
				seen[phrase] = make([]bool, n.objects)
			}
		}
		if at := seen[phrase]; !at[n.object[i]] {
			at[n.object[i]] = true
			nodesOf[phrase]++
		}
	}
	phrases := slices.SortedFunc(maps.Keys(nodesOf), func(a, b string) int {
		return cmp.Or(cmp.Compare(nodesOf[b], nodesOf[a]), cmp.Compare(a, b))
	})
	for i, phrase := range phrases {
		phrases[i] = fmt.Sprintf("%d %s", nodesOf[phrase], phrase)
	}
	return phrases
}

// join joins as many clauses as fit into room bytes and counts the others. The first clause is cut if it must be.
func join(clauses []string, room int) string {
	for shown := len(clauses); shown > 0; shown-- {
		if text := joinFirst(clauses, shown); len(text) <= room {
			return text
		}
	}
	rest := more(len(clauses) - 1)
	return clip(clauses[0], room-len(rest)) + rest
}

// joinFirst joins the first clauses and says how many more there are.
func joinFirst(clauses []string, shown int) string {
	return strings.Join(clauses[:shown], ", ") + more(len(clauses)-shown)
}

// more says how many reasons are not named.
func more(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return " … and 1 more reason"
	}
	return fmt.Sprintf(" … and %d more reasons", n)
}

// clip cuts text to at most room bytes, at a rune, and marks the cut.
func clip(text string, room int) string {
	const mark = "…"
	if len(text) <= room {
		return text
	}
	end := max(room-len(mark), 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}

// oneLine keeps foreign text from breaking the grammar: valid UTF-8, no line breaks, no closing full stop.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "�")), " ")
	return strings.TrimSuffix(text, ".")
}
