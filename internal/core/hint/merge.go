package hint

// Scratch holds the buffers of a merge, so that the next one allocates nothing. The zero value is ready. One goroutine
// at a time.
type Scratch struct{}

// Merge returns the best hint of the lists and whether the policy admits it, exactly as the kubelet's merge does, also of
// hints that it refuses. Under None the answer is the empty hint, which is not preferred, and true.
func (r *Rule) Merge(lists []List) (Hint, bool) {
	a := r.Answer(lists, nil)
	return a.Hint, a.Admitted
}

// Answer is Merge with its certainty, which is Exact or Approximate; w may be nil.
func (r *Rule) Answer(lists []List, w *Scratch) Answer { panic("not built") }
