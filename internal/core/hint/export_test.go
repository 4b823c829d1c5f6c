package hint

// VerdictWide is Verdict for best-effort without a preferred answer as it is for many nodes; false if it does not apply.
func (s *Summary) VerdictWide(q *Request) (Answer, bool) {
	p := problem{s: s, q: q}
	if s.c.rule.Policy != BestEffort || !p.load(nil) {
		return Answer{}, false
	}
	if _, found, known := p.preferred(); found || !known {
		return Answer{}, false
	}
	m, found, c := p.reachable(new(Scratch), 0)
	return s.c.rule.finish(Hint{Mask: m}, found, c), true
}

// AnswerWide is Answer for lists without a preferred mask as it is for many nodes.
func (r *Rule) AnswerWide(lists []List) Answer {
	best, found, c := r.reachable(lists, new(Scratch), 0)
	return r.finish(Hint{Mask: best}, found, c)
}
